// In place of stages/kernels/device/messages.cuh: a message arrives when a thread waits for its barrier, not before.
#pragma once
#include "device/bulk_copies.cuh"

#include <map>
#include <utility>

namespace cpu_cuda {

// What a barrier of some warps has seen: arrivals, and how often it opened.
struct Meeting {
    int arrived, opened;
};
inline std::map<std::pair<const void*, int>, Meeting> meetings;  // by the block's memory and the barrier's name

}  // namespace cpu_cuda

inline void bar_sync(int id, int threads, int line = __builtin_LINE()) {
    cpu_cuda::Meeting& meeting = cpu_cuda::meetings[{cpu_cuda::dynamic_shared, id}];
    const int opened = meeting.opened;
    if (++meeting.arrived == threads) meeting = {0, opened + 1};
    while (meeting.opened == opened) cpu_cuda::sleep(line);
}

inline void wait_for_flag(const int* flag, int value, int line = __builtin_LINE()) {
    while (*flag != value) cpu_cuda::sleep(line);
}

inline unsigned peer_at(int rank, const void*) { return rank; }

template <class Bytes>
void send(unsigned peer, void* place, Barrier& barrier, Bytes bytes) {
    void* const to = cpu_cuda::in_block(place, peer);
    auto& there = *static_cast<Barrier*>(cpu_cuda::in_block(&barrier, peer));
    if (reinterpret_cast<std::uintptr_t>(to) % sizeof bytes) __builtin_trap();  // misaligned
    std::memset(to, 0xff, sizeof bytes);
    cpu_cuda::BulkCopy message = {&there, to, nullptr, sizeof bytes};
    std::memcpy(message.bytes_sent, &bytes, sizeof bytes);
    cpu_cuda::bulk_copies.push_back(message);
}

template <class Unit>
void post(Unit* to, Unit unit) {
    *to = unit;
}

template <int COUNT>
void request(uint4 (&units)[COUNT], const uint4*, int, unsigned) {
    std::memset(units, 0xff, sizeof units);  // nothing has arrived
}

template <int COUNT>
void await(uint4 (&units)[COUNT], const uint4* from, int apart, unsigned tag, int line = __builtin_LINE()) {
    for (int i = 0; i < COUNT; ++i) {
        while ((from[i * apart].x & 1) != tag) cpu_cuda::sleep(line);
        units[i] = from[i * apart];
        units[i].x &= ~1u;
    }
}

template <int COUNT>
void receive(uint4 (&units)[COUNT], const uint4* from, int apart, unsigned tag, int line = __builtin_LINE()) {
    request(units, from, apart, tag);
    await(units, from, apart, tag, line);
}

template <class Unit, int COUNT, class Place>
void complete(Unit (&units)[COUNT], unsigned tag, Place place, int line = __builtin_LINE()) {
    for (int i = 0; i < COUNT; ++i) {
        while ((units[i].x & 1) != tag) {
            units[i] = *place(i);
            if ((units[i].x & 1) != tag) cpu_cuda::sleep(line);
        }
        units[i].x &= ~1u;
    }
}

template <class Numbers>
void opaque(Numbers&) {}

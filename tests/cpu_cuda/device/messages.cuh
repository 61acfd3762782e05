// In place of stages/kernels/device/messages.cuh: a message arrives when a thread waits for its barrier, not before.
#pragma once
#include "device/bulk_copies.cuh"

namespace cpu_cuda {

// What a barrier of some warps has seen: arrivals, and how often it opened.
struct Meeting {
    int arrived, opened;

    void arrive(int threads) {
        if (++arrived == threads) arrived = 0, ++opened;
    }
};
inline std::map<std::pair<const void*, int>, Meeting> meetings;  // by the block's memory and the barrier's name

}  // namespace cpu_cuda

inline void bar_sync(int id, int threads, int line = __builtin_LINE()) {
    cpu_cuda::Meeting& meeting = cpu_cuda::meetings[{cpu_cuda::dynamic_shared, id}];
    const int opened = meeting.opened;
    meeting.arrive(threads);
    cpu_cuda::await([&] { return meeting.opened != opened; }, line);
}

inline void wait_for_flag(const int* flag, int value, int line = __builtin_LINE()) {
    cpu_cuda::await([=] { return *flag == value; }, line);
}

inline unsigned peer_at(int rank, const void*) { return rank; }

namespace cpu_cuda {

template <class Bytes>
void send(void* to, void* barrier, Bytes bytes) {
    if (reinterpret_cast<std::uintptr_t>(to) % sizeof bytes) __builtin_trap();  // misaligned
    std::memset(to, 0xff, sizeof bytes);
    BulkCopy message = {kept(to), nullptr, sizeof bytes};
    std::memcpy(message.bytes_sent, &bytes, sizeof bytes);
    bulk_copies[kept(barrier)].push_back(message);
}

}  // namespace cpu_cuda

template <class Bytes>
void send(unsigned peer, void* place, Barrier& barrier, Bytes bytes) {
    cpu_cuda::send(cpu_cuda::in_block(place, peer), cpu_cuda::in_block(&barrier, peer), bytes);
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
        cpu_cuda::await([&] { return (from[i * apart].x & 1) == tag; }, line);
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
        const auto is_there = [&] {
            if ((units[i].x & 1) != tag) units[i] = *place(i);
            return (units[i].x & 1) == tag;
        };
        cpu_cuda::await(is_there, line);
        units[i].x &= ~1u;
    }
}

template <class Numbers>
void opaque(Numbers&) {}

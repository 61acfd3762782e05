// In place of stages/kernels/device/bulk_copies.cuh: a copy arrives when a thread waits for its barrier, not before; a copy
// into memory reads its source when its thread waits for its group, so that an overwrite too early shows.
#pragma once

using Barrier = unsigned long long;

namespace cpu_cuda {

// What a barrier holds.
struct Phase {
    unsigned arrivals : 12, missing : 12;  // of a phase; yet to come in this one
    unsigned number : 8;
    std::int32_t bytes;  // expected
};
static_assert(sizeof(Phase) == sizeof(Barrier));

struct BulkCopy {
    void* to;  // as `kept` names it
    const void* from;  // null for a message, which has its bytes with it
    int bytes;
    char bytes_sent[16];
};
inline std::unordered_map<const void*, std::vector<BulkCopy>> bulk_copies;  // under way, by the barrier as `kept` names it

// A copy into memory by a thread, which its block's shared memory and its index name.
struct BulkStore {
    const void* block;
    unsigned thread;
    int groups;  // closed since, its own among them
    void* to;
    const void* from;
    int bytes;
    bool is_own() const { return block == dynamic_shared && thread == threadIdx.x; }
};
inline std::vector<BulkStore> bulk_stores;  // under way

inline void finish_stores(int youngest) {
    for (std::size_t i = 0; i < bulk_stores.size();) {
        const BulkStore store = bulk_stores[i];
        if (store.is_own() && store.groups > youngest) {
            std::memcpy(store.to, store.from, store.bytes);
            bulk_stores.erase(bulk_stores.begin() + i);
        } else {
            ++i;
        }
    }
}

inline Phase phase_of(const Barrier& barrier) {
    Phase phase;
    std::memcpy(&phase, &barrier, sizeof phase);
    return phase;
}

inline void keep(Barrier& barrier, Phase phase) {
    if (phase.missing == 0 && phase.bytes == 0) ++phase.number, phase.missing = phase.arrivals;
    std::memcpy(&barrier, &phase, sizeof phase);
}

inline void take_in_copies(Barrier& barrier) {
    const auto under_way = bulk_copies.find(kept(&barrier));
    if (under_way == bulk_copies.end()) return;
    for (std::vector<BulkCopy>& copies = under_way->second; !copies.empty(); copies.pop_back()) {
        const BulkCopy& copy = copies.back();
        std::memcpy(in_use(copy.to), copy.from ? copy.from : copy.bytes_sent, copy.bytes);
        Phase phase = phase_of(barrier);
        phase.bytes -= copy.bytes;
        keep(barrier, phase);
    }
}

}  // namespace cpu_cuda

inline void mbarrier_init(Barrier& barrier, int arrivals) {
    const auto count = static_cast<unsigned>(arrivals);
    cpu_cuda::Phase phase = {count, count, 0, 0};
    std::memcpy(&barrier, &phase, sizeof phase);
}

inline void fence_mbarrier_init() {}

inline void mbarrier_arrive(Barrier& barrier) {
    cpu_cuda::Phase phase = cpu_cuda::phase_of(barrier);
    --phase.missing;
    cpu_cuda::keep(barrier, phase);
}

inline void cp_async_mbarrier_arrive(Barrier& barrier) {
    cpu_cuda::cp_async_commit_group();
    cpu_cuda::cp_async_wait_group(0);
    mbarrier_arrive(barrier);
}

inline void mbarrier_arrive_expect_tx(Barrier& barrier, int bytes) {
    cpu_cuda::Phase phase = cpu_cuda::phase_of(barrier);
    --phase.missing;
    phase.bytes += bytes;
    cpu_cuda::keep(barrier, phase);
}

inline void mbarrier_wait_parity(Barrier& barrier, int parity, int line = __builtin_LINE()) {
    const auto is_over = [&barrier, parity] {
        cpu_cuda::take_in_copies(barrier);
        return cpu_cuda::phase_of(barrier).number % 2 != parity;
    };
    cpu_cuda::await(is_over, line);
}

// Until it arrives, the target is poison, so that a read too early shows.
inline void cp_async_bulk(void* to, Barrier& barrier, const void* from, int bytes) {
    for (const void* end : {static_cast<const void*>(to), from}) {
        if (reinterpret_cast<std::uintptr_t>(end) % 16 || bytes % 16) __builtin_trap();  // misaligned
    }
    std::memset(to, 0xff, bytes);
    cpu_cuda::bulk_copies[cpu_cuda::kept(&barrier)].push_back({cpu_cuda::kept(to), from, bytes});
}

inline unsigned long long evict_first() { return 0; }
inline unsigned long long evict_normal() { return 0; }
inline void prefetch_evict_last(const void*) {}

inline void cp_async_bulk(void* to, Barrier& barrier, const void* from, int bytes, unsigned long long) {
    cp_async_bulk(to, barrier, from, bytes);
}

inline void fence_proxy_async() {}

inline void cp_async_bulk_store(void* to, const void* from, int bytes) {
    for (const void* end : {static_cast<const void*>(to), from}) {
        if (reinterpret_cast<std::uintptr_t>(end) % 16 || bytes % 16) __builtin_trap();  // misaligned
    }
    cpu_cuda::bulk_stores.push_back({cpu_cuda::dynamic_shared, threadIdx.x, 0, to, from, bytes});
}

inline void cp_async_bulk_store(void* to, const void* from, int bytes, unsigned long long) {
    cp_async_bulk_store(to, from, bytes);
}

inline void cp_async_bulk_commit_group() {
    for (cpu_cuda::BulkStore& store : cpu_cuda::bulk_stores) store.groups += store.is_own();
}

template <int YOUNGEST>
inline void cp_async_bulk_wait_group_read() {
    cpu_cuda::finish_stores(YOUNGEST);
}

inline void cp_async_bulk_wait_all() { cpu_cuda::finish_stores(0); }

template <int YOUNGEST>
inline void cp_async_bulk_wait_group() {
    cpu_cuda::finish_stores(YOUNGEST);
}

inline int wait_for_count(const int* count, int least, int line = __builtin_LINE()) {
    cpu_cuda::await([=] { return *count >= least; }, line);
    return *count;
}

inline void set_count(int* count, int value) { *count = value; }

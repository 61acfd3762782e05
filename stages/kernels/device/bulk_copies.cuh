// Copies of whole runs into shared memory and back by the copy engine, and the barriers that tell when they are there. Needs
// sm_90.
//
// Runs of 16 KB come into a multiprocessor faster than copies of 16 bytes a thread (docs/notebook/large-batch.md). (PTX ISA:
// mbarrier, cp.async.bulk.)
#pragma once

using Barrier = unsigned long long;  // an mbarrier, in shared memory

__device__ inline unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// Arms the barrier for its next phase, which ends when so many bytes have arrived. One thread calls it.
__device__ inline void mbarrier_arrive_expect_tx(Barrier& barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)), "r"(bytes)
                 : "memory");
}

// Makes a barrier; each phase ends after so many arrivals, and once the expected bytes are in.
__device__ inline void mbarrier_init(Barrier& barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals) : "memory");
}

__device__ inline void mbarrier_arrive(Barrier& barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}

// Arrives once all copies of this thread by cp_async_16 so far are there (async_copies.cuh).
__device__ inline void cp_async_mbarrier_arrive(Barrier& barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&barrier)) : "memory");
}

// Makes the barriers of this thread visible to the other blocks.
__device__ inline void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// Waits until the phase of this parity is over: 0 for the first, 1 for the second, ...
__device__ inline void mbarrier_wait_parity(Barrier& barrier, int parity) {
    asm volatile(
        "{\n.reg .pred over;\n"
        "again:\nmbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
        "@!over bra again;\n}" ::"r"(shared_address(&barrier)),
        "r"(parity)
        : "memory");
}

// Starts a copy of `bytes`, a multiple of 16, from memory into this block's shared memory, asynchronously.
__device__ inline void cp_async_bulk(void* to, Barrier& barrier, const void* from, int bytes) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(&barrier))
                 : "memory");
}

// The policy of lines of L2 that others replace first, for what is not read again soon; and the usual one. (PTX ISA: createpolicy.)
__device__ inline unsigned long long evict_first() {
    unsigned long long policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
__device__ inline unsigned long long evict_normal() {
    unsigned long long policy;
    asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
// Brings a line of memory into L2, where others are replaced before it, in later launches too. (PTX ISA: prefetch.)
__device__ inline void prefetch_evict_last(const void* line) {
    asm volatile("prefetch.global.L2::evict_last [%0];" ::"l"(__cvta_generic_to_global(line)));
}
__device__ inline void cp_async_bulk(void* to, Barrier& barrier, const void* from, int bytes, unsigned long long policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(
            shared_address(to)),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(&barrier)), "l"(policy)
        : "memory");
}

// Orders this thread's writes to shared memory before later copies by the copy engine.
__device__ inline void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Starts a copy of `bytes`, a multiple of 16, from this block's shared memory into memory, asynchronously.
__device__ inline void cp_async_bulk_store(void* to, const void* from, int bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(to)),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}

__device__ inline void cp_async_bulk_store(void* to, const void* from, int bytes, unsigned long long policy) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(
                     __cvta_generic_to_global(to)),
                 "r"(shared_address(from)), "r"(bytes), "l"(policy)
                 : "memory");
}

// Closes a group: this thread's copies into memory since the last call.
__device__ inline void cp_async_bulk_commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until this thread's groups but the YOUNGEST last ones have been read from shared memory.
template <int YOUNGEST>
__device__ inline void cp_async_bulk_wait_group_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(YOUNGEST) : "memory");
}

// Waits until all groups of this thread are in memory.
__device__ inline void cp_async_bulk_wait_all() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// Waits until all groups of this thread but the YOUNGEST last ones are in memory.
template <int YOUNGEST>
__device__ inline void cp_async_bulk_wait_group() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(YOUNGEST) : "memory");
}

// Waits for a count in shared memory, and returns it. Copies into memory that the thread that set it has waited for come before
// later ones of this thread.
__device__ inline int wait_for_count(const int* count, int least) {
    int seen;
    do {
        asm volatile("ld.acquire.cta.shared::cta.s32 %0, [%1];" : "=r"(seen) : "r"(shared_address(count)) : "memory");
    } while (seen < least);
    asm volatile("fence.proxy.async;" ::: "memory");
    return seen;
}
__device__ inline void set_count(int* count, int value) {
    asm volatile("fence.proxy.async;\nst.release.cta.shared::cta.s32 [%0], %1;" ::"r"(shared_address(count)), "r"(value)
                 : "memory");
}

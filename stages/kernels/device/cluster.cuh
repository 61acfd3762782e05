// What CUDA C++ has no words for: mailboxes in the shared memory of a cluster's other blocks, and waiting. Needs sm_90.
//
// A remote_buffer is a piece of shared memory with an mbarrier beside it: its owner says how many bytes it expects, any block
// of the cluster, or the copy engine, sends them, and whoever waits is let go when the last has arrived. (PTX ISA:
// mbarrier, st.async, cp.async.bulk.)
#pragma once

using Barrier = unsigned long long;  // an mbarrier, in shared memory

__device__ inline unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// The address at which this block reaches what `own` is in the block of that rank.
__device__ inline unsigned address_in(unsigned own, int rank) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(rank));
    return there;
}

// What is to be added to any address of this block's shared memory for the same place in the block of that rank.
__device__ inline unsigned distance_to(int rank, const void* anything_shared) {
    return address_in(shared_address(anything_shared), rank) - shared_address(anything_shared);
}

// One thread arms the barrier for its next phase, which ends when so many bytes have arrived.
__device__ inline void expect_bytes(Barrier& barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)), "r"(bytes)
                 : "memory");
}

// A barrier whose every phase ends after so many arrivals, and when the bytes that they expect are in.
__device__ inline void make_barrier(Barrier& barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals) : "memory");
}

__device__ inline void arrive(Barrier& barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}

// Lets the other blocks see the barriers that this thread has made.
__device__ inline void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// Waits until the phase of this parity is over: 0 for the first, 1 for the second, ...
__device__ inline void wait_for(Barrier& barrier, int parity) {
    asm volatile(
        "{\n.reg .pred over;\n"
        "again:\nmbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
        "@!over bra again;\n}" ::"r"(shared_address(&barrier)),
        "r"(parity)
        : "memory");
}

// Eight bytes into another block's remote_buffer; both addresses are those of address_in.
__device__ inline void send(unsigned address, unsigned barrier, uint2 bytes) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(address),
                 "r"(bytes.x), "r"(bytes.y), "r"(barrier)
                 : "memory");
}

// Orders what this thread has written to shared memory before what is fetched there later.
__device__ inline void write_before_fetches() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Tells whoever waits for that value on any multiprocessor that what this block has written until now can be read.
__device__ inline void raise_flag(int* flag, int value) {
    asm volatile("fence.acq_rel.gpu;\nst.release.gpu.global.s32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

// Waits for a flag; what it tells of can then be read and fetched.
__device__ inline void wait_for_flag(const int* flag, int value) {
    int seen;
    do {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
    } while (seen != value);
    asm volatile("fence.proxy.async;" ::: "memory");
}

__device__ inline void store_in(unsigned address, double value) {
    asm volatile("st.shared::cluster.f64 [%0], %1;" ::"r"(address), "d"(value) : "memory");
}

// A barrier of all threads of the cluster.
__device__ inline void wait_for_cluster() {
    asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}

// A barrier of some warps of a block, which all wait at the same line: `threads` of them, by the name `id` (not 0,
// which is __syncthreads).
__device__ inline void wait_for_warps(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// The same for warps that wait at different lines of the kernel. (PTX ISA: bar is barrier.aligned.)
__device__ inline void meet_warps(int id, int threads) {
    asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Takes part in such a barrier without waiting, wherever it is.
__device__ inline void signal_warps(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ inline int rank_in_cluster() {
    int rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// So many bytes, a multiple of 16, from memory into this block's remote_buffer, while its threads do something else.
__device__ inline void fetch(void* remote_buffer, Barrier& barrier, const void* from, int bytes) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(remote_buffer)),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(&barrier))
                 : "memory");
}

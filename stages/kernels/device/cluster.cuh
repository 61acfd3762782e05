// Wrappers for instructions without CUDA C++: messages to the shared memory of a cluster's other blocks, and waits. Needs sm_90.
//
// A remote buffer is shared memory with an mbarrier beside it. Its owner arms the barrier with the number of bytes it expects;
// any block of the cluster, or the copy engine, sends them; waiting threads go on when the last byte has arrived. (PTX ISA:
// mbarrier, st.async, cp.async.bulk.)
#pragma once
#include "device/blocks_together.cuh"
#include "device/messages.cuh"

// The address, for this block, of the place in the block of that rank that `own` has here.
__device__ inline unsigned mapa(unsigned own, int rank) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(rank));
    return there;
}

// The difference between an address in the block of that rank and the same address in this block.
__device__ inline unsigned distance_to(int rank, const void* anything_shared) {
    return mapa(shared_address(anything_shared), rank) - shared_address(anything_shared);
}

// Sends eight bytes to another block's remote buffer; both addresses are those of mapa.
__device__ inline void st_async(unsigned address, unsigned barrier, uint2 bytes) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(address),
                 "r"(bytes.x), "r"(bytes.y), "r"(barrier)
                 : "memory");
}

// The same for sixteen bytes.
__device__ inline void st_async(unsigned address, unsigned barrier, uint4 bytes) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                     address),
                 "r"(bytes.x), "r"(bytes.y), "r"(bytes.z), "r"(bytes.w), "r"(barrier)
                 : "memory");
}

// Publishes the writes of this block so far to all threads of the GPU that wait for this value of the flag.
__device__ inline void raise_flag(int* flag, int value) {
    asm volatile("fence.acq_rel.gpu;\nst.release.gpu.global.s32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

__device__ inline void st_shared_cluster(unsigned address, double value) {
    asm volatile("st.shared::cluster.f64 [%0], %1;" ::"r"(address), "d"(value) : "memory");
}

// A barrier of all threads of the cluster.
__device__ inline void barrier_cluster() {
    asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}

// A barrier of the cluster in two halves. After the wait a block may overwrite buffers that others read before they arrived.
// `relaxed` orders no memory: what makes that safe is that the block meets before it arrives, and no thread gets there before
// its reads have delivered the numbers that it computed with. `release` would say so formally, and costs 6 to 9 % of a step
// (docs/notebook/persistent-cluster-hidden.md).
__device__ inline void barrier_cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void barrier_cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

// As bar_sync, for warps that call it at different places of the kernel. (PTX ISA: bar is barrier.aligned.)
__device__ inline void barrier_sync(int id, int threads) {
    asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Arrives at such a barrier without waiting.
__device__ inline void bar_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// The blocks of one cluster: rank, barrier, and each other's shared memory. Before sm_90 there are no clusters, and a block is
// alone.
#pragma once

// The cluster's number of blocks; cluster_ctarank is this block's place among them.
__device__ inline int cluster_nctarank() {
    int blocks = 1;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
#endif
    return blocks;
}

__device__ inline int cluster_ctarank() {
    int rank = 0;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return rank;
}

// The cluster's index along x; blockIdx.x where each block is alone.
__device__ inline int clusterid_x() {
    int group = blockIdx.x;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(group));
#endif
    return group;
}

// A barrier of all threads of all blocks; writes to shared memory before it are visible after it.
__device__ inline void barrier_cluster_aligned() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Reads four numbers from the block of that rank, where `own` lies in this one.
__device__ inline float4 ld_shared_cluster_v4(const float* own, int rank) {
    float4 value = *reinterpret_cast<const float4*>(own);
#if __CUDA_ARCH__ >= 900
    const unsigned here = static_cast<unsigned>(__cvta_generic_to_shared(own));
    asm volatile(
        "{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %4, %5;\n"
        "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n}"
        : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
        : "r"(here), "r"(rank)
        : "memory");
#endif
    return value;
}

// Reads one number, likewise.
__device__ inline float ld_shared_cluster(const float* own, int rank) {
    float value = *own;
#if __CUDA_ARCH__ >= 900
    const unsigned here = static_cast<unsigned>(__cvta_generic_to_shared(own));
    asm volatile(
        "{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %1, %2;\nld.shared::cluster.f32 %0, [there];\n}"
        : "=f"(value)
        : "r"(here), "r"(rank)
        : "memory");
#endif
    return value;
}

// Writes one number to the block of that rank, where `own` lies in this one.
__device__ inline void st_shared_cluster(float* own, float value, int rank) {
#if __CUDA_ARCH__ >= 900
    const unsigned here = static_cast<unsigned>(__cvta_generic_to_shared(own));
    asm volatile(
        "{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nst.shared::cluster.f32 [there], %2;\n}" ::"r"(here),
        "r"(rank), "f"(value)
        : "memory");
#else
    *own = value;
#endif
}

// In place of stages/kernels/device/blocks_together.cuh: a cluster is a run of blocks along x; all run at once.
#pragma once

inline int cluster_nctarank() { return cpu_cuda::cluster; }
inline int cluster_ctarank() { return blockIdx.x % cpu_cuda::cluster; }
inline int clusterid_x() { return blockIdx.x / cpu_cuda::cluster; }

inline void barrier_cluster_aligned(int line = __builtin_LINE()) {
    if (cpu_cuda::cluster > 1) cpu_cuda::meet(line);  // without a cluster it does nothing, as on a GPU
}

inline float4 ld_shared_cluster_v4(const float* own, int rank) {
    return *static_cast<float4*>(cpu_cuda::in_block(own, rank));
}
inline float ld_shared_cluster(const float* own, int rank) { return *static_cast<float*>(cpu_cuda::in_block(own, rank)); }
inline void st_shared_cluster(float* own, float value, int rank) {
    *static_cast<float*>(cpu_cuda::in_block(own, rank)) = value;
}

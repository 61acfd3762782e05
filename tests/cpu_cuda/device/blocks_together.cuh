// In place of stages/kernels/device/blocks_together.cuh: a cluster is a run of blocks along x; all run at once.
#pragma once

inline int blocks_together() { return cpu_cuda::cluster; }
inline int rank_of_block() { return blockIdx.x % cpu_cuda::cluster; }
inline int group_of_blocks() { return blockIdx.x / cpu_cuda::cluster; }

inline void meet_blocks(int line = __builtin_LINE()) {
    if (cpu_cuda::cluster > 1) cpu_cuda::meet(line);  // without a cluster it does nothing, as on a GPU
}

inline float4 read_from_block(const float* own, int rank) { return *static_cast<float4*>(cpu_cuda::in_block(own, rank)); }
inline float read_one_from_block(const float* own, int rank) { return *static_cast<float*>(cpu_cuda::in_block(own, rank)); }
inline void write_to_block(float* own, float value, int rank) {
    *static_cast<float*>(cpu_cuda::in_block(own, rank)) = value;
}

// In place of stages/kernels/device/warpgroup.cuh: a CPU has no such instructions, so that single warps multiply.
#pragma once

constexpr bool HAS_WGMMA = false;
inline void wgmma_fence() {}
inline void wgmma_commit_group() {}
template <int BUT>
void wgmma_wait_group() {}
template <int N>
void keep_in_place(float (&)[N][4]) {}
// Declared, and never called.
unsigned long long moved(unsigned long long matrices, int bytes);
unsigned long long wgmma_descriptor(const void* first, int along_k, int across);
template <int N, class Left>
void wgmma_mma_async(float (&c)[N][4], const Left& a, unsigned long long b);
template <int N>
void wgmma_mma_async_by_rows(float (&c)[N][4], const unsigned (&a)[4], unsigned long long b);

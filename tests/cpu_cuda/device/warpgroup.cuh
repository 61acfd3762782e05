// In place of stages/kernels/device/warpgroup.cuh: a CPU has no such instructions, so that single warps multiply. What follows
// is declared, and never called.
#pragma once

constexpr bool HAS_WGMMA = false;

unsigned long long wgmma_descriptor(const void* first, int along_k, int across);
unsigned long long moved(unsigned long long matrices, int bytes);
void wgmma_fence();
void wgmma_commit_group();
template <int BUT>
void wgmma_wait_group();
template <int N>
void keep_in_place(float (&c)[N][4]);
template <int N, class Left>
void wgmma_mma_async(float (&c)[N][4], Left&& a, unsigned long long b);

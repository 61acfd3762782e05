// Numbers as one float16, or as the sum of two halves, which keeps 22 bits. Needs sm_80.
#pragma once
#include "device/tensor_cores.cuh"

// float16 numbers that add up to one number: two for float32's class, or one.
#ifndef FACTOR_HALVES
#define FACTOR_HALVES 2
#endif
constexpr int HALVES = FACTOR_HALVES;

// Powers of two that keep low halves away from float16's smallest numbers, below 6e-5.
constexpr float WEIGHT_SCALE = 64.0f;  // stages/large_batch/layout.py
constexpr float OUTPUT_SCALE = 16.0f;

constexpr int WARP = 32;
constexpr int EDGE = 16;  // rows and columns of a left factor

// Two numbers, rounded, and the rest of each after that rounding, rounded; each a pair with the first in the lower bits.
__device__ inline void split(unsigned (&halves)[HALVES], float first, float second) {
    halves[0] = cvt_f16x2(first, second);
    if (HALVES == 2) {
        const float2 rounded = cvt_f32_f16x2(halves[0]);
        halves[HALVES - 1] = cvt_f16x2(first - rounded.x, second - rounded.y);
    }
}

// c (16, 8) += a b without the product of two low halves, which is below float32's rounding.
__device__ inline void multiply_halves(float (&c)[4], const unsigned (&a)[HALVES][4], const unsigned (&b)[HALVES][4],
                                       int column) {
    for (int i = 0; i < HALVES; ++i) {
        for (int j = 0; i + j < HALVES; ++j) mma_m16n8k16_f16(c, a[i], b[j][2 * column], b[j][2 * column + 1]);
    }
}

// The address that a lane passes to ldmatrix for four matrices of 8 by 8: `down` is the first matrix's neighbour below
// second (as in left factors), else its neighbour to the right is.
__device__ inline const unsigned short* row_of(const unsigned short* corner, int stride, bool down) {
    const int lane = threadIdx.x % WARP, matrix = lane / 8;
    const int below = down ? matrix % 2 : matrix / 2, right = down ? matrix / 2 : matrix % 2;
    return corner + (8 * below + lane % 8) * stride + 8 * right;
}

// A warp's products on tensor cores, with float32 factors as two float16 halves. Needs sm_80.
#pragma once
#include "device/tensor_cores.cuh"

constexpr int WARP = 32;
constexpr int EDGE = 16;      // rows and columns of a left factor
constexpr int HALF_EDGE = 8;  // columns of a right factor and of the product; lanes have rows g and g + 8

// Loads the transpose of a matrix (16, 16) as two right factors: of the upper rows, and of the lower rows. In shared memory
// it lies as four row-major matrices of 8 by 8, the upper two first. (PTX ISA: ldmatrix.)
__device__ inline uint4 load_transposed(const uint4* matrix) { return ldmatrix<false>(matrix + threadIdx.x % WARP); }

// Loads the same matrix, not transposed, as two right factors: of the left columns, and of the right columns.
__device__ inline uint4 load_factors(const uint4* matrix) {
    const uint4 four = ldmatrix<true>(matrix + threadIdx.x % WARP);
    return {four.x, four.z, four.y, four.w};
}

// Two numbers as float16, and the rest of each after that rounding as float16: together 22 bits.
struct Halves {
    unsigned high, low;  // each a pair of float16, the first number in the lower bits
};

__device__ inline Halves halves_of(float first, float second) {
    Halves halves;
    halves.high = cvt_f16x2(first, second);
    const float2 high = cvt_f32_f16x2(halves.high);
    const float low_second = second - high.y;
    halves.low = cvt_f16x2(first - high.x, low_second);
    return halves;
}

// Matrices of 8 by 8 in float16: between shared memory, a warp's registers and other blocks. Needs sm_90.
#pragma once
#include "device/cluster.cuh"
#include "cluster/fragments.cuh"

// float16 numbers that add up to one number of a factor: two for float32's precision, or one.
#ifndef FACTOR_HALVES
#define FACTOR_HALVES 2
#endif
constexpr int HALVES = FACTOR_HALVES;

// An 8 by 8 matrix, row-major: its high halves, then its low ones if it has any. Lane 4g + t has columns 2t and 2t + 1 of row
// g, the layout of mma_m16n8k16_f16's factors and of a product's upper rows.
struct Matrix {
    unsigned halves[HALVES][WARP];
};

// Writes this lane's two numbers of a row, rounded to the halves that a factor keeps.
__device__ inline void put(Matrix& matrix, float2 two, int lane) {
    const Halves halves = halves_of(two.x, two.y);
    matrix.halves[0][lane] = halves.high;
    if (HALVES == 2) matrix.halves[HALVES - 1][lane] = halves.low;
}

// The row that this lane addresses for a left factor. Its rows 8 to 15 (`is_lower`) are the low halves of rows 0 to 7 or, with
// one half a number, another matrix, `next` further on.
__device__ inline const void* row_of(const Matrix* matrix, bool is_lower, int next, int lane) {
    const unsigned* words = HALVES == 2 ? matrix->halves[is_lower ? HALVES - 1 : 0] : matrix[is_lower ? next : 0].halves[0];
    return words + lane % HALF_EDGE * (HALF_EDGE / 2);
}

// Parts of a sum in a message, four a lane: float32 or, with one half a number, float16.
template <int>
struct PartOf {
    uint4 bits;

    __device__ PartOf(float2 a, float2 b)
        : bits{__float_as_uint(a.x), __float_as_uint(a.y), __float_as_uint(b.x), __float_as_uint(b.y)} {}

    __device__ float4 numbers() const {
        return {__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z), __uint_as_float(bits.w)};
    }
    __device__ float number(int i) const { return __uint_as_float((&bits.x)[i]); }
};
template <>
struct PartOf<1> {
    uint2 bits;

    __device__ PartOf(float2 a, float2 b) : bits{halves_of(a.x, a.y).high, halves_of(b.x, b.y).high} {}

    __device__ float4 numbers() const {
        const float2 a = cvt_f32_f16x2(bits.x), b = cvt_f32_f16x2(bits.y);
        return {a.x, a.y, b.x, b.y};
    }
    __device__ float number(int i) const {
        const float2 two = cvt_f32_f16x2((&bits.x)[i / 2]);
        return i % 2 == 0 ? two.x : two.y;
    }
};
using Part = PartOf<HALVES>;

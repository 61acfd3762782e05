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
// g, the layout of multiply_add's factors and of a product's upper rows.
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

// Loads four 8 by 8 matrices of halves. Each lane passes the address of one of their 32 rows of 16 bytes, and gets its two
// numbers of each matrix. (PTX ISA: ldmatrix.)
__device__ inline uint4 load_rows(const void* row) {
    uint4 four;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(four.x), "=r"(four.y), "=r"(four.z), "=r"(four.w)
                 : "r"(shared_address(row))
                 : "memory");
    return four;
}

// The same with each matrix transposed.
__device__ inline uint4 load_columns(const void* row) {
    uint4 four;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(four.x), "=r"(four.y), "=r"(four.z), "=r"(four.w)
                 : "r"(shared_address(row))
                 : "memory");
    return four;
}

// Sends sixteen bytes to another block's remote buffer; both addresses are those of mapa.
__device__ inline void st_async(unsigned address, unsigned barrier, uint4 bytes) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                     address),
                 "r"(bytes.x), "r"(bytes.y), "r"(bytes.z), "r"(bytes.w), "r"(barrier)
                 : "memory");
}

// A barrier of the cluster in two halves. After barrier_cluster_wait a block may overwrite buffers that the others read before
// their barrier_cluster_arrive_relaxed. `relaxed` orders no memory: what makes that safe is that the block meets before it signals, and no
// thread gets there before its reads have delivered the numbers that it computed with. `release` would say so formally,
// and costs 6 to 9 % of a step (docs/notebook/persistent-cluster-hidden.md).
__device__ inline void barrier_cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ inline void barrier_cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

// A pair of float16.
__device__ inline float2 numbers_of(unsigned pair) {
    float2 two;
    asm("{\n.reg .f16 a, b;\nmov.b32 {a, b}, %2;\ncvt.f32.f16 %0, a;\ncvt.f32.f16 %1, b;\n}"
        : "=f"(two.x), "=f"(two.y)
        : "r"(pair));
    return two;
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
        const float2 a = numbers_of(bits.x), b = numbers_of(bits.y);
        return {a.x, a.y, b.x, b.y};
    }
    __device__ float number(int i) const {
        const float2 two = numbers_of((&bits.x)[i / 2]);
        return i % 2 == 0 ? two.x : two.y;
    }
};
using Part = PartOf<HALVES>;

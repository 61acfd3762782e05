// Matrices of 8 by 8 in halves, moved between shared memory, a warp's registers and the other blocks. Needs sm_90.
#pragma once
#include "cluster.cuh"
#include "fragments.cuh"

// An 8 by 8 matrix of float32 in two float16 halves, both row-major: lane 4g + t has columns 2t and 2t + 1 of row g, as
// multiply_add leaves a product's upper rows, and wants its factors.
struct Matrix {
    unsigned high[WARP], low[WARP];
};

// Four 8 by 8 matrices of halves that lie one after the other: two of struct Matrix, or 16 by 16 pixels. Each lane is
// given the address of one of their 32 rows, and gets its two numbers of each matrix. (PTX ISA, ldmatrix.)
__device__ inline uint4 load_rows(const void* row) {
    uint4 two;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(two.x), "=r"(two.y), "=r"(two.z), "=r"(two.w)
                 : "r"(shared_address(row))
                 : "memory");
    return two;
}

// The same of each matrix's transpose.
__device__ inline uint4 load_columns(const void* row) {
    uint4 two;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(two.x), "=r"(two.y), "=r"(two.z), "=r"(two.w)
                 : "r"(shared_address(row))
                 : "memory");
    return two;
}

__device__ inline void store_in(unsigned address, float2 value) {
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(value.x), "f"(value.y) : "memory");
}

__device__ inline void store_in(unsigned address, float4 value) {
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(value.x), "f"(value.y),
                 "f"(value.z), "f"(value.w)
                 : "memory");
}

__device__ inline void store_in(unsigned address, uint4 value) {
    asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.x), "r"(value.y),
                 "r"(value.z), "r"(value.w)
                 : "memory");
}

// A barrier of the cluster in two halves. What was written before the first is seen after the second.
__device__ inline void tell_cluster() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ inline void hear_cluster() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Two of a lane's numbers out of a matrix, each the sum of its halves.
__device__ inline float2 whole(unsigned high, unsigned low) {
    float2 sum, rest;
    asm("{\n.reg .f16 a, b;\nmov.b32 {a, b}, %2;\ncvt.f32.f16 %0, a;\ncvt.f32.f16 %1, b;\n}"
        : "=f"(sum.x), "=f"(sum.y)
        : "r"(high));
    asm("{\n.reg .f16 a, b;\nmov.b32 {a, b}, %2;\ncvt.f32.f16 %0, a;\ncvt.f32.f16 %1, b;\n}"
        : "=f"(rest.x), "=f"(rest.y)
        : "r"(low));
    return {sum.x + rest.x, sum.y + rest.y};
}

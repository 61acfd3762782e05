// Matrices of 8 by 8 in halves, moved between shared memory, a warp's registers and the other blocks. Needs sm_90.
#pragma once
#include "cluster.cuh"
#include "fragments.cuh"

// An 8 by 8 matrix of float32 in two float16 halves, both row-major: lane 4g + t has columns 2t and 2t + 1 of row g, as
// multiply_add leaves a product's upper rows, and wants its factors.
struct Matrix {
    unsigned high[WARP], low[WARP];
};

// Four 8 by 8 matrices of halves. Each lane is given the address of one of their 32 rows of 16 bytes, and gets its two
// numbers of each matrix. (PTX ISA, ldmatrix.)
__device__ inline uint4 load_rows(const void* row) {
    uint4 four;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(four.x), "=r"(four.y), "=r"(four.z), "=r"(four.w)
                 : "r"(shared_address(row))
                 : "memory");
    return four;
}

// The same of each matrix's transpose.
__device__ inline uint4 load_columns(const void* row) {
    uint4 four;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(four.x), "=r"(four.y), "=r"(four.z), "=r"(four.w)
                 : "r"(shared_address(row))
                 : "memory");
    return four;
}

// Sixteen bytes into another block's mailbox; both addresses are those of address_in.
__device__ inline void send(unsigned address, unsigned barrier, uint4 bytes) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                     address),
                 "r"(bytes.x), "r"(bytes.y), "r"(bytes.z), "r"(bytes.w), "r"(barrier)
                 : "memory");
}

// A barrier of the cluster in two halves, which orders no stores: whoever has heard it may overwrite what all had read.
__device__ inline void tell_cluster() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ inline void hear_cluster() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

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

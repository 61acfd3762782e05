#pragma once
#include "device/warpgroup.cuh"
#include "grid/message_parts.cuh"

constexpr int GROUP_WARPS = 4;  // of a warp group

// A factor in shared memory, in matrices of 8 by 8; `along` and `across` are the numbers of 16 bits to the next matrix along
// the sum, and to the next row or column of matrices. Its lower halves lie `low` behind.
struct Factor {
    const unsigned short* first;
    int along, across, low;

    __device__ int at(int k, int half) const { return 2 * k * along + half * low; }
    __device__ Factor beside(int edges) const { return {first + edges * across, along, across, low}; }
    __device__ auto descriptor() const { return wgmma_descriptor(first, 2 * along, 2 * across); }
};

// sums (64, 8 COLS) += left (64, 16) right (16, 8 COLS) by a warp group, so many numbers into the factors; = unless it adds. A
// factor is TRANSPOSED if its matrices' rows lie along the sum.
template <bool LEFT_TRANSPOSED, bool RIGHT_TRANSPOSED, int COLS>
__device__ void multiply_step(float (&sums)[COLS][4], Factor left, Factor right, int left_at, int right_at,
                              bool adds) {
    if constexpr (HAS_WGMMA) {  // descriptors that differ by constants: to compute each would take longer than its product
        wgmma_of_shared<LEFT_TRANSPOSED, RIGHT_TRANSPOSED>(sums, moved_low(left.descriptor(), 2 * left_at),
                                                           moved_low(right.descriptor(), 2 * right_at), 2 * right.across, adds);
    } else {
        const int lane = threadIdx.x % WARP, row = lane % EDGE * EDGE, second = lane / EDGE % 2, upper = lane / 16;
        unsigned a[4];
#pragma unroll
        for (int n = 0; n < COLS; ++n) {
            if (!adds) sums[n][0] = sums[n][1] = sums[n][2] = sums[n][3] = 0.0f;
        }
        const int tile = threadIdx.x / WARP % GROUP_WARPS * 2;
        ldmatrix<LEFT_TRANSPOSED>(a, left.first + left_at + (tile + second) * left.across + upper * left.along + row);
#pragma unroll
        for (int n = 0; n < COLS; ++n) {
            unsigned b[2];
            ldmatrix<RIGHT_TRANSPOSED>(b, right.first + right_at + n * right.across + second * right.along + row);
            mma_m16n8k16_f16(sums[n], a, b[0], b[1]);
        }
    }
}

// The product of a warp group, steps of sixteen along the sum. Without LEFT_LOW or RIGHT_LOW that factor has no
// lower halves.
template <int STEPS, bool LEFT_TRANSPOSED, bool RIGHT_TRANSPOSED, bool LEFT_LOW, bool RIGHT_LOW, int COLS>
__device__ void multiply(float (&sums)[COLS][4], Factor left, Factor right) {
    float low[COLS][4];
    if constexpr (HAS_WGMMA) wgmma_fence();
#pragma unroll
    for (int k = 0; k < STEPS; ++k) {
        const int a = left.at(k, 0), b = right.at(k, 0);
        multiply_step<LEFT_TRANSPOSED, RIGHT_TRANSPOSED>(sums, left, right, a, b, k > 0);
        if constexpr (HALVES == 2) {
            const int low_a = left.at(k, 1), low_b = right.at(k, 1);
            if constexpr (RIGHT_LOW) multiply_step<LEFT_TRANSPOSED, RIGHT_TRANSPOSED>(low, left, right, a, low_b, k > 0);
            if constexpr (LEFT_LOW) {
                multiply_step<LEFT_TRANSPOSED, RIGHT_TRANSPOSED>(low, left, right, low_a, b, RIGHT_LOW || k > 0);
            }
        }
    }
    if constexpr (HAS_WGMMA) {
        wgmma_commit_group();
        wgmma_wait_group<0>();
        // Nothing may use the sums before: the compiler would wait after each product.
#pragma unroll
        for (int n = 0; n < COLS; ++n) {
            opaque(sums[n]);
            if constexpr (HALVES == 2) opaque(low[n]);
        }
    }
    if constexpr (HALVES == 2) {
#pragma unroll
        for (int n = 0; n < COLS; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[n][i] += low[n][i] * (1.0f / LOW);
        }
    }
}

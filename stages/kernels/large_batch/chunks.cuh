// Matrices in chunks of 16 by 16 numbers: four matrices of 8 by 8 without gaps, the lower left one second. So a run in memory
// is a run of chunks, and a warp reads a chunk from shared memory without bank conflicts.
#pragma once
#include "large_batch/halves.cuh"

using Number = unsigned short;

constexpr int CHUNK = EDGE * EDGE;  // numbers

// Where a matrix's number lies in its chunk.
__device__ inline int place_in_chunk(int row, int column) {
    return (column % EDGE / 8 * 2 + row % EDGE / 8) * 64 + row % 8 * 8 + column % 8;
}

// Where number (row, column) of one half of a matrix (batch, width) lies: one column of chunks comes after the other.
__device__ inline long long place_in_chunks(int half, int row, int column, int width, int batch) {
    const int chunks = (batch + EDGE - 1) / EDGE;
    return static_cast<long long>((half * (width / EDGE) + column / EDGE) * chunks + row / EDGE) * CHUNK + place_in_chunk(row, column);
}

// A chunk as a left factor; TRANSPOSED, its columns are the factor's rows.
template <bool TRANSPOSED>
__device__ inline void load_left(unsigned (&to)[4], const Number* chunk) {
    const int lane = threadIdx.x % WARP, matrix = lane / 8;
    ldmatrix<TRANSPOSED>(to, chunk + 64 * (TRANSPOSED ? matrix % 2 * 2 + matrix / 2 : matrix) + 8 * (lane % 8));
}

// A chunk as a right factor of 16 columns.
__device__ inline void load_right(unsigned (&to)[4], const Number* chunk) {
    ldmatrix<true>(to, chunk + 8 * (threadIdx.x % WARP));
}

// c (16, 16) += a b.
__device__ inline void multiply_chunk(float (&c)[2][4], const unsigned (&a)[4], const unsigned (&b)[4]) {
    for (int column = 0; column < 2; ++column) mma_m16n8k16_f16(c[column], a, b[2 * column], b[2 * column + 1]);
}

// Warp w of W has chunks begin to end - 1 of `count`.
struct Span {
    int begin, end;
    __device__ Span(int count, int warps)
        : begin(count * static_cast<int>(threadIdx.x / WARP) / warps), end(count * static_cast<int>(threadIdx.x / WARP + 1) / warps) {}
    __device__ int size() const { return end - begin; }
};

// Adds up what W warps have of the same R by C chunks, by way of shared memory; warp w is left with the sums of each W-th chunk.
template <int W, int R, int C, class Take>
__device__ inline void add_up(const float (&c)[R][C][2][4], float4* memory, Take take) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    __syncthreads();  // all have read the factors that are overwritten
#pragma unroll
    for (int i = 0; i < 2 * R * C; ++i) {
        const float(&own)[4] = c[i / 2 / C][i / 2 % C][i % 2];
        memory[(warp * 2 * R * C + i) * WARP + lane] = make_float4(own[0], own[1], own[2], own[3]);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < (2 * R * C + W - 1) / W; ++i) {
        const int at = W * i + warp;  // half a chunk
        if (2 * R * C % W != 0 && at >= 2 * R * C) continue;
        float4 sum = memory[at * WARP + lane];
        for (int other = 1; other < W; ++other) {
            const float4 its = memory[(other * 2 * R * C + at) * WARP + lane];
            sum.x += its.x, sum.y += its.y, sum.z += its.z, sum.w += its.w;
        }
        take(i, sum);
    }
}

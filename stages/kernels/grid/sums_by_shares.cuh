// Sums of many parts: several threads share out the parts of a sum.
#pragma once
#include "grid/grid.cuh"

constexpr int QUADS = 8, GROUP_COLS = 4 * QUADS;  // of four neighbouring numbers; a group of them is a task

// Threads for a quad of numbers, at least four, in a block that has so many tasks.
__device__ constexpr int shares_of(int parts, int tasks) {
    int shares = THREADS / QUADS;
    while (shares > 4 && (tasks * shares * QUADS > THREADS || shares >= 2 * parts)) shares /= 2;
    return shares;
}

// The sums of `rows` rows (SLICES, ..., WIDTH) of parts, `apart` from slice to slice, by the threads of `blocks` blocks of which
// this one is number `block`, ROWS rows a block at most. Calls finish(row, col, sum, begin(row, col)): begin() loads early. Row i
// of the parts is place(i). `scratch` holds THREADS numbers.
template <int SLICES, int WIDTH, int ROWS, class Place, class Begin, class Finish>
__device__ inline void add_up_by_shares(const float* parts, int apart, float* scratch, int rows, int block, int blocks,
                                        Place place, Begin begin, Finish finish) {
    constexpr int GROUPS = (WIDTH + GROUP_COLS - 1) / GROUP_COLS, SHARES = shares_of(SLICES, ROWS * GROUPS);
    constexpr int TEAM = QUADS * SHARES, TEAMS = THREADS / TEAM, TEAM_WARPS = TEAM / WARP;
    constexpr int EACH = (SLICES + SHARES - 1) / SHARES, AT_ONCE = EACH < 8 ? EACH : 8;
    const int team = threadIdx.x / TEAM, share = threadIdx.x % TEAM / QUADS, lane = threadIdx.x % WARP;
    for (int first = block * TEAMS; first < rows * GROUPS; first += blocks * TEAMS) {
        const int task = first + team, row = task / GROUPS, begin_col = task % GROUPS * GROUP_COLS;
        const int col = begin_col + lane, quad = begin_col + 4 * (lane % QUADS);
        const bool is_there = row < rows, finishes = is_there && threadIdx.x % TEAM < WARP && col < WIDTH;
        const float early = finishes ? begin(row, col) : 0.0f;
        const float* from = parts + place(row) * WIDTH + quad;
        float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
        for (int i = 0; i < EACH; i += AT_ONCE) {
            float4 numbers[AT_ONCE];
#pragma unroll
            for (int j = 0; j < AT_ONCE; ++j) {
                const int slice = share + (i + j) * SHARES;
                numbers[j] = is_there && quad < WIDTH && slice < SLICES
                                 ? __ldcg(reinterpret_cast<const float4*>(from + slice * apart))
                                 : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            }
#pragma unroll
            for (int j = 0; j < AT_ONCE; ++j) {
                sum.x += numbers[j].x, sum.y += numbers[j].y, sum.z += numbers[j].z, sum.w += numbers[j].w;
            }
        }
#pragma unroll
        for (int flip = QUADS; flip < WARP; flip *= 2) {
            sum.x += __shfl_xor_sync(~0u, sum.x, flip), sum.y += __shfl_xor_sync(~0u, sum.y, flip);
            sum.z += __shfl_xor_sync(~0u, sum.z, flip), sum.w += __shfl_xor_sync(~0u, sum.w, flip);
        }
        if (lane < QUADS) reinterpret_cast<float4*>(scratch)[threadIdx.x / WARP * QUADS + lane] = sum;
        __syncthreads();
        if (finishes) {
            float total = 0.0f;
#pragma unroll
            for (int w = 0; w < TEAM_WARPS; ++w) total += scratch[(team * TEAM_WARPS + w) * GROUP_COLS + lane];
            finish(row, col, total, early);
        }
        __syncthreads();
    }
}

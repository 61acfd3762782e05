// Products of a block's tiles in shared memory: on tensor cores from sm_80 on, each float32 factor split in two tf32
// numbers that together keep 21 bits or more; with multiply-adds before.
#pragma once
#include "grid.cuh"

constexpr int EDGE = 16;  // rows of a fragment of the product
constexpr int TILE = 8;   // columns of it, and the numbers that one instruction adds up

// A factor's rows are the product's rows (left factor) or columns (right factor), `k` is what is added up. An
// instruction takes two k of each lane, of eight; which two is free, as long as both factors do the same.

// Neighbouring numbers have neighbouring k.
struct AlongRows {
    const float* memory;
    int pitch;
    __device__ float2 pair(int row, int k, int t) const {
        return *reinterpret_cast<const float2*>(memory + row * pitch + k + 2 * t);
    }
    __device__ float at(int row, int k) const { return memory[row * pitch + k]; }
};

// Neighbouring numbers have neighbouring rows; pairs as those of AlongRows.
struct AlongColumns {
    const float* memory;
    int pitch;
    __device__ float2 pair(int row, int k, int t) const {
        const float* first = memory + (k + 2 * t) * pitch + row;
        return make_float2(first[0], first[pitch]);
    }
    __device__ float at(int row, int k) const { return memory[k * pitch + row]; }
};

// The same, the two k of a lane four apart: without bank conflicts for pitch_of().
struct AlongColumnsApart {
    const float* memory;
    int pitch;
    __device__ float2 pair(int row, int k, int t) const {
        const float* first = memory + (k + t) * pitch + row;
        return make_float2(first[0], first[4 * pitch]);
    }
    __device__ float at(int row, int k) const { return memory[k * pitch + row]; }
};

#if __CUDA_ARCH__ >= 800
// A number's upper 11 bits, which tf32 holds, and what they leave.
struct Split {
    unsigned high, low;
    __device__ explicit Split(float number) {
        constexpr unsigned kept = 0xffffe000u;
        high = __float_as_uint(number) & kept;
        low = __float_as_uint(number - __uint_as_float(high)) & kept;
    }
};

// c (16, 8) += a (16, 8) b (8, 8), fragments of PTX's mma.m16n8k8. With g = lane / 4 and t = lane % 4, c holds rows g, g,
// g+8, g+8 in columns 2t, 2t+1, 2t, 2t+1; a holds rows g, g+8, g, g+8 for the lane's first k twice, then its second; b
// holds column g for its first k and its second.
__device__ inline void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

// A warp's products c[i] (16, 8) of sixteen rows from `row` on with eight columns from 8 * tiles[i] on, over `length` k. With
// EXACT, tf32 holds every number of the left factor.
template <bool EXACT, int TILES, class Left, class Right>
__device__ void multiply(float (&c)[TILES][4], Left left, Right right, int row, const int (&tiles)[TILES], int length) {
    const int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
#if __CUDA_ARCH__ >= 800
    float small[TILES][4] = {};
#pragma unroll 2
    for (int k = 0; k < length; k += TILE) {
        const float2 upper = left.pair(row + g, k, t), lower = left.pair(row + g + 8, k, t);
        const Split s[4] = {Split(upper.x), Split(lower.x), Split(upper.y), Split(lower.y)};
        const unsigned high[4] = {s[0].high, s[1].high, s[2].high, s[3].high};
        const unsigned low[4] = {s[0].low, s[1].low, s[2].low, s[3].low};
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            const float2 numbers = right.pair(TILE * tiles[i] + g, k, t);
            const Split first(numbers.x), second(numbers.y);
            multiply_add(small[i], high, first.low, second.low);
            if (!EXACT) multiply_add(small[i], low, first.high, second.high);
            multiply_add(c[i], high, first.high, second.high);
        }
    }
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
        for (int j = 0; j < 4; ++j) c[i][j] += small[i][j];
    }
#else
    for (int k = 0; k < length; ++k) {
        const float upper = left.at(row + g, k), lower = left.at(row + g + 8, k);
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            const float first = right.at(TILE * tiles[i] + 2 * t, k), second = right.at(TILE * tiles[i] + 2 * t + 1, k);
            c[i][0] += upper * first;
            c[i][1] += upper * second;
            c[i][2] += lower * first;
            c[i][3] += lower * second;
        }
    }
#endif
}

// The product (rows, cols) of two factors, `length` k, by all warps: each takes TILES fragments beside each other at a
// time. store(row, col, a, b) is called for two numbers beside each other; rows beyond `rows` may be among them.
template <bool EXACT, int TILES, class Left, class Right, class Store>
__device__ void multiply_by_warps(Left left, Right right, int rows, int cols, int length, Store store) {
    const int warp = threadIdx.x / WARP, g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    const int across = cols / TILE, groups = (across + TILES - 1) / TILES, down = (rows + EDGE - 1) / EDGE;
    for (int item = warp; item < down * groups; item += WARPS) {
        const int row = item / groups * EDGE, first = item % groups * TILES;
        int tiles[TILES];
        float c[TILES][4] = {};
#pragma unroll
        for (int i = 0; i < TILES; ++i) tiles[i] = min(first + i, across - 1);
        multiply<EXACT>(c, left, right, row, tiles, length);
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            if (first + i >= across) continue;
            store(row + g, TILE * tiles[i] + 2 * t, c[i][0], c[i][1]);
            store(row + g + 8, TILE * tiles[i] + 2 * t, c[i][2], c[i][3]);
        }
    }
}

// The same, with as many fragments a warp as leave no warp without work. cols and length are multiples of 8.
template <bool EXACT, class Left, class Right, class Store>
__device__ void block_product(Left left, Right right, int rows, int cols, int length, Store store) {
    const int fragments = (rows + EDGE - 1) / EDGE * (cols / TILE);
    if (fragments >= 4 * WARPS) {
        multiply_by_warps<EXACT, 4>(left, right, rows, cols, length, store);
    } else if (fragments >= 2 * WARPS) {
        multiply_by_warps<EXACT, 2>(left, right, rows, cols, length, store);
    } else {
        multiply_by_warps<EXACT, 1>(left, right, rows, cols, length, store);
    }
}

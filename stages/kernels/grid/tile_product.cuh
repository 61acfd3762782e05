// A block's products of tiles in shared memory, on tensor cores from sm_80 on, with multiply-adds before.
//
// A float32 is exactly the sum of three bfloat16, 8 of its 24 bits each: its rounding, the rounding of the rest, and the rest
// of that. A product of two float32 is then six products of parts; the three left out are smaller than float32's own
// rounding. With PARTS = 1 the first part stands for the number: a product in bfloat16.
#pragma once
#include "device/async_copies.cuh"
#include "device/tensor_cores.cuh"
#include "grid/grid.cuh"

#ifndef PARTS
#define PARTS 3
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define WITHOUT_TENSOR_CORES
#endif

constexpr int EDGE = 16;       // rows of a fragment of the product, and its k
constexpr int HALF_EDGE = 8;   // columns of the fragment
constexpr int ALL_PARTS = 3;   // of a float32; products take PARTS of them

using BFloat16 = unsigned short;  // its bits

__device__ inline float lower_of(unsigned pair) { return __uint_as_float(pair << 16); }
__device__ inline float upper_of(unsigned pair) { return __uint_as_float(pair & 0xffff0000u); }

// The type of outputs and doutputs in memory, for products of later phases: float32, or bfloat16 if products take a number's
// first part alone. Then a copy needs no conversion.
constexpr bool TAKEN_BY_COPIES = PARTS == 1;
#if PARTS == 1
using Passed = BFloat16;
#else
using Passed = float;
#endif

__device__ inline void pass_on(float* at, float number) { *at = number; }
__device__ inline void pass_on(BFloat16* at, float number) { *at = static_cast<BFloat16>(cvt_bf16x2(number, 0.0f)); }
__device__ inline float passed_on(const float* at) { return __ldcg(at); }
__device__ inline float passed_on(const BFloat16* at) { return lower_of(__ldcg(at)); }

// A tile in shared memory: a matrix for each part of its numbers, `plane` numbers apart.
struct SharedTile {
    BFloat16* memory;
    int cols, pitch, plane;

    __device__ unsigned* pair_at(int row, int col, int part) const {
        return reinterpret_cast<unsigned*>(memory + part * plane + place_in_tile(row, col, pitch));
    }

    // Reads two neighbours of a row from COUNT of their parts. The smallest parts first: all sums are exact.
    template <int COUNT>
    __device__ float2 read(int row, int col) const {
        float2 numbers = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int part = COUNT - 1; part >= 0; --part) {
            const unsigned pair = *pair_at(row, col, part);
            add(numbers, make_float2(lower_of(pair), upper_of(pair)));
        }
        return numbers;
    }

    template <int COUNT>
    __device__ void write(int row, int col, float first, float second) const {
#pragma unroll
        for (int part = 0; part < COUNT; ++part) {
            const unsigned pair = cvt_bf16x2(first, second);
            *pair_at(row, col, part) = pair;
            first -= lower_of(pair);
            second -= upper_of(pair);
        }
    }

    // Reads two float32 that stay for the epoch: from all their parts or, if products take the first part alone, from the two
    // halves of their bits, which lie in the other two matrices and are quicker.
    __device__ float2 read_whole(int row, int col) const {
        if constexpr (PARTS > 1) return read<ALL_PARTS>(row, col);
        const unsigned upper = *pair_at(row, col, 1), lower = *pair_at(row, col, 2);
        return make_float2(__uint_as_float(upper << 16 | lower & 0xffffu),
                           __uint_as_float(upper & 0xffff0000u | lower >> 16));
    }

    __device__ void write_whole(int row, int col, float first, float second) const {
        write<PARTS == 1 ? 1 : ALL_PARTS>(row, col, first, second);
        if constexpr (PARTS == 1) {
            const unsigned bits = __float_as_uint(first), next = __float_as_uint(second);
            *pair_at(row, col, 1) = bits >> 16 | next & 0xffff0000u;
            *pair_at(row, col, 2) = bits & 0xffffu | next << 16;
        }
    }
};

// Copies a tile (rows, COLS) of outputs or doutputs from memory, `stride` apart, by all threads; COLS is a multiple of 8. For
// bfloat16 the copy is asynchronous.
template <int COLS>
__device__ inline void take_tile(const SharedTile& to, const float* from, int stride, int rows) {
    constexpr int QUADS = COLS / 4, AT_ONCE = 4;  // loads of a thread under way
    for (int begin = threadIdx.x; begin < rows * QUADS; begin += AT_ONCE * THREADS) {
        float4 numbers[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            const int quad = begin + i * THREADS;
            const float* own = from + quad / QUADS * stride + quad % QUADS * 4;
            if (quad < rows * QUADS) numbers[i] = __ldcg(reinterpret_cast<const float4*>(own));
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            const int quad = begin + i * THREADS, row = quad / QUADS, col = quad % QUADS * 4;
            if (quad >= rows * QUADS) break;
            to.write<PARTS>(row, col, numbers[i].x, numbers[i].y);
            to.write<PARTS>(row, col + 2, numbers[i].z, numbers[i].w);
        }
    }
}

template <int COLS>
__device__ inline void take_tile(const SharedTile& to, const BFloat16* from, int stride, int rows) {
    constexpr int PIECES = COLS / 8;  // of 16 bytes
#pragma unroll 1
    for (int i = threadIdx.x; i < rows * PIECES; i += THREADS) {
        const int row = i / PIECES, col = i % PIECES * 8;
        cp_async_16(reinterpret_cast<float*>(to.memory + place_in_tile(row, col, to.pitch)),
                  reinterpret_cast<const float*>(from + row * stride + col));
    }
}

// A tile as a factor: its rows are the product's rows (left factor) or columns (right factor), and k is summed over. Either
// k or the rows are neighbours in memory. A lane passes the row addresses of matrices (8, 8) that ldmatrix() needs.
template <bool K_IS_INNER>
struct TileFactor {
    static constexpr bool TRANSPOSED = !K_IS_INNER;
    SharedTile tile;

    __device__ int step() const { return K_IS_INNER ? EDGE : EDGE * tile.pitch; }
    __device__ int place(int row, int k) const {
        return K_IS_INNER ? place_in_tile(row, k, tile.pitch) : place_in_tile(k, row, tile.pitch);
    }

    // Of a left factor's four matrices: rows 0 to 7 and 8 to 15, for the first eight k, then for the others.
    __device__ const BFloat16* left_at(int row) const {
        const int lane = threadIdx.x % WARP, own = lane % 8, second = lane / 8 % 2 * 8, third = lane / 16 * 8;
        return tile.memory + (K_IS_INNER ? place(row + second + own, third) : place(row + second, third + own));
    }

    // Of a right factor's two matrices: the first eight k, then the others.
    __device__ const BFloat16* right_at(int col) const {
        const int lane = threadIdx.x % WARP, own = lane % 8, second = lane / 8 % 2 * 8;
        return tile.memory + (K_IS_INNER ? place(col + own, second) : place(col, second + own));
    }

    __device__ float at(int row, int k, int parts) const {
        float number = 0.0f;
        for (int part = parts - 1; part >= 0; --part) {
            number += lower_of(tile.memory[part * tile.plane + place(row, k)]);
        }
        return number;
    }
};

using AlongRows = TileFactor<true>;
using AlongColumns = TileFactor<false>;

// A warp's products c[i] (16, 8): sixteen rows from `row` on by eight columns from cols[i] on, over `length` k. The left
// factor has LEFT_PARTS parts.
template <int LEFT_PARTS, int TILES, class Left, class Right>
__device__ void multiply(float (&c)[TILES][4], Left left, Right right, int row, const int (&cols)[TILES], int length) {
#ifndef WITHOUT_TENSOR_CORES
    constexpr int GROUPS = (TILES + 1) / 2;  // of two fragments, which one instruction loads
    const BFloat16* of_left = left.left_at(row);
    const BFloat16* of_right[GROUPS];
#pragma unroll
    for (int i = 0; i < GROUPS; ++i) {
        of_right[i] = right.right_at(threadIdx.x % WARP < 16 ? cols[2 * i] : cols[TILES == 1 ? 0 : 2 * i + 1]);
    }
    float sums[PARTS][TILES][4] = {};  // apart by their size: tensor cores cut off bits that are small beside the sum
#pragma unroll(TILES == 4 ? 1 : 2)
    for (int k = 0; k < length; k += EDGE) {
        unsigned a[LEFT_PARTS][4], b[PARTS][GROUPS][TILES == 1 ? 2 : 4];
#pragma unroll
        for (int p = 0; p < LEFT_PARTS; ++p) ldmatrix<Left::TRANSPOSED>(a[p], of_left + p * left.tile.plane);
#pragma unroll
        for (int p = 0; p < PARTS; ++p) {
#pragma unroll
            for (int i = 0; i < GROUPS; ++i) ldmatrix<Right::TRANSPOSED>(b[p][i], of_right[i] + p * right.tile.plane);
        }
#pragma unroll
        for (int p = 0; p < LEFT_PARTS; ++p) {
#pragma unroll
            for (int q = 0; p + q < PARTS; ++q) {
#pragma unroll
                for (int i = 0; i < TILES; ++i) {
                    mma_m16n8k16_bf16(sums[p + q][i], a[p], b[q][i / 2][i % 2 * 2], b[q][i / 2][i % 2 * 2 + 1]);
                }
            }
        }
        of_left += left.step();
#pragma unroll
        for (int i = 0; i < GROUPS; ++i) of_right[i] += right.step();
    }
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            float sum = sums[PARTS - 1][i][j];
#pragma unroll
            for (int p = PARTS - 2; p >= 0; --p) sum += sums[p][i][j];
            c[i][j] = sum;
        }
    }
#else
    const int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    for (int k = 0; k < length; ++k) {
        const float upper = left.at(row + g, k, LEFT_PARTS), lower = left.at(row + g + 8, k, LEFT_PARTS);
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            const float first = right.at(cols[i] + 2 * t, k, PARTS), second = right.at(cols[i] + 2 * t + 1, k, PARTS);
            c[i][0] += upper * first;
            c[i][1] += upper * second;
            c[i][2] += lower * first;
            c[i][3] += lower * second;
        }
    }
#endif
}

// The product (rows, cols) of two factors over `length` k, by all warps: each takes TILES neighbouring fragments at a time.
// Calls store(row, col, a, b) for each two neighbours of a row. The first BUSY warps come last, since they have other work.
template <int LEFT_PARTS, int TILES, int BUSY = 0, class Left, class Right, class Store>
__device__ void multiply_by_warps(Left left, Right right, int rows, int cols, int length, Store store) {
    const int warp = BUSY == 0 ? threadIdx.x / WARP : (threadIdx.x / WARP + WARPS - BUSY) % WARPS;
    const int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    const int across = cols / HALF_EDGE, groups = (across + TILES - 1) / TILES, down = rows / EDGE;
    for (int item = warp; item < down * groups; item += WARPS) {
        const int row = item / groups * EDGE, first = item % groups * TILES;
        int own[TILES];
        float c[TILES][4] = {};
#pragma unroll
        for (int i = 0; i < TILES; ++i) own[i] = HALF_EDGE * min(first + i, across - 1);
        multiply<LEFT_PARTS>(c, left, right, row, own, length);
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            if (first + i >= across) continue;
            store(row + g, own[i] + 2 * t, c[i][0], c[i][1]);
            store(row + g + 8, own[i] + 2 * t, c[i][2], c[i][3]);
        }
    }
}

// The same, with as many fragments a warp as keep all warps busy. rows and length are multiples of 16, cols of 8.
template <int LEFT_PARTS, int BUSY = 0, class Left, class Right, class Store>
__device__ void block_product(Left left, Right right, int rows, int cols, int length, Store store) {
    const int fragments = rows / EDGE * (cols / HALF_EDGE);
    if (fragments > 2 * WARPS) {
        multiply_by_warps<LEFT_PARTS, 4, BUSY>(left, right, rows, cols, length, store);
    } else if (fragments > WARPS) {
        multiply_by_warps<LEFT_PARTS, 2, BUSY>(left, right, rows, cols, length, store);
    } else {
        multiply_by_warps<LEFT_PARTS, 1, BUSY>(left, right, rows, cols, length, store);
    }
}

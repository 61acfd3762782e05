#include "fragments.cuh"

// The block of neighbour_grams: each warp makes the products of PAIRS x COLUMNS tiles. stages/persistent_cluster.py
// launches this many threads.
constexpr int GRAM_THREADS = 256;
constexpr int PAIRS = 2;    // of rows, for each of four warps
constexpr int COLUMNS = 4;  // each of sixteen, for each of two warps

// neighbour_grams: grams[s] = x(s + 1) x(s)^T, the inner products of every image of a batch with every image of the
// batch before it; in two halves, laid out as the right factors that persistent_cluster takes.
//   images  (steps, tiles, P, 32)          f16  in: eight numbers each, a lane's part of two right factors: 16
//           features by 8 images and by the next 8, P such pairs
//   grams   (steps - 1, 2 P, P, 32)        f16  out: eight numbers each, a lane's part of two right factors: 16 images
//           of the earlier batch by 8 of the later, high halves and then low ones
// Launch: grid steps - 1, block GRAM_THREADS; P = pairs.
// Needs:  sm_80; 1 <= pairs <= 8; any tiles; every product of two images < 65,504.
// Order:  features from the first to the last; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(GRAM_THREADS, 2) neighbour_grams(const uint4* images, uint4* grams,
                                                                             int pairs, int tiles) {
    const int lane = threadIdx.x % WARP;
    const int first_pair = threadIdx.x / WARP / 2 * PAIRS;
    const int first_column = threadIdx.x / WARP % 2 * COLUMNS;
    const uint4* before = images + blockIdx.x * pairs * tiles * WARP + lane;
    const uint4* after = before + pairs * tiles * WARP;
    if (first_pair >= pairs || first_column >= pairs) return;

    float sums[PAIRS][COLUMNS][2][4] = {};
#pragma unroll 2
    for (int tile = 0; tile < tiles; ++tile) {
        uint4 left[PAIRS], right[COLUMNS];
#pragma unroll
        for (int i = 0; i < PAIRS; ++i) left[i] = after[(tile * pairs + min(first_pair + i, pairs - 1)) * WARP];
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) right[j] = before[(tile * pairs + min(first_column + j, pairs - 1)) * WARP];
#pragma unroll
        for (int i = 0; i < PAIRS; ++i) {
            const unsigned a[4] = {left[i].x, left[i].z, left[i].y, left[i].w};
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j) {
                multiply_add(sums[i][j][0], a, right[j].x, right[j].y);
                multiply_add(sums[i][j][1], a, right[j].z, right[j].w);
            }
        }
    }

#pragma unroll
    for (int i = 0; i < PAIRS; ++i) {
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            if (first_pair + i >= pairs || first_column + j >= pairs) continue;
#pragma unroll
            for (int half = 0; half < 2; ++half) {  // of the sixteen rows
                const float(&even)[4] = sums[i][j][0], (&odd)[4] = sums[i][j][1];
                const Halves first = halves_of(even[2 * half], even[2 * half + 1]);
                const Halves second = halves_of(odd[2 * half], odd[2 * half + 1]);
                const int owner = 2 * (first_pair + i) + half;
                grams[((blockIdx.x * 2 * pairs + owner) * pairs + first_column + j) * WARP + lane] =
                    make_uint4(first.high, second.high, first.low, second.low);
            }
        }
    }
}

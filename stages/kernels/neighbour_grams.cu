#include "cluster.cuh"
#include "fragments.cuh"

// The block of neighbour_grams: each warp makes the products of PAIRS x COLUMNS tiles. stages/persistent_cluster.py
// launches this many threads, with GRAM_BYTES of shared memory.
constexpr int GRAM_THREADS = 256;
constexpr int PAIRS = 2;    // of rows, for each of four warps
constexpr int COLUMNS = 4;  // each of sixteen, for each of two warps
constexpr int MOST_PAIRS = 8;

// Features come in chunks of so many tiles, so many of them on the way at once.
constexpr int CHUNK = 4, STAGES = 3;

struct Chunk {
    uint4 before[CHUNK * MOST_PAIRS * WARP], after[CHUNK * MOST_PAIRS * WARP];
};
constexpr int GRAM_BYTES = 96 * 1024;
static_assert(STAGES * sizeof(Chunk) <= GRAM_BYTES);

// neighbour_grams: grams[s] = x(s + 1) x(s)^T, the inner products of every image of a batch with every image of the
// batch before it; in two halves, laid out as the right factors that persistent_cluster takes.
//   images  (steps, tiles, P, 2, 2, 8, 8)  f16  in: 16 images by 16 features each, as four matrices of 8 by 8
//   grams   (steps - 1, 2 P, P, 32)        f16  out: eight numbers each, a lane's part of two right factors: 16 images
//           of the earlier batch by 8 of the later, high halves and then low ones
// Launch: grid steps - 1, block GRAM_THREADS with GRAM_BYTES; P = pairs.
// Needs:  sm_90; 1 <= pairs <= 8; any tiles; every product of two images < 65,504.
// Order:  features from the first to the last; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(GRAM_THREADS, 2) neighbour_grams(const uint4* images, uint4* grams,
                                                                             int pairs, int tiles) {
    extern __shared__ uint4 memory[];
    Chunk* const chunks = reinterpret_cast<Chunk*>(memory);
    __shared__ Barrier fetched[STAGES];
    const int lane = threadIdx.x % WARP;
    const int first_pair = threadIdx.x / WARP / 2 * PAIRS;
    const int first_column = threadIdx.x / WARP % 2 * COLUMNS;
    const bool has_products = first_pair < pairs && first_column < pairs;
    const int row = pairs * WARP;  // of a tile, in uint4
    const uint4* const before = images + blockIdx.x * tiles * row;
    const uint4* const after = before + tiles * row;

    const auto fetch_from = [&](int tile) {
        if (tile >= tiles) return;
        const int stage = tile / CHUNK % STAGES, bytes = min(CHUNK, tiles - tile) * row * static_cast<int>(sizeof(uint4));
        expect_bytes(fetched[stage], 2 * bytes);
        fetch(chunks[stage].before, fetched[stage], before + tile * row, bytes);
        fetch(chunks[stage].after, fetched[stage], after + tile * row, bytes);
    };
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) make_barrier(fetched[stage], 1);
        publish_barriers();
        for (int stage = 0; stage < STAGES; ++stage) fetch_from(stage * CHUNK);
    }
    __syncthreads();

    float sums[PAIRS][COLUMNS][2][4] = {};
    for (int tile = 0; tile < tiles; ++tile) {
        const int stage = tile / CHUNK % STAGES, within = tile % CHUNK;
        if (within == 0) wait_for(fetched[stage], tile / CHUNK / STAGES % 2);
        if (has_products) {
            uint4 left[PAIRS], right[COLUMNS];
#pragma unroll
            for (int i = 0; i < PAIRS; ++i) {
                const int pair = min(first_pair + i, pairs - 1);
                left[i] = load_transposed(chunks[stage].after + within * row + pair * WARP);
            }
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j) {
                const int pair = min(first_column + j, pairs - 1);
                right[j] = load_transposed(chunks[stage].before + within * row + pair * WARP);
            }
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
        if (within == CHUNK - 1) {
            __syncthreads();  // before what all have read is fetched over
            if (threadIdx.x == 0) fetch_from(tile + 1 + (STAGES - 1) * CHUNK);
        }
    }
    if (!has_products) return;

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

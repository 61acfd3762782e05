#include "device/cluster.cuh"
#include "cluster/fragments.cuh"

#ifndef GRAM_HALVES
#define GRAM_HALVES 2  // or 1: the upper halves alone
#endif

// neighbour_grams: a block takes whole steps, one in gridDim.x. Its eight warps cover a step's P x P fragments of 16 x 16:
// warp w has WARP_ROWS rows from w / 2 and WARP_COLUMNS columns from w % 2. Features stream through shared memory in a ring.
// stages/persistent/persistent_cluster.py launches GRAM_THREADS threads with GRAM_BYTES of shared memory.
constexpr int GRAM_THREADS = 256;
constexpr int WARP_ROWS = 2;     // fragments down, for each of four warps
constexpr int WARP_COLUMNS = 4;  // fragments across, for each of two warps
constexpr int MOST_PAIRS = 8;

// Tiles of features in a chunk, and chunks in flight.
constexpr int CHUNK_TILES = 4, STAGES = 6;

struct Chunk {
    uint4 before[CHUNK_TILES * MOST_PAIRS * WARP], after[CHUNK_TILES * MOST_PAIRS * WARP];
};
// More than half of a multiprocessor's shared memory: one block each, and persistent_cluster keeps multiprocessors to itself.
constexpr int GRAM_BYTES = 192 * 1024;
static_assert(STAGES * sizeof(Chunk) <= GRAM_BYTES);

// sums += the products over one tile of features: this warp's rows of the later batch, its columns of the earlier one.
__device__ inline void multiply(const uint4* before, const uint4* after, int first_pair, int first_column, int pairs,
                                float (&sums)[WARP_ROWS][WARP_COLUMNS][2][4]) {
    uint4 left[WARP_ROWS], right[WARP_COLUMNS];
#pragma unroll
    for (int i = 0; i < WARP_ROWS; ++i) left[i] = load_transposed(after + min(first_pair + i, pairs - 1) * WARP);
#pragma unroll
    for (int j = 0; j < WARP_COLUMNS; ++j) right[j] = load_transposed(before + min(first_column + j, pairs - 1) * WARP);
#pragma unroll
    for (int i = 0; i < WARP_ROWS; ++i) {
        const unsigned a[4] = {left[i].x, left[i].z, left[i].y, left[i].w};
#pragma unroll
        for (int j = 0; j < WARP_COLUMNS; ++j) {
            mma_m16n8k16_f16(sums[i][j][0], a, right[j].x, right[j].y);
            mma_m16n8k16_f16(sums[i][j][1], a, right[j].z, right[j].w);
        }
    }
}

// Writes this lane's sums, in halves, into the grams of a step, which begin at `first`.
__device__ inline void store(uint4* grams, int first, int first_pair, int first_column, int pairs,
                             const float (&sums)[WARP_ROWS][WARP_COLUMNS][2][4]) {
#pragma unroll
    for (int i = 0; i < WARP_ROWS; ++i) {
#pragma unroll
        for (int j = 0; j < WARP_COLUMNS; ++j) {
            if (first_pair + i >= pairs || first_column + j >= pairs) continue;
#pragma unroll
            for (int half = 0; half < 2; ++half) {  // of the sixteen rows
                const float(&even)[4] = sums[i][j][0], (&odd)[4] = sums[i][j][1];
                const Halves one = halves_of(even[2 * half], even[2 * half + 1]);
                const Halves two = halves_of(odd[2 * half], odd[2 * half + 1]);
                const int owner = 2 * (first_pair + i) + half, at = first + (owner * pairs + first_column + j) * WARP;
                if constexpr (GRAM_HALVES == 2) grams[at] = make_uint4(one.high, two.high, one.low, two.low);
                else reinterpret_cast<uint2*>(grams)[at] = make_uint2(one.high, two.high);
            }
        }
    }
}

// neighbour_grams: inner products of each batch's images with those of the batch before. grams[s] = x(s + 1) x(s)^T, in two
// halves, laid out as right factors for persistent_cluster.
//   images  (steps, tiles, P, 2, 2, 8, 8)  f16  in: 16 images by 16 features each, as four matrices of 8 by 8
//   grams   (steps - 1, 2 P, P, 32)        f16  out: eight numbers a lane, its share of two right factors: 16 images
//           of the earlier batch by 8 of the later, high halves before low ones; or four
//   ready   (steps - 1,)                   i32  out: `epoch`, once the grams of that step can be read
// Kind:   gemm.
// Launch: any grid, block GRAM_THREADS with GRAM_BYTES; P = pairs.
// Needs:  sm_90; 1 <= pairs <= 8; any tiles; every product of two images < 65,504.
// Order:  features from the first to the last; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(GRAM_THREADS, 1) neighbour_grams(const uint4* images, uint4* grams,
                                                                             int* ready, int steps, int pairs,
                                                                             int tiles, int epoch) {
    extern __shared__ __align__(128) uint4 memory[];  // bulk copies write whole 128-byte lines
    Chunk* const chunks = reinterpret_cast<Chunk*>(memory);
    __shared__ Barrier fetched[STAGES];
    const int lane = threadIdx.x % WARP;
    const int first_pair = threadIdx.x / WARP / 2 * WARP_ROWS;
    const int first_column = threadIdx.x / WARP % 2 * WARP_COLUMNS;
    const bool has_products = first_pair < pairs && first_column < pairs;
    const int row = pairs * WARP;  // one tile of features, in uint4
    const int chunks_a_step = (tiles + CHUNK_TILES - 1) / CHUNK_TILES;

    // Fetches a chunk; chunks count through all steps of this block.
    const auto fetch_chunk = [&](int chunk) {
        const int step = blockIdx.x + chunk / chunks_a_step * gridDim.x, tile = chunk % chunks_a_step * CHUNK_TILES;
        if (step >= steps - 1) return;
        const uint4* before = images + (step * tiles + tile) * row;
        const int stage = chunk % STAGES, bytes = min(CHUNK_TILES, tiles - tile) * row * static_cast<int>(sizeof(uint4));
        mbarrier_arrive_expect_tx(fetched[stage], 2 * bytes);
        cp_async_bulk(chunks[stage].before, fetched[stage], before, bytes);
        cp_async_bulk(chunks[stage].after, fetched[stage], before + tiles * row, bytes);
    };
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) mbarrier_init(fetched[stage], 1);
        fence_mbarrier_init();
        for (int stage = 0; stage < STAGES; ++stage) fetch_chunk(stage);
    }
    __syncthreads();

    int chunk = 0;
    for (int step = blockIdx.x; step < steps - 1; step += gridDim.x) {
        float sums[WARP_ROWS][WARP_COLUMNS][2][4] = {};
        for (int tile = 0; tile < tiles; tile += CHUNK_TILES, ++chunk) {
            const Chunk& own = chunks[chunk % STAGES];
            mbarrier_wait_parity(fetched[chunk % STAGES], chunk / STAGES % 2);
            for (int i = 0; i < min(CHUNK_TILES, tiles - tile) && has_products; ++i) {
                multiply(own.before + i * row, own.after + i * row, first_pair, first_column, pairs, sums);
            }
            __syncthreads();  // all warps have read the chunk that the next fetch overwrites
            if (threadIdx.x == 0) fetch_chunk(chunk + STAGES);
        }
        if (has_products) store(grams, step * 2 * pairs * row + lane, first_pair, first_column, pairs, sums);
        __syncthreads();
        if (threadIdx.x == 0) raise_flag(ready + step, epoch);
    }
}

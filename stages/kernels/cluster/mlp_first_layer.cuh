#pragma once
#include "cluster/mlp_plan.cuh"

// The first layer: many features, exact in float16, and few units. Both passes read the same pixels in shared memory, as
// matrices of 16 images by 16 features. A warp takes two chunks of units at once where the block group has them, so that it
// reads fewer pixels for each product.

constexpr int AT_ONCE = GROUP_CHUNKS % 2 == 0 ? 2 : 1;
// Pairs of images that a warp multiplies by the same weights, which it splits anew each time. Half of the warps with long
// strips beat all warps with short ones, which would split twice as often.
constexpr int STRIP_PAIRS = PAIRS > 4 ? (PAIRS + (PAIRS + 3) / 4 - 1) / ((PAIRS + 3) / 4) : PAIRS > 1 ? 2 : 1;
constexpr int STRIP_TILES = 4;  // feature tiles that a warp multiplies by the same doutputs

// Distances in a batch's pixels, in uint4: to the next chunk of features, and to the next chunk of images.
constexpr int NEXT_FEATURES = 2 * PAIRS * HALF_EDGE, NEXT_IMAGES = HALF_EDGE;

// The row that this lane addresses in the four matrices of sixteen features by sixteen images.
__device__ inline int row_of_four(int lane, int right, int lower) {
    return right * NEXT_FEATURES + lower * NEXT_IMAGES + lane % HALF_EDGE;
}

// Left factors of a warp, and chunks of units in each.
constexpr int FACTORS = AT_ONCE == 2 ? HALVES : 1, FACTOR_CHUNKS = AT_ONCE / FACTORS;

// This lane's share of a left factor: chunks of units by the sixteen features of a tile. Rows 0 to 7 are high halves and rows
// 8 to 15 low ones; or rows 0 to 7 one chunk, and rows 8 to 15 the next, if there is one.
__device__ inline void split_weights(const float2* weights, int tile, int chunk, unsigned (&factor)[4]) {
#pragma unroll
    for (int right = 0; right < 2; ++right) {
        const float2* two = weights + ((2 * tile + right) * GROUP_CHUNKS + chunk) * WARP;
        const Halves halves = halves_of(two->x, two->y);
        factor[2 * right] = halves.high, factor[2 * right + 1] = HALVES == 2 ? halves.low : 0;
        if (FACTOR_CHUNKS == 2) factor[2 * right + 1] = halves_of(two[WARP].x, two[WARP].y).high;
    }
}

// The place, in its owner's exchange, of a chunk's parts from this block and this one of its `ways` warps.
__device__ inline Part* parts_of(const Block& block, int chunk, int way) {
    constexpr Layer layer = plan.layers[0];
    const int sender = block.member() * WAYS + way;
    return block.at<Part>(layer.exchange) + (sender * layer.slots + chunk / SPLIT) * PAIRS * WARP + block.lane;
}

// Computes what this block's features add to the units of its block group, times WEIGHT_SCALE, and hands it to each unit's
// owner: by a message, or in place. All threads call `wait_to_send` before they send.
template <class Wait>
__device__ void forward_first(const Block& block, const uint4* images, Wait wait_to_send) {
    constexpr Layer layer = plan.layers[0];
    constexpr int STRIPS = (PAIRS + STRIP_PAIRS - 1) / STRIP_PAIRS, TASKS = GROUP_CHUNKS / AT_ONCE * STRIPS * WAYS;
    const float2* weights = block.at<float2>(layer.weights) + block.lane;
    const int row = row_of_four(block.lane, block.lower(), block.right());
    bool may_send = false;
    for (int task = block.warp; task < TASKS; task += WARPS) {
        const int way = task % WAYS, strip = task / WAYS % STRIPS, chunk = task / WAYS / STRIPS * AT_ONCE;
        float sums[FACTORS][STRIP_PAIRS][2][4] = {};
#pragma unroll 2
        for (int tile = way; tile < TILES; tile += WAYS) {
            uint4 x[STRIP_PAIRS];
#pragma unroll
            for (int i = 0; i < STRIP_PAIRS; ++i) {
                const int pair = min(strip * STRIP_PAIRS + i, PAIRS - 1);
                x[i] = ldmatrix<false>(images + 2 * tile * NEXT_FEATURES + 2 * pair * NEXT_IMAGES + row);
            }
#pragma unroll
            for (int f = 0; f < FACTORS; ++f) {
                unsigned factor[4];
                split_weights(weights, tile, chunk + f * FACTOR_CHUNKS, factor);
#pragma unroll
                for (int i = 0; i < STRIP_PAIRS; ++i) {
                    mma_m16n8k16_f16(sums[f][i][0], factor, x[i].x, x[i].y);
                    mma_m16n8k16_f16(sums[f][i][1], factor, x[i].z, x[i].w);
                }
            }
        }
        if (!may_send) wait_to_send();
        may_send = true;
#pragma unroll
        for (int c = 0; c < AT_ONCE; ++c) {
            const int owner = block.owner_in_group(chunk + c);
            Part* parts = parts_of(block, chunk + c, way) + strip * STRIP_PAIRS * WARP;
            const int f = c / FACTOR_CHUNKS, in_factor = c % FACTOR_CHUNKS;
#pragma unroll
            for (int i = 0; i < STRIP_PAIRS; ++i) {
                if (strip * STRIP_PAIRS + i >= PAIRS) break;
                const Part part(sums_of(sums[f][i][0], in_factor), sums_of(sums[f][i][1], in_factor));
                if (owner == block.rank) {
                    parts[i * WARP] = part;
                } else {
                    st_async(mapa(shared_address(parts + i * WARP), owner),
                         mapa(shared_address(&block.barriers.parts[0]), owner), part.bits);
                }
            }
        }
    }
    if (!may_send) wait_to_send();
}

// weights -= rate * doutputs^T x, for the features of this block and the units of its block group.
__device__ inline void update_first(const Block& block, const uint4* images, float rate) {
    constexpr int STRIPS = (TILES + STRIP_TILES - 1) / STRIP_TILES, IMAGES = 2 * PAIRS;
    float2* weights = block.at<float2>(plan.layers[0].weights) + block.lane;
    const int row = row_of_four(block.lane, block.right(), block.lower());
    const Matrix* doutputs = block.at<Matrix>(plan.layers[0].exchange) + block.right();
    deal_out<GROUP_CHUNKS / AT_ONCE * STRIPS>(block, [&](int task) {
        const int strip = task % STRIPS * STRIP_TILES, chunk = task / STRIPS * AT_ONCE;
        float sums[FACTORS][STRIP_TILES][2][4] = {};
#pragma unroll 2
        for (int pair = 0; pair < PAIRS; ++pair) {
            unsigned factors[FACTORS][4];
#pragma unroll
            for (int f = 0; f < FACTORS; ++f) {
                const Matrix* own = doutputs + (chunk + f * FACTOR_CHUNKS) * IMAGES + 2 * pair;
                const uint4 d = ldmatrix<false>(row_of(own, block.lower(), FACTOR_CHUNKS == 2 ? IMAGES : 0, block.lane));
                factors[f][0] = d.x, factors[f][1] = d.y, factors[f][2] = d.z, factors[f][3] = d.w;
            }
#pragma unroll
            for (int i = 0; i < STRIP_TILES; ++i) {
                const int tile = min(strip + i, TILES - 1);
                // All images by features 0-7, then 8-15.
                const uint4 x = ldmatrix<true>(images + 2 * tile * NEXT_FEATURES + 2 * pair * NEXT_IMAGES + row);
#pragma unroll
                for (int f = 0; f < FACTORS; ++f) {
                    mma_m16n8k16_f16(sums[f][i][0], factors[f], x.x, x.y);
                    mma_m16n8k16_f16(sums[f][i][1], factors[f], x.z, x.w);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < STRIP_TILES; ++i) {
            if (strip + i >= TILES) break;
#pragma unroll
            for (int c = 0; c < AT_ONCE; ++c) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const float2 sum = sums_of(sums[c / FACTOR_CHUNKS][i][half], c % FACTOR_CHUNKS);
                    float2& two = weights[((2 * (strip + i) + half) * GROUP_CHUNKS + chunk + c) * WARP];
                    two = {two.x - rate * sum.x, two.y - rate * sum.y};
                }
            }
        }
    });
}

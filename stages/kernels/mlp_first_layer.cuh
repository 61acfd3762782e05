#pragma once
#include "mlp_plan.cuh"

// The first layer: many features, exact in float16, of which a block keeps a slice, and few units. Both passes are over
// the same pixels in shared memory, matrices of 16 images by 16 features. A warp takes two chunks of units at once,
// where the group has them, lest it read more pixels than it multiplies.

constexpr int AT_ONCE = GROUP_CHUNKS % 2 == 0 ? 2 : 1;
// Of chunks of images that a warp multiplies by the same weights, which it splits anew each time: rather by half of the
// warps than twice as often.
constexpr int STRIP_PAIRS = PAIRS > 4 ? 4 : PAIRS > 1 ? 2 : 1;
constexpr int STRIP_TILES = 4;  // of features that a warp multiplies by the same doutputs

// From a feature's eight to the next eight of a batch's pixels, and from a chunk of images to the next, in uint4.
constexpr int NEXT_FEATURES = 2 * PAIRS * TILE, NEXT_IMAGES = TILE;

// This lane's row of the four matrices of sixteen features by sixteen images.
__device__ inline int row_of_four(int lane, int right, int lower) {
    return right * NEXT_FEATURES + lower * NEXT_IMAGES + lane % TILE;
}

// This lane's weights of one chunk by the sixteen features of a tile, as a left factor: higher halves are rows, lower
// ones rows + 8.
__device__ inline void split_weights(const float2* weights, int tile, int chunk, unsigned (&factor)[4]) {
    const float2 two = weights[(2 * tile * GROUP_CHUNKS + chunk) * WARP];
    const float2 next = weights[((2 * tile + 1) * GROUP_CHUNKS + chunk) * WARP];
    const Halves left = halves_of(two.x, two.y), right = halves_of(next.x, next.y);
    factor[0] = left.high, factor[1] = left.low, factor[2] = right.high, factor[3] = right.low;
}

// weights -= rate * the sum of a product's rows g and g + 8.
__device__ inline void subtract(float2& weights, float rate, const float (&product)[4]) {
    const float2 sum = added_up(product);
    weights = {weights.x - rate * sum.x, weights.y - rate * sum.y};
}

// Where the owner of that chunk of the group's wants the parts of its sums that this block, in one of its ways, makes.
__device__ inline uint4* parts_of(const Block& block, int chunk, int way) {
    constexpr Layer layer = plan.layers[0];
    const int sender = block.member() * WAYS + way;
    return block.at<uint4>(layer.exchange) + (sender * layer.slots + chunk / SPLIT) * PAIRS * WARP + block.lane;
}

// What this block's features add to the units of its group: to each unit's owner, WEIGHT_SCALE times.
// `wait_to_send` is called by all threads, before they send.
template <class Wait>
__device__ void forward_first(const Block& block, const uint4* images, Wait wait_to_send) {
    constexpr Layer layer = plan.layers[0];
    constexpr int STRIPS = (PAIRS + STRIP_PAIRS - 1) / STRIP_PAIRS, TASKS = GROUP_CHUNKS / AT_ONCE * STRIPS * WAYS;
    const float2* weights = block.at<float2>(layer.weights) + block.lane;
    const int row = row_of_four(block.lane, block.lane / 8 % 2, block.lane / 16);
    bool may_send = false;
    for (int task = block.warp; task < TASKS; task += WARPS) {
        const int way = task % WAYS, strip = task / WAYS % STRIPS, chunk = task / WAYS / STRIPS * AT_ONCE;
        float sums[AT_ONCE][STRIP_PAIRS][2][4] = {};
#pragma unroll 2
        for (int tile = way; tile < TILES; tile += WAYS) {
            uint4 x[STRIP_PAIRS];
#pragma unroll
            for (int i = 0; i < STRIP_PAIRS; ++i) {
                const int pair = min(strip * STRIP_PAIRS + i, PAIRS - 1);
                x[i] = load_rows(images + 2 * tile * NEXT_FEATURES + 2 * pair * NEXT_IMAGES + row);
            }
#pragma unroll
            for (int c = 0; c < AT_ONCE; ++c) {
                unsigned factor[4];
                split_weights(weights, tile, chunk + c, factor);
#pragma unroll
                for (int i = 0; i < STRIP_PAIRS; ++i) {
                    multiply_add(sums[c][i][0], factor, x[i].x, x[i].y);
                    multiply_add(sums[c][i][1], factor, x[i].z, x[i].w);
                }
            }
        }
        if (!may_send) wait_to_send();
        may_send = true;
#pragma unroll
        for (int c = 0; c < AT_ONCE; ++c) {
            const int owner = block.owner_in_group(chunk + c);
            uint4* parts = parts_of(block, chunk + c, way) + strip * STRIP_PAIRS * WARP;
#pragma unroll
            for (int i = 0; i < STRIP_PAIRS; ++i) {
                if (strip * STRIP_PAIRS + i >= PAIRS) break;
                const uint4 part = bits_of(added_up(sums[c][i][0]), added_up(sums[c][i][1]));
                if (SPLIT == 1) {
                    parts[i * WARP] = part;
                } else {
                    send(address_in(shared_address(parts + i * WARP), owner),
                         address_in(shared_address(&block.barriers.parts[0]), owner), part);
                }
            }
        }
    }
    if (!may_send) wait_to_send();
}

// weights -= rate * doutputs^T x, for the features of this block and the units of its group.
__device__ inline void update_first(const Block& block, const uint4* images, float rate) {
    constexpr int STRIPS = (TILES + STRIP_TILES - 1) / STRIP_TILES;
    float2* weights = block.at<float2>(plan.layers[0].weights) + block.lane;
    const int row = row_of_four(block.lane, block.lane / 16, block.lane / 8 % 2);
    const uint4* doutputs = block.at<uint4>(plan.layers[0].exchange) + block.lane;
    deal_out<GROUP_CHUNKS / AT_ONCE * STRIPS>(block, [&](int task) {
        const int strip = task % STRIPS * STRIP_TILES, chunk = task / STRIPS * AT_ONCE;
        float sums[AT_ONCE][STRIP_TILES][2][4] = {};
#pragma unroll 2
        for (int pair = 0; pair < PAIRS; ++pair) {
            unsigned factors[AT_ONCE][4];
#pragma unroll
            for (int c = 0; c < AT_ONCE; ++c) {
                const uint4 halves = load_rows(doutputs + ((chunk + c) * PAIRS + pair) * WARP);
                factors[c][0] = halves.x, factors[c][1] = halves.y, factors[c][2] = halves.z, factors[c][3] = halves.w;
            }
#pragma unroll
            for (int i = 0; i < STRIP_TILES; ++i) {
                const int tile = min(strip + i, TILES - 1);
                // All images by features 0-7, then 8-15.
                const uint4 x = load_columns(images + 2 * tile * NEXT_FEATURES + 2 * pair * NEXT_IMAGES + row);
#pragma unroll
                for (int c = 0; c < AT_ONCE; ++c) {
                    multiply_add(sums[c][i][0], factors[c], x.x, x.y);
                    multiply_add(sums[c][i][1], factors[c], x.z, x.w);
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
                    subtract(weights[((2 * (strip + i) + half) * GROUP_CHUNKS + chunk + c) * WARP], rate, sums[c][i][half]);
                }
            }
        }
    });
}

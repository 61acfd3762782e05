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

// This lane's weights of one chunk by sixteen features, as a left factor: higher halves are rows, lower ones rows + 8.
__device__ inline void split_weights(float4 weights, unsigned (&factor)[4]) {
    const Halves left = halves_of(weights.x, weights.y), right = halves_of(weights.z, weights.w);
    factor[0] = left.high, factor[1] = left.low, factor[2] = right.high, factor[3] = right.low;
}

// What this block's features add to the units of its group: to each unit's owner, WEIGHT_SCALE times.
// `wait_to_send` is called by all threads, before they send.
template <class Wait>
__device__ void forward_first(const Block& block, const uint4* images, Wait wait_to_send) {
    constexpr Layer layer = plan.layers[0];
    constexpr int STRIPS = (PAIRS + STRIP_PAIRS - 1) / STRIP_PAIRS, TASKS = GROUP_CHUNKS / AT_ONCE * STRIPS * WAYS;
    const float4* weights = block.at<float4>(layer.weights) + block.lane;
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
                x[i] = load_rows(images + (tile * PAIRS + pair) * WARP + block.lane);
            }
#pragma unroll
            for (int c = 0; c < AT_ONCE; ++c) {
                unsigned factor[4];
                split_weights(weights[(tile * GROUP_CHUNKS + chunk + c) * WARP], factor);
#pragma unroll
                for (int i = 0; i < STRIP_PAIRS; ++i) {
                    multiply_add(sums[c][i][0], factor, x[i].x, x[i].y);
                    multiply_add(sums[c][i][1], factor, x[i].z, x[i].w);
                }
            }
        }
        if (!may_send) wait_to_send();
        may_send = true;
        const int sender = block.member() * WAYS + way;
#pragma unroll
        for (int c = 0; c < AT_ONCE; ++c) {
            const int slot = (chunk + c) / SPLIT, owner = block.owner_in_group(chunk + c);
            uint4* parts = block.at<uint4>(layer.exchange) +
                           ((sender * layer.slots + slot) * PAIRS + strip * STRIP_PAIRS) * WARP + block.lane;
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
    float4* weights = block.at<float4>(plan.layers[0].weights) + block.lane;
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
                const uint4 x = load_columns(images + (tile * PAIRS + pair) * WARP + block.crossed_lane());
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
                float4& own = weights[((strip + i) * GROUP_CHUNKS + chunk + c) * WARP];
                const float2 left = added_up(sums[c][i][0]), right = added_up(sums[c][i][1]);
                float4 w = own;
                w.x -= rate * left.x, w.y -= rate * left.y, w.z -= rate * right.x, w.w -= rate * right.y;
                own = w;
            }
        }
    });
}

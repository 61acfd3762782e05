#pragma once
#include "mlp_plan.cuh"

// The first layer: many features, exact in float16, of which a block keeps a slice, and few units. Both passes are over
// the same pixels in shared memory, matrices of 16 images by 16 features.

constexpr int PAIRS = 2;  // of chunks of images that a warp multiplies by the same weights
constexpr int TILES = 4;  // of features that a warp multiplies by the same doutputs

// This lane's weights of one chunk by sixteen features, as a left factor: higher halves are rows, lower ones rows + 8.
__device__ inline void split_weights(const float4& weights, unsigned (&factor)[4]) {
    const Halves left = halves_of(WEIGHT_SCALE * weights.x, WEIGHT_SCALE * weights.y);
    const Halves right = halves_of(WEIGHT_SCALE * weights.z, WEIGHT_SCALE * weights.w);
    factor[0] = left.high, factor[1] = left.low, factor[2] = right.high, factor[3] = right.low;
}

// What this block's features add to the units of its group: to each unit's owner, WEIGHT_SCALE times. `can_send` is
// called by all threads of the block before the first is sent.
template <int CHUNKS, class CanSend>
__device__ void forward_first(const Block& block, const uint4* images, CanSend can_send) {
    const Plan& plan = block.plan;
    const Layer& layer = plan.layers[0];
    const float4* weights = block.at<float4>(layer.weights) + block.lane;
    const int chunks = block.group_chunks(), strips = (plan.pairs + PAIRS - 1) / PAIRS;
    const int tasks = chunks / CHUNKS * strips * plan.ways;
    bool may_send = false;
    for (int task = block.warp; task < tasks; task += WARPS) {
        const int way = task % plan.ways, strip = task / plan.ways % strips;
        const int chunk = task / plan.ways / strips * CHUNKS;
        float sums[CHUNKS][PAIRS][2][4] = {};
#pragma unroll 2
        for (int tile = way; tile < plan.tiles; tile += plan.ways) {
            uint4 x[PAIRS];
#pragma unroll
            for (int i = 0; i < PAIRS; ++i) {
                const int pair = min(strip * PAIRS + i, plan.pairs - 1);
                x[i] = load_rows(images + (tile * plan.pairs + pair) * WARP + block.lane);
            }
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c) {
                unsigned factor[4];
                split_weights(weights[(tile * chunks + chunk + c) * WARP], factor);
#pragma unroll
                for (int i = 0; i < PAIRS; ++i) {
                    multiply_add(sums[c][i][0], factor, x[i].x, x[i].y);
                    multiply_add(sums[c][i][1], factor, x[i].z, x[i].w);
                }
            }
        }
        if (!may_send) can_send();
        may_send = true;
        const int sender = block.member() * plan.ways + way;
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
            const int slot = (chunk + c) / plan.split;
            const int part = ((sender * layer.slots + slot) * plan.pairs + strip * PAIRS) * WARP + block.lane;
            const unsigned there = address_in(shared_address(block.at<float4>(layer.exchange) + part),
                                              block.owner_in_group(chunk + c));
#pragma unroll
            for (int i = 0; i < PAIRS; ++i) {
                if (strip * PAIRS + i >= plan.pairs) break;
                const float2 first = added_up(sums[c][i][0]), second = added_up(sums[c][i][1]);
                store_in(there + i * WARP * sizeof(float4), make_float4(first.x, first.y, second.x, second.y));
            }
        }
    }
    if (!may_send) can_send();
}

// weights -= rate * doutputs^T x, for the features of this block and the units of its group.
template <int CHUNKS>
__device__ void update_first(const Block& block, const uint4* images, float rate) {
    const Plan& plan = block.plan;
    float4* weights = block.at<float4>(plan.layers[0].weights) + block.lane;
    const Matrix* doutputs = block.at<Matrix>(plan.layers[0].exchange);
    const int chunks = block.group_chunks(), strips = (plan.tiles + TILES - 1) / TILES;
    for (int task = block.warp; task < chunks / CHUNKS * strips; task += WARPS) {
        const int strip = task % strips * TILES, chunk = task / strips * CHUNKS;
        float sums[CHUNKS][TILES][2][4] = {};
        for (int pair = 0; pair < plan.pairs; ++pair) {
            unsigned factors[CHUNKS][4];
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c) {
                const Matrix* from = doutputs + ((chunk + c) * plan.pairs + pair) * 2;
                const uint4 halves = load_rows(reinterpret_cast<const uint4*>(from) + block.lane);
                factors[c][0] = halves.x, factors[c][1] = halves.y, factors[c][2] = halves.z, factors[c][3] = halves.w;
            }
#pragma unroll
            for (int i = 0; i < TILES; ++i) {
                const int tile = min(strip + i, plan.tiles - 1);
                // Images 0-7 by features 0-7, then 8-15; images 8-15 the same.
                const uint4 x = load_columns(images + (tile * plan.pairs + pair) * WARP + block.lane);
#pragma unroll
                for (int c = 0; c < CHUNKS; ++c) {
                    multiply_add(sums[c][i][0], factors[c], x.x, x.z);
                    multiply_add(sums[c][i][1], factors[c], x.y, x.w);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            if (strip + i >= plan.tiles) break;
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c) {
                float4& w = weights[((strip + i) * chunks + chunk + c) * WARP];
                const float2 left = added_up(sums[c][i][0]), right = added_up(sums[c][i][1]);
                float4 updated = w;
                updated.x -= rate * left.x, updated.y -= rate * left.y;
                updated.z -= rate * right.x, updated.w -= rate * right.y;
                w = updated;
            }
        }
    }
}

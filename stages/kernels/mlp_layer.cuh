#pragma once
#include "mlp_plan.cuh"

// What own units of a hidden layer make of what the senders sent them: outputs, in halves.
template <int INDEX>
__device__ void collect(const Block& block) {
    constexpr Layer layer = plan.layers[INDEX];
    constexpr int TASKS = layer.slots * PAIRS, SENDERS = INDEX == 0 ? SPLIT * WAYS : BLOCKS;
    constexpr float SCALE = 1.0f / (INDEX == 0 ? WEIGHT_SCALE : WEIGHT_SCALE * OUTPUT_SCALE);
    for (int task = block.warp; task < TASKS; task += WARPS) {
        const float4* parts = block.at<float4>(layer.exchange) + task * WARP + block.lane;
        const float bias = block.at<float>(layer.biases)[task / PAIRS * TILE + block.lane / 4];
        float4 sum = parts[0];
#pragma unroll
        for (int sender = 1; sender < SENDERS; ++sender) {
            const float4 part = parts[sender * TASKS * WARP];
            sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
        }
        const auto output = [&](float sum) { return OUTPUT_SCALE * fmaxf(SCALE * sum + bias, 0.0f); };
        const Halves first = halves_of(output(sum.x), output(sum.y));
        const Halves second = halves_of(output(sum.z), output(sum.w));
        Matrix* outputs = block.at<Matrix>(layer.outputs) + 2 * task;
        outputs[0].high[block.lane] = first.high, outputs[0].low[block.lane] = first.low;
        outputs[1].high[block.lane] = second.high, outputs[1].low[block.lane] = second.low;
    }
}

// What sixteen images' outputs of own units in a slot of the layer below add to a chunk of units; by half of the images.
template <int INDEX>
__device__ void multiply_outputs(const Block& block, int slot, int chunk, int pair, float (&sums)[2][4]) {
    constexpr Layer layer = plan.layers[INDEX];
    const Matrix& weights = block.at<Weights>(layer.weights)[slot * layer.chunks + chunk].halves;
    const uint4* outputs = block.at<uint4>(plan.layers[INDEX - 1].outputs) + (slot * PAIRS + pair) * WARP;
    // Twice the same halves, for the higher and the lower ones of the outputs.
    const unsigned high = weights.high[block.lane], low = weights.low[block.lane];
    const unsigned factor[4] = {high, low, high, low};
    const uint4 x = load_columns(outputs + block.lane);
    multiply_add(sums[0], factor, x.x, x.y);
    multiply_add(sums[1], factor, x.z, x.w);
}

// What own units of the layer below add to those of a hidden layer: to each unit's owner.
template <int INDEX>
__device__ void forward(const Block& block) {
    constexpr Layer layer = plan.layers[INDEX];
    for (int task = block.warp; task < layer.chunks * PAIRS; task += WARPS) {
        // Each block begins with another, lest all send to the same one at once.
        const int chunk = (task + block.rank) % layer.chunks, pair = task / layer.chunks, owner = chunk % BLOCKS;
        float sums[2][4] = {};
        for (int slot = 0; slot < plan.layers[INDEX - 1].slots; ++slot) {
            multiply_outputs<INDEX>(block, slot, chunk, pair, sums);
        }
        const int part = (block.rank * layer.slots + chunk / BLOCKS) * PAIRS + pair;
        send(address_in(shared_address(block.at<uint4>(layer.exchange) + part * WARP + block.lane), owner),
             address_in(shared_address(&block.barriers.parts[INDEX]), owner),
             bits_of(added_up(sums[0]), added_up(sums[1])));
    }
}

// What own units of the last hidden layer add to the logits: to each image's owner.
__device__ inline void forward_classes(const Block& block) {
    const unsigned own = shared_address(block.at<uint4>(plan.logits) + block.rank * WARP + block.lane);
    for (int task = block.warp; task < 2 * PAIRS; task += WARPS) {
        const int owner = task;
        float sums[CLASS_CHUNKS][2][4] = {};
        for (int slot = 0; slot < plan.layers[LAST - 1].slots; ++slot) {
#pragma unroll
            for (int c = 0; c < CLASS_CHUNKS; ++c) multiply_outputs<LAST>(block, slot, c, task / 2, sums[c]);
        }
        const bool odd = task % 2 == 1;
        const float2 first = odd ? added_up(sums[0][1]) : added_up(sums[0][0]);
        const float2 second = odd ? added_up(sums[1][1]) : added_up(sums[1][0]);
        send(address_in(own, owner), address_in(shared_address(&block.barriers.parts[LAST]), owner),
             bits_of(first, second));
    }
}

// doutputs of a layer to those of own units of the layer below, through its ReLU.
template <int INDEX>
__device__ void backward(const Block& block) {
    constexpr Layer layer = plan.layers[INDEX], below = plan.layers[INDEX - 1];
    constexpr int IMAGES = 2 * PAIRS;  // chunks of them
    // A lane's row of two matrices that lie one after the other: halves of two chunks.
    const int second = block.lane / 16, row = block.lane % 16;
    for (int task = block.warp; task < below.slots * IMAGES; task += WARPS) {
        const int slot = task / IMAGES, images = task % IMAGES;
        const Weights* weights = block.at<Weights>(layer.weights) + slot * layer.chunks + second;
        const Matrix* doutputs = block.at<Matrix>(layer.exchange) + second * IMAGES + images;
        float sums[4][4] = {};  // chains, lest every product wait for the one before it
#pragma unroll
        for (int chunk = 0; chunk < layer.chunks; chunk += 2) {
            const uint4 w = load_columns(reinterpret_cast<const uint4*>(&weights[chunk].halves) + row);
            const uint4 d = load_columns(reinterpret_cast<const uint4*>(doutputs + chunk * IMAGES) + row);
            const unsigned first_factor[4] = {w.x, w.y, w.x, w.y}, second_factor[4] = {w.z, w.w, w.z, w.w};
            multiply_add(sums[chunk % 4], first_factor, d.x, d.y);
            multiply_add(sums[chunk % 4 + 1], second_factor, d.z, d.w);
        }
        float2 sum = added_up(sums[0]);
#pragma unroll
        for (int i = 1; i < 4; ++i) sum.x += added_up(sums[i]).x, sum.y += added_up(sums[i]).y;
        // Where an output is zero, so are both its halves.
        const unsigned output = block.at<Matrix>(below.outputs)[task].high[block.lane];
        const Halves halves = halves_of((output & 0xffff) == 0 ? 0.0f : sum.x / WEIGHT_SCALE,
                                        output >> 16 == 0 ? 0.0f : sum.y / WEIGHT_SCALE);
        Matrix& own = block.at<Matrix>(below.exchange)[block.received_as<INDEX - 1>(slot) * IMAGES + images];
        own.high[block.lane] = halves.high, own.low[block.lane] = halves.low;
    }
}

// Own doutputs, which lie where they belong in this block, to the others that want them: every block, or the group.
template <int INDEX>
__device__ void share(const Block& block) {
    constexpr Layer layer = plan.layers[INDEX];
    constexpr int READERS = INDEX == 0 ? SPLIT : BLOCKS;
    const int reader = (INDEX == 0 ? block.group() * SPLIT : 0) + block.warp % READERS;
    if (reader == block.rank) return;
    const unsigned barrier = address_in(shared_address(&block.barriers.doutputs[INDEX]), reader);
    for (int slot = 0; slot < layer.slots; ++slot) {
        const uint4* own = block.at<uint4>(layer.exchange) + block.received_as<INDEX>(slot) * PAIRS * WARP + block.lane;
        for (int pair = block.warp / READERS; pair < PAIRS; pair += WARPS / READERS) {
            send(address_in(shared_address(own + pair * WARP), reader), barrier, own[pair * WARP]);
        }
    }
}

// weights -= rate * outputs^T doutputs, for own units of the layer below.
template <int INDEX>
__device__ void update(const Block& block, float rate) {
    constexpr Layer layer = plan.layers[INDEX], below = plan.layers[INDEX - 1];
    for (int task = block.warp; task < below.slots * layer.chunks; task += WARPS) {
        const int slot = task / layer.chunks, chunk = task % layer.chunks;
        const uint4* outputs = block.at<uint4>(below.outputs) + slot * PAIRS * WARP + block.lane;
        const uint4* doutputs = block.at<uint4>(layer.exchange) + chunk * PAIRS * WARP + block.lane;
        float sums[2][4] = {};  // by half of the outputs
#pragma unroll 2
        for (int pair = 0; pair < PAIRS; ++pair) {
            const uint4 d = load_rows(doutputs + pair * WARP), x = load_rows(outputs + pair * WARP);
            const unsigned factor[4] = {d.x, d.y, d.z, d.w};
            multiply_add(sums[0], factor, x.x, x.z);
            multiply_add(sums[1], factor, x.y, x.w);
        }
        const float2 high = added_up(sums[0]), low = added_up(sums[1]);
        Weights& weights = block.at<Weights>(layer.weights)[task];
        const float2 value = weights.values[block.lane];
        set(weights, {value.x - rate * (high.x + low.x), value.y - rate * (high.y + low.y)}, block.lane);
    }
}

// biases -= rate * the sum of doutputs over images, for own units, or in every block for the classes.
template <int INDEX>
__device__ void update_biases(const Block& block, float rate) {
    constexpr Layer layer = plan.layers[INDEX];
    // By the last warps, since the first have more to do than others.
    for (int slot = WARPS - 1 - block.warp; slot < (INDEX == LAST ? CLASS_CHUNKS : layer.slots); slot += WARPS) {
        const int chunk = INDEX == LAST ? slot : block.received_as<INDEX>(slot);
        const Matrix* doutputs = block.at<Matrix>(layer.exchange) + chunk * 2 * PAIRS;
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < 2 * PAIRS; ++i) {
            const float2 two = whole(doutputs[i].high[block.lane], doutputs[i].low[block.lane]);
            sum += two.x + two.y;
        }
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (block.lane % 4 == 0) block.at<float>(layer.biases)[slot * TILE + block.lane / 4] -= rate * sum;
    }
}

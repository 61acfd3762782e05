#pragma once
#include "mlp_first_layer.cuh"

// What own units of a hidden layer make of what the senders sent them: outputs, in halves.
__device__ inline void collect(const Block& block, int index) {
    const Plan& plan = block.plan;
    const Layer& layer = plan.layers[index];
    const int tasks = layer.slots * plan.pairs, senders = index == 0 ? plan.split * plan.ways : BLOCKS;
    const float scale = 1.0f / (index == 0 ? WEIGHT_SCALE : WEIGHT_SCALE * OUTPUT_SCALE);
    for (int task = block.warp; task < tasks; task += WARPS) {
        const float4* part = block.at<float4>(layer.exchange) + task * WARP + block.lane;
        const float bias = block.at<float>(layer.biases)[task / plan.pairs * TILE + block.lane / 4];
        float4 sum = part[0];
#pragma unroll 5
        for (int sender = 1; sender < senders; ++sender) {
            const float4 more = part[sender * tasks * WARP];
            sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
        }
        const auto output = [&](float sum) { return OUTPUT_SCALE * fmaxf(scale * sum + bias, 0.0f); };
        const Halves first = halves_of(output(sum.x), output(sum.y));
        const Halves second = halves_of(output(sum.z), output(sum.w));
        Matrix* outputs = block.at<Matrix>(layer.outputs) + 2 * task;
        outputs[0].high[block.lane] = first.high, outputs[0].low[block.lane] = first.low;
        outputs[1].high[block.lane] = second.high, outputs[1].low[block.lane] = second.low;
    }
}

// What own units of the layer below add to those of a layer: to each unit's owner, or of classes to each image's.
__device__ inline void forward(const Block& block, int index) {
    const Plan& plan = block.plan;
    const Layer &layer = plan.layers[index], &below = plan.layers[index - 1];
    const Matrix* outputs = block.at<Matrix>(below.outputs);
    const int strips = (plan.pairs + PAIRS - 1) / PAIRS;
    for (int task = block.warp; task < layer.chunks * strips; task += WARPS) {
        const int chunk = (task + block.rank) % layer.chunks, strip = task / layer.chunks;
        float sums[PAIRS][2][4] = {};
        for (int slot = 0; slot < below.slots; ++slot) {
            const Matrix& weights = block.at<Weights>(below_weights(layer, slot, chunk))->scaled;
            // Twice the same halves, for the higher and the lower ones of the outputs.
            const unsigned high = weights.high[block.lane], low = weights.low[block.lane];
            const unsigned factor[4] = {high, low, high, low};
#pragma unroll
            for (int i = 0; i < PAIRS; ++i) {
                const int pair = min(strip * PAIRS + i, plan.pairs - 1);
                const Matrix* from = outputs + (slot * plan.pairs + pair) * 2;
                const uint4 x = load_columns(reinterpret_cast<const uint4*>(from) + block.lane);
                multiply_add(sums[i][0], factor, x.x, x.y);
                multiply_add(sums[i][1], factor, x.z, x.w);
            }
        }
#pragma unroll
        for (int i = 0; i < PAIRS; ++i) {
            const int pair = strip * PAIRS + i;
            if (pair >= plan.pairs) break;
            const float2 first = added_up(sums[i][0]), second = added_up(sums[i][1]);
            if (index == plan.depth - 1) {
                const int part = (block.rank * CLASS_CHUNKS + chunk) * WARP + block.lane;
                const unsigned own = shared_address(block.at<float2>(plan.logits) + part);
                store_in(address_in(own, 2 * pair), first);
                store_in(address_in(own, 2 * pair + 1), second);
            } else {
                const int slot = chunk / BLOCKS;
                const int part = ((block.rank * layer.slots + slot) * plan.pairs + pair) * WARP + block.lane;
                const unsigned own = shared_address(block.at<float4>(layer.exchange) + part);
                store_in(address_in(own, chunk % BLOCKS), make_float4(first.x, first.y, second.x, second.y));
            }
        }
    }
}

// doutputs of a layer to those of own units of the layer below, through its ReLU.
__device__ inline void backward(const Block& block, int index) {
    const Plan& plan = block.plan;
    const Layer &layer = plan.layers[index], &below = plan.layers[index - 1];
    const Matrix* doutputs = block.at<Matrix>(layer.exchange);
    for (int task = block.warp; task < below.slots * plan.pairs; task += WARPS) {
        const int slot = task / plan.pairs, pair = task % plan.pairs;
        float sums[2][2][4] = {};  // by chunk of images, and by chunk of units: two chains of sums
#pragma unroll 4
        for (int chunk = 0; chunk < layer.chunks; chunk += 2) {
            // Rows of both halves of two chunks' weights.
            const Weights* weights = block.at<Weights>(below_weights(layer, slot, chunk + block.lane / 16));
            const uint4 w = load_columns(reinterpret_cast<const uint4*>(&weights->scaled) + block.lane % 16);
            const unsigned factors[2][4] = {{w.x, w.y, w.x, w.y}, {w.z, w.w, w.z, w.w}};
#pragma unroll
            for (int c = 0; c < 2; ++c) {
                const Matrix* from = doutputs + ((chunk + c) * plan.pairs + pair) * 2;
                const uint4 d = load_columns(reinterpret_cast<const uint4*>(from) + block.lane);
                multiply_add(sums[0][c], factors[c], d.x, d.y);
                multiply_add(sums[1][c], factors[c], d.z, d.w);
            }
        }
        const int own = (block.received_as(index - 1, slot) * plan.pairs + pair) * 2;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float2 even = added_up(sums[i][0]), odd = added_up(sums[i][1]);
            // Where an output is zero, so are both its halves.
            const unsigned output = block.at<Matrix>(below.outputs)[2 * task + i].high[block.lane];
            const float first = (output & 0xffff) == 0 ? 0.0f : (even.x + odd.x) / WEIGHT_SCALE;
            const float second = output >> 16 == 0 ? 0.0f : (even.y + odd.y) / WEIGHT_SCALE;
            const Halves halves = halves_of(first, second);
            Matrix& matrix = block.at<Matrix>(below.exchange)[own + i];
            matrix.high[block.lane] = halves.high, matrix.low[block.lane] = halves.low;
        }
    }
}

// Own doutputs, which lie where they belong in this block, to the others that want them: every block, or the group.
__device__ inline void share(const Block& block, int index) {
    const Plan& plan = block.plan;
    const Layer& layer = plan.layers[index];
    const int readers = index == 0 ? plan.split : BLOCKS, first = index == 0 ? block.group() * plan.split : 0;
    const int reader = first + block.warp % readers;
    if (reader == block.rank) return;
    for (int slot = 0; slot < layer.slots; ++slot) {
        uint4* own = block.at<uint4>(layer.exchange) + block.received_as(index, slot) * plan.pairs * WARP;
        for (int pair = block.warp / readers; pair < plan.pairs; pair += WARPS / readers) {
            const uint4* part = own + pair * WARP + block.lane;
            store_in(address_in(shared_address(part), reader), *part);
        }
    }
}

// weights -= rate * outputs^T doutputs, for own units of the layer below; also in halves, for the passes.
__device__ inline void update(const Block& block, int index, float rate) {
    const Plan& plan = block.plan;
    const Layer &layer = plan.layers[index], &below = plan.layers[index - 1];
    for (int task = block.warp; task < below.slots * layer.chunks; task += WARPS) {
        const int slot = task / layer.chunks, chunk = task % layer.chunks;
        const uint4* outputs = block.at<uint4>(below.outputs) + slot * plan.pairs * WARP + block.lane;
        const uint4* doutputs = block.at<uint4>(layer.exchange) + chunk * plan.pairs * WARP + block.lane;
        float sums[2][4] = {};  // by half of the outputs
#pragma unroll 2
        for (int pair = 0; pair < plan.pairs; ++pair) {
            const uint4 d = load_rows(doutputs + pair * WARP), x = load_rows(outputs + pair * WARP);
            const unsigned factor[4] = {d.x, d.y, d.z, d.w};
            multiply_add(sums[0], factor, x.x, x.z);
            multiply_add(sums[1], factor, x.y, x.w);
        }
        const float2 high = added_up(sums[0]), low = added_up(sums[1]);
        Weights& weights = *block.at<Weights>(below_weights(layer, slot, chunk));
        float2 value = weights.values[block.lane];
        value.x -= rate * (high.x + low.x), value.y -= rate * (high.y + low.y);
        weights.values[block.lane] = value;
        publish(weights, value, block.lane);
    }
}

// biases -= rate * the sum of doutputs over images, for own units, or in every block for the classes.
__device__ inline void update_biases(const Block& block, int index, float rate) {
    const Plan& plan = block.plan;
    const Layer& layer = plan.layers[index];
    const bool of_classes = index == plan.depth - 1;
    // The last warps, since the first have more to do than others.
    for (int slot = WARPS - 1 - block.warp; slot < (of_classes ? CLASS_CHUNKS : layer.slots); slot += WARPS) {
        const int chunk = of_classes ? slot : block.received_as(index, slot);
        const Matrix* doutputs = block.at<Matrix>(layer.exchange) + chunk * plan.pairs * 2;
        float sum = 0.0f;
        for (int i = 0; i < 2 * plan.pairs; ++i) {
            const float2 two = whole(doutputs[i].high[block.lane], doutputs[i].low[block.lane]);
            sum += two.x + two.y;
        }
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (block.lane % 4 == 0) block.at<float>(layer.biases)[slot * TILE + block.lane / 4] -= rate * sum;
    }
}

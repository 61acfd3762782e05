#pragma once
#include "mlp_plan.cuh"

// What own units of a hidden layer make of what the senders sent them: outputs, in halves.
template <int INDEX>
__device__ void collect(const Block& block) {
    constexpr Layer layer = plan.layers[INDEX];
    constexpr int PART = layer.slots * PAIRS, SENDERS = INDEX == 0 ? SPLIT * WAYS : BLOCKS;
    constexpr float SCALE = 1.0f / (INDEX == 0 ? WEIGHT_SCALE : WEIGHT_SCALE * OUTPUT_SCALE);
    deal_out<layer.slots * CREW_PAIRS>(block, [&](int task) {
        const int slot = task / CREW_PAIRS, at = slot * PAIRS + block.first_pair() + task % CREW_PAIRS;
        const float4* parts = block.at<float4>(layer.exchange) + at * WARP + block.lane;
        const float bias = block.at<float>(layer.biases)[slot * TILE + block.lane / 4];
        float4 sum = parts[0];
#pragma unroll
        for (int sender = 1; sender < SENDERS; ++sender) {
            const float4 part = parts[sender * PART * WARP];
            sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
        }
        const auto output = [&](float sum) { return OUTPUT_SCALE * fmaxf(SCALE * sum + bias, 0.0f); };
        const Halves first = halves_of(output(sum.x), output(sum.y));
        const Halves second = halves_of(output(sum.z), output(sum.w));
        Matrix* outputs = block.at<Matrix>(layer.outputs) + 2 * at;
        outputs[0].high[block.lane] = first.high, outputs[0].low[block.lane] = first.low;
        outputs[1].high[block.lane] = second.high, outputs[1].low[block.lane] = second.low;
    });
}

// The weights of a chunk from own units in a slot of the layer below, as a left factor: twice the same halves, for the
// higher and the lower ones of the outputs.
template <int INDEX>
__device__ void load_weights(const Block& block, int slot, int chunk, unsigned (&factor)[4]) {
    constexpr Layer layer = plan.layers[INDEX];
    const Matrix& weights = block.at<Weights>(layer.weights)[slot * layer.chunks + chunk].halves;
    factor[0] = factor[2] = weights.high[block.lane];
    factor[1] = factor[3] = weights.low[block.lane];
}

// What own units of the layer below add to those of a hidden layer: to each unit's owner.
template <int INDEX>
__device__ void forward(const Block& block) {
    constexpr Layer layer = plan.layers[INDEX], below = plan.layers[INDEX - 1];
    constexpr int STRIP = PAIRS == 1 ? 1 : 2, STRIPS = (PAIRS + STRIP - 1) / STRIP;  // of pairs, by the same weights
    const uint4* outputs = block.at<uint4>(below.outputs) + block.lane;
    deal_out<layer.chunks * STRIPS>(block, [&](int task) {
        // Each block begins with another, lest all send to the same one at once.
        const int chunk = (task + block.rank) % layer.chunks, strip = task / layer.chunks * STRIP;
        const int owner = chunk % BLOCKS;
        float sums[STRIP][2][4] = {};
#pragma unroll
        for (int slot = 0; slot < below.slots; ++slot) {
            unsigned factor[4];
            load_weights<INDEX>(block, slot, chunk, factor);
#pragma unroll
            for (int i = 0; i < STRIP; ++i) {
                const uint4 x = load_columns(outputs + (slot * PAIRS + min(strip + i, PAIRS - 1)) * WARP);
                multiply_add(sums[i][0], factor, x.x, x.y);
                multiply_add(sums[i][1], factor, x.z, x.w);
            }
        }
        const int part = (block.rank * layer.slots + chunk / BLOCKS) * PAIRS + strip;
        const unsigned there =
            address_in(shared_address(block.at<uint4>(layer.exchange) + part * WARP + block.lane), owner);
        const unsigned barrier = address_in(shared_address(&block.barriers.parts[INDEX][block.crew]), owner);
#pragma unroll
        for (int i = 0; i < STRIP; ++i) {
            if (strip + i >= PAIRS) break;
            send(there + i * WARP * sizeof(uint4), barrier, bits_of(added_up(sums[i][0]), added_up(sums[i][1])));
        }
    });
}

// What own units of the last hidden layer add to the logits: to the owner of each eight images.
__device__ inline void forward_classes(const Block& block) {
    constexpr Layer below = plan.layers[LAST - 1];
    const unsigned own = shared_address(block.at<uint4>(plan.logits) + block.rank * WARP + block.lane);
    deal_out<2 * CREW_PAIRS>(block, [&](int task) {
        const int owner = 2 * block.first_pair() + task;
        const Matrix* outputs = block.at<Matrix>(below.outputs) + owner;
        float sums[CLASS_CHUNKS][4] = {};
#pragma unroll
        for (int slot = 0; slot < below.slots; ++slot) {
            // The same two halves twice, since it takes four matrices.
            const uint4 x = load_columns(reinterpret_cast<const uint4*>(outputs + slot * 2 * PAIRS) + block.lane % 16);
#pragma unroll
            for (int c = 0; c < CLASS_CHUNKS; ++c) {
                unsigned factor[4];
                load_weights<LAST>(block, slot, c, factor);
                multiply_add(sums[c], factor, x.x, x.y);
            }
        }
        send(address_in(own, owner), address_in(shared_address(&block.barriers.parts[LAST][0]), owner),
             bits_of(added_up(sums[0]), added_up(sums[1])));
    });
}

// doutputs of a layer to those of own units of the layer below, through its ReLU.
template <int INDEX>
__device__ void backward(const Block& block) {
    constexpr Layer layer = plan.layers[INDEX], below = plan.layers[INDEX - 1];
    constexpr int IMAGES = 2 * PAIRS;  // chunks of them
    const int crossed = block.crossed_lane();
    deal_out<below.slots * 2 * CREW_PAIRS>(block, [&](int task) {
        const int slot = task / (2 * CREW_PAIRS), images = 2 * block.first_pair() + task % (2 * CREW_PAIRS);
        // A lane's rows: of two chunks' weights; of their doutputs, the higher halves of both before the lower ones.
        const Weights* weights = block.at<Weights>(layer.weights) + slot * layer.chunks + block.lane / 16;
        const Matrix* doutputs = block.at<Matrix>(layer.exchange) + crossed / 16 * IMAGES + images;
        float sums[4][4] = {};  // chains, lest every product wait for the one before it
#pragma unroll
        for (int chunk = 0; chunk < layer.chunks; chunk += 2) {
            const uint4 w = load_columns(reinterpret_cast<const uint4*>(&weights[chunk].halves) + block.lane % 16);
            const uint4 d = load_columns(reinterpret_cast<const uint4*>(doutputs + chunk * IMAGES) + crossed % 16);
            const unsigned factor[4] = {w.x, w.y, w.z, w.w};
            multiply_add(sums[chunk % 4], factor, d.x, d.y);
            multiply_add(sums[chunk % 4 + 1], factor, d.z, d.w);
        }
        float2 sum = added_up(sums[0]);
#pragma unroll
        for (int i = 1; i < 4; ++i) sum.x += added_up(sums[i]).x, sum.y += added_up(sums[i]).y;
        // Where an output is zero, so are both its halves.
        const unsigned output = block.at<Matrix>(below.outputs)[slot * IMAGES + images].high[block.lane];
        const Halves halves = halves_of((output & 0xffff) == 0 ? 0.0f : sum.x / WEIGHT_SCALE,
                                        output >> 16 == 0 ? 0.0f : sum.y / WEIGHT_SCALE);
        Matrix& own = block.at<Matrix>(below.exchange)[block.received_as<INDEX - 1>(slot) * IMAGES + images];
        own.high[block.lane] = halves.high, own.low[block.lane] = halves.low;
    });
}

// Own doutputs, which lie where they belong in this block, to the others that want them: every block, or the group.
template <int INDEX>
__device__ void share(const Block& block) {
    constexpr Layer layer = plan.layers[INDEX];
    constexpr int READERS = INDEX == 0 ? SPLIT : BLOCKS;
    const int reader = (INDEX == 0 ? block.group() * SPLIT : 0) + block.crew_warp % READERS;
    if (reader == block.rank) return;
    const unsigned barrier = address_in(shared_address(&block.barriers.doutputs[INDEX][block.crew]), reader);
    for (int slot = 0; slot < layer.slots; ++slot) {
        const uint4* own = block.at<uint4>(layer.exchange) + block.received_as<INDEX>(slot) * PAIRS * WARP + block.lane;
        for (int pair = block.crew_warp / READERS; pair < CREW_PAIRS; pair += CREW_WARPS / READERS) {
            const uint4* part = own + (block.first_pair() + pair) * WARP;
            send(address_in(shared_address(part), reader), barrier, *part);
        }
    }
}

// weights -= rate * outputs^T doutputs, for own units of the layer below.
template <int INDEX>
__device__ void update(const Block& block, float rate) {
    constexpr Layer layer = plan.layers[INDEX], below = plan.layers[INDEX - 1];
    deal_out<below.slots * layer.chunks>(block, [&](int task) {
        const int slot = task / layer.chunks, chunk = task % layer.chunks;
        const uint4* outputs = block.at<uint4>(below.outputs) + slot * PAIRS * WARP + block.crossed_lane();
        const uint4* doutputs = block.at<uint4>(layer.exchange) + chunk * PAIRS * WARP + block.lane;
        float sums[2][4] = {};  // by half of the outputs
#pragma unroll
        for (int pair = 0; pair < PAIRS; ++pair) {
            const uint4 d = load_rows(doutputs + pair * WARP), x = load_rows(outputs + pair * WARP);
            const unsigned factor[4] = {d.x, d.y, d.z, d.w};
            multiply_add(sums[0], factor, x.x, x.y);
            multiply_add(sums[1], factor, x.z, x.w);
        }
        const float2 high = added_up(sums[0]), low = added_up(sums[1]);
        Weights& weights = block.at<Weights>(layer.weights)[task];
        const float2 value = weights.values[block.lane];
        set(weights, {value.x - rate * (high.x + low.x), value.y - rate * (high.y + low.y)}, block.lane);
    });
}

// biases -= rate * the sum of doutputs over images, for own units, or in every block for the classes.
template <int INDEX>
__device__ void update_biases(const Block& block, float rate) {
    constexpr Layer layer = plan.layers[INDEX];
    // By the last warps, since the first have more to do than others.
    for (int slot = CREW_WARPS - 1 - block.crew_warp; slot < (INDEX == LAST ? CLASS_CHUNKS : layer.slots);
         slot += CREW_WARPS) {
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

#pragma once
#include "cluster/mlp_plan.cuh"

// Adds up the parts that the senders sent for own units of a hidden layer, and writes their outputs: for a turn's images,
// or in the first layer for all images of the warp group. One above 0 has a high half, and so at least LEAST_HALF.
template <int INDEX>
__device__ void collect(const Block& block, int turn) {
    constexpr int OWN_PAIRS = INDEX == 0 ? PAIRS_OF_GROUP : TURN_PAIRS;
    constexpr Layer layer = plan.layers[INDEX];
    constexpr int PART = layer.slots * PAIRS, SENDERS = INDEX == 0 ? SPLIT * WAYS : BLOCKS;
    constexpr float SCALE = (INDEX == 0 ? OUTPUT_SCALE : 1.0f) / WEIGHT_SCALE;
    deal_out<layer.slots * OWN_PAIRS>(block, [&](int task) {
        const int slot = task / OWN_PAIRS, at = slot * PAIRS + block.first_pair(turn) + task % OWN_PAIRS;
        if (slot >= block.sent_slots(INDEX)) return;
        const Part* parts = block.at<Part>(layer.exchange) + at * WARP + block.lane;
        const float bias = OUTPUT_SCALE * block.at<float>(layer.biases)[slot * HALF_EDGE + block.lane / 4];
        float4 sum = parts[0].numbers();
#pragma unroll
        for (int sender = 1; sender < SENDERS; ++sender) {
            const float4 part = parts[sender * PART * WARP].numbers();
            sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
        }
        const auto relu = [](float x) { return fmaxf(x, x > 0.0f ? LEAST_HALF : 0.0f); };
        Matrix* outputs = block.at<Matrix>(layer.outputs) + 2 * at;
        put(outputs[0], {relu(SCALE * sum.x + bias), relu(SCALE * sum.y + bias)}, block.lane);
        put(outputs[1], {relu(SCALE * sum.z + bias), relu(SCALE * sum.w + bias)}, block.lane);
    });
}

// Slots of the layer below in one product: its k of sixteen are both halves of a slot's outputs, or two slots.
constexpr int K_SLOTS = 2 / HALVES;

// The weights of ROW_CHUNKS chunks from own units in K_SLOTS slots of the layer below, as a left factor. With two halves each
// is there twice, to meet the outputs' high and low halves.
template <int INDEX>
__device__ void load_weights(const Block& block, int slot, int chunk, unsigned (&factor)[4]) {
    constexpr Layer layer = plan.layers[INDEX];
    const Weights* weights = block.at<Weights>(layer.weights) + slot * layer.chunks + chunk;
    if (HALVES == 2) {
        factor[0] = factor[2] = weights->factor.halves[0][block.lane];
        factor[1] = factor[3] = weights->factor.halves[HALVES - 1][block.lane];
    } else {
        const bool is_alone = slot + 1 == plan.layers[INDEX - 1].slots;
        factor[0] = weights[0].factor.halves[0][block.lane];
        factor[1] = weights[1].factor.halves[0][block.lane];
        factor[2] = is_alone ? 0 : weights[layer.chunks].factor.halves[0][block.lane];
        factor[3] = is_alone ? 0 : weights[layer.chunks + 1].factor.halves[0][block.lane];
    }
}

// Distance from a slot's outputs to the next slot's, in matrices. After the last slot it is 0: the factor there is zero.
template <int INDEX>
__device__ constexpr int next_slot(int slot) {
    return slot + 1 < plan.layers[INDEX].slots ? 2 * PAIRS : 0;
}

// Sends what own units of the layer below add to each unit of a hidden layer, to the unit's owner.
template <int INDEX>
__device__ void forward(const Block& block, int turn) {
    constexpr Layer layer = plan.layers[INDEX], below = plan.layers[INDEX - 1];
    // Pairs multiplied by the same weights: so many that a layer of 128 units is one task a warp.
    constexpr int STRIP = TURN_PAIRS == 1 ? 1 : HALVES, STRIPS = (TURN_PAIRS + STRIP - 1) / STRIP;
    constexpr int ROWS = sent_chunks(layer) / ROW_CHUNKS;
    const Matrix* outputs = block.at<Matrix>(below.outputs) + 2 * block.first_pair(turn) + block.right();
    deal_out<ROWS * STRIPS>(block, [&](int task) {
        // Each block begins elsewhere, so that not all send to one block at once.
        const int first = (task + block.rank) % ROWS * ROW_CHUNKS, strip = task / ROWS * STRIP;
        float sums[STRIP][2][4] = {};
#pragma unroll
        for (int slot = 0; slot < below.slots; slot += K_SLOTS) {
            unsigned factor[4];
            load_weights<INDEX>(block, slot, first, factor);
#pragma unroll
            for (int i = 0; i < STRIP; ++i) {
                const Matrix* own = outputs + (slot * PAIRS + min(strip + i, TURN_PAIRS - 1)) * 2;
                const uint4 x = ldmatrix<true>(row_of(own, block.lower(), next_slot<INDEX - 1>(slot), block.lane));
                mma_m16n8k16_f16(sums[i][0], factor, x.x, x.y);
                mma_m16n8k16_f16(sums[i][1], factor, x.z, x.w);
            }
        }
#pragma unroll
        for (int c = 0; c < ROW_CHUNKS; ++c) {
            const int chunk = first + c, owner = chunk % BLOCKS;
            const int part = (block.rank * layer.slots + chunk / BLOCKS) * PAIRS + block.first_pair(turn) + strip;
            const unsigned there =
                mapa(shared_address(block.at<Part>(layer.exchange) + part * WARP + block.lane), owner);
            const unsigned barrier = mapa(shared_address(&block.barriers.parts[INDEX][block.portion(turn)]), owner);
#pragma unroll
            for (int i = 0; i < STRIP; ++i) {
                if (strip + i >= TURN_PAIRS) break;
                st_async(there + i * WARP * sizeof(Part), barrier, Part(sums_of(sums[i][0], c), sums_of(sums[i][1], c)).bits);
            }
        }
    });
}

// Sends what own units of the last hidden layer add to the logits, to the owner of each eight images.
__device__ inline void forward_classes(const Block& block, int turn) {
    constexpr Layer below = plan.layers[LAST - 1];
    const unsigned own = shared_address(block.at<Part>(plan.logits) + block.rank * NEXT_SENDER + block.lane);
    deal_out<2 * TURN_PAIRS * CLASS_PAIRS>(block, [&](int task) {
        const int images = 2 * block.first_pair(turn) + task % (2 * TURN_PAIRS), pair = task / (2 * TURN_PAIRS);
        const int owner = images % BLOCKS, at = images / BLOCKS * BLOCKS * NEXT_SENDER + pair * WARP;
        const Matrix* outputs = block.at<Matrix>(below.outputs) + images;
        float sums[2 / ROW_CHUNKS][4] = {};
#pragma unroll
        for (int slot = 0; slot < below.slots; slot += K_SLOTS) {
            // The same two matrices twice: the load takes four.
            const uint4 x = ldmatrix<true>(
                row_of(outputs + slot * 2 * PAIRS, block.lower(), next_slot<LAST - 1>(slot), block.lane));
#pragma unroll
            for (int i = 0; i < 2 / ROW_CHUNKS; ++i) {
                unsigned factor[4];
                load_weights<LAST>(block, slot, 2 * pair + i * ROW_CHUNKS, factor);
                mma_m16n8k16_f16(sums[i], factor, x.x, x.y);
            }
        }
        st_async(mapa(own + at * sizeof(Part), owner), mapa(shared_address(&block.barriers.parts[LAST][0]), owner),
             Part(sums_of(sums[0], 0), sums_of(sums[1 / ROW_CHUNKS], 1)).bits);
    });
}

// From doutputs of a layer to doutputs of own units of the layer below, through its ReLU.
template <int INDEX>
__device__ void backward(const Block& block, int turn) {
    constexpr Layer layer = plan.layers[INDEX], below = plan.layers[INDEX - 1];
    constexpr int IMAGES = 2 * PAIRS;  // chunks of images
    constexpr int ROWS = (below.slots + ROW_CHUNKS - 1) / ROW_CHUNKS;
    // Distance from a slot's weights to the next slot's, in matrices.
    constexpr int NEXT_WEIGHTS = layer.chunks * static_cast<int>(sizeof(Weights) / sizeof(Matrix));
    deal_out<ROWS * 2 * TURN_PAIRS>(block, [&](int task) {
        const int first = task / (2 * TURN_PAIRS) * ROW_CHUNKS;
        const int images = 2 * block.first_pair(turn) + task % (2 * TURN_PAIRS);
        // The rows that a lane addresses: weights of two chunks; doutputs of these, high halves of both before low ones.
        const Weights* weights = block.at<Weights>(layer.weights) + first * layer.chunks + block.right();
        const Matrix* doutputs = block.at<Matrix>(layer.exchange) + block.lower() * IMAGES + images;
        const int next = first + 1 < below.slots ? NEXT_WEIGHTS : 0;
        float sums[4][4] = {};  // independent chains, so that a product need not wait for the one before
#pragma unroll
        for (int chunk = 0; chunk < sent_chunks(layer); chunk += 2) {
            const uint4 w = ldmatrix<true>(row_of(&weights[chunk].factor, block.lower(), next, block.lane));
            const uint4 d = ldmatrix<true>(row_of(doutputs + chunk * IMAGES, block.right(), 0, block.lane));
            const unsigned factor[4] = {w.x, w.y, w.z, w.w};
            mma_m16n8k16_f16(sums[chunk / ROW_CHUNKS % 4], factor, d.x, d.y);
            if (HALVES == 2) mma_m16n8k16_f16(sums[chunk % 4 + 1], factor, d.z, d.w);
        }
#pragma unroll
        for (int c = 0; c < ROW_CHUNKS; ++c) {
            const int slot = first + c;
            if (slot >= below.slots) break;
            float2 sum = sums_of(sums[0], c);
#pragma unroll
            for (int i = 1; i < 4; ++i) sum.x += sums_of(sums[i], c).x, sum.y += sums_of(sums[i], c).y;
            // Only an output that ReLU stopped has a zero high half: see `collect`.
            const unsigned output = block.at<Matrix>(below.outputs)[slot * IMAGES + images].halves[0][block.lane];
            put(block.at<Matrix>(below.exchange)[block.received_as<INDEX - 1>(slot) * IMAGES + images],
                {(output & 0xffff) == 0 ? 0.0f : sum.x / WEIGHT_SCALE, output >> 16 == 0 ? 0.0f : sum.y / WEIGHT_SCALE},
                block.lane);
        }
    });
}

// Sends own doutputs to the blocks that read them: all, or the block group. In this block they lie in place already.
template <int INDEX>
__device__ void share(const Block& block, int turn) {
    constexpr Layer layer = plan.layers[INDEX];
    constexpr int READERS = INDEX == 0 ? SPLIT : BLOCKS;
    constexpr int ROWS_OF_PAIR = 2 * sizeof(Matrix) / sizeof(uint4), ROWS = TURN_PAIRS * ROWS_OF_PAIR;
    const int reader = (INDEX == 0 ? block.group() * SPLIT : 0) + block.warp_in_group % READERS;
    if (reader == block.rank) return;
    const unsigned barrier = mapa(shared_address(&block.barriers.doutputs[INDEX][block.portion(turn)]), reader);
    for (int slot = 0; slot < block.sent_slots(INDEX); ++slot) {
        const uint4* own = block.at<uint4>(layer.exchange) +
                           (block.received_as<INDEX>(slot) * PAIRS + block.first_pair(turn)) * ROWS_OF_PAIR;
        for (int i = block.warp_in_group / READERS * WARP + block.lane; i < ROWS; i += WARPS_OF_GROUP / READERS * WARP) {
            st_async(mapa(shared_address(own + i), reader), barrier, own[i]);
        }
    }
}

// weights -= rate * outputs^T doutputs, for own units of the layer below.
template <int INDEX>
__device__ void update(const Block& block, float rate) {
    constexpr Layer layer = plan.layers[INDEX], below = plan.layers[INDEX - 1];
    constexpr int IMAGES = 2 * PAIRS, ROWS = sent_chunks(layer) / ROW_CHUNKS;
    deal_out<below.slots * ROWS>(block, [&](int task) {
        const int slot = task / ROWS, first = task % ROWS * ROW_CHUNKS;
        // The rows that a lane addresses: doutputs of two chunks of images; outputs, high halves of both before low ones.
        const Matrix* outputs = block.at<Matrix>(below.outputs) + slot * IMAGES + block.lower();
        const Matrix* doutputs = block.at<Matrix>(layer.exchange) + first * IMAGES + block.right();
        float sums[2][4] = {};  // by half of the outputs
#pragma unroll
        for (int pair = 0; pair < PAIRS; ++pair) {
            const uint4 d = ldmatrix<false>(row_of(doutputs + 2 * pair, block.lower(), IMAGES, block.lane));
            const uint4 x = ldmatrix<false>(row_of(outputs + 2 * pair, block.right(), 0, block.lane));
            const unsigned factor[4] = {d.x, d.y, d.z, d.w};
            mma_m16n8k16_f16(sums[0], factor, x.x, x.y);
            if (HALVES == 2) mma_m16n8k16_f16(sums[1], factor, x.z, x.w);
        }
#pragma unroll
        for (int c = 0; c < ROW_CHUNKS; ++c) {
            const float2 high = sums_of(sums[0], c), low = sums_of(sums[1], c);
            Weights& weights = block.at<Weights>(layer.weights)[slot * layer.chunks + first + c];
            float2& value = weights.values[block.lane];
            value = {value.x - rate * (high.x + low.x), value.y - rate * (high.y + low.y)};
            put(weights.factor, value, block.lane);
        }
    });
}

// biases -= rate * the sum of doutputs over images, as a product with ones; for own units, or in every block for the classes.
template <int INDEX>
__device__ void update_biases(const Block& block, float rate) {
    constexpr Layer layer = plan.layers[INDEX];
    constexpr unsigned ONES = 0x3c003c00;  // two float16
    // The last warps do it: the first ones have more tasks elsewhere.
    for (int slot = WARPS_OF_GROUP - 1 - block.warp_in_group; slot < (INDEX == LAST ? CLASS_CHUNKS : layer.slots);
         slot += WARPS_OF_GROUP) {
        const int chunk = INDEX == LAST ? slot : block.received_as<INDEX>(slot);
        const Matrix* doutputs = block.at<Matrix>(layer.exchange) + chunk * 2 * PAIRS + block.right();
        float sums[2][4] = {};  // chains
#pragma unroll
        for (int pair = 0; pair < PAIRS; ++pair) {
            const uint4 d = ldmatrix<false>(row_of(doutputs + 2 * pair, block.lower(), 0, block.lane));
            const unsigned factor[4] = {d.x, d.y, d.z, d.w};
            mma_m16n8k16_f16(sums[pair % 2], factor, ONES, ONES);
        }
        const float sum = sums_of(sums[0], 0).x + sums_of(sums[1], 0).x;
        if (block.lane % 4 == 0) block.at<float>(layer.biases)[slot * HALF_EDGE + block.lane / 4] -= rate * sum;
    }
}

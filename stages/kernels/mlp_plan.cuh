// What the phases of cluster_mlp share: sizes, who owns what, and where it lies. stages/cluster_mlp.py makes the plan.
#pragma once
#include "matrices.cuh"

constexpr int BLOCKS = 16;  // of the cluster; more than 8 have to be asked for
constexpr int WARPS = 16;   // of a block
constexpr int THREADS = WARPS * WARP;
constexpr int MOST_LAYERS = 5;
constexpr int CLASS_CHUNKS = 2;  // classes are padded to sixteen

// Multiplied before a number is split, so that the lower half is seldom too small for a float16.
constexpr float WEIGHT_SCALE = 16.0f;
constexpr float OUTPUT_SCALE = 16.0f;
constexpr float GRADIENT_SCALE = 256.0f;
constexpr float NO_CLASS = -3.4e38f;  // the logit of a row that is none: its power is 0

// Eight units of a layer by eight of the one below: float32 as two of a row to a lane, and WEIGHT_SCALE times it.
struct Weights {
    float2 values[WARP];
    Matrix scaled;
};

// One layer of weights with its units, in chunks of eight. Offsets are bytes in shared memory, or floats of parameters.
struct Layer {
    int units, slots, chunks;  // chunk c is in slot c / BLOCKS of block c % BLOCKS; classes have chunks but no slots
    int weights;               // first: float4 (tiles, chunks of the group, WARP); others: Weights (slots below, chunks)
    int outputs;               // Matrix (slots, 2 pairs), OUTPUT_SCALE times the own units' outputs
    int biases;                // float (slots, 8); of the classes, in every block, (CLASS_CHUNKS, 8)
    int exchange;  // float4 (senders, slots, pairs, WARP), what the senders add to own units; then Matrix (chunks, 2
                   // pairs), GRADIENT_SCALE times doutputs of all units, of the first layer those of the group
    int weights_begin, biases_begin;
};

struct Plan {
    int bytes;  // of shared memory
    int depth, inputs, batch;
    int pairs;                // of chunks of eight images
    int split, ways;          // features divided among so many blocks, a group, and within a block so many warps
    int tiles, group_tiles;   // of sixteen features, in a block and in a group
    int images[2], logits;    // offsets; logits: float2 (senders, CLASS_CHUNKS, WARP) of this block's eight images
    Layer layers[MOST_LAYERS];
};

struct Shared {
    Plan plan;
    Barrier fetched[2];                       // a step's images, by its parity
    double losses[BLOCKS], corrects[BLOCKS];  // in the first block, from each
};

// What a block knows of itself and of the plan.
struct Block {
    const Plan& plan;
    char* memory;
    const int rank, warp, lane;

    __device__ Block(const Plan& plan, char* memory)
        : plan(plan), memory(memory), rank(rank_in_cluster()), warp(threadIdx.x / WARP), lane(threadIdx.x % WARP) {}

    template <class Type>
    __device__ Type* at(int offset) const {
        return reinterpret_cast<Type*>(memory + offset);
    }

    // Blocks that divide the features among them, for the units that they own together.
    __device__ int group() const { return rank / plan.split; }
    __device__ int member() const { return rank % plan.split; }
    __device__ int group_chunks() const { return plan.layers[0].slots * plan.split; }
    __device__ int owner_in_group(int chunk) const { return group() * plan.split + chunk % plan.split; }

    // Where the chunk in that slot of a block's is among the doutputs that the block receives.
    __device__ int received_as(int layer, int slot) const {
        return layer == 0 ? slot * plan.split + member() : slot * BLOCKS + rank;
    }
};

// A product with halves in its left factor's rows, rows g and g + 8 of one number: what this lane has of the sum.
__device__ inline float2 added_up(const float (&product)[4]) {
    return {product[0] + product[2], product[1] + product[3]};
}

// The offset of the weights from a slot of own units, of the layer below, to a chunk of a layer's.
__device__ inline int below_weights(const Layer& layer, int slot, int chunk) {
    return layer.weights + (slot * layer.chunks + chunk) * static_cast<int>(sizeof(Weights));
}

// A lane's two weights in halves, for the passes.
__device__ inline void publish(Weights& weights, float2 value, int lane) {
    const Halves halves = halves_of(WEIGHT_SCALE * value.x, WEIGHT_SCALE * value.y);
    weights.scaled.high[lane] = halves.high, weights.scaled.low[lane] = halves.low;
}

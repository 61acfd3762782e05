#pragma once
#include "cluster/mlp_plan.cuh"

template <int INDEX, class Copy>
__device__ void copy_layers(const Block& block, float* parameters, Copy copy) {
    constexpr Layer layer = plan.layers[INDEX], below = plan.layers[INDEX - 1];
    const int row = block.lane / 4, column = block.lane % 4 * 2;
#pragma unroll 1
    for (int i = block.warp; i < below.slots * layer.chunks; i += WARPS) {
        const int unit = i % layer.chunks * HALF_EDGE + row;
        const int input = (i / layer.chunks * BLOCKS + block.rank) * HALF_EDGE + column;
        Weights& weights = block.at<Weights>(layer.weights)[i];
        float2 own = weights.values[block.lane];
        float* stored = parameters + layer.weights_begin + input * layer.units + unit;
        if (unit < layer.units && input < below.units) copy(own.x, stored[0], WEIGHT_SCALE);
        if (unit < layer.units && input + 1 < below.units) copy(own.y, stored[layer.units], WEIGHT_SCALE);
        weights.values[block.lane] = own;
        put(weights.factor, own, block.lane);
    }
    if constexpr (INDEX < LAST) copy_layers<INDEX + 1>(block, parameters, copy);
}

template <int INDEX, class Copy>
__device__ void copy_biases(const Block& block, float* parameters, Copy copy) {
    constexpr Layer layer = plan.layers[INDEX];
    for (int i = threadIdx.x; i < (INDEX == LAST ? CLASS_CHUNKS : layer.slots) * HALF_EDGE; i += THREADS) {
        const int chunk = INDEX == LAST ? i / HALF_EDGE : i / HALF_EDGE * BLOCKS + block.rank, unit = chunk * HALF_EDGE + i % HALF_EDGE;
        float& stored = parameters[layer.biases_begin + unit];
        if (unit < layer.units) copy(block.at<float>(layer.biases)[i], stored, 1.0f);
    }
    if constexpr (INDEX < LAST) copy_biases<INDEX + 1>(block, parameters, copy);
}

// This lane's two weights in a row of the first layer: a chunk of the block group's units, a chunk of the block's features.
template <class Copy>
__device__ void copy_first(const Block& block, float* parameters, int features, int chunk, float2& own, Copy copy) {
    constexpr Layer layer = plan.layers[0];
    const int unit = (chunk / SPLIT * BLOCKS + block.owner_in_group(chunk)) * HALF_EDGE + block.lane / 4;
    const int feature = (2 * block.member() * TILES + features) * HALF_EDGE + block.lane % 4 * 2;
    if (unit >= layer.units) return;
    float* stored = parameters + layer.weights_begin + feature * layer.units + unit;
    if (feature < plan.inputs) copy(own.x, stored[0], WEIGHT_SCALE);
    if (feature + 1 < plan.inputs) copy(own.y, stored[layer.units], WEIGHT_SCALE);
}

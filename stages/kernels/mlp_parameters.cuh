#pragma once
#include "mlp_plan.cuh"

template <int INDEX, class Copy>
__device__ void copy_layers(const Block& block, float* parameters, Copy copy) {
    constexpr Layer layer = plan.layers[INDEX], below = plan.layers[INDEX - 1];
    const int row = block.lane / 4, column = block.lane % 4 * 2;
#pragma unroll 1
    for (int i = block.warp; i < below.slots * layer.chunks; i += WARPS) {
        const int unit = i % layer.chunks * TILE + row;
        const int input = (i / layer.chunks * BLOCKS + block.rank) * TILE + column;
        Weights& weights = block.at<Weights>(layer.weights)[i];
        float2 own = weights.values[block.lane];
        float* stored = parameters + layer.weights_begin + input * layer.units + unit;
        if (unit < layer.units && input < below.units) copy(own.x, stored[0], WEIGHT_SCALE);
        if (unit < layer.units && input + 1 < below.units) copy(own.y, stored[layer.units], WEIGHT_SCALE);
        set(weights, own, block.lane);
    }
    if constexpr (INDEX < LAST) copy_layers<INDEX + 1>(block, parameters, copy);
}

template <int INDEX, class Copy>
__device__ void copy_biases(const Block& block, float* parameters, Copy copy) {
    constexpr Layer layer = plan.layers[INDEX];
    for (int i = threadIdx.x; i < (INDEX == LAST ? CLASS_CHUNKS : layer.slots) * TILE; i += THREADS) {
        const int chunk = INDEX == LAST ? i / TILE : i / TILE * BLOCKS + block.rank, unit = chunk * TILE + i % TILE;
        float& stored = parameters[layer.biases_begin + unit];
        if (unit < layer.units) copy(block.at<float>(layer.biases)[i], stored, 1.0f);
    }
    if constexpr (INDEX < LAST) copy_biases<INDEX + 1>(block, parameters, copy);
}

// Applies copy(own, stored, scale) to every weight and bias that a block keeps, of the classes' biases in every block:
// own should be scale times stored.
template <class Copy>
__device__ void copy_parameters(const Block& block, float* parameters, Copy copy) {
    const int row = block.lane / 4, column = block.lane % 4 * 2;
    constexpr Layer first = plan.layers[0];
#pragma unroll 1
    for (int i = block.warp; i < 2 * TILES * GROUP_CHUNKS; i += WARPS) {
        const int chunk = i % GROUP_CHUNKS;
        const int unit = (chunk / SPLIT * BLOCKS + block.owner_in_group(chunk)) * TILE + row;
        const int feature = (2 * block.member() * TILES + i / GROUP_CHUNKS) * TILE + column;
        if (unit >= first.units) continue;
        float2& own = block.at<float2>(first.weights)[i * WARP + block.lane];
        float* stored = parameters + first.weights_begin + feature * first.units + unit;
        if (feature < plan.inputs) copy(own.x, stored[0], WEIGHT_SCALE);
        if (feature + 1 < plan.inputs) copy(own.y, stored[first.units], WEIGHT_SCALE);
    }
    copy_layers<1>(block, parameters, copy);
    copy_biases<0>(block, parameters, copy);
}

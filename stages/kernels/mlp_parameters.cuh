#pragma once
#include "mlp_plan.cuh"

// Applies copy(own, stored) to every weight and bias that a block keeps; of the last biases, which all keep, to each.
template <class Copy>
__device__ void copy_parameters(const Block& block, float* parameters, Copy copy) {
    const Plan& plan = block.plan;
    const int row = block.lane / 4, column = block.lane % 4 * 2;

    const Layer& first = plan.layers[0];
    const int chunks = block.group_chunks();
    for (int i = block.warp; i < plan.tiles * chunks; i += WARPS) {
        const int chunk = i % chunks;
        const int unit = (chunk / plan.split * BLOCKS + block.owner_in_group(chunk)) * TILE + row;
        const int feature = (block.member() * plan.tiles + i / chunks) * EDGE + column;
        if (unit >= first.units) continue;
        float4& own = block.at<float4>(first.weights)[i * WARP + block.lane];
        float* numbers[4] = {&own.x, &own.y, &own.z, &own.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int at = feature + j % 2 + j / 2 * TILE;
            if (at < plan.inputs) copy(*numbers[j], parameters[first.weights_begin + at * first.units + unit]);
        }
    }
    for (int index = 1; index < plan.depth; ++index) {
        const Layer &layer = plan.layers[index], &below = plan.layers[index - 1];
        for (int i = block.warp; i < below.slots * layer.chunks; i += WARPS) {
            const int unit = i % layer.chunks * TILE + row;
            const int input = (i / layer.chunks * BLOCKS + block.rank) * TILE + column;
            float2& own = block.at<Weights>(layer.weights)[i].values[block.lane];
            float* from = parameters + layer.weights_begin + input * layer.units + unit;
            if (unit < layer.units && input < below.units) copy(own.x, from[0]);
            if (unit < layer.units && input + 1 < below.units) copy(own.y, from[layer.units]);
        }
    }
    for (int index = 0; index < plan.depth; ++index) {
        const Layer& layer = plan.layers[index];
        const bool of_classes = index == plan.depth - 1;
        for (int i = threadIdx.x; i < (of_classes ? CLASS_CHUNKS : layer.slots) * TILE; i += THREADS) {
            const int chunk = of_classes ? i / TILE : i / TILE * BLOCKS + block.rank;
            const int unit = chunk * TILE + i % TILE;
            if (unit < layer.units) copy(block.at<float>(layer.biases)[i], parameters[layer.biases_begin + unit]);
        }
    }
}

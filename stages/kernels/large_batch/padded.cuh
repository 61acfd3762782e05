// Layers as padded matrices: what the kernels of layers of any widths share.
//
// Behind the last number of an image, and of each hidden layer's outputs, comes a one, whose weights are the next layer's
// biases. Behind it are zeros, up to a multiple of eight.
#pragma once
#include "large_batch/shares.cuh"

__device__ constexpr int up(int number, int multiple) { return (number + multiple - 1) / multiple * multiple; }
// A layer's weights as a padded matrix, and where it begins among all.
__device__ constexpr int rows_of(int l) { return up(layer(l).inputs + 1, 8); }
__device__ constexpr int columns_of(int l) { return up(layer(l).units + (l < LAST), 8); }
__device__ constexpr int begin_of(int l) {
    int begin = 0;
    for (int before = 0; before < l; ++before) begin += up(rows_of(before) * columns_of(before), 128);
    return begin;
}

template <class Number, class Join>
__device__ inline Number over_lanes(Number number, Join join) {
    for (int flip = WARP / 2; flip > 0; flip /= 2) number = join(number, __shfl_xor_sync(~0u, number, flip));
    return number;
}

// The update of the parameters whose gradients are in shares of blocks: the last layer's, and the hidden biases.
#pragma once
#include "large_batch/halves.cuh"
#include "large_batch/network.cuh"

constexpr int CLASSES = 16;  // of the head
constexpr int PAD = 8;       // of rows of hidden_layers' weights
constexpr int WARPS = 8, THREADS = WARPS * WARP;

// A number of several layers: the `at`-th of layer `index`.
struct Found {
    Layer layer;
    int index, at;
};

// Number `at` of all hidden layers, of which each has `count(layer)` numbers.
template <class Count>
__device__ inline Found find(int at, Count count) {
    Found found = {layer(0), 0, at};
#pragma unroll
    for (int l = 1; l < LAST; ++l) {
        const int before = count(layer(l - 1));
        if (found.index == l - 1 && found.at >= before) found = {layer(l), l, found.at - before};
    }
    return found;
}

// A sum over the hidden layers.
template <class Count>
__device__ inline int sum_of(Count count) {
    int sum = 0;
#pragma unroll
    for (int l = 0; l < LAST; ++l) sum += count(layer(l));
    return sum;
}

__device__ inline int units_of(const Layer& layer) { return layer.units; }
__device__ inline int weights_of(const Layer& layer) { return layer.inputs * layer.units; }

// The parameters whose gradients are in shares: the last layer's, then the hidden biases.
struct Shared {
    float *parameters, *biases;
    unsigned short *by_class, *by_unit;
    int width;

    __device__ static int count() { return (layer(LAST).inputs + 1) * layer(LAST).units + sum_of(units_of); }

    // Where number `at` lies among the parameters.
    __device__ static int place(int at) {
        constexpr int last = layer(LAST).inputs * layer(LAST).units;
        if (at < last) return layer(LAST).weights + at;
        const Found found = bias(at - last);
        return found.layer.bias + found.at;
    }

    __device__ static Found bias(int at) {
        constexpr int classes = layer(LAST).units;
        return at < classes ? Found{layer(LAST), LAST, at} : find(at - classes, units_of);
    }

    __device__ void write(int at, float moved) const {
        constexpr int classes = layer(LAST).units, last = layer(LAST).inputs * classes;
        parameters[place(at)] = moved;
        if (at >= last) {
            const Found found = bias(at - last);
            biases[found.index * width + found.at] = moved * OUTPUT_SCALE;
        } else {
            const int unit = at / classes, c = at % classes;
            unsigned halves[HALVES];
            split(halves, moved * WEIGHT_SCALE, 0.0f);
            for (int half = 0; half < HALVES; ++half) {
                by_class[(half * CLASSES + c) * width + unit] = halves[half];
                by_unit[(half * width + unit) * CLASSES + c] = halves[half];
            }
        }
    }
};

// Moves a lane's parameter, number `at` of the shares, from `before` by all shares of its gradient.
__device__ inline void update_shared(const Shared& shared, float (&sums)[WARPS][WARP], int at, float before,
                                     const float* partials, int shares, float rate) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    float sum = 0.0f;
    if (at < Shared::count()) {
#pragma unroll 8
        for (int share = warp; share < shares; share += WARPS) sum += partials[static_cast<long long>(share) * Shared::count() + at];
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && at < Shared::count()) {
        for (int other = 1; other < WARPS; ++other) sum += sums[other][lane];
        shared.write(at, before - rate * sum);
    }
}

// Adds all shares to the epoch's totals, by one warp in a fixed order.
__device__ inline void add_totals(const double* block_totals, int shares, double* totals) {
    const int lane = threadIdx.x % WARP;
    for (int which = 0; which < 2; ++which) {
        double sum = 0.0;
        for (int share = lane; share < shares; share += WARP) sum += block_totals[2 * share + which];
        for (int flip = WARP / 2; flip > 0; flip /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, flip);
        if (lane == 0) totals[which] += sum;
    }
}

// The update of every parameter of a large batch's step, and the weights as halves for the next step's products.

#include "large_batch/shares.cuh"
#include "device/dependent.cuh"

// Updates a weight by the sum of its gradients of all parts of a batch, each `apart` from the next, and writes its halves.
// Halves lie beside each other in a row of gradients; of a further layer's inputs, they also lie below each other.
template <bool IS_FURTHER>
__device__ inline void update_weight(float& weight, const float* gradients, int splits, long long apart, int width,
                                     unsigned short* halves, int half_apart, float rate) {
    float sums[HALVES] = {};
#pragma unroll 4
    for (int part = 0; part < splits; ++part) {
        for (int half = 0; half < HALVES; ++half) sums[half] += gradients[part * apart + half * width];
        // The product of two low halves is below float32's rounding.
        if (IS_FURTHER && HALVES == 2) sums[HALVES - 1] += gradients[part * apart + width * HALVES * width];
    }
    const float moved = weight - rate * (sums[0] + (HALVES == 2 ? sums[HALVES - 1] : 0.0f));
    weight = moved;
    unsigned parts[HALVES];
    split(parts, moved * WEIGHT_SCALE, 0.0f);
    for (int half = 0; half < HALVES; ++half) halves[half * half_apart] = parts[half];
}

// update_all: parameters -= rate * the sum of their gradients; halves = weights * 64 as float16, with two halves also the rest
// as float16. If with_totals, adds block_totals to totals. Without splits and shares it only writes the halves.
//   gradients     (splits, features, HALVES * width)       f32  in: the first layer's, halves beside each other
//   further_gradients  (FURTHER, further_splits, HALVES * width, HALVES * width)  f32  in: halves also below each other
//   partials      (shares, share)                          f32  in: of the last weights, their bias, the hidden biases
//   parameters    (all,)                                   f32  in, out: by LAYERS
//   halves        (features, HALVES * width)               u16  out: bits of float16, where there are weights, as gradients
//   further_halves  (FURTHER, HALVES, width, width + 8)    u16  out: the same, one half after the other
//   by_class      (HALVES, CLASSES, width)                 u16  out: the same of the last layer
//   by_unit       (HALVES, width, CLASSES)                 u16  out: the same
//   biases        (LAST + 1, width)                        f32  out: all layers', times 16, where there are units
//   block_totals  (shares, 2)                              f64  in
//   totals        (2,)                                     f64  in, out
// Kind:   update.
// Launch: 1-D, THREADS threads a block; a block for each WARP of a share's numbers, then a thread for each other weight;
//   compiled with LAYERS and FACTOR_HALVES.
// Needs:  sm_80; features >= inputs; width >= all units; classes <= 16; hidden weights <= 2^30.
// Order:  each sum in a fixed order; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS) update_all(const float* gradients, const float* further_gradients, const float* partials, float* parameters,
               unsigned short* halves, unsigned short* further_halves, unsigned short* by_class, unsigned short* by_unit,
               float* biases, const double* block_totals, double* totals, int splits, int further_splits, int features, int width,
               int shares, float rate, int with_totals) {
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    __shared__ float sums[WARPS][WARP];
    const int others = (Shared::count() + WARP - 1) / WARP;
    if (blockIdx.x < others) {
        const int at = blockIdx.x * WARP + threadIdx.x % WARP;
        const float before = at < Shared::count() ? parameters[Shared::place(at)] : 0.0f;
        update_shared({parameters, biases, by_class, by_unit, width}, sums, at, before, partials, shares, rate);
        if (with_totals && blockIdx.x == 0 && threadIdx.x / WARP == 1) add_totals(block_totals, shares, totals);
        return;
    }
    const int i = (blockIdx.x - others) * THREADS + threadIdx.x;
    if (i >= sum_of(weights_of)) return;
    const Found found = find(i, weights_of);
    const int row = found.at / found.layer.units, column = found.at % found.layer.units, wide = HALVES * width;
    float& weight = parameters[found.layer.weights + found.at];
    if (found.index == 0) {
        const int place = row * wide + column;
        update_weight<false>(weight, gradients + place, splits, static_cast<long long>(features) * wide, width, halves + place,
                             width, rate);
    } else {
        const int square = width * width, further = found.index - 1, stride = width + PAD;
        const long long apart = static_cast<long long>(HALVES) * HALVES * square;
        update_weight<true>(weight, further_gradients + further * further_splits * apart + row * wide + column, further_splits,
                            apart, width, further_halves + (further * HALVES * width + row) * stride + column, width * stride, rate);
    }
}

// The update of every parameter of a large batch's step, and the weights as halves for the next step's products.

#include "large_batch/halves.cuh"
#include "large_batch/network.cuh"
#include "device/dependent.cuh"

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

    __device__ void move(int at, float by) const {
        constexpr int classes = layer(LAST).units, last = layer(LAST).inputs * classes;
        if (at >= last) {
            const int bias = at - last;
            const Found found = bias < classes ? Found{layer(LAST), LAST, bias} : find(bias - classes, units_of);
            const float moved = parameters[found.layer.bias + found.at] - by;
            parameters[found.layer.bias + found.at] = moved;
            biases[found.index * width + found.at] = moved * OUTPUT_SCALE;
        } else {
            const int unit = at / classes, c = at % classes;
            const float weight = parameters[layer(LAST).weights + at] - by;
            parameters[layer(LAST).weights + at] = weight;
            unsigned halves[HALVES];
            split(halves, weight * WEIGHT_SCALE, 0.0f);
            for (int half = 0; half < HALVES; ++half) {
                by_class[(half * CLASSES + c) * width + unit] = halves[half];
                by_unit[(half * width + unit) * CLASSES + c] = halves[half];
            }
        }
    }
};

// Updates a lane's parameter from all shares of its gradient.
__device__ inline void update_shared(const Shared& shared, const float* partials, int shares, float rate) {
    __shared__ float sums[WARPS][WARP];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, at = blockIdx.x * WARP + lane;
    float sum = 0.0f;
    if (at < Shared::count()) {
#pragma unroll 8
        for (int share = warp; share < shares; share += WARPS) sum += partials[static_cast<long long>(share) * Shared::count() + at];
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && at < Shared::count()) {
        for (int other = 1; other < WARPS; ++other) sum += sums[other][lane];
        shared.move(at, rate * sum);
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
    const int others = (Shared::count() + WARP - 1) / WARP;
    if (blockIdx.x < others) {
        update_shared({parameters, biases, by_class, by_unit, width}, partials, shares, rate);
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

// The update of every parameter of a large batch's step, and the weights as halves for the next step's products.

#include "large_batch/halves.cuh"
#include "device/dependent.cuh"

constexpr int CLASSES = 16;  // of hidden_head.cu
constexpr int WARPS = 8, THREADS = WARPS * WARP;

struct LastLayer {
    float *weights, *bias, *hidden_bias;
    unsigned short *by_class, *by_unit;
    int width, units, classes;

    __device__ int count() const { return (units + 1) * classes + units; }

    __device__ void move(int at, float by) const {
        const int last = units * classes;
        if (at >= last + classes) {
            hidden_bias[at - last - classes] -= by;
        } else if (at >= last) {
            bias[at - last] -= by;
        } else {
            const int unit = at / classes, c = at % classes;
            const float weight = weights[at] - by;
            weights[at] = weight;
            unsigned halves[HALVES];
            split(halves, weight * WEIGHT_SCALE, 0.0f);
            for (int half = 0; half < HALVES; ++half) {
                by_class[(half * CLASSES + c) * width + unit] = halves[half];
                by_unit[(half * width + unit) * CLASSES + c] = halves[half];
            }
        }
    }
};

// Updates a lane's parameter of the last layer from all shares of its gradient.
__device__ inline void update_last_layer(const LastLayer& layer, const float* partials, int shares, float rate) {
    __shared__ float sums[WARPS][WARP];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, at = blockIdx.x * WARP + lane;
    float sum = 0.0f;
    if (at < layer.count()) {
#pragma unroll 8
        for (int share = warp; share < shares; share += WARPS) sum += partials[static_cast<long long>(share) * layer.count() + at];
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && at < layer.count()) {
        for (int other = 1; other < WARPS; ++other) sum += sums[other][lane];
        layer.move(at, rate * sum);
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

// update_all: weights -= rate * the sum of gradients; halves = weights * 64 as float16, with two halves also the rest as
// float16, beside each other. last_weights, last_bias and hidden_bias -= rate * the sum of partials; by_class and by_unit = the
// last weights' halves. If with_totals, adds block_totals to totals. Without splits and shares it only writes the halves.
//   gradients     (splits, features, HALVES * width)       f32  in: halves beside each other
//   weights       (inputs, units)                          f32  in, out
//   halves        (features, HALVES * width)               u16  out: bits of float16, where there are weights
//   partials      (shares, (units + 1) * classes + units)  f32  in: of hidden_head
//   last_weights  (units, classes)                         f32  in, out
//   last_bias     (classes,)                               f32  in, out
//   hidden_bias   (units,)                                 f32  in, out
//   by_class      (HALVES, CLASSES, width)                 u16  out: bits of float16, where there are weights
//   by_unit       (HALVES, width, CLASSES)                 u16  out: the same
//   block_totals  (shares, 2)                              f64  in
//   totals        (2,)                                     f64  in, out
// Launch: 1-D, THREADS threads a block; a block for each WARP of a share's numbers, then a thread for each weight.
// Needs:  sm_80; features >= inputs; width >= units; classes <= 16; inputs * units <= 2^30.
// Order:  each sum in a fixed order; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS) update_all(const float* gradients, float* weights, unsigned short* halves, const float* partials,
               float* last_weights, float* last_bias, float* hidden_bias, unsigned short* by_class, unsigned short* by_unit,
               const double* block_totals, double* totals, int splits, int features, int width, int inputs, int units,
               int classes, int shares, float rate, int with_totals) {
    let_next_begin();
    wait_for_previous();
    const LastLayer layer = {last_weights, last_bias, hidden_bias, by_class, by_unit, width, units, classes};
    const int others = (layer.count() + WARP - 1) / WARP;
    if (blockIdx.x < others) {
        update_last_layer(layer, partials, shares, rate);
        if (with_totals && blockIdx.x == 0 && threadIdx.x / WARP == 1) add_totals(block_totals, shares, totals);
        return;
    }
    const int i = (blockIdx.x - others) * THREADS + threadIdx.x;
    if (i >= inputs * units) return;
    const int row = i / units, column = i % units;
    const int place = row * HALVES * width + column;
    const long long apart = static_cast<long long>(features) * HALVES * width;
    float sums[HALVES] = {};
#pragma unroll 4
    for (int part = 0; part < splits; ++part) {
        for (int half = 0; half < HALVES; ++half) sums[half] += gradients[part * apart + place + half * width];
    }
    const float weight = weights[i] - rate * (sums[0] + (HALVES == 2 ? sums[HALVES - 1] : 0.0f));
    weights[i] = weight;
    unsigned parts[HALVES];
    split(parts, weight * WEIGHT_SCALE, 0.0f);
    for (int half = 0; half < HALVES; ++half) halves[place + half * width] = parts[half];
}

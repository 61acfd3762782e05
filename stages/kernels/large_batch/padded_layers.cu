// Softmax and update of layers whose products the library makes: of any widths, padded to multiples of eight.
#include "large_batch/padded.cuh"

constexpr int OUTPUTS = layer(LAST).units, COLUMNS = columns_of(LAST);  // classes

// padded_softmax: dlogits = (softmax(logits) - onehot(labels)) * scale; each block's share of the totals, if with_totals.
//   logits        (rows, COLUMNS)  f32  in; what lies behind the classes is not read
//   labels        (rows,)          i32  in, each 0 <= label < classes
//   dlogits       (rows, COLUMNS)  u16  out: bits of float16; zeros behind the classes
//   block_totals  (blocks, 2)      f64  out: summed cross-entropy and number correct, if with_totals
// Kind:   softmax.
// Launch: 1-D, WARPS warps a block, each with a row; compiled with LAYERS and FACTOR_HALVES of 1.
// Needs:  sm_80; rows * COLUMNS <= 2^30.
// Order:  each lane adds every 32nd class, then lanes as a tree; rows of a block in order. Repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS) padded_softmax(const float* logits, const int* labels, unsigned short* dlogits,
                                                                     double* block_totals, int rows, float scale, int with_totals) {
    __shared__ double losses[WARPS];
    __shared__ int corrects[WARPS];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, row = blockIdx.x * WARPS + warp;
    double loss = 0.0;
    int correct = 0;
    if (row < rows) {
        const float* z = logits + row * COLUMNS;
        const int label = labels[row];
        float largest = -3.4e38f, sum = 0.0f;
        for (int c = lane; c < OUTPUTS; c += WARP) largest = fmaxf(largest, z[c]);
        largest = over_lanes(largest, [](float a, float b) { return fmaxf(a, b); });
        for (int c = lane; c < OUTPUTS; c += WARP) sum += expf(z[c] - largest);
        sum = over_lanes(sum, [](float a, float b) { return a + b; });
        bool beaten = false;
        for (int c = lane; c < COLUMNS; c += WARP) {
            const bool is_class = c < OUTPUTS;
            const float gradient = is_class ? (expf(z[c] - largest) / sum - (c == label ? 1.0f : 0.0f)) * scale : 0.0f;
            dlogits[row * COLUMNS + c] = static_cast<unsigned short>(cvt_f16x2(gradient, 0.0f));
            beaten |= is_class && (z[c] > z[label] || (z[c] == z[label] && c < label));
        }
        correct = __ballot_sync(~0u, beaten) == 0;
        loss = logf(sum) + (largest - z[label]);  // subtracted first: singly, either would round the logarithm
    }
    if (!with_totals) return;
    if (lane == 0) losses[warp] = loss, corrects[warp] = correct;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int other = 1; other < WARPS; ++other) loss += losses[other], correct += corrects[other];
    block_totals[2 * blockIdx.x] = loss;
    block_totals[2 * blockIdx.x + 1] = correct;
}

// update_padded: parameters -= rate * gradients, unless rate is 0; halves = parameters as float16. If with_totals, adds
// block_totals to totals.
//   gradients     (all padded,)  f32  in: of each layer (rows_of, columns_of), the biases behind its last input
//   parameters    (all,)         f32  in, out: by LAYERS
//   halves        (all padded,)  u16  out: bits of float16, where there are parameters
//   block_totals  (blocks, 2)    f64  in
//   totals        (2,)           f64  in, out
// Kind:   update.
// Launch: 1-D, THREADS threads a block, a thread for each parameter; compiled with LAYERS and FACTOR_HALVES of 1.
// Needs:  sm_80; padded numbers <= 2^30.
// Order:  totals in a fixed order; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS) update_padded(const float* gradients, float* parameters, unsigned short* halves,
                                                                    const double* block_totals, double* totals, int blocks, float rate,
                                                                    int with_totals) {
    if (with_totals && blockIdx.x == 0 && threadIdx.x < WARP) add_totals(block_totals, blocks, totals);
    int at = blockIdx.x * THREADS + threadIdx.x;
#pragma unroll
    for (int l = 0; l <= LAST; ++l) {
        constexpr auto count = [](const Layer& own) { return (own.inputs + 1) * own.units; };
        if (at >= 0 && at < count(layer(l))) {
            const int row = at / layer(l).units, column = at % layer(l).units;
            const int padded = begin_of(l) + row * columns_of(l) + column;
            float& parameter = parameters[row == layer(l).inputs ? layer(l).bias + column : layer(l).weights + at];
            if (rate != 0.0f) parameter -= rate * gradients[padded];
            halves[padded] = static_cast<unsigned short>(cvt_f16x2(parameter, 0.0f));
        }
        at -= count(layer(l));
    }
}

// The head of the network in one kernel: softmax, cross-entropy, its gradient and the totals.

#include "device/dependent.cuh"

// The network's classes, and the lanes that share a row, a power of two; the kernel is compiled for them.
#ifndef CLASSES
#define CLASSES 10
#define LANES 8
#endif

constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;
// The most warps of a block; with totals stages/fusion/head_kernel.py launches at most this many.
constexpr int HEAD_WARPS = 32;

constexpr int ROWS = WARP / LANES;  // that a warp takes at once

// The sum over all lanes of a warp, in each.
template <class Number>
__device__ inline Number warp_sum(Number own) {
    for (int flip = WARP / 2; flip > 0; flip /= 2) own += __shfl_xor_sync(ALL_LANES, own, flip);
    return own;
}

// softmax_xent: dlogits = (softmax(logits) - onehot(labels)) / rows, the gradient of the mean cross-entropy. Unless
// with_totals is 0, totals[0] += the summed cross-entropy and totals[1] += the number of rows whose largest logit, the first
// of equal ones, is their label's. No probability is stored: each is computed where it is needed.
//   logits   (rows, classes)   f32  in
//   labels   (rows,)           i32  in, each 0 <= label < classes
//   dlogits  (rows, classes)   f32  out
//   totals   (2,)              f64  in, out; neither read nor written if with_totals is 0
// Kind:   softmax.
// Launch: 1-D, a whole number of warps a block, HEAD_WARPS at most; with totals one block. LANES lanes take a row, then
//   every further row at a distance of all warps' rows.
// Needs:  any architecture; classes >= 1, and CLASSES as many; LANES <= WARP; rows * classes <= 2^30.
// Order:  in a row each lane adds every LANES-th class in order, then the lanes as a tree; each lane adds its rows' totals
//   in order, then the block adds lanes and warps as trees. No atomics: repeats bit for bit.
extern "C" __global__ void softmax_xent(const float* logits, const int* labels, float* dlogits, double* totals,
                                        int rows, int classes, int with_totals) {
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    if (classes != CLASSES) return;
    __shared__ double losses[HEAD_WARPS];
    __shared__ int corrects[HEAD_WARPS];
    const int lane = threadIdx.x % WARP, own = lane % LANES;
    const int warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    const unsigned lanes_of_row = (ALL_LANES >> (WARP - LANES)) << (lane - own);

    double loss = 0.0;
    int correct = 0;
    for (int first = (blockIdx.x * warps + warp) * ROWS; first < rows; first += gridDim.x * warps * ROWS) {
        const bool exists = first + lane / LANES < rows;  // lanes without a row shuffle with the others
        const int row = exists ? first + lane / LANES : rows - 1;
        const float* z = logits + row * CLASSES;
        const int label = labels[row];

        float largest = z[0];
        for (int c = own; c < CLASSES; c += LANES) largest = fmaxf(largest, z[c]);
        for (int flip = LANES / 2; flip > 0; flip /= 2) {
            largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, flip));
        }
        float sum = 0.0f;
        for (int c = own; c < CLASSES; c += LANES) sum += expf(z[c] - largest);
        for (int flip = LANES / 2; flip > 0; flip /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, flip);

        for (int c = own; c < CLASSES && exists; c += LANES) {
            const float target = c == label ? 1.0f : 0.0f;
            dlogits[row * CLASSES + c] = (expf(z[c] - largest) / sum - target) / static_cast<float>(rows);
        }
        if (with_totals) {
            bool beaten = false;
            for (int c = own; c < CLASSES; c += LANES) beaten |= z[c] > z[label] || (z[c] == z[label] && c < label);
            const bool is_correct = (__ballot_sync(ALL_LANES, beaten) & lanes_of_row) == 0;
            if (exists && own == 0) {
                correct += is_correct;
                // Subtracted first, as in softmax_xent_totals.
                loss += logf(sum) + (largest - z[label]);
            }
        }
    }
    if (!with_totals) return;

    loss = warp_sum(loss);
    correct = warp_sum(correct);
    if (lane == 0) {
        losses[warp] = loss;
        corrects[warp] = correct;
    }
    __syncthreads();
    if (warp > 0) return;
    loss = warp_sum(lane < warps ? losses[lane] : 0.0);
    correct = warp_sum(lane < warps ? corrects[lane] : 0);
    if (lane == 0) {
        totals[0] += loss;
        totals[1] += correct;
    }
}

// The head of the network: softmax, cross-entropy, its gradient, and the totals for loss and accuracy.
// Row-major; one row an image, one column a class.

#include "device/dependent.cuh"

// softmax: probs[row] = exp(logits[row] - max) / sum, the form that cannot overflow.
//   logits   (rows, classes)   f32  in
//   probs    (rows, classes)   f32  out
// Kind:   softmax.
// Launch: 1-D, at least rows threads in all. One thread a row.
// Needs:  any architecture; classes >= 1; rows * classes < 2^31.
// Order:  each row is summed from the first class to the last; repeats bit for bit.
extern "C" __global__ void softmax(const float* logits, float* probs, int rows, int classes) {
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    logits += row * classes;
    probs += row * classes;

    float largest = logits[0];
    for (int c = 1; c < classes; ++c) largest = fmaxf(largest, logits[c]);
    float sum = 0.0f;
    for (int c = 0; c < classes; ++c) {
        probs[c] = expf(logits[c] - largest);
        sum += probs[c];
    }
    for (int c = 0; c < classes; ++c) probs[c] /= sum;
}

// softmax_xent_backward: dlogits = (probs - onehot(labels)) / rows, the gradient of the mean cross-entropy.
//   probs    (rows, classes)   f32  in: of the first network; those of the next ones follow, and see the same labels
//   labels   (rows,)           i32  in, each 0 <= label < classes
//   dlogits  (rows, classes)   f32  out: likewise
// Kind:   softmax.
// Launch: grid x of at least rows * classes threads in all, y networks.
// Needs:  any architecture; rows * classes <= 2^30.
// Order:  elementwise; repeats bit for bit.
extern "C" __global__ void softmax_xent_backward(const float* probs, const int* labels, float* dlogits, int rows,
                                                 int classes) {
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * classes) return;
    const float target = labels[i / classes] == i % classes ? 1.0f : 0.0f;
    const int at = blockIdx.y * rows * classes + i;
    dlogits[at] = (probs[at] - target) / static_cast<float>(rows);
}

constexpr int TOTALS_THREADS = 256;  // the one block of softmax_xent_totals; a power of two (stages/engine/parts.py)

// softmax_xent_totals: totals[0] += the summed cross-entropy, totals[1] += the number of rows whose largest logit, the first of
// equal ones, is their label's. The loss comes from the logits: log(probs) is infinite once a probability underflows.
//   logits   (rows, classes)   f32  in: of the first network; those of the next ones follow, and see the same labels
//   labels   (rows,)           i32  in, each 0 <= label < classes
//   totals   (2,)              f64  in, out: likewise; double, since an epoch adds up 60,000 losses
// Kind:   softmax.
// Launch: a block of TOTALS_THREADS threads for each network (grid y), for any number of rows.
// Needs:  any architecture; rows * classes < 2^31.
// Order:  each thread adds its rows in order, and the block adds its threads as a tree. No atomics: repeats bit for bit.
extern "C" __global__ void softmax_xent_totals(const float* logits, const int* labels, double* totals, int rows,
                                               int classes) {
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    __shared__ double losses[TOTALS_THREADS];
    __shared__ int corrects[TOTALS_THREADS];

    double loss = 0.0;
    int correct = 0;
    for (int row = threadIdx.x; row < rows; row += TOTALS_THREADS) {
        const float* z = logits + (blockIdx.y * rows + row) * classes;
        const int label = labels[row];
        int best = 0;
        for (int c = 1; c < classes; ++c) {
            if (z[c] > z[best]) best = c;
        }
        float sum = 0.0f;
        for (int c = 0; c < classes; ++c) sum += expf(z[c] - z[best]);
        // The logits are subtracted first: added singly, either would round the far smaller logarithm.
        loss += logf(sum) + (z[best] - z[label]);
        correct += best == label;
    }
    losses[threadIdx.x] = loss;
    corrects[threadIdx.x] = correct;

    for (int half = TOTALS_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            losses[threadIdx.x] += losses[threadIdx.x + half];
            corrects[threadIdx.x] += corrects[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        totals[2 * blockIdx.y] += losses[0];
        totals[2 * blockIdx.y + 1] += corrects[0];
    }
}

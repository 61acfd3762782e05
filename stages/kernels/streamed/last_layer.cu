// The last layer and the head of a network as one kernel, in one cluster.
//
// Who holds what. The layer's inputs are divided among the blocks, n each; images are rows.
//
//   block r, in shared memory   inputs    (batch, n)       its columns of the inputs
//                               weights   (n, classes)     their weights
//                               sums      (batch, classes) its share of all logits
//                               gradients (batch, classes) of all logits
//                               scratch   a thread's 2 x classes numbers, to be added up
//   block r, warp w             the softmax of rows r + w * blocks, then every 16 * blocks further; a lane has a class
//   a thread, forward           two rows, every 32nd group of four inputs
//   a thread, backward          two inputs, half of n apart, and a share of the rows
//
// What travels, after each of two cluster barriers:
//
//   sums       --read by------>  the row's owner, from every block      | softmax
//   gradients  --written to--->  every block, by the row's owner        | barrier; input gradients, weight update
//   outcomes   --written to--->  block 0: a row's loss, and whether it is right
//
// A thread multiplies each row of weights or gradients that it reads by two inputs, so that shared memory delivers half as
// much: it delivers 128 bytes a cycle, even if many threads read the same. Alone that gained nothing measurable.
#include "device/async_copies.cuh"
#include "device/blocks_together.cuh"
#include "device/dependent.cuh"

// The network's classes; the kernel is compiled for them.
#ifndef CLASSES
#define CLASSES 10
#endif

constexpr int WARP = 32, HALF_WARP = WARP / 2;
constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int THREADS = 512, WARPS = THREADS / WARP;  // of a block
constexpr int APART = 2 * CLASSES | 1;                // floats between two threads' numbers: odd, so no bank is hit twice
constexpr int AT_ONCE = 16;                           // loads from other blocks in flight
static_assert(CLASSES <= WARP, "a lane has a class");

struct LastLayer {
    const float* inputs;
    float *weights, *bias;
    const int* labels;
    float* dinputs;
    double* totals;
    int batch, fan_in;
    float learning_rate;
};

// A row of numbers, one a class, from shared memory.
struct ClassRow {
    float of[CLASSES];

    __device__ explicit ClassRow(const float* row) {
        if constexpr (CLASSES % 2 == 0) {
#pragma unroll
            for (int c = 0; c < CLASSES; c += 2) {
                const float2 pair = *reinterpret_cast<const float2*>(row + c);
                of[c] = pair.x, of[c + 1] = pair.y;
            }
        } else {
#pragma unroll
            for (int c = 0; c < CLASSES; ++c) of[c] = row[c];
        }
    }
};

// One block's part of a step; call its functions in order.
class LastLayerStep {
  public:
    // This block has `most` inputs of the layer, or fewer.
    __device__ LastLayerStep(const LastLayer& layer, float* memory)
        : layer(layer),
          most((layer.fan_in / 4 + blocks - 1) / blocks * 4),
          first(rank * most),
          own(max(0, min(most, layer.fan_in - first))),
          apart(most | 4),
          inputs(memory),
          weights(inputs + layer.batch * apart),
          sums(weights + most * CLASSES),
          gradients(sums + layer.batch * CLASSES),
          scratch(gradients + layer.batch * CLASSES),
          outcomes(scratch + THREADS * APART),
          label(layer.labels[min(rank + warp * blocks, layer.batch - 1)]),
          bias(lane < CLASSES ? layer.bias[lane] : 0.0f) {}

    __device__ void load() {
#pragma unroll 1
        for (int row = warp; row < layer.batch; row += WARPS) {
#pragma unroll 1  // no thread waits in it, and unrolled code would take longer to fetch
            for (int i = 4 * lane; i < own; i += 4 * WARP) {
                cp_async_16(inputs + row * apart + i, layer.inputs + row * layer.fan_in + first + i);
            }
        }
#pragma unroll 1
        for (int i = 4 * threadIdx.x; i < own * CLASSES; i += 4 * THREADS) {
            cp_async_16(weights + i, layer.weights + first * CLASSES + i);
        }
        cp_async_wait_all();
        __syncthreads();
    }

    // Computes `sums`, this block's share of the logits, without bias. A lane has two rows, half a warp four inputs at a time.
    __device__ void multiply() {
        for (int begin = 0; begin < layer.batch; begin += WARP) {
            const int last = layer.batch - 1, row = begin + lane % HALF_WARP;
            const float* rows[2] = {inputs + min(row, last) * apart, inputs + min(row + HALF_WARP, last) * apart};
            float share[2][CLASSES] = {};
            for (int i = 4 * (threadIdx.x / HALF_WARP); i < own; i += 4 * (THREADS / HALF_WARP)) {
                float of_rows[2][4];
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    const float4 quad = *reinterpret_cast<const float4*>(rows[r] + i);
                    of_rows[r][0] = quad.x, of_rows[r][1] = quad.y, of_rows[r][2] = quad.z, of_rows[r][3] = quad.w;
                }
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    const ClassRow weight(weights + (i + k) * CLASSES);
#pragma unroll
                    for (int c = 0; c < CLASSES; ++c) {
                        share[0][c] += of_rows[0][k] * weight.of[c];
                        share[1][c] += of_rows[1][k] * weight.of[c];
                    }
                }
            }
            keep_in_scratch(share);
            for (int i = threadIdx.x; i < min(WARP, layer.batch - begin) * CLASSES; i += THREADS) {
                const int of_row = i / CLASSES, c = i % CLASSES;
                const float sum = sum_in_scratch(of_row % HALF_WARP, HALF_WARP, 2 * WARPS, of_row / HALF_WARP, c);
                sums[begin * CLASSES + i] = sum;
            }
            __syncthreads();  // before the scratch is written again
        }
    }

    // Computes `gradients` of the logits in every block. One warp of a row's owner takes its softmax, a class a lane.
    __device__ void take_softmax(bool with_totals) {
        barrier_cluster_aligned();
        for (int row = rank + warp * blocks; row < layer.batch; row += WARPS * blocks) {
            const int at = row * CLASSES + min(lane, CLASSES - 1);
            const float logit = lane < CLASSES ? sum_of_blocks(sums + at) + bias : NO_CLASS;
            float largest = logit;
            for (int flip = WARP / 2; flip > 0; flip /= 2) {
                largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, flip));
            }
            const float power = lane < CLASSES ? expf(logit - largest) : 0.0f;
            float sum = power;
            for (int flip = WARP / 2; flip > 0; flip /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, flip);
            const float gradient = (power / sum - (lane == label ? 1.0f : 0.0f)) / static_cast<float>(layer.batch);
            for (int b = 0; b < blocks && lane < CLASSES; ++b) st_shared_cluster(gradients + at, gradient, b);
            if (with_totals) {
                const float wanted = __shfl_sync(ALL_LANES, logit, label);
                const bool beaten = __any_sync(ALL_LANES, logit > wanted || (logit == wanted && lane < label));
                // Subtracted first: added singly, either would round the logarithm.
                if (lane == 0) st_shared_cluster(outcomes + 2 * row, logf(sum) + (largest - wanted), 0);
                if (lane == 1) st_shared_cluster(outcomes + 2 * row + 1, beaten ? 0.0f : 1.0f, 0);
            }
            label = layer.labels[min(row + WARPS * blocks, layer.batch - 1)];
        }
        __syncthreads();  // for a single block, where barrier_cluster_aligned does nothing
        barrier_cluster_aligned();
    }

    // Computes the inputs' gradients where they passed their ReLU, and updates the weights. A thread has two inputs; as many
    // threads as the block has left share out the rows.
    __device__ void backward() {
        const int half = most / 2, parts = THREADS / half, part = threadIdx.x / half, i = threadIdx.x % half;
        float of_weights[2][CLASSES] = {};
        if (part < parts) {
            const ClassRow weight[2] = {ClassRow(weights + i * CLASSES), ClassRow(weights + (i + half) * CLASSES)};
            const bool are_own[2] = {i < own, i + half < own};
            const float* input = inputs + part * apart + i;
            float* dinput = layer.dinputs + part * layer.fan_in + first + i;
            for (int row = part; row < layer.batch; row += parts) {
                const ClassRow gradient(gradients + row * CLASSES);
#pragma unroll
                for (int k = 0; k < 2; ++k) {
                    const float of_row = input[k * half];
                    float sum = 0.0f;
#pragma unroll
                    for (int c = 0; c < CLASSES; ++c) {
                        sum += gradient.of[c] * weight[k].of[c];
                        of_weights[k][c] += of_row * gradient.of[c];
                    }
                    if (are_own[k]) dinput[k * half] = of_row > 0.0f ? sum : 0.0f;
                }
                input += parts * apart;
                dinput += parts * layer.fan_in;
            }
        }
        keep_in_scratch(of_weights);
        for (int at = threadIdx.x; at < own * CLASSES; at += THREADS) {
            const int input = at / CLASSES, c = at % CLASSES, k = input >= half;
            const float gradient = sum_in_scratch(input - k * half, half, parts, k, c);
            layer.weights[first * CLASSES + at] = weights[at] - layer.learning_rate * gradient;
        }
    }

    // Updates the bias and adds to the totals: two warps of the first block.
    __device__ void finish(bool with_totals) const {
        if (rank > 0) return;
        if (warp == 0 && lane < CLASSES) {
            float sum = 0.0f;
#pragma unroll 8
            for (int row = 0; row < layer.batch; ++row) sum += gradients[row * CLASSES + lane];
            layer.bias[lane] = bias - layer.learning_rate * sum;
        }
        if (warp == 1 && with_totals) {
            double loss = 0.0, correct = 0.0;
            for (int row = lane; row < layer.batch; row += WARP) {
                loss += outcomes[2 * row], correct += outcomes[2 * row + 1];
            }
            for (int flip = WARP / 2; flip > 0; flip /= 2) {
                loss += __shfl_xor_sync(ALL_LANES, loss, flip), correct += __shfl_xor_sync(ALL_LANES, correct, flip);
            }
            if (lane == 0) layer.totals[0] += loss, layer.totals[1] += correct;
        }
    }

  private:
    // Keeps a thread's 2 x CLASSES numbers in the scratch, for all threads.
    __device__ void keep_in_scratch(const float (&numbers)[2][CLASSES]) {
#pragma unroll
        for (int c = 0; c < CLASSES; ++c) {
            scratch[threadIdx.x * APART + c] = numbers[0][c];
            scratch[threadIdx.x * APART + CLASSES + c] = numbers[1][c];
        }
        __syncthreads();
    }

    // The sum over `count` threads, from `thread` on every `further`-th, of their k-th number of a class, in order.
    __device__ float sum_in_scratch(int thread, int further, int count, int k, int c) const {
        float sum = 0.0f;
#pragma unroll 8
        for (int j = 0; j < count; ++j) sum += scratch[(thread + j * further) * APART + k * CLASSES + c];
        return sum;
    }

    // The sum over all blocks of the number there, in order.
    __device__ float sum_of_blocks(const float* there) const {
        float sum = 0.0f;
        for (int begin = 0; begin < blocks; begin += AT_ONCE) {
            float of_block[AT_ONCE];
#pragma unroll
            for (int b = 0; b < AT_ONCE; ++b) of_block[b] = ld_shared_cluster(there, min(begin + b, blocks - 1));
#pragma unroll
            for (int b = 0; b < AT_ONCE; ++b) sum += begin + b < blocks ? of_block[b] : 0.0f;
        }
        return sum;
    }

    static constexpr float NO_CLASS = -3.4e38f;  // the logit of a lane without a class
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int rank = cluster_ctarank(), blocks = cluster_nctarank();
    const LastLayer& layer;
    const int most, first, own, apart;
    float *const inputs, *const weights, *const sums, *const gradients, *const scratch, *const outcomes;
    int label;  // of the next row of this warp
    const float bias;
};

// last_layer: the last layer forward, softmax, its backward pass and its update. logits = inputs @ weights + bias; dinputs is
// the gradient of their mean cross-entropy where the inputs are above 0, else 0; weights and bias -= learning_rate * their
// gradients. Unless with_totals is 0, totals[0] += the summed cross-entropy, and totals[1] += the number of rows whose largest
// logit, the first of equal ones, is their label's.
//   inputs    (batch, fan_in)    f32  in; outputs of a ReLU
//   weights   (fan_in, CLASSES)  f32  in, out
//   bias      (CLASSES,)         f32  in, out
//   labels    (batch,)           i32  in, each 0 <= label < CLASSES
//   dinputs   (batch, fan_in)    f32  out
//   totals    (2,)               f64  in, out; neither read nor written if with_totals is 0
// Kind:   fused.
// Launch: one block of THREADS threads, or one cluster of such blocks. A block has n inputs at most, fan_in / blocks rounded up
//   to a multiple of 4, and 4 (batch (n | 4) + (n + 2 batch) CLASSES + THREADS APART + 2 batch) bytes of shared memory.
// Needs:  any architecture (clusters: sm_90); CLASSES <= 32, fan_in a multiple of 4, n <= 2 THREADS, inputs and weights
//   aligned to 16 bytes, batch * fan_in <= 2^30.
// Order:  each half warp adds its share of a logit in order, then half warps and blocks in order; a weight's gradient is
//   added row by row in each thread, then thread by thread. No atomics: repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS) last_layer(const float* inputs, float* weights, float* bias,
                                                                 const int* labels, float* dinputs, double* totals, int batch,
                                                                 int fan_in, int with_totals, float learning_rate) {
    extern __shared__ __align__(16) float memory[];
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    const LastLayer layer = {inputs, weights, bias, labels, dinputs, totals, batch, fan_in, learning_rate};
    LastLayerStep block(layer, memory);
    block.load();
    block.multiply();
    block.take_softmax(with_totals);
    block.backward();
    block.finish(with_totals);
}

// The last layer and the head of a network as one kernel. The blocks of a cluster share out the layer's inputs: each keeps
// its own, and their weights, from the way forward to the way back. What they exchange are their shares of the logits, of
// which each block then has the sums, and takes the softmax of all rows itself: that is sooner done than told.
#include "blocks_together.cuh"
#include "dependent.cuh"

// How many the network tells apart, by which the kernel is compiled.
#ifndef CLASSES
#define CLASSES 10
#endif

constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int THREADS = 1024, WARPS = THREADS / WARP;        // of a block
constexpr int QUADS = (CLASSES + 3) / 4, PITCH = 4 * QUADS;  // floats from one row of classes to the next
constexpr int APART = CLASSES | 1;                           // between those of neighbouring threads: no bank twice
constexpr int AT_ONCE = 8;                                   // other blocks' sums on their way to a thread
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

// A row of numbers, one for each class; what lies between the last one and the next row is read and no more.
struct OfClasses {
    float of[PITCH];

    __device__ explicit OfClasses(const float* row) {
#pragma unroll
        for (int q = 0; q < QUADS; ++q) {
            const float4 quad = reinterpret_cast<const float4*>(row)[q];
            of[4 * q] = quad.x, of[4 * q + 1] = quad.y, of[4 * q + 2] = quad.z, of[4 * q + 3] = quad.w;
        }
    }
};

// What each warp has added up of its rows.
struct OfWarps {
    double losses[WARPS];
    float bias[WARPS][CLASSES];
    int corrects[WARPS];
};

// One block's part of a step, in the order of its functions.
class Block {
  public:
    // `most` inputs or fewer of the layer's are this block's.
    __device__ Block(const LastLayer& layer, float* memory)
        : layer(layer),
          most((layer.fan_in + blocks_together() - 1) / blocks_together()),
          first(rank_of_block() * most),
          own(max(0, min(most, layer.fan_in - first))),
          apart(most | 1),
          weights(memory),
          sums(weights + most * PITCH),
          logits(sums + layer.batch * PITCH),
          scratch(logits + layer.batch * PITCH),
          inputs(scratch + THREADS * APART),
          labels(reinterpret_cast<int*>(inputs + layer.batch * apart)),
          bias(lane < CLASSES ? layer.bias[lane] : 0.0f) {}

    __device__ void load() {
        for (int row = warp; row < layer.batch; row += WARPS) {
#pragma unroll 8
            for (int i = lane; i < own; i += WARP) inputs[row * apart + i] = layer.inputs[row * layer.fan_in + first + i];
        }
#pragma unroll 4
        for (int i = threadIdx.x; i < own * CLASSES; i += THREADS) {
            weights[i / CLASSES * PITCH + i % CLASSES] = layer.weights[first * CLASSES + i];
        }
        for (int row = threadIdx.x; row < layer.batch; row += THREADS) labels[row] = layer.labels[row];
        __syncthreads();
    }

    // `sums`: this block's share of the logits, without bias. A lane has a row, and a warp some of the inputs.
    __device__ void multiply() {
        for (int begin = 0; begin < layer.batch; begin += WARP) {
            const float* row = inputs + min(begin + lane, layer.batch - 1) * apart;
            float share[CLASSES] = {};
#pragma unroll 4
            for (int i = warp; i < own; i += WARPS) {
                const OfClasses weight(weights + i * PITCH);
                const float input = row[i];
#pragma unroll
                for (int c = 0; c < CLASSES; ++c) share[c] += input * weight.of[c];
            }
            keep_in_scratch(share);
            for (int i = threadIdx.x; i < min(WARP, layer.batch - begin) * CLASSES; i += THREADS) {
                const int of_row = i / CLASSES, c = i % CLASSES;
                sums[(begin + of_row) * PITCH + c] = sum_in_scratch<WARPS>(of_row, WARP, WARPS, c);
            }
            __syncthreads();  // for whoever writes to the scratch next
        }
    }

    // `logits`: all blocks' shares, in their order.
    __device__ void add_up() {
        meet_blocks();
        const int blocks = blocks_together();
        for (int i = threadIdx.x; i < layer.batch * QUADS; i += THREADS) {
            float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
            for (int begin = 0; begin < blocks; begin += AT_ONCE) {
                float4 of_block[AT_ONCE];
#pragma unroll
                for (int b = 0; b < AT_ONCE; ++b) of_block[b] = read_from_block(sums + 4 * i, min(begin + b, blocks - 1));
#pragma unroll
                for (int b = 0; b < AT_ONCE; ++b) {
                    if (begin + b >= blocks) break;
                    sum.x += of_block[b].x, sum.y += of_block[b].y, sum.z += of_block[b].z, sum.w += of_block[b].w;
                }
            }
            reinterpret_cast<float4*>(logits)[i] = sum;
        }
        __syncthreads();
    }

    // Turns the logits into their gradients, a warp for a row and a lane for a class; the first block updates what there
    // is one of.
    __device__ void take_softmax(OfWarps& of, bool with_totals) {
        double loss = 0.0;
        float gradients = 0.0f;
        int correct = 0;
        for (int row = warp; row < layer.batch; row += WARPS) {
            float& place = logits[row * PITCH + min(lane, CLASSES - 1)];
            const int label = labels[row];
            const float logit = lane < CLASSES ? place + bias : NO_CLASS;
            float largest = logit;
            for (int flip = WARP / 2; flip > 0; flip /= 2) {
                largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, flip));
            }
            const float power = lane < CLASSES ? expf(logit - largest) : 0.0f;
            float sum = power;
            for (int flip = WARP / 2; flip > 0; flip /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, flip);
            const float gradient = (power / sum - (lane == label ? 1.0f : 0.0f)) / static_cast<float>(layer.batch);
            if (lane < CLASSES) place = gradient;
            gradients += gradient;
            if (!with_totals) continue;
            const float wanted = __shfl_sync(ALL_LANES, logit, label);
            correct += !__any_sync(ALL_LANES, logit > wanted || (logit == wanted && lane < label));
            loss += logf(sum) + (largest - wanted);  // subtracted first: added to the logarithm, either would round it
        }
        if (lane < CLASSES) of.bias[warp][lane] = gradients;
        if (lane == 0) of.losses[warp] = loss, of.corrects[warp] = correct;
        __syncthreads();
        if (rank_of_block() > 0) return;
        if (threadIdx.x < CLASSES) {
            float sum = 0.0f;
            for (int w = 0; w < WARPS; ++w) sum += of.bias[w][lane];
            layer.bias[lane] = bias - layer.learning_rate * sum;
        }
        if (with_totals && threadIdx.x == WARP) {  // another warp
            for (int w = 0; w < WARPS; ++w) {
                if (w != warp) loss += of.losses[w], correct += of.corrects[w];
            }
            layer.totals[0] += loss;
            layer.totals[1] += correct;
        }
    }

    // The inputs' gradients where they passed their ReLU, and the weights' update. A thread has an input, and as many share
    // out the rows as there is room for.
    __device__ void go_back() {
        const int parts = THREADS / most, part = threadIdx.x / most, i = threadIdx.x % most;
        float of_weights[CLASSES] = {};
        if (part < parts && i < own) {
            const OfClasses weight(weights + i * PITCH);
#pragma unroll 2
            for (int row = part; row < layer.batch; row += parts) {
                const OfClasses gradient(logits + row * PITCH);
                const float input = inputs[row * apart + i];
                float sum = 0.0f;
#pragma unroll
                for (int c = 0; c < CLASSES; ++c) {
                    sum += gradient.of[c] * weight.of[c];
                    of_weights[c] += input * gradient.of[c];
                }
                layer.dinputs[row * layer.fan_in + first + i] = input > 0.0f ? sum : 0.0f;
            }
        }
        keep_in_scratch(of_weights);
        for (int at = threadIdx.x; at < own * CLASSES; at += THREADS) {
            const int input = at / CLASSES, c = at % CLASSES;
            const float gradient = sum_in_scratch<1>(input, most, parts, c);
            layer.weights[first * CLASSES + at] = weights[input * PITCH + c] - layer.learning_rate * gradient;
        }
        meet_blocks();  // nobody leaves while others may still read its sums
    }

  private:
    // What each thread has, for all of the block.
    __device__ void keep_in_scratch(const float (&numbers)[CLASSES]) {
#pragma unroll
        for (int c = 0; c < CLASSES; ++c) scratch[threadIdx.x * APART + c] = numbers[c];
        __syncthreads();
    }

    // Of so many threads from `thread` on, every `further`-th, what they have for a class, in order.
    template <int UNROLL>
    __device__ float sum_in_scratch(int thread, int further, int count, int c) const {
        float sum = 0.0f;
#pragma unroll UNROLL
        for (int k = 0; k < count; ++k) sum += scratch[(thread + k * further) * APART + c];
        return sum;
    }

    static constexpr float NO_CLASS = -3.4e38f;  // the logit of a lane that has none
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const LastLayer& layer;
    const int most, first, own, apart;
    float *const weights, *const sums, *const logits, *const scratch, *const inputs;
    int* const labels;
    const float bias;
};

// last_layer: logits = inputs @ weights + bias; of their mean cross-entropy, dinputs = its gradient where the inputs are
// above 0, else 0, and weights and bias -= learning_rate * theirs; unless with_totals is 0, also totals[0] += the summed
// cross-entropy and totals[1] += how many rows have their largest logit at their label (the first of equal ones counts).
//   inputs    (batch, fan_in)    f32  in; what came out of a ReLU
//   weights   (fan_in, CLASSES)  f32  in, out
//   bias      (CLASSES,)         f32  in, out
//   labels    (batch,)           i32  in, each 0 <= label < CLASSES
//   dinputs   (batch, fan_in)    f32  out
//   totals    (2,)               f64  in, out; neither read nor written if with_totals is 0
// Launch: one block of THREADS threads, or one cluster of them; each block has n = ceil(fan_in / blocks) of the inputs, and
//   4 (n PITCH + 2 batch PITCH + THREADS APART + batch (n | 1) + batch) bytes of shared memory.
// Needs:  any architecture (clusters: sm_90); CLASSES <= 32, n <= THREADS, batch * fan_in <= 2^30.
// Order:  each warp adds its share of a logit in order, then warps and blocks in order; a weight's gradient is added from
//   row to row, then by the threads that share them in order, and the bias's by warps. No atomics: repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS) last_layer(const float* inputs, float* weights, float* bias,
                                                                 const int* labels, float* dinputs, double* totals, int batch,
                                                                 int fan_in, int with_totals, float learning_rate) {
    extern __shared__ __align__(16) float memory[];
    __shared__ OfWarps of_warps;
    let_next_begin();
    wait_for_previous();
    const LastLayer layer = {inputs, weights, bias, labels, dinputs, totals, batch, fan_in, learning_rate};
    Block block(layer, memory);
    block.load();
    block.multiply();
    block.add_up();
    block.take_softmax(of_warps, with_totals);
    block.go_back();
}

// The tail of persistent_grid: a block takes a row of the batch from the last wide layer's parts through the layers
// that remain, softmax and cross-entropy, and back to the gradient of the last wide layer's outputs. Rows need nothing of
// each other, so that all this is one phase; but each block reads all of these layers' weights.
#pragma once
#include "grid.cuh"

class RowTail {
  public:
    double loss = 0.0;  // of this block's rows so far; thread 0 has them
    int correct = 0;

    __device__ RowTail(const Plan& plan, const Layer* layers, float* memory, const int* labels, const float* parameters,
                       float* workspace)
        : plan(plan), layers(layers), memory(memory), labels(labels), parameters(parameters), workspace(workspace) {}

    // Those weights that are kept in shared memory, anew in every step: other blocks have updated them. Asynchronous. Up
    // to three numbers after the last are copied, too, which parameters has.
    __device__ void fetch_weights() {
        if (blockIdx.x >= plan.batch) return;
        for (int l = plan.wide; l < plan.layers; ++l) {
            const Layer& layer = layers[l];
            if (layer.weight_at < 0) continue;
            const int count = layer.inputs * layer.outputs;
            for (int i = 4 * threadIdx.x; i < count; i += 4 * THREADS) {
                copy_four(memory + layer.weight_at + i, parameters + layer.weight + i);
            }
        }
    }

    // A step, with the weights of its fetch_weights().
    __device__ void run(int step, bool with_totals) {
        if (blockIdx.x >= plan.batch) return;
        const int last = plan.layers - 1;
        for (int row = blockIdx.x; row < plan.batch; row += gridDim.x) {
            float* values = memory + plan.vectors_at;
            const int label = labels[step * plan.batch + row];  // here, since it may come from afar
            add_up(row, values);
            wait_for_copies();
            __syncthreads();
            for (int l = plan.wide; l < last; ++l) {
                forward(l, row, values, values + layers[l].inputs);
                values += layers[l].inputs;
            }
            const float* inputs = values;
            if (plan.wide <= last) values += layers[last].inputs;
            if (plan.wide <= last) multiply_last(inputs, values);
            float* gradient = values + layers[last].outputs;
            if (threadIdx.x < WARP) head(row, label, values, gradient, with_totals);
            __syncthreads();
            if (plan.wide <= last) {
                backward_last(row, inputs, gradient, gradient + layers[last].outputs);
                values -= layers[last].inputs;
                gradient += layers[last].outputs;
            }
            __syncthreads();
            for (int l = last - 1; l >= plan.wide; --l) {
                values -= layers[l].inputs;
                backward(l, row, values, gradient, gradient + layers[l].outputs);
                gradient += layers[l].outputs;
            }
        }
    }

  private:
    static constexpr int GROUP = 16;  // logits at once: each warp's sums fit twice in THREADS numbers

    // The last wide layer's outputs, from their parts, two a thread.
    __device__ void add_up(int row, float* values) {
        const Layer& layer = layers[plan.wide - 1];
        const int width = layer.columns * layer.tile_n;
        const bool is_hidden = plan.wide < plan.layers;
        const float2* parts = reinterpret_cast<const float2*>(workspace + plan.partials + row * width);
        for (int pair = threadIdx.x; 2 * pair < layer.outputs; pair += THREADS) {
            const int col = 2 * pair;
            const bool are_two = col + 1 < layer.outputs;
            const float* bias = parameters + layer.bias + col;
            float2 sum = make_float2(__ldcg(bias), are_two ? __ldcg(bias + 1) : 0.0f);
            add(sum, sum_of(parts + pair, layer.slices, plan.rows * width / 2));
            keep(values, layer.output, layer, row, col, is_hidden && sum.x < 0.0f ? 0.0f : sum.x);
            if (are_two) keep(values, layer.output, layer, row, col + 1, is_hidden && sum.y < 0.0f ? 0.0f : sum.y);
        }
    }

    __device__ void forward(int l, int row, const float* inputs, float* values) {
        const Layer& layer = layers[l];
        const int own = threadIdx.x;  // the first column that it may have to keep; its bias comes meanwhile
        const float bias = own < layer.outputs ? __ldcg(parameters + layer.bias + own) : 0.0f;
        const auto store = [&](int col, float sum) {
            sum += col == own ? bias : __ldcg(parameters + layer.bias + col);
            keep(values, layer.output, layer, row, col, sum < 0.0f ? 0.0f : sum);
        };
        multiply<false>(inputs, layer.inputs, weights_of(layer), layer.outputs, 1, layer.outputs, store);
    }

    __device__ void backward(int l, int row, const float* inputs, const float* doutputs, float* dinputs) {
        const Layer& layer = layers[l];
        const Layer& below = layers[l - 1];
        const auto store = [&](int col, float sum) {
            keep(dinputs, below.doutput, below, row, col, inputs[col] <= 0.0f ? 0.0f : sum);
        };
        multiply<true>(doutputs, layer.outputs, weights_of(layer), 1, layer.outputs, layer.inputs, store);
    }

    // The last layer has many inputs and few outputs: each thread takes whole inputs, with GROUP outputs at once.

    // logits = inputs * weights + bias; the first warp has them after.
    __device__ void multiply_last(const float* inputs, float* logits) {
        const Layer& layer = layers[plan.layers - 1];
        const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, classes = layer.outputs;
        const float* weights = weights_of(layer);
        float* sums = memory + plan.scratch_at;  // of each warp; in the other half while the first warp adds up these
        for (int first = 0; first < classes; first += GROUP) {
            const bool has_one = threadIdx.x < GROUP && first + lane < classes;
            float logit = has_one ? __ldcg(parameters + layer.bias + first + lane) : 0.0f;
            float own[GROUP] = {};
            for (int k = threadIdx.x; k < layer.inputs; k += THREADS) {
                const float input = inputs[k];
                const float* row = weights + k * classes + first;
#pragma unroll
                for (int i = 0; i < GROUP; ++i) own[i] += first + i < classes ? input * row[i] : 0.0f;
            }
            const float sum = sum_over_lanes(own);
            if (lane % 2 == 0) sums[warp * GROUP + lane / 2] = sum;
            __syncthreads();
            if (has_one) {
#pragma unroll
                for (int w = 0; w < WARPS; ++w) logit += sums[w * GROUP + lane];
                logits[first + lane] = logit;
            }
            sums = memory + plan.scratch_at + (first / GROUP + 1) % 2 * WARPS * GROUP;
        }
        __syncwarp();
    }

    // Lane i gets the sum of all lanes' numbers[i / 2]: each call keeps half of the numbers, and adds the other lanes'.
    template <int COUNT>
    __device__ static float sum_over_lanes(const float (&numbers)[COUNT]) {
        if constexpr (COUNT == 1) {
            return numbers[0] + __shfl_xor_sync(ALL_LANES, numbers[0], 1);
        } else {
            const bool is_upper = threadIdx.x & COUNT;
            float half[COUNT / 2];
#pragma unroll
            for (int i = 0; i < COUNT / 2; ++i) {
                const float lower = numbers[i], upper = numbers[i + COUNT / 2];
                half[i] = (is_upper ? upper : lower) + __shfl_xor_sync(ALL_LANES, is_upper ? lower : upper, COUNT);
            }
            return sum_over_lanes(half);
        }
    }

    __device__ void backward_last(int row, const float* inputs, const float* doutputs, float* dinputs) {
        const Layer& layer = layers[plan.layers - 1];
        const Layer& below = layers[plan.layers - 2];
        const float* weights = weights_of(layer);
        for (int k = threadIdx.x; k < layer.inputs; k += THREADS) {
            float sum = 0.0f;
            for (int first = 0; first < layer.outputs; first += GROUP) {
                const float* own = weights + k * layer.outputs + first;
#pragma unroll
                for (int i = 0; i < GROUP; ++i) sum += first + i < layer.outputs ? doutputs[first + i] * own[i] : 0.0f;
            }
            keep(dinputs, below.doutput, below, row, k, inputs[k] <= 0.0f ? 0.0f : sum);
        }
    }

    // doutputs = (softmax(logits) - onehot(label)) / batch, by one warp.
    __device__ void head(int row, int label, const float* logits, float* doutputs, bool with_totals) {
        const Layer& layer = layers[plan.layers - 1];
        const int lane = threadIdx.x, classes = layer.outputs;
        const float share = 1.0f / static_cast<float>(plan.batch);
        float largest = logits[0];
#pragma unroll 1
        for (int c = lane; c < classes; c += WARP) largest = fmaxf(largest, logits[c]);
#pragma unroll
        for (int flip = WARP / 2; flip > 0; flip /= 2) largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, flip));
        float sum = 0.0f;
#pragma unroll 1
        for (int c = lane; c < classes; c += WARP) sum += doutputs[c] = expf(logits[c] - largest);
#pragma unroll
        for (int flip = WARP / 2; flip > 0; flip /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, flip);
#pragma unroll 1
        for (int c = lane; c < classes; c += WARP) {
            keep(doutputs, layer.doutput, layer, row, c, (doutputs[c] / sum - (c == label ? 1.0f : 0.0f)) * share);
        }
        if (!with_totals) return;
        bool beaten = false;
#pragma unroll 1
        for (int c = lane; c < classes; c += WARP) {
            beaten |= logits[c] > logits[label] || (logits[c] == logits[label] && c < label);
        }
        correct += !__any_sync(ALL_LANES, beaten);
        loss += logf(sum) + (largest - logits[label]);  // subtracted first: added to the logarithm, either would round it
    }

    // store(i, sum over j of vector[j] * matrix[j * along + i * across]), for i < count, by all threads. With FROM_OWN, each
    // i begins with another j, lest all lanes use one bank where `across` is a multiple of 32.
    template <bool FROM_OWN, class Store>
    __device__ void multiply(const float* vector, int length, const float* matrix, int along, int across, int count,
                             Store store) {
        float* sums = memory + plan.scratch_at;
        int width = 1;  // threads beside each other, a power of two; the rest of them share out what is added up
        while (width < count && width < THREADS) width *= 2;
        const int parts = min(THREADS / width, WARP), part = threadIdx.x / width;
        for (int first = 0; first < count; first += width) {
            const int i = first + threadIdx.x % width;
            if (i < count && part < parts) {
                const int begin = FROM_OWN ? i % length : 0;
                const float* row = matrix + i * across;
                float sum = 0.0f;
#pragma unroll 8
                for (int own = part; own < length; own += parts) {
                    const int j = own + begin < length ? own + begin : own + begin - length;
                    sum += vector[j] * row[j * along];
                }
                sums[part * width + threadIdx.x % width] = sum;
            }
            __syncthreads();
            if (i < count && part == 0) {
                float sum = 0.0f;
#pragma unroll 8
                for (int p = 0; p < parts; ++p) sum += sums[p * width + threadIdx.x];
                store(i, sum);
            }
            __syncthreads();
        }
    }

    __device__ void keep(float* here, int there, const Layer& layer, int row, int col, float value) {
        here[col] = value;
        workspace[there + row * layer.stride + col] = value;
    }

    __device__ const float* weights_of(const Layer& layer) {
        return layer.weight_at < 0 ? parameters + layer.weight : memory + layer.weight_at;
    }

    static constexpr unsigned ALL_LANES = 0xffffffffu;
    const Plan& plan;
    const Layer* layers;
    float* memory;
    const int* labels;
    const float* parameters;
    float* workspace;
};

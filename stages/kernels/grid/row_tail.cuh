// The tail of persistent_grid: a block takes a row of the batch from the last wide layer's parts through the remaining
// layers, softmax and cross-entropy, and back to the gradient of the last wide layer's outputs. Rows are independent, so all
// this is one phase without a grid barrier; but each block reads all of these layers' weights.
#pragma once
#include "grid/sums_by_shares.cuh"
#include "grid/tile_product.cuh"

// The most outputs of the last wide layer and the tail.
__device__ constexpr int most_of_tail() {
    int most = 0;
    for (int l = plan.wide - 1; l < LAYER_COUNT; ++l) most = layers[l].outputs > most ? layers[l].outputs : most;
    return most;
}

class RowTail {
  public:
    double loss = 0.0;  // of this block's rows so far; valid in thread 0
    int correct = 0;

    __device__ RowTail(float* memory, const int* labels, const float* parameters, float* workspace)
        : memory(memory), labels(labels), parameters(parameters), workspace(workspace) {}

    __device__ void run(int step, bool with_totals) {
        if (blockIdx.x >= plan.batch) return;
        fetch_weights<plan.wide>();
        if constexpr (IS_NARROW) {
            run_narrow(step, with_totals);
            return;
        }
        int next = BY_SHARES ? labels[step * plan.batch + blockIdx.x] : 0;
        if constexpr (BY_SHARES) add_up_all();
        for (int row = blockIdx.x; row < plan.batch; row += gridDim.x) {
            const int label = BY_SHARES ? next : labels[step * plan.batch + row];  // early: it may come from memory
            if (BY_SHARES && row + gridDim.x < plan.batch) next = labels[step * plan.batch + row + gridDim.x];
            if constexpr (BY_SHARES) take_sums(row);
            else add_up(row);
            cp_async_wait_all();
            __syncthreads();
            forward<plan.wide>(row);
            if constexpr (HAS_LAYERS) multiply_last();
            if (threadIdx.x < WARP) head(row, label, with_totals);
            __syncthreads();
            if constexpr (HAS_LAYERS) backward_last(row);
            __syncthreads();
            backward<LAST - 1>(row);
        }
    }

    // Adds the totals of all blocks to `totals`, in their order.
    __device__ void add_totals(GridBarrier& barrier, double* block_totals, double* totals) const {
        if constexpr (IS_NARROW) {  // each warp has its own
            auto* own = reinterpret_cast<double*>(memory + plan.scratch_at);
            __syncthreads();
            if (threadIdx.x % WARP == 0) own[threadIdx.x / WARP * 2] = loss, own[threadIdx.x / WARP * 2 + 1] = correct;
            __syncthreads();
            double sum = 0.0;
            for (int warp = 0; threadIdx.x < 2 && warp < OWN_ROWS; ++warp) sum += own[2 * warp + threadIdx.x];
            if (threadIdx.x < 2) block_totals[2 * blockIdx.x + threadIdx.x] = sum;
        } else if (threadIdx.x == 0) {
            block_totals[2 * blockIdx.x] = loss;
            block_totals[2 * blockIdx.x + 1] = correct;
        }
        barrier.pass();
        if (blockIdx.x == 0 && threadIdx.x == 0) {
            for (int block = 0; block < gridDim.x; ++block) {
                totals[0] += __ldcg(block_totals + 2 * block);
                totals[1] += __ldcg(block_totals + 2 * block + 1);
            }
        }
    }

  private:
    static constexpr bool HAS_LAYERS = plan.wide < LAYER_COUNT;
    static constexpr bool BY_SHARES = plan.blocks > 0;  // sums have many parts
    static constexpr int OWN_ROWS = BY_SHARES ? (plan.batch + plan.blocks - 1) / plan.blocks : 1;  // of a block, at most
    static constexpr int TAIL_LAYERS = LAYER_COUNT - plan.wide;
    static constexpr bool IS_NARROW = BY_SHARES && OWN_ROWS <= WARPS && most_of_tail() <= 2 * WARP;  // a warp takes a row
    static constexpr int GROUP = 16;  // logits at once: the warps' sums fit twice in THREADS numbers
    static constexpr int CLASSES = layers[LAST].outputs;

    // Where the inputs of layer l begin in a row's vectors: the outputs of layer l - 1. Layer LAYER_COUNT's are the logits.
    // Behind all of them lie their gradients.
    __device__ static constexpr int outputs_before(int l) {
        int count = 0;
        for (int below = plan.wide - 1; below < l - 1; ++below) count += layers[below].outputs;
        return count;
    }
    template <int L>
    __device__ float* values() const {
        constexpr int OF_ROW = 2 * outputs_before(LAYER_COUNT + 1);
        return memory + plan.vectors_at + outputs_before(L) + (IS_NARROW ? threadIdx.x / WARP * OF_ROW : 0);
    }
    template <int L>
    __device__ float* gradients() const {
        return values<L>() + outputs_before(LAYER_COUNT + 1);
    }

    // Copies the weights from layer L on into shared memory, in every step anew: other blocks have updated them. A copy may
    // take up to three numbers more than the layer has; parameters has those.
    template <int L>
    __device__ void fetch_weights() {
        if constexpr (L < LAYER_COUNT) {
            constexpr Layer layer = layers[L];
            if constexpr (layer.weight_at >= 0) {
                for (int i = 4 * threadIdx.x; i < layer.inputs * layer.outputs; i += 4 * THREADS) {
                    cp_async_16(memory + layer.weight_at + i, parameters + layer.weight + i);
                }
            }
            fetch_weights<L + 1>();
        }
    }

    // The last wide layer's outputs from their parts, two a thread.
    __device__ void add_up(int row) {
        constexpr Layer layer = layers[plan.wide - 1];
        constexpr int WIDTH = layer.columns * layer.tile_n;
        const float2* parts = reinterpret_cast<const float2*>(workspace + plan.partials + row * WIDTH);
        for (int col = 2 * threadIdx.x; col < layer.outputs; col += 2 * THREADS) {
            const bool are_two = col + 1 < layer.outputs;
            const float* bias = parameters + layer.bias + col;
            float2 sum = make_float2(__ldcg(bias), are_two ? __ldcg(bias + 1) : 0.0f);
            add(sum, sum_of<layer.slices>(parts + col / 2, plan.rows * WIDTH / 2));
            keep_value<plan.wide>(row, col, HAS_LAYERS && sum.x < 0.0f ? 0.0f : sum.x);
            if (are_two) keep_value<plan.wide>(row, col + 1, HAS_LAYERS && sum.y < 0.0f ? 0.0f : sum.y);
        }
    }

    // The same for all rows of the block at once; then for each row its own.
    __device__ void add_up_all() {
        constexpr Layer layer = layers[plan.wide - 1];
        constexpr int WIDTH = layer.columns * layer.tile_n;
        add_up_by_shares<layer.slices, WIDTH, OWN_ROWS>(
            workspace + plan.partials, plan.rows * WIDTH, memory + plan.scratch_at,
            (plan.batch - 1 - blockIdx.x) / gridDim.x + 1, 0, 1, [=](int row) { return blockIdx.x + row * gridDim.x; },
            [=](int, int col) { return col < layer.outputs ? __ldcg(parameters + layer.bias + col) : 0.0f; },
            [=](int row, int col, float sum, float bias) { memory[plan.stash_at + row * WIDTH + col] = sum + bias; });
    }

    __device__ void take_sums(int row, int first = threadIdx.x, int apart = THREADS) {
        constexpr Layer layer = layers[plan.wide - 1];
        const float* sums = memory + plan.stash_at + (row - blockIdx.x) / gridDim.x * layer.columns * layer.tile_n;
        for (int col = first; col < layer.outputs; col += apart) {
            keep_value<plan.wide>(row, col, HAS_LAYERS && sums[col] < 0.0f ? 0.0f : sums[col]);
        }
    }

    // All rows at once, a warp each.
    __device__ void run_narrow(int step, bool with_totals) {
        const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, row = blockIdx.x + warp * gridDim.x;
        const bool has_row = warp < OWN_ROWS && row < plan.batch;
        const int label = has_row ? labels[step * plan.batch + row] : 0;  // early, like biases
        float biases[TAIL_LAYERS + 1][2];
        if (has_row) load_biases<plan.wide>(biases, lane);
        add_up_all();
        cp_async_wait_all();
        __syncthreads();
        if (!has_row) return;
        take_sums(row, lane, WARP);
        __syncwarp();
        forward_narrow<plan.wide>(row, lane, biases);
        head(row, label, with_totals);
        __syncwarp();
        backward_narrow<LAST>(row, lane);
    }

    template <int L>
    __device__ void load_biases(float (&biases)[TAIL_LAYERS + 1][2], int lane) const {
        if constexpr (L < LAYER_COUNT) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int col = lane + i * WARP;
                biases[L - plan.wide][i] = col < layers[L].outputs ? __ldcg(parameters + layers[L].bias + col) : 0.0f;
            }
            load_biases<L + 1>(biases, lane);
        }
    }

    template <int L>
    __device__ void forward_narrow(int row, int lane, const float (&biases)[TAIL_LAYERS + 1][2]) {
        if constexpr (L < LAYER_COUNT) {
            constexpr Layer layer = layers[L];
            const float *inputs = values<L>(), *weights = weights_of<L>();
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int col = lane + i * WARP;
                if (col >= layer.outputs) continue;
                float sum = 0.0f;
#pragma unroll 8
                for (int k = 0; k < layer.inputs; ++k) sum += inputs[k] * weights[k * layer.outputs + col];
                sum += biases[L - plan.wide][i];
                if constexpr (L < LAST) keep_value<L + 1>(row, col, sum < 0.0f ? 0.0f : sum);
                else values<LAYER_COUNT>()[col] = sum;
            }
            __syncwarp();
            forward_narrow<L + 1>(row, lane, biases);
        }
    }

    // Each lane begins with another output, since the weights of an input lie beside each other.
    template <int L>
    __device__ void backward_narrow(int row, int lane) {
        if constexpr (L >= plan.wide) {
            constexpr Layer layer = layers[L];
            const float *doutputs = gradients<L + 1>(), *weights = weights_of<L>();
            for (int k = lane; k < layer.inputs; k += WARP) {
                float sum = 0.0f;
#pragma unroll 8
                for (int own = 0; own < layer.outputs; ++own) {
                    const int begin = k % layer.outputs, col = own + begin < layer.outputs ? own + begin : own + begin - layer.outputs;
                    sum += doutputs[col] * weights[k * layer.outputs + col];
                }
                keep_gradient<L>(row, k, values<L>()[k] <= 0.0f ? 0.0f : sum);
            }
            __syncwarp();
            backward_narrow<L - 1>(row, lane);
        }
    }

    // Forward from layer L up to the last but one; backward from L down to the first of the tail.
    template <int L>
    __device__ void forward(int row) {
        if constexpr (L < LAST) {
            constexpr Layer layer = layers[L];
            const int own = threadIdx.x;  // the first column that this thread may store; its bias loads meanwhile
            const float bias = own < layer.outputs ? __ldcg(parameters + layer.bias + own) : 0.0f;
            const auto store = [&](int col, float sum) {
                sum += col == own ? bias : __ldcg(parameters + layer.bias + col);
                keep_value<L + 1>(row, col, sum < 0.0f ? 0.0f : sum);
            };
            multiply<layer.inputs, layer.outputs, layer.outputs, 1, false>(values<L>(), weights_of<L>(), store);
            forward<L + 1>(row);
        }
    }

    template <int L>
    __device__ void backward(int row) {
        if constexpr (L >= plan.wide) {
            constexpr Layer layer = layers[L];
            const auto store = [&](int col, float sum) {
                keep_gradient<L>(row, col, values<L>()[col] <= 0.0f ? 0.0f : sum);
            };
            multiply<layer.outputs, layer.inputs, 1, layer.outputs, true>(gradients<L + 1>(), weights_of<L>(), store);
            backward<L - 1>(row);
        }
    }

    // The last layer has many inputs and few outputs: a thread takes whole inputs, GROUP outputs at once.

    // logits = inputs * weights + bias; only the first warp may read them after this.
    __device__ void multiply_last() {
        constexpr Layer layer = layers[LAST];
        const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
        const float *inputs = values<LAST>(), *weights = weights_of<LAST>();
        float* sums = memory + plan.scratch_at;  // of each warp; two halves, so that the first warp adds up one while others fill the other
#pragma unroll 1
        for (int first = 0; first < CLASSES; first += GROUP) {
            const bool has_one = threadIdx.x < GROUP && first + lane < CLASSES;
            float logit = has_one ? __ldcg(parameters + layer.bias + first + lane) : 0.0f;
            float own[GROUP] = {};
            for (int k = threadIdx.x; k < layer.inputs; k += THREADS) {
                float row[GROUP];
                load_group(row, weights + k * CLASSES, first);
#pragma unroll
                for (int i = 0; i < GROUP; ++i) own[i] += inputs[k] * row[i];
            }
            const float sum = sum_over_lanes(own);
            if (lane % 2 == 0) sums[warp * GROUP + lane / 2] = sum;
            __syncthreads();
            if (has_one) {
#pragma unroll
                for (int w = 0; w < WARPS; ++w) logit += sums[w * GROUP + lane];
                values<LAYER_COUNT>()[first + lane] = logit;
            }
            sums = memory + plan.scratch_at + (first / GROUP + 1) % 2 * WARPS * GROUP;
        }
        __syncwarp();
    }

    // GROUP weights of one input from `first` on; zeros beyond the classes. Two in one load where aligned: single loads from
    // rows of ten floats would hit every other bank twice.
    __device__ static void load_group(float (&to)[GROUP], const float* row, int first) {
        constexpr int AT_ONCE = CLASSES % 2 == 0 ? 2 : 1;
#pragma unroll
        for (int i = 0; i < GROUP; i += AT_ONCE) {
            to[i] = to[i + AT_ONCE - 1] = 0.0f;
            if (first + i >= CLASSES) continue;
            if constexpr (AT_ONCE == 2) {
                const float2 pair = *reinterpret_cast<const float2*>(row + first + i);
                to[i] = pair.x, to[i + 1] = pair.y;
            } else {
                to[i] = row[first + i];
            }
        }
    }

    // Returns in lane i the sum of all lanes' numbers[i / 2]. Each call halves the numbers, and adds those of another lane.
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

    __device__ void backward_last(int row) {
        const float *doutputs = gradients<LAYER_COUNT>(), *weights = weights_of<LAST>();
        float gradients_of[GROUP];
#pragma unroll
        for (int i = 0; i < GROUP; ++i) gradients_of[i] = i < CLASSES ? doutputs[i] : 0.0f;
        for (int k = threadIdx.x; k < layers[LAST].inputs; k += THREADS) {
            float sum = 0.0f;
#pragma unroll 1
            for (int first = 0; first < CLASSES; first += GROUP) {
                float own[GROUP];
                load_group(own, weights + k * CLASSES, first);
#pragma unroll
                for (int i = 0; i < GROUP; ++i) {
                    if (CLASSES > GROUP) gradients_of[i] = first + i < CLASSES ? doutputs[first + i] : 0.0f;
                    sum += gradients_of[i] * own[i];
                }
            }
            keep_gradient<LAST>(row, k, values<LAST>()[k] <= 0.0f ? 0.0f : sum);
        }
    }

    // doutputs = (softmax(logits) - onehot(label)) / batch, by one warp; each lane has OWN logits.
    __device__ void head(int row, int label, bool with_totals) {
        constexpr int OWN = (CLASSES + WARP - 1) / WARP, LANES = power_from(CLASSES, WARP);
        const int lane = IS_NARROW ? threadIdx.x % WARP : threadIdx.x;
        const float* logits = values<LAYER_COUNT>();
        float own[OWN], largest = NO_CLASS, sum = 0.0f;
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            const int c = lane + i * WARP;
            own[i] = c < CLASSES ? logits[c] : NO_CLASS;
            largest = fmaxf(largest, own[i]);
        }
#pragma unroll
        for (int flip = LANES / 2; flip > 0; flip /= 2) largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, flip));
        const float wanted = logits[label];
        bool beaten = false;
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            const int c = lane + i * WARP;
            beaten |= c < CLASSES && (own[i] > wanted || (own[i] == wanted && c < label));
            own[i] = c < CLASSES ? expf(own[i] - largest) : 0.0f;
            sum += own[i];
        }
#pragma unroll
        for (int flip = LANES / 2; flip > 0; flip /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, flip);
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            const int c = lane + i * WARP;
            const float gradient = (own[i] / sum - (c == label ? 1.0f : 0.0f)) * (1.0f / plan.batch);
            if (c < CLASSES) keep_gradient<LAYER_COUNT>(row, c, gradient);
        }
        if (!with_totals) return;
        correct += !__any_sync(ALL_LANES, beaten);
        loss += logf(sum) + (largest - wanted);  // subtracted first: added singly, either would round the logarithm
    }

    // Calls store(i, sum over j < LENGTH of vector[j] * matrix[j * ALONG + i * ACROSS]) for i < COUNT, by all threads. With
    // FROM_OWN each i begins with another j, so that lanes use different banks if ACROSS is a multiple of 32.
    template <int LENGTH, int COUNT, int ALONG, int ACROSS, bool FROM_OWN, class Store>
    __device__ void multiply(const float* vector, const float* matrix, Store store) {
        constexpr int WIDTH = power_from(COUNT, THREADS);  // threads side by side; the rest of the block shares out the sum
        constexpr int SHARES = THREADS / WIDTH < WARP ? THREADS / WIDTH : WARP;
        float* sums = memory + plan.scratch_at;
        const int part = threadIdx.x / WIDTH;
#pragma unroll 1
        for (int first = 0; first < COUNT; first += WIDTH) {
            const int i = first + threadIdx.x % WIDTH;
            if (i < COUNT && part < SHARES) {
                const int begin = FROM_OWN ? i % LENGTH : 0;
                const float* row = matrix + i * ACROSS;
                float sum = 0.0f;
#pragma unroll 8
                for (int own = part; own < LENGTH; own += SHARES) {
                    const int j = own + begin < LENGTH ? own + begin : own + begin - LENGTH;
                    sum += vector[j] * row[j * ALONG];
                }
                sums[part * WIDTH + threadIdx.x % WIDTH] = sum;
            }
            __syncthreads();
            if (i < COUNT && part == 0) {
                float sum = 0.0f;
#pragma unroll
                for (int p = 0; p < SHARES; ++p) sum += sums[p * WIDTH + threadIdx.x];
                store(i, sum);
            }
            __syncthreads();
        }
    }

    // Stores an input of layer L, or its gradient, in shared memory and in workspace.
    template <int L>
    __device__ void keep_value(int row, int col, float value) {
        values<L>()[col] = value;
        pass<L>(layers[L - 1].output, row, col, value);
    }

    template <int L>
    __device__ void keep_gradient(int row, int col, float value) {
        gradients<L>()[col] = value;
        pass<L>(layers[L - 1].doutput, row, col, value);
    }

    template <int L>
    __device__ void pass(int place, int row, int col, float value) {
        pass_on(reinterpret_cast<Passed*>(workspace + place) + row * layers[L - 1].stride + col, value);
    }

    template <int L>
    __device__ const float* weights_of() const {
        return layers[L].weight_at < 0 ? parameters + layers[L].weight : memory + layers[L].weight_at;
    }

    static constexpr unsigned ALL_LANES = 0xffffffffu;
    static constexpr float NO_CLASS = -3.4e38f;  // the logit of a lane without a class
    float* memory;
    const int* labels;
    const float* parameters;
    float* workspace;
};

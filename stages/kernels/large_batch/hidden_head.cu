// From the hidden layer's sums to their gradient: ReLU, the last layer, softmax, and the way back, for a large batch.
//
// Who holds what. A tile is sixteen images, a group 32 units; block b takes tiles b, b + gridDim.x, ... in turn.
//
//   a block, in shared memory    of the tile: outputs (16, units), one half or two; each warp's share of the logits; dlogits
//   8 warps                      groups w, w + 8, ... of all images of the tile
//   a lane (g, t)                runs of 8 neighbouring units, 8t to 8t + 7 of a group, of images g and g + 8: tensor cores do
//                                not mind their order; g = lane / 4, t = lane % 4
//     registers, for the tile    its outputs, the weights of the group's units, and the next tile's sums, under way
//     registers, for all tiles   sums of the gradients of the group's last weights and hidden biases
//   16 threads an image          the softmax, a class each; sums of the gradient of that class's bias
//
// What travels, for each tile:
//
//   memory  --loads-->   registers          sums of the next tile; last weights, by class for the logits and by unit for the way
//                                           back, anew for each tile: a block of a single tile is slower if it loads all first
//   a warp  --shared-->  16 threads a row   its share of the logits                        | barrier
//   16 threads a row  --shared-->  warps    dlogits                                        | barrier
//   a warp  --shared-->  itself             outputs, transposed for the weight gradients   | barrier of the warp
//   registers  -------->  memory            dsums of the tile; after the last tile the block's share of the other gradients

#include "large_batch/chunks.cuh"
#include "device/dependent.cuh"

#ifndef UNITS
#define UNITS 32
#endif
#ifndef EARLY
#define EARLY 0
#endif
constexpr int ROWS = EDGE;
constexpr int CLASSES = 16;  // with padding
constexpr int WARPS = 8, THREADS = WARPS * WARP;
constexpr int RUN = 8, PAIRS = RUN / 2, GROUP = 4 * RUN;
constexpr int GROUPS = UNITS / GROUP, OWN = (GROUPS + WARPS - 1) / WARPS;
constexpr int SHARES = GROUPS < WARPS ? GROUPS : WARPS;           // warps with units
constexpr int WIDTH = HALVES * UNITS;                             // numbers of a row in memory
constexpr int SUMS = EARLY ? 1 : HALVES;                          // that add up to one
constexpr int CHUNKS = HALVES * SUMS;                             // of sixteen bytes: a run's float16 sums, or float32
constexpr int STRIDE = UNITS + 8, CLASS_STRIDE = CLASSES + 8;     // of rows in shared memory: no bank conflicts
constexpr float LOWEST = -3.4e38f;
constexpr unsigned ALL_LANES = 0xffffffffu;

struct Memory {
    double losses[ROWS];
    int corrects[ROWS];
    alignas(16) float logits[SHARES][ROWS][CLASS_STRIDE];
    alignas(16) unsigned short outputs[HALVES][ROWS][STRIDE];
    alignas(16) unsigned short dlogits[HALVES][ROWS][CLASS_STRIDE];
};

struct Sums {
    int4 chunks[OWN][2][CHUNKS];  // of rows g and g + 8
};

struct Outputs {
    unsigned pairs[HALVES][2][PAIRS];
    unsigned passed[2][PAIRS];  // the same as bfloat16, zeros where ReLU was alone; halves are zeros of one up to 2^-29
};

// A warp's weights of one group as right factors: for the logits, a run's weights of classes g and g + 8; for the way back,
// four classes' weights of units 8 (g / 2) + g % 2 + 2 j.
struct Weights {
    int4 of_classes[HALVES][2];
    float2 of_units[HALVES][PAIRS];

    __device__ void load_classes(const unsigned short* by_class, int group) {
        const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
        for (int half = 0; half < HALVES; ++half) {
            for (int i = 0; i < 2; ++i) {
                of_classes[half][i] = __ldcg(reinterpret_cast<const int4*>(
                    by_class + (half * CLASSES + g + 8 * i) * UNITS + GROUP * group + RUN * t));
            }
        }
    }

    __device__ void load_units(const unsigned short* by_unit, int group) {
        const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
        for (int half = 0; half < HALVES; ++half) {
            for (int j = 0; j < PAIRS; ++j) {
                const int unit = GROUP * group + RUN * (g / 2) + 2 * j + g % 2;
                of_units[half][j] = __ldcg(reinterpret_cast<const float2*>(by_unit + (half * UNITS + unit) * CLASSES + 4 * t));
            }
        }
    }
};

// The group of a warp's units, of several if it has more than one.
__device__ inline int group_of(int own) { return threadIdx.x / WARP + WARPS * own; }

__device__ inline void fetch(Sums& next, const unsigned short* sums, int first, int batch) {
    const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int own = 0; own < OWN; ++own) {
        for (int i = 0; i < 2; ++i) {
            const int row = first + g + 8 * i;
            const int unit = GROUP * group_of(own) + RUN * t;
            for (int chunk = 0; chunk < CHUNKS; ++chunk) {
                // Chunks of float32: both of the first halves' products, then both of the second's.
                const int at = HALVES == 1 ? unit : 2 * (chunk / 2 * UNITS + unit) + RUN * (chunk % 2);
                next.chunks[own][i][chunk] =
                    row < batch && group_of(own) < GROUPS
                        ? *reinterpret_cast<const int4*>(sums + static_cast<long long>(row) * WIDTH * SUMS + at)
                        : make_int4(0, 0, 0, 0);
            }
        }
    }
}

__device__ inline float2 float32_sum(int first, int second, int low_first, int low_second) {
    return make_float2(__uint_as_float(first) + __uint_as_float(low_first),
                       __uint_as_float(second) + __uint_as_float(low_second));
}

// ReLU of the sums and the bias.
__device__ inline void activate(Outputs& outputs, const int4 (&chunks)[2][CHUNKS], const float (&bias)[RUN]) {
    for (int i = 0; i < 2; ++i) {
        const int4 first = chunks[i][0], second = chunks[i][1 % CHUNKS];
        float2 z[PAIRS];
        if (HALVES == 1) {
            z[0] = cvt_f32_f16x2(first.x), z[1] = cvt_f32_f16x2(first.y);
            z[2] = cvt_f32_f16x2(first.z), z[3] = cvt_f32_f16x2(first.w);
        } else {
            const int4 none = {};
            const int4 low = SUMS == 1 ? none : chunks[i][2 % CHUNKS], low_second = SUMS == 1 ? none : chunks[i][3 % CHUNKS];
            z[0] = float32_sum(first.x, first.y, low.x, low.y), z[1] = float32_sum(first.z, first.w, low.z, low.w);
            z[2] = float32_sum(second.x, second.y, low_second.x, low_second.y);
            z[3] = float32_sum(second.z, second.w, low_second.z, low_second.w);
        }
        for (int pair = 0; pair < PAIRS; ++pair) {
            const float x = relu_of(z[pair].x + bias[2 * pair]), y = relu_of(z[pair].y + bias[2 * pair + 1]);
            outputs.passed[i][pair] = cvt_bf16x2(x, y);
            unsigned halves[HALVES];
            split(halves, x * OUTPUT_SCALE, y * OUTPUT_SCALE);
            for (int half = 0; half < HALVES; ++half) outputs.pairs[half][i][pair] = halves[half];
        }
    }
}

// Where the first of a run's numbers lies.
__device__ inline long long place_of(int half, int row, int unit, int batch) {
    return EARLY ? place_in_chunks(half, row, unit, UNITS, batch) : static_cast<long long>(row) * WIDTH + half * UNITS + unit;
}

__device__ inline void write_run(unsigned short* to, const unsigned (&pairs)[PAIRS]) {
    *reinterpret_cast<int4*>(to) = make_int4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

// c (16 rows, 16 classes) += a group's outputs by its weights.
__device__ inline void add_logits(float (&c)[2][4], const Outputs& outputs, const Weights& weights) {
    for (int k = 0; k < 2; ++k) {
        unsigned a[HALVES][4], b[HALVES][4];
        for (int half = 0; half < HALVES; ++half) {
            for (int e = 0; e < 4; ++e) a[half][e] = outputs.pairs[half][e % 2][2 * k + e / 2];
            for (int i = 0; i < 2; ++i) {
                const int4 run = weights.of_classes[half][i];
                b[half][2 * i] = k == 0 ? run.x : run.z;
                b[half][2 * i + 1] = k == 0 ? run.y : run.w;
            }
        }
        for (int column = 0; column < 2; ++column) multiply_halves(c[column], a, b, column);
    }
}

// Sums of a thread over its tiles, from which it adds up the block's share of the gradients.
struct Gradients {
    float of_weights[OWN][2][2][4];  // 16 units by 8 classes
    float of_hidden_bias[OWN][RUN];
    float of_bias;  // of the class of differentiate
};

// Softmax and the logits' gradients: a row has sixteen threads, one a class. Rows beyond the batch get zeros.
__device__ inline void differentiate(Memory& memory, float own_bias, int label, bool is_row, int classes, float factor,
                                     bool with_totals, float& bias_gradient, double& loss, int& correct) {
    const int c = threadIdx.x % CLASSES, row = threadIdx.x / CLASSES, first_lane = threadIdx.x % WARP / CLASSES * CLASSES;
    const bool is_class = c < classes;
    float logit = 0.0f;
    for (int share = 0; share < SHARES; ++share) logit += memory.logits[share][row][c];
    logit = logit * (1.0f / (OUTPUT_SCALE * WEIGHT_SCALE)) + own_bias;
    float largest = is_class ? logit : LOWEST;
    for (int flip = CLASSES / 2; flip > 0; flip /= 2) largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, flip));
    const float power = is_class ? expf(logit - largest) : 0.0f;
    float sum = power;
    for (int flip = CLASSES / 2; flip > 0; flip /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, flip);
    const float gradient = is_row && is_class ? (power / sum - (c == label ? 1.0f : 0.0f)) * factor : 0.0f;
    bias_gradient += gradient;
    unsigned halves[HALVES];
    split(halves, gradient, 0.0f);
    for (int half = 0; half < HALVES; ++half) memory.dlogits[half][row][c] = halves[half];
    if (with_totals) {
        const float wanted = __shfl_sync(ALL_LANES, logit, first_lane + label);
        const bool beats = is_class && (logit > wanted || (logit == wanted && c < label));
        const unsigned beaten = __ballot_sync(ALL_LANES, beats) >> first_lane & 0xffffu;
        if (is_row) {
            correct += beaten == 0;
            loss += logf(sum) + (largest - wanted);  // subtracted first: singly, either would round the logarithm
        }
    }
}

// The last layer's weight gradients of a group: outputs, transposed, by the logits' gradients.
__device__ inline void add_weight_gradients(float (&c)[2][2][4], const Memory& memory, int group) {
    unsigned b[HALVES][4];
    for (int half = 0; half < HALVES; ++half) {
        ldmatrix<true>(b[half], row_of(&memory.dlogits[half][0][0], CLASS_STRIDE, true));
    }
    for (int down = 0; down < 2; ++down) {
        unsigned a[HALVES][4];
        for (int half = 0; half < HALVES; ++half) {
            ldmatrix<true>(a[half], row_of(&memory.outputs[half][0][GROUP * group + EDGE * down], STRIDE, false));
        }
        for (int column = 0; column < 2; ++column) multiply_halves(c[down][column], a, b, column);
    }
}

// The gradient of a group's sums: zero where ReLU was.
__device__ inline void multiply_back(const Memory& memory, const Outputs& outputs, const Weights& weights,
                                     unsigned short* dsums, int group, int first, int batch, float (&bias_gradient)[RUN]) {
    const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    unsigned a[HALVES][4], found[HALVES][2][PAIRS];
    for (int half = 0; half < HALVES; ++half) {
        for (int i = 0; i < 2; ++i) {
            const float2 four = *reinterpret_cast<const float2*>(&memory.dlogits[half][g + 8 * i][4 * t]);
            a[half][i] = __float_as_uint(four.x), a[half][2 + i] = __float_as_uint(four.y);
        }
    }
    for (int pair = 0; pair < PAIRS; ++pair) {
        float c[4] = {};
        unsigned b[HALVES][4];
        for (int half = 0; half < HALVES; ++half) {
            b[half][0] = __float_as_uint(weights.of_units[half][pair].x);
            b[half][1] = __float_as_uint(weights.of_units[half][pair].y);
        }
        multiply_halves(c, a, b, 0);
        for (int i = 0; i < 2; ++i) {
            const unsigned passed = outputs.passed[i][pair];
            const float x = passed & 0x7fffu ? c[2 * i] * (1.0f / WEIGHT_SCALE) : 0.0f;
            const float y = passed & 0x7fff0000u ? c[2 * i + 1] * (1.0f / WEIGHT_SCALE) : 0.0f;
            bias_gradient[2 * pair] += x, bias_gradient[2 * pair + 1] += y;
            unsigned halves[HALVES];
            split(halves, x, y);
            for (int half = 0; half < HALVES; ++half) found[half][i][pair] = halves[half];
        }
    }
    for (int i = 0; i < 2; ++i) {
        const int row = first + g + 8 * i;
        if (row >= batch) continue;
        for (int half = 0; half < HALVES; ++half) {
            write_run(dsums + place_of(half, row, GROUP * group + RUN * t, batch), found[half][i]);
        }
    }
}

// Writes the block's share of the gradients: the last layer's weights', its bias's, the hidden bias's.
__device__ inline void write_gradients(Memory& memory, Gradients& gradients, float* partials, int units, int classes,
                                       float scale) {
    const int lane = threadIdx.x % WARP, c = threadIdx.x % CLASSES, row = threadIdx.x / CLASSES;
#pragma unroll
    for (int own = 0; own < OWN; ++own) {
        for (int i = 0; i < 16; ++i) {
            const int unit = GROUP * group_of(own) + i / 8 * EDGE + lane / 4 + i % 4 / 2 * 8;
            const int column = i / 4 % 2 * 8 + lane % 4 * 2 + i % 2;
            if (unit < units && column < classes) {
                partials[unit * classes + column] = gradients.of_weights[own][i / 8][i / 4 % 2][i % 4] * (scale / OUTPUT_SCALE);
            }
        }
        for (int i = 0; i < RUN; ++i) {
            float sum = gradients.of_hidden_bias[own][i];
            for (int flip = 4; flip < WARP; flip *= 2) sum += __shfl_xor_sync(ALL_LANES, sum, flip);
            const int unit = GROUP * group_of(own) + RUN * lane + i;
            if (lane < 4 && unit < units) partials[(units + 1) * classes + unit] = sum * scale;
        }
    }
    memory.logits[0][row][c] = gradients.of_bias;
    __syncthreads();
    if (threadIdx.x < classes) {
        float sum = 0.0f;
        for (int other = 0; other < ROWS; ++other) sum += memory.logits[0][other][threadIdx.x];
        partials[units * classes + threadIdx.x] = sum * scale;
    }
}

// hidden_head: outputs = ReLU(sums + hidden_bias); logits = outputs @ weights + bias; dsums = the gradient of the mean
// cross-entropy by the sums, times gradient_scale; and each block's share of the other gradients and of the totals.
//   sums          (batch, HALVES * UNITS)               u16  in: bits of float16; with two halves (batch, 2, UNITS) float32, added
//   hidden_bias   (units,)                              f32  in
//   by_class      (HALVES, CLASSES, UNITS)              u16  in: bits of float16, the weights' halves; zeros beyond the weights
//   by_unit       (HALVES, UNITS, CLASSES)              u16  in: the same
//   bias          (classes,)                            f32  in
//   labels        (batch,)                              i32  in, each 0 <= label < classes
//   dsums         (batch, HALVES * UNITS)               u16  out: bits of float16
//   partials      (blocks, (units + 1) * classes + units)  f32  out: gradients of the last weights, their bias, the hidden bias
//   block_totals  (blocks, 2)                           f64  out: summed cross-entropy and number correct, if with_totals
// Kind:   fused.
// Launch: 1-D, at most batch / 16 blocks, rounded up, of THREADS threads; sizeof(Memory) dynamic shared memory; compiled with
//   UNITS, FACTOR_HALVES and EARLY. If EARLY, sums are (batch, UNITS), and dsums in chunks, (HALVES, UNITS / 16, batch / 16, 256);
//   other tensors are read before the wait.
// Early:  hidden_bias, by_class, by_unit, bias, labels.
// Needs:  sm_80; UNITS a multiple of 32, units <= UNITS <= 512; classes <= 16; gradient_scale a power of two.
// Order:  each sum in a fixed order for the same number of blocks; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS, 1) hidden_head(const unsigned short* sums, const float* hidden_bias, const unsigned short* by_class,
                const unsigned short* by_unit, const float* bias, const int* labels, unsigned short* dsums, float* partials,
                double* block_totals, int batch, int units, int classes, float gradient_scale, int with_totals) {
    extern __shared__ float4 dynamic[];
    Memory& memory = *reinterpret_cast<Memory*>(dynamic);
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    const int own_row = threadIdx.x / CLASSES, own_class = threadIdx.x % CLASSES;
    const int apart = gridDim.x * ROWS;
    int first = blockIdx.x * ROWS;
    if constexpr (!EARLY) { griddepcontrol_wait(); }
    Weights weights[OWN];
    float run_bias[OWN][RUN];
#pragma unroll
    for (int own = 0; own < OWN; ++own) {
        if (EARLY && group_of(own) < GROUPS) {
            weights[own].load_classes(by_class, group_of(own));
            weights[own].load_units(by_unit, group_of(own));
        }
        for (int i = 0; i < RUN; ++i) {
            const int unit = GROUP * group_of(own) + RUN * t + i;
            run_bias[own][i] = unit < units ? __ldcg(hidden_bias + unit) : 0.0f;
        }
    }
    const float own_bias = own_class < classes ? __ldcg(bias + own_class) : 0.0f;
    int label = first + own_row < batch ? labels[first + own_row] : 0;
    if constexpr (EARLY) { griddepcontrol_wait(); }
    griddepcontrol_launch_dependents();
    Sums next;
    fetch(next, sums, first, batch);
    const float factor = gradient_scale / static_cast<float>(batch);
    Gradients gradients = {};
    double loss = 0.0;
    int correct = 0;
    for (; first < batch; first += apart) {
        Outputs outputs[OWN];
        float c[2][4] = {};
        __syncwarp();  // before it writes what all of its lanes have read
#pragma unroll
        for (int own = 0; own < OWN; ++own) {
            const int group = group_of(own);
            if (group >= GROUPS) continue;
            if (!EARLY) weights[own].load_classes(by_class, group);
            activate(outputs[own], next.chunks[own], run_bias[own]);
            for (int half = 0; half < HALVES; ++half) {
                for (int i = 0; i < 2; ++i) {
                    write_run(&memory.outputs[half][g + 8 * i][GROUP * group + RUN * t], outputs[own].pairs[half][i]);
                }
            }
            add_logits(c, outputs[own], weights[own]);
        }
        const int own_label = label, following = first + apart + own_row;
        fetch(next, sums, first + apart, batch);
        label = following < batch ? labels[following] : 0;
        if (warp < SHARES) {
            for (int i = 0; i < 4; ++i) {
                *reinterpret_cast<float2*>(&memory.logits[warp][g + i % 2 * 8][i / 2 * 8 + 2 * t]) =
                    make_float2(c[i / 2][i % 2 * 2], c[i / 2][i % 2 * 2 + 1]);
            }
        }
        __syncthreads();
#pragma unroll
        for (int own = 0; own < OWN; ++own) {
            if (!EARLY && group_of(own) < GROUPS) weights[own].load_units(by_unit, group_of(own));
        }
        differentiate(memory, own_bias, own_label, first + own_row < batch, classes, factor, with_totals != 0,
                      gradients.of_bias, loss, correct);
        __syncthreads();
#pragma unroll
        for (int own = 0; own < OWN; ++own) {
            const int group = group_of(own);
            if (group >= GROUPS) continue;
            multiply_back(memory, outputs[own], weights[own], dsums, group, first, batch, gradients.of_hidden_bias[own]);
            add_weight_gradients(gradients.of_weights[own], memory, group);
        }
    }
    if (with_totals && own_class == 0) {
        memory.losses[own_row] = loss;
        memory.corrects[own_row] = correct;
    }
    write_gradients(memory, gradients, partials + static_cast<long long>(blockIdx.x) * ((units + 1) * classes + units), units,
                    classes, 1.0f / gradient_scale);
    if (with_totals && threadIdx.x == 0) {
        loss = 0.0, correct = 0;
        for (int row = 0; row < ROWS; ++row) {
            loss += memory.losses[row];
            correct += memory.corrects[row];
        }
        block_totals[2 * blockIdx.x] = loss;
        block_totals[2 * blockIdx.x + 1] = correct;
    }
}

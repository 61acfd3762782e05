// From the first hidden layer's sums to their gradient, through all further layers and back, for a large batch.
//
// A block keeps the weights of all further layers in shared memory. Each of its warps takes a tile of sixteen images through
// all layers and back; every layer overwrites the tile. Warps meet only around the last layer's weight gradient, which they
// share out by units: each multiplies all tiles of the block by its own units. Other weight gradients are left to the library.

#include "large_batch/halves.cuh"
#include "large_batch/network.cuh"
#include "device/async_copies.cuh"
#include "device/dependent.cuh"

#ifndef UNITS
#define UNITS 128
#endif
#ifndef WARPS
#define WARPS 4
#endif
constexpr int ROWS = EDGE;
constexpr int CLASSES = 16;  // with padding
constexpr int THREADS = WARPS * WARP;
constexpr int PAD = 8, STRIDE = UNITS + PAD, CLASS_STRIDE = CLASSES + PAD;  // of rows in shared memory: no bank conflicts
constexpr int WIDTH = HALVES * UNITS;                                       // numbers of a row in memory
constexpr int COLUMNS = UNITS / 8;                                          // of eight units
constexpr int WORDS = (COLUMNS + 7) / 8;                                    // of a lane's four bits a column
constexpr int OWN = (UNITS / EDGE + WARPS - 1) / WARPS;                     // of a warp's units, by 16
constexpr float LOWEST = -3.4e38f;
constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr float SUM_SCALE = 1.0f / (OUTPUT_SCALE * WEIGHT_SCALE);

using Number = unsigned short;

struct Warp {
    alignas(16) Number tile[HALVES][ROWS][STRIDE];
    alignas(16) Number dlogits[HALVES][ROWS][CLASS_STRIDE];
    unsigned passed[LAST][WORDS][WARP];  // four bits a column: whether ReLU passed c's numbers
    float bias_gradients[LAST + 1][UNITS];
    double loss;
    int correct;
};

struct Memory {
    Warp warps[WARPS];
    float biases[LAST][UNITS];
    alignas(16) Number last_weights[HALVES][UNITS][CLASS_STRIDE];
    alignas(16) Number weights[FURTHER > 0 ? FURTHER : 1][HALVES][UNITS][STRIDE];
};

// Starts to copy rows of COUNT numbers from memory to shared memory.
template <int COUNT>
__device__ inline void copy_rows(Number* to, const Number* from, int rows) {
    constexpr int PIECES = COUNT / 8;
    for (int i = threadIdx.x; i < rows * PIECES; i += THREADS) {
        copy_four(reinterpret_cast<float*>(to + i / PIECES * (COUNT + PAD) + i % PIECES * 8),
                  reinterpret_cast<const float*>(from) + 4 * i);
    }
}

// c = a tile's sums of the first layer, as c of products; zeros beyond the batch.
__device__ inline void fetch(float (&c)[COLUMNS][4], const Number* sums, int first, int batch) {
    const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int column = 0; column < COLUMNS; ++column) {
        for (int i = 0; i < 2; ++i) {
            const int row = first + g + 8 * i;
            const long long at = static_cast<long long>(row) * WIDTH + 8 * column + 2 * t;
            float2 sum = make_float2(0.0f, 0.0f);
            if (row < batch && HALVES == 1) sum = of_float16_pair(*reinterpret_cast<const unsigned*>(sums + at));
            if (row < batch && HALVES == 2) {
                const float2* of_high = reinterpret_cast<const float2*>(reinterpret_cast<const float*>(sums) + at);
                const float2 high = *of_high, low = of_high[UNITS / 2];
                sum = make_float2(high.x + low.x, high.y + low.y);
            }
            c[column][2 * i] = sum.x, c[column][2 * i + 1] = sum.y;
        }
    }
}

// c (16 rows, 8 C units) = a by the weights b; if BACK, by b transposed.
template <bool BACK, int C, int A, int B>
__device__ inline void multiply(float (&c)[C][4], const Number (&a)[HALVES][ROWS][A], const Number (&b)[HALVES][UNITS][B]) {
#pragma unroll
    for (int column = 0; column < C; ++column) {
        for (int i = 0; i < 4; ++i) c[column][i] = 0.0f;
    }
#pragma unroll 2
    for (int k = 0; k < A - PAD; k += EDGE) {
        unsigned left[HALVES][4];
        for (int half = 0; half < HALVES; ++half) load_matrices<false>(left[half], row_of(&a[half][0][k], A, true));
#pragma unroll
        for (int column = 0; column < C; column += 2) {
            unsigned right[HALVES][4];
            for (int half = 0; half < HALVES; ++half) {
                const Number* corner = BACK ? &b[half][8 * column][k] : &b[half][k][8 * column];
                load_matrices<!BACK>(right[half], row_of(corner, B, !BACK));
            }
            for (int i = 0; i < 2; ++i) multiply_halves(c[column + i], left, right, i);
        }
    }
}

// The tile = c, and its bits. `number` takes a number of c, its column of eight and place in c.
template <class Change>
__device__ inline void write_tile(Warp& own, const float (&c)[COLUMNS][4], Change number) {
    const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    __syncwarp();  // all lanes have read what it overwrites
#pragma unroll
    for (int column = 0; column < COLUMNS; ++column) {
        for (int i = 0; i < 2; ++i) {
            unsigned halves[HALVES];
            split(halves, number(column, 2 * i), number(column, 2 * i + 1));
            for (int half = 0; half < HALVES; ++half) {
                *reinterpret_cast<unsigned*>(&own.tile[half][g + 8 * i][8 * column + 2 * t]) = halves[half];
            }
        }
    }
    __syncwarp();
}

// The tile = ReLU of c * scale + the layer's bias.
__device__ inline void activate(Warp& own, const float (&c)[COLUMNS][4], const float (&bias)[UNITS], float scale, int layer) {
    const int lane = threadIdx.x % WARP, t = lane % 4;
    unsigned passed[WORDS] = {};
    write_tile(own, c, [&](int column, int i) {
        const float sum = c[column][i] * scale + bias[8 * column + 2 * t + i % 2];
        if (!(sum <= 0.0f)) passed[column / 8] |= 1u << (4 * (column % 8) + i);
        return sum < 0.0f ? 0.0f : sum * OUTPUT_SCALE;  // a NaN stays one
    });
    for (int word = 0; word < WORDS; ++word) own.passed[layer][word][lane] = passed[word];
}

// The tile = c / WEIGHT_SCALE, zero where the layer's ReLU was.
__device__ inline void pass_back(Warp& own, const float (&c)[COLUMNS][4], int layer) {
    const int lane = threadIdx.x % WARP;
    unsigned passed[WORDS];
    for (int word = 0; word < WORDS; ++word) passed[word] = own.passed[layer][word][lane];
    write_tile(own, c, [&](int column, int i) {
        return passed[column / 8] >> (4 * (column % 8) + i) & 1 ? c[column][i] * (1.0f / WEIGHT_SCALE) : 0.0f;
    });
}

// Writes the tile's rows to memory; if SUMMED, adds them to the sums of its columns.
template <bool SUMMED>
__device__ inline void leave(Warp& own, Number* to, int rows, float (&sums)[UNITS]) {
    for (int pair = threadIdx.x % WARP; pair < UNITS / 2; pair += WARP) {
        float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            for (int half = 0; half < HALVES; ++half) {
                const unsigned two = *reinterpret_cast<const unsigned*>(&own.tile[half][row][2 * pair]);
                if (row < rows) reinterpret_cast<unsigned*>(to)[(row * HALVES + half) * (UNITS / 2) + pair] = two;
                if (SUMMED) sum.x += of_float16_pair(two).x, sum.y += of_float16_pair(two).y;
            }
        }
        if (SUMMED) sums[2 * pair] += sum.x, sums[2 * pair + 1] += sum.y;
    }
}

__device__ inline float sum_of_quad(float own) {
    own += __shfl_xor_sync(ALL_LANES, own, 1);
    return own + __shfl_xor_sync(ALL_LANES, own, 2);
}

// A lane's class of its four: as in the columns of two c.
__device__ inline int class_of(int j) { return j / 2 * 8 + threadIdx.x % 4 * 2 + j % 2; }

// What a lane adds up over its tiles.
struct Totals {
    float of_bias[4];  // gradients of its classes
    double loss;
    int correct;
};

// Softmax and the logits' gradients; rows beyond the batch get zeros.
__device__ inline void differentiate(Warp& own, const float (&c)[2][4], const float (&bias)[4], const int (&labels)[2], int rows,
                                     float factor, bool with_totals, Totals& totals) {
    constexpr int classes = layer(LAST).units;
    const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    for (int i = 0; i < 2; ++i) {
        const bool is_row = g + 8 * i < rows;
        float logits[4], powers[4], gradients[4];
        for (int j = 0; j < 4; ++j) {
            logits[j] = class_of(j) < classes ? c[j / 2][2 * i + j % 2] * SUM_SCALE + bias[j] : LOWEST;
        }
        float largest = fmaxf(fmaxf(logits[0], logits[1]), fmaxf(logits[2], logits[3]));
        for (int flip = 1; flip < 4; flip *= 2) largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, flip));
        for (int j = 0; j < 4; ++j) powers[j] = class_of(j) < classes ? expf(logits[j] - largest) : 0.0f;
        const float sum = sum_of_quad((powers[0] + powers[1]) + (powers[2] + powers[3]));
        for (int j = 0; j < 4; ++j) {
            const float wanted = class_of(j) == labels[i] ? 1.0f : 0.0f;
            gradients[j] = is_row && class_of(j) < classes ? (powers[j] / sum - wanted) * factor : 0.0f;
            totals.of_bias[j] += gradients[j];
        }
        for (int column = 0; column < 2; ++column) {
            unsigned halves[HALVES];
            split(halves, gradients[2 * column], gradients[2 * column + 1]);
            for (int half = 0; half < HALVES; ++half) {
                *reinterpret_cast<unsigned*>(&own.dlogits[half][g + 8 * i][8 * column + 2 * t]) = halves[half];
            }
        }
        if (with_totals) {
            float wanted = 0.0f;
            for (int j = 0; j < 4; ++j) wanted += class_of(j) == labels[i] ? logits[j] : 0.0f;
            wanted = sum_of_quad(wanted);
            bool beats = false;
            for (int j = 0; j < 4; ++j) {
                beats |= class_of(j) < classes && (logits[j] > wanted || (logits[j] == wanted && class_of(j) < labels[i]));
            }
            const unsigned beaten = __ballot_sync(ALL_LANES, beats) >> 4 * g & 0xfu;
            if (is_row && t == 0) {
                totals.correct += beaten == 0;
                totals.loss += logf(sum) + (largest - wanted);  // subtracted first: singly, either would round the logarithm
            }
        }
    }
}

// The last layer's weight gradients of the warp's units: all warps' outputs, transposed, by the logits' gradients.
__device__ inline void add_weight_gradients(float (&c)[OWN][2][4], const Memory& memory, int tiles) {
    for (int from = 0; from < tiles; ++from) {
        const Warp& other = memory.warps[from];
        unsigned b[HALVES][4];
        for (int half = 0; half < HALVES; ++half) {
            load_matrices<true>(b[half], row_of(&other.dlogits[half][0][0], CLASS_STRIDE, true));
        }
#pragma unroll
        for (int own = 0; own < OWN; ++own) {
            const int unit = EDGE * (threadIdx.x / WARP + WARPS * own);
            if (unit >= UNITS) continue;
            unsigned a[HALVES][4];
            for (int half = 0; half < HALVES; ++half) {
                load_matrices<true>(a[half], row_of(&other.tile[half][0][unit], STRIDE, false));
            }
            for (int column = 0; column < 2; ++column) multiply_halves(c[own][column], a, b, column);
        }
    }
}

// Writes the block's share of the gradients: the last layer's weights', its bias's, the hidden biases'.
__device__ inline void write_share(Memory& memory, const float (&gradients)[OWN][2][4], const Totals& totals, float* share,
                                   float scale) {
    constexpr int units = layer(LAST).inputs, classes = layer(LAST).units;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    Warp& own = memory.warps[warp];
    for (int j = 0; j < 4; ++j) {
        float sum = totals.of_bias[j];
        for (int flip = 4; flip < WARP; flip *= 2) sum += __shfl_xor_sync(ALL_LANES, sum, flip);
        if (lane < 4) own.bias_gradients[LAST][class_of(j)] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8 * OWN; ++i) {
        const int unit = EDGE * (warp + WARPS * (i / 8)) + lane / 4 + i % 4 / 2 * 8, column = class_of(i / 4 % 2 * 2 + i % 2);
        if (unit < units && column < classes) {
            share[unit * classes + column] = gradients[i / 8][i / 4 % 2][i % 4] * (scale / OUTPUT_SCALE);
        }
    }
    share += units * classes;
#pragma unroll
    for (int i = 0; i <= LAST; ++i) {
        const int l = i == 0 ? LAST : i - 1;
        for (int unit = threadIdx.x; unit < layer(l).units; unit += THREADS) {
            float sum = 0.0f;
            for (const Warp& other : memory.warps) sum += other.bias_gradients[l][unit];
            share[unit] = sum * scale;
        }
        share += layer(l).units;
    }
}

// hidden_layers: outputs of each hidden layer = ReLU(sums + bias), where further layers' sums = outputs @ weights; logits
// likewise; dsums = the gradients of the mean cross-entropy by all sums, times gradient_scale; and each block's share of the
// gradients of the last weights and of all biases, and of the totals.
//   sums          (batch, HALVES * UNITS)            u16  in: bits of float16; with two halves (batch, 2, UNITS) float32, added
//   weights       (FURTHER, HALVES, UNITS, UNITS)    u16  in: bits of float16, the further layers' weights; zeros beyond
//   last_weights  (HALVES, UNITS, CLASSES)           u16  in: the same of the last layer
//   parameters    (all,)                             f32  in: the biases, by LAYERS
//   labels        (batch,)                           i32  in, each 0 <= label < classes
//   outputs       (FURTHER, batch, HALVES * UNITS)   u16  out: bits of float16, times 16; not the last hidden layer's
//   dsums         (LAST, batch, HALVES * UNITS)      u16  out: bits of float16
//   partials      (blocks, share)                    f32  out: gradients of the last weights, their bias, the hidden biases
//   block_totals  (blocks, 2)                        f64  out: summed cross-entropy and number correct, if with_totals
// Launch: 1-D, at most batch / 16 blocks, rounded up, of THREADS threads; sizeof(Memory) dynamic shared memory; compiled with
//   UNITS, LAYERS, WARPS and FACTOR_HALVES.
// Needs:  sm_80; UNITS a multiple of 32, all hidden units <= UNITS <= 256; classes <= 16; gradient_scale a power of two.
// Order:  each sum in a fixed order for the same number of blocks and warps; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS, 1) hidden_layers(const unsigned short* sums, const unsigned short* weights, const unsigned short* last_weights,
                const float* parameters, const int* labels, unsigned short* outputs, unsigned short* dsums, float* partials,
                double* block_totals, int batch, float gradient_scale, int with_totals) {
    let_next_begin();
    wait_for_previous();
    extern __shared__ float4 dynamic[];
    Memory& memory = *reinterpret_cast<Memory*>(dynamic);
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4;
    Warp& own = memory.warps[warp];
    copy_rows<UNITS>(&memory.weights[0][0][0][0], weights, FURTHER * HALVES * UNITS);
    copy_rows<CLASSES>(&memory.last_weights[0][0][0], last_weights, HALVES * UNITS);
    end_group_of_copies();
#pragma unroll
    for (int l = 0; l < LAST; ++l) {
        for (int unit = threadIdx.x; unit < UNITS; unit += THREADS) {
            memory.biases[l][unit] = unit < layer(l).units ? parameters[layer(l).bias + unit] : 0.0f;
        }
        for (int unit = lane; unit < UNITS; unit += WARP) own.bias_gradients[l][unit] = 0.0f;
    }
    float bias[4];
    for (int j = 0; j < 4; ++j) bias[j] = class_of(j) < layer(LAST).units ? parameters[layer(LAST).bias + class_of(j)] : 0.0f;
    const float factor = gradient_scale / static_cast<float>(batch);
    const long long layer_apart = static_cast<long long>(batch) * WIDTH;
    const int apart = gridDim.x * ROWS;  // of a block's tiles
    float gradients[OWN][2][4] = {};
    Totals totals = {};
    float c[COLUMNS][4];
    for (int block_first = blockIdx.x * ROWS; block_first < batch; block_first += WARPS * apart) {
        const int first = block_first + warp * apart, rows = batch - first;
        const bool has_tile = rows > 0;
        int own_labels[2] = {};
        if (has_tile) {
            fetch(c, sums, first, batch);
            for (int i = 0; i < 2; ++i) own_labels[i] = g + 8 * i < rows ? labels[first + g + 8 * i] : 0;
        }
        wait_for_copies();
        __syncthreads();  // weights and biases are there; the last round's tiles have been read
        const long long place = static_cast<long long>(first) * WIDTH;
        if (has_tile) {
            activate(own, c, memory.biases[0], 1.0f, 0);
#pragma unroll 1
            for (int l = 0; l < FURTHER; ++l) {
                leave<false>(own, outputs + l * layer_apart + place, rows, own.bias_gradients[l]);
                multiply<false>(c, own.tile, memory.weights[l]);
                activate(own, c, memory.biases[l + 1], SUM_SCALE, l + 1);
            }
            float logits[2][4];
            multiply<false>(logits, own.tile, memory.last_weights);
            differentiate(own, logits, bias, own_labels, rows, factor, with_totals != 0, totals);
        }
        __syncthreads();
        add_weight_gradients(gradients, memory, min(WARPS, (batch - block_first + apart - 1) / apart));
        __syncthreads();
        if (has_tile) {
            multiply<true>(c, own.dlogits, memory.last_weights);
#pragma unroll 1
            for (int l = FURTHER;; --l) {
                pass_back(own, c, l);
                leave<true>(own, dsums + l * layer_apart + place, rows, own.bias_gradients[l]);
                if (l == 0) break;
                multiply<true>(c, own.tile, memory.weights[l - 1]);
            }
        }
    }
    for (int flip = 4; flip < WARP; flip *= 2) {
        totals.loss += __shfl_xor_sync(ALL_LANES, totals.loss, flip);
        totals.correct += __shfl_xor_sync(ALL_LANES, totals.correct, flip);
    }
    if (lane == 0) own.loss = totals.loss, own.correct = totals.correct;
    constexpr int SHARE = (layer(LAST).inputs + 1) * layer(LAST).units;
    int share = SHARE;
#pragma unroll
    for (int l = 0; l < LAST; ++l) share += layer(l).units;
    write_share(memory, gradients, totals, partials + static_cast<long long>(blockIdx.x) * share, 1.0f / gradient_scale);
    if (with_totals && threadIdx.x < 2) {
        double sum = 0.0;
        for (const Warp& other : memory.warps) sum += threadIdx.x == 0 ? other.loss : other.correct;
        block_totals[2 * blockIdx.x + threadIdx.x] = sum;
    }
}

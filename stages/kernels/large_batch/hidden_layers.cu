// From the first hidden layer's sums to their gradient, through all further layers and back, for a large batch.
//
// A block keeps the weights of all further layers in shared memory. It takes a few tiles of sixteen images at a time through
// all layers and back; every layer overwrites the tile. A warp has 32 units of every layer for one tile, so that its code is
// short: most launches run it once, and must fetch it first. All warps of a block meet before and after a tile is overwritten.
// The library computes the weight gradients of all layers but the last.

#include "large_batch/halves.cuh"
#include "large_batch/network.cuh"
#include "device/async_copies.cuh"
#include "device/dependent.cuh"

#ifndef UNITS
#define UNITS 128
#endif
#ifndef TILES
#define TILES 4
#endif
constexpr int ROWS = EDGE;
constexpr int CLASSES = 16;                   // with padding
constexpr int SLICE = 32, COLUMNS = SLICE / 8;  // units of a warp, in columns of eight
constexpr int SLICES = UNITS / SLICE, WARPS = TILES * SLICES, THREADS = WARPS * WARP;
constexpr int PAD = 8, STRIDE = UNITS + PAD, CLASS_STRIDE = CLASSES + PAD;  // of rows in shared memory: no bank conflicts
constexpr int WIDTH = HALVES * UNITS;                                       // numbers of a row in memory
constexpr int OWN = (UNITS / EDGE + WARPS - 1) / WARPS;  // of the last layer's weight gradients, by 16 units
constexpr float LOWEST = -3.4e38f;
constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr float SUM_SCALE = 1.0f / (OUTPUT_SCALE * WEIGHT_SCALE);

using Number = unsigned short;

struct Tile {
    alignas(16) Number numbers[HALVES][ROWS][STRIDE];
    alignas(16) Number dlogits[HALVES][ROWS][CLASS_STRIDE];
    unsigned passed[LAST][SLICES][WARP];  // a bit for each of a lane's numbers: whether ReLU passed it
    float bias_gradients[LAST + 1][UNITS];
    double loss;
    int correct;
};

struct Memory {
    Tile tiles[TILES];
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

// c = the first layer's sums of 16 rows and the units from `unit` on, as c of products; zeros beyond the batch.
__device__ inline void fetch(float (&c)[COLUMNS][4], const Number* sums, int unit, int rows) {
    const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int column = 0; column < COLUMNS; ++column) {
        for (int i = 0; i < 2; ++i) {
            const int row = g + 8 * i, at = row * WIDTH + unit + 8 * column + 2 * t;
            float2 sum = make_float2(0.0f, 0.0f);
            if (row < rows && HALVES == 1) sum = of_float16_pair(*reinterpret_cast<const unsigned*>(sums + at));
            if (row < rows && HALVES == 2) {
                const float2* of_high = reinterpret_cast<const float2*>(reinterpret_cast<const float*>(sums) + at);
                const float2 high = *of_high, low = of_high[UNITS / 2];
                sum = make_float2(high.x + low.x, high.y + low.y);
            }
            c[column][2 * i] = sum.x, c[column][2 * i + 1] = sum.y;
        }
    }
}

// c (16 rows, 8 C units from `unit` on) = a by the weights b; if BACK, by b transposed.
template <bool BACK, int C, int A, int B>
__device__ inline void multiply(float (&c)[C][4], const Number (&a)[HALVES][ROWS][A], const Number (&b)[HALVES][UNITS][B],
                                int unit) {
    for (int column = 0; column < C; ++column) {
        for (int i = 0; i < 4; ++i) c[column][i] = 0.0f;
    }
#pragma unroll 4
    for (int k = 0; k < A - PAD; k += EDGE) {
        unsigned left[HALVES][4];
        for (int half = 0; half < HALVES; ++half) load_matrices<false>(left[half], row_of(&a[half][0][k], A, true));
#pragma unroll
        for (int column = 0; column < C; column += 2) {
            const int other = unit + 8 * column;
            unsigned right[HALVES][4];
            for (int half = 0; half < HALVES; ++half) {
                load_matrices<!BACK>(right[half], row_of(BACK ? &b[half][other][k] : &b[half][k][other], B, !BACK));
            }
            for (int i = 0; i < 2; ++i) multiply_halves(c[column + i], left, right, i);
        }
    }
}

// The tile's numbers of a warp's units = c, once all warps have read what was there.
__device__ inline void overwrite(Tile& tile, const float (&c)[COLUMNS][4], int unit) {
    const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    __syncthreads();
    for (int column = 0; column < COLUMNS; ++column) {
        for (int i = 0; i < 2; ++i) {
            unsigned halves[HALVES];
            split(halves, c[column][2 * i], c[column][2 * i + 1]);
            for (int half = 0; half < HALVES; ++half) {
                *reinterpret_cast<unsigned*>(&tile.numbers[half][g + 8 * i][unit + 8 * column + 2 * t]) = halves[half];
            }
        }
    }
    __syncthreads();
}

// Writes a warp's numbers of a tile to memory, rows within the batch.
__device__ inline void leave(const Tile& tile, Number* to, int unit, int rows) {
    const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    for (int half = 0; half < HALVES; ++half) {
        for (int row = g; row < ROWS; row += 8) {
            if (row >= rows) continue;
            *reinterpret_cast<int4*>(to + row * WIDTH + half * UNITS + unit + 8 * t) =
                *reinterpret_cast<const int4*>(&tile.numbers[half][row][unit + 8 * t]);
        }
    }
}

// c = ReLU of c * scale + bias, times OUTPUT_SCALE; returns a bit for each number that passed.
__device__ inline unsigned activate(float (&c)[COLUMNS][4], const float* bias, float scale) {
    unsigned passed = 0;
    for (int i = 0; i < 4 * COLUMNS; ++i) {
        float& number = c[i / 4][i % 4];
        const float sum = number * scale + bias[i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2];
        if (!(sum <= 0.0f)) passed |= 1u << i;
        number = sum < 0.0f ? 0.0f : sum * OUTPUT_SCALE;  // a NaN stays one
    }
    return passed;
}

// c /= WEIGHT_SCALE, zero where ReLU was; adds the sum of each column to `sums`.
__device__ inline void pass_back(float (&c)[COLUMNS][4], unsigned passed, float* sums) {
    const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4 * COLUMNS; ++i) {
        float& number = c[i / 4][i % 4];
        number = passed >> i & 1 ? number * (1.0f / WEIGHT_SCALE) : 0.0f;
    }
    float own[2 * COLUMNS];
    for (int i = 0; i < 2 * COLUMNS; ++i) own[i] = c[i / 2][i % 2] + c[i / 2][2 + i % 2];
    // Lanes of one t exchange halves of their columns, and are left with the sum of column g.
#pragma unroll
    for (int count = COLUMNS; count > 0; count /= 2) {
        const bool is_upper = g & count;
        for (int i = 0; i < count; ++i) {
            const float other = __shfl_xor_sync(ALL_LANES, is_upper ? own[i] : own[i + count], 4 * count);
            own[i] = (is_upper ? own[i + count] : own[i]) + other;
        }
    }
    sums[g / 2 * 8 + 2 * t + g % 2] += own[0];
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
__device__ inline void differentiate(Tile& tile, const float (&c)[2][4], const float (&bias)[4], const int (&labels)[2], int rows,
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
        const float sum = sum_of_quad((powers[0] + powers[1]) + (powers[2] + powers[3])), part = 1.0f / sum;
        for (int j = 0; j < 4; ++j) {
            const float wanted = class_of(j) == labels[i] ? 1.0f : 0.0f;
            gradients[j] = is_row && class_of(j) < classes ? (powers[j] * part - wanted) * factor : 0.0f;
            totals.of_bias[j] += gradients[j];
        }
        for (int column = 0; column < 2; ++column) {
            unsigned halves[HALVES];
            split(halves, gradients[2 * column], gradients[2 * column + 1]);
            for (int half = 0; half < HALVES; ++half) {
                *reinterpret_cast<unsigned*>(&tile.dlogits[half][g + 8 * i][8 * column + 2 * t]) = halves[half];
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

// The last layer's weight gradients of a warp's units: all tiles' outputs, transposed, by the logits' gradients.
__device__ inline void add_weight_gradients(float (&c)[OWN][2][4], const Memory& memory) {
#pragma unroll
    for (int own = 0; own < OWN; ++own) {
        const int unit = EDGE * (threadIdx.x / WARP + WARPS * own);
        if (unit >= UNITS) continue;
        for (const Tile& tile : memory.tiles) {
            unsigned a[HALVES][4], b[HALVES][4];
            for (int half = 0; half < HALVES; ++half) {
                load_matrices<true>(a[half], row_of(&tile.numbers[half][0][unit], STRIDE, false));
                load_matrices<true>(b[half], row_of(&tile.dlogits[half][0][0], CLASS_STRIDE, true));
            }
            for (int column = 0; column < 2; ++column) multiply_halves(c[own][column], a, b, column);
        }
    }
}

// Writes the block's share of the gradients: the last layer's weights', its bias's, the hidden biases'.
__device__ inline void write_share(const Memory& memory, const float (&gradients)[OWN][2][4], float* share, float scale) {
    constexpr int units = layer(LAST).inputs, classes = layer(LAST).units;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
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
#pragma unroll 1
        for (int unit = threadIdx.x; unit < layer(l).units; unit += THREADS) {
            float sum = 0.0f;
            for (const Tile& tile : memory.tiles) sum += tile.bias_gradients[l][unit];
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
//   UNITS, LAYERS, TILES and FACTOR_HALVES.
// Needs:  sm_80; UNITS a multiple of 32, all hidden units <= UNITS <= 256; classes <= 16; gradient_scale a power of two.
// Order:  each sum in a fixed order for the same number of blocks and tiles; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS, 1) hidden_layers(const unsigned short* sums, const unsigned short* weights, const unsigned short* last_weights,
                const float* parameters, const int* labels, unsigned short* outputs, unsigned short* dsums, float* partials,
                double* block_totals, int batch, float gradient_scale, int with_totals) {
    let_next_begin();
    wait_for_previous();
    extern __shared__ float4 dynamic[];
    Memory& memory = *reinterpret_cast<Memory*>(dynamic);
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4;
    const int slice = warp % SLICES, unit = SLICE * slice;
    Tile& tile = memory.tiles[warp / SLICES];
    copy_rows<UNITS>(&memory.weights[0][0][0][0], weights, FURTHER * HALVES * UNITS);
    copy_rows<CLASSES>(&memory.last_weights[0][0][0], last_weights, HALVES * UNITS);
    end_group_of_copies();
    int share = layer(LAST).inputs * layer(LAST).units;
#pragma unroll
    for (int l = 0; l <= LAST; ++l) {
#pragma unroll 1
        for (int i = threadIdx.x; l < LAST && i < UNITS; i += THREADS) {
            memory.biases[l][i] = i < layer(l).units ? parameters[layer(l).bias + i] : 0.0f;
        }
        tile.bias_gradients[l][unit + lane] = 0.0f;
        share += layer(l).units;
    }
    float bias[4];
    for (int j = 0; j < 4; ++j) bias[j] = class_of(j) < layer(LAST).units ? parameters[layer(LAST).bias + class_of(j)] : 0.0f;
    const float factor = gradient_scale / static_cast<float>(batch);
    const long long layer_apart = static_cast<long long>(batch) * WIDTH;
    const int apart = gridDim.x * ROWS;  // of a block's tiles
    float gradients[OWN][2][4] = {};
    Totals totals = {};
    for (int first = (blockIdx.x + warp / SLICES * gridDim.x) * ROWS, round = blockIdx.x * ROWS; round < batch;
         first += TILES * apart, round += TILES * apart) {
        const int rows = batch - first;  // zero or less: a tile without images
        const long long place = static_cast<long long>(first) * WIDTH;
        float c[COLUMNS][4];
        fetch(c, sums + place * HALVES, unit, rows);
        int own_labels[2];
        for (int i = 0; i < 2; ++i) own_labels[i] = g + 8 * i < rows ? labels[first + g + 8 * i] : 0;
        wait_for_copies();
        __syncthreads();  // weights and biases are there
        tile.passed[0][slice][lane] = activate(c, &memory.biases[0][unit], 1.0f);
        overwrite(tile, c, unit);
#pragma unroll 1
        for (int l = 0; l < FURTHER; ++l) {
            leave(tile, outputs + l * layer_apart + place, unit, rows);
            multiply<false>(c, tile.numbers, memory.weights[l], unit);
            tile.passed[l + 1][slice][lane] = activate(c, &memory.biases[l + 1][unit], SUM_SCALE);
            overwrite(tile, c, unit);
        }
        if (slice == 0) {
            float logits[2][4];
            multiply<false>(logits, tile.numbers, memory.last_weights, 0);
            differentiate(tile, logits, bias, own_labels, rows, factor, with_totals != 0, totals);
        }
        __syncthreads();
        add_weight_gradients(gradients, memory);
        multiply<true>(c, tile.dlogits, memory.last_weights, unit);
#pragma unroll 1
        for (int l = FURTHER;; --l) {
            pass_back(c, tile.passed[l][slice][lane], &tile.bias_gradients[l][unit]);
            overwrite(tile, c, unit);
            leave(tile, dsums + l * layer_apart + place, unit, rows);
            if (l == 0) break;
            multiply<true>(c, tile.numbers, memory.weights[l - 1], unit);
        }
    }
    for (int flip = 4; flip < WARP; flip *= 2) {
        for (int j = 0; j < 4; ++j) totals.of_bias[j] += __shfl_xor_sync(ALL_LANES, totals.of_bias[j], flip);
        totals.loss += __shfl_xor_sync(ALL_LANES, totals.loss, flip);
        totals.correct += __shfl_xor_sync(ALL_LANES, totals.correct, flip);
    }
    if (slice == 0) {
        for (int j = 0; j < 4; ++j) {
            if (g == 0) tile.bias_gradients[LAST][class_of(j)] = totals.of_bias[j];
        }
        if (lane == 0) tile.loss = totals.loss, tile.correct = totals.correct;
    }
    __syncthreads();
    write_share(memory, gradients, partials + static_cast<long long>(blockIdx.x) * share, 1.0f / gradient_scale);
    if (with_totals && threadIdx.x < 2) {
        double sum = 0.0;
        for (const Tile& each : memory.tiles) sum += threadIdx.x == 0 ? each.loss : each.correct;
        block_totals[2 * blockIdx.x + threadIdx.x] = sum;
    }
}

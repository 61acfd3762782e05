// From the first hidden layer's sums to their gradient, through all further layers and back, for a large batch.
//
// A block keeps the weights of all further layers in shared memory. It takes a few tiles of images at a time through all layers
// and back; every layer overwrites the tile. A warp has 32 units of every layer for one tile. All warps of a block meet before
// and after tiles are overwritten. The library computes the weight gradients of all layers but the last.

#include "large_batch/chunks.cuh"
#include "large_batch/network.cuh"
#include "device/async_copies.cuh"
#include "device/bulk_copies.cuh"
#include "device/dependent.cuh"

// Whether the copy engine takes in the weights, else threads: from sm_90 on, where they are two halves.
#ifndef BY_ENGINE
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define BY_ENGINE 0
#else
#define BY_ENGINE (FACTOR_HALVES == 2)
#endif
#endif

#ifndef UNITS
#define UNITS 128
#endif
#ifndef TILES
#define TILES 2
#endif
#ifndef ROWS
#define ROWS 16
#endif
#ifndef EARLY
#define EARLY 0
#endif
constexpr int EDGES = ROWS / EDGE;
constexpr int CLASSES = 16;                     // with padding
constexpr int SLICE = 32, COLUMNS = SLICE / 8;  // units of a warp, in columns of eight
constexpr int PAIRS = 2 * EDGES * COLUMNS;      // of a lane's numbers
constexpr int SLICES = UNITS / SLICE, WARPS = TILES * SLICES, THREADS = WARPS * WARP;
constexpr int PAD = 8, STRIDE = UNITS + PAD, CLASS_STRIDE = CLASSES + PAD;  // of rows in shared memory: no bank conflicts
constexpr int WIDTH = HALVES * UNITS;                                       // numbers of a row in memory
constexpr int SUMS = EARLY ? 1 : HALVES;                                    // that add up to one
constexpr int OWN = (UNITS / EDGE + WARPS - 1) / WARPS;  // of the last layer's weight gradients, by 16 units
constexpr float LOWEST = -3.4e38f;
constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr float SUM_SCALE = 1.0f / (OUTPUT_SCALE * WEIGHT_SCALE);

using Sums = float[EDGES][COLUMNS][4];  // a warp's share of a tile, as c of products

struct Tile {
    alignas(16) Number numbers[HALVES][ROWS][STRIDE];
    alignas(16) Number dlogits[HALVES][ROWS][CLASS_STRIDE];
    unsigned passed[LAST][SLICES][WARP];  // a bit for each of a lane's numbers: whether ReLU passed it
    float bias_gradients[LAST + 1][UNITS];
    double losses[EDGES];
    int corrects[EDGES];
};

struct Memory {
    alignas(16) Number weights[FURTHER][HALVES][UNITS][STRIDE];  // at a multiple of 128 bytes: see bulk_copies.cuh
    Tile tiles[TILES];
    alignas(16) float biases[LAST + 1][UNITS];  // times OUTPUT_SCALE
    alignas(16) Number last_weights[HALVES][UNITS][CLASS_STRIDE];
    Barrier arrived[FURTHER];  // the weights
};

// Starts to copy ROW_COUNT rows of SIZE bytes from memory to rows of shared memory that are `stride` bytes apart.
template <int ROW_COUNT, int SIZE>
__device__ inline void copy_rows(void* to, int stride, const void* from) {
    constexpr int PIECES = SIZE / 16, TOGETHER = THREADS / PIECES;
    static_assert(THREADS % PIECES == 0);
    const int first = threadIdx.x / PIECES, piece = threadIdx.x % PIECES;
    auto* target = reinterpret_cast<float*>(static_cast<char*>(to) + first * stride) + 4 * piece;
    auto* source = static_cast<const float*>(from) + 4 * threadIdx.x;
#pragma unroll 8
    for (int row = 0; row < ROW_COUNT; row += TOGETHER) {
        if (ROW_COUNT % TOGETHER == 0 || row + first < ROW_COUNT)
            cp_async_16(target + row * stride / 4, source + row * SIZE / 4);
    }
}

// Starts to copy a further layer's weights, all of which lie in memory as in shared memory; a group of a thread's copies.
__device__ inline void copy_weights(Number (&to)[HALVES][UNITS][STRIDE], Barrier& arrived, const Number* from) {
    if constexpr (!BY_ENGINE) {
        for (int at = threadIdx.x; at < static_cast<int>(sizeof to) / 16; at += blockDim.x) {
            cp_async_16(reinterpret_cast<float*>(&to) + 4 * at, reinterpret_cast<const float*>(from) + 4 * at);
        }
    } else if (threadIdx.x == 0) {
        mbarrier_arrive_expect_tx(arrived, sizeof to);
        cp_async_bulk(&to, arrived, from, sizeof to);
    }
    cp_async_commit_group();
}

// A warp's sums of the first layer as they are in memory: pairs of float16, or two float32 for each half.
struct Fetched {
    unsigned rounded[2 * EDGES][COLUMNS];
    float2 exact[2 * EDGES][COLUMNS][SUMS];
};

// The sums of rows within the batch, else zeros; `sums` is the tile's first row.
__device__ inline void fetch(Fetched& next, const Number* sums, int unit, int rows) {
    const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    sums += g * WIDTH * SUMS + (unit + 2 * t) * HALVES;
#pragma unroll
    for (int i = 0; i < 2 * EDGES; ++i) {
        for (int column = 0; column < COLUMNS; ++column) {
            const Number* own = sums + 8 * i * WIDTH * SUMS + 8 * column * HALVES;
            const bool is_there = g + 8 * i < rows;
            if constexpr (HALVES == 1) {
                next.rounded[i][column] = is_there ? *reinterpret_cast<const unsigned*>(own) : 0;
            } else {
                for (int half = 0; half < SUMS; ++half) {
                    const auto* two = reinterpret_cast<const float2*>(own + half * 2 * UNITS);
                    next.exact[i][column][half] = is_there ? *two : make_float2(0.0f, 0.0f);
                }
            }
        }
    }
}

// c = the sums.
__device__ inline void take(Sums& c, const Fetched& fetched) {
    for (int i = 0; i < 2 * EDGES; ++i) {
        for (int column = 0; column < COLUMNS; ++column) {
            float2 sum;
            if constexpr (HALVES == 1) {
                sum = cvt_f32_f16x2(fetched.rounded[i][column]);
            } else {
                sum = fetched.exact[i][column][0];
                if constexpr (SUMS == 2) {
                    sum.x += fetched.exact[i][column][SUMS - 1].x, sum.y += fetched.exact[i][column][SUMS - 1].y;
                }
            }
            c[i / 2][column][i % 2 * 2] = sum.x, c[i / 2][column][i % 2 * 2 + 1] = sum.y;
        }
    }
}

// c = 16 R rows of a from `row` on, by 8 C columns of the weights b from `unit` on; if BACK, by b transposed.
template <bool BACK, int R, int C, int A, int B>
__device__ inline void multiply(float (&c)[R][C][4], const Number (&a)[HALVES][ROWS][A], const Number (&b)[HALVES][UNITS][B],
                                int row, int unit) {
    for (int i = 0; i < R * C * 4; ++i) c[i / 4 / C][i / 4 % C][i % 4] = 0.0f;
#pragma unroll 4
    for (int k = 0; k < A - PAD; k += EDGE) {
        unsigned left[R][HALVES][4];
        for (int i = 0; i < R * HALVES; ++i) {
            ldmatrix<false>(left[i / HALVES][i % HALVES], row_of(&a[i % HALVES][row + i / HALVES * EDGE][k], A, true));
        }
#pragma unroll
        for (int column = 0; column < C; column += 2) {
            const int other = unit + 8 * column;
            unsigned right[HALVES][4];
            for (int half = 0; half < HALVES; ++half) {
                ldmatrix<!BACK>(right[half], row_of(BACK ? &b[half][other][k] : &b[half][k][other], B, !BACK));
            }
            for (int i = 0; i < 2 * R; ++i) multiply_halves(c[i / 2][column + i % 2], left[i / 2], right, i % 2);
        }
    }
}

// The tile's numbers of a warp's units = c, once all warps have read what was there. Returns a bit for each number, if none is
// negative: whether it is not zero; halves are zeros of an output up to 2^-29. Bits 15 and 31 are those of the last pair.
__device__ inline unsigned overwrite(Tile& tile, const Sums& c, int unit) {
    const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    Number* own = &tile.numbers[0][g][unit + 2 * t];
    unsigned bits = 0;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2 * EDGES; ++i) {
        for (int column = 0; column < COLUMNS; ++column) {
            const float x = c[i / 2][column][i % 2 * 2], y = c[i / 2][column][i % 2 * 2 + 1];
            bits = bits >> 1 | (cvt_bf16x2(x, y) + 0x7fff7fffu & 0x80008000u);
            unsigned halves[HALVES];
            split(halves, x, y);
            for (int half = 0; half < HALVES; ++half) {
                *reinterpret_cast<unsigned*>(own + (half * ROWS + 8 * i) * STRIDE + 8 * column) = halves[half];
            }
        }
    }
    __syncthreads();
    return bits;
}

// Writes a warp's numbers of a tile, whose rows begin with `first`, to a layer's numbers in memory, rows within the batch.
__device__ inline void leave(const Tile& tile, Number* to, int unit, int first, int batch) {
    const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4, column = unit + 8 * t;
    const Number* own = &tile.numbers[0][g][column];
#pragma unroll
    for (int i = 0; i < 2 * EDGES; ++i) {
        const int row = first + g + 8 * i;
        if (row >= batch) continue;
        for (int half = 0; half < HALVES; ++half) {
            const long long place =
                EARLY ? place_in_chunks(half, row, column, UNITS, batch) : static_cast<long long>(row) * WIDTH + half * UNITS + column;
            *reinterpret_cast<int4*>(to + place) = *reinterpret_cast<const int4*>(own + (half * ROWS + 8 * i) * STRIDE);
        }
    }
}

// c = ReLU of c * scale + bias.
__device__ inline void activate(Sums& c, const float* bias, float scale) {
    for (int column = 0; column < COLUMNS; ++column) {
        const float2 two = *reinterpret_cast<const float2*>(bias + 8 * column + threadIdx.x % 4 * 2);
        for (int i = 0; i < 4 * EDGES; ++i) {
            float& number = c[i / 4][column][i % 4];
            number = relu_of(number * scale + (i % 2 == 0 ? two.x : two.y));
        }
    }
}

// c /= WEIGHT_SCALE, zero where ReLU was; adds the sum of each column to `sums`.
__device__ inline void pass_back(Sums& c, unsigned passed, float* sums) {
    const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    float own[2 * COLUMNS] = {};
#pragma unroll
    for (int i = 0; i < 2 * EDGES; ++i) {
        for (int column = 0; column < COLUMNS; ++column) {
            for (int j = 0; j < 2; ++j) {
                float& number = c[i / 2][column][i % 2 * 2 + j];
                number = passed >> (16 - PAIRS + i * COLUMNS + column + 16 * j) & 1 ? number * (1.0f / WEIGHT_SCALE) : 0.0f;
                own[2 * column + j] += number;
            }
        }
    }
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

// Softmax and the logits' gradients of 16 rows from `first` on; rows beyond the batch get zeros.
__device__ inline void differentiate(Tile& tile, const float (&c)[2][4], const float (&bias)[4], const int (&labels)[2],
                                     int first, int rows, float factor, bool with_totals, Totals& totals) {
    constexpr int classes = layer(LAST).units;
    const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    for (int i = 0; i < 2; ++i) {
        const int row = first + g + 8 * i;
        const bool is_row = row < rows;
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
                *reinterpret_cast<unsigned*>(&tile.dlogits[half][row][8 * column + 2 * t]) = halves[half];
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
        for (int edge = 0; edge < TILES * EDGES; ++edge) {
            const Tile& tile = memory.tiles[edge / EDGES];
            const int row = edge % EDGES * EDGE;
            unsigned a[HALVES][4], b[HALVES][4];
            for (int half = 0; half < HALVES; ++half) {
                ldmatrix<true>(a[half], row_of(&tile.numbers[half][row][unit], STRIDE, false));
                ldmatrix<true>(b[half], row_of(&tile.dlogits[half][row][0], CLASS_STRIDE, true));
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
            // The last layer's are there for each sixteen of rows.
            const int next = l == LAST ? CLASSES : UNITS, end = l == LAST ? EDGES * CLASSES : UNITS;
            float sum = 0.0f;
            for (const Tile& tile : memory.tiles) {
                for (int at = unit; at < end; at += next) sum += tile.bias_gradients[l][at];
            }
            share[unit] = sum * scale;
        }
        share += layer(l).units;
    }
}

// hidden_layers: outputs of each hidden layer = ReLU(sums + bias), where further layers' sums = outputs @ weights; logits
// likewise; dsums = the gradients of the mean cross-entropy by all sums, times gradient_scale; and each block's share of the
// gradients of the last weights and of all biases, and of the totals.
//   sums          (batch, HALVES * UNITS)            u16  in: bits of float16; with two halves (batch, 2, UNITS) float32, added
//   weights       (FURTHER, HALVES, UNITS, UNITS + 8)  u16  in: bits of float16, the further layers' weights; zeros beyond
//   last_weights  (HALVES, UNITS, CLASSES)           u16  in: the same of the last layer
//   biases        (LAST + 1, UNITS)                  f32  in: all layers', times 16; zeros beyond
//   labels        (batch,)                           i32  in, each 0 <= label < classes
//   outputs       (FURTHER, batch, HALVES * UNITS)   u16  out: bits of float16, times 16; not the last hidden layer's
//   dsums         (LAST, batch, HALVES * UNITS)      u16  out: bits of float16
//   partials      (blocks, share)                    f32  out: gradients of the last weights, their bias, the hidden biases
//   block_totals  (blocks, 2)                        f64  out: summed cross-entropy and number correct, if with_totals
// Kind:   fused.
// Launch: 1-D, at most batch / ROWS blocks, rounded up, of THREADS threads; sizeof(Memory) dynamic shared memory; compiled with
//   UNITS, LAYERS, ROWS, TILES, FACTOR_HALVES and EARLY. If EARLY, sums are (batch, UNITS), and outputs and dsums in chunks, (..,
//   HALVES, UNITS / 16, batch / 16, 256); other tensors are read before the wait.
// Early:  weights, last_weights, biases, labels.
// Needs:  sm_80; FURTHER >= 1; ROWS 16 or 32; UNITS a multiple of 32 from 64 on, all hidden units <= UNITS <= 256; classes <= 16; gradient_scale a power of two.
// Order:  each sum in a fixed order for the same number of blocks and tiles; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS, 1) hidden_layers(const unsigned short* sums, const unsigned short* weights, const unsigned short* last_weights,
                const float* biases, const int* labels, unsigned short* outputs, unsigned short* dsums, float* partials,
                double* block_totals, int batch, float gradient_scale, int with_totals) {
    extern __shared__ float4 dynamic[];
    Memory& memory = *reinterpret_cast<Memory*>(dynamic);
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4;
    const int slice = warp % SLICES, unit = SLICE * slice;
    Tile& tile = memory.tiles[warp / SLICES];
    const int apart = gridDim.x * ROWS;  // of a block's tiles
    int first = (blockIdx.x + warp / SLICES * gridDim.x) * ROWS;
    Fetched next;
    if constexpr (!EARLY) {
        griddepcontrol_wait();
        fetch(next, sums + static_cast<long long>(first) * WIDTH * SUMS, unit, batch - first);
    }
    copy_rows<LAST + 1, 4 * UNITS>(memory.biases, sizeof memory.biases[0], biases);
    cp_async_commit_group();
    if constexpr (BY_ENGINE) {
        if (threadIdx.x == 0) {
            for (Barrier& arrived : memory.arrived) mbarrier_init(arrived, 1);
            fence_mbarrier_init();
        }
        __syncthreads();
    }
    for (int l = 0; l < FURTHER; ++l) {
        copy_weights(memory.weights[l], memory.arrived[l], weights + l * HALVES * UNITS * STRIDE);
    }
    copy_rows<HALVES * UNITS, 2 * CLASSES>(memory.last_weights, 2 * CLASS_STRIDE, last_weights);
    cp_async_commit_group();
    if constexpr (EARLY) {
        griddepcontrol_wait();
        fetch(next, sums + static_cast<long long>(first) * WIDTH * SUMS, unit, batch - first);
    }
    griddepcontrol_launch_dependents();
    int share = layer(LAST).inputs * layer(LAST).units;
#pragma unroll
    for (int l = 0; l <= LAST; ++l) {
        tile.bias_gradients[l][unit + lane] = 0.0f;
        share += layer(l).units;
    }
    const float factor = gradient_scale / static_cast<float>(batch);
    const long long layer_apart = static_cast<long long>(EARLY ? (batch + EDGE - 1) / EDGE * EDGE : batch) * WIDTH;
    float gradients[OWN][2][4] = {};
    Totals totals = {};
    for (int round = blockIdx.x * ROWS; round < batch; round += TILES * apart, first += TILES * apart) {
        const int rows = batch - first;  // zero or less: a tile without images
        int own_labels[2];  // of a sixteen of rows, if it has one
        for (int i = 0; i < 2; ++i) {
            const int row = EDGE * slice + g + 8 * i;
            own_labels[i] = row < min(rows, ROWS) ? labels[first + row] : 0;
        }
        cp_async_wait_group<FURTHER + 1>();
        __syncthreads();  // biases are there
        Sums c;
        take(c, next);
        activate(c, &memory.biases[0][unit], OUTPUT_SCALE);
        tile.passed[0][slice][lane] = overwrite(tile, c, unit);
#pragma unroll 1
        for (int l = 0; l < FURTHER; ++l) {
            leave(tile, outputs + l * layer_apart, unit, first, batch);
            if (l == 0) {
                cp_async_wait_group<FURTHER>();
                __syncthreads();  // by threads, too
            }
            if constexpr (BY_ENGINE) mbarrier_wait_parity(memory.arrived[l], 0);  // this layer's weights are there
            multiply<false>(c, tile.numbers, memory.weights[l], 0, unit);
            cp_async_wait_all();
            activate(c, &memory.biases[l + 1][unit], 1.0f / WEIGHT_SCALE);
            tile.passed[l + 1][slice][lane] = overwrite(tile, c, unit);
        }
        if (slice < EDGES) {
            float logits[1][2][4], bias[4];
            for (int j = 0; j < 4; ++j) bias[j] = memory.biases[LAST][class_of(j)] * (1.0f / OUTPUT_SCALE);
            multiply<false>(logits, tile.numbers, memory.last_weights, EDGE * slice, 0);
            differentiate(tile, logits[0], bias, own_labels, EDGE * slice, rows, factor, with_totals != 0, totals);
        }
        __syncthreads();
        fetch(next, sums + (first + static_cast<long long>(TILES) * apart) * WIDTH * SUMS, unit, rows - TILES * apart);
        add_weight_gradients(gradients, memory);
        multiply<true>(c, tile.dlogits, memory.last_weights, 0, unit);
#pragma unroll 1
        for (int l = FURTHER;; --l) {
            pass_back(c, tile.passed[l][slice][lane], &tile.bias_gradients[l][unit]);
            overwrite(tile, c, unit);
            leave(tile, dsums + l * layer_apart, unit, first, batch);
            if (l == 0) break;
            multiply<true>(c, tile.numbers, memory.weights[l - 1], 0, unit);
        }
    }
    if (slice < EDGES) {
        for (int flip = 4; flip < WARP; flip *= 2) {
            for (int j = 0; j < 4; ++j) totals.of_bias[j] += __shfl_xor_sync(ALL_LANES, totals.of_bias[j], flip);
            totals.loss += __shfl_xor_sync(ALL_LANES, totals.loss, flip);
            totals.correct += __shfl_xor_sync(ALL_LANES, totals.correct, flip);
        }
        for (int j = 0; j < 4 && g == 0; ++j) tile.bias_gradients[LAST][CLASSES * slice + class_of(j)] = totals.of_bias[j];
        if (lane == 0) tile.losses[slice] = totals.loss, tile.corrects[slice] = totals.correct;
    }
    __syncthreads();
    write_share(memory, gradients, partials + static_cast<long long>(blockIdx.x) * share, 1.0f / gradient_scale);
    if (with_totals && threadIdx.x < 2) {
        double sum = 0.0;
        for (const Tile& each : memory.tiles) {
            for (int edge = 0; edge < EDGES; ++edge) sum += threadIdx.x == 0 ? each.losses[edge] : each.corrects[edge];
        }
        block_totals[2 * blockIdx.x + threadIdx.x] = sum;
    }
}

// The gradients of a batch of some hundred images, and the update of every parameter by them, by a kernel that starts early: its
// images and weights are on the chip by the time that the kernel before has the gradients of the sums.
//
// A block has IN inputs by OUT units of one hidden layer, for all images. Its warps share out the images, in chunks: each brings
// in what it multiplies. Other blocks, or the same, update by the shares.

#include "large_batch/chunks.cuh"
#include "large_batch/shares.cuh"
#include "device/bulk_copies.cuh"
#include "device/dependent.cuh"

#ifndef UNITS
#define UNITS 128
#endif
constexpr int IN = 32, OUT = 32;                                   // stages/large_batch/layout.py
constexpr int A = IN / EDGE, O = OUT / EDGE, WIDE = UNITS / EDGE;  // chunks
constexpr int LEFTS = FURTHER > 0 ? HALVES : 1;                    // halves of a left factor; an image has one
constexpr int OWN = (2 * A * O + WARPS - 1) / WARPS;               // halves of chunks whose weights a warp updates

// A block's part of a layer's weights, in chunks.
struct Part {
    Layer layer;
    int index, row, column, rows;

    __device__ explicit Part(int features) : layer(::layer(0)), index(0) {
        constexpr int columns = UNITS / OUT, rows_of_further = (WIDE + A - 1) / A;
        int all = features / EDGE, at = blockIdx.x;
        const int first = (all + A - 1) / A * columns;
        if (FURTHER > 0 && at >= first) {
            at -= first, all = WIDE;
            index = 1 + at / (rows_of_further * columns), at %= rows_of_further * columns;
#pragma unroll
            for (int l = 1; l < LAST; ++l) {
                if (index >= l) layer = ::layer(l);
            }
        }
        row = at / columns * A, column = at % columns * O, rows = min(all - row, A);
    }

    // The first of a lane's two columns, and its row, in the i-th half chunk of a warp.
    __device__ int column_of(int i) const {
        return column * EDGE + (WARPS * i + static_cast<int>(threadIdx.x) / WARP) % (2 * O) * 8 + threadIdx.x % 4 * 2;
    }
    __device__ int row_of(int i) const {
        return row * EDGE + (WARPS * i + static_cast<int>(threadIdx.x) / WARP) / (2 * O) * EDGE + threadIdx.x % WARP / 4;
    }
    __device__ bool has(int row, int column) const { return row < layer.inputs && column < layer.units; }
};

// A parameter whose gradient is in shares.
__device__ inline float shared_before(const float* parameters, int at) {
    return at >= 0 && at < Shared::count() ? __ldcg(parameters + Shared::place(at)) : 0.0f;
}

// update_by_products: parameters -= rate * their gradients; halves = weights * 64 as float16, with two halves also the rest as
// float16. If with_totals, adds block_totals to totals. For a batch of 0 without shares it only writes the halves.
//   images        (batch / 16, features / 16, 256)             u16  in: bits of float16, in chunks; batch rounded up
//   outputs       (FURTHER, HALVES, UNITS / 16, batch / 16, 256)  u16  in: the same, times 16
//   dsums         (LAST, HALVES, UNITS / 16, batch / 16, 256)  u16  in: the same, times gradient_scale; zeros beyond the batch
//   partials      (shares, share)                          f32  in: of the last weights, their bias, the hidden biases
//   parameters    (all,)                                   f32  in, out: by LAYERS
//   halves        (HALVES, UNITS / 16, features / 16, 256)     u16  out: bits of float16, in chunks, where there are weights
//   further_halves  (FURTHER, HALVES, UNITS, UNITS + 8)    u16  out: the same, not in chunks
//   by_class      (HALVES, CLASSES, UNITS)                 u16  out: the same of the last layer
//   by_unit       (HALVES, UNITS, CLASSES)                 u16  out: the same
//   biases        (LAST + 1, UNITS)                        f32  out: all layers', times 16, where there are units
//   block_totals  (shares, 2)                              f64  in
//   totals        (2,)                                     f64  in, out
// Kind:   update.
// Launch: 1-D, THREADS threads a block; `parts` blocks, one for each IN by OUT weights of each hidden layer, rounded up, and any
//   number behind them for the shares, which otherwise all share out; dynamic shared memory for batch / 16 times LEFTS * A +
//   HALVES * O chunks, and for WARPS * IN * OUT float32; compiled with LAYERS, UNITS and FACTOR_HALVES.
// Early:  images, parameters.
// Needs:  sm_90; features >= inputs, a multiple of 16; UNITS a multiple of OUT, no less than all units; classes <= 16.
// Order:  each sum in a fixed order; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS, 2) update_by_products(const unsigned short* images, const unsigned short* outputs, const unsigned short* dsums,
                   const float* partials, float* parameters, unsigned short* halves, unsigned short* further_halves,
                   unsigned short* by_class, unsigned short* by_unit, float* biases, const double* block_totals, double* totals,
                   int batch, int features, int parts, int shares, float gradient_scale, float rate, int with_totals) {
    extern __shared__ float4 dynamic[];
    __shared__ Barrier arrived[WARPS];
    __shared__ float sums[WARPS][WARP];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int first = gridDim.x > parts ? parts : 0, next = (gridDim.x - first) * WARP;  // of the shares
    int at = (blockIdx.x - first) * WARP + lane;
    float before = shared_before(parameters, at);
    const auto update_shares = [&] {
        if (with_totals && blockIdx.x == first && warp == 1) add_totals(block_totals, shares, totals);
        for (;; at += next) {
            update_shared({parameters, biases, by_class, by_unit, UNITS}, sums, at, before, partials, shares, rate);
            if (at - lane + next >= Shared::count()) break;
            __syncthreads();  // before sums are overwritten
            before = shared_before(parameters, at + next);
        }
    };
    if (blockIdx.x >= parts) {
        griddepcontrol_wait();
        griddepcontrol_launch_dependents();
        update_shares();
        return;
    }
    const int chunks = (batch + EDGE - 1) / EDGE;
    const Part part(features);
    const Span own(chunks, WARPS);
    const int size = own.size();
    const bool is_first = FURTHER == 0 || part.index == 0;
    Number* const left = reinterpret_cast<Number*>(dynamic) + own.begin * LEFTS * A * CHUNK;
    Number* const right = reinterpret_cast<Number*>(dynamic) + (chunks * LEFTS * A + own.begin * HALVES * O) * CHUNK;
    if (lane == 0) {
        mbarrier_init(arrived[warp], 1 + is_first);
        fence_mbarrier_init();
        if (is_first) {
            mbarrier_arrive_expect_tx(arrived[warp], size * part.rows * CHUNK * 2);
            for (int k = 0; k < size; ++k) {
                const long long from = static_cast<long long>(own.begin + k) * (features / EDGE) + part.row;
                cp_async_bulk(left + k * A * CHUNK, arrived[warp], images + from * CHUNK, part.rows * CHUNK * 2);
            }
        }
    }
    float weights[OWN][2][2];
#pragma unroll
    for (int i = 0; i < 4 * OWN; ++i) {
        const int row = part.row_of(i / 4) + i / 2 % 2 * 8, column = part.column_of(i / 4) + i % 2;
        weights[i / 4][i / 2 % 2][i % 2] =
            part.has(row, column) ? __ldcg(parameters + part.layer.weights + row * part.layer.units + column) : 0.0f;
    }
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
    if (lane == 0) {
        const int lefts = is_first ? 0 : HALVES * part.rows;
        mbarrier_arrive_expect_tx(arrived[warp], (lefts + HALVES * O) * size * CHUNK * 2);
        for (int i = 0; i < HALVES * O && size > 0; ++i) {
            const int from = ((part.index * HALVES + i / O) * WIDE + part.column + i % O) * chunks + own.begin;
            cp_async_bulk(right + i * size * CHUNK, arrived[warp], dsums + static_cast<long long>(from) * CHUNK, size * CHUNK * 2);
        }
        for (int i = 0; i < lefts && size > 0; ++i) {
            const int half = i / part.rows, j = i % part.rows;
            const int from = (((part.index - 1) * HALVES + half) * WIDE + part.row + j) * chunks + own.begin;
            cp_async_bulk(left + (half * A + j) * size * CHUNK, arrived[warp], outputs + static_cast<long long>(from) * CHUNK, size * CHUNK * 2);
        }
    }
    if (first == 0) update_shares();
    mbarrier_wait_parity(arrived[warp], 0);
    float c[A][O][2][4] = {};
    const int next_row = is_first ? 1 : size, next_k = is_first ? A : 1;
    for (int k = 0; k < size; ++k) {
        unsigned b[HALVES][O][4];
#pragma unroll
        for (int i = 0; i < HALVES * O; ++i) load_right(b[i / O][i % O], right + (i * size + k) * CHUNK);
#pragma unroll
        for (int i = 0; i < A; ++i) {
            if (i >= part.rows) continue;
            unsigned a[4];
            if (LEFTS == 2 && !is_first) {
                load_left<true>(a, left + ((A + i) * size + k) * CHUNK);
                for (int o = 0; o < O; ++o) multiply_chunk(c[i][o], a, b[0][o]);
            }
            load_left<true>(a, left + (i * next_row + k * next_k) * CHUNK);
            for (int half = HALVES - 1; half >= 0; --half) {
                for (int o = 0; o < O; ++o) multiply_chunk(c[i][o], a, b[half][o]);
            }
        }
    }
    const float by = rate / gradient_scale * (is_first ? 1.0f : 1.0f / OUTPUT_SCALE);
    add_up<WARPS>(c, dynamic, [&](int i, const float4& sum) {
        for (int j = 0; j < 2; ++j) {
            const int row = part.row_of(i) + 8 * j, column = part.column_of(i);
            if (!part.has(row, column)) continue;
            const bool is_second = part.has(row, column + 1);
            const float first = weights[i][j][0] - by * (j == 0 ? sum.x : sum.z);
            const float second = is_second ? weights[i][j][1] - by * (j == 0 ? sum.y : sum.w) : 0.0f;
            float* to = parameters + part.layer.weights + row * part.layer.units + column;
            to[0] = first;
            if (is_second) to[1] = second;
            unsigned both[HALVES];
            split(both, first * WEIGHT_SCALE, second * WEIGHT_SCALE);
            for (int half = 0; half < HALVES; ++half) {
                Number* place = is_first ? halves + ((half * WIDE + column / EDGE) * (features / EDGE) + row / EDGE) * CHUNK + place_in_chunk(row, column)
                                         : further_halves + (((part.index - 1) * HALVES + half) * UNITS + row) * (UNITS + PAD) + column;
                *reinterpret_cast<unsigned*>(place) = both[half];
            }
        }
    });
}

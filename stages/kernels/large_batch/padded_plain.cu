// What plain products of padded layers leave to do: ReLU's mask, rounded weights, and parameters to matrices and back.
#include "large_batch/padded.cuh"

constexpr int EACH = 8;  // numbers of a thread: 16 bytes of halves

// mask_padded: dsums = dsums where outputs are above 0, in the first `units` columns, else 0.
//   outputs  (rows, columns)  u16  in: bits of float16
//   dsums    (rows, columns)  u16  in, out: bits of float16
// Kind:   layer.
// Launch: 1-D, THREADS threads a block, a thread for each EACH numbers; compiled with LAYERS and FACTOR_HALVES of 1.
// Needs:  sm_80; columns a multiple of EACH; rows * columns <= 2^30.
// Order:  no sums; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS) mask_padded(const uint4* outputs, uint4* dsums, int rows, int columns, int units) {
    const int at = blockIdx.x * THREADS + threadIdx.x, across = columns / EACH;
    if (at >= rows * across) return;
    const uint4 out = outputs[at], in = dsums[at];
    const unsigned masks[] = {out.x, out.y, out.z, out.w};
    unsigned sums[] = {in.x, in.y, in.z, in.w};
    const int first = at % across * EACH;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const bool is_positive = static_cast<short>(masks[i / 2] >> 16 * (i % 2)) > 0;  // of either sign, 0 is not
        if (!is_positive || first + i >= units) sums[i / 2] &= i % 2 ? 0xffffu : 0xffff0000u;
    }
    dsums[at] = make_uint4(sums[0], sums[1], sums[2], sums[3]);
}

// round_padded: halves = weights as float16. If with_totals, adds block_totals to totals.
//   weights       (numbers,)    f32  in
//   halves        (numbers,)    u16  out: bits of float16
//   block_totals  (blocks, 2)   f64  in
//   totals        (2,)          f64  in, out
// Kind:   update.
// Launch: 1-D, THREADS threads a block, a thread for each EACH numbers; compiled with LAYERS and FACTOR_HALVES of 1.
// Needs:  sm_80; numbers a multiple of EACH, and <= 2^30.
// Order:  totals in a fixed order; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS) round_padded(const float* weights, uint4* halves, const double* block_totals,
                                                                   double* totals, int numbers, int blocks, int with_totals) {
    if (with_totals && blockIdx.x == 0 && threadIdx.x < WARP) add_totals(block_totals, blocks, totals);
    const int at = blockIdx.x * THREADS + threadIdx.x;
    if (at >= numbers / EACH) return;
    const float4* eight = reinterpret_cast<const float4*>(weights) + 2 * at;
    const float4 a = eight[0], b = eight[1];
    halves[at] = make_uint4(cvt_f16x2(a.x, a.y), cvt_f16x2(a.z, a.w), cvt_f16x2(b.x, b.y), cvt_f16x2(b.z, b.w));
}

// move_padded: weights = parameters; or, if `back`, parameters = weights.
//   parameters  (all,)         f32  in, out: by LAYERS
//   weights     (all padded,)  f32  in, out: where there are parameters: of each layer (rows_of, columns_of)
// Kind:   other.
// Launch: 1-D, THREADS threads a block, a thread for each parameter; compiled with LAYERS and FACTOR_HALVES of 1.
// Needs:  sm_80; padded numbers <= 2^30.
// Order:  no sums; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS) move_padded(float* parameters, float* weights, int back) {
    int at = blockIdx.x * THREADS + threadIdx.x;
#pragma unroll
    for (int l = 0; l <= LAST; ++l) {
        constexpr auto count = [](const Layer& own) { return (own.inputs + 1) * own.units; };
        if (at >= 0 && at < count(layer(l))) {
            const int row = at / layer(l).units, column = at % layer(l).units;
            float& parameter = parameters[row == layer(l).inputs ? layer(l).bias + column : layer(l).weights + at];
            float& weight = weights[begin_of(l) + row * columns_of(l) + column];
            if (back) parameter = weight;
            else weight = parameter;
        }
        at -= count(layer(l));
    }
}

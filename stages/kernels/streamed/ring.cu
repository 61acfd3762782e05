// A layer's products through a ring of tiles of its weights. Weights are in the order of ring.cuh, or in the planes of
// weight_planes.cuh; other matrices are row-major, dense. Diagrams: ring.cuh, ring_back.cuh and ring_forward.cuh.
#include "tiles/tensor_arithmetic.cuh"
#include "streamed/ring_back.cuh"
#include "streamed/ring_forward.cuh"
#include "streamed/ring_warpgroups.cuh"
#include "streamed/weight_planes.cuh"

#ifndef IS_EXACT
#define IS_EXACT 1  // each float32 in two parts of tf32; 0: products in bfloat16
#endif
#ifndef IN_PLANES
#define IN_PLANES 0  // 1: weights in two planes, of which forward reads one; only in bfloat16
#endif
#ifndef BY_WARPGROUPS
#define BY_WARPGROUPS 0  // 1: exact products backward by warpgroups; needs sm_90a
#endif

constexpr bool ARE_DIVIDED = IS_EXACT || MOST_ROWS > ROWS_AT_ONCE;  // a warp's parts backward

#if IS_EXACT
using Arithmetic = TwoTf32<false>;
#else
using Arithmetic = BFloat16;
#endif
#if IN_PLANES
using Tile = PlaneTile;
using Weights = PlaneWeights;
#else
using Tile = FloatTile;
using Weights = FloatWeights;
#endif

constexpr int FORWARD_TEAMS = IS_EXACT ? 1 : 2;
constexpr int BACK_THREADS = (BACK_TEAMS * (BY_WARPGROUPS ? GROUP_WARPS : TEAM_WARPS) + 2) * WARP;
constexpr int FORWARD_THREADS = (FORWARD_TEAMS * TEAM_WARPS + 1) * WARP;

// ring_back: a layer's backward pass and update in one pass over its weights. dinputs = doutputs @ weights^T where the mask is
// set, else 0; then weights -= learning_rate * inputs^T @ doutputs and bias -= learning_rate * (column sums of doutputs).
//   inputs    (batch, fan_in)      f32  in
//   doutputs  (batch, fan_out)     f32  in
//   weights   (fan_in, fan_out)    f32  in, out
//   bias      (fan_out,)           f32  in, out
//   dinputs   (batch, fan_in)      f32  out
//   mask      (batch, mask_bytes)  u8   in; bit col % 8 of byte col / 8: where the inputs passed their ReLU
// With mask_bytes = 0 dinputs are neither computed nor written.
// Kind:   gemm.
// Launch: grid (blocks, tiles of 64 inputs), the blocks of a row a cluster, or without dinputs alone; 18 warps, by
//   warpgroups 10; shared memory by back_launch in stages/streamed/ring_gemm.py, 227 KB at most.
// Needs:  sm_90; batch <= MOST_ROWS, fan_in a multiple of 16, fan_out of 64, blocks <= fan_out / 64, each matrix aligned to 16
//   bytes and under 2^30 elements.
// Order:  each warp adds its share of outputs in the order of the circle, then warps and blocks in order; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(BACK_THREADS, 1) ring_back(
    const float* inputs, const float* doutputs, float* weights, float* bias, float* dinputs, const unsigned char* mask,
    int batch, int fan_in, int fan_out, int mask_bytes, float learning_rate) {
    extern __shared__ __align__(128) float memory[];
    const BackLayer layer = {inputs, doutputs, weights, bias, {batch, fan_in, fan_out}, learning_rate, 0};
    const Product<float> product = {doutputs, weights, dinputs, bias, const_cast<unsigned char*>(mask), batch, fan_in, fan_out,
                                    mask_bytes, RELU_BACKWARD, 1.0f, 0.0f, 1.0f};
#if BY_WARPGROUPS
    mask_bytes > 0 ? ring_back_by_groups<true>(layer, product, memory) : ring_back_by_groups<false>(layer, product, memory);
#else
    ring_back<Arithmetic, Weights, ARE_DIVIDED>(layer, product, memory);
#endif
}

// ring_forward: a layer forward. out = inputs @ weights + bias, with ReLU if fusion is 2, without if it is 1.
//   inputs         (batch, fan_in)                   f32  in; not read if are_in_panels is not 0
//   input_panels   (fan_in / 64 rounded up, R, 80)   f32  in; the same in panels, R = MOST_ROWS; zeros beyond the batch
//   weights        (fan_in, fan_out)                 f32  in
//   out            (batch, fan_out)                  f32  out
//   output_panels  (fan_out / 64, R, 80)             f32  out; the same in panels, not written if into_panels is 0
//   bias           (fan_out,)                        f32  in
//   mask           (batch, mask_bytes)               u8   out; bit col % 8 of byte col / 8: where an output passed its ReLU
// Kind:   gemm.
// Launch: grid (blocks, tiles of 64 outputs), the blocks of a column a cluster; 8 FORWARD_TEAMS + 1 warps; shared memory
//   by forward_launch there.
// Needs:  sm_90; batch <= MOST_ROWS, fan_in a multiple of 16, fan_out of 64, blocks <= fan_in / 64 rounded up, each matrix aligned
//   to 16 bytes and under 2^30 elements.
// Order:  each warp adds its share of inputs in the order of the circle, then warps and blocks in order; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(FORWARD_THREADS, 1) ring_forward(
    const float* inputs, const float* input_panels, const float* weights, float* out, float* output_panels, const float* bias,
    unsigned char* mask, int batch, int fan_in, int fan_out, int mask_bytes, int fusion, int are_in_panels, int into_panels) {
    extern __shared__ __align__(128) float memory[];
    const Product<float> product = {inputs, weights, out, const_cast<float*>(bias), mask, batch, fan_out, fan_in,
                                    mask_bytes, fusion, 1.0f, 0.0f, 1.0f};
    ring_forward<Arithmetic, Tile, FORWARD_TEAMS>(product, are_in_panels ? input_panels : nullptr,
                                                  into_panels ? output_panels : nullptr, memory);
}

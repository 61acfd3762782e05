// A layer's products with its weights streamed, in bfloat16. All matrices are row-major, dense. Diagrams: streamed_back.cuh and
// streamed_forward.cuh.
#include "tiles/tensor_arithmetic.cuh"
#include "streamed/streamed_back.cuh"
#include "streamed/streamed_forward.cuh"

// streamed_back_bf16: a layer's backward pass and update in one pass over its weights. dinputs = doutputs @
// weights^T where the mask is set, else 0; then weights -= learning_rate * inputs^T @ doutputs and bias -= learning_rate *
// (column sums of doutputs).
//   inputs    (batch, fan_in)      f32  in
//   doutputs  (batch, fan_out)     f32  in
//   weights   (fan_in, fan_out)    f32  in, out
//   bias      (fan_out,)           f32  in, out
//   dinputs   (batch, fan_in)      f32  out
//   mask      (batch, mask_bytes)  u8   in; bit col % 8 of byte col / 8: where the inputs passed their ReLU
// Of every 16 patches of weights `kept` stay in L2 (weight_stream.cuh). With mask_bytes = 0 dinputs are neither computed nor
// written.
// Kind:   gemm.
// Launch: grid (1, tiles of 32 groups inputs) of clusters, or of blocks; 1 or 2 groups, 4 warps for each; shared memory
//   27,648 bytes and 38,912 a group.
// Needs:  sm_80 (clusters: sm_90); batch <= 32, fan_out a multiple of 16, each matrix aligned to 16 bytes and under 2^30
//   elements.
// Order:  each warp adds its share of outputs from first to last, then warps and blocks in order; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(MOST_WARPS * WARP, RESIDENT) streamed_back_bf16(
    const float* inputs, const float* doutputs, float* weights, float* bias, float* dinputs, const unsigned char* mask,
    int batch, int fan_in, int fan_out, int mask_bytes, int groups, int kept, float learning_rate) {
    extern __shared__ __align__(128) float memory[];
    const BackLayer layer = {inputs, doutputs, weights, bias, {batch, fan_in, fan_out}, learning_rate, kept};
    const Product<float> product = {doutputs, weights, dinputs, bias, const_cast<unsigned char*>(mask), batch, fan_in, fan_out,
                                    mask_bytes, RELU_BACKWARD, 1.0f, 0.0f, 1.0f};
    streamed_back<BFloat16>(layer, product, groups, memory);
}

// streamed_forward_bf16: a layer forward, its weights copied ahead. out = inputs @ weights + bias, with ReLU if fusion is 2,
// without if it is 1.
//   inputs    (batch, fan_in)      f32  in
//   weights   (fan_in, fan_out)    f32  in
//   out       (batch, fan_out)     f32  out
//   bias      (fan_out,)           f32  in
//   mask      (batch, mask_bytes)  u8   out; bit col % 8 of byte col / 8: where an output passed its ReLU
// Of every 16 patches of weights `kept` stay in L2 (weight_stream.cuh).
// Kind:   gemm.
// Launch: grid (1, tiles of 64 outputs) of clusters, or of blocks; 8 warps; shared memory 110,592 bytes.
// Needs:  sm_80 (clusters: sm_90); batch <= 32, fan_in and fan_out multiples of 4, each matrix aligned to 16 bytes and
//   under 2^30 elements.
// Order:  each warp adds its share of inputs from first to last, then warps and blocks in order; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(MOST_WARPS * WARP) streamed_forward_bf16(
    const float* inputs, const float* weights, float* out, const float* bias, unsigned char* mask, int batch, int fan_in,
    int fan_out, int mask_bytes, int fusion, int kept) {
    extern __shared__ __align__(128) float memory[];
    const Product<float> product = {inputs, weights, out, const_cast<float*>(bias), mask, batch, fan_out, fan_in,
                                    mask_bytes, fusion, 1.0f, 0.0f, 1.0f};
    streamed_forward<BFloat16>(product, kept, memory);
}

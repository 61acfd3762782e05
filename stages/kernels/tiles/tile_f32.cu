// Matrix products by tiles, in float32. All matrices are row-major, dense.
#include "tiles/output_tiles.cuh"

// tile_product_f32: small tiles of out = alpha * op(a) @ op(b), with k split over warps and blocks. Then a fusion: 0 adds
// beta * out, 1 adds bias, 2 adds bias and applies ReLU, 3 applies ReLU's gradient by the mask, 4 adds beta * out and sets
// bias = alpha * (column sums of b) + beta * bias.
//   a        (m, k), or (k, m) for transposes 1       f32  in
//   b        (k, n), or (n, k) for transposes 2       f32  in
//   out      (m, n)                                   f32  out; also in unless beta is 0, which reads nothing
//   bias     (n,), or any without one                 f32  out; only in for fusion 1 and 2
//   mask     (m, mask_bytes), or any without a ReLU   u8   out; in for fusion 3; bit col % 8 of byte col / 8
// Kind:   gemm.
// Launch: grid (tiles down m rows, m + 1 for fusion 4; tiles along n columns) of clusters, or of blocks; tiles are 16 x 16
//   outputs for shape 0, 32 x 32 for 1; blocks of 1 to 8 warps. scale is not used.
// Needs:  any architecture (clusters: sm_90); m, n, k >= 1; each matrix under 2^30 elements; fusion 4 with transposes 1.
// Order:  each warp adds its share of k from first to last, then warps and blocks in order; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(MOST_WARPS * WARP, RESIDENT) tile_product_f32(
    const float* a, const float* b, float* out, float* bias, unsigned char* mask, int m, int n, int k, int mask_bytes,
    int transposes, int shape, int fusion, float alpha, float beta, float scale) {
    tile_product<Float32>(Product<float>{a, b, out, bias, mask, m, n, k, mask_bytes, fusion, alpha, beta, scale}, shape,
                          transposes);
}

// Matrix products by tiles, on tensor cores: a of bytes, b of float32 in two halves of tf32. All matrices are row-major, dense.
#include "tiles/tensor_arithmetic.cuh"

// tile_product_u8: as tile_product_split, but a holds pixels, 256ths, exact in one part of tf32.
//   a        (m, k), or (k, m) for transposes 1       u8   in
//   b        (k, n), or (n, k) for transposes 2       f32  in
//   out      (m, n)                                   f32  out; also in unless beta is 0, which reads nothing
//   bias     (n,), or any without one                 f32  out; only in for fusion 1 and 2
//   mask     (m, mask_bytes), or any without a ReLU   u8   out; in for fusion 3; bit col % 8 of byte col / 8
// Kind:   gemm.
// Launch: as tile_product_f32, by shape, transposes, fusion, m, n, k, mask_bytes, alpha and beta; scale is not used.
// Needs:  sm_80 (clusters: sm_90); m, n, k >= 1; each matrix under 2^30 elements; fusion 4 with transposes 1.
// Order:  each warp adds its share of k from first to last, then warps and blocks in order; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(MOST_WARPS * WARP) tile_product_u8(
    const unsigned char* a, const float* b, float* out, float* bias, unsigned char* mask, int m, int n, int k, int mask_bytes,
    int transposes, int shape, int fusion, float alpha, float beta, float scale) {
    tile_product<TwoTf32<true>>(Product<unsigned char>{a, b, out, bias, mask, m, n, k, mask_bytes, fusion, alpha, beta, scale},
                          shape, transposes);
}

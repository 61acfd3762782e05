// The naive matrix product with a choice: a thread computes TILE_ROWS x TILE_COLS outputs. Row-major, dense, float32.

#ifndef TILE_COLS  // stages/shapes/launch_shapes.py compiles other tiles
#define TILE_COLS 1
#define TILE_ROWS 1
#endif

// gemm_shaped: as gemm_naive, with a tile of outputs a thread. out = alpha * op(a) @ op(b) + beta * out, where op transposes
// when its flag is not 0.
//   a        (m, k), or (k, m) if trans_a      f32  in
//   b        (k, n), or (n, k) if trans_b      f32  in
//   out      (m, n)                            f32  out; also in unless beta is 0, which reads nothing
// Kind:   gemm.
// Launch: a 2-D block of any size, grid (ceil(n / (blockDim.x * TILE_COLS)), ceil(m / (blockDim.y * TILE_ROWS))). The
//   outputs of a thread lie one block apart, so neighbouring threads read neighbouring columns.
// Needs:  any architecture; m, n, k >= 1; at most 65535 blocks in y (a grid's limit); each matrix under 2^31 elements.
// Order:  each output is summed over k from first to last; repeats bit for bit.
extern "C" __global__ void gemm_shaped(const float* a, const float* b, float* out, int m, int n, int k, int trans_a,
                                       int trans_b, float alpha, float beta) {
    const int row = blockIdx.y * blockDim.y * TILE_ROWS + threadIdx.y;
    const int col = blockIdx.x * blockDim.x * TILE_COLS + threadIdx.x;
    if (row >= m || col >= n) return;

    // The first factors of each output, and the distance to the next ones. A tile that crosses the edge of `out` reads
    // the last row or column again there, and writes nothing.
    const float* a_next[TILE_ROWS];
    const float* b_next[TILE_COLS];
    for (int r = 0; r < TILE_ROWS; ++r) {
        const int at = min(row + r * static_cast<int>(blockDim.y), m - 1);
        a_next[r] = trans_a ? a + at : a + at * k;
    }
    for (int c = 0; c < TILE_COLS; ++c) {
        const int at = min(col + c * static_cast<int>(blockDim.x), n - 1);
        b_next[c] = trans_b ? b + at * k : b + at;
    }
    const int a_stride = trans_a ? m : 1;
    const int b_stride = trans_b ? 1 : n;

    float sums[TILE_ROWS][TILE_COLS] = {};
    for (int i = 0; i < k; ++i) {
        for (int r = 0; r < TILE_ROWS; ++r) {
            for (int c = 0; c < TILE_COLS; ++c) sums[r][c] += *a_next[r] * *b_next[c];
        }
        for (int r = 0; r < TILE_ROWS; ++r) a_next[r] += a_stride;
        for (int c = 0; c < TILE_COLS; ++c) b_next[c] += b_stride;
    }
    for (int r = 0; r < TILE_ROWS; ++r) {
        for (int c = 0; c < TILE_COLS; ++c) {
            const int out_row = row + r * blockDim.y;
            const int out_col = col + c * blockDim.x;
            if (out_row >= m || out_col >= n) continue;
            float* target = out + out_row * n + out_col;
            *target = beta == 0.0f ? alpha * sums[r][c] : alpha * sums[r][c] + beta * *target;
        }
    }
}

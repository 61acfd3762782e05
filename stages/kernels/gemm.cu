// Matrix products, written by hand. All matrices are row-major, dense, float32.

// The edge of the square of outputs that one block computes. GEMM_TILE in the launch code (stages/plain.py) is this.
constexpr int GEMM_TILE = 16;

// gemm_naive: out = alpha * op(a) @ op(b) + beta * out, where op transposes when its flag is not 0.
//   a        (m, k), or (k, m) if trans_a      f32  in
//   b        (k, n), or (n, k) if trans_b      f32  in
//   out      (m, n)                            f32  out; also in unless beta is 0, which reads nothing
// Launch: grid (ceil(n / GEMM_TILE), ceil(m / GEMM_TILE)), block (GEMM_TILE, GEMM_TILE). One thread an output, which
//   walks down the whole of k by itself: no shared memory, no reuse beyond what the caches give.
// Needs:  any architecture; m, n, k >= 1; m <= 65535 * GEMM_TILE (a grid's y limit); each matrix under 2^31 elements.
// Order:  each output is summed over k from first to last, so results repeat bit for bit.
extern "C" __global__ void gemm_naive(const float* a, const float* b, float* out, int m, int n, int k, int trans_a,
                                      int trans_b, float alpha, float beta) {
    const int row = blockIdx.y * GEMM_TILE + threadIdx.y;
    const int col = blockIdx.x * GEMM_TILE + threadIdx.x;
    if (row >= m || col >= n) return;

    // Where the first factor of this output lies in each matrix, and how far apart the following ones are.
    const float* a_next = trans_a ? a + row : a + row * k;
    const float* b_next = trans_b ? b + col * k : b + col;
    const int a_stride = trans_a ? m : 1;
    const int b_stride = trans_b ? 1 : n;

    float sum = 0.0f;
    for (int i = 0; i < k; ++i) {
        sum += *a_next * *b_next;
        a_next += a_stride;
        b_next += b_stride;
    }
    float* target = out + row * n + col;
    *target = beta == 0.0f ? alpha * sum : alpha * sum + beta * *target;
}

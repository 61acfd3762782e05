// The matrix product, as one writes it the first time. Matrices are row-major, dense, float32.

// gemm_naive: out = alpha * op(a) @ op(b) + beta * out, where op transposes when its flag is not 0.
//   a        (m, k), or (k, m) if trans_a      f32  in
//   b        (k, n), or (n, k) if trans_b      f32  in
//   out      (m, n)                            f32  out; also in unless beta is 0, which reads nothing
// Kind:   gemm.
// Launch: a 2-D block of any size, grid (ceil(n / blockDim.x), ceil(m / blockDim.y)). A thread computes one output.
// Needs:  any architecture; m, n, k >= 1; at most 65535 blocks in y (a grid's limit); each matrix under 2^31 elements.
// Order:  each output is summed over k from first to last; repeats bit for bit.
extern "C" __global__ void gemm_naive(const float* a, const float* b, float* out, int m, int n, int k, int trans_a,
                                      int trans_b, float alpha, float beta) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || col >= n) return;

    float sum = 0.0f;
    for (int i = 0; i < k; ++i) {
        const float left = trans_a ? a[i * m + row] : a[row * k + i];
        const float right = trans_b ? b[col * k + i] : b[i * n + col];
        sum += left * right;
    }
    float* target = out + row * n + col;
    *target = beta == 0.0f ? alpha * sum : alpha * sum + beta * *target;
}

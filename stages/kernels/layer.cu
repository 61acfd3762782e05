// What a fully connected layer does besides its matrix products. Row-major, float32.

// add_bias: output[row][col] += bias[col].
//   output   (rows, cols)   f32  in, out
//   bias     (cols,)        f32  in
// Launch: 1-D, at least rows * cols threads in all.
// Needs:  any architecture; rows * cols <= 2^30.
// Order:  one addition an element; repeats bit for bit.
extern "C" __global__ void add_bias(float* output, const float* bias, int rows, int cols) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * cols) output[i] += bias[i % cols];
}

// relu: output = max(output, 0), in place. A NaN stays a NaN, so that a broken run is seen as one.
//   output   (count,)   f32  in, out
// Launch: 1-D, at least count threads in all.
// Needs:  any architecture; count <= 2^30.
// Order:  elementwise; repeats bit for bit.
extern "C" __global__ void relu(float* output, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count && output[i] < 0.0f) output[i] = 0.0f;
}

// relu_backward: doutput = 0 wherever the layer's output was cut off at 0, in place.
//   doutput  (count,)   f32  in, out
//   output   (count,)   f32  in: what relu left, so that `output > 0` says which side it was on
// Launch: 1-D, at least count threads in all.
// Needs:  any architecture; count <= 2^30.
// Order:  elementwise; repeats bit for bit.
extern "C" __global__ void relu_backward(float* doutput, const float* output, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count && output[i] <= 0.0f) doutput[i] = 0.0f;
}

// bias_gradient: dbias[col] = the sum of doutput[row][col] over the rows.
//   doutput  (rows, cols)   f32  in
//   dbias    (cols,)        f32  out
// Launch: 1-D, at least cols threads in all. One thread a column.
// Needs:  any architecture; rows * cols < 2^31.
// Order:  each column is summed from the first row to the last; repeats bit for bit.
extern "C" __global__ void bias_gradient(const float* doutput, float* dbias, int rows, int cols) {
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= cols) return;
    float sum = 0.0f;
    for (int row = 0; row < rows; ++row) sum += doutput[row * cols + col];
    dbias[col] = sum;
}

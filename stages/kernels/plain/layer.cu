// The operations of a fully connected layer around its matrix products. Row-major, float32.

#include "device/dependent.cuh"

// add_bias: output[row][col] += bias[col].
//   output   (rows, cols)   f32  in, out
//   bias     (cols,)        f32  in
// Kind:   layer.
// Launch: 1-D, at least rows * cols threads in all.
// Needs:  any architecture; rows * cols <= 2^30.
// Order:  one addition an element; repeats bit for bit.
extern "C" __global__ void add_bias(float* output, const float* bias, int rows, int cols) {
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * cols) output[i] += bias[i % cols];
}

// add_biases: output[row][col] += bias[col], for several networks.
//   output   (rows, cols)   f32  in, out: of the first network; those of the next ones follow
//   bias     (cols,)        f32  in: of the first network; the next one's lies `stride` numbers further on
// Kind:   layer.
// Launch: grid x of at least rows * cols threads in all, y networks.
// Needs:  any architecture; networks * rows * cols <= 2^30.
// Order:  one addition an element; repeats bit for bit.
extern "C" __global__ void add_biases(float* output, const float* bias, int rows, int cols, int stride) {
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * cols) output[blockIdx.y * rows * cols + i] += bias[blockIdx.y * stride + i % cols];
}

// relu: output = max(output, 0), in place. A NaN stays a NaN, so a broken run shows.
//   output   (count,)   f32  in, out
// Kind:   layer.
// Launch: 1-D, at least count threads in all.
// Needs:  any architecture; count <= 2^30.
// Order:  elementwise; repeats bit for bit.
extern "C" __global__ void relu(float* output, int count) {
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count && output[i] < 0.0f) output[i] = 0.0f;
}

// relu_backward: doutput = 0 wherever ReLU set the layer's output to 0, in place.
//   doutput  (count,)   f32  in, out
//   output   (count,)   f32  in: after relu, so `output > 0` tells which side it was on
// Kind:   layer.
// Launch: 1-D, at least count threads in all.
// Needs:  any architecture; count <= 2^30.
// Order:  elementwise; repeats bit for bit.
extern "C" __global__ void relu_backward(float* doutput, const float* output, int count) {
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count && output[i] <= 0.0f) doutput[i] = 0.0f;
}

// The block of bias_gradient and bias_update: BIAS_COLS columns, BIAS_ROWS threads for each (stages/engine/parts.py).
constexpr int BIAS_COLS = 32, BIAS_ROWS = 8;

// The sum of column `col` of doutput (rows, cols), valid in threads of row 0. BIAS_ROWS threads share a column, and each
// adds every BIAS_ROWS-th row: neighbouring threads read neighbouring columns. All threads of the block must call it.
__device__ float column_sum(const float* doutput, int col, int rows, int cols) {
    __shared__ float partial[BIAS_ROWS][BIAS_COLS];
    float sum = 0.0f;
    if (col < cols) {
        for (int row = threadIdx.y; row < rows; row += BIAS_ROWS) sum += doutput[row * cols + col];
    }
    partial[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0) {
        for (int i = 1; i < BIAS_ROWS; ++i) sum += partial[i][threadIdx.x];
    }
    return sum;
}

// bias_gradient: dbias[col] = the sum of doutput[row][col] over the rows.
//   doutput  (rows, cols)   f32  in
//   dbias    (cols,)        f32  out
// Kind:   layer.
// Launch: grid ceil(cols / BIAS_COLS), block (BIAS_COLS, BIAS_ROWS). A block sums its columns.
// Needs:  any architecture; rows * cols < 2^31.
// Order:  each thread adds its rows in order, and one thread the partial sums in order; repeats bit for bit.
extern "C" __global__ void bias_gradient(const float* doutput, float* dbias, int rows, int cols) {
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    const int col = blockIdx.x * BIAS_COLS + threadIdx.x;
    const float sum = column_sum(doutput, col, rows, cols);
    if (threadIdx.y == 0 && col < cols) dbias[col] = sum;
}

// bias_update: bias[col] -= learning_rate * the sum of doutput[row][col] over the rows.
//   doutput  (rows, cols)   f32  in
//   bias     (cols,)        f32  in, out
// Kind:   update.
// Launch: grid ceil(cols / BIAS_COLS), block (BIAS_COLS, BIAS_ROWS). A block sums its columns.
// Needs:  any architecture; rows * cols < 2^31.
// Order:  as in bias_gradient, then one subtraction; repeats bit for bit.
extern "C" __global__ void bias_update(const float* doutput, float* bias, float learning_rate, int rows, int cols) {
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    const int col = blockIdx.x * BIAS_COLS + threadIdx.x;
    const float sum = column_sum(doutput, col, rows, cols);
    if (threadIdx.y == 0 && col < cols) bias[col] -= learning_rate * sum;
}

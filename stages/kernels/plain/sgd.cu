// Plain stochastic gradient descent.

// sgd_update: param -= learning_rate * gradient.
//   param     (count,)   f32  in, out
//   gradient  (count,)   f32  in
// Kind:   update.
// Launch: 1-D, at least count threads in all.
// Needs:  any architecture; count <= 2^30.
// Order:  elementwise; repeats bit for bit.
extern "C" __global__ void sgd_update(float* param, const float* gradient, float learning_rate, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) param[i] -= learning_rate * gradient[i];
}

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

// sgd_updates: param -= learning_rate * gradient, for several networks.
//   param     (count,)     f32  in, out: of the first network; those of the next ones follow
//   gradient  (count,)     f32  in: likewise
//   learning_rates  (networks,)  f32  in
// Kind:   update.
// Launch: grid x of at least count threads in all, y networks.
// Needs:  any architecture; networks * count <= 2^30.
// Order:  elementwise; repeats bit for bit.
extern "C" __global__ void sgd_updates(float* param, const float* gradient, const float* learning_rates, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, at = blockIdx.y * count + i;
    if (i < count) param[at] -= learning_rates[blockIdx.y] * gradient[at];
}

// A whole epoch in one cooperative launch, for softmax regression and MLPs of any size.
//
// The first layers are wide, at least one: blocks own tiles of their weights, which stay in shared memory for the epoch
// where they fit, and exchange activations and gradients through the second-level cache. The other layers are the tail:
// a block takes whole rows of the batch through them and back. Phases that need what other blocks wrote come after a
// barrier of the grid; for W wide layers a step has 4 W - 2 of them:
//     the first layer's weights are updated from the step before, then its forward product; barrier;
//     for every other wide layer: add the parts up; barrier; forward product; barrier;
//     the tail, whose weights come while the last barrier is waited for; barrier;
//     for every wide layer but the first, from the last: backward product; barrier, and while it is waited for, the
//     layer's update; add the parts up; barrier.
#include "row_tail.cuh"
#include "wide_layers.cuh"

// persistent_grid: an epoch of training; in each step weight -= learning_rate * inputs^T doutputs, biases likewise.
//   images        (steps, slices, rows, tile_k)  f32  in: of the first layer's tiles; zeros after the last pixel and image,
//                 no pixel with more than 11 significant bits
//   labels        (steps, batch)                 i32  in, each 0 <= label < classes
//   plan          (PLAN + layers * LAYER,)       i32  in: struct Plan, then a struct Layer for each layer
//   parameters    (count,)                       f32  in, out: where plan says
//   workspace     (size,)                        f32  in, out: zeros before the first launch; outputs, their gradients, parts
//   block_totals  (blocks, 2)                    f64  out: each block's share of the totals, with with_totals
//   totals        (2,)                           f64  in, out: grows by the summed loss and the number right, with with_totals
//   arrived       (2,)                           u32  in, out: 0 before each launch; what the barriers count
// Launch: cooperative, 1-D, blocks of THREADS, any number of them that plan was made for, with the shared memory that it
//   says; learning_rate as a step's, for the mean over its images.
// Needs:  any architecture with cooperative launch; fewer than 2^31 barriers times blocks.
// Order:  every sum has one order, whoever comes first; repeats bit for bit on as many blocks.
extern "C" __global__ void __launch_bounds__(THREADS, 1) persistent_grid(const float* images, const int* labels,
                                                                       const int* plan, float* parameters,
                                                                       float* workspace, double* block_totals,
                                                                       double* totals, unsigned* arrived,
                                                                       float learning_rate, int with_totals) {
    extern __shared__ __align__(16) float memory[];
    int* copied = reinterpret_cast<int*>(memory);
    const int ints = PLAN_INTS + plan[0] * LAYER_INTS;
    for (int i = threadIdx.x; i < ints; i += THREADS) copied[i] = plan[i];
    __syncthreads();
    const Plan& sizes = *reinterpret_cast<const Plan*>(copied);
    const Layer* layers = reinterpret_cast<const Layer*>(copied + PLAN_INTS);

    GridBarrier barrier(arrived), updated(arrived + 1);  // updated: the tail's weights are
    WideLayers wide(sizes, layers, memory, images, parameters, workspace, learning_rate);
    RowTail tail(sizes, layers, memory, labels, parameters, workspace);
    wide.load_held();
    wide.fetch_images(0);
    for (int step = 0;; ++step) {
        if (step > 0) {
            wide.update<true>(0, step - 1, false);
            wide.update_rest();
        }
        if (step == sizes.steps) break;
        updated.arrive();
        wide.forward<true>(0, step);
        barrier.arrive();
        wide.fetch_images(step + 1);
        for (int l = 1; l < sizes.wide; ++l) {
            barrier.wait();
            wide.add_up_forward(l - 1);
            barrier.pass();
            wide.forward<false>(l, step);
            barrier.arrive();
        }
        updated.wait();
        tail.fetch_weights();
        barrier.wait();
        tail.run(step, with_totals);
        barrier.pass();
        for (int l = sizes.wide - 1; l > 0; --l) {
            wide.backward(l);
            barrier.arrive();
            wide.update<false>(l, step, true);
            barrier.wait();
            wide.add_up_backward(l);
            barrier.pass();
        }
    }
    wide.store_held();
    if (!with_totals) return;
    if (threadIdx.x == 0) {
        block_totals[2 * blockIdx.x] = tail.loss;
        block_totals[2 * blockIdx.x + 1] = tail.correct;
    }
    barrier.pass();
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        for (int block = 0; block < gridDim.x; ++block) {
            totals[0] += __ldcg(block_totals + 2 * block);
            totals[1] += __ldcg(block_totals + 2 * block + 1);
        }
    }
}

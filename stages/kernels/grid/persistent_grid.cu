// A whole epoch in one cooperative launch, for softmax regression and MLPs of any size.
//
// The first layers are wide, at least one: blocks own tiles of their weights, which stay in shared memory for the epoch
// where they fit, and exchange activations and gradients through the second-level cache. The other layers are the tail:
// a block takes whole rows of the batch through them and back. Phases that need what other blocks wrote come after a
// barrier of the grid; for W wide layers a step has 4 W - 2 of them:
//     the first layer's weights are updated from the step before, then its forward product; barrier;
//     for every other wide layer: add the parts up; barrier; forward product; barrier;
//     the tail; barrier;
//     for every wide layer but the first, from the last: backward product; barrier, and while it is waited for, the
//     layer's update; add the parts up; barrier.
#include "device/async_copies.cuh"
#include "device/tensor_cores.cuh"
#include "grid/row_tail.cuh"
#include "grid/wide_layers.cuh"

template <int L>
__device__ void forward_from(WideLayers& wide, GridBarrier& barrier, int step) {
    if constexpr (L < plan.wide) {
        wide.add_up_forward<L - 1>();
        barrier.pass();
#pragma unroll 1
        for (wide.later = 0;; ++wide.later) {
            wide.forward<L>(step);
            barrier.pass();
            if (wide.later == ALIKE<L> - 1) break;
            wide.add_up_forward<L>();
            barrier.pass();
        }
        wide.later = 0;
        forward_from<L + ALIKE<L>>(wide, barrier, step);
    }
}

// From the last wide layer down to L.
template <int L>
__device__ void backward_to(WideLayers& wide, GridBarrier& barrier, int step) {
    if constexpr (L < plan.wide) {
        backward_to<L + ALIKE<L>>(wide, barrier, step);
#pragma unroll 1
        for (wide.later = ALIKE<L> - 1; wide.later >= 0; --wide.later) {
            wide.backward<L>();
            barrier.arrive();
            wide.update<L, true>(step);
            barrier.wait();
            wide.add_up_backward<L>();
            barrier.pass();
        }
        wide.later = 0;
    }
}

// persistent_grid: an epoch of training; in each step weight -= learning_rate * inputs^T doutputs, biases likewise.
//   images        (steps, slices, rows, tile_k)  u16  in: of the first layer's tiles, as bfloat16, which holds 256ths
//                 exactly; zeros after the last pixel and image
//   labels        (steps, batch)                 i32  in, each 0 <= label < classes
//   parameters    (count,)                       f32  in, out: where the plan says
//   workspace     (size,)                        f32  in, out: zeros before the first launch; outputs and their gradients,
//                 as bfloat16 where products take one part, and parts of sums
//   block_totals  (blocks, 2)                    f64  out: each block's share of the totals, with with_totals
//   totals        (2,)                           f64  in, out: grows by the summed loss and the number right, with with_totals
//   arrived       (1,)                           u32  in, out: 0 before each launch; what the barrier counts
// Launch: cooperative, 1-D, blocks of THREADS, as many as the plan was made for that it is compiled with, with the shared
//   memory that it says; steps of the epoch; learning_rate as a step's, for the mean over its images. Compiled with
//   PARTS = 1, products are of bfloat16, else as of float32.
// Needs:  any architecture with cooperative launch; fewer than 2^31 barriers times blocks.
// Order:  every sum has one order, whoever comes first; repeats bit for bit on as many blocks.
extern "C" __global__ void __launch_bounds__(THREADS, 1) persistent_grid(const unsigned short* images,
                                                                       const int* labels, float* parameters,
                                                                       float* workspace, double* block_totals,
                                                                       double* totals, unsigned* arrived, int steps,
                                                                       float learning_rate, int with_totals) {
    extern __shared__ __align__(128) float memory[];  // whose lines the plan counts on
    GridBarrier barrier(arrived);
    WideLayers wide(memory, images, steps, parameters, workspace, learning_rate);
    RowTail tail(memory, labels, parameters, workspace);
    wide.load_held();
    wide.fetch_images(0);
    for (int step = 0;; ++step) {
        if (step > 0) {
            wide.update<0, false>(step - 1);
            wide.update_rest();
        }
        if (step == steps) break;
        wide.forward<0>(step);
        barrier.arrive();
        wide.fetch_images(step + 1);
        barrier.wait();
        forward_from<1>(wide, barrier, step);
        tail.run(step, with_totals);
        barrier.pass();
        backward_to<1>(wide, barrier, step);
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

#include "grid/grid_epoch.cuh"

// persistent_grid: a whole epoch of any network, on all multiprocessors. In each step weight -= learning_rate * inputs^T
// doutputs, biases likewise.
//   images        (steps, slices, rows, tile_k)  u16  in: slices for the first layer's tiles, as bfloat16, which holds
//                 256ths exactly; zeros after the last pixel and image
//   labels        (steps, batch)                 i32  in, each 0 <= label < classes
//   parameters    (count,)                       f32  in, out: placed by the plan
//   workspace     (size,)                        f32  in, out: zeros before the first launch; outputs and their gradients
//                 (bfloat16 where products take one part), and parts of sums
//   block_totals  (blocks, 2)                    f64  out: each block's share of the totals, if with_totals
//   totals        (2,)                           f64  in, out: grows by the summed loss and the number right, if with_totals
//   arrived       (1,)                           u32  in, out: 0 before each launch; the barrier's count of arrivals
// Kind:   fused.
// Launch: cooperative, 1-D, blocks of THREADS; the number of blocks and the shared memory are those of the compiled plan.
//   steps of the epoch; learning_rate for the mean over a batch. With PARTS = 1 products are bfloat16's, else float32's.
// Needs:  any architecture with cooperative launch; fewer than 2^31 barriers times blocks.
// Order:  every sum has one order, independent of arrival; repeats bit for bit on as many blocks.
extern "C" __global__ void __launch_bounds__(THREADS, 1) persistent_grid(const unsigned short* images,
                                                                       const int* labels, float* parameters,
                                                                       float* workspace, double* block_totals,
                                                                       double* totals, unsigned* arrived, int steps,
                                                                       float learning_rate, int with_totals) {
    extern __shared__ __align__(128) float memory[];  // the plan counts on aligned lines
    train_epoch(memory, images, labels, parameters, workspace, block_totals, totals, arrived, steps, learning_rate,
                with_totals);
}

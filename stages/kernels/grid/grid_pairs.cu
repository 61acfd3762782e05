#ifndef PLAN  // 212-1588-30-7, batches of 224, 132 blocks
#define PARTS 1
#define PLAN 2, 224, 224, 224, 1, 372736, 10144, 37024, 42400, 47776, 37024, 37172, 32, 1, 132, 8352, 37684
#define LAYERS \
    212, 1588, 0, 384640, 224, 16, 1, 100, 0, 179200, 1600, 0, 5376, -1, 1588, 30, 336704, 386240, 16, 32, 100, 1, 358400, \
        361984, 32, 5408, -1, 6560, 30, 7, 384384, 386304, 0, 0, 0, 0, 365568, 369152, 32, 37760, -1, -1
#endif
#include "grid/paired_layers.cuh"
#include "grid/row_tail.cuh"

// What persistent_grid does, with fewer barriers of the grid: a wide layer and the one above it form a pair, and what is between
// them stays in a block. The first layer, if alone, may be cut along its inputs.
//
// What travels, always through L2, with a barrier before other blocks read it; groups are pairs, or layers alone:
//
//   each group: forward product, of pairs twice      outputs of a layer alone, parts of a pair's | barrier
//               add the parts up                     outputs                                     | barrier
//   the tail:   add up, forward, softmax, backward   outputs, doutputs                           | barrier
//   each group but the first, from the last:
//               backward product, of pairs twice     parts                                       | barrier; while waiting, its update
//               add the parts up                     doutputs below                              | barrier
//   the first group: its update
template <int L>
__device__ void forward_from(PairedLayers& wide, GridBarrier& barrier, int step) {
    if constexpr (L < plan.wide) {
        wide.forward_lower<L>(step);
        if constexpr (IN_PAIR<L>) wide.forward_upper<L + 1>();
        barrier.arrive();
        if (L == 0) wide.fetch_ahead(step);
        barrier.wait();
        if constexpr (AFTER<L> < plan.wide && IS_SUMMED<L>) {
            wide.add_up_outputs<AFTER<L> - 1>();
            barrier.pass();
        }
        forward_from<AFTER<L>>(wide, barrier, step);
    }
}

// From the last group down to that of layer L.
template <int L>
__device__ void backward_to(PairedLayers& wide, GridBarrier& barrier, int step) {
    if constexpr (L < plan.wide) {
        backward_to<AFTER<L>>(wide, barrier, step);
        if constexpr (IN_PAIR<L>) wide.backward_upper<L + 1>();
        if constexpr (L > 0) {
            wide.backward_lower<L>();
            barrier.arrive();
        }
        if constexpr (IN_PAIR<L>) wide.update_upper<L + 1>();
        wide.update_lower<L>(step);
        if (AFTER<L> == plan.wide) wide.update_rest();
        if constexpr (L > 0) {
            barrier.wait();
            wide.add_up_doutputs<L>();
            barrier.pass();
        }
    }
}

// grid_pairs: a whole epoch of a network with hidden layers, on all multiprocessors. In each step weight -= learning_rate *
// inputs^T doutputs, biases likewise.
//   images        (steps, slices, rows, tile_k)  u16  in: as persistent_grid has them; one slice unless the first layer is cut
//   labels        (steps, batch)         i32  in, each 0 <= label < classes
//   parameters    (count,)               f32  in, out: placed by the plan
//   workspace     (size,)                f32  in, out: zeros before the first launch; outputs and their gradients, parts of sums
//   block_totals  (blocks, 2)            f64  out: each block's share of the totals, if with_totals
//   totals        (2,)                   f64  in, out: grows by the summed loss and the number right, if with_totals
//   arrived       (1,)                   u32  in, out: 0 before each launch; the barrier's count of arrivals
// Kind:   fused.
// Launch: cooperative, 1-D, as many blocks of THREADS as the compiled plan has, with its shared memory; steps of the epoch;
//   learning_rate for the mean over a batch. With PARTS = 1 products are bfloat16's, else float32's.
// Needs:  any architecture with cooperative launch; fewer than 2^31 barriers times blocks.
// Order:  every sum has one order, independent of arrival; repeats bit for bit on as many blocks.
extern "C" __global__ void __launch_bounds__(THREADS, 1) grid_pairs(const unsigned short* images, const int* labels,
                                                                  float* parameters, float* workspace,
                                                                  double* block_totals, double* totals,
                                                                  unsigned* arrived, int steps, float learning_rate,
                                                                  int with_totals) {
    extern __shared__ __align__(128) float memory[];  // the plan counts on aligned lines
    GridBarrier barrier(arrived);
    PairedLayers wide(memory, images, steps, parameters, workspace, learning_rate);
    RowTail tail(memory, labels, parameters, workspace);
    wide.load_held();
    wide.load_biases();
    wide.fetch_images(0);
    for (int step = 0; step < steps; ++step) {
        forward_from<0>(wide, barrier, step);
        tail.run(step, with_totals);
        barrier.pass();
        backward_to<0>(wide, barrier, step);
    }
    wide.store_held();
    wide.store_biases();
    if (with_totals) tail.add_totals(barrier, block_totals, totals);
}

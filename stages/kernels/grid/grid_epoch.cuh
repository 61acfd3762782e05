// An epoch of one network by the blocks of the grid's x dimension, for softmax regression and MLPs of any size.
//
// Who holds what. The first layers, one at least, are wide: their weights are cut into tiles of tile_k inputs by tile_n
// outputs. The other layers are the tail: every block takes whole rows of the batch through all of them.
//
//   block b, in shared memory    tile b of each wide layer, for the whole epoch, if all fit (`held`); else one tile at a time,
//                                b, b + gridDim.x, ... The tile's slice of the images, of two steps
//                                the tail: its weights, anew in each step, and a row of every layer's outputs and gradients
//   16 warps                     fragments of 16 x 8 of the block's product; in the tail shares of a vector's sums; warp 0
//                                the softmax
//   memory (L2)                  the parts of each sum, one for each tile along it; outputs and doutputs
//   block b, rows of the batch   b, b + gridDim.x, ... in the tail
//   the last `helpers` blocks    updates of the tail's weights and biases, in tiles of 32 x 32
//
// What travels, always through L2, with a barrier of the grid before other blocks read it (4 W - 2 a step for W wide layers):
//
//   layer 0: update by the step before, then forward product       parts           | barrier
//   each other wide layer: add the parts up                        outputs         | barrier
//                          forward product                         parts           | barrier
//   the tail: add up, forward, softmax, backward, a row at a time  outputs, doutputs | barrier
//   each wide layer but the first, from the last:
//                          backward product                        parts           | barrier; while waiting, its update
//                          add the parts up                        doutputs below  | barrier
#pragma once
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

// All steps; parameters as persistent_grid says.
__device__ inline void train_epoch(float* memory, const BFloat16* images, const int* labels, float* parameters,
                                   float* workspace, double* block_totals, double* totals, unsigned* arrived, int steps,
                                   float learning_rate, int with_totals) {
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
    if (with_totals) tail.add_totals(barrier, block_totals, totals);
}

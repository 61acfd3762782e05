// Softmax regression, a whole epoch in one launch of one thread-block cluster: weights stay in registers, and blocks
// exchange what they must through each other's shared memory.
//
// Split: every sixteen features (the bias is one more, whose pixel is always 1) are a tile, and each block has three or
// four of 50 for its own. Each block multiplies its features of all images (partial logits), and each block owns eight images of a
// batch, whose logits it adds up from everyone's parts, and whose dlogits it sends to everyone.
//
// Order: done plainly, a step is two exchanges, one after the other. But the logits of batch t under weights W(t) are
//     x(t) W(t) = x(t) W(t-1) - rate * x(t) x(t-1)^T dlogits(t-1),
// and the product of neighbouring batches (neighbour_grams) knows no weights. So the long way, from dlogits(t-2)
// through weights and partial logits x(t) W(t-1), has two steps' time, and what remains in each is one exchange and
// one small product. This is the same gradient descent, step for step, added up in another order.
//
// Tensor cores give float32's precision: pixels are exact in float16, everything else comes in two halves.
#include "cluster/backward_warp.cuh"
#include "cluster/fetch_warp.cuh"
#include "cluster/forward_warp.cuh"
#include "cluster/head_warp.cuh"
#include "cluster/totals_warp.cuh"

// persistent_cluster: an epoch of softmax regression, weight -= learning_rate * x^T dlogits in each step, the bias too.
//   images    (steps, tiles, P, 2, 2, 8, 8)  f16  in: 16 images by 16 features each, as four matrices of 8 by 8, P a
//             batch; the bias's pixel, 1, after the last feature, and zeros up to 16 * tiles
//   labels    (steps, 16 P)              i32  in, each 0 <= label < classes
//   grams     (steps - 1, 2 P, P, 32)    f16  in: what neighbour_grams makes of images, before or at the same time
//   ready     (steps - 1,)               i32  in: becomes `number` as soon as the grams of that step can be read
//   weight    (inputs, classes)          f32  in, out
//   bias      (classes,)                 f32  in, out
//   totals    (2,)                       f64  in, out: grows by the summed loss and the number right, with with_totals
// Launch: one cluster of BLOCKS blocks of THREADS, with SHARED_BYTES each; P = pairs, batches have 16 pairs images; learning_rate as a step's,
//   for the mean over its images.
//   neighbour_grams, with the same number, has to be able to run beside it, or to have run before; with another number
//   it may write other grams and flags meanwhile, but not these.
// Needs:  sm_90, clusters of BLOCKS; pairs <= 8; tiles <= MOST_TILES * BLOCKS; classes <= 16; |weight| < 4,000.
// Order:  every sum has one order, whoever comes first; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS, 1) persistent_cluster(const uint4* images, const int* labels,
                                                                          const uint4* grams, const int* ready,
                                                                          float* weight, float* bias, double* totals,
                                                                          int steps, int pairs, int tiles, int inputs,
                                                                          int classes, int number,
                                                                          float learning_rate, int with_totals) {
    extern __shared__ __align__(128) uint4 memory[];  // what comes from memory, by lines
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const Classes rows(classes);
    const EpochArguments epoch = {images, grams, labels, ready,  weight, bias,         steps,
                         pairs,  tiles, inputs, number, learning_rate};
    // Pixels, grams and dlogits that there are fewer of are multiplied all the same.
    for (int i = threadIdx.x; i < sizeof(Shared) / sizeof(uint4); i += THREADS) memory[i] = make_uint4(0, 0, 0, 0);
    write_before_fetches();
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int parity = 0; parity < 2; ++parity) {
            make_barrier(shared.logits_are_in[parity], 1);
            make_barrier(shared.dlogits_are_in[parity], 1);
        }
        const int of_logits = epoch.has_head(rank_in_cluster()) ? HEAD_WARPS + (with_totals ? 1 : 0) : 0;
        const int readers = BACKWARD_WARPS + FORWARD_WARPS + of_logits;
        for (int stage = 0; stage < STAGES; ++stage) {
            make_barrier(shared.fetched[stage], 1);
            make_barrier(shared.done_with[stage], readers * LANES_ARRIVE);
        }
        publish_barriers();
        for (int parity = 0; parity < 2; ++parity) {
            expect_bytes(shared.logits_are_in[parity], BLOCKS * rows.bytes());
            expect_bytes(shared.dlogits_are_in[parity], 2 * pairs * rows.bytes());
        }
    }
    wait_for_cluster();
    const int warp = threadIdx.x / WARP;
    if (warp < BACKWARD_WARPS) {
        BackwardWarp(shared, epoch, rows).run();
    } else if (warp < BACKWARD_WARPS + FORWARD_WARPS) {
        ForwardWarp(shared, epoch, rows).run();
    } else if (warp < BACKWARD_WARPS + FORWARD_WARPS + HEAD_WARPS) {
        HeadWarp head(shared, epoch, rows);
        if (with_totals) {
            head.run<true>();
        } else {
            head.run<false>();
        }
    } else if (threadIdx.x == FETCH_WARP * WARP) {
        FetchWarp(shared, epoch).run();
    } else if (warp == TOTALS_WARP && with_totals) {
        TotalsWarp(shared, epoch, rows).run();
    }
    wait_for_cluster();  // a block that ends takes its mailboxes with it
    if (with_totals && rank_in_cluster() == 0 && threadIdx.x == 0) {
        for (int owner = 0; owner < 2 * pairs; ++owner) {
            totals[0] += shared.losses[owner];
            totals[1] += shared.corrects[owner];
        }
    }
}

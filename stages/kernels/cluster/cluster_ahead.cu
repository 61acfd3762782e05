// One hidden layer: a whole epoch in one launch of five thread-block clusters, the first layer one step ahead.
//
// Who holds what, for 784-256-10 and batches of 128. Sixteen features are a tile; the bias is one more feature, whose pixel
// is 1.
//
//   the head, 16 blocks      each 16 units, for all images; and 8 images, for all classes
//     8 image warps          16 images each: outputs and their gradients; the softmax of one image
//     2 warps                8 units each of the last layer's weights, in registers, and its bias
//     4 warps                receive products;  one more fetches grams
//   the first layer, 64      four blocks share the features of 16 units
//     14 warps               a tile of weights in registers; and 16 images, each of eight warps
//     2 warps                add up products
//
// Of a wider layer, a block has two or four tiles of sixteen units, in turn. Then sixteen warps of the first layer multiply,
// and its four blocks trade parts of products through L2.
//
// What travels, in step t:
//
//   first layer      --st.async-->  the one of four blocks that adds up     parts of x(t) W(t - 1)
//   first layer      --L2------->   head block of those units               the sum
//   image warps      --st.async-->  image's owner                           parts of logits
//   image's owner    --st.async-->  all blocks of the head                  dlogits
//   image warps      --L2------->   first layer                             doutputs(t), for the products of step t + 2
//
// Outputs under W(t) are x(t) W(t) = x(t) W(t - 1) - rate * x(t) x(t - 1)^T doutputs(t - 1). neighbour_grams computes
// x(t) x(t - 1)^T ahead. So the first layer's loop, from doutputs(t - 2) through weights to products, has two steps' time.
#include "cluster/ahead_head.cuh"
#include "cluster/ahead_warpgroups.cuh"

// cluster_ahead: a whole epoch of a network with one hidden layer. In each step parameters -= learning_rate * gradients.
//   images        (steps, 4 T, P, 2, 2, 8, 8)  f16  in: as for neighbour_grams: the bias's pixel after the last feature, and
//                 zeros up to 64 T features and 16 P images
//   labels        (steps, 16 P)         i32  in, each 0 <= label < classes; any beyond the batch
//   grams         (steps - 1, 2 P, P, 32, 4 H)  f16  in: neighbour_grams writes them; H = HALVES
//   ready         (steps - 1,)          i32  in: becomes `number` once the grams of that step can be read
//   weights       (inputs, units)       f32  in, out
//   bias          (units,)              f32  in, out
//   last_weights  (units, classes)      f32  in, out
//   last_bias     (classes,)            f32  in, out
//   totals        (2,)                  f64  in, out: grows by the summed loss and the number right, if with_totals
//   products      (4, 2 P, P, TURNS, 2, 32, 4)  u32  in, out: mailboxes, zeros at first; if TURNS > 1, then
//                 (4, 2 P, P, TURNS, 2, 3, 32, 4) of parts
//   doutputs      (4, 2 P, P, TURNS, H, 32, 4)  u32  in, out: the same
// Kind:   fused.
// Launch: five clusters of 2 P blocks of THREADS, all at once, with the larger of sizeof(Head) and sizeof(First) of shared
//   memory; P = PAIRS, T = TILES; rate for the mean over a batch; `begun` steps have gone through the mailboxes before,
//   modulo 8. neighbour_grams as for persistent_cluster.
// Needs:  sm_90; P in 2, 4, 8; batch <= 16 P; units <= 32 P TURNS; classes = CLASSES <= 16; inputs < 64 T; |weight| < 60,000.
// Order:  every sum has one order, independent of arrival; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS, 1) cluster_ahead(const unsigned short* images,
                                                                     const int* labels, const unsigned short* grams,
                                                                     const int* ready, float* weights, float* bias,
                                                                     float* last_weights, float* last_bias,
                                                                     double* totals, unsigned* products,
                                                                     unsigned* doutputs, int steps, int inputs,
                                                                     int units, int batch, int number, int begun,
                                                                     float rate, int with_totals) {
    extern __shared__ __align__(128) uint4 memory[];
    Head& head = *reinterpret_cast<Head*>(memory);
    First& first = *reinterpret_cast<First*>(memory);
    const Epoch epoch = {reinterpret_cast<const uint4*>(images), labels, reinterpret_cast<const GramUnit*>(grams), ready,
                         weights, bias, last_weights, last_bias, totals, reinterpret_cast<uint4*>(products),
                         reinterpret_cast<uint4*>(doutputs), steps, inputs, units, batch, number, begun, rate};
    const int warp = threadIdx.x / WARP;
    const bool is_head = clusterid_x() == 0;
    if (threadIdx.x == 0 && is_head) {
        for (int i = 0; i < 2; ++i) mbarrier_init(head.logits_in[i], 1), mbarrier_init(head.dlogits_in[i], 1);
        for (int i = 0; i < GRAM_STAGES; ++i) {
            mbarrier_init(head.grams_in[i], 1), mbarrier_init(head.grams_read[i], PAIRS * LANES_ARRIVE);
        }
        mbarrier_init(head.products_in, RECEIVERS * LANES_ARRIVE), mbarrier_init(head.products_read, PAIRS * LANES_ARRIVE);
        mbarrier_init(head.outputs_in, PAIRS * LANES_ARRIVE), mbarrier_init(head.weights_in, 2 * LANES_ARRIVE);
        mbarrier_init(head.totals_in, 1);
        mbarrier_arrive_expect_tx(head.totals_in, cluster_ctarank() == 0 && with_totals ? sizeof(head.totals) : 0);
    } else if (threadIdx.x == 0) {
        for (int i = 0; i < IMAGE_STAGES; ++i) {
            mbarrier_init(first.parts_in[i], 1), mbarrier_init(first.images_in[i], 1);
        }
    }
    if (is_head && threadIdx.x < HALF_EDGE) head.zeros[threadIdx.x] = 0;
    fence_mbarrier_init();
    barrier_cluster_aligned();
    if (is_head) {
        if (warp < PAIRS) {
            ImageWarp images(head, epoch);
            if (with_totals) images.run<true>();
            else images.run<false>();
        } else if (warp >= LAST_WARP && warp < RECEIVE_WARP) {
            update_last_layer(head, epoch, warp - LAST_WARP);
        } else if (warp >= RECEIVE_WARP && warp < RECEIVE_WARP + RECEIVERS) {
            receive_products(head, epoch, warp - RECEIVE_WARP);
        } else if (threadIdx.x == FETCH_WARP * WARP) {
            fetch_grams(head, epoch);
        }
    } else if (warp < FIRST_WARPS) {
        if constexpr (WARPGROUPS) FirstWarpgroup(first, epoch).run();
        else FirstWarp(first, epoch).run();
    } else {
        add_products(first, epoch);
    }
    __syncwarp();
    barrier_cluster_aligned();  // a block that ends takes its buffers with it
}

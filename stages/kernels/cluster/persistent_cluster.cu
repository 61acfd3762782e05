// Softmax regression: a whole epoch in one launch, by one thread-block cluster for each network.
//
// Who holds what. Sixteen features are a tile (the bias is one more feature, whose pixel is always 1), and sixteen images
// are a pair. 784 features are 50 tiles; block b owns tiles b*50/16 up to the next block's first, and images 8b to 8b+7.
//
//   16 blocks, each:  shared memory     ring of STAGES batches: pixels of the own tiles; of the own images the grams and labels
//                                       remote buffers, two of each kind, by the step's parity
//     4 backward warps  registers       one tile of the weights each, 16 features x 16 classes: lane 4g + t has classes g
//                                       and g + 8 of features 2t, 2t + 1, 2t + 8 and 2t + 9
//     8 forward warps                   one pair of images each, against the block's weights
//     4 head warps                      the softmax of the block's eight images
//     1 fetch warp                      one lane starts the copies into the ring
//     1 totals warp                     loss and number right of the block's images
//
// What travels, in step t:
//
//   memory            --bulk copy-->  the ring        pixels, grams and labels of step t + STAGES, when step t is read
//   backward warps    --shared---->   forward warps   weights W(t - 1), each float32 as two float16 halves
//   forward warps     --st.async-->   image's owner   partial logits x(t) W(t - 1), 8 images x classes from each block
//   head warps        --st.async-->   all blocks      dlogits(t), in halves; head warp w sends to blocks 4w to 4w + 3
//   the ring, dlogits ------------->  backward warps  W(t + 1) = W(t) - rate * x(t)^T dlogits(t), published for step t + 2
//
// Why only one exchange is on the critical path. The logits of batch t under W(t) are
//     x(t) W(t) = x(t) W(t - 1) - rate * x(t) x(t - 1)^T dlogits(t - 1),
// and neighbour_grams computes x(t) x(t - 1)^T ahead, without weights. The long loop, from dlogits(t - 2) through weights to
// the partial logits x(t) W(t - 1), has two steps' time. Each step waits for one exchange and one small product. The
// descent is the same, step for step; only the order of the sums differs.
//
// Precision: tensor cores give float32's. Pixels are exact in float16, and every other factor is two float16 halves.
#include "cluster/backward_warp.cuh"
#include "cluster/fetch_warp.cuh"
#include "cluster/forward_warp.cuh"
#include "cluster/head_warp.cuh"
#include "cluster/totals_warp.cuh"

// persistent_cluster: a whole epoch of softmax regression, in one cluster for each of K networks. In each step
// weight -= learning_rate * x^T dlogits, the bias likewise.
//   images    (steps, tiles, P, 2, 2, 8, 8)  f16  in: 16 images by 16 features each, as four matrices of 8 by 8, P a
//             batch; the bias's pixel, 1, after the last feature, and zeros up to 16 * tiles
//   labels    (steps, 16 P)              i32  in, each 0 <= label < classes; with IS_PADDED -1 beyond the batch
//   grams     (steps - 1, 2 P, P, 32)    f16  in: neighbour_grams writes them, before this launch or beside it
//   ready     (steps - 1,)               i32  in: becomes `number` once the grams of that step can be read
//   weight    (inputs, classes)          f32  in, out: the first network's; the next one's lies `stride` numbers further on
//   bias      (classes,)                 f32  in, out: likewise
//   totals    (K, 2)                     f64  in, out: grow by the summed loss and the number right, if with_totals
//   learning_rates  (K,)                 f32  in: of the networks, each for the mean over 16 P images
// Kind:   fused.
// Launch: K clusters of BLOCKS blocks of THREADS, with SHARED_BYTES each; P = pairs, a batch fills 16 pairs images. Clusters
//   need not run at once: none waits for another. neighbour_grams with the same number must have run before, or have room to run
//   beside it. A neighbour_grams with another number may run beside it on other grams and flags.
// Needs:  sm_90, clusters of BLOCKS; pairs <= 8; tiles <= MOST_TILES * BLOCKS; classes <= 16; |weight| < 4,000.
// Order:  every sum has one order, independent of arrival; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_A_MULTIPROCESSOR) persistent_cluster(const uint4* images, const int* labels,
                                                                          const uint4* grams, const int* ready,
                                                                          float* weight, float* bias, double* totals,
                                                                          const float* learning_rates, int steps,
                                                                          int pairs, int tiles, int inputs, int classes,
                                                                          int stride, int number, int with_totals) {
    extern __shared__ __align__(128) uint4 memory[];  // bulk copies write whole 128-byte lines
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const Classes rows(classes);
    const int network = blockIdx.x / BLOCKS;
    weight += network * stride, bias += network * stride, totals += 2 * network;
    const EpochArguments epoch = {images, grams, labels, ready,  weight, bias,         steps,
                         pairs,  tiles, inputs, number, learning_rates[network]};
    // Products cover the full sizes: missing pixels, grams and dlogits must be zeros.
    for (int i = threadIdx.x; i < sizeof(Shared) / sizeof(uint4); i += THREADS) memory[i] = make_uint4(0, 0, 0, 0);
    fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int parity = 0; parity < 2; ++parity) {
            mbarrier_init(shared.logits_are_in[parity], 1);
            mbarrier_init(shared.dlogits_are_in[parity], 1);
        }
        const int of_logits = epoch.has_head(cluster_ctarank()) ? HEAD_WARPS + (with_totals ? 1 : 0) : 0;
        const int readers = BACKWARD_WARPS + FORWARD_WARPS + of_logits;
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(shared.fetched[stage], 1);
            mbarrier_init(shared.done_with[stage], readers * LANES_ARRIVE);
        }
        fence_mbarrier_init();
        for (int parity = 0; parity < 2; ++parity) {
            mbarrier_arrive_expect_tx(shared.logits_are_in[parity], BLOCKS * rows.bytes());
            mbarrier_arrive_expect_tx(shared.dlogits_are_in[parity], 2 * pairs * rows.bytes());
        }
    }
    barrier_cluster();
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
    barrier_cluster();  // a block that ends takes its remote buffers with it
    if (with_totals && cluster_ctarank() == 0 && threadIdx.x == 0) {
        for (int owner = 0; owner < 2 * pairs; ++owner) {
            totals[0] += shared.losses[owner];
            totals[1] += shared.corrects[owner];
        }
    }
}

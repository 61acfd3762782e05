// A network with hidden layers: a whole epoch in one launch, by one thread-block cluster for each of several networks.
//
// Who holds what. A chunk is eight units, eight images or eight features; a pair is two chunks of images, a tile two of
// features. Chunk c of a hidden layer belongs to block c % 16, in its slot c / 16. Classes have no owner: every block has
// their biases, and image chunk b's softmax is taken in block b.
//
//   16 blocks, each, in shared memory (offsets in `plan`):
//     images[2]           the batch, float16; the copy engine fills one while the other is read
//     layer 0 weights     own units x all features; or, if that is too much, the units of a group of `split` blocks x the
//                         own features
//     layer i weights     own units of layer i - 1 x all units of layer i: float32, and as a left factor in halves
//     outputs             own units x all images
//     exchange            remote buffer of a layer: first parts of sums for own units, then doutputs of all units
//     logits              remote buffer: the parts of the eight images' logits
//   16 warps              tasks, dealt out phase by phase; fragments are those of mma_m16n8k16_f16 (fragments.cuh)
//   sm_90a, 64 rows of units or 128: layer 0's weights in registers; 784-256-10, batch 128: two groups of 8 warps, each
//     with half of the images
//
// What travels in a step, always st.async to an mbarrier of the receiver, 512 bytes a warp:
//
//   layer 0           parts, to the owner in the group          only if features are split
//   layer i           parts of each unit, to its owner           from every block; the owner adds them up: outputs
//   classes           parts of the logits, to the images' owner  softmax there
//   dlogits           to every block                             in float16 halves
//   layer i doutputs  own units', to every block                 then each block updates its own weights
//   layer 0 doutputs  to the group                               only if features are split
//
// Long messages between hidden layers come in two turns, half of the images each. A layer's weights are updated while its
// messages travel. A barrier of the cluster ends the step, so that no message overwrites a buffer that is still read; no
// block waits at it before its next step's first product is done.
//
// Precision: tensor cores give float32's. Pixels are exact in float16; every other factor is two float16 halves, two rows of
// one left factor, whose rows of the product are added. With FACTOR_HALVES 1 a factor is one float16, messages too, and
// those rows are other units.
#include "cluster/mlp_epoch.cuh"

// cluster_mlp: a whole epoch of a network with one to four hidden layers, in one cluster for each of K networks. In each
// step weight -= learning_rate * x^T doutput, biases likewise.
//   images      (steps, 2 group_tiles, 2 pairs, 8, 8)  f16  in: matrices of 8 images by 8 features, those of the same
//               features side by side; zeros beyond the batch and the last feature
//   labels      (steps, batch)  i32  in, each 0 <= label < classes
//   parameters  (K, n)          f32  in, out: weights (I, O) and biases (O,) of all layers, as PLAN places them
//   totals      (K, 2)          f64  in, out: grow by the summed loss and the number right, if with_totals
//   learning_rates  (K,)        f32  in: of the networks, each for the mean over a batch
// Kind:   fused.
// Launch: K clusters of BLOCKS blocks of THREADS, with the dynamic shared memory that PLAN says; the kernel is compiled for
//   PLAN. Clusters need not run at once: none waits for another.
// Needs:  sm_90, clusters of BLOCKS; classes <= 64; batch <= 32 BLOCKS; |weight|, |output| < 4,000 and |doutput| < 250,
//   doutput that of the summed loss; with one half also parts of sums < 65,504.
// Order:  every sum has one order, independent of arrival; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS, 1) cluster_mlp(const uint4* images, const int* labels,
                                                                     float* parameters, double* totals,
                                                                     const float* learning_rates, int steps, int n,
                                                                     int with_totals) {
    extern __shared__ __align__(128) uint4 memory[];  // bulk copies write whole 128-byte lines
    __shared__ Barriers barriers;
    __shared__ Totals own_totals;
    Block block(reinterpret_cast<char*>(memory), barriers, own_totals);
    // Products cover the full sizes: missing units and features must be zeros.
#pragma unroll 1
    for (int i = threadIdx.x; i < plan.bytes / sizeof(uint4); i += THREADS) memory[i] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x < HEADS * HEAD_WARPS) own_totals[threadIdx.x] = {0.0, 0.0};
    fence_proxy_async();
    __syncthreads();
    const int network = blockIdx.x / BLOCKS;
    parameters += network * n, totals += 2 * network;
    MlpEpoch epoch(block, images, labels, steps, learning_rates[network]);
    epoch.copy_parameters(parameters, [](float& own, float& stored, float scale) { own = scale * stored; });
    if (threadIdx.x == 0) epoch.begin();
    barrier_cluster();  // before the first message: every block must have begun
    epoch.fetch_images(0);
    for (int step = 0; step < steps; ++step) {
        if (BY_WGMMA || (HALVES == 2 && PAIRS > 2)) block.find_place(step);  // else there are registers enough
        epoch.train(step, with_totals);
    }
    epoch.end();
    epoch.copy_parameters(parameters, [](float& own, float& stored, float scale) { stored = own / scale; });
    if (!with_totals) return;
    // Each head warp's totals, to the first block, where logits lay.
    double2* all = block.at<double2>(plan.logits);
    if (epoch.has_head() && block.lane == 0) {
        const int images = block.rank + block.warp_in_group / HEAD_WARPS * BLOCKS;
        const unsigned there = mapa(shared_address(&all[images * HEAD_WARPS + block.warp_in_group % HEAD_WARPS]), 0);
        st_shared_cluster(there, own_totals[block.warp_in_group].x);
        st_shared_cluster(there + sizeof(double), own_totals[block.warp_in_group].y);
    }
    barrier_cluster();
    if (block.rank == 0 && threadIdx.x == 0) {
        for (int i = 0; i < 2 * PAIRS * HEAD_WARPS; ++i) totals[0] += all[i].x, totals[1] += all[i].y;
    }
}

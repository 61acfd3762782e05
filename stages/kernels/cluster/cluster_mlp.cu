// A network with hidden layers, a whole epoch in one launch of one thread-block cluster: weights stay in shared memory,
// and blocks exchange what they must through each other's.
//
// Split: units come in chunks of eight, and chunk c of a hidden layer belongs to block c % BLOCKS. A block keeps the
// weights from its own units to the whole next layer. Forward, it adds its units' part to every unit of the next layer
// and sends that to the owner, who adds up what all blocks sent; backward, every block receives the doutputs of the
// whole layer. The first layer has no units below it, only pixels, which all can read: a block keeps the weights of its
// own units from all features, or, where that is too much to read, a group of `split` blocks the weights of its units,
// each from its own features. The classes' logits go to where their images' softmax is taken, eight images a block.
//
// Exchanges: a hidden layer's is one each way, in two turns where it is long, and the classes' two more. Messages are
// 512 bytes of a warp, and arrive by themselves at a barrier of the receiver's (st.async); a layer's weights are updated
// while they are on their way.
// A step's end is a barrier of the cluster, without which the next step's messages might overwrite what others still
// read; nobody waits at it before the next step's first product is done.
//
// Tensor cores give float32's precision: pixels are exact in float16, everything else comes in two halves, which are
// rows of one factor: a number is the sum of two rows of the product. Compiled with FACTOR_HALVES 1, everything else is
// rounded to one float16, what is sent too, and those rows are other units.
#include "cluster/mlp_epoch.cuh"

// cluster_mlp: an epoch of a network with one to four hidden layers, weight -= learning_rate * x^T doutput in each
// step, biases too.
//   images      (steps, 2 group_tiles, 2 pairs, 8, 8)  f16  in: matrices of 8 images by 8 features, those of the same
//               features side by side; zeros for images and features that there are not
//   labels      (steps, batch)  i32  in, each 0 <= label < classes
//   parameters  (n,)            f32  in, out: weights (I, O) and biases (O,) of all layers, where PLAN says
//   totals      (2,)            f64  in, out: grows by the summed loss and the number right, with with_totals
// Launch: one cluster of BLOCKS blocks of THREADS, with as much dynamic shared memory as PLAN says, for which the
//   kernel is compiled; learning_rate as a step's, for the mean over its images.
// Needs:  sm_90, clusters of BLOCKS; classes <= 16; batch <= 128; |weight|, |output| < 4,000 and |doutput| < 250,
//   doutput that of the summed loss; with one half also parts of sums < 65,504.
// Order:  every sum has one order, whoever comes first; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS, 1) cluster_mlp(const uint4* images, const int* labels,
                                                                     float* parameters, double* totals, int steps,
                                                                     float learning_rate, int with_totals) {
    extern __shared__ __align__(128) uint4 memory[];  // what comes from memory, by lines
    __shared__ Barriers barriers;
    __shared__ Totals own_totals;
    Block block(reinterpret_cast<char*>(memory), barriers, own_totals);
    // Units and features that there are fewer of are multiplied all the same.
#pragma unroll 1
    for (int i = threadIdx.x; i < plan.bytes / sizeof(uint4); i += THREADS) memory[i] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x < HEAD_WARPS) own_totals[threadIdx.x] = {0.0, 0.0};
    write_before_fetches();
    __syncthreads();
    MlpEpoch epoch(block, images, labels, steps, learning_rate);
    epoch.copy_parameters(parameters, [](float& own, float& stored, float scale) { own = scale * stored; });
    if (threadIdx.x == 0) epoch.begin();
    wait_for_cluster();  // nobody sends to a block that has not begun
    epoch.fetch_images(0);
    for (int step = 0; step < steps; ++step) {
        if (WARP_GROUPS > 1) block.find_place(step);  // elsewhere there are registers enough
        epoch.train(step, with_totals);
    }
    epoch.end();
    epoch.copy_parameters(parameters, [](float& own, float& stored, float scale) { stored = own / scale; });
    if (!with_totals) return;
    // In the first block, where logits were: every such warp's.
    double2* all = block.at<double2>(plan.logits);
    if (epoch.has_head() && block.lane == 0) {
        const unsigned there = address_in(shared_address(&all[block.rank * HEAD_WARPS + block.warp_in_group]), 0);
        store_in(there, own_totals[block.warp_in_group].x);
        store_in(there + sizeof(double), own_totals[block.warp_in_group].y);
    }
    wait_for_cluster();
    if (block.rank == 0 && threadIdx.x == 0) {
        for (int i = 0; i < 2 * PAIRS * HEAD_WARPS; ++i) totals[0] += all[i].x, totals[1] += all[i].y;
    }
}

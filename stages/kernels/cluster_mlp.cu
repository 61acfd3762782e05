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
// Exchanges: a hidden layer's is two barriers of the cluster a step, one each way, and the classes' two more. All go by
// stores of 512 bytes a warp. Weights are updated between a barrier's halves, while messages are on their way.
//
// Tensor cores give float32's precision: pixels are exact in float16, everything else comes in two halves, which are
// rows of one factor: a number is the sum of two rows of the product.
#include "mlp_epoch.cuh"
#include "mlp_parameters.cuh"

// cluster_mlp: an epoch of a network with one to four hidden layers, weight -= learning_rate * x^T doutput in each step,
// biases too.
//   images      (steps, group_tiles, pairs, 2, 2, 8, 8)  f16  in: 16 images by 16 features each, as four matrices of 8
//               by 8, first those of images 0-7; zeros for images and features that there are not
//   labels      (steps, batch)   i32  in, each 0 <= label < classes
//   plan        (numbers,)       i32  in: struct Plan
//   parameters  (n,)             f32  in, out: weights (I, O) and biases (O,) of all layers, where the plan says
//   totals      (2,)             f64  in, out: grows by the summed loss and the number right, with with_totals
// Launch: one cluster of BLOCKS blocks of THREADS, with as much dynamic shared memory as the plan says; learning_rate as
//   a step's, for the mean over its images.
// Needs:  sm_90, clusters of BLOCKS; classes <= 16; batch <= 128; |weight|, |output| < 4,000 and |doutput| < 250, doutput
//   that of the summed loss.
// Order:  every sum has one order, whoever comes first; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS, 1) cluster_mlp(const uint4* images, const int* labels,
                                                                     const int* plan, float* parameters, double* totals,
                                                                     int steps, float learning_rate, int with_totals) {
    extern __shared__ uint4 memory[];
    __shared__ Shared shared;
    for (int i = threadIdx.x; i < sizeof(Plan) / sizeof(int); i += THREADS) {
        reinterpret_cast<int*>(&shared.plan)[i] = plan[i];
    }
    __syncthreads();
    const Block block(shared.plan, reinterpret_cast<char*>(memory));
    // Units and features that there are fewer of are multiplied all the same.
    for (int i = threadIdx.x; i < shared.plan.bytes / sizeof(uint4); i += THREADS) memory[i] = make_uint4(0, 0, 0, 0);
    write_before_fetches();
    __syncthreads();
    Epoch epoch(block, shared.fetched, images, labels, steps, learning_rate);
    copy_parameters(block, parameters, [](float& own, float& stored) { own = stored; });
    __syncthreads();
    epoch.begin();
    for (int step = 0; step < steps; ++step) epoch.train(step, with_totals);
    epoch.end();
    copy_parameters(block, parameters, [](float& own, float& stored) { stored = own; });
    if (!with_totals) return;
    const double2 own = epoch.totals();
    if (threadIdx.x == 0) {
        store_in(address_in(shared_address(&shared.losses[block.rank]), 0), own.x);
        store_in(address_in(shared_address(&shared.corrects[block.rank]), 0), own.y);
    }
    wait_for_cluster();
    if (block.rank == 0 && threadIdx.x == 0) {
        for (int rank = 0; rank < BLOCKS; ++rank) {
            totals[0] += shared.losses[rank];
            totals[1] += shared.corrects[rank];
        }
    }
}

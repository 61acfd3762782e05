#include "grid/grid_epoch.cuh"

constexpr int LINE = 32;  // numbers of a cache line: counters of one line would wait for each other

// fleet_grid: persistent_grid for several networks at once, each on blocks of its own. None waits for another; all share the
// images and the plan.
//   images         (steps, slices, rows, tile_k)   u16  in: as in persistent_grid
//   labels         (steps, batch)                  i32  in, each 0 <= label < classes
//   parameters     (networks, stride)              f32  in, out: each placed by the plan
//   workspace      (networks, room)                f32  in, out: zeros before the first launch
//   block_totals   (networks, blocks, 2)           f64  out: each block's share of the totals, if with_totals
//   totals         (networks, 2)                   f64  in, out: grow by the summed loss and the number right, if with_totals
//   arrived        (networks, LINE)                u32  in, out: 0 before each launch; the first counts the network's arrivals
//   learning_rates (networks,)                     f32  in: for the mean over a batch
// Kind:   fused.
// Launch: cooperative, 2-D: blocks of a network by networks, each of THREADS; blocks and shared memory are those of the plan.
//   stride and room are a network's numbers, multiples of LINE; steps of the epoch.
// Needs:  any architecture with cooperative launch; fewer than 2^31 barriers times blocks of a network.
// Order:  every sum has one order, independent of arrival and of other networks; repeats bit for bit on as many blocks.
extern "C" __global__ void __launch_bounds__(THREADS, 1) fleet_grid(const unsigned short* images, const int* labels,
                                                                  float* parameters, float* workspace,
                                                                  double* block_totals, double* totals,
                                                                  unsigned* arrived, const float* learning_rates,
                                                                  int stride, int room, int steps, int with_totals) {
    extern __shared__ __align__(128) float memory[];  // the plan counts on aligned lines
    const size_t network = blockIdx.y;
    train_epoch(memory, images, labels, parameters + network * stride, workspace + network * room,
                block_totals + 2 * gridDim.x * network, totals + 2 * network, arrived + LINE * network, steps,
                learning_rates[network], with_totals);
}

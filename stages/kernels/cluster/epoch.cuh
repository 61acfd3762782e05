// Shared by the warp roles of persistent_cluster: sizes, arguments, and the buffers through which blocks and warps exchange.
#pragma once
#include "device/cluster.cuh"
#include "cluster/fragments.cuh"

constexpr int BLOCKS = 16;  // of the cluster; more than 8 need the non-portable attribute
constexpr int MOST_PAIRS = BLOCKS * HALF_EDGE / EDGE;  // 16-image pairs in a batch
constexpr int MOST_TILES = 4;  // 16-feature tiles in a block
constexpr int BACKWARD_WARPS = MOST_TILES;
constexpr int FORWARD_WARPS = MOST_PAIRS;
constexpr int HEAD_WARPS = 4;
constexpr int FETCH_WARP = BACKWARD_WARPS + FORWARD_WARPS + HEAD_WARPS, TOTALS_WARP = FETCH_WARP + 1;  // one each
constexpr int THREADS = (TOTALS_WARP + 1) * WARP;
#ifndef LANES_ARRIVE  // lanes of each warp that report a batch as read
#define LANES_ARRIVE 1  // racecheck needs 32: it does not see that __syncwarp orders the other lanes
#endif
#ifndef BLOCKS_A_MULTIPROCESSOR  // two hide each other's waits, and each has half of the memory and registers
#define BLOCKS_A_MULTIPROCESSOR 1
#endif
#ifndef IS_PADDED  // whether images are missing to whole pairs; else no instruction is spent on them
#define IS_PADDED 0
#endif
constexpr int STAGES = BLOCKS_A_MULTIPROCESSOR == 1 ? 8 : 3;  // batches in the ring: one at work, the others in flight
enum { HEAD_WARPS_MEET = 1, WEIGHTS_ARE_IN = 2, WEIGHTS_ARE_READ = 4 };  // barrier names; the last two plus the step's parity

// Scales before a number is split, so that the lower half is seldom too small for a float16.
constexpr float WEIGHT_SCALE = 16.0f;
constexpr float DLOGIT_SCALE = 1024.0f;
constexpr float NO_CLASS = -3.4e38f;  // the logit of a padded class: its power is 0

// Eight columns of a product by up to sixteen classes, as mma_m16n8k16_f16 leaves them: lane 4g + t has columns 2t and 2t + 1
// of class g in `upper`, of class g + 8 in `lower`. A uint2 is two float32, or two numbers in halves.
struct Columns {
    uint2 upper[WARP], lower[WARP];
};

// A block's share of a batch: for each tile of its features the P pairs of images, without gaps.
struct alignas(128) Batch {
    uint4 images[MOST_TILES * MOST_PAIRS * WARP];
    uint4 grams[MOST_PAIRS * WARP];  // own images with all images of the batch before
    int labels[HALF_EDGE];           // of the own images
};

struct Shared {
    Batch batches[STAGES];
    Barrier fetched[STAGES], done_with[STAGES];
    // Buffers by the step's parity. The buffer of step t is free for step t + 2: its writer has by then received a message
    // that the reader sent, or caused, after reading it.
    Columns partial_logits[2][BLOCKS];  // from each block, for this block's images
    Columns dlogits[2][BLOCKS];         // from each block, for that block's images
    Columns weights[2][2 * MOST_TILES];
    float4 sums[2][HEAD_WARPS][WARP];         // read before the head warps meet again, a step later
    double losses[BLOCKS], corrects[BLOCKS];  // in the first block, from each block
    Barrier logits_are_in[2], dlogits_are_in[2];

    __device__ void wait_for_batch(int step) { mbarrier_wait_parity(fetched[step % STAGES], step / STAGES % 2); }

    // Each reading warp reports that it has read the batch.
    __device__ void leave_batch(int step) {
        __syncwarp();
        if (threadIdx.x % WARP < LANES_ARRIVE) mbarrier_arrive(done_with[step % STAGES]);
    }
};

// Dynamic shared memory of a block (stages/persistent/persistent_cluster.py).
constexpr int SHARED_BYTES = 212 * 1024 / BLOCKS_A_MULTIPROCESSOR;
static_assert(sizeof(Shared) <= SHARED_BYTES);

// A lane's place in a Columns of another block, as addresses for st_async, with the barrier beside it.
struct RemoteBuffer {
    unsigned upper, lower, barrier;
};

// The buffer in the block at that distance which lies where `columns` and `barrier` lie here.
__device__ inline RemoteBuffer remote_buffer_at(unsigned distance, Columns& columns, Barrier& barrier) {
    const int lane = threadIdx.x % WARP;
    return {shared_address(&columns.upper[lane]) + distance, shared_address(&columns.lower[lane]) + distance,
            shared_address(&barrier) + distance};
}

struct Classes {
    bool has_upper, has_lower;  // whether classes g and g + 8 of this lane exist
    int count;

    __device__ explicit Classes(int classes) : count(classes) {
        const int row = threadIdx.x % WARP / 4;
        has_upper = row < classes;
        has_lower = row + HALF_EDGE < classes;
    }

    __device__ int bytes() const { return HALF_EDGE * count * 4; }  // sent for one Columns, padded classes excluded

    // Sends to several buffers in one call: the branches cost more than the sends.
    template <int COUNT>
    __device__ void send_to(const RemoteBuffer (&buffers)[COUNT], const uint2 (&upper)[COUNT],
                            const uint2 (&lower)[COUNT]) const {
        if (has_upper) {
#pragma unroll
            for (int i = 0; i < COUNT; ++i) st_async(buffers[i].upper, buffers[i].barrier, upper[i]);
        }
        if (has_lower) {
#pragma unroll
            for (int i = 0; i < COUNT; ++i) st_async(buffers[i].lower, buffers[i].barrier, lower[i]);
        }
    }

    // Two neighbouring Columns of halves as two left factors: classes 0 to 7, and 8 to 15. Rows 0 to 7 of a factor are high
    // halves and rows 8 to 15 low ones, so neighbours in memory are neighbours in registers. Add rows g and g + 8 of the
    // product.
    __device__ void load(const Columns* pair, unsigned (&upper)[4], unsigned (&lower)[4]) const {
        const int lane = threadIdx.x % WARP;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint2 first = pair[i].upper[lane];
            const uint2 second = has_lower ? pair[i].lower[lane] : make_uint2(0, 0);
            upper[2 * i] = first.x, upper[2 * i + 1] = first.y;
            lower[2 * i] = second.x, lower[2 * i + 1] = second.y;
        }
    }
};

// The kernel's arguments; its comment explains them.
struct EpochArguments {
    const uint4 *images, *grams;
    const int *labels, *ready;
    float *weight, *bias;
    int steps, pairs, tiles, inputs, number;
    float learning_rate;

    // The factor from a sum of scaled dlogits to an update.
    __device__ float rate() const { return learning_rate / (EDGE * pairs) / DLOGIT_SCALE; }

    // A block owns the tiles from its first one up to the next block's first.
    __device__ int first_tile(int rank) const { return rank * tiles / BLOCKS; }

    // Whether a block owns images, and so takes softmax.
    __device__ bool has_head(int rank) const { return rank < 2 * pairs; }
};

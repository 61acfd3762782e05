// What the roles of persistent_cluster share: its sizes, what it is given, and where blocks and warps exchange.
#pragma once
#include "device/cluster.cuh"
#include "cluster/fragments.cuh"

constexpr int BLOCKS = 16;  // of the cluster; more than 8 have to be asked for
constexpr int MOST_PAIRS = BLOCKS * HALF_EDGE / EDGE;  // of tiles, in a batch
constexpr int MOST_TILES = 4;  // of features, in a block
constexpr int BACKWARD_WARPS = MOST_TILES;
constexpr int FORWARD_WARPS = MOST_PAIRS;
constexpr int HEAD_WARPS = 4;
constexpr int FETCH_WARP = BACKWARD_WARPS + FORWARD_WARPS + HEAD_WARPS, TOTALS_WARP = FETCH_WARP + 1;  // one each
constexpr int THREADS = (TOTALS_WARP + 1) * WARP;
#ifndef LANES_ARRIVE  // of each warp, to say that it has read a batch
#define LANES_ARRIVE 1  // for racecheck 32, since it does not see that __syncwarp speaks for the others
#endif
constexpr int STAGES = 8;  // batches on the chip: the one at work, and those that are on their way
enum { HEAD_WARPS_MEET = 1, WEIGHTS_ARE_IN = 2, WEIGHTS_ARE_READ = 4 };  // and the next one: by their step's parity

// Both are multiplied before they are split, so that the lower half is seldom too small for a float16.
constexpr float WEIGHT_SCALE = 16.0f;
constexpr float DLOGIT_SCALE = 1024.0f;
constexpr float NO_CLASS = -3.4e38f;  // the logit of a row that is none: its power is 0

// Eight columns of a product with up to sixteen rows, one row a class, as multiply_add leaves them: `upper` rows g and
// `lower` rows g + 8 of columns 2t and 2t + 1, g = lane / 4, t = lane % 4. Two float32, or two numbers in halves.
struct Columns {
    uint2 upper[WARP], lower[WARP];
};

// What a block needs of a batch: a row a tile of its features, and in it P pairs, without a gap.
struct alignas(128) Batch {
    uint4 images[MOST_TILES * MOST_PAIRS * WARP];
    uint4 grams[MOST_PAIRS * WARP];  // of its own images with all those of the batch before
    int labels[HALF_EDGE];                // of its own images
};

struct Shared {
    Batch batches[STAGES];
    Barrier fetched[STAGES], done_with[STAGES];
    // By the step's parity. What holds step t is free for step t + 2: whoever sends or publishes that has received what
    // the reader sent, or made others send, after it had read this.
    Columns partial_logits[2][BLOCKS];  // from each block, of this block's images
    Columns dlogits[2][BLOCKS];         // from each block, of its images
    Columns weights[2][2 * MOST_TILES];
    float4 sums[2][HEAD_WARPS][WARP];         // read before their readers meet again, a step later
    double losses[BLOCKS], corrects[BLOCKS];  // in the first block, from each
    Barrier logits_are_in[2], dlogits_are_in[2];

    __device__ void wait_for_batch(int step) { wait_for(fetched[step % STAGES], step / STAGES % 2); }

    // Each warp that reads batches says so when it has read one.
    __device__ void leave_batch(int step) {
        __syncwarp();
        if (threadIdx.x % WARP < LANES_ARRIVE) arrive(done_with[step % STAGES]);
    }
};

// What each block is launched with; stages/persistent/r1_persistent_cluster.py asks for so much.
constexpr int SHARED_BYTES = 212 * 1024;
static_assert(sizeof(Shared) <= SHARED_BYTES);

// Two neighbouring columns of the classes that a lane has: the addresses of a remote_buffer, as send wants them.
struct RemoteBuffer {
    unsigned upper, lower, barrier;
};

// The remote_buffer in another block that is where these are in this one.
__device__ inline RemoteBuffer remote_buffer_at(unsigned distance, Columns& columns, Barrier& barrier) {
    const int lane = threadIdx.x % WARP;
    return {shared_address(&columns.upper[lane]) + distance, shared_address(&columns.lower[lane]) + distance,
            shared_address(&barrier) + distance};
}

struct Classes {
    bool has_upper, has_lower;  // whether rows g and g + 8 of this lane are classes
    int count;

    __device__ explicit Classes(int classes) : count(classes) {
        const int row = threadIdx.x % WARP / 4;
        has_upper = row < classes;
        has_lower = row + HALF_EDGE < classes;
    }

    __device__ int bytes() const { return HALF_EDGE * count * 4; }  // of one Columns, without rows that are no class

    // To several buffers at once, since the branches cost more than the sending.
    template <int COUNT>
    __device__ void send_to(const RemoteBuffer (&buffers)[COUNT], const uint2 (&upper)[COUNT],
                            const uint2 (&lower)[COUNT]) const {
        if (has_upper) {
#pragma unroll
            for (int i = 0; i < COUNT; ++i) send(buffers[i].upper, buffers[i].barrier, upper[i]);
        }
        if (has_lower) {
#pragma unroll
            for (int i = 0; i < COUNT; ++i) send(buffers[i].lower, buffers[i].barrier, lower[i]);
        }
    }

    // Two neighbouring Columns of halves as two left factors, of the first eight classes and of the others. Rows 0 to 7
    // are the higher halves and rows 8 to 15 the lower ones, since the two that lie side by side in memory then belong
    // side by side in registers; a product's rows g and g + 8 have to be added.
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

// What a launch is given; the kernel's comment explains it.
struct EpochArguments {
    const uint4 *images, *grams;
    const int *labels, *ready;
    float *weight, *bias;
    int steps, pairs, tiles, inputs, number;
    float learning_rate;

    // What turns a sum of scaled dlogits into an update.
    __device__ float rate() const { return learning_rate / (EDGE * pairs) / DLOGIT_SCALE; }

    // The tiles of a block are those from its own first one up to the next block's.
    __device__ int first_tile(int rank) const { return rank * tiles / BLOCKS; }

    // Whether a block owns images.
    __device__ bool has_head(int rank) const { return rank < 2 * pairs; }
};

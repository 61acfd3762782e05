// What both roles of persistent_cluster share: its sizes, what it is given, and where blocks and warps exchange.
#pragma once
#include "cluster.cuh"
#include "fragments.cuh"

constexpr int BLOCKS = 16;  // of the cluster; more than 8 have to be asked for
constexpr int MOST_PAIRS = BLOCKS * TILE / EDGE;  // of tiles, in a batch
constexpr int FEATURE_WARPS = 4;  // each keeps one fragment of weights
constexpr int HEAD_WARPS = 4;
constexpr int THREADS = (FEATURE_WARPS + HEAD_WARPS) * WARP;
constexpr int PAIRS_A_WARP = MOST_PAIRS / FEATURE_WARPS;
constexpr int PREFETCH = 4;  // steps ahead, from memory into L2
enum { FEATURE_WARPS_MEET = 1, HEAD_WARPS_MEET };

// Both are multiplied before they are split, so that the lower half is seldom too small for a float16.
constexpr float WEIGHT_SCALE = 16.0f;
constexpr float DLOGIT_SCALE = 1024.0f;
constexpr float NO_CLASS = -3.4e38f;  // the logit of a row that is none: its power is 0

// Eight columns of a product with up to sixteen rows, one row a class, as multiply_add leaves them: `upper` rows g and
// `lower` rows g + 8 of columns 2t and 2t + 1, g = lane / 4, t = lane % 4. Two float32, or two numbers in halves.
struct Columns {
    uint2 upper[WARP], lower[WARP];
};

struct Shared {
    // By the step's parity. A mailbox of step t is free for step t + 2: whoever sends that has received what its owner
    // sent after it had read this.
    Columns partial_logits[2][BLOCKS];  // from each block, of this block's images
    Columns dlogits[2][BLOCKS];         // from each block, of its images
    Columns weights[2][2 * FEATURE_WARPS];
    float4 sums[2][HEAD_WARPS][WARP];
    double losses[BLOCKS], corrects[BLOCKS];  // in the first block, from each
    Barrier logits_are_in[2], dlogits_are_in[2];
};

// Two neighbouring columns of the classes that a lane has: the addresses of a mailbox, as send wants them.
struct Mailbox {
    unsigned upper, lower, barrier;
};

__device__ inline Mailbox mailbox_in(int rank, Columns& columns, Barrier& barrier) {
    const int lane = threadIdx.x % WARP;
    return {address_in(shared_address(&columns.upper[lane]), rank),
            address_in(shared_address(&columns.lower[lane]), rank), address_in(shared_address(&barrier), rank)};
}

struct Classes {
    bool has_upper, has_lower;  // whether rows g and g + 8 of this lane are classes
    int count;

    __device__ explicit Classes(int classes) : count(classes) {
        const int row = threadIdx.x % WARP / 4;
        has_upper = row < classes;
        has_lower = row + TILE < classes;
    }

    __device__ int bytes() const { return TILE * count * 4; }  // of one Columns, without rows that are no class

    __device__ void send_to(const Mailbox& box, uint2 upper, uint2 lower) const {
        if (has_upper) send(box.upper, box.barrier, upper.x, upper.y);
        if (has_lower) send(box.lower, box.barrier, lower.x, lower.y);
    }

    // The left factor of a product from two neighbouring Columns of halves.
    __device__ void load(const Columns* pair, unsigned (&high)[4], unsigned (&low)[4]) const {
        const int lane = threadIdx.x % WARP;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint2 upper = pair[i].upper[lane];
            const uint2 lower = has_lower ? pair[i].lower[lane] : make_uint2(0, 0);
            high[2 * i] = upper.x, low[2 * i] = upper.y;
            high[2 * i + 1] = lower.x, low[2 * i + 1] = lower.y;
        }
    }
};

// What a launch is given; the kernel's comment explains it.
struct Epoch {
    const uint4 *images, *features, *grams;
    const int* labels;
    float *weight, *bias;
    int steps, pairs, tiles, inputs;
    float learning_rate;
};

// Shared by the warp roles of cluster_ahead: sizes, arguments, and the buffers through which blocks and warps exchange.
#pragma once
#include "device/blocks_together.cuh"
#include "device/messages.cuh"
#include "device/warpgroup.cuh"
#include "cluster/fragments.cuh"

// stages/persistent/ahead_plan.py compiles the kernel for these.
#ifndef CLUSTER_BLOCKS
#define CLUSTER_BLOCKS 16
#endif
#ifndef CLASS_COUNT
#define CLASS_COUNT 10
#endif
#ifndef UNIT_TURNS
#define UNIT_TURNS 1
#endif
#ifndef SLICE_TILES
#define SLICE_TILES 13
#endif
#ifndef FACTOR_HALVES
#define FACTOR_HALVES 2
#endif
#ifndef SHARED_BYTES
#define SHARED_BYTES (227 * 1024)
#endif
#ifndef LANES_ARRIVE  // lanes of each warp that report what they have read; racecheck needs 32 (epoch.cuh)
#define LANES_ARRIVE 1
#endif

constexpr int BLOCKS = CLUSTER_BLOCKS;   // of a cluster: each block of the head has TURNS tiles of 16 units, and 8 images
constexpr int TURNS = UNIT_TURNS;        // 1, 2 or 4; a block takes its tiles of units in turn
constexpr int CLASSES = CLASS_COUNT;     // at most 16
constexpr int TILES = SLICE_TILES;       // tiles of 16 features in a block of the first layer
constexpr int HALVES = FACTOR_HALVES;    // float16 summands of a factor: two for float32's class, or one
constexpr int PAIRS = BLOCKS / 2;        // of eight images; a warp of the head has one
constexpr int SHARES = 4;                // blocks that share the features of a block's units
constexpr int GRAM_STAGES = (4 / HALVES + TURNS - 1) / TURNS;  // grams in flight
constexpr int IMAGE_STAGES = 3;          // batches: one at work, the one whose update is due, one on its way
constexpr int SLOTS = 4;                 // of a mailbox through L2, by the step
// Who adds up the SHARES parts of products. ADDS: one of the blocks that have them, a hop through the cluster before their way
// through L2. Else each of these blocks a quarter, by way of L2; they have no memory for that hop's buffers.
constexpr bool ADDS = TURNS == 1;
constexpr int UNITS = 2;  // of products of a pair of images and a tile of units, 16 bytes a lane: for eight units each

constexpr int MOST_IMAGE_WARPS = 8;
constexpr int LAST_WARP = MOST_IMAGE_WARPS;  // and the next; then four that receive products
constexpr int RECEIVE_WARP = LAST_WARP + 2, RECEIVERS = PAIRS < 4 ? PAIRS : 4;
// Of the first layer: two groups of eight warps; or fourteen, of which eight have images, and two that add up.
constexpr int GROUPS = ADDS ? 1 : 2, FIRST_WARPS = ADDS ? 14 : 16, ADD_WARP = FIRST_WARPS;
constexpr int FETCH_WARP = RECEIVE_WARP + 4;  // of the head
constexpr int THREADS = 2 * MOST_IMAGE_WARPS * WARP;
constexpr int MEET = 1;  // the barrier of the warps that multiply

// Whether warpgroups multiply in the first layer, and by grams. They read a factor in shared memory once, where single warps
// read it for each of their tiles. Only for these sizes.
constexpr bool WARPGROUPS = HAS_WGMMA && TURNS == 4 && PAIRS == 8 && TILES == 13;

constexpr float LOW = 2048.0f;  // the scale of lower halves, so that they are seldom too small for a float16
constexpr float NO_CLASS = -3.4e38f;

// Sixteen images by sixteen units: matrices of 8 by 8 by half of the images and half of the units. A lane's word of a matrix
// is what it has of a product: units 2t and 2t + 1 of image g.
struct Matrices {
    unsigned words[2][2][WARP];
};

#if FACTOR_HALVES == 2
using GramUnit = uint4;
#else
using GramUnit = uint2;
#endif

// One sender's partial logits of eight images: eight classes an image, then the rest; float32, or float16.
constexpr int REST = CLASSES > 8 ? (CLASSES - 8 + 1) / 2 * 2 : 0;
constexpr int PART_NUMBERS = HALF_EDGE * (8 + REST), PART_APART = PART_NUMBERS + 2;
constexpr int NUMBER_BYTES = 2 * HALVES;

struct alignas(128) Head {
    GramUnit grams[GRAM_STAGES][2 * PAIRS][PAIRS][WARP];
    unsigned doutputs[PAIRS][HALVES][2][TURNS][2][WARP];  // matrices by half of the images, and by eight units
    Matrices outputs[TURNS][HALVES][PAIRS];
    float4 products[PAIRS][TURNS][UNITS][WARP];      // x(t) W(t - 1): this block's units
    unsigned weights[2][TURNS][HALVES][2][2][WARP];  // of the last layer, by the step's parity, then by half of the classes
                                                     // and of the units
    alignas(16) unsigned char partial_logits[2][BLOCKS * PART_APART * NUMBER_BYTES];
    alignas(16) unsigned short dlogits[2][BLOCKS][HALVES][CLASSES][HALF_EDGE];
    alignas(16) unsigned short own_dlogits[HALVES][CLASSES][HALF_EDGE];
    alignas(16) unsigned short zeros[HALF_EDGE];
    float bias[EDGE];
    uint4 totals[BLOCKS * PAIRS];  // in the first block, from each warp: the loss and the number right, float64
    // By the step's parity: a buffer of step t is free for step t + 2, for its writer has by then received a message that the
    // reader sent, or caused, after reading it.
    Barrier logits_in[2], dlogits_in[2];
    Barrier grams_in[GRAM_STAGES], grams_read[GRAM_STAGES];
    Barrier products_in, products_read, outputs_in, weights_in, totals_in;
};

constexpr int OWN_PAIRS = (PAIRS + SHARES - 1) / SHARES;  // pairs of images whose products a block adds up

struct alignas(128) First {
    uint4 images[IMAGE_STAGES][TILES][PAIRS][WARP];
    Matrices doutputs[TURNS == 4 ? TURNS / HALVES : GROUPS][HALVES][PAIRS];  // of so many tiles of units, or images
    uint4 weights[TURNS][TILES][HALVES][WARP];
    uint4 parts[ADDS ? IMAGE_STAGES * SHARES * OWN_PAIRS * UNITS * WARP : 1];  // from each block that has these units
    Barrier parts_in[IMAGE_STAGES], images_in[IMAGE_STAGES];
};

static_assert(sizeof(Head) <= SHARED_BYTES && sizeof(First) <= SHARED_BYTES);

// The kernel's arguments; its comment explains them.
struct Epoch {
    const uint4* images;
    const int* labels;
    const GramUnit* grams;
    const int* ready;
    float *weights, *bias, *last_weights, *last_bias;
    double* totals;
    uint4 *products, *doutputs;
    int steps, inputs, units, batch, number, begun;
    float rate;

    __device__ int slot(int step) const { return (begun + step) % SLOTS; }
    // Memory begins as zeros, so the first round's tag is 1.
    __device__ unsigned tag(int step) const { return ((begun + step) / SLOTS & 1) ^ 1; }
    // What this lane has of a pair of images and a tile of units of one block of the head: units of sixteen bytes, WARP apart.
    // The next tile follows.
    __device__ uint4* products_of(int step, int block, int pair, int turn = 0) const {
        return products + at(step, block, pair, turn) * UNITS * WARP + threadIdx.x % WARP;
    }
    // Beyond those: of such a tile and half of its units, the sums by the three other blocks that have features of them.
    __device__ uint4* parts_of(int step, int block, int pair, int turn, int half) const {
        constexpr int FIRST = SLOTS * BLOCKS * PAIRS * TURNS * UNITS;
        const int unit = FIRST + (at(step, block, pair, turn) * UNITS + half) * (SHARES - 1);
        return products + unit * WARP + threadIdx.x % WARP;
    }
    __device__ uint4* doutputs_of(int step, int block, int pair, int turn = 0) const {
        return doutputs + at(step, block, pair, turn) * HALVES * WARP + threadIdx.x % WARP;
    }

  private:
    __device__ int at(int step, int block, int pair, int turn) const {
        return ((slot(step) * BLOCKS + block) * PAIRS + pair) * TURNS + turn;
    }
};

// The warp reports what all its lanes have done.
__device__ inline void arrive_as_warp(Barrier& barrier) {
    __syncwarp();
    if (threadIdx.x % WARP < LANES_ARRIVE) mbarrier_arrive(barrier);
}

// Two numbers as halves; the lower ones times LOW.
__device__ inline Halves scaled_halves_of(float first, float second, unsigned kept = ~0u) {
    Halves halves = {cvt_f16x2(first, second) & kept, 0};
    if constexpr (HALVES == 2) {
        const float2 high = cvt_f32_f16x2(halves.high);
        halves.low = cvt_f16x2((first - high.x) * LOW, (second - high.y) * LOW) & kept;
    }
    return halves;
}

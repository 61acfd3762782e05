// What the phases of cluster_mlp share: sizes, who owns what, and where it lies. stages/persistent/cluster_plan.py makes the plan,
// and the kernel is compiled for it: the steps between messages are so short that reading sizes would be most of them.
#pragma once
#include "cluster/matrices.cuh"
#include "device/warpgroup.cuh"

constexpr int BLOCKS = 16;  // of the cluster; more than 8 have to be asked for
constexpr int WARPS = 16;   // of a block
constexpr int THREADS = WARPS * WARP;
constexpr int MOST_LAYERS = 5;
constexpr int CLASS_CHUNKS = 2;  // classes are padded to sixteen

// Multiplied before a number is split, so that the lower half is seldom too small for a float16; of a gradient the only
// one might be as well.
constexpr float WEIGHT_SCALE = HALVES == 2 ? 16.0f : 1.0f;
constexpr float OUTPUT_SCALE = HALVES == 2 ? 16.0f : 1.0f;
constexpr float GRADIENT_SCALE = 256.0f;
constexpr float NO_CLASS = -3.4e38f;  // the logit of a row that is none: its power is 0

// Eight units of a layer by eight of the one below, WEIGHT_SCALE times: float32, two of a row to a lane, and as a factor.
struct Weights {
    float2 values[WARP];
    Matrix factor;
};

// One layer of weights with its units, in chunks of eight. Offsets are bytes in shared memory, or floats of parameters.
struct Layer {
    int units, slots, chunks;  // chunk c is in slot c / BLOCKS of block c % BLOCKS; classes have chunks but no slots
    int weights;               // first: float2 (2 TILES, GROUP_CHUNKS, WARP), WEIGHT_SCALE times, two of a unit's row, or
                               // by warpgroups Matrix (2 TILES, GROUP_CHUNKS); others: Weights (slots below, chunks)
    int outputs;               // Matrix (slots, 2 PAIRS), OUTPUT_SCALE times the own units' outputs
    int biases;                // float (slots, 8); of the classes, in every block, (CLASS_CHUNKS, 8)
    int exchange;  // Part (senders, slots, PAIRS, WARP), what the senders add to own units; then Matrix (chunks, 2
                   // PAIRS), GRADIENT_SCALE times doutputs of all units, of the first layer those of the group
    int weights_begin, biases_begin;
};

// Where memory is short, and hidden layers are two or more, logits lie in the first layer's exchange, which is idle then:
// whoever sends logits has had parts of the second layer's sums from all blocks, which had added up the first layer's
// before; whoever sends the first layer's doutputs has had dlogits from all blocks that have logits, and these share
// them once their softmax has read what lay there; and the next step's parts wait for the cluster.
struct Plan {
    int bytes;  // of shared memory
    int layer_count, inputs, batch;
    int pairs;               // of chunks of eight images
    int split, ways;         // features divided among so many blocks, a group, and within a block so many warps
    int tiles, group_tiles;  // of sixteen features, in a block and in a group
    int images[2], logits;   // offsets; logits: Part (senders, NEXT_SENDER) of this block's eight images
    Layer layers[MOST_LAYERS];
};

#ifndef PLAN  // that of 784-128-128-128-10 with batches of 32
#define PLAN \
    205728, 4, 784, 32, 2, 1, 16, 49, 49, 0, 50176, 197120, \
    128, 1, 16, 100352, 142848, 205568, 145920, 0, 134400, \
    128, 1, 16, 125440, 143872, 205600, 162304, 100352, 134528, \
    128, 1, 16, 133632, 144896, 205632, 178688, 116736, 134656, \
    10, 0, 2, 141824, 0, 205664, 195072, 133120, 134784
#endif
constexpr Plan plan = {PLAN};
constexpr int PAIRS = plan.pairs, SPLIT = plan.split, WAYS = plan.ways, TILES = plan.tiles;
constexpr int LAST = plan.layer_count - 1;  // layer
constexpr int GROUP_CHUNKS = plan.layers[0].slots * SPLIT;

// Of the chunks of units whose halves, or whose only numbers, fill the sixteen rows of a left factor.
constexpr int ROW_CHUNKS = 2 / HALVES;

// Where the first layer's passes are for warpgroups, which multiply faster than single warps do, of the size that there are
// instructions for here: eight chunks of units by 16 chunks of images and 26 of features.
constexpr bool BY_WGMMA = HAS_WGMMA && plan.layer_count == 2 && GROUP_CHUNKS == 8 && PAIRS == 8 && TILES == 13;

// Warps work in warp groups, each with a share of the batch's images, so that one waits for messages while another multiplies.
constexpr int WARP_GROUPS = BY_WGMMA ? 2 : 1;
constexpr int WARPS_OF_GROUP = WARPS / WARP_GROUPS, PAIRS_OF_GROUP = PAIRS / WARP_GROUPS;

// Where messages between hidden layers are long, they come in turns, a half of the images each: one is multiplied while the
// other is on its way. Of one half to a number they are not, and the barriers cost more than that gains.
constexpr int TURNS = HALVES == 2 && plan.layer_count > 2 && PAIRS % 2 == 0 && plan.layers[1].slots > 1 ? 2 : 1;
constexpr int TURN_PAIRS = PAIRS_OF_GROUP / TURNS;
constexpr int PORTIONS = WARP_GROUPS * TURNS;  // of a batch, a warp_group's images or a turn's: one of the two is 1
// Names of barriers; the first two are each warp_group's, from here on.
enum {
    WARP_GROUP_MEETS = 1,
    WARP_GROUP_HAS_SHARED = WARP_GROUP_MEETS + WARP_GROUPS,
    FIRST_WARP_GROUP_HAS_BEGUN = WARP_GROUP_HAS_SHARED + WARP_GROUPS,
    CLASSES_ARE_UPDATED
};

// What messages to a block are awaited at, those about each portion of the images: parts of the sums of a layer's own units,
// and doutputs of all its units. Logits have the first of two; the first layer's parts and dlogits do not come in turns.
struct Barriers {
    Barrier parts[MOST_LAYERS][PORTIONS], doutputs[MOST_LAYERS][PORTIONS];
    Barrier fetched[2];  // a step's images, by its parity
};

constexpr int HEAD_WARPS = 4;  // of a warp_group, which have the softmax of a block's eight images
using Totals = double2[HEAD_WARPS];  // summed loss and number right of each one's images

// From a sender's logits to the next one's; one more than there are, so that they are not in the same banks.
constexpr int NEXT_SENDER = WARP + 1;

// What a block knows of itself.
struct Block {
    char* memory;
    Barriers& barriers;
    Totals& totals;
    int rank, warp, lane;
    int warp_group, warp_in_group;  // this warp's

    __device__ Block(char* memory, Barriers& barriers, Totals& totals)
        : memory(memory), barriers(barriers), totals(totals) {
        find_place(-1);
    }

    // Which block and thread this is: the same in every step, which the compiler is not to know. It would keep all addresses
    // that depend on it from step to step, more than there are registers; and those that it spills come from L2 each time,
    // since the cluster's barrier empties L1.
    __device__ void find_place(int step) {
        unsigned block = rank_in_cluster(), thread = threadIdx.x;
        asm("" : "+r"(block), "+r"(thread) : "r"(step));
        rank = block % BLOCKS;
        warp = thread / WARP % WARPS, lane = thread % WARP;
        warp_group = warp / WARPS_OF_GROUP, warp_in_group = warp % WARPS_OF_GROUP;
    }

    // Of the four matrices that are loaded at once, the one whose row this lane has is of the right two, and a lower one.
    __device__ int right() const { return lane / 16; }
    __device__ int lower() const { return lane / 8 % 2; }

    template <class Type>
    __device__ Type* at(int offset) const {
        return reinterpret_cast<Type*>(memory + offset);
    }

    // Blocks that divide the features among them, for the units that they own together.
    __device__ int group() const { return rank / SPLIT; }
    __device__ int member() const { return rank % SPLIT; }
    __device__ int owner_in_group(int chunk) const { return group() * SPLIT + chunk % SPLIT; }

    // Where the chunk in that slot of this block's is among the doutputs that blocks receive.
    template <int INDEX>
    __device__ int received_as(int slot) const {
        return INDEX == 0 ? slot * SPLIT + member() : slot * BLOCKS + rank;
    }

    // Whether the images of this block's softmax are there, and which warp_group's they are.
    __device__ bool has_head() const { return rank < 2 * PAIRS; }
    __device__ int head_warp_group() const { return WARP_GROUPS == 1 ? 0 : rank / (2 * PAIRS_OF_GROUP); }

    __device__ int portion(int turn) const { return warp_group + turn; }
    __device__ int first_pair(int turn = 0) const { return warp_group * PAIRS_OF_GROUP + turn * TURN_PAIRS; }
    __device__ bool is_first_of_warp_group() const { return threadIdx.x % (WARPS_OF_GROUP * WARP) == 0; }

    // A warp_group's __syncthreads.
    __device__ void meet() const {
        if (WARP_GROUPS == 1) __syncthreads();
        else wait_for_warps(WARP_GROUP_MEETS + warp_group, WARPS_OF_GROUP * WARP);
    }
};

// A product whose left factor has `ROW_CHUNKS` chunks of units in its rows: what this lane has of the sums of one.
__device__ inline float2 sums_of(const float (&product)[4], int chunk) {
    if (HALVES == 2) return {product[0] + product[2], product[1] + product[3]};
    return chunk == 0 ? float2{product[0], product[1]} : float2{product[2], product[3]};
}

// Deals tasks out to the warps of a warp_group.
template <int TASKS, class Work>
__device__ void deal_out(const Block& block, Work work) {
    constexpr int ROUNDS = (TASKS + WARPS_OF_GROUP - 1) / WARPS_OF_GROUP;
#pragma unroll(ROUNDS <= 2 ? ROUNDS : 1)
    for (int round = 0; round < ROUNDS; ++round) {
        const int task = round * WARPS_OF_GROUP + block.warp_in_group;
        if (TASKS % WARPS_OF_GROUP == 0 || task < TASKS) work(task);
    }
}

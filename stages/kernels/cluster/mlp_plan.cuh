// Shared by the phases of cluster_mlp: sizes, ownership, and places in shared memory. stages/persistent/cluster_plan.py makes
// the plan, and the kernel is compiled for it: phases are so short that reading sizes would take most of their time.
#pragma once
#include "cluster/matrices.cuh"
#include "device/warpgroup.cuh"

#ifndef BLOCKS_OF_CLUSTER  // more than 8 need the non-portable attribute
#define BLOCKS_OF_CLUSTER 16
#endif
constexpr int BLOCKS = BLOCKS_OF_CLUSTER;
constexpr int WARPS = 16;   // of a block
constexpr int THREADS = WARPS * WARP;
constexpr int MOST_LAYERS = 5;

// Scales before a number is split, so that the lower half is seldom too small for a float16. A gradient needs one even if
// its only half is kept.
constexpr float WEIGHT_SCALE = HALVES == 2 ? 16.0f : 1.0f;
constexpr float OUTPUT_SCALE = HALVES == 2 ? 16.0f : 1.0f;
constexpr float GRADIENT_SCALE = 256.0f;
constexpr float LEAST_HALF = 1.0f / (1 << 24);  // float16's smallest number
constexpr int TILE_BYTES = EDGE * EDGE * 2;  // of pixels
constexpr float NO_CLASS = -3.4e38f;  // the logit of a padded class: its power is 0

// Weights of a chunk of units by a chunk of the layer below, times WEIGHT_SCALE: float32, two of a row a lane, and as a factor.
struct Weights {
    float2 values[WARP];
    Matrix factor;
};

// One layer of weights with its units. Offsets are bytes in shared memory; `.._begin` count floats of parameters.
struct Layer {
    int units, slots, chunks;  // chunk c is in slot c / BLOCKS of block c % BLOCKS; classes have chunks but no slots
    int weights;               // first: float2 (2 TILES, GROUP_CHUNKS, WARP), times WEIGHT_SCALE, two of a unit's row, or
                               // with wgmma Matrix (2 TILES, GROUP_CHUNKS); others: Weights (slots below, chunks)
    int outputs;               // Matrix (slots, 2 PAIRS), own units' outputs times OUTPUT_SCALE
    int biases;                // float (slots, 8); the classes', in every block, (CLASS_CHUNKS, 8)
    int exchange;  // Part (senders, slots, PAIRS, WARP), parts of own units' sums; then Matrix (chunks, 2 PAIRS), doutputs
                   // of all units times GRADIENT_SCALE, of the first layer those of the block group
    int weights_begin, biases_begin;
};

// Where memory is short, and there are two hidden layers or more, logits lie in the first layer's exchange. It is idle then:
// - A sender of logits has received parts of the second layer from all blocks, which have read the first layer's parts.
// - A sender of the first layer's doutputs has received dlogits from all blocks that had logits, sent after they read them.
// - The next step's parts wait for the cluster's barrier.
struct Plan {
    int bytes;  // of shared memory
    int layer_count, inputs, batch;
    int pairs;               // 16-image pairs in a batch
    int split, ways;         // the features of a unit are divided among `split` blocks, a block group, and `ways` warps of each
    int tiles, group_tiles;  // 16-feature tiles of a block, and of a block group
    int images[2], logits;   // offsets; logits: Part (HEADS, senders, NEXT_SENDER), a WARP for each pair of chunks
    Layer layers[MOST_LAYERS];
};

#ifndef PLAN  // 784-128-128-128-10, batches of 32
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
constexpr int CLASS_CHUNKS = plan.layers[LAST].chunks, CLASS_PAIRS = CLASS_CHUNKS / 2;  // classes are padded to sixteen
constexpr int GROUP_CHUNKS = plan.layers[0].slots * SPLIT;

// Chunks of units in the sixteen rows of a left factor: one in two halves, or two.
constexpr int ROW_CHUNKS = 2 / HALVES;

// Chunks of a layer that blocks multiply and send, an even number. Those behind have no units, and their outputs stay 0. Where
// logits lie in the first layer's exchange, every block must wait for parts of the second layer: chunks without units travel.
__device__ constexpr int sent_chunks(Layer layer) {
    const int used = (layer.units + EDGE - 1) / EDGE * 2;
    return used < layer.chunks && plan.logits != plan.layers[0].exchange ? used : layer.chunks;
}
// Of the hidden layers; the first one's go to a block group, where all slots are alike.
__device__ constexpr int SENT[] = {plan.layers[0].chunks, sent_chunks(plan.layers[1]), sent_chunks(plan.layers[2]),
                        sent_chunks(plan.layers[3])};

// Whether the first layer uses wgmma, which multiplies faster than single warps do, and reads less. Its 64 rows are the block
// group's units, once or twice. UPDATED_FEATURES are the chunks of features that a warp updates: device/warpgroup.cuh has
// instructions for two sizes.
constexpr int UNIT_WARPS = GROUP_CHUNKS / ROW_CHUNKS, LEAST_FEATURES = (2 * TILES * UNIT_WARPS + WARPS - 1) / WARPS;
constexpr int UPDATED_FEATURES = LEAST_FEATURES <= 7 ? 7 : 13;
// Four warpgroups divide the units' rows, the images and, twice, the features. What one half of the features adds to the sums
// lies, until the other half's warps take it, where the next images will come.
constexpr int UNIT_PARTS = UNIT_WARPS / 4, IMAGE_PARTS = UNIT_PARTS == 1 ? 2 : 1, PART_PAIRS = (PAIRS + IMAGE_PARTS - 1) / IMAGE_PARTS;
constexpr int SUM_BYTES = 2 * 4 * WARP * 2 * PART_PAIRS * (HALVES == 2 ? 8 : 16);
constexpr bool BY_WGMMA = HAS_WGMMA && WAYS == 1 && UNIT_WARPS * ROW_CHUNKS == GROUP_CHUNKS &&
                          (UNIT_WARPS == 4 || UNIT_WARPS == 8) && LEAST_FEATURES <= UPDATED_FEATURES &&
                          UPDATED_FEATURES <= 2 * TILES && PAIRS > 2 && PAIRS <= 8 && SUM_BYTES <= TILES * PAIRS * TILE_BYTES;

// Warp groups share out the batch's images, so that one multiplies while another waits for messages. (PTX's warpgroup, four
// warps, is something else: device/warpgroup.cuh.)
constexpr int WARP_GROUPS = BY_WGMMA && plan.layer_count == 2 && GROUP_CHUNKS == 8 && PAIRS == 8 && TILES == 13 ? 2 : 1;
constexpr int WARPS_OF_GROUP = WARPS / WARP_GROUPS, PAIRS_OF_GROUP = PAIRS / WARP_GROUPS;

// Long messages between hidden layers come in two turns, half of the images each: one is multiplied while the other travels.
// With one half a number messages are short, and the extra barriers would cost more than turns gain.
constexpr int TURNS = HALVES == 2 && plan.layer_count > 2 && PAIRS % 2 == 0 && plan.layers[1].slots > 1 ? 2 : 1;
constexpr int TURN_PAIRS = PAIRS_OF_GROUP / TURNS;
constexpr int PORTIONS = WARP_GROUPS * TURNS;  // of a batch: a warp group's images, or a turn's; one of the two factors is 1
// Named barriers; each warp group has its own of the first two.
enum {
    WARP_GROUP_MEETS = 1,
    WARP_GROUP_HAS_SHARED = WARP_GROUP_MEETS + WARP_GROUPS,
    FIRST_WARP_GROUP_HAS_BEGUN = WARP_GROUP_HAS_SHARED + WARP_GROUPS,
    CLASSES_ARE_UPDATED
};

// The mbarriers at which messages to a block arrive, one for each portion of the images: parts of own units' sums, and
// doutputs of all units. Logits use the first `parts` of the last layer; the first layer's parts and dlogits come in one turn.
struct Barriers {
    Barrier parts[MOST_LAYERS][PORTIONS], doutputs[MOST_LAYERS][PORTIONS];
    Barrier fetched[2];  // a step's images, by the step's parity
};

constexpr int HEADS = (2 * PAIRS + BLOCKS - 1) / BLOCKS;  // chunks of images whose softmax a block takes, at most
constexpr int HEAD_WARPS = 4;  // of a warp group: they take the softmax of eight images, two each
static_assert(HEADS * HEAD_WARPS <= WARPS_OF_GROUP && (HEADS == 1 || WARP_GROUPS == 1));
using Totals = double2[HEADS * HEAD_WARPS];  // summed loss and number right of each head warp's images

// Distance between two senders' logits; one more than their size, so that they use different banks.
constexpr int NEXT_SENDER = CLASS_PAIRS * WARP + 1;

// A thread's place in the cluster, and its block's memory.
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

    // Sets rank and thread, the same in every step, but hidden from the compiler. It would otherwise keep all addresses that
    // depend on them through the steps, more than there are registers, and spill some. A spilled one comes from L2 each time,
    // since the cluster's barrier empties L1.
    __device__ void find_place(int step) {
        unsigned block = cluster_ctarank(), thread = threadIdx.x;
        asm("" : "+r"(block), "+r"(thread) : "r"(step));
        rank = block % BLOCKS;
        warp = thread / WARP % WARPS, lane = thread % WARP;
        warp_group = warp / WARPS_OF_GROUP, warp_in_group = warp % WARPS_OF_GROUP;
    }

    // Which of the four matrices of a load this lane addresses a row of: one of the right two, one of the lower two.
    __device__ int right() const { return lane / 16; }
    __device__ int lower() const { return lane / 8 % 2; }

    template <class Type>
    __device__ Type* at(int offset) const {
        return reinterpret_cast<Type*>(memory + offset);
    }

    // The block group: `split` blocks that divide the features of the units that they own together.
    __device__ int group() const { return rank / SPLIT; }
    __device__ int member() const { return rank % SPLIT; }
    __device__ int owner_in_group(int chunk) const { return group() * SPLIT + chunk % SPLIT; }

    // The index of this block's chunk in that slot among the doutputs that blocks receive.
    template <int INDEX>
    __device__ int received_as(int slot) const {
        return INDEX == 0 ? slot * SPLIT + member() : slot * BLOCKS + rank;
    }

    // Slots of a hidden layer whose chunks travel: this block receives their parts, and sends their doutputs.
    __device__ int sent_slots(int index) const { return SENT[index] / BLOCKS + (rank < SENT[index] % BLOCKS); }

    // How many softmaxes this block takes, and which warp group has their images.
    __device__ int heads() const { return (2 * PAIRS - rank + BLOCKS - 1) / BLOCKS; }
    __device__ int head_warp_group() const { return WARP_GROUPS == 1 ? 0 : rank / (2 * PAIRS_OF_GROUP); }

    __device__ int portion(int turn) const { return warp_group + turn; }
    __device__ int first_pair(int turn = 0) const { return warp_group * PAIRS_OF_GROUP + turn * TURN_PAIRS; }
    __device__ bool is_first_of_warp_group() const { return threadIdx.x % (WARPS_OF_GROUP * WARP) == 0; }

    // The __syncthreads of a warp group.
    __device__ void meet() const {
        if (WARP_GROUPS == 1) __syncthreads();
        else bar_sync(WARP_GROUP_MEETS + warp_group, WARPS_OF_GROUP * WARP);
    }
};

// This lane's sums for one of the ROW_CHUNKS chunks of units in a product's rows.
__device__ inline float2 sums_of(const float (&product)[4], int chunk) {
    if (HALVES == 2) return {product[0] + product[2], product[1] + product[3]};
    return chunk == 0 ? float2{product[0], product[1]} : float2{product[2], product[3]};
}

// Calls work(task) for each task; the warps of a warp group take turns.
template <int TASKS, class Work>
__device__ void deal_out(const Block& block, Work work) {
    constexpr int ROUNDS = (TASKS + WARPS_OF_GROUP - 1) / WARPS_OF_GROUP;
#pragma unroll(ROUNDS <= 2 ? ROUNDS : 1)
    for (int round = 0; round < ROUNDS; ++round) {
        const int task = round * WARPS_OF_GROUP + block.warp_in_group;
        if (TASKS % WARPS_OF_GROUP == 0 || task < TASKS) work(task);
    }
}

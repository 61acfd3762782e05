// Shared by the parts of grid_messages: sizes, and the places of everything in shared memory and in the mailboxes.
#pragma once
#include "device/async_copies.cuh"
#include "device/blocks_together.cuh"
#include "grid/message_products.cuh"

// stages/persistent/messages_plan.py compiles the kernel for these.
#ifndef THIN_SHARES  // 784-784-784-784-784-10, batches of 64
#define THIN_SHARES 16
#define THICK_SHARES 7
#define BATCH_SIZE 64
#define HIDDEN_LAYERS 4
#define INPUT_COUNT 784
#define HIDDEN_UNITS 784, 784, 784, 784
#define CLASS_COUNT 10
#define WEIGHT_BEGINS 0, 614656, 1229312, 1843968, 2458624
#define BIAS_BEGINS 2466464, 2467248, 2468032, 2468816, 2469600
#define SHARED_BYTES 216448
#endif

constexpr int GROUPS = 2;  // of a block: warp groups
constexpr int THREADS = GROUPS * GROUP_WARPS * WARP, WARPS = THREADS / WARP;

constexpr int THIN = THIN_SHARES, THICK = THICK_SHARES;  // shares of units: the last hidden layer's are thin, and then in turn
constexpr int DEPTH = HIDDEN_LAYERS, LAST = DEPTH;       // the last layer's index
constexpr int CLASSES = CLASS_COUNT, BATCH = BATCH_SIZE;
constexpr int ROWS = BATCH <= 64 ? 64 : 128;  // the batch, padded with zeros
constexpr int ROW_EDGES = ROWS / EDGE;
constexpr int TILES = BATCH <= 16 ? 1 : BATCH <= 32 ? 2 : ROWS / 16;  // of sixteen rows: messages carry no others

__device__ constexpr int up(int count, int multiple) { return (count + multiple - 1) / multiple * multiple; }

constexpr int hidden_units[] = {HIDDEN_UNITS};

// Activations 0 are the images, activations l the outputs of layer l - 1. The last hidden layer's are thin, and then in turn.
__device__ constexpr bool is_thin(int activations) { return (DEPTH - activations) % 2 == 0; }
__device__ constexpr int width(int activations) {
    return activations == 0 ? INPUT_COUNT : activations <= DEPTH ? hidden_units[activations - 1] : CLASSES;
}
// Units of a block's share, and the same in whole matrices; a sum takes steps of two matrices.
__device__ constexpr int share_of(int activations) {
    return activations > DEPTH ? CLASSES : (width(activations) - 1) / (is_thin(activations) ? THIN : THICK) + 1;
}
__device__ constexpr int edges_of(int activations) {
    return is_thin(activations) ? up(share_of(activations), EDGE) / EDGE : up(share_of(activations), 2 * EDGE) / EDGE;
}
__device__ constexpr int stored_edges(int activations) { return up(edges_of(activations), 2); }

// Layer l's tile of weights: thin units by thick units, whichever of them are its inputs.
__device__ constexpr int thin_of(int l) { return is_thin(l) ? l : l + 1; }
__device__ constexpr int thick_of(int l) { return is_thin(l) ? l + 1 : l; }
__device__ constexpr int thin_edges(int l) { return edges_of(thin_of(l)); }
__device__ constexpr int thick_edges(int l) { return edges_of(thick_of(l)); }

// Of the layers, in parameters.
constexpr int weight_begins[] = {WEIGHT_BEGINS}, bias_begins[] = {BIAS_BEGINS};

// Places in shared memory, in numbers of 16 bits.
__device__ constexpr int weights_at(int l) {
    int at = 0;
    for (int before = 0; before < l; ++before) at += HALVES * thin_edges(before) * thick_edges(before) * MATRIX;
    return at;
}
constexpr int DLOGITS_AT = weights_at(DEPTH + 1);  // finite numbers behind the last weights: products read them, times 0
constexpr int IMAGES_AT = DLOGITS_AT + HALVES * 2 * ROW_EDGES * MATRIX;
constexpr int IMAGE_NUMBERS = stored_edges(0) * ROW_EDGES * MATRIX;
__device__ constexpr int activations_at(int l) {
    int at = IMAGES_AT + 2 * IMAGE_NUMBERS;
    for (int before = 1; before < l; ++before) at += HALVES * stored_edges(before) * ROW_EDGES * MATRIX;
    return at;
}
constexpr int FLOATS_AT = up(activations_at(DEPTH + 1), MATRIX);
// Then float32: biases of each layer.
__device__ constexpr int bias_at(int l) {
    int at = 0;
    for (int before = 0; before < l; ++before) at += edges_of(before + 1) * EDGE;
    return at;
}
constexpr int FLOATS = bias_at(LAST) + 2 * EDGE;
constexpr int PAIRS = TILES * EDGE;  // of images: rows g and g + 8 of a tile
static_assert(THIN <= 16 && CLASSES <= 16 && THICK <= PAIRS);

// A sum's units, in tiles of a warp; the blocks of the sum, and the tiles that the first of them add up, of one column.
__device__ constexpr int tiles_of(int l) { return edges_of(l) * TILES; }
__device__ constexpr int sharers_of(int l) { return is_thin(l) ? THICK : THIN; }
__device__ constexpr int own_tiles_of(int l) {
    int tiles = 1;
    while (tiles * sharers_of(l) < tiles_of(l)) tiles *= 2;
    return tiles;
}
__device__ constexpr int own_units_of(int l) { return own_tiles_of(l) * WARP; }

constexpr int PAIR_UNITS = 2 * EDGE / 2, LOGIT_UNITS = PAIRS * PAIR_UNITS;  // of two images' logits, and of all
// Whether each block computes the softmax of all images: to read 32 KB takes less time than a second way through L2.
constexpr bool ALONE = PAIRS * HALVES <= 32;
static_assert(ALONE ? LOGIT_UNITS <= THREADS : LOGIT_UNITS % THREADS == 0 && PAIRS <= THIN * THICK * WARPS);
using Totals = double[ALONE ? PAIRS : WARPS][2];  // the loss so far of two images, and how many are right

constexpr int TOTALS_AT = up(2 * FLOATS_AT + 4 * FLOATS, 16);  // in bytes
static_assert(TOTALS_AT + sizeof(Totals) <= SHARED_BYTES);

// The mailboxes' places, in units: of logits, and of sums.
__device__ constexpr int boxes_of(int l) { return SLOTS * THIN * THICK / sharers_of(l); }
__device__ constexpr int parts_of(int l) { return boxes_of(l) * sharers_of(l) * sharers_of(l) * own_units_of(l); }
__device__ constexpr int wholes_of(int l) { return boxes_of(l) * tiles_of(l) * WARP; }

__device__ constexpr int sums_before(int l) {
    int units = 0;
    for (int before = 1; before < l; ++before) units += parts_of(before) + wholes_of(before);
    return units;
}

struct Mail {
    uint4* totals;
    Part *logits, *dlogits;

    __device__ explicit Mail(uint4* memory)
        : totals(memory), logits(reinterpret_cast<Part*>(totals + THIN * THICK)),
          dlogits(logits + SLOTS * THIN * LOGIT_UNITS) {
    }

    // Of the sums of activations L.
    template <int L>
    __device__ Part* parts() const {
        constexpr int AT = sums_before(L);
        return dlogits + SLOTS * LOGIT_UNITS + AT;
    }
    template <int L>
    __device__ Part* wholes() const {
        return parts<L>() + parts_of(L);
    }
};

// The division of a network of wide layers among blocks that stream its weights, and what each block keeps in shared memory:
// epoch_table.cuh, where a block's weights are tiles of 64 by 64.
#pragma once

#ifndef THIN_SHARES
#define THIN_SHARES 16
#define THICK_SHARES 8
#define HIDDEN_LAYERS 3
#define INPUT_COUNT 784
#define UNIT_COUNT 2048
#define CLASS_COUNT 10
#define BATCH_SIZE 32
#define WEIGHT_BEGINS 0, 1605632, 5799936, 9994240
#define BIAS_BEGINS 10014720, 10016768, 10018816, 10020864
#define SLOT_COUNT 8
#define DEFERRED 0
#endif

constexpr bool IN_PLANES = true;
#include "streamed/epoch_table.cuh"

constexpr int UPDATERS = TAKERS, THREADS = TAKERS + UPDATERS + TEAM_THREADS;  // two of the last threads move pieces
constexpr bool DEFERS = DEFERRED;
constexpr int SLOTS = SLOT_COUNT, PLANE_BYTES = 2 * TILE * TILE, SLOT_BYTES = 2 * PLANE_BYTES, ROW_BYTES = 2 * TILE;
// Weights leave L2 first, unless they are so many that those which L2 still has of the pass before are worth more than its
// room (trials: docs/notebook/streamed.md).
constexpr bool WEIGHTS_LEAVE = 4LL * UNITS * (INPUT_COUNT + (DEPTH - 1LL) * UNITS) < 100'000'000;

// Whether a step updates the weights of the hidden layers: each, or if it DEFERS, every second one and the last.
__device__ inline bool updates_in(int step, int steps) { return !DEFERS || step % 2 == 1 || step + 1 == steps; }
__device__ inline int updates_before(int step) { return DEFERS ? step / 2 : step; }
// Whether the step before has kept its factors, instead of an update.
__device__ inline bool corrects_in(int step) { return DEFERS && step % 2 == 1; }

// Hidden layers' parameters follow each other without gaps, since sizes are multiples of 64.
__device__ inline int weight_begin(int layer) {
    constexpr int begins[] = {WEIGHT_BEGINS};
    static_assert(begins[DEPTH] == begins[1] + (DEPTH - 1) * UNITS * UNITS);
    return layer == 0 ? begins[0] : begins[1] + (layer - 1) * UNITS * UNITS;
}
__device__ inline int bias_begin(int layer) {
    constexpr int begins[] = {BIAS_BEGINS};
    static_assert(begins[DEPTH] == begins[0] + DEPTH * UNITS);
    return begins[0] + layer * UNITS;
}

// Tiles of 64 units of a share; of the images some shares have fewer.
__host__ __device__ constexpr int tiles_of(int activations) {
    const int all = ((activations == 0 ? INPUT_COUNT : UNITS) + TILE - 1) / TILE, shares = shares_of(activations);
    return (all + shares - 1) / shares;
}
__host__ __device__ constexpr int bytes_of(int activations) { return tiles_of(activations) * TILE * ROWS * 2; }

// Of the 96 that each thread has at first, the threads that move pieces give some away; takers have the last layer in theirs.
constexpr int TAKER_REGISTERS = LAST_TILES > 2 ? 128 : 112, UPDATER_REGISTERS = 208 - TAKER_REGISTERS, MOVER_REGISTERS = 56;
static_assert(UNITS % (2 * TILE * THIN) == 0 && UNITS % (2 * TILE * THICK) == 0);
static_assert(SLOTS % TEAMS == 0);  // a slot is always the same team's: else a parity would be taken for the one before
static_assert(INPUT_COUNT % 16 == 0);

// Shared memory, in bytes from its begin.
constexpr int IMAGES_AT = SLOTS * SLOT_BYTES;  // twice
__host__ __device__ constexpr int activations_at(int activations) {
    return activations == 1 ? IMAGES_AT + 2 * bytes_of(0) : activations_at(activations - 1) + bytes_of(activations - 1);
}
// If it defers: of each team a product of two steps' activations, and one share of what the step before has kept.
constexpr int GRAM_BYTES = DEFERS ? 2 * ROWS * ROWS : 0;
constexpr int KEPT_BYTES = !DEFERS ? 0 : bytes_of(DEPTH) > bytes_of(DEPTH - 1) ? bytes_of(DEPTH) : bytes_of(DEPTH - 1);
constexpr int GRAMS_AT = activations_at(DEPTH) + bytes_of(DEPTH);
constexpr int KEPT_AT = GRAMS_AT + TEAMS * GRAM_BYTES;
constexpr int LAST_WEIGHTS_AT = KEPT_AT + KEPT_BYTES;
constexpr int DLOGITS_AT = LAST_WEIGHTS_AT + LAST_UNITS * CLASS_ROWS * 2;
constexpr int LOGITS_AT = DLOGITS_AT + CLASS_ROWS * ROWS * 2;
constexpr int BIASES_AT = LOGITS_AT + TEAM_THREADS * 8 * 4;
constexpr int LAST_BIAS_AT = BIASES_AT + DEPTH * OWN_OUTPUTS * 4;
constexpr int MASKS_AT = LAST_BIAS_AT + CLASS_ROWS * 4;  // a byte for each unit of 16 bytes
constexpr int BARRIERS_AT = MASKS_AT + DEPTH * OWN;
constexpr int SHARED_BYTES = BARRIERS_AT + 8 * (4 * SLOTS + 5 + 1);
static_assert(SHARED_BYTES <= 227 * 1024);

struct Shares : Own {
    // Tiles of the images that this block has.
    __device__ int image_tiles() const {
        constexpr int ALL = (INPUT_COUNT + TILE - 1) / TILE;
        return min(tiles_of(0), max(0, ALL - of(0) * tiles_of(0)));
    }
    __device__ int rows(int row_tile) const { return min(TILE, INPUT_COUNT - (of(0) * tiles_of(0) + row_tile) * TILE); }
    // A tile's first byte: row_tile and panel are of this block's shares.
    __device__ char* tile(float* parameters, int layer, int row_tile, int panel) const {
        const long long global_panel = of(layer + 1) * tiles_of(layer + 1) + panel;
        const int row = (of(layer) * tiles_of(layer) + row_tile) * TILE;
        return reinterpret_cast<char*>(parameters + weight_begin(layer) + (global_panel * fan_in_of(layer) + row) * TILE);
    }
};

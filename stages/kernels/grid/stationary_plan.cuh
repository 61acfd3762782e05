// What each block of stationary_epoch keeps on the chip: its weights, the activations of its shares, and biases.
#pragma once

// stages/persistent/stationary_plan.py compiles the kernel for these.
#ifndef THIN_SHARES  // 784-2048-2048-2048-10, batches of 32
#define THIN_SHARES 16
#define THICK_SHARES 8
#define HIDDEN_LAYERS 3
#define INPUT_COUNT 784
#define UNIT_COUNT 2048
#define CLASS_COUNT 10
#define BATCH_SIZE 32
#define WEIGHT_BEGINS 0, 1605632, 5799936, 9994240
#define BIAS_BEGINS 10014720, 10016768, 10018816, 10020864
#define SHARED_PIECES 7
#define SHARED_BYTES 230880
#endif

constexpr bool IN_PLANES = false;
#include "streamed/epoch_table.cuh"

// Updaters divide the tiles of a layer's thick units, and its thin units.
constexpr int UPDATER_ROWS = 4, UPDATER_COLS = 2, UPDATER_WARPS = UPDATER_ROWS * UPDATER_COLS, UPDATERS = UPDATER_WARPS * WARP;
constexpr int THREADS = TAKERS + UPDATERS;
// Of a thread: weights fill the updaters'.
constexpr int TAKER_REGISTERS = 72, UPDATER_REGISTERS = 184;

constexpr int weight_begins[] = {WEIGHT_BEGINS}, bias_begins[] = {BIAS_BEGINS};
__device__ inline int weight_begin(int layer) { return layer == DEPTH ? weight_begins[DEPTH] : weight_begins[0]; }
__device__ inline int bias_begin(int layer) {
    int begin = bias_begins[0];
#pragma unroll
    for (int l = 1; l <= DEPTH; ++l) begin = layer == l ? bias_begins[l] : begin;
    return begin;
}

// Layer l's weights lie between thin units and thick ones, whichever of both are its inputs.
__host__ __device__ constexpr int thin_of(int l) { return is_thin(l) ? l : l + 1; }
__host__ __device__ constexpr int thick_of(int l) { return is_thin(l) ? l + 1 : l; }
__host__ __device__ constexpr int width_of(int activations) { return activations == 0 ? INPUT_COUNT : UNITS; }
// Units of a share, and tiles of sixteen of them.
__host__ __device__ constexpr int units_in(int activations) {
    return up(width_of(activations), shares_of(activations)) / shares_of(activations);
}
__host__ __device__ constexpr int sixteens_of(int activations) { return up(units_in(activations), 16) / 16; }
__host__ __device__ constexpr int thin_edges(int l) { return 2 * sixteens_of(thin_of(l)); }  // matrices
__host__ __device__ constexpr int thick_tiles(int l) { return sixteens_of(thick_of(l)); }
// Of an updating warp: tiles of sixteen thick units, matrices along its thin units, and pieces of one by one.
__host__ __device__ constexpr int own_tiles(int l) { return up(thick_tiles(l), UPDATER_ROWS) / UPDATER_ROWS; }
__host__ __device__ constexpr int own_edges(int l) { return thin_edges(l) / UPDATER_COLS; }
__host__ __device__ constexpr int own_pieces(int l) { return own_tiles(l) * own_edges(l); }
// Of the first layer's, those whose lower halves are in shared memory: registers do not hold all.
__host__ __device__ constexpr int shared_pieces(int l) { return l == 0 ? SHARED_PIECES : 0; }
__host__ __device__ constexpr int weight_bytes(int l) { return 2 * thick_tiles(l) * thin_edges(l) * MATRIX_BYTES; }

// Shared memory, in bytes from its begin. First come the weights' upper halves; a product of 64 rows reads beyond the last.
__host__ __device__ constexpr int weights_at(int layer) {
    return layer == 0 ? 0 : weight_bytes(0) + (layer - 1) * weight_bytes(1);
}
constexpr int IMAGES_AT = weights_at(DEPTH);  // twice
__host__ __device__ constexpr int bytes_of(int activations) {
    return (activations == DEPTH ? LAST_UNITS : 16 * sixteens_of(activations)) * ROWS * 2;
}
__host__ __device__ constexpr int activations_at(int activations) {
    const int before = activations - 1;  // shares are of two sizes in turn
    return IMAGES_AT + 2 * bytes_of(0) + before / 2 * (bytes_of(1) + bytes_of(2)) + before % 2 * bytes_of(1);
}
constexpr int LAST_WEIGHTS_AT = activations_at(DEPTH) + bytes_of(DEPTH);
constexpr int DLOGITS_AT = LAST_WEIGHTS_AT + LAST_UNITS * CLASS_ROWS * 2;
constexpr int LOGITS_AT = DLOGITS_AT + CLASS_ROWS * ROWS * 2;  // later in a step: products of its images and the next ones
constexpr int BIASES_AT = LOGITS_AT + TEAM_THREADS * 8 * 4;
constexpr int LAST_BIAS_AT = BIASES_AT + DEPTH * OWN_OUTPUTS * 4;
constexpr int MASKS_AT = LAST_BIAS_AT + CLASS_ROWS * 4;  // a byte for each unit of 16 bytes
constexpr int LOWER_AT = MASKS_AT + DEPTH * OWN;
constexpr int BARRIERS_AT = LOWER_AT + SHARED_PIECES * 2 * UPDATERS * 4;
static_assert(BARRIERS_AT + 4 * 8 <= SHARED_BYTES && SHARED_BYTES % 16 == 0);
static_assert(ROWS == 32 && OWN_OUTPUTS == 16 && SHARED_PIECES < own_pieces(0));

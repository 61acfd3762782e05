// How a whole epoch's blocks divide wide hidden layers of one size, for kernels whose weights stream and for those whose weights
// stay: a table of shares, and the mail. A plan includes it after its macros.
//
// Units of the last hidden layer are divided into THIN_SHARES, those of the layer below into THICK_SHARES, and so in turn, as
// in grid/message_plan.cuh. Block (thin, thick) has each layer's weights between its shares. Activations 0 are the images, DEPTH
// those of the last hidden layer; layer l leads from activations l to l + 1.
#pragma once
#include "device/messages.cuh"
#include "device/tensor_cores.cuh"
#include "device/warpgroup.cuh"
#include "streamed/arrivals.cuh"
#include "streamed/plane_order.cuh"

constexpr int WARP = 32, TILE = 64, EDGE = 8, MATRIX_BYTES = 128;  // a matrix of 8 by 8 numbers of 16 bits
constexpr int THIN = THIN_SHARES, THICK = THICK_SHARES, DEPTH = HIDDEN_LAYERS, UNITS = UNIT_COUNT, BATCH = BATCH_SIZE;
constexpr int ROWS = BATCH <= 32 ? 32 : 64, CHUNKS = ROWS / EDGE;  // images, padded; matrices of images
constexpr int TEAMS = 2, GROUP_WARPS = 4, TEAM_THREADS = GROUP_WARPS * WARP, TAKERS = TEAMS * TEAM_THREADS;
constexpr int CLASS_ROWS = 16;           // classes, padded
constexpr float GRADIENT_SCALE = 64.0f;  // of all gradients, so that float16 holds small ones
static_assert(CLASS_COUNT <= CLASS_ROWS && DEPTH >= 2 && BATCH <= 64);

__host__ __device__ constexpr int up(int count, int multiple) { return (count + multiple - 1) / multiple * multiple; }
__host__ __device__ constexpr bool is_thin(int activations) { return (DEPTH - activations) % 2 == 0; }
__host__ __device__ constexpr int shares_of(int activations) { return is_thin(activations) ? THIN : THICK; }
__host__ __device__ constexpr int sharers_of(int activations) { return is_thin(activations) ? THICK : THIN; }
__host__ __device__ constexpr int fan_in_of(int layer) { return layer == 0 ? INPUT_COUNT : UNITS; }

// Units of a hidden layer's share, and as they travel: in tiles of sixteen, zeros behind the last.
__host__ __device__ constexpr int share_of(bool thin) { return up(UNITS, thin ? THIN : THICK) / (thin ? THIN : THICK); }
__host__ __device__ constexpr int sent_of(bool thin) { return up(share_of(thin), 16); }

// What travels of a sum: units of 16 bytes, eight numbers. The first of the blocks with the same units of a layer add up OWN of
// them each: all images of OWN_OUTPUTS outputs.
constexpr int OWN_OUTPUTS = up(up(UNITS, THIN * THICK) / (THIN * THICK), 16), OWN = OWN_OUTPUTS * CHUNKS;
__host__ __device__ constexpr int units_of(bool thin) { return sent_of(thin) * CHUNKS; }
static_assert(OWN <= TAKERS && sent_of(true) % OWN_OUTPUTS == 0 && sent_of(false) % OWN_OUTPUTS == 0);
constexpr int LOGIT_UNITS = 2 * ROWS;  // of one source
// Tiles of 64 of the last hidden layer, of a team; those beyond the share are zeros.
constexpr int LAST_TILES = up(share_of(true), TEAMS * TILE) / (TEAMS * TILE), LAST_UNITS = LAST_TILES * TEAMS * TILE;

// The mail, in units from its begin: zeros before a launch. Each box twice, used in turn.
__host__ __device__ constexpr int part_units(bool thin) { return THIN * THICK * units_of(thin); }
__host__ __device__ constexpr int whole_units(bool thin) { return (thin ? THIN : THICK) * units_of(thin); }
__host__ __device__ constexpr int parts_at(bool thin) { return thin ? 2 * (part_units(false) + whole_units(false)) : 0; }
__host__ __device__ constexpr int wholes_at(bool thin) { return parts_at(thin) + 2 * part_units(thin); }
constexpr int LOGIT_PARTS_AT = wholes_at(true) + 2 * whole_units(true);
constexpr int MAIL_UNITS = LOGIT_PARTS_AT + 2 * THIN * LOGIT_UNITS;

// Where an input of weights stands among its share's, and which one stands there.
__device__ inline int stored_input(int unit) { return IN_PLANES ? stored_at(unit) : unit; }
__device__ inline int input_stored(int place) { return IN_PLANES ? row_at(place) : place; }

struct Own {
    int thin, thick;
    __device__ Own() : thin(blockIdx.x / THICK), thick(blockIdx.x % THICK) {}
    __device__ int of(int activations) const { return is_thin(activations) ? thin : thick; }
    // Of this block among those with the same units.
    __device__ int rank(int activations) const { return is_thin(activations) ? thick : thin; }
};

// A layer's weights in their own order in memory, tile after tile, and the ring of tiles through which the copy engine moves
// them: one copy a tile, into shared memory and, updated, back.
//
// Who does what in a block:
//
//   teams of 8 warps   a tile each, in turn: they wait for its slot to be full, multiply, and leave it
//   the fetching warp  fills a slot with the next tile, by one copy, and with the other factor's share of it, 16 bytes a lane:
//                      a copy by the copy engine takes 64 cycles, however short it is
//   the storing warp   backward only: copies a slot's updated tile to memory; then the slot is empty
//
// No warp waits for all others before the end. Tiles are ahead by as many as there are slots.
//
// In memory the layer's outputs form panels of 64 columns, one after the other. A panel has its rows in order, 64 numbers each,
// so that any of its rows in a run are a run of memory. In row i the quad q of four numbers stands at q ^ place_bits(i): of
// eight lanes that read a quad at a time, forward (four rows of two columns) or backward (two rows), none hits another's bank.
//
// A block, or a cluster, takes a circle of tiles, its blocks in turn: forward a panel, backward a row of tiles. Forward, panel p
// begins after its tile p and ends with it; backward, row r begins with panel r. So each pass begins with the tiles where the
// one before ended: those that are still in L2.
#pragma once
#include "device/async_copies.cuh"
#include "device/bulk_copies.cuh"
#include "streamed/streamed_back.cuh"

constexpr int TILE = 64;          // rows and columns
constexpr int TEAM_WARPS = 8;     // that take a tile together
constexpr int RING_SLOTS = 8;

__device__ inline int place_bits(int row) { return row % 2 * 4 ^ row / 4 % 4 * 2; }

// FACTOR_PITCH: floats between rows of the other factor.
template <int FACTOR_PITCH>
struct alignas(128) Slot {
    float weights[TILE * TILE], factor[MOST_ROWS * FACTOR_PITCH];
};

template <int FACTOR_PITCH>
struct alignas(128) Ring {
    Slot<FACTOR_PITCH> slots[RING_SLOTS];
    Barrier full[RING_SLOTS], done[RING_SLOTS], empty[RING_SLOTS], ready;

    // Call it with all threads before others use the ring.
    __device__ void begin(bool is_stored) {
        if (threadIdx.x == 0) {
            for (int s = 0; s < RING_SLOTS; ++s) {
                mbarrier_init(full[s], 1 + WARP);
                mbarrier_init(done[s], TEAM_WARPS);
                mbarrier_init(empty[s], is_stored ? 1 : TEAM_WARPS);
            }
            mbarrier_init(ready, TEAM_WARPS);
            fence_mbarrier_init();
        }
        __syncthreads();
    }
};

// The tiles of a block: a circle of `length`, from `first` on, that `blocks` blocks take in turn.
struct Circle {
    int length, first, rank, blocks;

    __device__ int count() const { return (length - rank + blocks - 1) / blocks; }
    __device__ int tile(int n) const { return (first + rank + n * blocks) % length; }
};

struct RingLayer {
    float* weights;
    const float* factor;  // (batch, `stride`)
    int batch, fan_in, stride;

    __device__ int rows(int row_tile) const { return min(TILE, fan_in - row_tile * TILE); }
    __device__ float* tile(int row_tile, int panel) const {
        return weights + (static_cast<long long>(panel) * fan_in + row_tile * TILE) * TILE;
    }
};

struct Place {
    int row_tile, panel;
};

// Fills slots, by one warp. The other factor's columns are the tile's rows, or its columns. Rows beyond the batch become zeros.
template <int FACTOR_PITCH, class PlaceOf>
__device__ inline void fetch_tiles(Ring<FACTOR_PITCH>& ring, const RingLayer& layer, const Circle& circle, bool by_rows,
                                   PlaceOf place_of) {
    constexpr int QUADS = TILE / 4, APART = WARP / QUADS;
    const int lane = threadIdx.x % WARP, count = circle.count(), col = lane % QUADS * 4, first = lane / QUADS;
    for (int n = 0; n < count; ++n) {
        const int s = n % RING_SLOTS;
        if (n >= RING_SLOTS) mbarrier_wait_parity(ring.empty[s], (n / RING_SLOTS - 1) % 2);
        const Place place = place_of(circle.tile(n));
        const int rows = layer.rows(place.row_tile), bytes = 4 * TILE * rows;
        if (lane == 0) {
            mbarrier_arrive_expect_tx(ring.full[s], bytes);
            cp_async_bulk(ring.slots[s].weights, ring.full[s], layer.tile(place.row_tile, place.panel), bytes);
        }
        const float* from = layer.factor + first * layer.stride + TILE * (by_rows ? place.row_tile : place.panel) + col;
        float* to = ring.slots[s].factor + first * FACTOR_PITCH + col;
        const int left = !by_rows || col < rows ? layer.batch - first : 0;
#pragma unroll
        for (int row = 0; row < MOST_ROWS; row += APART, from += APART * layer.stride) {
            cp_async_16(to + row * FACTOR_PITCH, from, row < left);
        }
        cp_async_mbarrier_arrive(ring.full[s]);
    }
}

// Copies updated tiles to memory, by one thread.
template <class Ring, class PlaceOf>
__device__ inline void store_tiles(Ring& ring, const RingLayer& layer, const Circle& circle, PlaceOf place_of) {
    const int count = circle.count();
    for (int n = 0; n < count; ++n) {
        const int s = n % RING_SLOTS;
        mbarrier_wait_parity(ring.done[s], n / RING_SLOTS % 2);
        const Place place = place_of(circle.tile(n));
        cp_async_bulk_store(layer.tile(place.row_tile, place.panel), ring.slots[s].weights,
                            4 * TILE * layer.rows(place.row_tile));
        cp_async_bulk_commit_group();
        cp_async_bulk_wait_group_read<1>();
        if (n > 0) mbarrier_arrive(ring.empty[(n - 1) % RING_SLOTS]);
    }
    cp_async_bulk_wait_all();
}

// Calls take(slot, tile) for each of a team's tiles, by its warps.
template <int TEAMS, class Ring, class Take>
__device__ inline void take_tiles(Ring& ring, Barrier (&left)[RING_SLOTS], const Circle& circle, Take take) {
    const int team = threadIdx.x / (TEAM_WARPS * WARP), count = circle.count();
    for (int n = team; n < count; n += TEAMS) {
        const int s = n % RING_SLOTS;
        mbarrier_wait_parity(ring.full[s], n / RING_SLOTS % 2);
        take(ring.slots[s], circle.tile(n));
        __syncwarp();
        if (threadIdx.x % WARP == 0) mbarrier_arrive(left[s]);
    }
}

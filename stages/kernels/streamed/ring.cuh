// A layer's weights in their own order in memory, tile after tile, and the ring of tiles through which the copy engine moves
// them: one copy a tile, into shared memory and, updated, back.
//
// Who does what in a block:
//
//   teams of 8 warps   (of 4 backward by wgmma) a tile each, in turn: they wait for its slot to be full, multiply, leave it
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
#include "device/dependent.cuh"
#include "streamed/arrivals.cuh"
#include "streamed/streamed_back.cuh"

constexpr int TILE = 64;          // rows and columns
constexpr int TEAM_WARPS = 8;     // that take a tile together
constexpr int MOST_SHARED = 227 * 1024;  // bytes of a block
constexpr int EIGHTS = MOST_ROWS > ROWS_AT_ONCE ? 2 : 4;  // of rows that a lane multiplies at once: more sums leave room for less
constexpr int PARTS_OF_BATCH = MOST_ROWS / (8 * EIGHTS);

__device__ inline int place_bits(int row) { return row % 2 * 4 ^ row / 4 % 4 * 2; }

// FACTOR_PITCH_: floats between rows of the other factor. A tile comes into the ring in planes, of so many bytes a weight.
template <int FACTOR_PITCH_, int PLANE_BYTES_, int PLANES_>
struct alignas(128) Slot {
    static constexpr int FACTOR_PITCH = FACTOR_PITCH_, PLANE_BYTES = PLANE_BYTES_, PLANES = PLANES_;
    static constexpr int PLANE_FLOATS = TILE * TILE * PLANE_BYTES / 4;
    float weights[PLANES * PLANE_FLOATS], factor[MOST_ROWS * FACTOR_PITCH];
};

// As many slots as fit in a block's shared memory, beside so many bytes.
template <class SlotType, int BESIDES>
struct alignas(128) Ring {
    static constexpr int SLOTS = (MOST_SHARED - BESIDES) / static_cast<int>(sizeof(SlotType) + 4 * sizeof(Barrier));
    using OneSlot = SlotType;
    OneSlot slots[SLOTS];
    Barrier full[SLOTS], read[SLOTS], done[SLOTS], empty[SLOTS], ready;

    // Call it with all threads before others use the ring.
    __device__ void begin(bool is_stored, int team_warps = TEAM_WARPS) {
        if (threadIdx.x == 0) {
            const int reports = team_warps * LANES_ARRIVE;
            for (int s = 0; s < SLOTS; ++s) {
                mbarrier_init(full[s], 1 + WARP);
                mbarrier_init(read[s], reports);
                mbarrier_init(done[s], reports);
                mbarrier_init(empty[s], is_stored ? 1 : reports);
            }
            mbarrier_init(ready, reports);
            fence_mbarrier_init();
        }
        __syncthreads();
    }
};

// The tiles of a block: a circle of `length`, from `first` on, that `blocks` blocks take in turn.
struct Circle {
    int length, first, rank, blocks;

    __device__ bool has(int n) const { return rank + n * blocks < length; }
    __device__ int tile(int n) const { return (first + rank + n * blocks) % length; }

    // The tile that comes `further` turns after this one; it divides nothing.
    __device__ int after(int tile, int further = 1) const {
        tile += further * blocks;
        while (tile >= length) tile -= length;
        return tile;
    }
};

struct RingLayer {
    float* weights;
    const float *factor, *panels;  // (batch, `stride`); or in panels of 64 columns, as it comes into a slot
    int batch, fan_in, stride;

    __device__ int rows(int row_tile) const { return min(TILE, fan_in - row_tile * TILE); }
    __device__ float* tile(int row_tile, int panel) const {
        return weights + (static_cast<long long>(panel) * fan_in + row_tile * TILE) * TILE;
    }
};

struct Place {
    int row_tile, panel;
};

// Waits for the kernel before, then lets the next one start: so when that one starts, the kernel before this one is complete.
__device__ inline void wait_and_launch() {
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
}

// Starts the copy of a tile into a slot, by one thread.
template <class Ring>
__device__ inline void fetch_weights(Ring& ring, const RingLayer& layer, Place place, int s) {
    using Tiles = typename Ring::OneSlot;
    constexpr int FACTOR_BYTES = 4 * MOST_ROWS * Tiles::FACTOR_PITCH;
    const int bytes = Tiles::PLANE_BYTES * TILE * layer.rows(place.row_tile);
    const float* weights = layer.tile(place.row_tile, place.panel);
    mbarrier_arrive_expect_tx(ring.full[s], Tiles::PLANES * bytes + (layer.panels ? FACTOR_BYTES : 0));
#pragma unroll
    for (int i = 0; i < Tiles::PLANES; ++i) {
        float* to = ring.slots[s].weights + i * Tiles::PLANE_FLOATS;
        cp_async_bulk(to, ring.full[s], weights + i * (bytes / 4), bytes);
    }
}

// Fills slots, by one warp. The other factor's columns are the tile's rows, or its columns. Rows beyond the batch become zeros.
// If the kernel before writes none of the layer's weights, the first ones are on their way while it still runs.
template <class Ring, class PlaceOf>
__device__ inline void fetch_tiles(Ring& ring, const RingLayer& layer, const Circle& circle, bool by_rows, bool are_old,
                                   PlaceOf place_of) {
    const bool comes_early = STARTS_EARLY && are_old;
    if (comes_early && threadIdx.x % WARP == 0) {
        for (int n = 0, tile = circle.tile(0); n < Ring::SLOTS && circle.has(n); ++n, tile = circle.after(tile)) {
            fetch_weights(ring, layer, place_of(tile), n);
        }
    }
    wait_and_launch();
    using Tiles = typename Ring::OneSlot;
    constexpr int QUADS = TILE / 4, APART = WARP / QUADS, PITCH_TO = Tiles::FACTOR_PITCH;
    constexpr int FACTOR_BYTES = 4 * MOST_ROWS * PITCH_TO;
    const int lane = threadIdx.x % WARP, col = lane % QUADS * 4, first = lane / QUADS;
    for (int n = 0, tile = circle.tile(0); circle.has(n); ++n, tile = circle.after(tile)) {
        const int s = n % Ring::SLOTS;
        if (n >= Ring::SLOTS) mbarrier_wait_parity(ring.empty[s], (n / Ring::SLOTS - 1) % 2);
        const Place place = place_of(tile);
        const int rows = layer.rows(place.row_tile), piece = by_rows ? place.row_tile : place.panel;
        if (lane == 0) {
            if (!comes_early || n >= Ring::SLOTS) fetch_weights(ring, layer, place, s);
            if (layer.panels) {
                const float* from = layer.panels + piece * MOST_ROWS * PITCH_TO;
                cp_async_bulk(ring.slots[s].factor, ring.full[s], from, FACTOR_BYTES);
            }
        }
        if (layer.panels) {
            mbarrier_arrive(ring.full[s]);
            continue;
        }
        const float* from = layer.factor + first * layer.stride + TILE * piece + col;
        float* to = ring.slots[s].factor + first * PITCH_TO + col;
        const int left = !by_rows || col < rows ? layer.batch - first : 0;
#pragma unroll
        for (int row = 0; row < MOST_ROWS; row += APART, from += APART * layer.stride) {
            cp_async_16(to + row * PITCH_TO, from, row < left);
        }
        cp_async_mbarrier_arrive(ring.full[s]);
    }
}

// Copies updated tiles to memory, by one thread.
template <class Ring, class PlaceOf>
__device__ inline void store_tiles(Ring& ring, const RingLayer& layer, const Circle& circle, PlaceOf place_of) {
    using Tiles = typename Ring::OneSlot;
    constexpr int LATER = Ring::SLOTS > 4;  // stores that may still run; of few slots each is filled again at once
    for (int n = 0, tile = circle.tile(0); circle.has(n); ++n, tile = circle.after(tile)) {
        const int s = n % Ring::SLOTS;
        mbarrier_wait_parity(ring.done[s], n / Ring::SLOTS % 2);
        const Place place = place_of(tile);
        const int bytes = Tiles::PLANE_BYTES * TILE * layer.rows(place.row_tile);
        float* weights = layer.tile(place.row_tile, place.panel);
#pragma unroll
        for (int i = 0; i < Tiles::PLANES; ++i) {
            cp_async_bulk_store(weights + i * (bytes / 4), ring.slots[s].weights + i * Tiles::PLANE_FLOATS, bytes);
        }
        cp_async_bulk_commit_group();
        cp_async_bulk_wait_group_read<LATER>();
        if (n >= LATER) mbarrier_arrive(ring.empty[(n - LATER) % Ring::SLOTS]);
    }
    cp_async_bulk_wait_all();
}

// Calls take(slot, tile, s, parity) for every further-th tile from the first on, by a team's warps. s is the slot's number.
template <class Ring, class Take>
__device__ inline void take_tiles(Ring& ring, Barrier* left, const Circle& circle, int first, int further, Take take) {
    for (int n = first, tile = circle.tile(n); circle.has(n); n += further, tile = circle.after(tile, further)) {
        const int s = n % Ring::SLOTS, parity = n / Ring::SLOTS % 2;
        mbarrier_wait_parity(ring.full[s], parity);
        take(ring.slots[s], tile, s, parity);
        warp_arrives(left[s]);
    }
}

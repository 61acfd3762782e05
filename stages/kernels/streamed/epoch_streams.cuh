// The ring of a block: one warp fetches pieces of weights into slots, in the order in which teams take them, and never stops
// between layers; another stores updated ones. Both walk the same list of pieces as the teams: two that multiply, and two that
// update what those have read.
//
//   forward, layers 1 to DEPTH - 1   two tiles above each other, their bfloat16 planes alone
//   backward, the same layers, down  a tile, both planes; it is stored again
//   layer 0                          a tile, both planes, up again: updated by this step, then multiplied by the next images
//
// A step that does not update reads bfloat16 planes alone: backward two tiles beside each other.
//
// Pieces go to the two teams in turn: forward teams have panels of outputs in turn, backward rows of tiles. Each pass begins with
// the tiles where the one before ended: those that are still in L2. Messages between blocks are written anew in each step only:
// they outlast weights there, by a launch's prefetches and, if WEIGHTS_LEAVE, by the weights' own policy.
#pragma once
#include "streamed/epoch_plan.cuh"

struct Ring {
    char* memory;
    Barrier *full, *read, *updated, *empty;  // of each slot: it is fetched, multiplied, updated if at all, then stored
    Barrier *images, *kept;                  // of both boxes of images; of what a step before has kept
    Barrier *ready, *spent;                  // a layer's factors of updates are there, and have been read
    int* stored;                             // updates whose stores are complete

    __device__ explicit Ring(char* memory)
        : memory(memory), full(reinterpret_cast<Barrier*>(memory + BARRIERS_AT)), read(full + SLOTS), updated(read + SLOTS),
          empty(updated + SLOTS), images(empty + SLOTS), kept(images + 2), ready(kept + 1), spent(ready + 1),
          stored(reinterpret_cast<int*>(spent + 1)) {}
    __device__ void begin() const {
        for (int s = 0; s < SLOTS; ++s) {
            mbarrier_init(full[s], 1);
            mbarrier_init(read[s], GROUP_WARPS * LANES_ARRIVE);
            mbarrier_init(updated[s], GROUP_WARPS * LANES_ARRIVE);
            mbarrier_init(empty[s], 1);
        }
        mbarrier_init(images[0], 1), mbarrier_init(images[1], 1), mbarrier_init(*kept, 1);
        mbarrier_init(*ready, TAKERS / WARP * LANES_ARRIVE), mbarrier_init(*spent, UPDATERS / WARP * LANES_ARRIVE);
        *stored = 0;
        fence_mbarrier_init();
    }
    __device__ char* slot(int s) const { return memory + s * SLOT_BYTES; }
};

// Walks over slots.
struct Turn {
    int slot, parity;

    __device__ explicit Turn(int first = 0) : slot(first % SLOTS), parity(first / SLOTS % 2) {}
    __device__ void next(int pieces) {
        slot += pieces;
        if (slot >= SLOTS) slot -= SLOTS, parity ^= 1;
    }
    __device__ void skip(int pieces) {
        const int all = slot + pieces;
        slot = all % SLOTS, parity ^= all / SLOTS & 1;
    }
};

// Updates of this block: of a layer, and of a step.
__device__ inline int updates_of(const Shares& own, int layer) {
    return (layer == 0 ? own.image_tiles() : tiles_of(layer)) * tiles_of(layer + 1);
}
__device__ inline int updates_above(int layer) {
    int all = 0;
    for (int l = layer + 1; l < DEPTH; ++l) all += tiles_of(l) * tiles_of(l + 1);
    return all;
}

// Pieces forward, layers 1 to DEPTH - 1.
__host__ __device__ constexpr int pieces_forward() {
    int all = 0;
    for (int layer = 1; layer < DEPTH; ++layer) all += tiles_of(layer) / 2 * tiles_of(layer + 1);
    return all;
}

class Fetcher {
  public:
    __device__ Fetcher(const Ring& ring, float* parameters) : ring(ring), parameters(parameters) {}

    __device__ void run(int steps) {
        const int all = updates_above(0) + updates_of(own, 0);
        first_layer(false);
        for (int step = 0; step < steps; ++step) {
            const int before = updates_before(step) * all;
            const bool updates = updates_in(step, steps);
            for (int layer = 1; layer < DEPTH; ++layer) forward(layer, corrects_in(step) ? -1 : before - all + updates_above(layer));
            for (int layer = DEPTH - 1; layer > 0; --layer) updates ? backward(layer) : backward_reading(layer);
            wait_for_updates(before);
            first_layer(updates);
        }
    }

  private:
    // `before`: updates before those of this layer by the step before; less than 0 if there are none.
    __device__ void forward(int layer, int before) {
        const int pairs = tiles_of(layer) / TEAMS, panels = tiles_of(layer + 1);
        for (int first = 0; first < panels; first += TEAMS) {
            for (int pair = 0; pair < pairs; ++pair) {
                for (int panel = first; panel < first + TEAMS; ++panel) {
                    // `backward` came to both tiles of this pair in this panel as its updates number:
                    if (before >= 0) wait_for_updates(before + ((pairs - 1 - pair) * panels + panels - panel) * TEAMS);
                    acquire(2 * PLANE_BYTES, false);
                    for (int i = 0; i < 2; ++i) {
                        copy(i * PLANE_BYTES, own.tile(parameters, layer, 2 * pair + i, panel), PLANE_BYTES);
                    }
                    turn.next(1);
                }
            }
        }
    }
    __device__ void backward(int layer) {
        for (int pair = tiles_of(layer) / TEAMS - 1; pair >= 0; --pair) {
            for (int panel = tiles_of(layer + 1) - 1; panel >= 0; --panel) {
                for (int team = 0; team < TEAMS; ++team) {
                    acquire(SLOT_BYTES, true);
                    copy(0, own.tile(parameters, layer, TEAMS * pair + team, panel), SLOT_BYTES);
                    turn.next(1);
                }
            }
        }
    }
    __device__ void backward_reading(int layer) {
        for (int pair = tiles_of(layer) / TEAMS - 1; pair >= 0; --pair) {
            for (int panel = tiles_of(layer + 1) - 2; panel >= 0; panel -= 2) {
                for (int team = 0; team < TEAMS; ++team) {
                    acquire(2 * PLANE_BYTES, false);
                    for (int i = 0; i < 2; ++i) {
                        copy(i * PLANE_BYTES, own.tile(parameters, layer, TEAMS * pair + team, panel + i), PLANE_BYTES);
                    }
                    turn.next(1);
                }
            }
        }
    }
    __device__ void first_layer(bool updates) {
        const int tiles = own.image_tiles();
        for (int first = 0; first < tiles_of(1); first += TEAMS) {
            for (int row_tile = 0; row_tile < tiles; ++row_tile) {
                for (int panel = first; panel < first + TEAMS; ++panel) {
                    const int bytes = own.rows(row_tile) * ROW_BYTES;
                    const char* const tile = own.tile(parameters, 0, row_tile, panel);
                    acquire(updates ? 2 * bytes : bytes, updates);
                    copy(0, tile, bytes);
                    if (updates) copy(PLANE_BYTES, tile + bytes, bytes);
                    turn.next(1);
                }
            }
        }
    }

    __device__ void wait_for_updates(int least) {
        if (stored < least) stored = wait_for_count(ring.stored, least);
    }
    // Waits until the next slot is empty, and says what comes.
    __device__ void acquire(int bytes, bool is_stored) {
        const unsigned bit = 1u << turn.slot;
        mbarrier_wait_parity(ring.read[turn.slot], turn.parity ^ 1);  // at once, the first time
        if (were_stored & bit) {
            mbarrier_wait_parity(ring.empty[turn.slot], (times_stored & bit) != 0);
            times_stored ^= bit;
        }
        were_stored = is_stored ? were_stored | bit : were_stored & ~bit;
        mbarrier_arrive_expect_tx(ring.full[turn.slot], bytes);
    }
    __device__ void copy(int at, const void* from, int bytes) const {
        cp_async_bulk(ring.slot(turn.slot) + at, ring.full[turn.slot], from, bytes, leaving);
    }

    const Ring& ring;
    float* const parameters;
    const Shares own;
    const unsigned long long leaving = WEIGHTS_LEAVE ? evict_first() : evict_normal();
    Turn turn;
    int stored = 0;  // updates that are known to be complete
    unsigned were_stored = 0, times_stored = 0;  // a bit for each slot; times: their lowest
};

class Storer {
  public:
    __device__ Storer(const Ring& ring, float* parameters) : ring(ring), parameters(parameters) {}

    __device__ void run(int steps) {
        const int images = own.image_tiles() * tiles_of(1);
        turn.skip(images);
        for (int step = 0; step < steps; ++step) {
            const bool updates = updates_in(step, steps);
            turn.skip(updates ? pieces_forward() : 2 * pieces_forward() + images);
            if (!updates) continue;
            for (int layer = DEPTH - 1; layer > 0; --layer) {
                for (int pair = tiles_of(layer) / TEAMS - 1; pair >= 0; --pair) {
                    for (int panel = tiles_of(layer + 1) - 1; panel >= 0; --panel) {
                        for (int team = 0; team < TEAMS; ++team) {
                            store(own.tile(parameters, layer, TEAMS * pair + team, panel), PLANE_BYTES);
                        }
                    }
                }
                free_last();
                if (layer == 1 && images < LAG) flush();
            }
            for (int first = 0; first < tiles_of(1); first += TEAMS) {
                for (int row_tile = 0; row_tile < own.image_tiles(); ++row_tile) {
                    for (int panel = first; panel < first + TEAMS; ++panel) {
                        store(own.tile(parameters, 0, row_tile, panel), own.rows(row_tile) * ROW_BYTES);
                    }
                }
            }
            free_last();
            flush();
        }
    }

  private:
    static constexpr int LAG = 4;  // stores after which one is surely complete

    __device__ void store(char* to, int plane_bytes) {
        mbarrier_wait_parity(ring.updated[turn.slot], times >> turn.slot & 1);
        times ^= 1u << turn.slot;
        const char* const from = ring.slot(turn.slot);
        if (plane_bytes == PLANE_BYTES) {
            cp_async_bulk_store(to, from, SLOT_BYTES, leaving);
        } else {
            cp_async_bulk_store(to, from, plane_bytes, leaving);
            cp_async_bulk_store(to + plane_bytes, from + PLANE_BYTES, plane_bytes, leaving);
        }
        cp_async_bulk_commit_group();
        ++stores;
        cp_async_bulk_wait_group_read<1>();
        if (last >= 0) mbarrier_arrive(ring.empty[last]);
        last = turn.slot;
        cp_async_bulk_wait_group<LAG>();
        if (stores > LAG) set_count(ring.stored, stores - LAG);
        turn.next(1);
    }
    // No copy reads the last slot any more.
    __device__ void free_last() {
        cp_async_bulk_wait_group_read<0>();
        if (last >= 0) mbarrier_arrive(ring.empty[last]);
        last = -1;
    }
    __device__ void flush() {
        cp_async_bulk_wait_all();
        set_count(ring.stored, stores);
    }

    const Ring& ring;
    float* const parameters;
    const Shares own;
    const unsigned long long leaving = WEIGHTS_LEAVE ? evict_first() : evict_normal();
    Turn turn;
    unsigned times = 0;  // a bit for each slot, as the fetcher's
    int stores = 0, last = -1;
};

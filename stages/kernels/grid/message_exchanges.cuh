#pragma once
#include "grid/message_plan.cuh"

// Where a thread's sums lie in a product of the block: warp groups divide its columns, or its rows if there are 128.
struct Own {
    int group, warp, lane, thin, thick;  // the warp in its group; the block's shares

    __device__ Own() : lane(threadIdx.x % WARP), thin(blockIdx.x / THICK), thick(blockIdx.x % THICK) { forget(); }
    // Lets the compiler derive nothing from before: it would keep hundreds of addresses in registers, and spill others. It sees
    // that the others are the same for all lanes.
    __device__ void forget() {
        int all = threadIdx.x / WARP;
        opaque(all), opaque(lane);
        all = __shfl_sync(~0u, all, 0);
        group = all / GROUP_WARPS, warp = all % GROUP_WARPS;
    }
    __device__ int warp_in_block() const { return group * GROUP_WARPS + warp; }
    __device__ int row_tile() const { return (ROWS > 64 ? group * GROUP_WARPS : 0) + warp; }
    __device__ int first_row_edge() const { return ROWS > 64 ? group * GROUP_WARPS * 2 : 0; }
    __device__ int first_col(int cols) const { return ROWS > 64 ? 0 : group * cols; }
    __device__ int g() const { return lane / 4; }
    __device__ int t() const { return lane % 4; }
};
// Columns of matrices that a warp group computes of so many.
__device__ constexpr int cols_of(int edges) { return ROWS > 64 ? edges : (edges + GROUPS - 1) / GROUPS; }
__device__ constexpr int half_of(int edges) { return (edges + GROUPS - 1) / GROUPS; }

// The unit of a lane in a tile of sixteen rows by eight columns.
__device__ inline int unit_at(int row_tile, int col, int lane) { return (col * TILES + row_tile) * WARP + lane; }

// The word that a lane has of rows g and g + 8 of a tile, in activations.
__device__ inline unsigned& word_at(unsigned short* activations, int row_tile, int col, int lower, int lane) {
    return reinterpret_cast<unsigned*>(activations + (col * ROW_EDGES + 2 * row_tile + lower) * MATRIX)[lane];
}

// Puts a unit into activations whose word_at(.., 0, ..) is `upper`; lower halves lie `low` numbers behind.
__device__ inline void put(unsigned* upper, int low, Part whole) {
#if FACTOR_HALVES == 2
    upper[0] = whole.y, upper[MATRIX / 2] = whole.w;
    upper[low / 2] = whole.x, upper[low / 2 + MATRIX / 2] = whole.z;
#else
    upper[0] = whole.x, upper[MATRIX / 2] = whole.y;
#endif
}

// Of four outputs at `upper`, as `put` leaves them: bits that are 0, but for signs, where an output is. A high half alone is 0
// also of an output below 3e-8, and those of a deep network that has not learned are small.
__device__ inline uint2 bits_at(const unsigned* upper, int low) {
#if FACTOR_HALVES == 2
    return make_uint2(upper[0] | upper[low / 2], upper[MATRIX / 2] | upper[low / 2 + MATRIX / 2]);
#else
    return make_uint2(upper[0], upper[MATRIX / 2]);
#endif
}

// The numbers where the outputs with these bits are not 0; elsewhere 0.
__device__ inline void mask(float (&numbers)[4], uint2 outputs) {
    if (!(outputs.x & 0x7fffu)) numbers[0] = 0.0f;
    if (!(outputs.x & 0x7fff0000u)) numbers[1] = 0.0f;
    if (!(outputs.y & 0x7fffu)) numbers[2] = 0.0f;
    if (!(outputs.y & 0x7fff0000u)) numbers[3] = 0.0f;
}

// A sum of activations L over the blocks that have the same units of them: each of the first blocks adds up some tiles of all
// parts, and sends the result to all.
template <int L>
class Sum {
  public:
    static constexpr int EDGES = edges_of(L), COLS = cols_of(EDGES), BLOCKS = sharers_of(L), ALL_TILES = tiles_of(L),
                         OWN_TILES = own_tiles_of(L), OWN_UNITS = own_units_of(L);
    static_assert(OWN_TILES <= TILES);  // of one column
    // Threads that share the sum of a unit.
    __device__ static constexpr int most_sharers() {
        int sharers = 1;
        while (2 * sharers <= BLOCKS && 2 * sharers * OWN_UNITS <= THREADS) sharers *= 2;
        return sharers;
    }
    static constexpr int SHARERS = most_sharers(), SOURCES = (BLOCKS - 1) / SHARERS + 1;

    __device__ Sum(const Own& own, const Mail& mail, Round round)
        : own(own), rank(is_thin(L) ? own.thick : own.thin), tag(round.tag()) {
        const int box = round.slot() * (THIN * THICK / BLOCKS) + (is_thin(L) ? own.thin : own.thick);
        parts = mail.parts<L>() + box * BLOCKS * BLOCKS * OWN_UNITS;
        wholes = mail.wholes<L>() + box * ALL_TILES * WARP;
    }

    // Whether this thread helps to add up a unit, and which.
    __device__ bool adds() const {
        constexpr int ADDERS = OWN_UNITS * SHARERS;
        return rank * OWN_TILES < ALL_TILES && (ADDERS == THREADS || own.warp_in_block() < ADDERS / WARP);
    }
    __device__ static int at() { return threadIdx.x / SHARERS; }
    __device__ int col() const { return rank * OWN_TILES / TILES; }
    __device__ unsigned* word(unsigned short* activations) const {
        return &word_at(activations, (rank * OWN_TILES + at() / WARP) % TILES, col(), 0, at() % WARP);
    }

    __device__ void post_all(const float (&sums)[COLS][4]) const {
        if (own.row_tile() >= TILES) return;
        // The first owner of the units of this thread's column 0, its place there, and the owners from a column to the next.
        const int owner = (own.first_col(COLS) * TILES + own.row_tile()) / OWN_TILES;
        Part* const to = part_at(owner, rank, own.row_tile() % OWN_TILES * WARP + own.lane);
        constexpr int OWNERS_APART = TILES / OWN_TILES;
#pragma unroll
        for (int n = 0; n < COLS; ++n) {
            if (COLS * (ROWS > 64 ? 1 : GROUPS) == EDGES || own.first_col(COLS) + n < EDGES) {
                post(to + n * OWNERS_APART * BLOCKS * OWN_UNITS, part_of(sums[n], tag));
            }
        }
    }

    // Adds up this block's units; make(sums, tag) is what to send of them.
    template <class Make>
    __device__ void add_up(Make make) const {
        if (!adds()) return;
        const int first_source = threadIdx.x % SHARERS * SOURCES;
        Part units[SOURCES];
#pragma unroll
        for (int i = 0; i < SOURCES; ++i) units[i] = none(first_source + i < BLOCKS ? tag : tag ^ 1);
        const Part* const from = part_at(rank, first_source, at());
        complete(units, tag, [&](int i) { return from + i * OWN_UNITS; });
        float sums[4] = {};
#pragma unroll
        for (int i = 0; i < SOURCES; ++i) add(sums, units[i]);
#pragma unroll
        for (int apart = 1; apart < SHARERS; apart *= 2) {
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[i] += __shfl_xor_sync(~0u, sums[i], apart);
        }
        if (threadIdx.x % SHARERS == 0) post(wholes + rank * OWN_UNITS + at(), make(sums, tag));
    }

    // All units, into activations: a warp takes each WARPS-th tile.
    __device__ void receive(unsigned short* activations, int low) const {
        constexpr int EACH = (ALL_TILES - 1) / WARPS + 1, COLS_APART = WARPS / TILES;
        const int tile = own.warp_in_block();
        Part units[EACH];
#pragma unroll
        for (int i = 0; i < EACH; ++i) units[i] = none(is_there(tile, i) ? tag : tag ^ 1);
        const Part* const from = wholes + tile * WARP + own.lane;
        complete(units, tag, [&](int i) { return from + i * WARPS * WARP; });
        unsigned* const to = &word_at(activations, tile % TILES, tile / TILES, 0, own.lane);
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            if (is_there(tile, i)) put(to + i * COLS_APART * ROW_EDGES * MATRIX / 2, low, units[i]);
        }
    }

  private:
    __device__ static bool is_there(int tile, int i) { return ALL_TILES % WARPS == 0 || tile + i * WARPS < ALL_TILES; }
    __device__ Part* part_at(int owner, int source, int at) const {
        return parts + (owner * BLOCKS + source) * OWN_UNITS + at;
    }

    const Own own;
    const int rank;  // of this block, among those of the sum
    const unsigned tag;
    Part *parts, *wholes;
};

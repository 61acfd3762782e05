#pragma once
#include "grid/message_products.cuh"

// Where a thread's sums lie in a product of the block: warp groups divide its columns, or its rows if there are 128.
struct Own {
    int group, warp, lane, thin, thick;  // the warp in its group; the block's shares

    __device__ Own()
        : group(threadIdx.x / WARP / GROUP_WARPS), warp(threadIdx.x / WARP % GROUP_WARPS), lane(threadIdx.x % WARP),
          thin(blockIdx.x % THIN), thick(blockIdx.x / THIN) {}
    // Lets the compiler derive nothing from before: it would keep hundreds of addresses in registers, and spill others.
    __device__ void forget() { opaque(lane), opaque(warp), opaque(group); }
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
__device__ inline int unit_at(int row_tile, int col, int lane) { return (col * ROW_TILES + row_tile) * WARP + lane; }

// The word that a lane has of rows g and g + 8 of a tile, in activations.
__device__ inline unsigned& word_at(unsigned short* activations, int row_tile, int col, int lower, int lane) {
    return reinterpret_cast<unsigned*>(activations + (col * ROW_EDGES + 2 * row_tile + lower) * MATRIX)[lane];
}

__device__ inline Part part_of(const float (&sums)[4], unsigned tag) {
#if FACTOR_HALVES == 2
    return make_uint4(__float_as_uint(sums[0]) & ~1u | tag, __float_as_uint(sums[1]), __float_as_uint(sums[2]),
                      __float_as_uint(sums[3]));
#else
    return make_uint2(cvt_f16x2(sums[0], sums[1]) & ~1u | tag, cvt_f16x2(sums[2], sums[3]));
#endif
}
__device__ inline void add(float (&sums)[4], Part part) {
#if FACTOR_HALVES == 2
    sums[0] += __uint_as_float(part.x), sums[1] += __uint_as_float(part.y);
    sums[2] += __uint_as_float(part.z), sums[3] += __uint_as_float(part.w);
#else
    const float2 upper = cvt_f32_f16x2(part.x), lower = cvt_f32_f16x2(part.y);
    sums[0] += upper.x, sums[1] += upper.y, sums[2] += lower.x, sums[3] += lower.y;
#endif
}
__device__ inline Part none(unsigned tag) {
    Part part = {};
    part.x = tag ^ 1;
    return part;
}
__device__ inline Part whole_of(const float (&numbers)[4], unsigned tag) {
    const Halves upper = halves_of(numbers[0], numbers[1], HALVES == 2 ? ~0u : ~1u), lower = halves_of(numbers[2], numbers[3]);
#if FACTOR_HALVES == 2
    return make_uint4(upper.low & ~1u | tag, upper.high, lower.low, lower.high);
#else
    return make_uint2(upper.high | tag, lower.high);
#endif
}
// Puts a unit into activations, whose lower halves lie `low` behind.
__device__ inline void put(unsigned short* activations, int low, int row_tile, int col, int lane, Part whole) {
#if FACTOR_HALVES == 2
    word_at(activations, row_tile, col, 0, lane) = whole.y, word_at(activations, row_tile, col, 1, lane) = whole.w;
    word_at(activations + low, row_tile, col, 0, lane) = whole.x, word_at(activations + low, row_tile, col, 1, lane) = whole.z;
#else
    word_at(activations, row_tile, col, 0, lane) = whole.x, word_at(activations, row_tile, col, 1, lane) = whole.y;
#endif
}

// The numbers where the outputs' high halves, of row g and of row g + 8, are not 0; elsewhere 0.
__device__ inline void mask(float (&numbers)[4], unsigned upper, unsigned lower) {
    if (!(upper & 0x7fffu)) numbers[0] = 0.0f;
    if (!(upper & 0x7fff0000u)) numbers[1] = 0.0f;
    if (!(lower & 0x7fffu)) numbers[2] = 0.0f;
    if (!(lower & 0x7fff0000u)) numbers[3] = 0.0f;
}

// A sum of activations L over the blocks that have the same units of them: each adds up its own share of all parts, and sends
// the result to all.
template <int L>
class Sum {
  public:
    static constexpr int EDGES = edges_of(L), COLS = cols_of(EDGES), BLOCKS = sharers_of(L), UNITS = units_of(L),
                         OWN_UNITS = own_units_of(L);
    // Threads that share the sum of a unit, and turns of all threads.
    __device__ static constexpr int most_sharers() {
        int sharers = 1;
        while (2 * sharers <= BLOCKS && 2 * sharers * OWN_UNITS <= THREADS) sharers *= 2;
        return sharers;
    }
    static constexpr int SHARERS = most_sharers(), SOURCES = (BLOCKS - 1) / SHARERS + 1;
    static constexpr int TURNS = (OWN_UNITS * SHARERS - 1) / THREADS + 1;

    __device__ Sum(const Own& own, const Mail& mail, Round& round)
        : tag(round.tag()), own(own), rank(is_thin(L) ? own.thick : own.thin) {
        const int box = round.slot() * (THIN * THICK / BLOCKS) + (is_thin(L) ? own.thin : own.thick);
        parts = mail.parts[is_thin(L)] + box * BLOCKS * BLOCKS * OWN_UNITS;
        wholes = mail.wholes[is_thin(L)] + box * UNITS;
        ++round.number;
    }

    __device__ void post_all(const float (&sums)[COLS][4]) const {
#pragma unroll
        for (int n = 0; n < COLS; ++n) {
            const int col = own.first_col(COLS) + n, unit = unit_at(own.row_tile(), col, own.lane);
            if (col < EDGES) post(part_at(unit / OWN_UNITS, rank, unit % OWN_UNITS), part_of(sums[n], tag));
        }
    }

    // The unit that this thread helps to add up in that turn, or -1.
    __device__ int unit_of(int turn) const {
        const int at = (turn * THREADS + threadIdx.x) / SHARERS, unit = rank * OWN_UNITS + at;
        return at < OWN_UNITS && unit < UNITS ? unit : -1;
    }
    __device__ static int row_tile_of(int unit) { return unit / WARP % ROW_TILES; }
    __device__ static int col_of(int unit) { return unit / WARP / ROW_TILES; }

    // Adds up this block's units; make(sums, turn, unit) is what to send of them.
    template <class Make>
    __device__ void add_up(Make make) const {
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            const int unit = unit_of(turn);
            const int at = max(unit, 0) % OWN_UNITS, first = threadIdx.x % SHARERS * SOURCES;
            float sums[4] = {};
            if (unit >= 0) {
                Part units[SOURCES];
#pragma unroll
                for (int i = 0; i < SOURCES; ++i) units[i] = none(first + i < BLOCKS ? tag : tag ^ 1);
                complete(units, tag, [&](int i) { return part_at(rank, first + i, at); });
#pragma unroll
                for (int i = 0; i < SOURCES; ++i) add(sums, units[i]);
            }
#pragma unroll
            for (int apart = 1; apart < SHARERS; apart *= 2) {
#pragma unroll
                for (int i = 0; i < 4; ++i) sums[i] += __shfl_xor_sync(~0u, sums[i], apart);
            }
            if (unit < 0 || threadIdx.x % SHARERS != 0) continue;
            post(wholes + unit, make(sums, turn, unit));
        }
    }

    // Calls use(unit, column) for all units of this thread.
    template <class Use>
    __device__ void receive_all(Use use) const {
        Part units[COLS];
#pragma unroll
        for (int n = 0; n < COLS; ++n) units[n] = none(own.first_col(COLS) + n < EDGES ? tag : tag ^ 1);
        complete(units, tag, [&](int n) { return wholes + unit_at(own.row_tile(), own.first_col(COLS) + n, own.lane); });
#pragma unroll
        for (int n = 0; n < COLS; ++n) {
            if (own.first_col(COLS) + n < EDGES) use(units[n], own.first_col(COLS) + n);
        }
    }

    const unsigned tag;

  private:
    __device__ Part* part_at(int owner, int source, int at) const { return parts + (owner * BLOCKS + source) * OWN_UNITS + at; }

    const Own own;
    const int rank;  // of this block, among those of the sum
    Part *parts, *wholes;
};

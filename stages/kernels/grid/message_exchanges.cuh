#pragma once
#include "grid/message_products.cuh"

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
// Puts a unit into activations whose word_at(.., 0, ..) is `upper`; lower halves lie `low` numbers behind.
__device__ inline void put(unsigned* upper, int low, Part whole) {
#if FACTOR_HALVES == 2
    upper[0] = whole.y, upper[MATRIX / 2] = whole.w;
    upper[low / 2] = whole.x, upper[low / 2 + MATRIX / 2] = whole.z;
#else
    upper[0] = whole.x, upper[MATRIX / 2] = whole.y;
#endif
}

// The numbers where the outputs' high halves, of row g and of row g + 8, are not 0; elsewhere 0.
__device__ inline void mask(float (&numbers)[4], unsigned upper, unsigned lower) {
    if (!(upper & 0x7fffu)) numbers[0] = 0.0f;
    if (!(upper & 0x7fff0000u)) numbers[1] = 0.0f;
    if (!(lower & 0x7fffu)) numbers[2] = 0.0f;
    if (!(lower & 0x7fff0000u)) numbers[3] = 0.0f;
}

// A sum of activations L over the blocks that have the same units of them: each of the first blocks adds up some tiles of all
// parts, and sends the result to all.
template <int L>
class AnySum {
  public:
    static constexpr int EDGES = edges_of(L), COLS = cols_of(EDGES), BLOCKS = sharers_of(L), TILES = tiles_of(L),
                         OWN_TILES = own_tiles_of(L), OWN_UNITS = own_units_of(L);
    // Threads that share the sum of a unit.
    __device__ static constexpr int most_sharers() {
        int sharers = 1;
        while (2 * sharers <= BLOCKS && 2 * sharers * OWN_UNITS <= THREADS) sharers *= 2;
        return sharers;
    }
    static constexpr int SHARERS = most_sharers(), SOURCES = (BLOCKS - 1) / SHARERS + 1;

    __device__ AnySum(const Own& own, int rank) : own(own), rank(rank) {}

    // Whether this thread helps to add up a unit; which, and the first of its sources.
    __device__ bool adds() const {
        constexpr int ADDERS = OWN_UNITS * SHARERS;
        return rank * OWN_TILES < TILES && (ADDERS == THREADS || own.warp_in_block() < ADDERS / WARP);
    }
    __device__ static int at() { return threadIdx.x / SHARERS; }
    __device__ static int first_source() { return threadIdx.x % SHARERS * SOURCES; }
    __device__ int col() const { return rank * OWN_TILES / ROW_TILES; }
    __device__ int row_tile() const { return (rank * OWN_TILES + at() / WARP) % ROW_TILES; }
    __device__ unsigned* word(unsigned short* activations) const { return &word_at(activations, row_tile(), col(), 0, at() % WARP); }

  protected:
    __device__ bool is_there(int n) const {
        return COLS * (ROWS > 64 ? 1 : GROUPS) == EDGES || own.first_col(COLS) + n < EDGES;
    }
    __device__ static void add_lanes(float (&sums)[4]) {
#pragma unroll
        for (int apart = 1; apart < SHARERS; apart *= 2) {
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[i] += __shfl_xor_sync(~0u, sums[i], apart);
        }
    }
    // The first owner of the units of this thread's column 0, its place there, and the owners from a column to the next.
    __device__ int owner() const { return (own.first_col(COLS) * ROW_TILES + own.row_tile()) / OWN_TILES; }
    __device__ int place() const { return own.row_tile() % OWN_TILES * WARP + own.lane; }
    static constexpr int OWNERS_APART = ROW_TILES / OWN_TILES;

    const Own own;
    const int rank;  // of this block, among those of the sum
};

// Through L2.
template <int L, bool IN_CLUSTER = IN_CLUSTERS && is_thin(L)>
class Sum : public AnySum<L> {
  public:
    using Any = AnySum<L>;
    __device__ Sum(const Own& own, const Mail& mail, Inbox&, Round& round)
        : Any(own, is_thin(L) ? own.thick : own.thin), tag(round.tag()) {
        const int box = round.slot() * (THIN * THICK / Any::BLOCKS) + (is_thin(L) ? own.thin : own.thick);
        parts = mail.parts[is_thin(L)] + box * Any::BLOCKS * Any::BLOCKS * Any::OWN_UNITS;
        wholes = mail.wholes[is_thin(L)] + box * Any::TILES * WARP;
        ++round.number;
    }

    __device__ void post_all(const float (&sums)[Any::COLS][4], bool) const {
        Part* const to = part_at(this->owner(), this->rank, this->place());
#pragma unroll
        for (int n = 0; n < Any::COLS; ++n) {
            if (this->is_there(n)) post(to + n * Any::OWNERS_APART * Any::BLOCKS * Any::OWN_UNITS, part_of(sums[n], tag));
        }
    }

    __device__ void has_read() const {}

    // Adds up this block's units; make(sums) is what to send of them.
    template <class Make>
    __device__ void add_up(unsigned short*, int, Make make) const {
        if (!this->adds()) return;
        Part units[Any::SOURCES];
#pragma unroll
        for (int i = 0; i < Any::SOURCES; ++i) units[i] = none(this->first_source() + i < Any::BLOCKS ? tag : tag ^ 1);
        const Part* const from = part_at(this->rank, this->first_source(), this->at());
        complete(units, tag, [&](int i) { return from + i * Any::OWN_UNITS; });
        float sums[4] = {};
#pragma unroll
        for (int i = 0; i < Any::SOURCES; ++i) add(sums, units[i]);
        this->add_lanes(sums);
        if (threadIdx.x % Any::SHARERS != 0) return;
        post(wholes + this->rank * Any::OWN_UNITS + this->at(), make(sums, tag));
    }

    // All units of this thread, into activations.
    __device__ void receive(unsigned short* activations, int low) const {
        Part units[Any::COLS];
#pragma unroll
        for (int n = 0; n < Any::COLS; ++n) units[n] = none(this->is_there(n) ? tag : tag ^ 1);
        const int first = this->own.first_col(Any::COLS);
        const Part* const from = wholes + unit_at(this->own.row_tile(), first, this->own.lane);
        complete(units, tag, [&](int n) { return from + n * ROW_TILES * WARP; });
        unsigned* const to = &word_at(activations, this->own.row_tile(), first, 0, this->own.lane);
#pragma unroll
        for (int n = 0; n < Any::COLS; ++n) {
            if (this->is_there(n)) put(to + n * ROW_EDGES * MATRIX / 2, low, units[n]);
        }
    }

  private:
    __device__ Part* part_at(int owner, int source, int at) const {
        return parts + (owner * Any::BLOCKS + source) * Any::OWN_UNITS + at;
    }

    const unsigned tag;
    Part *parts, *wholes;
};

// Inside a cluster: thin units. Parts go into their owner's inbox, sums into all blocks' activations.
template <int L>
class Sum<L, true> : public AnySum<L> {
  public:
    using Any = AnySum<L>;
    static constexpr int OWNERS = Any::TILES / Any::OWN_TILES, PART = sizeof(Part);

    __device__ Sum(const Own& own, const Mail&, Inbox& inbox, Round& round)
        : Any(own, own.thick), inbox(inbox), parity(round.number++ % 2) {}

    // What the sums replace has been read by all blocks once all have called has_read, if they will.
    __device__ void post_all(const float (&sums)[Any::COLS][4], bool will_read) const {
        if (threadIdx.x == 0) {
            const bool owns = this->rank < OWNERS;
            if (owns) mbarrier_arrive_expect_tx(inbox.parts_are_in, THICK * (Any::OWN_UNITS * PART + will_read * 4));
            mbarrier_arrive_expect_tx(inbox.sums_are_in, (Any::TILES - owns * Any::OWN_TILES) * WARP * PART);
        }
        Part* const place = inbox.parts + this->rank * Any::OWN_UNITS + this->place();
#pragma unroll
        for (int n = 0; n < Any::COLS; ++n) {
            if (!this->is_there(n)) continue;
            send(peer_at(this->owner() + n * Any::OWNERS_APART, &inbox), place, inbox.parts_are_in, part_of(sums[n], 0));
        }
    }

    __device__ void has_read() const {
        if (threadIdx.x < OWNERS) send(peer_at(threadIdx.x, &inbox), &inbox.read, inbox.parts_are_in, 0u);
    }

    template <class Make>
    __device__ void add_up(unsigned short* activations, int low, Make make) const {
        if (!this->adds()) return;
        mbarrier_wait_parity(inbox.parts_are_in, parity);
        const Part* const from = inbox.parts + this->first_source() * Any::OWN_UNITS + this->at();
        float sums[4] = {};
#pragma unroll
        for (int i = 0; i < Any::SOURCES; ++i) {
            if (this->first_source() + i < THICK) add(sums, from[i * Any::OWN_UNITS]);
        }
        this->add_lanes(sums);
        const Part whole = make(sums, 0);
        if (threadIdx.x % Any::SHARERS == 0) put(this->word(activations), low, whole);
        __syncwarp();
        // The warp's images, eight units of each: sixteen bytes.
        constexpr int IMAGES = EDGE / Any::SHARERS, RUNS = HALVES * 2 * IMAGES;
        const int run = threadIdx.x % WARP % RUNS, image = run % IMAGES, lower = run / IMAGES % 2;
        unsigned short* const place = activations + run / IMAGES / 2 * low +
                                      (this->col() * ROW_EDGES + 2 * this->row_tile() + lower) * MATRIX +
                                      (threadIdx.x / WARP * IMAGES % EDGE + image) * EDGE;
        const uint4 bytes = *reinterpret_cast<const uint4*>(place);
#pragma unroll
        for (int i = 0; i < THICK - 1; i += WARP / RUNS) {
            const int further = i + threadIdx.x % WARP / RUNS + 1;
            if (further < THICK) send(peer_at((this->rank + further) % THICK, &inbox), place, inbox.sums_are_in, bytes);
        }
    }

    __device__ void receive(unsigned short*, int) const { mbarrier_wait_parity(inbox.sums_are_in, parity); }

  private:
    Inbox& inbox;
    const int parity;
};

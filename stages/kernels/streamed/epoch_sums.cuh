// Sums over the blocks that have the same units, by messages as in grid/message_exchanges.cuh: parts as float16, sums as bfloat16.
//
// A unit of 16 bytes has eight numbers of a lane's fragment: rows g and g + 8 of a warp's sixteen outputs, in four images. Its
// owner adds up all parts; then four lanes swap words, so that each has eight images of one output, as activations are kept.
// A plan stands before it, which says how many.
#pragma once

// A lane's address in activations kept as matrices of eight units by eight images.
__device__ inline int unit_at(int unit, int chunk) { return ((unit / EDGE * CHUNKS + chunk) * EDGE + unit % EDGE) * 16; }

// Two numbers of 16 bits, the lowest bit of the first replaced by a tag, rounded to even: sums would lean if it were cut off.
__device__ inline unsigned tagged(unsigned two, unsigned tag) { return two + (two >> 1 & two & 1u) & ~1u | tag; }

__device__ inline uint4 part_of(const float (&left)[4], const float (&right)[4], unsigned tag) {
    return make_uint4(tagged(cvt_f16x2(left[0], left[1]), tag), cvt_f16x2(left[2], left[3]), cvt_f16x2(right[0], right[1]),
                      cvt_f16x2(right[2], right[3]));
}
__device__ inline void add(float (&sums)[8], uint4 part) {
    const unsigned words[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float2 two = cvt_f32_f16x2(words[i]);
        sums[2 * i] += two.x, sums[2 * i + 1] += two.y;
    }
}
__device__ inline float2 two_of(unsigned pair) {
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}
// A bit for each number of a unit that is not 0, and the numbers whose bits are set.
__device__ inline unsigned bits_of(const unsigned (&words)[4]) {
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        bits |= (words[i] & 0x7fffu ? 1u : 0u) << 2 * i | (words[i] & 0x7fff0000u ? 2u : 0u) << 2 * i;
    }
    return bits;
}
__device__ inline void mask(unsigned (&words)[4], unsigned bits) {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] &= (bits >> 2 * i & 1 ? 0xffffu : 0u) | (bits >> 2 * i & 2 ? 0xffff0000u : 0u);
}

// Adds up units of SOURCES parts, `apart` units apart, by threads of which SHARERS in a row share a unit: each has its own sum.
template <int SOURCES, int SHARERS, int EACH = SOURCES / SHARERS>
__device__ inline void add_own_parts(float (&sums)[8], const uint4* from, int apart, unsigned tag, int thread) {
    uint4 units[EACH];
#pragma unroll
    for (int i = 0; i < EACH; ++i) units[i] = make_uint4(tag ^ 1, 0, 0, 0);
    const uint4* const own = from + thread % SHARERS * EACH * apart;
    complete(units, tag, [&](int i) { return own + i * apart; });
#pragma unroll
    for (int i = 0; i < EACH; ++i) add(sums, units[i]);
}
template <int SOURCES, int SHARERS>
__device__ inline void add_parts(float (&sums)[8], const uint4* from, int apart, unsigned tag, int thread) {
    add_own_parts<SOURCES, SHARERS>(sums, from, apart, tag, thread);
#pragma unroll
    for (int lanes = 1; lanes < SHARERS; lanes *= 2) {
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[i] += __shfl_xor_sync(~0u, sums[i], lanes);
    }
}

// Word i of lane t of four lanes, LANES apart, becomes word t of lane i.
template <int LANES>
__device__ inline void swap_words(unsigned (&words)[4], int t) {
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (i & bit) continue;
            const unsigned lower = words[i], upper = words[i | bit];
            const unsigned other = __shfl_xor_sync(~0u, t & bit ? lower : upper, bit * LANES);
            words[i] = t & bit ? other : lower, words[i | bit] = t & bit ? upper : other;
        }
    }
}

// The rounds of one kind of sum; a slot and a tag for each.
struct Rounds {
    int number = 0;
    __device__ int slot() const { return number & 1; }
    __device__ unsigned tag() const { return (number / 2 & 1) ^ 1; }
};

// A sum of activations with thin or thick shares.
template <bool IS_THIN>
class Sum {
  public:
    static constexpr int SHARERS = IS_THIN ? THICK : THIN, GROUPS = IS_THIN ? THIN : THICK, ALL = units_of(IS_THIN);
    static constexpr int PANEL = TILE * CHUNKS;  // units
    __device__ static constexpr int adders() {
        int lanes = 1;
        while (2 * lanes <= SHARERS && 2 * lanes * OWN <= TAKERS) lanes *= 2;
        return lanes;
    }
    static constexpr int ADDERS = adders();  // threads of a unit
    static_assert(SHARERS % ADDERS == 0);

    __device__ Sum(const Own& own, uint4* mail, const Rounds& rounds)
        : rank(IS_THIN ? own.thick : own.thin), tag(rounds.tag()), thread(threadIdx.x) {
        opaque(thread);  // each sum derives its addresses anew: registers are few
        const int box = rounds.slot() * GROUPS + (IS_THIN ? own.thin : own.thick);
        parts = mail + parts_at(IS_THIN) + box * SHARERS * ALL;
        wholes = mail + wholes_at(IS_THIN) + box * ALL;
    }

    // By a team: its product's 64 outputs, the share's `panel`.
    __device__ void post_all(const float (&sums)[CHUNKS][4], int panel) const {
        const int first = (panel * GROUP_WARPS + thread / WARP % GROUP_WARPS) * CHUNKS / 2 * WARP + thread % WARP;
#pragma unroll
        for (int k = 0; k < CHUNKS / 2; ++k) {
            const int unit = first + k * WARP;
            if (ALL % PANEL == 0 || unit < ALL) post(parts + (unit / OWN * SHARERS + rank) * OWN + unit % OWN, part_of(sums[2 * k], sums[2 * k + 1], tag));
        }
    }

    // Adds up this block's units, and posts them: forward with bias and ReLU, whose mask it leaves for the way back. Activations
    // cannot tell then: others may have replaced them by their gradients.
    template <bool IS_FORWARD>
    __device__ void add_up(const float* bias, unsigned char* masks) const {
        if (threadIdx.x / WARP >= OWN * ADDERS / WARP || ALL < SHARERS * OWN && rank * OWN >= ALL) return;
        const int unit = thread / ADDERS, tile = unit / (CHUNKS / 2 * WARP), k = unit / WARP % (CHUNKS / 2);
        const int g = unit % WARP / 4, t = unit % 4;
        float sums[8] = {};
        add_parts<SHARERS, ADDERS>(sums, parts + rank * SHARERS * OWN + unit, OWN, tag, thread);
        if (IS_FORWARD) {
            const float upper = bias[tile * 16 + g], lower = bias[tile * 16 + 8 + g];
#pragma unroll
            for (int i = 0; i < 8; ++i) sums[i] = relu_of(sums[i] + (i / 2 % 2 == 0 ? upper : lower));
        }
        unsigned words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = cvt_bf16x2(sums[2 * i], sums[2 * i + 1]);
        swap_words<ADDERS>(words, t);
        const int row = tile * 16 + g + t % 2 * 8, chunk = 2 * k + t / 2, to = IS_FORWARD ? row : input_stored(row);
        unsigned char& own_mask = masks[to * CHUNKS + chunk];
        if (!IS_FORWARD) mask(words, own_mask);
        if (thread % ADDERS != 0) return;
        if (IS_FORWARD) own_mask = static_cast<unsigned char>(bits_of(words));
        const int place = rank * OWN_OUTPUTS + (IS_FORWARD ? stored_input(row) : to);
        post(wholes + unit_at(place, chunk) / 16, make_uint4(tagged(words[0], tag), words[1], words[2], words[3]));
    }

    // All units of the share, into activations.
    __device__ void receive(char* activations) const {
        constexpr int EACH = (ALL - 1) / TAKERS + 1, AT_ONCE = EACH % 8 == 0 ? 8 : EACH % 4 == 0 ? 4 : EACH % 2 == 0 ? 2 : 1;
        const auto is_there = [](int unit) { return ALL % TAKERS == 0 || unit < ALL; };
#pragma unroll
        for (int batch = 0; batch < EACH / AT_ONCE; ++batch) {
            const int first = thread + batch * AT_ONCE * TAKERS;
            uint4 units[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) units[i] = make_uint4(is_there(first + i * TAKERS) ? tag ^ 1 : tag, 0, 0, 0);
            complete(units, tag, [&](int i) { return wholes + first + i * TAKERS; });
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                if (is_there(first + i * TAKERS)) reinterpret_cast<uint4*>(activations)[first + i * TAKERS] = units[i];
            }
        }
    }

  private:
    const int rank;
    const unsigned tag;
    int thread;
    uint4 *parts, *wholes;
};

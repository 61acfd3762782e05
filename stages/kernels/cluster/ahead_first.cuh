#pragma once
#include "cluster/ahead.cuh"

// The first layer: four blocks of one cluster share the features of the units of one block of the head.

struct Place {
    int rank, share, unit_block;  // in the cluster; of the features; of the head

    __device__ Place()
        : rank(cluster_ctarank()), share(rank % SHARES),
          unit_block((clusterid_x() - 1) * (BLOCKS / SHARES) + rank / SHARES) {}
};

// A unit of products, for the mailbox.
__device__ inline uint4 tagged(const float (&sum)[4], unsigned tag) {
    return make_uint4(__float_as_uint(sum[0]) & ~1u | tag, __float_as_uint(sum[1]), __float_as_uint(sum[2]),
                      __float_as_uint(sum[3]));
}

// Adds up the four blocks' parts of a warp's products, of the tiles of units `group`, `group + GROUPS` and so on. A lane has
// two units of sixteen bytes a tile, sum(i, 0 to 3), and each block adds up one of four. While parts are on their way,
// meanwhile() is called.
template <class Sum, class Call>
__device__ void trade_products(const Epoch& epoch, const Place& place, int step, int pair, int group, Sum sum,
                               Call meanwhile) {
    constexpr int OWN = UNITS * TURNS / GROUPS;
    const unsigned tag = epoch.tag(step);
    const int first_owner = OWN == SHARES ? 0 : pair % 2 * OWN, i_own = place.share - first_owner;
    float own[4] = {};
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
        const float part[4] = {sum(i, 0), sum(i, 1), sum(i, 2), sum(i, 3)};
        const int after = (i_own - i + SHARES) % SHARES;  // how many shares after its owner's this one is
        if (after == 0) {
#pragma unroll
            for (int j = 0; j < 4; ++j) own[j] = part[j];
        } else {
            uint4* const to = epoch.parts_of(step, place.unit_block, pair, i / 2 * GROUPS + group, i % 2);
            post(to + (after - 1) * WARP, tagged(part, tag));
        }
    }
    meanwhile();
    if (i_own < 0 || i_own >= OWN) return;
    const int turn = i_own / 2 * GROUPS + group;
    uint4 others[SHARES - 1];
    receive(others, epoch.parts_of(step, place.unit_block, pair, turn, i_own % 2), WARP, tag);
#pragma unroll
    for (int k = 0; k < SHARES - 1; ++k) {
        own[0] += __uint_as_float(others[k].x), own[1] += __uint_as_float(others[k].y);
        own[2] += __uint_as_float(others[k].z), own[3] += __uint_as_float(others[k].w);
    }
    post(epoch.products_of(step, place.unit_block, pair, turn) + i_own % 2 * WARP, tagged(own, tag));
}

// What this lane has of doutputs, for all warps.
__device__ inline void put_unit(Matrices& matrices, uint4 unit) {
    const int lane = threadIdx.x % WARP;
    matrices.words[0][0][lane] = unit.x, matrices.words[0][1][lane] = unit.y;
    matrices.words[1][0][lane] = unit.z, matrices.words[1][1][lane] = unit.w;
}

// A part of this block's sums, from the block of the four with these features.
__device__ inline uint4* part_of(First& first, int stage, int share, int own) {
    return first.parts + ((stage * SHARES + share) * OWN_PAIRS + own) * UNITS * WARP;
}

// A warp that adds up the parts of a pair of images' products, and posts them to the head. Pair `share + 4 i` is this block's.
__device__ inline void add_products(First& first, const Epoch& epoch) {
    const int own = threadIdx.x / WARP - ADD_WARP, lane = threadIdx.x % WARP;
    const Place place;
    const int pair = place.share + SHARES * own;
    if (own >= OWN_PAIRS || pair >= PAIRS) return;
    for (int step = 0; step < epoch.steps; ++step) {
        const int stage = step % IMAGE_STAGES;
        mbarrier_wait_parity(first.parts_in[stage], step / IMAGE_STAGES % 2);
        uint4* const to = epoch.products_of(step, place.unit_block, pair);
#pragma unroll
        for (int n = 0; n < UNITS; ++n) {
            float sums[4] = {};
#pragma unroll
            for (int share = 0; share < SHARES; ++share) {
                const uint4 four = part_of(first, stage, share, own)[n * WARP + lane];
                sums[0] += __uint_as_float(four.x), sums[1] += __uint_as_float(four.y);
                sums[2] += __uint_as_float(four.z), sums[3] += __uint_as_float(four.w);
            }
            post(to + n * WARP, tagged(sums, epoch.tag(step)));
        }
    }
}

// One thread starts the copies of a step's images.
__device__ inline void fetch_images(First& first, const Epoch& epoch, const Place& place, int step) {
    constexpr int bytes = sizeof(first.images[0]), units = bytes / sizeof(uint4);
    if (threadIdx.x != (FIRST_WARPS - 1) * WARP || step >= epoch.steps) return;
    Barrier& arrived = first.images_in[step % IMAGE_STAGES];
    mbarrier_arrive_expect_tx(arrived, bytes);
    cp_async_bulk(first.images[step % IMAGE_STAGES], arrived, epoch.images + (step * SHARES + place.share) * units, bytes);
}

// A warp that keeps one or two tiles of the weights in registers, transposed, and multiplies a pair of images by all.
class FirstWarp {
  public:
    __device__ FirstWarp(First& first, const Epoch& epoch)
        : first(first), epoch(epoch), warp(threadIdx.x / WARP), lane(threadIdx.x % WARP),
          pair(ADDS ? warp : warp % MOST_IMAGE_WARPS), group(warp / MOST_IMAGE_WARPS % GROUPS),
          peer(peer_at(place.rank / SHARES * SHARES + warp % SHARES, &first)) {}

    __device__ void run() {
        copy([](float& own, float& stored) { own = stored; });
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) publish_weights(turn);
        for (int step = 0; step < IMAGE_STAGES - 1; ++step) fetch_images(first, epoch, place, step);
        for (int step = 0; step < epoch.steps + 2; ++step) {
            const int pairs = (PAIRS - place.share + SHARES - 1) / SHARES;  // whose products this block adds up
            if (ADDS && threadIdx.x == 0 && step < epoch.steps && pairs > 0) {
                mbarrier_arrive_expect_tx(first.parts_in[step % IMAGE_STAGES],
                                          pairs * SHARES * UNITS * WARP * static_cast<int>(sizeof(uint4)));
            }
            if (step > 1) update(step - 2);
            bar_sync(MEET, FIRST_WARPS * WARP);
            if (step > 0) fetch_images(first, epoch, place, step + 1);  // in place of those that have had their update
            if (step < epoch.steps && pair < PAIRS) multiply(step);
        }
        copy([](float& own, float& stored) { stored = own; });
    }

  private:
    static constexpr int OWN = (TILES + FIRST_WARPS - 1) / FIRST_WARPS;  // tiles of a warp: every FIRST_WARPS-th
    static constexpr int ROUNDS = TURNS / GROUPS, TILES_AT_ONCE = 2 / GROUPS;

    // weights -= rate * (doutputs^T x)(step), and their halves for all warps.
    __device__ void update(int step) {
        const int stage = step % IMAGE_STAGES;
        const uint4* const from = epoch.doutputs_of(step, place.unit_block, pair, group);
        const unsigned tag = epoch.tag(step);
        uint4 units[HALVES];
        if (pair < PAIRS) request(units, from, WARP, tag);
#pragma unroll
        for (int round = 0; round < ROUNDS; ++round) {
            if (round > 0) bar_sync(MEET, FIRST_WARPS * WARP);
            if (pair < PAIRS) {
                await(units, from + round * GROUPS * HALVES * WARP, WARP, tag);
#pragma unroll
                for (int h = 0; h < HALVES; ++h) put_unit(first.doutputs[group][h][pair], units[h]);
                if (round + 1 < ROUNDS) request(units, from + (round + 1) * GROUPS * HALVES * WARP, WARP, tag);
            }
            bar_sync(MEET, FIRST_WARPS * WARP);
#pragma unroll
            for (int begin = 0; begin < OWN; begin += TILES_AT_ONCE) update(stage, round, begin);
#pragma unroll
            for (int i = 0; i < GROUPS; ++i) publish_weights(round * GROUPS + i);
        }
    }

    // The same for a tile of units of each group.
    __device__ void update(int stage, int round, int begin) {
        float sums[GROUPS][TILES_AT_ONCE][2][HALVES][4] = {};
#pragma unroll
        for (int k = 0; k < PAIRS; ++k) {
            uint4 x[TILES_AT_ONCE];
#pragma unroll
            for (int i = 0; i < TILES_AT_ONCE; ++i) {
                if (has_tile(begin + i)) x[i] = ldmatrix<true>(first.images[stage][warp + (begin + i) * FIRST_WARPS][k] + lane);
            }
#pragma unroll
            for (int group = 0; group < GROUPS; ++group) {
#pragma unroll
                for (int h = 0; h < HALVES; ++h) {
                    const uint4 four = ldmatrix<true>(first.doutputs[group][h][k].words[0][0] + 4 * lane);
                    const unsigned left[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                    for (int i = 0; i < TILES_AT_ONCE; ++i) {
                        if (!has_tile(begin + i)) break;
                        mma_m16n8k16_f16(sums[group][i][0][h], left, x[i].x, x[i].z);
                        mma_m16n8k16_f16(sums[group][i][1][h], left, x[i].y, x[i].w);
                    }
                }
            }
        }
#pragma unroll
        for (int at = 0; at < GROUPS * TILES_AT_ONCE * 8; ++at) {
            const int group = at / 8 / TILES_AT_ONCE, i = at / 8 % TILES_AT_ONCE, n = at / 4 % 2, j = at % 4;
            if (begin + i >= OWN) break;
            const float(&halves)[HALVES][4] = sums[group][i][n];
            const float low = HALVES == 2 ? halves[HALVES - 1][j] * (1.0f / LOW) : 0.0f;
            weights[round * GROUPS + group][begin + i][n][j] -= epoch.rate * (halves[0][j] + low);
        }
    }

    __device__ bool has_tile(int i) const { return i < OWN && warp + i * FIRST_WARPS < TILES; }

    // As right factors, tile by tile.
    __device__ void publish_weights(int turn) {
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            if (!has_tile(i)) break;
            const float(&own)[2][4] = weights[turn][i];
            Halves two[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) two[j] = scaled_halves_of(own[j % 2][j / 2 * 2], own[j % 2][j / 2 * 2 + 1]);
            uint4(&factors)[HALVES][WARP] = first.weights[turn][warp + i * FIRST_WARPS];
            factors[0][lane] = make_uint4(two[0].high, two[1].high, two[2].high, two[3].high);
            if constexpr (HALVES == 2) factors[HALVES - 1][lane] = make_uint4(two[0].low, two[1].low, two[2].low, two[3].low);
        }
    }

    // This block's part of x(step) W for a pair of images and the group's units.
    __device__ void multiply(int step) {
        const int stage = step % IMAGE_STAGES;
        mbarrier_wait_parity(first.images_in[stage], step / IMAGE_STAGES % 2);
        float sums[ROUNDS][2][HALVES][4] = {};
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            const uint4 x = load_transposed(first.images[stage][tile][pair]);
            const unsigned left[4] = {x.x, x.z, x.y, x.w};
#pragma unroll
            for (int round = 0; round < ROUNDS; ++round) {
#pragma unroll
                for (int h = 0; h < HALVES; ++h) {
                    const uint4 right = first.weights[round * GROUPS + group][tile][h][lane];
                    mma_m16n8k16_f16(sums[round][0][h], left, right.x, right.y);
                    mma_m16n8k16_f16(sums[round][1][h], left, right.z, right.w);
                }
            }
        }
        const auto sum = [&](int i, int j) {
            const float(&halves)[HALVES][4] = sums[i / 2][i % 2];
            return HALVES == 2 ? halves[0][j] + halves[HALVES - 1][j] * (1.0f / LOW) : halves[0][j];
        };
        if constexpr (ADDS) {
#pragma unroll
            for (int n = 0; n < UNITS; ++n) {
                const float part[4] = {sum(n, 0), sum(n, 1), sum(n, 2), sum(n, 3)};
                send(peer, part_of(first, stage, place.share, pair / SHARES) + n * WARP + lane, first.parts_in[stage],
                     tagged(part, 0));
            }
        } else {
            trade_products(epoch, place, step, pair, group, sum, [] {});
        }
    }

    // Calls move(register, stored) for every weight of this warp. The feature after the last is the bias.
    template <class Move>
    __device__ void copy(Move move) {
#pragma unroll
        for (int i = 0; i < TURNS * OWN * 8; ++i) {
            const int turn = i / 8 / OWN, tile = warp + i / 8 % OWN * FIRST_WARPS;
            const int feature = (place.share * TILES + tile) * EDGE + i / 4 % 2 * HALF_EDGE + lane % 4 * 2 + i % 2;
            const int unit = (place.unit_block * TURNS + turn) * EDGE + lane / 4 + i / 2 % 2 * HALF_EDGE;
            if (tile >= TILES || unit >= epoch.units) continue;
            float& own = weights[turn][i / 8 % OWN][i / 4 % 2][i % 4];
            if (feature < epoch.inputs) move(own, epoch.weights[feature * epoch.units + unit]);
            if (feature == epoch.inputs) move(own, epoch.bias[unit]);
        }
    }

    First& first;
    const Epoch& epoch;
    const Place place;
    const int warp, lane;
    const int pair, group;  // of the images that this warp multiplies, and of the units
    const unsigned peer;  // that adds up this warp's products
    float weights[TURNS][OWN][2][4] = {};  // rows are units, columns features
};

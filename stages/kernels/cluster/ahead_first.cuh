#pragma once
#include "cluster/ahead.cuh"

// The first layer: four blocks of one cluster share the features of the sixteen units of one block of the head.

struct Place {
    int rank, share, unit_block;  // in the cluster; of the features; of the head

    __device__ Place()
        : rank(cluster_ctarank()), share(rank % SHARES),
          unit_block((clusterid_x() - 1) * (BLOCKS / SHARES) + rank / SHARES) {}
};

// One thread that starts the copies of images, each as soon as its stage is free.
__device__ inline void fetch_images(First& first, const Epoch& epoch) {
    constexpr int bytes = sizeof(first.images[0]), units = bytes / sizeof(uint4);
    const Place place;
    for (int step = 0; step < epoch.steps; ++step) {
        const int stage = step % IMAGE_STAGES;
        if (step >= IMAGE_STAGES) mbarrier_wait_parity(first.images_read[stage], (step / IMAGE_STAGES + 1) % 2);
        mbarrier_arrive_expect_tx(first.images_in[stage], bytes);
        cp_async_bulk(first.images[stage], first.images_in[stage], epoch.images + (step * SHARES + place.share) * units, bytes);
    }
}

// A warp that adds up the parts of products, a unit a lane, and posts them to the head. Pair `share + 4 i` is this block's.
__device__ inline void add_products(First& first, const Epoch& epoch) {
    const int at = threadIdx.x - ADD_WARP * WARP, own = at / (2 * WARP), half = at / WARP % 2, lane = at % WARP;
    const Place place;
    const int pair = place.share + SHARES * own;
    if (own >= OWN_PAIRS || pair >= PAIRS) return;
    for (int step = 0; step < epoch.steps; ++step) {
        const int stage = step % IMAGE_STAGES;
        mbarrier_wait_parity(first.parts_in[stage], step / IMAGE_STAGES % 2);
        float sums[4] = {};
#pragma unroll
        for (int share = 0; share < SHARES; ++share) {
            const auto& part = first.parts[stage][share][own];
#if FACTOR_HALVES == 2
            const uint4 four = part[half][lane];
            sums[0] += __uint_as_float(four.x), sums[1] += __uint_as_float(four.y);
            sums[2] += __uint_as_float(four.z), sums[3] += __uint_as_float(four.w);
#else
            const uint2 two = reinterpret_cast<const uint2*>(&part[0][lane])[half];
            const float2 low = cvt_f32_f16x2(two.x), high = cvt_f32_f16x2(two.y);
            sums[0] += low.x, sums[1] += low.y, sums[2] += high.x, sums[3] += high.y;
#endif
        }
        post(epoch.products_of(step, place.unit_block, pair) + half * WARP,
             make_uint4(__float_as_uint(sums[0]) & ~1u | epoch.tag(step), __float_as_uint(sums[1]), __float_as_uint(sums[2]),
                        __float_as_uint(sums[3])));
    }
}

// A warp that keeps one or two tiles of the weights in registers, transposed, and multiplies a pair of images by all.
class FirstWarp {
  public:
    __device__ FirstWarp(First& first, const Epoch& epoch)
        : first(first), epoch(epoch), warp(threadIdx.x / WARP), lane(threadIdx.x % WARP),
          peer(peer_at(place.rank / SHARES * SHARES + warp % SHARES, &first)) {}

    __device__ void run() {
        copy([](float& own, float& stored) { own = stored; });
        publish_weights();
        bar_sync(MEET, ADD_WARP * WARP);
        for (int step = 0; step < epoch.steps + 2; ++step) {
            const int pairs = (PAIRS - place.share + SHARES - 1) / SHARES;  // whose products this block adds up
            if (threadIdx.x == 0 && step < epoch.steps && pairs > 0) {
                mbarrier_arrive_expect_tx(first.parts_in[step % IMAGE_STAGES],
                                          pairs * SHARES * static_cast<int>(sizeof(first.parts[0][0][0])));
            }
            if (step >= 2) update(step - 2);
            if (step < epoch.steps && warp < PAIRS) multiply(step);
        }
        copy([](float& own, float& stored) { stored = own; });
    }

  private:
    static constexpr int OWN = (TILES + ADD_WARP - 1) / ADD_WARP;  // tiles of a warp: its own number, and eight on

    // weights -= rate * (doutputs^T x)(step), and their halves for all warps.
    __device__ void update(int step) {
        const int stage = step % IMAGE_STAGES;
        if (warp < PAIRS) {
            uint4 units[HALVES];
            receive(units, epoch.doutputs_of(step, place.unit_block, warp), WARP, epoch.tag(step));
#pragma unroll
            for (int h = 0; h < HALVES; ++h) {
                first.doutputs[h][warp].words[0][0][lane] = units[h].x, first.doutputs[h][warp].words[0][1][lane] = units[h].y;
                first.doutputs[h][warp].words[1][0][lane] = units[h].z, first.doutputs[h][warp].words[1][1][lane] = units[h].w;
            }
        }
        bar_sync(MEET, ADD_WARP * WARP);
        float sums[OWN][2][HALVES][4] = {};
#pragma unroll
        for (int pair = 0; pair < PAIRS; ++pair) {
            unsigned left[HALVES][4];
#pragma unroll
            for (int h = 0; h < HALVES; ++h) {
                const uint4 four = ldmatrix<true>(first.doutputs[h][pair].words[0][0] + 4 * lane);
                left[h][0] = four.x, left[h][1] = four.y, left[h][2] = four.z, left[h][3] = four.w;
            }
#pragma unroll
            for (int i = 0; i < OWN; ++i) {
                if (warp + i * ADD_WARP >= TILES) break;
                const uint4 x = ldmatrix<true>(first.images[stage][warp + i * ADD_WARP][pair] + lane);
#pragma unroll
                for (int h = 0; h < HALVES; ++h) {
                    mma_m16n8k16_f16(sums[i][0][h], left[h], x.x, x.z);
                    mma_m16n8k16_f16(sums[i][1][h], left[h], x.y, x.w);
                }
            }
        }
        arrive_as_warp(first.images_read[stage]);
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
#pragma unroll
            for (int n = 0; n < 2; ++n) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const float low = HALVES == 2 ? sums[i][n][HALVES - 1][j] * (1.0f / LOW) : 0.0f;
                    weights[i][n][j] -= epoch.rate * (sums[i][n][0][j] + low);
                }
            }
        }
        publish_weights();
        bar_sync(MEET, ADD_WARP * WARP);
    }

    // As right factors, tile by tile.
    __device__ void publish_weights() {
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            if (warp + i * ADD_WARP >= TILES) break;
            const float(&own)[2][4] = weights[i];
            Halves two[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) two[j] = scaled_halves_of(own[j % 2][j / 2 * 2], own[j % 2][j / 2 * 2 + 1]);
            uint4(&factors)[HALVES][WARP] = first.weights[warp + i * ADD_WARP];
            factors[0][lane] = make_uint4(two[0].high, two[1].high, two[2].high, two[3].high);
            if constexpr (HALVES == 2) factors[HALVES - 1][lane] = make_uint4(two[0].low, two[1].low, two[2].low, two[3].low);
        }
    }

    // This block's part of x(step) W for a pair of images, to the block of the four that adds it up.
    __device__ void multiply(int step) {
        const int stage = step % IMAGE_STAGES;
        float sums[2][HALVES][4] = {};
        mbarrier_wait_parity(first.images_in[stage], step / IMAGE_STAGES % 2);
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            const uint4 x = load_transposed(first.images[stage][tile][warp]);
            const unsigned left[4] = {x.x, x.z, x.y, x.w};
#pragma unroll
            for (int h = 0; h < HALVES; ++h) {
                const uint4 right = first.weights[tile][h][lane];
                mma_m16n8k16_f16(sums[0][h], left, right.x, right.y);
                mma_m16n8k16_f16(sums[1][h], left, right.z, right.w);
            }
        }
        auto& part = first.parts[stage][place.share][warp / SHARES];
#if FACTOR_HALVES == 2
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            unsigned bits[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) bits[j] = __float_as_uint(sums[n][0][j] + sums[n][1][j] * (1.0f / LOW));
            send(peer, &part[n][lane], first.parts_in[stage], make_uint4(bits[0], bits[1], bits[2], bits[3]));
        }
#else
        const auto two = [&](int n, int row) { return cvt_f16x2(sums[n][0][2 * row], sums[n][0][2 * row + 1]); };
        send(peer, &part[0][lane], first.parts_in[stage], make_uint4(two(0, 0), two(0, 1), two(1, 0), two(1, 1)));
#endif
    }

    // Calls move(register, stored) for every weight of this warp. The feature after the last is the bias.
    template <class Move>
    __device__ void copy(Move move) {
#pragma unroll
        for (int i = 0; i < OWN * 8; ++i) {
            const int tile = warp + i / 8 * ADD_WARP;
            const int feature = (place.share * TILES + tile) * EDGE + i / 4 % 2 * HALF_EDGE + lane % 4 * 2 + i % 2;
            const int unit = place.unit_block * EDGE + lane / 4 + i / 2 % 2 * HALF_EDGE;
            if (tile >= TILES || unit >= epoch.units) continue;
            float& own = weights[i / 8][i / 4 % 2][i % 4];
            if (feature < epoch.inputs) move(own, epoch.weights[feature * epoch.units + unit]);
            if (feature == epoch.inputs) move(own, epoch.bias[unit]);
        }
    }

    First& first;
    const Epoch& epoch;
    const Place place;
    const int warp, lane;
    const unsigned peer;  // that adds up this warp's products
    float weights[OWN][2][4] = {};  // rows are units, columns features
};

#pragma once
#include "cluster/ahead_first.cuh"

// A warp of the first layer, in a warpgroup. In the update it has a tile of units, and eight features of each of seven tiles.
// Two warpgroups have the middle tile of features, and update it alike. Forward, it has a pair of images and two tiles of
// units.
class FirstWarpgroup {
  public:
    __device__ FirstWarpgroup(First& first, const Epoch& epoch)
        : first(first), epoch(epoch), warp(threadIdx.x / WARP), lane(threadIdx.x % WARP) {}

    __device__ void run() {
        copy([](float& own, float& stored) { own = stored; });
        publish_weights();
        for (int step = 0; step < IMAGE_STAGES - 1; ++step) fetch_images(first, epoch, place, step);
        for (int step = 0; step < epoch.steps + 2; ++step) {
            if (step > 1) update(step - 2);
            bar_sync(MEET, FIRST_WARPS * WARP);
            if (step > 0) fetch_images(first, epoch, place, step + 1);  // in place of those that have had their update
            if (step < epoch.steps) multiply(step);
            else if (step == epoch.steps) request_doutputs(step - 1);
        }
        copy([](float& own, float& stored) { stored = own; });
    }

  private:
    static constexpr int OWN = 7, MATRIX = 128;            // tiles of features; bytes of eight by eight
    static constexpr int ROUNDS = HALVES;                  // of an update, for there is room for 32 units of doutputs
    static constexpr int NEXT_TILE = PAIRS * 4 * MATRIX;   // in images; a pair of images is 4 matrices
    static constexpr int FACTORS = HALVES * 4;             // matrices of weights: eight features by a group's units
    static constexpr int DOUTPUTS = 2 * TURNS;             // matrices of doutputs: eight images by all units

    // Units 2 w and 2 w + 1 of the round's 32 are what warp w hands to all.
    __device__ const uint4* doutputs_of(int step, int round) const {
        return epoch.doutputs_of(step, place.unit_block, 0) + (round * 32 + 2 * warp) * WARP;
    }
    __device__ void request_doutputs(int step) {
        if (step >= 0) request(early, doutputs_of(step, 0), WARP, epoch.tag(step));
    }

    // weights -= rate * (doutputs^T x)(step), and their halves for all warps.
    __device__ void update(int step) {
        float sums[HALVES][OWN][4] = {};
        unsigned* const words = &first.doutputs[0][0][0].words[0][0][0];
        const auto images = wgmma_descriptor(first.images[step % IMAGE_STAGES][tile_of(0)][0] + lower() * HALF_EDGE, 2 * MATRIX,
                                             NEXT_TILE);
        const auto doutputs = wgmma_descriptor(words, DOUTPUTS * MATRIX, MATRIX);
#pragma unroll
        for (int round = 0; round < ROUNDS; ++round) {
            if (round > 0) bar_sync(MEET, FIRST_WARPS * WARP);
            await(early, doutputs_of(step, round), WARP, epoch.tag(step));
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int unit = 2 * warp + i, h = unit % HALVES, turn = unit / HALVES % TURNS, k = unit / HALVES / TURNS;
                unsigned* const to = words + ((k * HALVES + h) * 2 * DOUTPUTS + 2 * turn) * WARP + lane;
                to[0] = early[i].x, to[WARP] = early[i].y;
                to[DOUTPUTS * WARP] = early[i].z, to[(DOUTPUTS + 1) * WARP] = early[i].w;
            }
            fence_proxy_async();
            if (round + 1 < ROUNDS) request(early, doutputs_of(step, round + 1), WARP, epoch.tag(step));
            bar_sync(MEET, FIRST_WARPS * WARP);
#pragma unroll
            for (int h = 0; h < HALVES; ++h) keep_in_place(sums[h]);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < PAIRS / ROUNDS; ++k) {
#pragma unroll
                for (int h = 0; h < HALVES; ++h) {
                    wgmma_mma_async(sums[h], moved(doutputs, (k * HALVES + h) * 2 * DOUTPUTS * MATRIX),
                                    moved(images, (round * (PAIRS / ROUNDS) + k) * 4 * MATRIX));
                }
            }
            wgmma_commit_group();
            wgmma_wait_group<0>();
#pragma unroll
            for (int h = 0; h < HALVES; ++h) keep_in_place(sums[h]);
        }
#pragma unroll
        for (int i = 0; i < OWN * 4; ++i) {
            const float low = HALVES == 2 ? sums[HALVES - 1][i / 4][i % 4] * (1.0f / LOW) : 0.0f;
            weights[i / 4][i % 4] -= epoch.rate * (sums[0][i / 4][i % 4] + low);
        }
        publish_weights();
    }

    // As right factors: by group, eight features, half, and eight units; a matrix's rows are units.
    __device__ void publish_weights() {
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            const int chunk = tile_of(i) * 2 + lower(), first_unit = turn() / GROUPS * 2;
            unsigned* const to = factors_of(turn() % GROUPS) + (chunk * FACTORS + first_unit) * WARP + lane;
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                const Halves two = scaled_halves_of(weights[i][2 * n], weights[i][2 * n + 1]);
                to[n * WARP] = two.high;
                if constexpr (HALVES == 2) to[(4 + n) * WARP] = two.low;
            }
        }
        fence_proxy_async();
    }

    // This block's part of x(step) W.
    __device__ void multiply(int step) {
        const int stage = step % IMAGE_STAGES, pair = warp % PAIRS, group = warp / PAIRS;
        mbarrier_wait_parity(first.images_in[stage], step / IMAGE_STAGES % 2);
        float sums[FACTORS][4] = {};
        const auto images = wgmma_descriptor(first.images[stage][0][pair / 4 * 4], MATRIX, 2 * MATRIX);
        const auto right = wgmma_descriptor(factors_of(group), FACTORS * MATRIX, MATRIX);
        keep_in_place(sums);
        wgmma_fence();
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            wgmma_mma_async(sums, moved(images, tile * NEXT_TILE), moved(right, tile * 2 * FACTORS * MATRIX));
        }
        wgmma_commit_group();
        wgmma_wait_group<0>();
        keep_in_place(sums);
        trade_products(
            epoch, place, step, pair, group,
            [&](int i, int j) { return HALVES == 2 ? sums[i][j] + sums[FACTORS - 4 + i][j] * (1.0f / LOW) : sums[i][j]; },
            [&] { request_doutputs(step - 1); });
    }

    // Calls move(register, stored) for every weight of this warp. The feature after the last is the bias.
    template <class Move>
    __device__ void copy(Move move) {
#pragma unroll
        for (int i = 0; i < OWN * 4; ++i) {
            const int feature = (place.share * TILES + tile_of(i / 4)) * EDGE + lower() * HALF_EDGE + lane % 4 * 2 + i % 2;
            const int unit = (place.unit_block * TURNS + turn()) * EDGE + lane / 4 + i / 2 % 2 * HALF_EDGE;
            if (unit >= epoch.units) continue;
            if (feature < epoch.inputs) move(weights[i / 4][i % 4], epoch.weights[feature * epoch.units + unit]);
            if (feature == epoch.inputs) move(weights[i / 4][i % 4], epoch.bias[unit]);
        }
    }

    __device__ int turn() const { return warp % 4; }
    __device__ int lower() const { return warp / 4 % 2; }  // whether its features are the lower eight of tiles
    __device__ int tile_of(int i) const { return warp / 8 * (TILES - OWN) + i; }
    __device__ unsigned* factors_of(int group) const {
        return reinterpret_cast<unsigned*>(first.weights) + group * TILES * 2 * FACTORS * WARP;
    }

    First& first;
    const Epoch& epoch;
    const Place place;
    const int warp, lane;
    uint4 early[2];
    float weights[OWN][4] = {};  // rows are units, columns features
};

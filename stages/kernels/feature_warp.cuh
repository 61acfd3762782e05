#pragma once
#include "epoch.cuh"

// The warps that keep the weights: from dlogits to new weights, and from those to partial logits two batches on.
class FeatureWarp {
  public:
    __device__ FeatureWarp(Shared& shared, const Epoch& epoch, Classes classes)
        : shared(shared), epoch(epoch), classes(classes), rank(rank_in_cluster()), warp(threadIdx.x / WARP),
          lane(threadIdx.x % WARP), tile(rank + BLOCKS * warp), tiles((epoch.tiles - rank + BLOCKS - 1) / BLOCKS) {}

    __device__ void run() {
        const float rate = epoch.learning_rate / (EDGE * epoch.pairs) / DLOGIT_SCALE;
        copy_weights([](float& weight, float& stored) { weight = stored; });
        publish_weights(1);
        load_images(0);
        forward(0, 1);
        load_images(1);
        if (epoch.steps > 1) forward(1, 1);
        load_images(2);
        load_features(0);
        for (int step = 0; step < epoch.steps; ++step) {
            const int parity = step % 2;
            wait_for(shared.dlogits_are_in[parity], step / 2 % 2);
            if (threadIdx.x == 0) expect_bytes(shared.dlogits_are_in[parity], 2 * epoch.pairs * classes.bytes());
            backward(parity, rate);
            load_features(step + 1);
            if (step + 2 < epoch.steps) {
                publish_weights(parity);
                forward(step + 2, parity);
                load_images(step + 3);
            }
        }
        copy_weights([](float& weight, float& stored) { stored = weight; });
    }

  private:
    // weights -= rate * dlogits^T x, for the features of this warp.
    __device__ void backward(int parity, float rate) {
        float sums[2][2][4] = {};  // by half of the features, and half of dlogits
#pragma unroll
        for (int pair = 0; pair < MOST_PAIRS; ++pair) {
            if (pair >= epoch.pairs) break;
            unsigned high[4], low[4];
            classes.load(&shared.dlogits[parity][2 * pair], high, low);
            const uint4 x = features[pair];
            multiply_add(sums[0][0], high, x.x, x.z);
            multiply_add(sums[1][0], high, x.y, x.w);
            multiply_add(sums[0][1], low, x.x, x.z);
            multiply_add(sums[1][1], low, x.y, x.w);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int i = 0; i < 4; ++i) weights[half][i] -= rate * (sums[half][0][i] + sums[half][1][i]);
        }
    }

    // Partial logits of a batch, each tile of eight images to the block that owns it.
    __device__ void forward(int step, int parity) {
        float sums[PAIRS_A_WARP][2][2][4] = {};  // by pair, half of the images, and half of the weights
#pragma unroll
        for (int i = 0; i < FEATURE_WARPS; ++i) {
            if (i >= tiles) break;
            unsigned high[4], low[4];
            classes.load(&shared.weights[parity][2 * i], high, low);
#pragma unroll
            for (int slot = 0; slot < PAIRS_A_WARP; ++slot) {
                const uint4 x = images[slot][i];
                multiply_add(sums[slot][0][0], high, x.x, x.z);
                multiply_add(sums[slot][1][0], high, x.y, x.w);
                multiply_add(sums[slot][0][1], low, x.x, x.z);
                multiply_add(sums[slot][1][1], low, x.y, x.w);
            }
        }
#pragma unroll
        for (int slot = 0; slot < PAIRS_A_WARP; ++slot) {
            const int pair = pair_of(slot);
            if (pair >= epoch.pairs) continue;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                unsigned logits[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    logits[i] = __float_as_uint(sums[slot][half][0][i] + sums[slot][half][1][i]);
                }
                const Mailbox box = mailbox_in(2 * pair + half, shared.partial_logits[step % 2][rank],
                                               shared.logits_are_in[step % 2]);
                classes.send_to(box, make_uint2(logits[0], logits[1]), make_uint2(logits[2], logits[3]));
            }
        }
    }

    // The pairs of tiles that this warp multiplies; another order in each block, lest all send to the same one at once.
    __device__ int pair_of(int slot) const { return (PAIRS_A_WARP * warp + slot + rank) % MOST_PAIRS; }

    // All feature warps' weights in halves, for all of them.
    __device__ void publish_weights(int parity) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float(&w)[4] = weights[half];
            Columns& columns = shared.weights[parity][2 * warp + half];
            const Halves upper = halves_of(WEIGHT_SCALE * w[0], WEIGHT_SCALE * w[1]);
            const Halves lower = halves_of(WEIGHT_SCALE * w[2], WEIGHT_SCALE * w[3]);
            columns.upper[lane] = make_uint2(upper.high, upper.low);
            if (classes.has_lower) columns.lower[lane] = make_uint2(lower.high, lower.low);
        }
        wait_for_warps(FEATURE_WARPS_MEET, FEATURE_WARPS * WARP);
    }

    __device__ void load_images(int step) {
        if (step >= epoch.steps) return;
#pragma unroll
        for (int slot = 0; slot < PAIRS_A_WARP; ++slot) {
            const int pair = pair_of(slot);
            if (pair >= epoch.pairs) continue;
            const uint4* from = epoch.images + ((step * epoch.pairs + pair) * epoch.tiles + rank) * WARP + lane;
#pragma unroll
            for (int i = 0; i < FEATURE_WARPS; ++i) {
                if (i >= tiles) break;
                images[slot][i] = load_early(from + i * BLOCKS * WARP);
                if (lane % 8 == 0 && step + PREFETCH < epoch.steps) {
                    prefetch_line(from + (PREFETCH * epoch.pairs * epoch.tiles + i * BLOCKS) * WARP);
                }
            }
        }
    }

    __device__ void load_features(int step) {
        if (step >= epoch.steps || tile >= epoch.tiles) return;
        const uint4* from = epoch.features + (step * epoch.tiles + tile) * epoch.pairs * WARP + lane;
#pragma unroll
        for (int pair = 0; pair < MOST_PAIRS; ++pair) {
            if (pair >= epoch.pairs) break;
            features[pair] = load_early(from + pair * WARP);
            if (lane % 8 == 0 && step + PREFETCH < epoch.steps) {
                prefetch_line(from + (PREFETCH * epoch.tiles * epoch.pairs + pair) * WARP);
            }
        }
    }

    // Applies copy(register, stored) to every weight and bias of this warp's features.
    template <class Copy>
    __device__ void copy_weights(Copy copy) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int feature = EDGE * tile + i / 4 * TILE + lane % 4 * 2 + i % 2;
            const int row = lane / 4 + (i / 2 % 2) * TILE;
            if (row >= classes.count) continue;
            if (feature < epoch.inputs) copy(weights[i / 4][i % 4], epoch.weight[feature * classes.count + row]);
            if (feature == epoch.inputs) copy(weights[i / 4][i % 4], epoch.bias[row]);
        }
    }

    Shared& shared;
    const Epoch& epoch;
    const Classes classes;
    const int rank, warp, lane;
    const int tile;   // of features, this warp's own
    const int tiles;  // of this block
    float weights[2][4] = {};  // transposed: rows are classes, columns features
    uint4 images[PAIRS_A_WARP][FEATURE_WARPS] = {};
    uint4 features[MOST_PAIRS] = {};
};

#pragma once
#include "cluster/epoch.cuh"

// A warp that keeps one tile of the weights in registers: it updates them from dlogits, and publishes them for the forward
// warps.
class BackwardWarp {
  public:
    __device__ BackwardWarp(Shared& shared, const EpochArguments& epoch, Classes classes)
        : shared(shared), epoch(epoch), classes(classes), warp(threadIdx.x / WARP), lane(threadIdx.x % WARP),
          tile(epoch.first_tile(cluster_ctarank()) + warp),
          has_tile(tile < epoch.first_tile(cluster_ctarank() + 1)) {}

    __device__ void run() {
        const float rate = epoch.rate();
        copy_weights([](float& weight, float& stored) { weight = stored; });
        for (int step = 0; step < min(epoch.steps, 2); ++step) publish_weights(step);
        for (int step = 0; step < epoch.steps; ++step) {
            const int parity = step % 2;
            shared.wait_for_batch(step);
            mbarrier_wait_parity(shared.dlogits_are_in[parity], step / 2 % 2);
            if (threadIdx.x == 0) mbarrier_arrive_expect_tx(shared.dlogits_are_in[parity], 2 * epoch.pairs * classes.bytes());
            if (has_tile) backward(parity, rate, shared.batches[step % STAGES].images + warp * epoch.pairs * WARP);
            if (step + 2 < epoch.steps) {
                // The forward warps have read them, or dlogits could not be here; but racecheck cannot follow that through
                // other blocks.
                bar_sync(WEIGHTS_ARE_READ + parity, (BACKWARD_WARPS + FORWARD_WARPS) * WARP);
                publish_weights(parity);
            }
            shared.leave_batch(step);
        }
        copy_weights([](float& weight, float& stored) { stored = weight; });
    }

  private:
    static constexpr int CHAINS = 2;  // independent sums, so that a product need not wait for the one before

    // weights -= rate * dlogits^T x, for this warp's features. Pairs beyond the batch have dlogits of zero.
    __device__ void backward(int parity, float rate, const uint4* images) {
        float sums[2][2][CHAINS][4] = {};  // by half of the features, and half of the classes
#pragma unroll
        for (int pair = 0; pair < MOST_PAIRS; ++pair) {
            unsigned upper[4], lower[4];
            classes.load(&shared.dlogits[parity][2 * pair], upper, lower);
            const uint4 x = load_factors(images + pair * WARP);
            mma_m16n8k16_f16(sums[0][0][pair % CHAINS], upper, x.x, x.y);
            mma_m16n8k16_f16(sums[1][0][pair % CHAINS], upper, x.z, x.w);
            mma_m16n8k16_f16(sums[0][1][pair % CHAINS], lower, x.x, x.y);
            mma_m16n8k16_f16(sums[1][1][pair % CHAINS], lower, x.z, x.w);
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const float(&chains)[CHAINS][4] = sums[i / 4][i / 2 % 2];
            float sum = 0.0f;
#pragma unroll
            for (int chain = 0; chain < CHAINS; ++chain) sum += chains[chain][i % 2] + chains[chain][i % 2 + 2];
            weights[i / 4][i % 4] -= rate * sum;
        }
    }

    // Writes this warp's weights, in halves, for the forward warps of this block.
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
        bar_arrive(WEIGHTS_ARE_IN + parity, (BACKWARD_WARPS + FORWARD_WARPS) * WARP);
    }

    // Calls copy(register, stored) for every weight and bias of this warp's features.
    template <class Copy>
    __device__ void copy_weights(Copy copy) {
        if (!has_tile) return;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int feature = EDGE * tile + i / 4 * HALF_EDGE + lane % 4 * 2 + i % 2;
            const int row = lane / 4 + (i / 2 % 2) * HALF_EDGE;
            if (row >= classes.count) continue;
            if (feature < epoch.inputs) copy(weights[i / 4][i % 4], epoch.weight[feature * classes.count + row]);
            if (feature == epoch.inputs) copy(weights[i / 4][i % 4], epoch.bias[row]);
        }
    }

    Shared& shared;
    const EpochArguments& epoch;
    const Classes classes;
    const int warp, lane;
    const int tile;  // this warp's features
    const bool has_tile;
    float weights[2][4] = {};  // transposed: rows are classes, columns features
};

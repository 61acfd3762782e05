#pragma once
#include "cluster/epoch.cuh"

// A warp that multiplies one pair of images, sixteen, by the block's weights of the step before.
class ForwardWarp {
  public:
    // The warps take pairs in another order in each block, so that not all send to one block at once.
    __device__ ForwardWarp(Shared& shared, const EpochArguments& epoch, Classes classes)
        : shared(shared), epoch(epoch), classes(classes), rank(cluster_ctarank()), lane(threadIdx.x % WARP),
          pair((threadIdx.x / WARP + rank) % MOST_PAIRS),
          to_owners{distance_to(2 * pair, &shared), distance_to(2 * pair + 1, &shared)} {}

    __device__ void run() {
        for (int step = 0; step < epoch.steps; ++step) {
            const int parity = step % 2;
            shared.wait_for_batch(step);
            bar_sync(WEIGHTS_ARE_IN + parity, (BACKWARD_WARPS + FORWARD_WARPS) * WARP);
            if (pair < epoch.pairs) forward(parity, shared.batches[step % STAGES].images + pair * WARP);
            if (step + 2 < epoch.steps) bar_arrive(WEIGHTS_ARE_READ + parity, (BACKWARD_WARPS + FORWARD_WARPS) * WARP);
            shared.leave_batch(step);
        }
    }

  private:
    // Sends the partial logits of each eight images to their owner. Tiles beyond the block's own have weights of zero.
    __device__ void forward(int parity, const uint4* images) {
        float sums[2][2][4] = {};  // by half of the images, and half of the classes
#pragma unroll
        for (int i = 0; i < MOST_TILES; ++i) {
            unsigned upper[4], lower[4];
            classes.load(&shared.weights[parity][2 * i], upper, lower);
            const uint4 x = load_transposed(images + i * epoch.pairs * WARP);
            mma_m16n8k16_f16(sums[0][0], upper, x.x, x.y);
            mma_m16n8k16_f16(sums[1][0], upper, x.z, x.w);
            mma_m16n8k16_f16(sums[0][1], lower, x.x, x.y);
            mma_m16n8k16_f16(sums[1][1], lower, x.z, x.w);
        }
        const auto remote_buffer = [&](int half) {
            return remote_buffer_at(to_owners[half], shared.partial_logits[parity][rank], shared.logits_are_in[parity]);
        };
        const auto logits = [&](int half, int classes) {
            const float(&sum)[4] = sums[half][classes];
            return make_uint2(__float_as_uint(sum[0] + sum[2]), __float_as_uint(sum[1] + sum[3]));
        };
        classes.send_to<2>({remote_buffer(0), remote_buffer(1)}, {logits(0, 0), logits(1, 0)}, {logits(0, 1), logits(1, 1)});
    }

    Shared& shared;
    const EpochArguments& epoch;
    const Classes classes;
    const int rank, lane;
    const int pair;               // of images, this warp's own
    const unsigned to_owners[2];  // of its two groups of eight images
};

#pragma once
#include "cluster/image_softmax.cuh"

// A warp that adds up the loss and the number right of the block's images beside the head warps. It meets them where they
// exchange their shares of the logits, and takes the softmax by itself. A step's shares stay until that meeting in the next
// step, so the head warps wait for this warp only if it takes longer than a step.
class TotalsWarp {
  public:
    __device__ TotalsWarp(Shared& shared, const EpochArguments& epoch, Classes classes)
        : shared(shared), epoch(epoch), classes(classes), rank(cluster_ctarank()), lane(threadIdx.x % WARP) {}

    __device__ void run() {
        if (!epoch.has_head(rank)) return;
        for (int step = 0; step < epoch.steps; ++step) {
            shared.wait_for_batch(step);
            barrier_sync(HEAD_WARPS_MEET, (HEAD_WARPS + 1) * WARP);
            const ImageSoftmax softmax(shared.sums[step % 2], classes);
            const Batch& batch = shared.batches[step % STAGES];
#pragma unroll
            for (int i = 0; i < 2; ++i) add(softmax, i, batch.labels[lane % 4 * 2 + i]);
            shared.leave_batch(step);
        }
        send_to_first_block();
    }

  private:
    // Adds one of this lane's two images. It is right if the first of its largest logits is its label's.
    __device__ void add(const ImageSoftmax& softmax, int image, int label) {
        const float upper = softmax.logits[image], lower = softmax.logits[image + 2], largest = softmax.largest[image];
        const unsigned this_image = 0x11111111u << lane % 4;
        const unsigned in_upper = __ballot_sync(~0u, upper == largest) & this_image;
        const unsigned in_lower = __ballot_sync(~0u, lower == largest) & this_image;
        const int best = in_upper != 0 ? (__ffs(in_upper) - 1) / 4 : HALF_EDGE + (__ffs(in_lower) - 1) / 4;
        if (lane / 4 == label) loss += largest - upper;
        if (lane / 4 + HALF_EDGE == label) loss += largest - lower;
        if (lane < 4 && (!IS_PADDED || label >= 0)) {
            loss += logf(softmax.sum[image]);
            correct += best == label;
        }
    }

    __device__ void send_to_first_block() {
        for (int lanes = WARP / 2; lanes > 0; lanes /= 2) {
            loss += __shfl_xor_sync(~0u, loss, lanes);
            correct += __shfl_xor_sync(~0u, correct, lanes);
        }
        if (lane == 0) {
            st_shared_cluster(mapa(shared_address(&shared.losses[rank]), 0), loss);
            st_shared_cluster(mapa(shared_address(&shared.corrects[rank]), 0), correct);
        }
    }

    Shared& shared;
    const EpochArguments& epoch;
    const Classes classes;
    const int rank, lane;
    double loss = 0.0, correct = 0.0;
};

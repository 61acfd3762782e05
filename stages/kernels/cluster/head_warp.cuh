#pragma once
#include "cluster/image_softmax.cuh"

// A warp that turns the logits of the block's images into dlogits. The head warps share out the sums, meet once, and all
// take the same softmax; each then sends dlogits to its share of the blocks without another wait.
class HeadWarp {
  public:
    __device__ HeadWarp(Shared& shared, const EpochArguments& epoch, Classes classes)
        : shared(shared), epoch(epoch), classes(classes), rank(cluster_ctarank()),
          warp(threadIdx.x / WARP - BACKWARD_WARPS - FORWARD_WARPS), lane(threadIdx.x % WARP) {
        for (int i = 0; i < SHARE; ++i) to_blocks[i] = distance_to(SHARE * warp + (i + rank) % SHARE, &shared);
    }

    // Compiled for both cases: without totals, no instruction is spent on them.
    template <bool WITH_TOTALS>
    __device__ void run() {
        if (!epoch.has_head(rank)) return;
        const float rate = epoch.rate();
        for (int step = 0; step < epoch.steps; ++step) {
            const int parity = step % 2;
            shared.wait_for_batch(step);
            mbarrier_wait_parity(shared.logits_are_in[parity], step / 2 % 2);
            if (warp == 0 && lane == 0) {
                mbarrier_arrive_expect_tx(shared.logits_are_in[parity], BLOCKS * classes.bytes());
            }
            float logits[4];
            add_partial_logits(parity, logits);
            const Batch& batch = shared.batches[step % STAGES];
            if (step > 0) subtract_last_update(step - 1, rate, batch.grams, logits);
            shared.sums[parity][warp][lane] = make_float4(logits[0], logits[1], logits[2], logits[3]);
            // After this barrier all have read the partial logits, the grams, and the sums of the step before.
            if (WITH_TOTALS) barrier_sync(HEAD_WARPS_MEET, (HEAD_WARPS + 1) * WARP);
            else bar_sync(HEAD_WARPS_MEET, HEAD_WARPS * WARP);
            const ImageSoftmax softmax(shared.sums[parity], classes);
            const int labels[2] = {batch.labels[lane % 4 * 2], batch.labels[lane % 4 * 2 + 1]};
            float dlogits[4];
            dlogits_of(softmax, labels, dlogits);
            send_dlogits(parity, dlogits);
            shared.leave_batch(step);
        }
    }

  private:
    static constexpr int PAIRS_A_WARP = MOST_PAIRS / HEAD_WARPS;
    static constexpr int SHARE = BLOCKS / HEAD_WARPS;  // blocks that each warp sends to

    // Adds up the parts from this warp's share of the blocks.
    __device__ void add_partial_logits(int parity, float (&logits)[4]) {
        float2 upper = {}, lower = {};
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            const Columns& part = shared.partial_logits[parity][SHARE * warp + i];
            upper.x += __uint_as_float(part.upper[lane].x);
            upper.y += __uint_as_float(part.upper[lane].y);
            if (classes.has_lower) {
                lower.x += __uint_as_float(part.lower[lane].x);
                lower.y += __uint_as_float(part.lower[lane].y);
            }
        }
        logits[0] = upper.x / WEIGHT_SCALE, logits[1] = upper.y / WEIGHT_SCALE;
        logits[2] = lower.x / WEIGHT_SCALE, logits[3] = lower.y / WEIGHT_SCALE;
    }

    // Subtracts what that step's update changes in the logits, which the partial logits lack; this warp's share of the images.
    __device__ void subtract_last_update(int step, float rate, const uint4* grams, float (&logits)[4]) {
        float sums[2][2][4] = {};  // by half of the classes, and by half of the gram
        mbarrier_wait_parity(shared.dlogits_are_in[step % 2], step / 2 % 2);
#pragma unroll
        for (int i = 0; i < PAIRS_A_WARP; ++i) {
            const int pair = PAIRS_A_WARP * warp + i;
            unsigned upper[4], lower[4];
            classes.load(&shared.dlogits[step % 2][2 * pair], upper, lower);
            const uint4 gram = grams[pair * WARP + lane];
            mma_m16n8k16_f16(sums[0][0], upper, gram.x, gram.y);
            mma_m16n8k16_f16(sums[0][1], upper, gram.z, gram.w);
            mma_m16n8k16_f16(sums[1][0], lower, gram.x, gram.y);
            mma_m16n8k16_f16(sums[1][1], lower, gram.z, gram.w);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float(&high)[4] = sums[i / 2][0], (&low)[4] = sums[i / 2][1];
            logits[i] -= rate * ((high[i % 2] + high[i % 2 + 2]) + (low[i % 2] + low[i % 2 + 2]));
        }
    }

    // DLOGIT_SCALE * (probs - onehot).
    __device__ void dlogits_of(const ImageSoftmax& softmax, const int (&labels)[2], float (&dlogits)[4]) {
        const int upper = lane / 4, lower = upper + HALF_EDGE;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            // Accurate to two units in the last place for a sum from 1 to 16, and far quicker than `/`.
            const float scale = IS_PADDED && labels[i] < 0 ? 0.0f : __fdividef(DLOGIT_SCALE, softmax.sum[i]);
            dlogits[i] = softmax.powers[i] * scale - (labels[i] == upper ? DLOGIT_SCALE : 0.0f);
            dlogits[i + 2] = softmax.powers[i + 2] * scale - (labels[i] == lower ? DLOGIT_SCALE : 0.0f);
        }
    }

    __device__ void send_dlogits(int parity, const float (&dlogits)[4]) {
        const Halves upper = halves_of(dlogits[0], dlogits[1]), lower = halves_of(dlogits[2], dlogits[3]);
        RemoteBuffer buffers[SHARE];
        uint2 uppers[SHARE], lowers[SHARE];
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            buffers[i] = remote_buffer_at(to_blocks[i], shared.dlogits[parity][rank], shared.dlogits_are_in[parity]);
            uppers[i] = make_uint2(upper.high, upper.low);
            lowers[i] = make_uint2(lower.high, lower.low);
        }
        classes.send_to(buffers, uppers, lowers);
    }

    Shared& shared;
    const EpochArguments& epoch;
    const Classes classes;
    const int rank, warp, lane;
    unsigned to_blocks[SHARE];
};

#pragma once
#include "epoch.cuh"

// The warps that turn a block's logits into dlogits. They share the sums, and all take the same softmax of them, so
// that each can send to its share of the blocks without waiting once more.
class HeadWarp {
  public:
    __device__ HeadWarp(Shared& shared, const Epoch& epoch, Classes classes)
        : shared(shared), epoch(epoch), classes(classes), rank(rank_in_cluster()),
          warp(threadIdx.x / WARP - BACKWARD_WARPS - FORWARD_WARPS), lane(threadIdx.x % WARP) {
        for (int i = 0; i < SHARE; ++i) to_blocks[i] = distance_to(SHARE * warp + (i + rank) % SHARE, &shared);
    }

    // Compiled for either, so that who wants no totals keeps nothing for them.
    template <bool WITH_TOTALS>
    __device__ void run() {
        if (!epoch.has_head(rank)) return;
        const float rate = epoch.rate();
        for (int step = 0; step < epoch.steps; ++step) {
            const int parity = step % 2;
            shared.wait_for_batch(step);
            wait_for(shared.logits_are_in[parity], step / 2 % 2);
            if (warp == 0 && lane == 0) {
                expect_bytes(shared.logits_are_in[parity], BLOCKS * classes.bytes());
            }
            float logits[4];
            add_partial_logits(parity, logits);
            const Batch& batch = shared.batches[step % STAGES];
            if (step > 0) subtract_last_update(step - 1, rate, batch.grams, logits);
            add_up(parity, logits);
            const int labels[2] = {batch.labels[lane % 4 * 2], batch.labels[lane % 4 * 2 + 1]};
            float dlogits[4], largest[2], sum[2];
            softmax(logits, labels, dlogits, largest, sum);
            send_dlogits(parity, dlogits);
            shared.leave_batch(step);
            // While messages are on their way, and by one warp, since all have the same.
            if (WITH_TOTALS && warp == 0) {
#pragma unroll
                for (int i = 0; i < 2; ++i) add_to_totals(logits[i], logits[i + 2], largest[i], sum[i], labels[i]);
            }
        }
    }

    __device__ void send_totals() {
        for (int lanes = WARP / 2; lanes > 0; lanes /= 2) {
            loss += __shfl_xor_sync(~0u, loss, lanes);
            correct += __shfl_xor_sync(~0u, correct, lanes);
        }
        if (warp == 0 && lane == 0) {
            store_in(address_in(shared_address(&shared.losses[rank]), 0), loss);
            store_in(address_in(shared_address(&shared.corrects[rank]), 0), correct);
        }
    }

  private:
    static constexpr int PAIRS_A_WARP = MOST_PAIRS / HEAD_WARPS;
    static constexpr int SHARE = BLOCKS / HEAD_WARPS;  // of the blocks, for each warp to send to

    // This warp's share of the blocks' parts.
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

    // What the update of that step, which the partial logits do not know of, changes in the logits; this warp's share.
    __device__ void subtract_last_update(int step, float rate, const uint4* grams, float (&logits)[4]) {
        float sums[2][2][4] = {};  // by half of the classes, and halves of the products
        wait_for(shared.dlogits_are_in[step % 2], step / 2 % 2);
#pragma unroll
        for (int i = 0; i < PAIRS_A_WARP; ++i) {
            const int pair = PAIRS_A_WARP * warp + i;
            unsigned upper[4], lower[4];
            classes.load(&shared.dlogits[step % 2][2 * pair], upper, lower);
            const uint4 gram = grams[pair * WARP + lane];
            multiply_add(sums[0][0], upper, gram.x, gram.y);
            multiply_add(sums[0][1], upper, gram.z, gram.w);
            multiply_add(sums[1][0], lower, gram.x, gram.y);
            multiply_add(sums[1][1], lower, gram.z, gram.w);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float(&high)[4] = sums[i / 2][0], (&low)[4] = sums[i / 2][1];
            logits[i] -= rate * ((high[i % 2] + high[i % 2 + 2]) + (low[i % 2] + low[i % 2 + 2]));
        }
    }

    // The warps' shares together, in all of them. Whoever goes on from here knows that all have read what they wanted.
    __device__ void add_up(int parity, float (&logits)[4]) {
        shared.sums[parity][warp][lane] = make_float4(logits[0], logits[1], logits[2], logits[3]);
        wait_for_warps(HEAD_WARPS_MEET, HEAD_WARPS * WARP);
        float4 sum = shared.sums[parity][0][lane];
#pragma unroll
        for (int i = 1; i < HEAD_WARPS; ++i) {
            const float4 share = shared.sums[parity][i][lane];
            sum.x += share.x, sum.y += share.y, sum.z += share.z, sum.w += share.w;
        }
        logits[0] = sum.x, logits[1] = sum.y, logits[2] = sum.z, logits[3] = sum.w;
    }

    // DLOGIT_SCALE * (probs - onehot), and each image's largest logit and sum of powers; eight lanes have its classes.
    // Rows of logits that are no class become NO_CLASS.
    __device__ void softmax(float (&logits)[4], const int (&labels)[2], float (&dlogits)[4], float (&largest)[2],
                            float (&sum)[2]) {
        const int upper = lane / 4, lower = upper + TILE;
        float powers[4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (!classes.has_upper) logits[i] = NO_CLASS;
            if (!classes.has_lower) logits[i + 2] = NO_CLASS;
            largest[i] = fmaxf(logits[i], logits[i + 2]);
        }
#pragma unroll
        for (int lanes = 4; lanes < WARP; lanes *= 2) {
#pragma unroll
            for (int i = 0; i < 2; ++i) largest[i] = fmaxf(largest[i], __shfl_xor_sync(~0u, largest[i], lanes));
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            // Off by |x| 2^-24 relatively, which is most, 2^-25, where e^x itself has become small.
            powers[i] = __expf(logits[i] - largest[i]);
            powers[i + 2] = __expf(logits[i + 2] - largest[i]);
            sum[i] = powers[i] + powers[i + 2];
        }
#pragma unroll
        for (int lanes = 4; lanes < WARP; lanes *= 2) {
#pragma unroll
            for (int i = 0; i < 2; ++i) sum[i] += __shfl_xor_sync(~0u, sum[i], lanes);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            // Good to two units in the last place here, where the sum is from 1 to 16, and far quicker than `/`.
            const float scale = __fdividef(DLOGIT_SCALE, sum[i]);
            dlogits[i] = powers[i] * scale - (labels[i] == upper ? DLOGIT_SCALE : 0.0f);
            dlogits[i + 2] = powers[i + 2] * scale - (labels[i] == lower ? DLOGIT_SCALE : 0.0f);
        }
    }

    // An image is right if the first of its largest logits is its label's.
    __device__ void add_to_totals(float upper, float lower, float largest, float sum, int label) {
        const unsigned this_image = 0x11111111u << lane % 4;
        const unsigned in_upper = __ballot_sync(~0u, upper == largest) & this_image;
        const unsigned in_lower = __ballot_sync(~0u, lower == largest) & this_image;
        const int best = in_upper != 0 ? (__ffs(in_upper) - 1) / 4 : TILE + (__ffs(in_lower) - 1) / 4;
        if (lane / 4 == label) loss += largest - upper;
        if (lane / 4 + TILE == label) loss += largest - lower;
        if (lane < 4) {
            loss += logf(sum);
            correct += best == label;
        }
    }

    __device__ void send_dlogits(int parity, const float (&dlogits)[4]) {
        const Halves upper = halves_of(dlogits[0], dlogits[1]), lower = halves_of(dlogits[2], dlogits[3]);
        Mailbox boxes[SHARE];
        uint2 uppers[SHARE], lowers[SHARE];
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            boxes[i] = mailbox_at(to_blocks[i], shared.dlogits[parity][rank], shared.dlogits_are_in[parity]);
            uppers[i] = make_uint2(upper.high, upper.low);
            lowers[i] = make_uint2(lower.high, lower.low);
        }
        classes.send_to(boxes, uppers, lowers);
    }

    Shared& shared;
    const Epoch& epoch;
    const Classes classes;
    const int rank, warp, lane;
    unsigned to_blocks[SHARE];
    double loss = 0.0, correct = 0.0;
};

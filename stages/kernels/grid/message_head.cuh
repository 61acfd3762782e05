#pragma once
#include "grid/message_exchanges.cuh"

// Softmax and cross-entropy. Some lanes have two images: they add up their logits, of all thin shares. Each block has all
// images; or, if that were too much to read, a warp of a block has two, and sends their gradients to all blocks.
class Head {
  public:
    __device__ Head(Totals& totals, unsigned short* memory, const float* biases, const int* labels)
        : totals(totals), dlogits(memory + DLOGITS_AT), bias(biases + bias_at(LAST)), labels(labels) {}

    // Reads labels early, for they may come from memory.
    __device__ void begin(const Own& own, int step) {
        if (own_pair(own) >= PAIRS) return;
        for (int i = 0; i < 2; ++i) label[i] = row_of(own, i) < BATCH ? labels[step * BATCH + row_of(own, i)] : 0;
    }

    __device__ void run(const Own& own, const Mail& mail, const float (&sums)[cols_of(2)][4], bool with_totals) {
        const unsigned tag = round.tag();
        Part* const parts = mail.logits + round.slot() * THIN * LOGIT_UNITS;
        Part* const gradients = mail.dlogits + round.slot() * LOGIT_UNITS;
        ++round.number;
        const int pair = own.row_tile() * EDGE + own.g();
        if (pair % THICK == own.thick && pair < PAIRS) {
#pragma unroll
            for (int n = 0; n < cols_of(2); ++n) {
                const int unit = (own.first_col(cols_of(2)) + n) * 4 + own.t();
                post(parts + own.thin * LOGIT_UNITS + pair * PAIR_UNITS + unit, part_of(sums[n], tag));
            }
        }
        if (own_pair(own) < PAIRS) {
            const int unit = own_unit(own), c = unit % PAIR_UNITS / 4 * EDGE + unit % 4 * 2;
            Part units[SOURCES];
#pragma unroll
            for (int i = 0; i < SOURCES; ++i) {
                units[i] = none(c < CLASSES && first_source(own) + i * SHARERS < THIN ? tag : tag ^ 1);
            }
            const Part* const from = parts + first_source(own) * LOGIT_UNITS + unit;
            complete(units, tag, [&](int i) { return from + i * SHARERS * LOGIT_UNITS; });
            float logits[4] = {};
#pragma unroll
            for (int i = 0; i < SOURCES; ++i) add(logits, units[i]);
#pragma unroll
            for (int apart = PAIR_UNITS; apart < PAIR_UNITS * SHARERS; apart *= 2) {
#pragma unroll
                for (int i = 0; i < 4; ++i) logits[i] += __shfl_xor_sync(~0u, logits[i], apart);
            }
            softmax(own, logits, c, with_totals);
            if constexpr (ALONE) put_gradient(unit, whole_of(logits, 0));
            else if (own.lane < PAIR_UNITS) post(gradients + unit, whole_of(logits, tag));
        }
        if constexpr (!ALONE) {
            constexpr int EACH = (LOGIT_UNITS - 1) / THREADS + 1;
            Part units[EACH];
#pragma unroll
            for (int i = 0; i < EACH; ++i) units[i] = none(tag);
            complete(units, tag, [&](int i) { return gradients + threadIdx.x + i * THREADS; });
#pragma unroll
            for (int i = 0; i < EACH; ++i) put_gradient(threadIdx.x + i * THREADS, units[i]);
        }
    }

  private:
    // Lanes that share the sum of a unit.
    static constexpr int SHARERS = ALONE ? 1 : WARP / PAIR_UNITS, SOURCES = (THIN - 1) / SHARERS + 1;
    __device__ static int first_source(const Own& own) { return own.lane / PAIR_UNITS % SHARERS; }

    // The pair of images that this lane has, and its unit of their logits, if that many are there.
    __device__ static int own_pair(const Own& own) {
        return ALONE ? (own.warp_in_block() * WARP + own.lane) / PAIR_UNITS
                     : own.warp_in_block() * THIN * THICK + static_cast<int>(blockIdx.x);
    }
    __device__ static int own_unit(const Own& own) { return own_pair(own) * PAIR_UNITS + own.lane % PAIR_UNITS; }
    __device__ static int row_of(const Own& own, int i) { return own_pair(own) / EDGE * 16 + own_pair(own) % EDGE + i * EDGE; }
    __device__ void put_gradient(int unit, Part whole) const {
        const int pair = unit / PAIR_UNITS, lane = pair % EDGE * 4 + unit % 4;
        put(&word_at(dlogits, pair / EDGE, unit % PAIR_UNITS / 4, 0, lane), 2 * ROW_EDGES * MATRIX, whole);
    }

    // Logits c and c + 1 of two images become their gradients; eight lanes have all classes.
    __device__ void softmax(const Own& own, float (&logits)[4], int c, bool with_totals) {
#pragma unroll
        for (int i = 0; i < 4; ++i) logits[i] = c + i % 2 < CLASSES ? logits[i] + bias[c + i % 2] : -3.4e38f;
#pragma unroll
        for (int image = 0; image < 2; ++image) {
            float* const two = logits + 2 * image;
            float largest = fmaxf(two[0], two[1]);
            const float before[2] = {two[0], two[1]};
            const bool is_there = row_of(own, image) < BATCH;
#pragma unroll
            for (int apart = 1; apart < PAIR_UNITS; apart *= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, apart));
            two[0] = __expf(two[0] - largest), two[1] = __expf(two[1] - largest);
            float sum = two[0] + two[1];
#pragma unroll
            for (int apart = 1; apart < PAIR_UNITS; apart *= 2) sum += __shfl_xor_sync(~0u, sum, apart);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float dlogit = (__fdividef(two[i], sum) - (c + i == label[image] ? 1.0f : 0.0f)) * GRADIENT_SCALE;
                two[i] = c + i < CLASSES && is_there ? dlogit : 0.0f;
            }
            if (!with_totals) continue;
            int best = before[0] == largest ? c : before[1] == largest ? c + 1 : 2 * EDGE;
#pragma unroll
            for (int apart = 1; apart < PAIR_UNITS; apart *= 2) best = min(best, __shfl_xor_sync(~0u, best, apart));
            const int wanted = own.lane / PAIR_UNITS * PAIR_UNITS + label[image] / EDGE * 4 + label[image] % EDGE / 2;  // lane
            const float logit = __shfl_sync(~0u, label[image] % 2 ? before[1] : before[0], wanted);
            if (!is_there || c > 0 || first_source(own) > 0) continue;
            double(&both)[2] = totals[ALONE ? own_pair(own) : own.warp_in_block()];
            both[0] += largest - logit + logf(sum), both[1] += best == label[image];
        }
    }

    Totals& totals;
    unsigned short* dlogits;
    const float* bias;
    const int* labels;
    int label[2];
    Round round;
};

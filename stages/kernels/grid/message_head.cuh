#pragma once
#include "grid/message_exchanges.cuh"

// Softmax and cross-entropy. A warp has two images: it adds up their logits, from the blocks of one thick share, and sends
// the gradients to all blocks.
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
        Part* const parts = mail.logit_parts + round.slot() * PAIRS * THIN * LOGIT_UNITS;
        Part* const gradients = mail.dlogits + round.slot() * PAIRS * LOGIT_UNITS;
        ++round.number;
        const int pair = own.row_tile() * EDGE + own.g();
        if (pair % THICK == own.thick && pair < PAIRS) {
#pragma unroll
            for (int n = 0; n < cols_of(2); ++n) {
                const int unit = (own.first_col(cols_of(2)) + n) * 4 + own.t();
                post(parts + (pair * THIN + own.thin) * LOGIT_UNITS + unit, part_of(sums[n], tag));
            }
        }
        if (own_pair(own) < PAIRS) {
            float logits[4] = {};
            add_up(own, logits, parts + own_pair(own) * THIN * LOGIT_UNITS, tag);
            const Part whole = softmax(own, logits, tag, with_totals);
            if (own.lane < LOGIT_UNITS) post(gradients + own_pair(own) * LOGIT_UNITS + own.lane, whole);
        }
        constexpr int ALL = PAIRS * LOGIT_UNITS, UNITS = (ALL - 1) / THREADS + 1;
        if (own.warp_in_block() >= ALL / WARP) return;
        Part units[UNITS];
#pragma unroll
        for (int i = 0; i < UNITS; ++i) units[i] = none(tag);
        complete(units, tag, [&](int i) { return gradients + threadIdx.x + i * THREADS; });
#pragma unroll
        for (int i = 0; i < UNITS; ++i) {
            const int at = threadIdx.x + i * THREADS, of = at / LOGIT_UNITS, unit = at % LOGIT_UNITS;
            put(&word_at(dlogits, of / EDGE, unit / 4, 0, of % EDGE * 4 + unit % 4), 2 * ROW_EDGES * MATRIX, units[i]);
        }
    }

  private:
    // The pair of images that this warp has, if that many are there.
    __device__ static int own_pair(const Own& own) { return own.warp_in_block() * THIN * THICK + static_cast<int>(blockIdx.x); }
    __device__ static int row_of(const Own& own, int i) { return own_pair(own) / EDGE * 16 + own_pair(own) % EDGE + i * EDGE; }

    // Each lane has a unit of some blocks; then all lanes with that unit have its sum.
    __device__ void add_up(const Own& own, float (&logits)[4], const Part* parts, unsigned tag) const {
        constexpr int EACH = (THIN * LOGIT_UNITS - 1) / WARP + 1;
        Part units[EACH];
#pragma unroll
        for (int i = 0; i < EACH; ++i) units[i] = none(own.lane + i * WARP < THIN * LOGIT_UNITS ? tag : tag ^ 1);
        complete(units, tag, [&](int i) { return parts + own.lane + i * WARP; });
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            if (own.lane + i * WARP < THIN * LOGIT_UNITS) add(logits, units[i]);
        }
#pragma unroll
        for (int apart = LOGIT_UNITS; apart < WARP; apart *= 2) {
#pragma unroll
            for (int i = 0; i < 4; ++i) logits[i] += __shfl_xor_sync(~0u, logits[i], apart);
        }
    }

    // Two logits of each image; eight lanes have all of them.
    __device__ Part softmax(const Own& own, float (&logits)[4], unsigned tag, bool with_totals) {
        const int unit = own.lane % LOGIT_UNITS, c = unit / 4 * EDGE + unit % 4 * 2;
#pragma unroll
        for (int i = 0; i < 4; ++i) logits[i] = c + i % 2 < CLASSES ? logits[i] + bias[c + i % 2] : -3.4e38f;
#pragma unroll
        for (int image = 0; image < 2; ++image) {
            float* const two = logits + 2 * image;
            float largest = fmaxf(two[0], two[1]);
            const float before[2] = {two[0], two[1]};
            const bool is_there = row_of(own, image) < BATCH;
#pragma unroll
            for (int apart = 1; apart < LOGIT_UNITS; apart *= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, apart));
            two[0] = __expf(two[0] - largest), two[1] = __expf(two[1] - largest);
            float sum = two[0] + two[1];
#pragma unroll
            for (int apart = 1; apart < LOGIT_UNITS; apart *= 2) sum += __shfl_xor_sync(~0u, sum, apart);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float dlogit = (__fdividef(two[i], sum) - (c + i == label[image] ? 1.0f : 0.0f)) * GRADIENT_SCALE;
                two[i] = c + i < CLASSES && is_there ? dlogit : 0.0f;
            }
            if (!with_totals) continue;
            int best = before[0] == largest ? c : before[1] == largest ? c + 1 : 2 * EDGE;
#pragma unroll
            for (int apart = 1; apart < LOGIT_UNITS; apart *= 2) best = min(best, __shfl_xor_sync(~0u, best, apart));
            if (!is_there || own.lane >= LOGIT_UNITS) continue;
            double& loss = totals[own.warp_in_block()][unit][0];
            if (c / 2 == label[image] / 2) loss += largest - (label[image] % 2 ? before[1] : before[0]);
            if (c == 0) loss += logf(sum), totals[own.warp_in_block()][unit][1] += best == label[image];
        }
        return whole_of(logits, tag);
    }

    Totals& totals;
    unsigned short* dlogits;
    const float* bias;
    const int* labels;
    int label[2];
    Round round;
};

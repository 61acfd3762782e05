#pragma once
#include "grid/message_exchanges.cuh"

// Softmax and cross-entropy: the blocks with the same thick units divide the images. A block adds up the logits of some rows
// g and g + 8 of a tile, and sends their gradients to the others.
class Head {
  public:
    double loss = 0.0, correct = 0.0;  // of this lane's images so far

    __device__ Head(const Own& own, const Mail& mail, unsigned short* memory, float* floats, const int* labels)
        : own(own), mail(mail), memory(memory), logits(floats + LOGITS_AT), bias(floats + bias_at(LAST)), labels(labels) {}

    // Reads labels early, for they may come from memory.
    __device__ void begin(int step) {
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            const int row = row_of(image_of(turn));
            label[turn] = image_of(turn) < IMAGES && row < BATCH ? labels[step * BATCH + row] : 0;
        }
    }

    __device__ void run(const float (&sums)[cols_of(2)][4], bool with_totals) {
        Part* parts = mail.logit_parts + (round.slot() * THICK + own.thick) * THIN * THIN * LOGIT_UNITS;
        uint4* dlogits = mail.dlogits + (round.slot() * THICK + own.thick) * THIN * DLOGIT_UNITS;
        const unsigned tag = round.tag();
        ++round.number;
#pragma unroll
        for (int n = 0; n < cols_of(2); ++n) {
            const int col = own.first_col(cols_of(2)) + n, pair = own.row_tile() * EDGE + own.g();
            const int unit = (pair % OWN_PAIRS * 2 + col) * 4 + own.t();
            post(parts + (pair / OWN_PAIRS * THIN + own.thin) * LOGIT_UNITS + unit, part_of(sums[n], tag));
        }
        add_up(parts, tag);
        __syncthreads();
        softmax(with_totals);
        __syncthreads();
        if (threadIdx.x < DLOGIT_UNITS) {
            uint4 unit = reinterpret_cast<const uint4*>(memory + OWN_DLOGITS_AT)[threadIdx.x];
            unit.x |= tag;
            post(dlogits + own.thin * DLOGIT_UNITS + threadIdx.x, unit);
        }
        constexpr int ALL = THIN * DLOGIT_UNITS, UNITS = (ALL - 1) / THREADS + 1;
        uint4 units[UNITS];
#pragma unroll
        for (int i = 0; i < UNITS; ++i) units[i].x = threadIdx.x + i * THREADS < ALL ? tag ^ 1 : tag;
        complete(units, tag, [&](int i) { return dlogits + threadIdx.x + i * THREADS; });
#pragma unroll
        for (int i = 0; i < UNITS; ++i) {
            const int at = threadIdx.x + i * THREADS, unit = at % DLOGIT_UNITS, image = unit % IMAGES, row = row_of(image, at / DLOGIT_UNITS);
            if (at >= ALL) break;
            auto* to = memory + DLOGITS_AT + ((unit / IMAGES) * ROW_EDGES + row / EDGE) * MATRIX + row % EDGE * EDGE;
            *reinterpret_cast<uint4*>(to) = units[i];
        }
    }

  private:
    static constexpr int IMAGES = 2 * OWN_PAIRS, LANES = 2 * EDGE;  // of an image
    static constexpr int TURNS = (IMAGES * LANES - 1) / THREADS + 1;

    __device__ static int image_of(int turn) { return (turn * THREADS + threadIdx.x) / LANES; }
    __device__ static int row_of(int image, int thin) {
        const int pair = thin * OWN_PAIRS + image / 2;
        return pair / EDGE * 16 + pair % EDGE + image % 2 * EDGE;
    }
    __device__ int row_of(int image) const { return row_of(image, own.thin); }

    // A lane reads a unit of one block; the sum goes over THIN lanes.
    __device__ void add_up(const Part* parts, unsigned tag) {
        constexpr int ALL = LOGIT_UNITS * THIN, UNITS = (ALL - 1) / THREADS + 1;
        const int thread = threadIdx.x;
        Part units[UNITS];
#pragma unroll
        for (int i = 0; i < UNITS; ++i) units[i] = none(thread + i * THREADS < ALL ? tag : tag ^ 1);
        complete(units, tag, [&](int i) {
            const int at = thread + i * THREADS;
            return parts + (own.thin * THIN + at % THIN) * LOGIT_UNITS + at / THIN;
        });
#pragma unroll
        for (int i = 0; i < UNITS; ++i) {
            const int at = thread + i * THREADS, unit = at / THIN;
            float sums[4] = {};
            add(sums, units[i]);
#pragma unroll
            for (int apart = 1; apart < THIN; apart *= 2) {
#pragma unroll
                for (int j = 0; j < 4; ++j) sums[j] += __shfl_xor_sync(~0u, sums[j], apart);
            }
            if (at >= ALL || at % THIN != 0) continue;
            const int image = unit / EDGE * 2, c = unit % EDGE / 4 * EDGE + unit % 4 * 2;
#pragma unroll
            for (int j = 0; j < 4; ++j) logits[(image + j / 2) * LANES + c + j % 2] = sums[j];
        }
    }

    __device__ void softmax(bool with_totals) {
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            const int image = image_of(turn), c = threadIdx.x % LANES, row = row_of(image);
            if (image / 2 >= OWN_PAIRS) return;  // whole warps
            const float logit = c < CLASSES ? logits[image * LANES + c] + bias[c] : -3.4e38f;
            float largest = logit;
#pragma unroll
            for (int apart = EDGE; apart > 0; apart /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, apart));
            const float power = __expf(logit - largest);
            float sum = power;
#pragma unroll
            for (int apart = EDGE; apart > 0; apart /= 2) sum += __shfl_xor_sync(~0u, sum, apart);
            float dlogit = (__fdividef(power, sum) - (c == label[turn] ? 1.0f : 0.0f)) * GRADIENT_SCALE;
            if (c >= CLASSES || row >= BATCH) dlogit = 0.0f;
            const unsigned kept = c % EDGE == 0 ? ~1u : ~0u;  // a bit for the tag
            const Halves halves = halves_of(dlogit, 0.0f, kept);
            unsigned short* const own_dlogits = memory + OWN_DLOGITS_AT + (c / EDGE * IMAGES + image) * EDGE + c % EDGE;
            own_dlogits[0] = static_cast<unsigned short>(halves.high);
            if constexpr (HALVES == 2) own_dlogits[2 * IMAGES * EDGE] = static_cast<unsigned short>(halves.low & kept);
            if (!with_totals || own.thick != 0) continue;
            const unsigned best = __ballot_sync(~0u, logit == largest) >> (threadIdx.x & LANES) & 0xffffu;
            if (row >= BATCH) continue;
            if (c == label[turn]) {
                loss += largest - logit;
                correct += __ffs(best) - 1 == c;
            }
            if (c == 0) loss += logf(sum);
        }
    }

    const Own own;
    const Mail mail;
    unsigned short* memory;
    float *logits, *bias;
    const int* labels;
    int label[TURNS];
    Round round;
};

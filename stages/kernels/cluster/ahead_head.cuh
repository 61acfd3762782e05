#pragma once
#include "cluster/ahead.cuh"

// The head: the blocks of the first cluster. Each has sixteen units of the hidden layer, for all images, and takes the softmax
// of eight images.

// One thread that starts the copies of grams, each as soon as its stage is free.
__device__ inline void fetch_grams(Head& head, const Epoch& epoch) {
    constexpr int bytes = sizeof(head.grams[0]), units = bytes / sizeof(GramUnit);
    for (int i = 0; i < epoch.steps - 1; ++i) {
        const int stage = i % GRAM_STAGES;
        if (i >= GRAM_STAGES) mbarrier_wait_parity(head.grams_read[stage], (i / GRAM_STAGES + 1) % 2);
        wait_for_flag(epoch.ready + i, epoch.number);
        mbarrier_arrive_expect_tx(head.grams_in[stage], bytes);
        cp_async_bulk(head.grams[stage], head.grams_in[stage], epoch.grams + i * units, bytes);
    }
}

// A warp that receives the products of half of the images.
__device__ inline void receive_products(Head& head, const Epoch& epoch, int half) {
    const int lane = threadIdx.x % WARP;
    for (int step = 0; step < epoch.steps; ++step) {
        uint4 units[PAIRS];  // two of a pair
        receive(units, epoch.products_of(step, cluster_ctarank(), half * (PAIRS / 2)), WARP, epoch.tag(step));
        if (step > 0) mbarrier_wait_parity(head.products_read, (step - 1) % 2);
#pragma unroll
        for (int i = 0; i < PAIRS; ++i) {
            head.products[half * (PAIRS / 2) + i / 2][i % 2][lane] =
                make_float4(__uint_as_float(units[i].x), __uint_as_float(units[i].y), __uint_as_float(units[i].z),
                            __uint_as_float(units[i].w));
        }
        arrive_as_warp(head.products_in);
    }
}

// The address of this lane's row of four matrices of dlogits, eight classes by eight images each: by half of the images of a
// pair and by half of the classes, the one that `first` says within the other.
__device__ inline const unsigned short* dlogits_row(const Head& head, int parity, int half, int pair, bool classes_first) {
    const int lane = threadIdx.x % WARP, inner = lane / 8 % 2, outer = lane / 16;
    const int c = lane % 8 + 8 * (classes_first ? inner : outer), block = 2 * pair + (classes_first ? outer : inner);
    return c < CLASSES ? head.dlogits[parity][block][half][c] : head.zeros;
}

// Calls move(register, stored) for the last layer's weights of two units and this lane's classes.
template <class Move>
__device__ void copy_last_weights(float (&weights)[4], const Epoch& epoch, int unit, Move move) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int c = threadIdx.x % WARP / 4 + i / 2 * HALF_EDGE;
        if (c < CLASSES && unit + i % 2 < epoch.units) {
            move(weights[i], epoch.last_weights[(unit + i % 2) * CLASSES + c]);
        }
    }
}

// A warp that keeps eight units of the last layer's weights in registers, transposed: classes g and g + 8 of units 2t and
// 2t + 1. Both such warps have its bias.
__device__ inline void update_last_layer(Head& head, const Epoch& epoch, int half) {
    const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4, rank = cluster_ctarank();
    const int unit = rank * EDGE + half * HALF_EDGE + 2 * t;
    float weights[4] = {}, bias[2] = {};
    copy_last_weights(weights, epoch, unit, [](float& own, float& stored) { own = stored; });
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        if (g + i * HALF_EDGE < CLASSES) bias[i] = epoch.last_bias[g + i * HALF_EDGE];
    }
    for (int step = 0;; ++step) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const Halves both = scaled_halves_of(weights[2 * i], weights[2 * i + 1]);
            head.weights[0][i][half][lane] = both.high;
            if constexpr (HALVES == 2) head.weights[HALVES - 1][i][half][lane] = both.low;
            if (half == 0 && t == 0) head.bias[g + i * HALF_EDGE] = bias[i];
        }
        arrive_as_warp(head.weights_in);
        if (step == epoch.steps) break;

        const int parity = step % 2;
        mbarrier_wait_parity(head.outputs_in, step % 2);
        mbarrier_wait_parity(head.dlogits_in[parity], step / 2 % 2);
        constexpr unsigned ONES = 0x3c003c00;  // two float16
        float high[2][4] = {}, low[2][4] = {}, ones[4] = {}, low_ones[4] = {};
#pragma unroll
        for (int pair = 0; pair < PAIRS; ++pair) {
            unsigned left[4], right[2];
            ldmatrix<false>(left, dlogits_row(head, parity, 0, pair, true));
            const auto row = [&](int h) {
                return reinterpret_cast<const unsigned short*>(
                    &head.outputs[h][pair].words[lane / 8 % 2][half][lane % 8 * 4]);
            };
            ldmatrix<true>(right, row(0));
            mma_m16n8k16_f16(high[pair % 2], left, right[0], right[1]);
            mma_m16n8k16_f16(ones, left, ONES, ONES);
            if constexpr (HALVES == 2) {
                unsigned low_left[4], low_right[2];
                ldmatrix<false>(low_left, dlogits_row(head, parity, HALVES - 1, pair, true));
                ldmatrix<true>(low_right, row(HALVES - 1));
                mma_m16n8k16_f16(low[0], low_left, right[0], right[1]);
                mma_m16n8k16_f16(low[1], left, low_right[0], low_right[1]);
                mma_m16n8k16_f16(low_ones, low_left, ONES, ONES);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            weights[i] -= epoch.rate * (high[0][i] + high[1][i] + (low[0][i] + low[1][i]) * (1.0f / LOW));
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) bias[i] -= epoch.rate * (ones[2 * i] + low_ones[2 * i] * (1.0f / LOW));
    }
    copy_last_weights(weights, epoch, unit, [](float& own, float& stored) { stored = own; });
    if (rank == 0 && half == 0 && t == 0) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (g + i * HALF_EDGE < CLASSES) epoch.last_bias[g + i * HALF_EDGE] = bias[i];
        }
    }
}

// A warp on the critical path: the outputs and gradients of the block's units for a pair of images, and the softmax of one of
// the block's images (of several in a smaller cluster).
class ImageWarp {
  public:
    __device__ ImageWarp(Head& head, const Epoch& epoch)
        : head(head), epoch(epoch), warp(threadIdx.x / WARP), lane(threadIdx.x % WARP), rank(cluster_ctarank()),
          peers{peer_at(2 * warp, &head), peer_at(2 * warp + 1, &head)} {}

    // Compiled for both cases: without totals, no instruction is spent on them.
    template <bool WITH_TOTALS>
    __device__ void run() {
        fetch_labels(0);
        for (int step = 0; step < epoch.steps; ++step) {
            const int parity = step % 2, phase = step / 2 % 2;
            if (threadIdx.x == 0) {
                mbarrier_arrive_expect_tx(head.logits_in[parity], BLOCKS * PART_NUMBERS * NUMBER_BYTES);
                mbarrier_arrive_expect_tx(head.dlogits_in[parity], BLOCKS * static_cast<int>(sizeof(head.dlogits[0][0])));
            }
            float outputs[2][4];
            make_outputs(step, outputs);
            send_logits(step, outputs);
            if (step + 1 < epoch.steps) load_grams(step, 0);
            mbarrier_wait_parity(head.logits_in[parity], phase);
            float logit[IMAGES], largest[IMAGES], sum[IMAGES];
#pragma unroll
            for (int i = 0; i < IMAGES; ++i) take_softmax(parity, i, logit[i], largest[i], sum[i]);
            bar_sync(MEET, PAIRS * WARP);
            send_dlogits(parity);
            if constexpr (WITH_TOTALS) {
#pragma unroll
                for (int i = 0; i < IMAGES; ++i) add_totals(i, logit[i], largest[i], sum[i]);
            }
            if (step + 1 < epoch.steps) {
                fetch_labels(step + 1);
                load_grams(step, 1);
            }
            mbarrier_wait_parity(head.dlogits_in[parity], phase);
            make_doutputs(step, outputs);
            bar_sync(MEET, PAIRS * WARP);
        }
        if constexpr (WITH_TOTALS) send_totals();
    }

  private:
    static constexpr int IMAGES = HALF_EDGE / PAIRS;  // of the softmax

    // Half of the gram of this step and the next one, as left factors.
    __device__ void load_grams(int step, int half) {
        const int stage = step % GRAM_STAGES;
        if (half == 0) mbarrier_wait_parity(head.grams_in[stage], step / GRAM_STAGES % 2);
#pragma unroll
        for (int k = half * (PAIRS / 2); k < (half + 1) * (PAIRS / 2); ++k) {
            const GramUnit upper = head.grams[stage][2 * warp][k][lane], lower = head.grams[stage][2 * warp + 1][k][lane];
            grams[0][k][0] = upper.x, grams[0][k][1] = lower.x, grams[0][k][2] = upper.y, grams[0][k][3] = lower.y;
#if FACTOR_HALVES == 2
            grams[1][k][0] = upper.z, grams[1][k][1] = lower.z, grams[1][k][2] = upper.w, grams[1][k][3] = lower.w;
#endif
        }
        if (half == 1) arrive_as_warp(head.grams_read[stage]);
    }

    __device__ void fetch_labels(int step) {
#pragma unroll
        for (int i = 0; i < IMAGES; ++i) {
            const int image = rank * HALF_EDGE + warp + i * PAIRS;
            labels[i] = epoch.labels[step * PAIRS * EDGE + image];
        }
    }

    // outputs = relu(x(t) W(t - 1) - rate * x(t) x(t - 1)^T doutputs(t - 1)), in [half of the units].
    __device__ void make_outputs(int step, float (&outputs)[2][4]) {
        float sums[2][2][4] = {}, low_grams[2][4] = {}, low_doutputs[2][4] = {};
        if (step > 0) {
#pragma unroll
            for (int k = 0; k < PAIRS; ++k) {
                const uint4 right = ldmatrix<true>(head.doutputs[0][k].words[0][0] + 4 * lane);
                mma_m16n8k16_f16(sums[k % 2][0], grams[0][k], right.x, right.z);
                mma_m16n8k16_f16(sums[k % 2][1], grams[0][k], right.y, right.w);
                if constexpr (HALVES == 2) {
                    const uint4 low = ldmatrix<true>(head.doutputs[HALVES - 1][k].words[0][0] + 4 * lane);
                    mma_m16n8k16_f16(low_grams[0], grams[HALVES - 1][k], right.x, right.z);
                    mma_m16n8k16_f16(low_grams[1], grams[HALVES - 1][k], right.y, right.w);
                    mma_m16n8k16_f16(low_doutputs[0], grams[0][k], low.x, low.z);
                    mma_m16n8k16_f16(low_doutputs[1], grams[0][k], low.y, low.w);
                }
            }
        }
        mbarrier_wait_parity(head.products_in, step % 2);
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const float4 product = head.products[warp][n][lane];
            const float products[4] = {product.x, product.y, product.z, product.w};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float sum = sums[0][n][i] + sums[1][n][i] + low_grams[n][i] + low_doutputs[n][i] * (1.0f / LOW);
                outputs[n][i] = relu_of(products[i] - epoch.rate * sum);
            }
        }
        arrive_as_warp(head.products_read);
    }

    // This block's part of the logits, to the blocks that own the images; the outputs, to the warps of the last layer.
    __device__ void send_logits(int step, const float (&outputs)[2][4]) {
        const int parity = step % 2, g = lane / 4, t = lane % 4;
        unsigned left[HALVES][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const Halves two = scaled_halves_of(outputs[i / 2][i % 2 * 2], outputs[i / 2][i % 2 * 2 + 1]);
            left[0][i] = two.high;
            if constexpr (HALVES == 2) left[HALVES - 1][i] = two.low;
        }
        mbarrier_wait_parity(head.weights_in, step % 2);
        uint4 of_units[HALVES];
#pragma unroll
        for (int h = 0; h < HALVES; ++h) {
            of_units[h] = ldmatrix<false>(head.weights[h][0][0] + 4 * lane);
            of_classes[h] = ldmatrix<true>(head.weights[h][0][0] + 4 * lane);
        }
        bias = head.bias[lane % EDGE];
        float logits[2][4] = {}, low[2][4] = {};
#pragma unroll
        for (int h = 0; h < HALVES; ++h) {
            float(&sums)[2][4] = h == 0 ? logits : low;
            mma_m16n8k16_f16(sums[0], left[0], of_units[h].x, of_units[h].y);
            mma_m16n8k16_f16(sums[1], left[0], of_units[h].z, of_units[h].w);
            if (h == 0) continue;
            mma_m16n8k16_f16(low[0], left[HALVES - 1], of_units[0].x, of_units[0].y);
            mma_m16n8k16_f16(low[1], left[HALVES - 1], of_units[0].z, of_units[0].w);
        }
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) logits[n][i] += low[n][i] * (1.0f / LOW);
            if (n == 1 && 2 * t >= REST) continue;
            const int at = rank * PART_APART + (n == 0 ? g * HALF_EDGE : HALF_EDGE * HALF_EDGE + g * REST) + 2 * t;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                void* place = head.partial_logits[parity] + at * NUMBER_BYTES;
#if FACTOR_HALVES == 2
                const uint2 two = make_uint2(__float_as_uint(logits[n][2 * i]), __float_as_uint(logits[n][2 * i + 1]));
#else
                const unsigned two = cvt_f16x2(logits[n][2 * i], logits[n][2 * i + 1]);
#endif
                send(peers[i], place, head.logits_in[parity], two);
            }
        }
#pragma unroll
        for (int h = 0; h < HALVES; ++h) {
#pragma unroll
            for (int i = 0; i < 4; ++i) head.outputs[h][warp].words[i % 2][i / 2][lane] = left[h][i];
        }
        arrive_as_warp(head.outputs_in);
    }

    // Lanes c and c + 16 have class c of an image.
    __device__ void take_softmax(int parity, int i, float& logit, float& largest, float& sum) {
        const int image = warp + i * PAIRS, c = lane % EDGE, half = lane / EDGE;
        float value = 0.0f;
        if (c < CLASSES) {
            const int at = c < 8 ? image * HALF_EDGE + c : HALF_EDGE * HALF_EDGE + image * REST + c - 8;
            float parts[BLOCKS / 2];
#pragma unroll
            for (int block = 0; block < BLOCKS / 2; ++block) {
                const int number = (half * (BLOCKS / 2) + block) * PART_APART + at;
#if FACTOR_HALVES == 2
                parts[block] = reinterpret_cast<const float*>(head.partial_logits[parity])[number];
#else
                const unsigned bits = reinterpret_cast<const unsigned short*>(head.partial_logits[parity])[number];
                parts[block] = cvt_f32_f16x2(bits).x;
#endif
            }
#pragma unroll
            for (int apart = BLOCKS / 4; apart > 0; apart /= 2) {
#pragma unroll
                for (int block = 0; block < apart; ++block) parts[block] += parts[block + apart];
            }
            value = parts[0];
        }
        value += __shfl_xor_sync(~0u, value, EDGE);
        logit = c < CLASSES ? value + bias : NO_CLASS;
        largest = logit;
#pragma unroll
        for (int lanes = EDGE / 2; lanes > 0; lanes /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, lanes));
        const float power = __expf(logit - largest);
        sum = power;
#pragma unroll
        for (int lanes = EDGE / 2; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
        float dlogit = __fdividef(power, sum) - (c == labels[i] ? 1.0f : 0.0f);
        if (rank * HALF_EDGE + image >= epoch.batch) dlogit = 0.0f;
        const unsigned high = cvt_f16x2(dlogit, 0.0f);
        if (c < CLASSES && half < HALVES) {
            const unsigned low = cvt_f16x2((dlogit - cvt_f32_f16x2(high).x) * LOW, 0.0f);
            head.own_dlogits[half][c][image] = static_cast<unsigned short>(half == 0 ? high : low);
        }
    }

    // All of the block's dlogits, to this warp's two peers.
    __device__ void send_dlogits(int parity) {
        constexpr int UNITS = HALVES * CLASSES;
        uint4* const to = reinterpret_cast<uint4*>(head.dlogits[parity][rank]);
#pragma unroll
        for (int first = 0; first < 2 * UNITS; first += WARP) {
            const int i = first + lane, unit = i < UNITS ? i : i - UNITS;
            if (i >= 2 * UNITS) break;
            const uint4 own = reinterpret_cast<const uint4*>(head.own_dlogits)[unit];
            send(i < UNITS ? peers[0] : peers[1], to + unit, head.dlogits_in[parity], own);
        }
    }

    // doutputs = dlogits V^T where outputs are not 0: to the head's warps, and to the first layer.
    __device__ void make_doutputs(int step, const float (&outputs)[2][4]) {
        float sums[2][4] = {}, low[2][4] = {};
        unsigned left[4];
        ldmatrix<true>(left, dlogits_row(head, step % 2, 0, warp, false));
        mma_m16n8k16_f16(sums[0], left, of_classes[0].x, of_classes[0].z);
        mma_m16n8k16_f16(sums[1], left, of_classes[0].y, of_classes[0].w);
        if constexpr (HALVES == 2) {
            unsigned low_left[4];
            ldmatrix<true>(low_left, dlogits_row(head, step % 2, HALVES - 1, warp, false));
            mma_m16n8k16_f16(low[0], low_left, of_classes[0].x, of_classes[0].z);
            mma_m16n8k16_f16(low[1], low_left, of_classes[0].y, of_classes[0].w);
            mma_m16n8k16_f16(low[0], left, of_classes[HALVES - 1].x, of_classes[HALVES - 1].z);
            mma_m16n8k16_f16(low[1], left, of_classes[HALVES - 1].y, of_classes[HALVES - 1].w);
        }
        unsigned units[HALVES][4];  // by half of the images, then of the units
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                float two[2];
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    const float sum = sums[n][2 * i + j] + low[n][2 * i + j] * (1.0f / LOW);
                    two[j] = outputs[n][2 * i + j] > 0.0f ? sum : 0.0f;
                }
                const Halves halves = scaled_halves_of(two[0], two[1], i == 0 && n == 0 ? ~1u : ~0u);  // a bit for the tag
                units[0][2 * i + n] = halves.high;
                if constexpr (HALVES == 2) units[HALVES - 1][2 * i + n] = halves.low;
            }
        }
#pragma unroll
        for (int h = 0; h < HALVES; ++h) {
#pragma unroll
            for (int i = 0; i < 4; ++i) head.doutputs[h][warp].words[i / 2][i % 2][lane] = units[h][i];
            post(epoch.doutputs_of(step, rank, warp) + h * WARP,
                 make_uint4(units[h][0] | epoch.tag(step), units[h][1], units[h][2], units[h][3]));
        }
    }

    // An image is right if the first of its largest logits is its label's.
    __device__ void add_totals(int i, float logit, float largest, float sum) {
        const unsigned best = __ballot_sync(~0u, logit == largest) & 0xffffu;
        if (rank * HALF_EDGE + warp + i * PAIRS >= epoch.batch) return;
        if (lane == labels[i]) {
            loss += largest - logit;
            correct += __ffs(best) - 1 == lane;
        }
        if (lane == 0) loss += logf(sum);
    }

    __device__ void send_totals() {
        for (int lanes = WARP / 2; lanes > 0; lanes /= 2) {
            loss += __shfl_xor_sync(~0u, loss, lanes);
            correct += __shfl_xor_sync(~0u, correct, lanes);
        }
        const double both[2] = {loss, correct};
        uint4 unit;
        memcpy(&unit, both, sizeof unit);
        if (lane == 0) send(peer_at(0, &head), &head.totals[rank * PAIRS + warp], head.totals_in, unit);
        if (rank != 0 || threadIdx.x != 0) return;
        mbarrier_wait_parity(head.totals_in, 0);
        for (const uint4& one : head.totals) {
            double others[2];
            memcpy(others, &one, sizeof others);
            epoch.totals[0] += others[0];
            epoch.totals[1] += others[1];
        }
    }

    Head& head;
    const Epoch& epoch;
    const int warp, lane, rank;
    const unsigned peers[2];  // whose images are this warp's; it sends to them
    unsigned grams[HALVES][PAIRS][4];
    uint4 of_classes[HALVES];  // the last layer's weights as right factors of dlogits
    float bias;                // of this lane's class
    int labels[IMAGES];
    double loss = 0.0, correct = 0.0;
};

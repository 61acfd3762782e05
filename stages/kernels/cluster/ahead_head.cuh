#pragma once
#include "cluster/ahead.cuh"

// The head: the blocks of the first cluster. Each has sixteen units of the hidden layer, for all images, and takes the softmax
// of eight images.

// One thread that starts the copies of grams, each as soon as its stage is free.
__device__ inline void fetch_grams(Head& head, const Epoch& epoch) {
    constexpr int bytes = sizeof(head.grams[0]), units = bytes / sizeof(GramUnit);
    for (int step = 0; step < epoch.steps - 1; ++step) {
        const int stage = step % GRAM_STAGES;
        if (step >= GRAM_STAGES) mbarrier_wait_parity(head.grams_read[stage], (step / GRAM_STAGES + 1) % 2);
        wait_for_flag(epoch.ready + step, epoch.number);
        mbarrier_arrive_expect_tx(head.grams_in[stage], bytes);
        cp_async_bulk(head.grams[stage], head.grams_in[stage], epoch.grams + step * units, bytes);
    }
}

// A warp that receives products.
__device__ inline void receive_products(Head& head, const Epoch& epoch, int receiver) {
    constexpr int PAIRS_EACH = PAIRS / RECEIVERS, OWN = PAIRS_EACH * TURNS;  // tiles of products
    constexpr int TOGETHER = OWN < 4 ? OWN : 4;
    const int lane = threadIdx.x % WARP;
    for (int step = 0; step < epoch.steps; ++step) {
        for (int first = 0; first < OWN; first += TOGETHER) {
            uint4 units[TOGETHER * UNITS];
            receive(units, epoch.products_of(step, cluster_ctarank(), receiver * PAIRS_EACH, first), WARP, epoch.tag(step));
            if (step > 0 && first == 0) mbarrier_wait_parity(head.products_read, (step - 1) % 2);
#pragma unroll
            for (int i = 0; i < TOGETHER * UNITS; ++i) {
                const int tile = receiver * OWN + first + i / UNITS;
                head.products[tile / TURNS][tile % TURNS][i % UNITS][lane] =
                    make_float4(__uint_as_float(units[i].x), __uint_as_float(units[i].y), __uint_as_float(units[i].z),
                                __uint_as_float(units[i].w));
            }
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

// Calls move(register, stored) for the last layer's weights of two units of each tile and this lane's classes.
template <class Move>
__device__ void copy_last_weights(float (&weights)[TURNS][4], const Epoch& epoch, int half, Move move) {
#pragma unroll
    for (int i = 0; i < TURNS * 4; ++i) {
        const int c = threadIdx.x % WARP / 4 + i / 2 % 2 * HALF_EDGE, tile = cluster_ctarank() * TURNS + i / 4;
        const int unit = tile * EDGE + half * HALF_EDGE + threadIdx.x % 4 * 2 + i % 2;
        if (c < CLASSES && unit < epoch.units) move(weights[i / 4][i % 4], epoch.last_weights[unit * CLASSES + c]);
    }
}

// A warp that keeps eight units of each tile of the last layer's weights in registers, transposed: classes g and g + 8 of
// units 2t and 2t + 1. Both such warps have its bias.
__device__ inline void update_last_layer(Head& head, const Epoch& epoch, int half) {
    const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4, rank = cluster_ctarank();
    float weights[TURNS][4] = {}, bias[2] = {};
    copy_last_weights(weights, epoch, half, [](float& own, float& stored) { own = stored; });
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        if (g + i * HALF_EDGE < CLASSES) bias[i] = epoch.last_bias[g + i * HALF_EDGE];
    }
    for (int step = 0;; ++step) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int turn = 0; turn < TURNS; ++turn) {
                auto& factors = head.weights[step % 2][turn];
                const Halves both = scaled_halves_of(weights[turn][2 * i], weights[turn][2 * i + 1]);
                factors[0][i][half][lane] = both.high;
                if constexpr (HALVES == 2) factors[HALVES - 1][i][half][lane] = both.low;
            }
            if (half == 0 && t == 0) head.bias[g + i * HALF_EDGE] = bias[i];
        }
        arrive_as_warp(head.weights_in);
        if (step == epoch.steps) break;

        const int parity = step % 2;
        mbarrier_wait_parity(head.outputs_in, step % 2);
        mbarrier_wait_parity(head.dlogits_in[parity], step / 2 % 2);
        constexpr unsigned ONES = 0x3c003c00;  // two float16
        float ones[4] = {}, low_ones[4] = {};
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            float high[2][4] = {}, low[2][4] = {};
#pragma unroll
            for (int pair = 0; pair < PAIRS; ++pair) {
                unsigned left[4], right[2];
                ldmatrix<false>(left, dlogits_row(head, parity, 0, pair, true));
                const auto row = [&](int h) {
                    return reinterpret_cast<const unsigned short*>(
                        &head.outputs[turn][h][pair].words[lane / 8 % 2][half][lane % 8 * 4]);
                };
                ldmatrix<true>(right, row(0));
                mma_m16n8k16_f16(high[pair % 2], left, right[0], right[1]);
                if (turn == 0) mma_m16n8k16_f16(ones, left, ONES, ONES);
                if constexpr (HALVES == 2) {
                    unsigned low_left[4], low_right[2];
                    ldmatrix<false>(low_left, dlogits_row(head, parity, HALVES - 1, pair, true));
                    ldmatrix<true>(low_right, row(HALVES - 1));
                    mma_m16n8k16_f16(low[0], low_left, right[0], right[1]);
                    mma_m16n8k16_f16(low[1], left, low_right[0], low_right[1]);
                    if (turn == 0) mma_m16n8k16_f16(low_ones, low_left, ONES, ONES);
                }
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                weights[turn][i] -= epoch.rate * (high[0][i] + high[1][i] + (low[0][i] + low[1][i]) * (1.0f / LOW));
            }
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) bias[i] -= epoch.rate * (ones[2 * i] + low_ones[2 * i] * (1.0f / LOW));
    }
    copy_last_weights(weights, epoch, half, [](float& own, float& stored) { stored = own; });
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
            float logits[2][4] = {};
            const unsigned active = make_outputs(step, logits);
            send_logits(step, logits);
            if (GRAMS_EARLY && step + 1 < epoch.steps) load_grams(step, 0);
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
                if constexpr (GRAMS_EARLY) load_grams(step, 1);
            }
            make_doutputs(step, active);
            bar_sync(MEET, PAIRS * WARP);
        }
        if constexpr (WITH_TOTALS) send_totals();
    }

  private:
    static constexpr int IMAGES = HALF_EDGE / PAIRS;  // of the softmax
    static constexpr bool GRAMS_EARLY = TURNS == 1;   // in registers, before the step that needs them: as many as there are
    using Gram = unsigned[HALVES][4];                 // one left factor

    // A part of the gram of this step and the next one.
    __device__ void load_gram(Gram& gram, int step, int k) const {
        const auto& from = head.grams[step % GRAM_STAGES];
        const GramUnit upper = from[2 * warp][k][lane], lower = from[2 * warp + 1][k][lane];
        gram[0][0] = upper.x, gram[0][1] = lower.x, gram[0][2] = upper.y, gram[0][3] = lower.y;
#if FACTOR_HALVES == 2
        gram[1][0] = upper.z, gram[1][1] = lower.z, gram[1][2] = upper.w, gram[1][3] = lower.w;
#endif
    }
    __device__ void await_gram(int step) const {
        mbarrier_wait_parity(head.grams_in[step % GRAM_STAGES], step / GRAM_STAGES % 2);
    }

    // Half of it.
    __device__ void load_grams(int step, int half) {
        if (half == 0) await_gram(step);
#pragma unroll
        for (int k = half * (PAIRS / 2); k < (half + 1) * (PAIRS / 2); ++k) load_gram(grams[k], step, k);
        if (half == 1) arrive_as_warp(head.grams_read[step % GRAM_STAGES]);
    }

    __device__ void fetch_labels(int step) {
#pragma unroll
        for (int i = 0; i < IMAGES; ++i) {
            const int image = rank * HALF_EDGE + warp + i * PAIRS;
            labels[i] = epoch.labels[step * PAIRS * EDGE + image];
        }
    }

    // outputs = relu(x(t) W(t - 1) - rate * x(t) x(t - 1)^T doutputs(t - 1)), for the warps of the last layer; this block's part
    // of the logits. Returns which of this lane's outputs are not 0: a bit each, a byte a tile of units.
    __device__ unsigned make_outputs(int step, float (&logits)[2][4]) {
        // A second sum of the first kind makes chains of products shorter, where one tile has too few of them.
        constexpr int WAYS = TURNS == 1 ? 2 : 1;
        float sums[WAYS][2 * TURNS][4] = {}, low_sums[2 * TURNS][4] = {};  // by eight units
        if (step > 0) {
            if constexpr (!GRAMS_EARLY) await_gram(step - 1);
            if constexpr (WARPGROUPS) multiply_as_warpgroup(step - 1, sums[0], low_sums);
            else multiply(step - 1, sums, low_sums);
            if constexpr (!GRAMS_EARLY) arrive_as_warp(head.grams_read[(step - 1) % GRAM_STAGES]);
        }
        mbarrier_wait_parity(head.weights_in, step % 2);
        bias = head.bias[lane % EDGE];
        uint4 of_units[HALVES];
        load_last_weights<false>(of_units, step, 0);
        mbarrier_wait_parity(head.products_in, step % 2);
        unsigned active = 0;
        float low_logits[2][4] = {};
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            if (turn > 0) load_last_weights<false>(of_units, step, turn);
            unsigned left[HALVES][4];
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                const float4 product = head.products[warp][turn][n][lane];
                const float products[4] = {product.x, product.y, product.z, product.w};
                float outputs[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    float sum = sums[0][2 * turn + n][i] + low_sums[2 * turn + n][i] * (1.0f / LOW);
                    if constexpr (WAYS == 2) sum += sums[WAYS - 1][2 * turn + n][i];
                    outputs[i] = relu_of(products[i] - epoch.rate * sum);
                    active |= (outputs[i] > 0.0f) << (turn * 8 + n * 4 + i);
                }
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const Halves two = scaled_halves_of(outputs[2 * i], outputs[2 * i + 1]);
                    left[0][2 * n + i] = two.high;
                    if constexpr (HALVES == 2) left[HALVES - 1][2 * n + i] = two.low;
                }
            }
            add_logits(logits, low_logits, left, of_units);
#pragma unroll
            for (int h = 0; h < HALVES; ++h) {
#pragma unroll
                for (int i = 0; i < 4; ++i) head.outputs[turn][h][warp].words[i % 2][i / 2][lane] = left[h][i];
            }
        }
        arrive_as_warp(head.products_read);
#pragma unroll
        for (int i = 0; i < 8; ++i) logits[i / 4][i % 4] += low_logits[i / 4][i % 4] * (1.0f / LOW);
        return active;
    }

    // sums += gram(step) doutputs, by this warp alone.
    template <int WAYS>
    __device__ void multiply(int step, float (&sums)[WAYS][2 * TURNS][4], float (&low_sums)[2 * TURNS][4]) {
        const int row = TURNS == 1 ? lane * 4 : lane / EDGE * 2 * TURNS * WARP + lane % EDGE * 4;
#pragma unroll
        for (int k = 0; k < PAIRS; ++k) {
            Gram& gram = grams[GRAMS_EARLY ? k : 0];
            if constexpr (!GRAMS_EARLY) load_gram(gram, step, k);
#pragma unroll
            for (int turn = 0; turn < TURNS; ++turn) {
                float(&ways)[2 * TURNS][4] = sums[k % WAYS];
                const uint4 right = ldmatrix<true>(head.doutputs[k][0][0][turn][0] + row);
                mma_m16n8k16_f16(ways[2 * turn], gram[0], right.x, right.z);
                mma_m16n8k16_f16(ways[2 * turn + 1], gram[0], right.y, right.w);
                if constexpr (HALVES == 2) {
                    const uint4 low = ldmatrix<true>(head.doutputs[k][HALVES - 1][0][turn][0] + row);
                    float(&others)[2 * TURNS][4] = sums[(k + 1) % WAYS];
                    mma_m16n8k16_f16(others[2 * turn], gram[HALVES - 1], right.x, right.z);
                    mma_m16n8k16_f16(others[2 * turn + 1], gram[HALVES - 1], right.y, right.w);
                    mma_m16n8k16_f16(low_sums[2 * turn], gram[0], low.x, low.z);
                    mma_m16n8k16_f16(low_sums[2 * turn + 1], gram[0], low.y, low.w);
                }
            }
        }
    }

    // The same by four warps; N is 8 there.
    template <int N>
    __device__ void multiply_as_warpgroup(int step, float (&sums)[N][4], float (&low_sums)[N][4]) {
        constexpr int MATRIX = sizeof(head.doutputs[0][0][0][0][0]), HALF = sizeof(head.doutputs[0][0]);
        const auto doutputs = wgmma_descriptor(head.doutputs, sizeof(head.doutputs[0][0][0]), MATRIX);
        Gram gram[2];
        keep_in_place(sums);
        if constexpr (HALVES == 2) keep_in_place(low_sums);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < PAIRS; ++k) {
            if (k > 1) wgmma_wait_group<1>();
            load_gram(gram[k % 2], step, k);
            wgmma_fence();
            const auto right = moved(doutputs, k * HALVES * HALF);
            wgmma_mma_async_by_rows(sums, gram[k % 2][0], right);
            if constexpr (HALVES == 2) {
                wgmma_mma_async_by_rows(sums, gram[k % 2][HALVES - 1], right);
                wgmma_mma_async_by_rows(low_sums, gram[k % 2][0], moved(right, HALF));
            }
            wgmma_commit_group();
        }
        wgmma_wait_group<0>();
        keep_in_place(sums);
        if constexpr (HALVES == 2) keep_in_place(low_sums);
    }

    // The last layer's weights of a tile of units, as right factors of outputs, or of dlogits.
    template <bool OF_DLOGITS>
    __device__ void load_last_weights(uint4 (&factors)[HALVES], int step, int turn) const {
#pragma unroll
        for (int h = 0; h < HALVES; ++h) factors[h] = ldmatrix<OF_DLOGITS>(head.weights[step % 2][turn][h][0][0] + 4 * lane);
    }

    // This block's part of the logits += outputs V.
    __device__ static void add_logits(float (&logits)[2][4], float (&low)[2][4], const unsigned (&left)[HALVES][4],
                                      const uint4 (&of_units)[HALVES]) {
#pragma unroll
        for (int h = 0; h < HALVES; ++h) {
            float(&sums)[2][4] = h == 0 ? logits : low;
            mma_m16n8k16_f16(sums[0], left[0], of_units[h].x, of_units[h].y);
            mma_m16n8k16_f16(sums[1], left[0], of_units[h].z, of_units[h].w);
            if (h == 0) continue;
            mma_m16n8k16_f16(low[0], left[HALVES - 1], of_units[0].x, of_units[0].y);
            mma_m16n8k16_f16(low[1], left[HALVES - 1], of_units[0].z, of_units[0].w);
        }
    }

    // To the blocks that own the images. The warps of the last layer may read outputs.
    __device__ void send_logits(int step, const float (&logits)[2][4]) {
        const int parity = step % 2, g = lane / 4, t = lane % 4;
#pragma unroll
        for (int n = 0; n < 2; ++n) {
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
        // A float's bits in an order of integers, for which the warp has an instruction; so it has for sums. Powers are at
        // most 1, so their sum, with every class twice, is below 2^32 in units of 2^-26.
        const auto ordered = [](int bits) { return bits ^ (bits >> 31 & 0x7fffffff); };
        const int most = __reduce_max_sync(~0u, ordered(static_cast<int>(__float_as_uint(logit))));
        largest = __uint_as_float(static_cast<unsigned>(ordered(most)));
        const float power = __expf(logit - largest);
        constexpr float UNIT = 1.0f / (1 << 26);
        sum = __reduce_add_sync(~0u, __float2uint_rn(power * (1.0f / UNIT))) * (0.5f * UNIT);
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
    __device__ void make_doutputs(int step, unsigned active) {
        const int parity = step % 2;
        uint4 of_classes[TURNS][HALVES];
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) load_last_weights<true>(of_classes[turn], step, turn);
        mbarrier_wait_parity(head.dlogits_in[parity], step / 2 % 2);
        unsigned left[HALVES][4];
#pragma unroll
        for (int h = 0; h < HALVES; ++h) ldmatrix<true>(left[h], dlogits_row(head, parity, h, warp, false));
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            float sums[2][4] = {}, low[2][4] = {};
#pragma unroll
            for (int h = 0; h < HALVES; ++h) {
                float(&own)[2][4] = h == 0 ? sums : low;
                mma_m16n8k16_f16(own[0], left[h], of_classes[turn][0].x, of_classes[turn][0].z);
                mma_m16n8k16_f16(own[1], left[h], of_classes[turn][0].y, of_classes[turn][0].w);
                if (h == 0) continue;
                mma_m16n8k16_f16(low[0], left[0], of_classes[turn][h].x, of_classes[turn][h].z);
                mma_m16n8k16_f16(low[1], left[0], of_classes[turn][h].y, of_classes[turn][h].w);
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
                        two[j] = active >> (turn * 8 + n * 4 + 2 * i + j) & 1 ? sum : 0.0f;
                    }
                    const unsigned kept = i == 0 && n == 0 ? ~1u : ~0u;  // a bit for the tag
                    const Halves halves = scaled_halves_of(two[0], two[1], kept);
                    units[0][2 * i + n] = halves.high;
                    if constexpr (HALVES == 2) units[HALVES - 1][2 * i + n] = halves.low;
                }
            }
#pragma unroll
            for (int h = 0; h < HALVES; ++h) {
#pragma unroll
                for (int i = 0; i < 4; ++i) head.doutputs[warp][h][i / 2][turn][i % 2][lane] = units[h][i];
                post(epoch.doutputs_of(step, rank, warp, turn) + h * WARP,
                     make_uint4(units[h][0] | epoch.tag(step), units[h][1], units[h][2], units[h][3]));
            }
        }
        if constexpr (WARPGROUPS) fence_proxy_async();
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
    Gram grams[GRAMS_EARLY ? PAIRS : 1];
    float bias;  // of this lane's class
    int labels[IMAGES];
    double loss = 0.0, correct = 0.0;
};

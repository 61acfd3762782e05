// The last layer, softmax and cross-entropy, in every block: all blocks with the same thin units have the same part of the last
// layer, as float32 in registers and as bfloat16 in shared memory. Parts of logits travel once; then each block has them all.
#pragma once
#include "streamed/epoch_sums.cuh"

class Head {
  public:
    double loss = 0.0;  // of this thread's images, in one block
    int right = 0;

    __device__ Head(char* memory, const Own& own, const int* labels, uint4* mail)
        : memory(memory), outputs(memory + activations_at(DEPTH)), weights(memory + LAST_WEIGHTS_AT),
          dlogits(memory + DLOGITS_AT), bias(reinterpret_cast<float*>(memory + LAST_BIAS_AT)), labels(labels), mail(mail),
          own(own) {}

    template <bool STORES>
    __device__ void copy(float* parameters) {
        float* const stored = parameters + weight_begin(DEPTH);
        const Place place;
#pragma unroll
        for (int i = 0; i < LAST_TILES; ++i) {
#pragma unroll
            for (int n = 0; n < 8; ++n) {
                const int at = input_stored(place.unit(i, n)), unit = own.thin * share_of(true) + at, c = place.class_of(n);
                const bool is_there = UNITS % (THIN * LAST_UNITS) == 0 || at < share_of(true) && unit < UNITS;
                if (c >= CLASS_COUNT || !is_there) masters[i][n] = 0.0f;
                else if (!STORES) masters[i][n] = stored[unit * CLASS_COUNT + c];
                else if (own.thick == 0) stored[unit * CLASS_COUNT + c] = masters[i][n];
            }
            if (!STORES) publish(place, i);
        }
        if (threadIdx.x < CLASS_COUNT) {
            float* const of_class = parameters + bias_begin(DEPTH) + threadIdx.x;
            if (!STORES) bias[threadIdx.x] = *of_class;
            else if (blockIdx.x == 0) *of_class = bias[threadIdx.x];
        }
    }

    // From the last hidden layer's outputs to their gradients, which replace them. `update` follows, once these are under way.
    __device__ void run(int step, float rate, bool with_totals) {
        // Threads of a unit, which has two images: an even one goes on with the first, an odd one with the other.
        constexpr int ADDERS = TAKERS / LOGIT_UNITS < THIN ? TAKERS / LOGIT_UNITS : THIN;
        static_assert(ADDERS % 2 == 0);
        const Place place;
        const int unit = place.thread / ADDERS, image = unit / WARP * 16 + place.thread % 2 * 8 + unit % WARP / 4;
        const bool is_there = threadIdx.x < LOGIT_UNITS * ADDERS;
        int label = 0;
        if (is_there && image < BATCH) label = labels[step * BATCH + image];
        post_logits(place);
        unsigned active[LAST_TILES];  // a bit for each of this lane's outputs that is not 0
#pragma unroll
        for (int i = 0; i < LAST_TILES; ++i) active[i] = active_in(place, i);
        if (is_there) {
            const uint4* const from = mail + LOGIT_PARTS_AT + rounds.slot() * THIN * LOGIT_UNITS + unit;
            float sums[8] = {}, four[4];
            add_own_parts<THIN, ADDERS>(sums, from, LOGIT_UNITS, rounds.tag(), place.thread);
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                const float first = sums[n / 2 * 4 + n % 2], other = sums[n / 2 * 4 + 2 + n % 2];
                four[n] = (place.thread % 2 ? other : first) + __shfl_xor_sync(~0u, place.thread % 2 ? first : other, 1);
#pragma unroll
                for (int lanes = 2; lanes < ADDERS; lanes *= 2) four[n] += __shfl_xor_sync(~0u, four[n], lanes);
            }
            softmax<ADDERS>(four, unit % 4, image, label, place.thread % ADDERS < 2, with_totals);
        }
        ++rounds.number;
        fence_proxy_async();
        bar_sync(1, TAKERS);
        backward(place, active, rate);
        fence_proxy_async();
        bar_sync(1, TAKERS);
    }
    // What only the next step reads: the weights as bfloat16, and the bias.
    __device__ void update(float rate) {
        const Place place;
#pragma unroll
        for (int i = 0; i < LAST_TILES; ++i) publish(place, i);
        if (place.thread / CLASS_ROWS == TAKERS / CLASS_ROWS - 1) update_bias(place.thread % CLASS_ROWS, rate);
    }

    // By block 0, after its last step: sums of threads, in their order.
    __device__ void add_totals(double* totals) const {
        double* const both = reinterpret_cast<double*>(memory + LOGITS_AT);  // what streams may still be on its way
        bar_sync(1, TAKERS);
        both[2 * threadIdx.x] = loss, both[2 * threadIdx.x + 1] = right;
        bar_sync(1, TAKERS);
        if (threadIdx.x >= 2) return;
        double sum = 0.0;
        for (int i = 0; i < TAKERS; ++i) sum += both[2 * i + threadIdx.x];
        totals[threadIdx.x] += sum;
    }

  private:
    // A thread's places. Each step derives them and its addresses anew: the registers are full.
    struct Place {
        int thread, team, warp, g, t;
        __device__ Place() {
            thread = threadIdx.x;
            opaque(thread);
            team = thread / TEAM_THREADS, warp = thread / WARP % GROUP_WARPS, g = thread % WARP / 4, t = thread % 4;
        }
        // Of number n of a fragment of sixteen columns in tile i of this team.
        __device__ int unit(int i, int n) const { return (TEAMS * i + team) * TILE + warp * 16 + n / 2 % 2 * 8 + g; }
        __device__ int class_of(int n) const { return n / 4 * 8 + 2 * t + n % 2; }
        __device__ int edge(int i) const { return (TEAMS * i + team) * (TILE / EDGE); }
    };

    __device__ void publish(const Place& place, int i) {
#pragma unroll
        for (int n = 0; n < 8; n += 2) {
            const int unit = place.unit(i, n);
            char* const to = weights + ((unit / EDGE * 2 + n / 4) * EDGE + unit % EDGE) * 16 + place.t * 4;
            *reinterpret_cast<unsigned*>(to) = cvt_bf16x2(masters[i][n], masters[i][n + 1]);
        }
    }

    __device__ void post_logits(const Place& place) const {
        float sums[2][4] = {};
        keep_in_place(sums);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < LAST_TILES; ++i) {
            const auto units = wgmma_descriptor(outputs + place.edge(i) * CHUNKS * MATRIX_BYTES, CHUNKS * MATRIX_BYTES, MATRIX_BYTES);
            const auto factors = wgmma_descriptor(weights + place.edge(i) * 2 * MATRIX_BYTES, 2 * MATRIX_BYTES, MATRIX_BYTES);
#pragma unroll
            for (int k = 0; k < TILE / 16; ++k) {
                wgmma_bf16<true, true>(sums, moved_low(units, 2 * k * CHUNKS * MATRIX_BYTES),
                                       moved_low(factors, 2 * k * 2 * MATRIX_BYTES));
            }
        }
        wgmma_commit_group();
        wgmma_wait_group<0>();
        keep_in_place(sums);
        const int thread = place.thread;
        float4* const other = reinterpret_cast<float4*>(memory + LOGITS_AT) + thread % TEAM_THREADS;
        if (place.team == 1) {
            other[0] = make_float4(sums[0][0], sums[0][1], sums[0][2], sums[0][3]);
            other[TEAM_THREADS] = make_float4(sums[1][0], sums[1][1], sums[1][2], sums[1][3]);
        }
        bar_sync(1, TAKERS);
        if (thread < LOGIT_UNITS && thread * THICK / LOGIT_UNITS == own.thick) {  // of the first team
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float4 four = other[i * TEAM_THREADS];
                sums[i][0] += four.x, sums[i][1] += four.y, sums[i][2] += four.z, sums[i][3] += four.w;
            }
            uint4* const to = mail + LOGIT_PARTS_AT + (rounds.slot() * THIN + own.thin) * LOGIT_UNITS + thread;
            post(to, part_of(sums[0], sums[1], rounds.tag()));
        }
    }

    // Of an image, four classes; four lanes, `t` of them, have all classes.
    template <int ADDERS>
    __device__ void softmax(float (&four)[4], int t, int image, int label, bool writes, bool with_totals) {
        const auto class_of = [t](int n) { return n / 2 * 8 + 2 * t + n % 2; };
        float largest = -3.4e38f, sum = 0.0f;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            four[n] = class_of(n) < CLASS_COUNT ? four[n] + bias[class_of(n)] : -3.4e38f;
            largest = fmaxf(largest, four[n]);
        }
#pragma unroll
        for (int bit = 1; bit < 4; bit *= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, bit * ADDERS));
        float powers[4];
#pragma unroll
        for (int n = 0; n < 4; ++n) powers[n] = __expf(four[n] - largest), sum += powers[n];
#pragma unroll
        for (int bit = 1; bit < 4; bit *= 2) sum += __shfl_xor_sync(~0u, sum, bit * ADDERS);
        char* const first = dlogits + unit_at(2 * t, image / EDGE) + image % EDGE * 2;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            const float gradient = (__fdividef(powers[n], sum) - (class_of(n) == label ? 1.0f : 0.0f)) * GRADIENT_SCALE;
            const unsigned bits = cvt_bf16x2(class_of(n) < CLASS_COUNT && image < BATCH ? gradient : 0.0f, 0.0f);
            char* const to = first + unit_at(n / 2 * EDGE + n % 2, 0);
            if (writes) *reinterpret_cast<unsigned short*>(to) = static_cast<unsigned short>(bits);
        }
        if (!with_totals || blockIdx.x != 0) return;
        int best = CLASS_ROWS;
        float wanted = 0.0f;
#pragma unroll
        for (int n = 3; n >= 0; --n) {
            if (four[n] == largest) best = class_of(n);
            if (class_of(n) == label) wanted = four[n];
        }
#pragma unroll
        for (int bit = 1; bit < 4; bit *= 2) {
            best = min(best, __shfl_xor_sync(~0u, best, bit * ADDERS));
            wanted += __shfl_xor_sync(~0u, wanted, bit * ADDERS);
        }
        if (image < BATCH && t == 0 && writes) {
            loss += largest - wanted + logf(sum);
            right += best == label;
        }
    }

    // Of this lane's outputs in tile i: rows g and g + 8 of its warp's sixteen, two images in each chunk.
    __device__ unsigned active_in(const Place& place, int i) const {
        const char* const tile = outputs + place.edge(i) * CHUNKS * MATRIX_BYTES + place.t * 4;
        unsigned bits = 0;
#pragma unroll
        for (int j = 0; j < CHUNKS; j += 2) {
            unsigned words[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                words[k] = *reinterpret_cast<const unsigned*>(tile + unit_at(place.warp * 16 + place.g + k % 2 * 8, j + k / 2));
            }
            bits |= bits_of(words) << j * 4;
        }
        return bits;
    }

    __device__ void backward(const Place& place, const unsigned (&active)[LAST_TILES], float rate) {
#pragma unroll
        for (int i = 0; i < LAST_TILES; ++i) {
            char* const tile = outputs + place.edge(i) * CHUNKS * MATRIX_BYTES;
            float doutputs[CHUNKS][4] = {}, gradient[2][4] = {};
            keep_in_place(doutputs), keep_in_place(gradient);
            wgmma_fence();
            wgmma_bf16<false, true>(doutputs,
                                    wgmma_descriptor(weights + place.edge(i) * 2 * MATRIX_BYTES, MATRIX_BYTES, 2 * MATRIX_BYTES),
                                    wgmma_descriptor(dlogits, CHUNKS * MATRIX_BYTES, MATRIX_BYTES));
            const auto units = wgmma_descriptor(tile, MATRIX_BYTES, CHUNKS * MATRIX_BYTES);
            const auto classes = wgmma_descriptor(dlogits, MATRIX_BYTES, CHUNKS * MATRIX_BYTES);
#pragma unroll
            for (int k = 0; k < ROWS / 16; ++k) {
                wgmma_bf16<false, false>(gradient, moved_low(units, 2 * k * MATRIX_BYTES), moved_low(classes, 2 * k * MATRIX_BYTES));
            }
            wgmma_commit_group();
            wgmma_wait_group<0>();
            keep_in_place(doutputs), keep_in_place(gradient);
            bar_sync(2 + place.team, TEAM_THREADS);  // outputs and weights have been read
            // Outputs stand in their stored order, gradients in their own.
#pragma unroll
            for (int j = 0; j < CHUNKS; j += 2) {
                unsigned words[4];
#pragma unroll
                for (int k = 0; k < 4; ++k) words[k] = cvt_bf16x2(doutputs[j + k / 2][k % 2 * 2], doutputs[j + k / 2][k % 2 * 2 + 1]);
                mask(words, active[i] >> j * 4);
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    const int unit = input_stored(place.warp * 16 + place.g + k % 2 * 8);
                    *reinterpret_cast<unsigned*>(tile + unit_at(unit, j + k / 2) + place.t * 4) = words[k];
                }
            }
#pragma unroll
            for (int n = 0; n < 8; ++n) masters[i][n] -= rate * gradient[n / 4][n % 4];
        }
    }

    __device__ void update_bias(int c, float rate) const {
        float sum = 0.0f;
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            const uint4 images = *reinterpret_cast<const uint4*>(dlogits + ((c / EDGE * CHUNKS + chunk) * EDGE + c % EDGE) * 16);
            const unsigned words[4] = {images.x, images.y, images.z, images.w};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float2 two = two_of(words[i]);
                sum += two.x + two.y;
            }
        }
        bias[c] -= rate * sum;
    }

    char* const memory;
    char *const outputs, *const weights, *const dlogits;
    float* const bias;
    const int* const labels;
    uint4* const mail;
    const Own own;
    Rounds rounds;
    float masters[LAST_TILES][8];
};

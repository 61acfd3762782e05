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
          own(own), warp(threadIdx.x / WARP % GROUP_WARPS), g(threadIdx.x % WARP / 4), t(threadIdx.x % 4),
          team(threadIdx.x / TEAM_THREADS) {}

    template <bool STORES>
    __device__ void copy(float* parameters) {
        float* const stored = parameters + weight_begin(DEPTH);
#pragma unroll
        for (int i = 0; i < LAST_TILES; ++i) {
#pragma unroll
            for (int n = 0; n < 8; ++n) {
                const int at = input_stored(unit_of(i, n)), unit = own.thin * share_of(true) + at, c = class_of(n);
                const bool is_there = UNITS % (THIN * LAST_UNITS) == 0 || at < share_of(true) && unit < UNITS;
                if (c >= CLASS_COUNT || !is_there) masters[i][n] = 0.0f;
                else if (!STORES) masters[i][n] = stored[unit * CLASS_COUNT + c];
                else if (own.thick == 0) stored[unit * CLASS_COUNT + c] = masters[i][n];
            }
            if (!STORES) publish(i);
        }
        if (threadIdx.x < CLASS_COUNT) {
            float* const of_class = parameters + bias_begin(DEPTH) + threadIdx.x;
            if (!STORES) bias[threadIdx.x] = *of_class;
            else if (blockIdx.x == 0) *of_class = bias[threadIdx.x];
        }
    }

    // From the last hidden layer's outputs to their gradients, which replace them; updates the last layer.
    __device__ void run(int step, float rate, bool with_totals) {
        constexpr int ADDERS = TAKERS / LOGIT_UNITS < THIN ? TAKERS / LOGIT_UNITS : THIN;  // threads of a unit
        const int unit = threadIdx.x / ADDERS, image = unit / WARP * 16 + unit % WARP / 4;
        int label[2] = {};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (unit < LOGIT_UNITS && image + 8 * i < BATCH) label[i] = labels[step * BATCH + image + 8 * i];
        }
        post_logits();
        if (unit < LOGIT_UNITS) {
            const uint4* const from = mail + LOGIT_PARTS_AT + rounds.slot() * THIN * LOGIT_UNITS + unit;
            float sums[8] = {};
            add_parts<THIN, ADDERS>(sums, from, LOGIT_UNITS, rounds.tag());
            softmax<ADDERS>(sums, unit, image, label, with_totals);
        }
        ++rounds.number;
        fence_proxy_async();
        bar_sync(1, TAKERS);
        backward(rate);
        if (threadIdx.x / CLASS_ROWS == TAKERS / CLASS_ROWS - 1) update_bias(threadIdx.x % CLASS_ROWS, rate);
        fence_proxy_async();
        bar_sync(1, TAKERS);
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
    // Of number n of a fragment of sixteen columns in tile i of this team.
    __device__ int unit_of(int i, int n) const { return (TEAMS * i + team) * TILE + warp * 16 + n / 2 % 2 * 8 + g; }
    __device__ int class_of(int n) const { return n / 4 * 8 + 2 * t + n % 2; }

    __device__ void publish(int i) {
#pragma unroll
        for (int n = 0; n < 8; n += 2) {
            const int unit = unit_of(i, n);
            char* const to = weights + ((unit / EDGE * 2 + n / 4) * EDGE + unit % EDGE) * 16 + t * 4;
            *reinterpret_cast<unsigned*>(to) = cvt_bf16x2(masters[i][n], masters[i][n + 1]);
        }
    }

    __device__ void post_logits() const {
        float sums[2][4] = {};
        keep_in_place(sums);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < LAST_TILES; ++i) {
#pragma unroll
            for (int k = 0; k < TILE / 16; ++k) {
                const int edge = (TEAMS * i + team) * (TILE / EDGE) + 2 * k;
                const char* const units = outputs + edge * CHUNKS * MATRIX_BYTES;
                wgmma_bf16<true, true>(sums, wgmma_descriptor(units, CHUNKS * MATRIX_BYTES, MATRIX_BYTES),
                                       wgmma_descriptor(weights + edge * 2 * MATRIX_BYTES, 2 * MATRIX_BYTES, MATRIX_BYTES));
            }
        }
        wgmma_commit_group();
        wgmma_wait_group<0>();
        keep_in_place(sums);
        float4* const other = reinterpret_cast<float4*>(memory + LOGITS_AT) + threadIdx.x % TEAM_THREADS;
        if (team == 1) {
            other[0] = make_float4(sums[0][0], sums[0][1], sums[0][2], sums[0][3]);
            other[TEAM_THREADS] = make_float4(sums[1][0], sums[1][1], sums[1][2], sums[1][3]);
        }
        bar_sync(1, TAKERS);
        if (team == 0 && threadIdx.x < LOGIT_UNITS && static_cast<int>(threadIdx.x) * THICK / LOGIT_UNITS == own.thick) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float4 four = other[i * TEAM_THREADS];
                sums[i][0] += four.x, sums[i][1] += four.y, sums[i][2] += four.z, sums[i][3] += four.w;
            }
            uint4* const to = mail + LOGIT_PARTS_AT + (rounds.slot() * THIN + own.thin) * LOGIT_UNITS + threadIdx.x;
            post(to, part_of(sums[0], sums[1], rounds.tag()));
        }
    }

    // Of two images eight rows apart, four classes each; four lanes have all classes.
    template <int ADDERS>
    __device__ void softmax(const float (&sums)[8], int unit, int image, const int (&label)[2], bool with_totals) {
        const int t = unit % 4;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float four[4];
            float largest = -3.4e38f, sum = 0.0f;
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                const int c = n / 2 * 8 + 2 * t + n % 2;
                four[n] = c < CLASS_COUNT ? sums[n / 2 * 4 + 2 * i + n % 2] + bias[c] : -3.4e38f;
                largest = fmaxf(largest, four[n]);
            }
#pragma unroll
            for (int bit = 1; bit < 4; bit *= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, bit * ADDERS));
            float powers[4];
#pragma unroll
            for (int n = 0; n < 4; ++n) powers[n] = __expf(four[n] - largest), sum += powers[n];
#pragma unroll
            for (int bit = 1; bit < 4; bit *= 2) sum += __shfl_xor_sync(~0u, sum, bit * ADDERS);
            const int at = image + 8 * i;
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                const int c = n / 2 * 8 + 2 * t + n % 2;
                const float gradient = (__fdividef(powers[n], sum) - (c == label[i] ? 1.0f : 0.0f)) * GRADIENT_SCALE;
                const unsigned bits = cvt_bf16x2(c < CLASS_COUNT && at < BATCH ? gradient : 0.0f, 0.0f);
                char* const to = dlogits + ((c / EDGE * CHUNKS + at / EDGE) * EDGE + c % EDGE) * 16 + at % EDGE * 2;
                if (threadIdx.x % ADDERS == 0) *reinterpret_cast<unsigned short*>(to) = static_cast<unsigned short>(bits);
            }
            if (!with_totals || blockIdx.x != 0) continue;
            int best = CLASS_ROWS;
            float wanted = 0.0f;
#pragma unroll
            for (int n = 3; n >= 0; --n) {
                const int c = n / 2 * 8 + 2 * t + n % 2;
                if (four[n] == largest) best = c;
                if (c == label[i]) wanted = four[n];
            }
#pragma unroll
            for (int bit = 1; bit < 4; bit *= 2) {
                best = min(best, __shfl_xor_sync(~0u, best, bit * ADDERS));
                wanted += __shfl_xor_sync(~0u, wanted, bit * ADDERS);
            }
            if (at < BATCH && t == 0 && threadIdx.x % ADDERS == 0) {
                loss += largest - wanted + logf(sum);
                right += best == label[i];
            }
        }
    }

    __device__ void backward(float rate) {
#pragma unroll
        for (int i = 0; i < LAST_TILES; ++i) {
            const int edge = (TEAMS * i + team) * (TILE / EDGE);
            char* const tile = outputs + edge * CHUNKS * MATRIX_BYTES;
            float doutputs[CHUNKS][4] = {}, gradient[2][4] = {};
            keep_in_place(doutputs), keep_in_place(gradient);
            wgmma_fence();
            wgmma_bf16<false, true>(doutputs, wgmma_descriptor(weights + edge * 2 * MATRIX_BYTES, MATRIX_BYTES, 2 * MATRIX_BYTES),
                                    wgmma_descriptor(dlogits, CHUNKS * MATRIX_BYTES, MATRIX_BYTES));
#pragma unroll
            for (int k = 0; k < ROWS / 16; ++k) {
                const int images = 2 * k * MATRIX_BYTES;
                wgmma_bf16<false, false>(gradient, wgmma_descriptor(tile + images, MATRIX_BYTES, CHUNKS * MATRIX_BYTES),
                                         wgmma_descriptor(dlogits + images, MATRIX_BYTES, CHUNKS * MATRIX_BYTES));
            }
            wgmma_commit_group();
            wgmma_wait_group<0>();
            keep_in_place(doutputs), keep_in_place(gradient);
            bar_sync(2 + team, TEAM_THREADS);  // outputs and weights have been read
            // Rows g and g + 8 of this warp's sixteen, which stand in their stored order; gradients stand in their own.
            unsigned words[CHUNKS][2];
            const int row = warp * 16 + g;
#pragma unroll
            for (int j = 0; j < CHUNKS; ++j) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const unsigned old = *reinterpret_cast<const unsigned*>(tile + unit_at(row + 8 * half, j) + t * 4);
                    words[j][half] = masked(cvt_bf16x2(doutputs[j][2 * half], doutputs[j][2 * half + 1]), old);
                }
            }
            __syncwarp();
#pragma unroll
            for (int j = 0; j < CHUNKS; ++j) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    *reinterpret_cast<unsigned*>(tile + unit_at(input_stored(row + 8 * half), j) + t * 4) = words[j][half];
                }
            }
#pragma unroll
            for (int n = 0; n < 8; ++n) masters[i][n] -= rate * gradient[n / 4][n % 4];
            publish(i);
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
    const int warp, g, t, team;
    Rounds rounds;
    float masters[LAST_TILES][8];
};

// A whole epoch in one cooperative launch, for networks with hidden layers; blocks exchange messages, without barriers.
//
// Who holds what. Units of a layer are divided into THIN shares, those of the next into THICK shares, and so in turn. Block
// (thin, thick) has each layer's weights between its thin and its thick units, whichever of both are inputs. The classes are
// one share: all blocks with the same thin units have the last layer alike.
//
//   registers of a block      its weights; two warp groups divide the thick units
//   its shared memory         the weights as factors; the batch's activations of its thin and thick units, which their
//                             gradients replace; biases
//
// What travels, through L2, in messages of 16 or 8 bytes, a round's tag in the lowest bit of each: no barriers or fences
//
//   outputs, their gradients  blocks with the same units         parts of a unit's sum to its block, sums to all
//   logits                    all blocks                         parts to all: each computes the softmax of all images
//   or, if those are many     blocks with the same thick units   parts to a warp that has two images
//      and their gradients    all blocks                         to all
//
// While a gradient's parts travel, blocks update the weights that they have just multiplied by.
#include "grid/message_head.cuh"

// The weights of layer L and of those above it, in registers: this thread's fragments of a tile of thin by thick units.
template <int L>
struct Weights : Weights<L + 1> {
    float own[half_of(thick_edges(L))][4];
};
template <>
struct Weights<DEPTH + 1> {};

class Epoch {
  public:
    __device__ Epoch(unsigned short* memory, const unsigned short* images, const int* labels, float* parameters, uint4* mail,
                     int steps, float rate)
        : memory(memory), biases(reinterpret_cast<float*>(memory + FLOATS_AT)), images(images), parameters(parameters),
          mail(mail), totals(*reinterpret_cast<Totals*>(reinterpret_cast<char*>(memory) + TOTALS_AT)),
          head(totals, memory, biases, labels), steps(steps), rate(rate) {}

    __device__ __forceinline__ void run(bool with_totals) {
        for (int i = threadIdx.x; i < SHARED_BYTES / 16; i += THREADS) {
            reinterpret_cast<uint4*>(memory)[i] = make_uint4(0, 0, 0, 0);  // what no unit fills stays 0
        }
        __syncthreads();
        copy<0, false>();
        fetch_images(0);
        meet();
        for (int step = 0; step < steps; ++step) {
            if (step + 1 < steps) fetch_images(step + 1);
            head.begin(own, step);
            forward<0>(step);
            top(with_totals);
            backward<LAST - 1>(step);
        }
        copy<0, true>();
    }

    __device__ __forceinline__ void add_totals(double* all) {
        // In one order: pairs of images, then blocks.
        constexpr int OWNERS = ALONE ? 1 : PAIRS < THIN * THICK ? PAIRS : THIN * THICK;
        __syncthreads();
        if (blockIdx.x >= OWNERS || threadIdx.x >= WARP) return;
        double both[2] = {};
        for (const auto& pair : totals) both[0] += pair[0], both[1] += pair[1];
        uint4 unit;
        memcpy(&unit, both, sizeof unit);
        unit.x |= 1u;
        if (threadIdx.x == 0) post(mail.totals + blockIdx.x, unit);
        if (blockIdx.x != 0) return;
        for (int block = 0; block < OWNERS; ++block) {
            uint4 units[1] = {{0, 0, 0, 0}};
            complete(units, 1, [&](int) { return mail.totals + block; });
            memcpy(both, units, sizeof both);
            if (threadIdx.x == 0) all[0] += both[0], all[1] += both[1];
        }
    }

  private:
    // After it, factors that any thread has written or fetched can be multiplied by.
    __device__ __forceinline__ void meet() const {
        cp_async_wait_all();
        if constexpr (HAS_WGMMA) fence_proxy_async();
        __syncthreads();
    }

    // Factors. A tile of weights has thin units in its matrices' rows; activations have images.
    template <int L>
    __device__ __forceinline__ Factor weights(bool along_thin) const {
        constexpr int thick = thin_edges(L) * MATRIX, low = thick_edges(L) * thick;
        return {memory + weights_at(L), along_thin ? MATRIX : thick, along_thin ? thick : MATRIX, low};
    }
    template <int L>
    __device__ unsigned short* activations() const {
        return memory + activations_at(L);
    }
    template <int L>
    static constexpr int LOW_AT = stored_edges(L) * ROW_EDGES * MATRIX;
    // Images as rows, a sum along units; or the other way round.
    template <int L>
    __device__ __forceinline__ Factor by_image(const unsigned short* first) const {
        return Factor{first, ROW_EDGES * MATRIX, MATRIX, LOW_AT<L>}.beside(own.first_row_edge());
    }
    template <int L>
    __device__ __forceinline__ Factor by_unit(const unsigned short* first) const {
        return {first, MATRIX, ROW_EDGES * MATRIX, LOW_AT<L>};
    }
    template <int L>
    __device__ const unsigned short* inputs(int step) const {
        if constexpr (L == 0) return memory + IMAGES_AT + step % 2 * IMAGE_NUMBERS;
        else if constexpr (L > DEPTH) return memory + DLOGITS_AT;
        else return activations<L>();
    }

    __device__ __forceinline__ void fetch_images(int step) const {
        const int share = is_thin(0) ? own.thin : own.thick;
        const auto* from = images + (step * (is_thin(0) ? THIN : THICK) + share) * IMAGE_NUMBERS;
        auto* to = memory + IMAGES_AT + step % 2 * IMAGE_NUMBERS;
        for (int i = threadIdx.x * 8; i < IMAGE_NUMBERS; i += THREADS * 8) {
            cp_async_16(reinterpret_cast<float*>(to + i), reinterpret_cast<const float*>(from + i));
        }
    }

    // Activations FROM, which are L or L + 1, by layer L's weights: this block's part of the others.
    template <int L, int FROM, int COLS>
    __device__ __forceinline__ void by_weights(float (&sums)[COLS][4], const unsigned short* from) const {
        multiply<stored_edges(FROM) / 2, false, is_thin(FROM), FROM != 0, true>(
            sums, by_image<FROM>(from), weights<L>(is_thin(FROM)).beside(own.first_col(COLS)));
    }

    __device__ static void activate(float (&numbers)[4], const float* bias, int col, int t) {
        const float2 two = reinterpret_cast<const float2*>(bias + col * EDGE)[t];
        numbers[0] = relu_of(numbers[0] + two.x), numbers[1] = relu_of(numbers[1] + two.y);
        numbers[2] = relu_of(numbers[2] + two.x), numbers[3] = relu_of(numbers[3] + two.y);
    }

    template <int L>
    __device__ __forceinline__ void forward(int step) {
        if constexpr (L < LAST) {
            own.forget();
            float sums[cols_of(edges_of(L + 1))][4];
            by_weights<L, L>(sums, inputs<L>(step));
            const Sum<L + 1> sum(own, mail, {2 * step});
            sum.post_all(sums);
            sum.add_up([&](float(&numbers)[4], unsigned tag) {
                activate(numbers, biases + bias_at(L), sum.col(), sum.at() % 4);
                return whole_of(numbers, tag);
            });
            sum.receive(activations<L + 1>(), LOW_AT<L + 1>);
            meet();
            forward<L + 1>(step);
        }
    }

    // The last layer: softmax, and back to the last hidden layer's gradients.
    __device__ __forceinline__ void top(bool with_totals) {
        constexpr int EDGES = edges_of(LAST);
        float logits[cols_of(2)][4], sums[cols_of(EDGES)][4];
        by_weights<LAST, LAST>(logits, activations<LAST>());
        head.run(own, mail, logits, with_totals);
        meet();
        by_weights<LAST, LAST + 1>(sums, memory + DLOGITS_AT);
        update<LAST>(0);
#pragma unroll
        for (int n = 0; n < cols_of(EDGES); ++n) {
            const int col = own.first_col(cols_of(EDGES)) + n;
            if (col >= EDGES) continue;
            unsigned short* const outputs = activations<LAST>();
            unsigned* const word = &word_at(outputs, own.row_tile(), col, 0, own.lane);
            mask(sums[n], bits_at(word, LOW_AT<LAST>));
            put(word, LOW_AT<LAST>, whole_of(sums[n], 0));
        }
        meet();
    }

    // The gradients of outputs instead of them, where they are not 0; updates of the layers between.
    template <int L>
    __device__ __forceinline__ void backward(int step) {
        if constexpr (L > 0) {
            own.forget();
            float sums[cols_of(edges_of(L))][4];
            by_weights<L, L + 1>(sums, inputs<L + 1>(step));
            const Sum<L> sum(own, mail, {2 * step + 1});
            sum.post_all(sums);
            uint2 outputs = {};
            if (sum.adds()) outputs = bits_at(sum.word(activations<L>()), LOW_AT<L>);
            update<L>(step);
            sum.add_up([&](float(&numbers)[4], unsigned tag) {
                mask(numbers, outputs);
                return whole_of(numbers, tag);
            });
            sum.receive(activations<L>(), LOW_AT<L>);
            meet();
            backward<L - 1>(step);
        } else {
            update<0>(step);
            meet();
        }
    }

    // weights -= rate * inputs^T doutputs, and their factors; biases likewise. All threads have used both by then.
    template <int L>
    __device__ __forceinline__ void update(int step) {
        constexpr int COLS = half_of(thick_edges(L)), A = thin_of(L), B = thick_of(L);
        own.forget();
        const int first = own.group * COLS;
        float sums[COLS][4];
        multiply<ROW_EDGES / 2, true, true, A != 0, B != 0>(sums, by_unit<A>(inputs<A>(step)),
                                                            by_unit<B>(inputs<B>(step)).beside(first));
        __syncthreads();
        auto& weights = static_cast<Weights<L>&>(all_weights).own;
#pragma unroll
        for (int n = 0; n < COLS; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) weights[n][i] -= rate * sums[n][i];
        }
        own.forget();
        publish_weights<L>();
        update_bias<L>(inputs<L + 1>(step));
    }

    template <int L>
    __device__ __forceinline__ void publish_weights() {
        constexpr int COLS = half_of(thick_edges(L)), EDGES = thin_edges(L), LOW_PLANE = thick_edges(L) * EDGES * MATRIX / 2;
        const auto& weights = static_cast<const Weights<L>&>(all_weights).own;
        unsigned* const first = reinterpret_cast<unsigned*>(memory + weights_at(L)) +
                                (own.group * COLS * EDGES + 2 * own.warp) * MATRIX / 2 + own.lane;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (2 * own.warp + i >= EDGES) continue;
#pragma unroll
            for (int n = 0; n < COLS; ++n) {
                if (COLS * GROUPS > thick_edges(L) && own.group * COLS + n >= thick_edges(L)) continue;
                const Halves halves = halves_of(weights[n][2 * i], weights[n][2 * i + 1]);
                unsigned* const to = first + (n * EDGES + i) * MATRIX / 2;
                to[0] = halves.high;
                if constexpr (HALVES == 2) to[LOW_PLANE] = halves.low;
            }
        }
    }

    // The column of outputs of layer L that this block adds up, and whether it is the first of its blocks.
    template <int L>
    __device__ int own_col() const {
        return (is_thin(L + 1) ? own.thick : own.thin) * own_tiles_of(L + 1) / TILES;
    }
    template <int L>
    __device__ bool is_first() const {
        return (is_thin(L + 1) ? own.thick : own.thin) * own_tiles_of(L + 1) % TILES == 0;
    }

    // A warp adds up images of eight units that this block needs the biases of.
    template <int L>
    __device__ __forceinline__ void update_bias(const unsigned short* doutputs) {
        constexpr int EDGES = L == LAST ? 2 : edges_of(L + 1), LOW_PLANE = (L == LAST ? 2 * ROW_EDGES * MATRIX : LOW_AT<L + 1>) / 2;
        const int last_warps = WARPS - 1 - static_cast<int>(threadIdx.x) / WARP;
        const int edge = L == LAST ? last_warps : own_col<L>();
        if (last_warps < (L == LAST ? 2 : 1) && edge < EDGES) {
            const auto* words = reinterpret_cast<const unsigned*>(doutputs + edge * ROW_EDGES * MATRIX) + own.lane;
            float2 sum = {0.0f, 0.0f}, low = {0.0f, 0.0f};
#pragma unroll
            for (int i = 0; i < ROW_EDGES; ++i) {
                const float2 two = cvt_f32_f16x2(words[i * MATRIX / 2]);
                sum.x += two.x, sum.y += two.y;
                if constexpr (HALVES == 2) {
                    const float2 rest = cvt_f32_f16x2(words[LOW_PLANE + i * MATRIX / 2]);
                    low.x += rest.x, low.y += rest.y;
                }
            }
            sum.x += low.x * (1.0f / LOW), sum.y += low.y * (1.0f / LOW);
#pragma unroll
            for (int apart = 4; apart < WARP; apart *= 2) {
                sum.x += __shfl_xor_sync(~0u, sum.x, apart);
                sum.y += __shfl_xor_sync(~0u, sum.y, apart);
            }
            float* bias = biases + bias_at(L) + edge * EDGE + 2 * own.t();
            if (own.g() == 0) bias[0] -= rate * sum.x, bias[1] -= rate * sum.y;
        }
    }

    // Layer L's parameters and those of the layers above, from memory, or back into it.
    template <int L, bool STORES>
    __device__ __forceinline__ void copy() {
        if constexpr (L <= LAST) {
            constexpr int COLS = half_of(thick_edges(L)), A = thin_of(L), B = thick_of(L), OUTPUTS = width(L + 1);
            const int share = is_thin(L + 1) ? own.thin : L == LAST ? 0 : own.thick;
            auto& weights = static_cast<Weights<L>&>(all_weights).own;
#pragma unroll
            for (int n = 0; n < COLS; ++n) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int thin = own.warp * 16 + i / 2 * EDGE + own.g();
                    const int thick = (own.group * COLS + n) * EDGE + 2 * own.t() + i % 2;
                    const int a = own.thin * share_of(A) + thin, b = (L == LAST ? 0 : own.thick * share_of(B)) + thick;
                    const bool is_there = thin < share_of(A) && thick < share_of(B) && a < width(A) && b < width(B);
                    float* stored = parameters + weight_begins[L] + (is_thin(L) ? a * OUTPUTS + b : b * OUTPUTS + a);
                    if constexpr (!STORES) weights[n][i] = is_there ? *stored : 0.0f;
                    else if (is_there && (L < LAST || own.thick == 0)) *stored = weights[n][i];
                }
            }
            for (int i = threadIdx.x; i < edges_of(L + 1) * EDGE; i += THREADS) {
                const int at = share * share_of(L + 1) + i;
                const bool is_there = i < share_of(L + 1) && at < OUTPUTS;
                float *bias = biases + bias_at(L) + i, *stored = parameters + bias_begins[L] + at;
                if constexpr (!STORES) *bias = is_there ? *stored : 0.0f;
                else if (is_there && (L < LAST ? i / EDGE == own_col<L>() && is_first<L>() : blockIdx.x == 0)) *stored = *bias;
            }
            if constexpr (!STORES) publish_weights<L>();
            copy<L + 1, STORES>();
        }
    }

    Own own;
    unsigned short* memory;
    float* biases;
    const unsigned short* images;
    float* parameters;
    const Mail mail;
    Totals& totals;
    Head head;
    Weights<0> all_weights;
    const int steps;
    const float rate;
};

// grid_messages: a whole epoch of a network with hidden layers. In each step parameters -= learning_rate * gradients.
//   images      (steps, S, E, R / 8, 8, 8)  f16  in: S shares of the inputs, thin if the number of hidden layers is even; E
//               matrices of eight inputs, R / 8 of eight images; zeros beyond the share's inputs, and beyond the batch
//   labels      (steps, batch)  i32  in, each 0 <= label < classes
//   parameters  (count,)  f32  in, out: placed by the plan
//   mail        (units, 4)  u32  in, out: zeros before each launch
//   totals      (2,)  f64  in, out: grows by the summed loss and the number right, if with_totals
// Kind:   fused.
// Launch: cooperative, THIN_SHARES THICK_SHARES blocks of THREADS with SHARED_BYTES of shared memory each; steps of the epoch;
//   rate for the mean over a batch, divided by GRADIENT_SCALE. With FACTOR_HALVES = 1 products and messages are float16's.
// Needs:  sm_90; |weight| < 60,000.
// Order:  every sum has one order, independent of arrival; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS, 1) grid_messages(const unsigned short* images, const int* labels,
                                                                     float* parameters, unsigned* mail, double* totals,
                                                                     int steps, float rate, int with_totals) {
    extern __shared__ __align__(128) uint4 memory[];
    Epoch epoch(reinterpret_cast<unsigned short*>(memory), images, labels, parameters, reinterpret_cast<uint4*>(mail), steps,
                rate);
    epoch.run(with_totals);
    if (with_totals) epoch.add_totals(totals);
}

// A whole epoch of a network with wide hidden layers of one size, in one cooperative launch: weights never leave the chip. Blocks
// exchange sums by messages (epoch_sums.cuh), and each has its part of the last layer (epoch_head.cuh).
//
// Who holds what. A weight is a bfloat16, rounded half away from zero, and the lower 16 bits of its float32: joined they are the
// float32, bit for bit.
//
//   shared memory             the bfloat16s between the block's thin and thick units, in matrices of 8 by 8 whose rows are thick
//                             units; activations of both, in matrices whose rows are units, which their gradients replace
//   registers of updaters     the lower halves: a warp has tiles of sixteen thick units, four apart, by half of the thin units
//
// Takers multiply, exchange sums, and do the last layer. As soon as they have multiplied gradients by a layer's weights, updaters
// change these weights, while the sums travel. A layer's gradients replace its outputs once its weights are up to date. The first
// layer's old weights multiply the next images, too, and products of both steps' images correct the result.
#include "grid/stationary_plan.cuh"
#include "streamed/epoch_head.cuh"
#include "streamed/epoch_outputs.cuh"

struct Barriers {
    Barrier *images, *ready, *updated;  // of both boxes of images; a layer's factors are there; its weights have changed

    __device__ explicit Barriers(char* memory)
        : images(reinterpret_cast<Barrier*>(memory + BARRIERS_AT)), ready(images + 2), updated(ready + 1) {}
    __device__ void begin() const {
        mbarrier_init(images[0], 1), mbarrier_init(images[1], 1);
        mbarrier_init(*ready, TAKERS / WARP * LANES_ARRIVE), mbarrier_init(*updated, UPDATER_WARPS * LANES_ARRIVE);
        fence_mbarrier_init();
    }
};

class Team {
  protected:
    __device__ Team(char* memory, float* parameters, float rate, int steps)
        : memory(memory), parameters(parameters), barriers(memory), rate(rate), steps(steps) {}

    // Memory of activations; images of a step are in turn in two boxes.
    __device__ char* at(int activations) const { return memory + activations_at(activations); }
    __device__ char* images_of(int step) const { return memory + IMAGES_AT + (step & 1) * bytes_of(0); }

    char* const memory;
    float* const parameters;
    const Barriers barriers;
    const float rate;
    const int steps;
    const Own own;
};

// The lower halves of layer L's weights and of those above: two numbers in a word, as fragments have them.
template <int L>
struct Lower : Lower<L + 1> {
    unsigned words[own_pieces(L) - shared_pieces(L)][2];
};
template <>
struct Lower<DEPTH> {};

class Updaters : Team {
  public:
    __device__ Updaters(char* memory, float* parameters, float rate, int steps)
        : Team(memory, parameters, rate, steps) {}

    __device__ __forceinline__ void run() {
        copy<0, false>();
        for (int step = 0; step < steps; ++step) {
            publish();
            update<DEPTH - 1>(step);
        }
        copy<0, true>();
    }

  private:
    // The places of a warp among those that update, and of a lane in it. Each layer derives its addresses from them anew: the
    // registers are full of weights.
    struct Place {
        int row, col, lane;
        __device__ Place() {
            int thread = threadIdx.x;
            opaque(thread);
            row = thread / WARP % UPDATER_ROWS, col = thread / WARP / UPDATER_ROWS % UPDATER_COLS, lane = thread % WARP;
        }
    };
    __device__ void publish() const {
        fence_proxy_async();
        warp_arrives(*barriers.updated);
    }

    // The upper halves of this lane's first two numbers of a layer, and where others lie from there: constants.
    template <int L>
    __device__ unsigned* first_of(const Place& at) const {
        const int first = (2 * at.row * thin_edges(L) + at.col * own_edges(L)) * MATRIX_BYTES;
        return reinterpret_cast<unsigned*>(memory + weights_at(L) + first) + at.lane;
    }
    template <int L>
    __device__ static constexpr int from_first(int i, int n, int half) {
        return ((2 * i * UPDATER_ROWS + half) * thin_edges(L) + n) * (MATRIX_BYTES / 4);
    }
    template <int L>
    __device__ static bool has(const Place& at, int i) {
        return thick_tiles(L) % UPDATER_ROWS == 0 || at.row + i * UPDATER_ROWS < thick_tiles(L);
    }
    // Calls use(word) with a word of lower halves, in shared memory or in a register.
    template <int L, class Use>
    __device__ __forceinline__ void with_lower(int piece, int half, Use use) {
        if (piece < shared_pieces(L)) {
            auto* const words = reinterpret_cast<unsigned*>(memory + LOWER_AT) + threadIdx.x % UPDATERS;
            use(words[(2 * piece + half) * UPDATERS]);
        } else {
            use(static_cast<Lower<L>&>(all_lower).words[piece - shared_pieces(L)][half]);
        }
    }

    // Layer L's weights and those of the layers above, from memory, or back into it.
    template <int L, bool STORES>
    __device__ __forceinline__ void copy() {
        if constexpr (L < DEPTH) {
            constexpr int A = thin_of(L), B = thick_of(L), ALONG_A = is_thin(L) ? UNITS : 1, ALONG_B = is_thin(L) ? 1 : UNITS;
            const int a = own.thin * units_in(A), b = own.thick * units_in(B);
            const int all_a = min(units_in(A), width_of(A) - a), all_b = min(units_in(B), width_of(B) - b);
            const Place at;
            const int thin_at = at.col * own_edges(L) * EDGE + at.lane % 4 * 2, thick_at = at.row * 16 + at.lane / 4;
            float* const first = parameters + weight_begins[L] + (a + thin_at) * ALONG_A + (b + thick_at) * ALONG_B;
            unsigned* const first_upper = first_of<L>(at);
#pragma unroll
            for (int i = 0; i < own_tiles(L); ++i) {
#pragma unroll
                for (int n = 0; n < own_edges(L); ++n) {
#pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        const int thin = n * EDGE, thick = i * UPDATER_ROWS * 16 + half * EDGE;
                        if (thick_at + thick >= all_b || thin_at + thin >= all_a) continue;
                        float* const stored = first + thick * ALONG_B + thin * ALONG_A;
                        const bool has_other = thin_at + thin + 1 < all_a;
                        unsigned& upper = first_upper[from_first<L>(i, n, half)];
                        with_lower<L>(i * own_edges(L) + n, half, [&](unsigned& lower) {
                            if constexpr (STORES) {
                                stored[0] = joined(upper & 0xffffu, lower);
                                if (has_other) stored[ALONG_A] = joined(upper >> 16, lower >> 16);
                            } else {
                                split(stored[0], has_other ? stored[ALONG_A] : 0.0f, upper, lower);
                            }
                        });
                    }
                }
            }
            copy<L + 1, STORES>();
        }
    }

    // weights -= rate * inputs^T doutputs, then those of the layers below.
    template <int L>
    __device__ __forceinline__ void update(int step) {
        constexpr int A = thin_of(L), B = thick_of(L), A_AT = activations_at(A), B_AT = activations_at(B);
        constexpr int UNIT_BYTES = CHUNKS * MATRIX_BYTES;  // of eight units
        mbarrier_wait_parity(*barriers.ready, phases++ & 1);
        const char* const thin = A == 0 ? images_of(step) : memory + A_AT;
        const char* const thick = B == 0 ? images_of(step) : memory + B_AT;
        const Place at;
        // Of four matrices each: eight units by thirty-two images, and sixteen by sixteen.
        const char* const thins = thin + at.col * own_edges(L) * UNIT_BYTES + at.lane * 16;
        const int second = at.lane / EDGE % 2, right = at.lane / 16;
        const char* const thicks = thick + second * UNIT_BYTES + right * MATRIX_BYTES + at.lane % EDGE * 16;
        // A warp without a tile reads the first one: others may be writing what lies beyond the last.
        const auto load_thick = [&](unsigned(&both)[2][4], int i) {
            const char* const tile = thicks + (has<L>(at, i) ? at.row + i * UPDATER_ROWS : 0) * 2 * UNIT_BYTES;
            load(both[0], tile), load(both[1], tile + 2 * MATRIX_BYTES);
        };
        unsigned* const first_upper = first_of<L>(at);
        unsigned by_thick[2][4], by_thin[4];
        float gradients[2][4] = {};  // of a piece, and of the next one
        load_thick(by_thick, 0), load(by_thin, thins);
        mma_m16n8k16_bf16(gradients[0], by_thick[0], by_thin[0], by_thin[1]);
        mma_m16n8k16_bf16(gradients[0], by_thick[1], by_thin[2], by_thin[3]);
        constexpr int EDGES = own_edges(L), PIECES = own_pieces(L);
        load(by_thin, thins + 1 % EDGES * UNIT_BYTES);
        // Products of the next piece, which may be none of this warp's, stand among the updates of one: neither waits for the other.
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            const int i = piece / EDGES, n = piece % EDGES, next = piece + 1;
            if (n == 0 && !has<L>(at, i)) break;
            unsigned* const upper = first_upper + from_first<L>(i, n, 0);
            unsigned words[2] = {upper[0], upper[from_first<L>(0, 0, 1)]};
            float(&others)[4] = gradients[next % 2];
            if (next < PIECES) {
                if (next % EDGES == 0) load_thick(by_thick, next / EDGES);
                others[0] = others[1] = others[2] = others[3] = 0.0f;
                mma_m16n8k16_bf16(others, by_thick[0], by_thin[0], by_thin[1]);
            }
            update_word<L>(words[0], gradients[piece % 2][0], gradients[piece % 2][1], piece, 0);
            upper[0] = words[0];
            if (next < PIECES) {
                mma_m16n8k16_bf16(others, by_thick[1], by_thin[2], by_thin[3]);
                load(by_thin, thins + (next + 1) % EDGES * UNIT_BYTES);
            }
            update_word<L>(words[1], gradients[piece % 2][2], gradients[piece % 2][3], piece, 1);
            upper[from_first<L>(0, 0, 1)] = words[1];
        }
        if constexpr (L > 0) {
            publish();
            update<L - 1>(step);
        }
    }
    template <int L>
    __device__ __forceinline__ void update_word(unsigned& upper, float gradient, float other, int piece, int half) {
        with_lower<L>(piece, half, [&](unsigned& lower) {
            split(joined(upper & 0xffffu, lower) - rate * gradient, joined(upper >> 16, lower >> 16) - rate * other, upper, lower);
        });
    }
    __device__ static void load(unsigned (&four)[4], const char* row) {
        ldmatrix<false>(four, reinterpret_cast<const unsigned short*>(row));
    }

    int phases = 0;
    Lower<0> all_lower = {};
};

class Takers : Team {
  public:
    __device__ Takers(char* memory, const unsigned short* images, const int* labels, float* parameters, uint4* mail, float rate,
                      int steps)
        : Team(memory, parameters, rate, steps), images(images), mail(mail), team(threadIdx.x / TEAM_THREADS),
          outputs(memory, own), head(memory, own, labels, mail) {}

    __device__ __forceinline__ void run(bool with_totals) {
        outputs.copy<false>(parameters);
        head.copy<false>(parameters);
        if (threadIdx.x == 0) {
            fetch_images(0);
            if (steps > 1) fetch_images(1);
        }
        fence_proxy_async();
        bar_sync(1, TAKERS);
        await_updates();
        for (step = 0; step < steps; ++step) {
            const auto sum = outputs.sum<is_thin(1)>(mail);
            await_images(step);
            multiply<true>(sum, 0, images_of(step));  // at first nothing is to be corrected: all is zero
            if (step > 0) let_first_layer_update();
            outputs.add_up<true>(sum, 1);
            if (step > 0) {
                await_updates();
                if (threadIdx.x == 0 && step + 1 < steps) fetch_images(step + 1);
            }
            outputs.receive(sum, at(1));
            for (int layer = 1; layer < DEPTH; ++layer) {
                is_thin(layer + 1) ? forward<true>(layer) : forward<false>(layer);
            }
            head.run(step, rate, with_totals);
            for (int layer = DEPTH - 1; layer > 0; --layer) is_thin(layer) ? backward<true>(layer) : backward<false>(layer);
        }
        let_first_layer_update();
        outputs.copy<true>(parameters);
        head.copy<true>(parameters);
    }
    __device__ void add_totals(double* totals) const { head.add_totals(totals); }

  private:
    __device__ void let_first_layer_update() const {
        warp_arrives(*barriers.ready);
        outputs.update_bias(1, at(1), rate);
        bar_sync(1, TAKERS);
    }
    __device__ void await_updates() { mbarrier_wait_parity(*barriers.updated, phases++ & 1); }
    __device__ void await_images(int step) const { mbarrier_wait_parity(barriers.images[step & 1], step / 2 & 1); }
    __device__ void fetch_images(int step) const {
        const long long share = static_cast<long long>(step) * shares_of(0) + own.of(0);
        mbarrier_arrive_expect_tx(barriers.images[step & 1], bytes_of(0));
        cp_async_bulk(images_of(step), barriers.images[step & 1], reinterpret_cast<const char*>(images) + share * bytes_of(0),
                      bytes_of(0));
    }

    // Activations by a layer's weights: this block's parts of the other share's sums. IS_FIRST has its own number of inputs.
    template <bool IS_FIRST, bool TO_THIN>
    __device__ void multiply(const Sum<TO_THIN>& sum, int layer, const char* from) const {
        constexpr int L = IS_FIRST ? 0 : 1, ACROSS_THICK = thin_edges(L) * MATRIX_BYTES;
        constexpr int ALONG = TO_THIN ? ACROSS_THICK : MATRIX_BYTES, ACROSS = TO_THIN ? MATRIX_BYTES : ACROSS_THICK;
        constexpr int STEPS = TO_THIN ? thick_tiles(L) : thin_edges(L) / 2, OUTPUTS = TO_THIN ? thin_edges(L) / 2 : thick_tiles(L);
        const char* const weights = memory + weights_at(L) + (layer - L) * weight_bytes(L);
        for (int panel = team; panel < up(OUTPUTS, 4) / 4; panel += TEAMS) {
            float sums[CHUNKS][4] = {};
            const auto left = wgmma_descriptor(weights + panel * EDGE * ACROSS, ALONG, ACROSS);
            const auto right = wgmma_descriptor(from, CHUNKS * MATRIX_BYTES, MATRIX_BYTES);
            keep_in_place(sums);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < STEPS; ++k) {
                wgmma_bf16<TO_THIN, true>(sums, moved_low(left, 2 * k * ALONG), moved_low(right, 2 * k * CHUNKS * MATRIX_BYTES));
            }
            if (IS_FIRST) {  // as if weights were up to date: x W(t + 1) = x W(t) - rate (x A^T) D
                const auto gradients = wgmma_descriptor(at(1) + panel * EDGE * CHUNKS * MATRIX_BYTES, MATRIX_BYTES, CHUNKS * MATRIX_BYTES);
                const auto gram = wgmma_descriptor(memory + LOGITS_AT, CHUNKS * MATRIX_BYTES, MATRIX_BYTES);
#pragma unroll
                for (int k = 0; k < ROWS / 16; ++k) {
                    wgmma_bf16<false, true>(sums, moved_low(gradients, 2 * k * MATRIX_BYTES), moved_low(gram, 2 * k * CHUNKS * MATRIX_BYTES));
                }
            }
            wgmma_commit_group();
            wgmma_wait_group<0>();
            keep_in_place(sums);
            sum.post_all(sums, panel);
        }
    }
    // -rate times the products of this step's images and the next one's, over the inputs of a share, by one team.
    __device__ void multiply_images() const {
        await_images(step + 1);
        if (threadIdx.x >= TEAM_THREADS) return;
        float sums[CHUNKS][4] = {};
        const auto before = wgmma_descriptor(images_of(step), CHUNKS * MATRIX_BYTES, MATRIX_BYTES);
        const auto next = wgmma_descriptor(images_of(step + 1), CHUNKS * MATRIX_BYTES, MATRIX_BYTES);
        keep_in_place(sums);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < sixteens_of(0); ++k) {  // 64 rows: those beyond the images are of the next inputs
            const int sixteen = 2 * k * CHUNKS * MATRIX_BYTES;
            wgmma_bf16<true, true>(sums, moved_low(before, sixteen), moved_low(next, sixteen));
        }
        wgmma_commit_group();
        wgmma_wait_group<0>();
        keep_in_place(sums);
        int thread = threadIdx.x;
        opaque(thread);
        if (thread / WARP * 16 >= ROWS) return;
#pragma unroll
        for (int j = 0; j < CHUNKS; ++j) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                char* const to = memory + LOGITS_AT + unit_at(thread / WARP * 16 + half * EDGE + thread % WARP / 4, j) + thread % 4 * 4;
                *reinterpret_cast<unsigned*>(to) = cvt_bf16x2(-rate * sums[j][2 * half], -rate * sums[j][2 * half + 1]);
            }
        }
    }

    template <bool TO_THIN>
    __device__ void forward(int layer) {
        const auto sum = outputs.sum<TO_THIN>(mail);
        multiply<false>(sum, layer, at(layer));
        outputs.add_up<true>(sum, layer + 1);
        outputs.receive(sum, at(layer + 1));
    }
    template <bool TO_THIN>
    __device__ void backward(int layer) {
        const auto sum = outputs.sum<TO_THIN>(mail);
        multiply<false>(sum, layer, at(layer + 1));
        warp_arrives(*barriers.ready);
        outputs.update_bias(layer + 1, at(layer + 1), rate);
        if (TO_THIN == is_thin(1) && layer == 1 && step + 1 < steps) multiply_images();
        if (!TO_THIN && layer == DEPTH - 1) head.update(rate);
        outputs.add_up<false>(sum, layer);
        await_updates();
        outputs.receive(sum, at(layer));
    }

    const unsigned short* const images;
    uint4* const mail;
    const int team;
    int phases = 0, step = 0;
    OwnOutputs outputs;
    Head head;
};

// stationary_epoch: a whole epoch of a network with hidden layers of one size. In each step parameters -= learning_rate * gradients.
//   images      (steps, S, E, R / 8, 8, 8)  u16  in: bits of bfloat16; S shares of the inputs, thin if the number of hidden layers
//               is even; E matrices of eight inputs, R / 8 of eight images; zeros where there are none
//   labels      (steps, batch)  i32  in, each 0 <= label < classes
//   parameters  (count,)  f32  in, out: placed by the plan
//   mail        (units, 4)  u32  in, out: zeros before each launch
//   totals      (2,)  f64  in, out: grows by the summed loss and the number right, if with_totals
// Kind:   fused.
// Launch: cooperative, THIN_SHARES THICK_SHARES blocks of THREADS with SHARED_BYTES of shared memory each; steps of the epoch;
//   rate for the mean over a batch, divided by GRADIENT_SCALE.
// Needs:  sm_90a.
// Order:  every sum has one order, independent of arrival; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS, 1) stationary_epoch(const unsigned short* images, const int* labels,
                                                                        float* parameters, unsigned* mail, double* totals,
                                                                        int steps, float rate, int with_totals) {
    extern __shared__ __align__(128) char memory[];
    if constexpr (!MOVES_REGISTERS) return;
    for (int i = threadIdx.x; i < BARRIERS_AT / 16; i += THREADS) reinterpret_cast<uint4*>(memory)[i] = make_uint4(0, 0, 0, 0);
    fence_proxy_async();
    if (threadIdx.x == 0) Barriers(memory).begin();
    __syncthreads();
    if (threadIdx.x < TAKERS) {
        give_registers<TAKER_REGISTERS>();
        Takers takers(memory, images, labels, parameters, reinterpret_cast<uint4*>(mail), rate, steps);
        takers.run(with_totals);
        if (with_totals && blockIdx.x == 0) takers.add_totals(totals);
    } else {
        take_registers<UPDATER_REGISTERS>();
        Updaters(memory, parameters, rate, steps).run();
    }
}

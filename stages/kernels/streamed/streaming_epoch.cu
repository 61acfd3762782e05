// A whole epoch of a network with wide hidden layers of one size, in one cooperative launch: weights stream through a ring that
// never stops between layers (epoch_streams.cuh), blocks exchange sums by messages (epoch_sums.cuh), and have the last layer in
// registers (epoch_head.cuh). Weights lie in memory in two planes of 16 bits, tile after tile, as weight_planes.cuh has them.
#include "streamed/epoch_streams.cuh"
#include "streamed/epoch_head.cuh"
#include "streamed/epoch_outputs.cuh"

// What teams of warps share that multiply, and that update.
class Team {
  protected:
    __device__ Team(const Ring& ring, char* memory, const unsigned short* images, uint4* mail, float rate, int steps)
        : ring(ring), memory(memory), images(images), mail(mail), rate(rate), steps(steps),
          team(threadIdx.x / TEAM_THREADS % TEAMS), warp(threadIdx.x / WARP % GROUP_WARPS), g(threadIdx.x % WARP / 4),
          t(threadIdx.x % 4), turn(team) {}

    // Memory of activations; images of a step are in turn in two boxes.
    __device__ char* at(int activations) const {
        int from = activations_at(1);
#pragma unroll
        for (int a = 2; a <= DEPTH; ++a) from = a == activations ? activations_at(a) : from;
        return memory + from;
    }
    __device__ char* images_of(int step) const { return memory + IMAGES_AT + (step & 1) * bytes_of(0); }

    __device__ const char* images_in_memory(int step) const {
        const long long share = static_cast<long long>(step) * shares_of(0) + own.of(0);
        return reinterpret_cast<const char*>(images) + share * bytes_of(0);
    }

    // Descriptors of 64 units in activations, from step k of sixteen units, or of sixteen images, on.
    __device__ static auto along_units(const char* tile, int k) {
        return wgmma_descriptor(tile + 2 * k * CHUNKS * MATRIX_BYTES, CHUNKS * MATRIX_BYTES, MATRIX_BYTES);
    }
    __device__ static auto along_images(const char* tile, int k) {
        return wgmma_descriptor(tile + 2 * k * MATRIX_BYTES, MATRIX_BYTES, CHUNKS * MATRIX_BYTES);
    }
    static constexpr int TILE_BYTES = TILE * ROWS * 2;  // of activations

    // A step that does not update keeps, in memory of this block, its factors: activations, and their gradients. The next step's
    // products with old weights lack (x a^T) d, where a and d are the kept factors: its corrections. Then both steps' updates are
    // added up at once. `kept` in shared memory has one share of those factors in turn: forward the inputs, backward the gradients.
    enum Factor { INPUTS, GRADIENTS };
    __device__ char* kept_at(Factor factor, int activations) const {
        const long long share = (blockIdx.x * 2 + factor) * DEPTH + activations - 1;
        return reinterpret_cast<char*>(mail + MAIL_UNITS) + share * KEPT_BYTES;
    }
    __device__ const char* kept() const { return memory + KEPT_AT; }
    // A kept tile of activations as left factors of sixteen images each.
    using Fragments = unsigned[ROWS / 16][4];
    __device__ void load_kept(Fragments& fragments, const char* tile) const {
#pragma unroll
        for (int i = 0; i < ROWS / 4; ++i) {
            const char* const from = tile + unit_at(warp * 16 + i % 2 * 8 + g, i / 2) + t * 4;
            fragments[i / 4][i % 4] = __ldcg(reinterpret_cast<const unsigned*>(from));
        }
    }
    __device__ static void hold(Fragments& fragments) {
#pragma unroll
        for (auto& each : fragments) keep_in_place(each);
    }

    const Ring& ring;
    char* const memory;
    const unsigned short* const images;
    uint4* const mail;
    const float rate;
    const int steps;
    const int team, warp, g, t;
    const Shares own;
    Turn turn;
    int step = -1;
};

// Teams that update each piece once a team of takers has read it, while that goes on with the next and with sums. In the first
// layer they come first: takers multiply what they have updated by the next images.
class Updaters : Team {
  public:
    __device__ Updaters(const Ring& ring, char* memory, const unsigned short* images, uint4* mail, float rate, int steps)
        : Team(ring, memory, images, mail, rate, steps) {}

    __device__ void run() {
        const int images = own.image_tiles() * tiles_of(1);
        turn.skip(images);
        for (step = 0; step < steps; ++step) {
            const bool updates = updates_in(step, steps);
            turn.skip(updates ? pieces_forward() : 2 * pieces_forward() + images);
            if (!updates) continue;
            corrects_in(step) ? run<DEFERS>() : run<false>();
        }
    }

  private:
    template <bool ADDS_KEPT>
    __device__ void run() {
        for (int layer = DEPTH - 1; layer > 0; --layer) {
            const int panels = tiles_of(layer + 1);
            await_factors();
            for (int pair = tiles_of(layer) / TEAMS - 1; pair >= 0; --pair) {
                const int row_tile = TEAMS * pair + team;
                const char* const inputs = at(layer) + row_tile * TILE_BYTES;
                Fragments kept_inputs = {};
                if (ADDS_KEPT) load_kept(kept_inputs, kept_at(INPUTS, layer) + row_tile * TILE_BYTES);
                for (int panel = panels - 1; panel >= 0; --panel) {
                    float gradient[TILE / EDGE][4];
                    multiply<ADDS_KEPT>(gradient, kept_inputs, inputs, at(layer + 1), panel);
                    if (pair == 0 && panel == 0) warp_arrives(*ring.spent);
                    update(gradient, true);
                }
            }
        }
        const int tiles = own.image_tiles();
        if (tiles > 0) await_factors();
        for (int panel = team; panel < tiles_of(1); panel += TEAMS) {
            for (int row_tile = 0; row_tile < tiles; ++row_tile) {
                Fragments kept_images = {};
                if (ADDS_KEPT) load_kept(kept_images, images_in_memory(step - 1) + row_tile * TILE_BYTES);
                float gradient[TILE / EDGE][4];
                multiply<ADDS_KEPT>(gradient, kept_images, images_of(step) + row_tile * TILE_BYTES, at(1), panel);
                update(gradient, false);
            }
        }
    }
    __device__ void await_factors() { mbarrier_wait_parity(*ring.ready, phases++ & 1); }

    // A tile's gradient: products of inputs and gradients of outputs, over all images.
    template <bool ADDS_KEPT>
    __device__ void multiply(float (&gradient)[TILE / EDGE][4], Fragments& kept_inputs, const char* inputs, const char* doutputs,
                             int panel) const {
#pragma unroll
        for (auto& four : gradient) four[0] = four[1] = four[2] = four[3] = 0.0f;
        keep_in_place(gradient);
        if (ADDS_KEPT) hold(kept_inputs);
        wgmma_fence();
        if (ADDS_KEPT) {
#pragma unroll
            for (int k = 0; k < ROWS / 16; ++k) {
                wgmma_bf16<false>(gradient, kept_inputs[k], along_images(kept() + panel * TILE_BYTES, k));
            }
        }
#pragma unroll
        for (int k = 0; k < ROWS / 16; ++k) {
            wgmma_bf16<false, false>(gradient, along_images(inputs, k), along_images(doutputs + panel * TILE_BYTES, k));
        }
        wgmma_commit_group();
        wgmma_wait_group<0>();
        keep_in_place(gradient);
    }

    // weights -= rate * gradient, in both planes of this team's next tile, once it is there, and once it has been read.
    __device__ void update(const float (&gradient)[TILE / EDGE][4], bool is_read_first) {
        char* const tile = ring.slot(turn.slot);
        mbarrier_wait_parity(ring.full[turn.slot], turn.parity);
        if (is_read_first) mbarrier_wait_parity(ring.read[turn.slot], turn.parity);
#pragma unroll
        for (int j = 0; j < TILE / EDGE; ++j) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = warp * 16 + half * 8 + g;
                auto* high = reinterpret_cast<unsigned*>(tile + row * ROW_BYTES + (j ^ g) * 16 + t * 4);
                auto* low = high + PLANE_BYTES / 4;
                const unsigned highs = *high, lows = *low;
                const float one = joined(highs & 0xffffu, lows) - rate * gradient[j][2 * half];
                const float other = joined(highs >> 16, lows >> 16) - rate * gradient[j][2 * half + 1];
                split(one, other, *high, *low);
            }
        }
        fence_proxy_async();
        warp_arrives(ring.updated[turn.slot]);
        turn.next(TEAMS);
    }

    int phases = 0;  // of factors
};

class Takers : Team {
  public:
    __device__ Takers(const Ring& ring, char* memory, const unsigned short* images, const int* labels, float* parameters,
                      uint4* mail, float rate, int steps)
        : Team(ring, memory, images, mail, rate, steps), parameters(parameters), outputs(memory, own),
          head(memory, own, labels, mail) {}

    __device__ void run(bool with_totals) {
        outputs.copy<false>(parameters);
        head.copy<false>(parameters);
        if (threadIdx.x == 0) {
            fetch_images(0);
            if (steps > 1) fetch_images(1);
        }
        fence_proxy_async();
        bar_sync(1, TAKERS);
        first_layer(false, true);
        for (step = 0; step < steps; ++step) {
            const bool updates = updates_in(step, steps);
            if (step > 0 && step + 1 < steps && threadIdx.x == 0) fetch_images(step + 1);
            for (int layer = 1; layer < DEPTH; ++layer) {
                is_thin(layer + 1) ? forward<true>(layer) : forward<false>(layer);
            }
            head.run(step, rate, with_totals);
            if (!updates) keep(GRADIENTS, DEPTH);
            for (int layer = DEPTH - 1; layer > 0; --layer) {
                if (corrects_in(step)) is_thin(layer) ? backward<true, DEFERS>(layer, true) : backward<false, DEFERS>(layer, true);
                else is_thin(layer) ? backward<true, false>(layer, updates) : backward<false, false>(layer, updates);
            }
            first_layer(updates, step + 1 < steps);
        }
        outputs.copy<true>(parameters);
        head.copy<true>(parameters);
    }

    __device__ void add_totals(double* totals) const { head.add_totals(totals); }

  private:
    __device__ void fetch_images(int step) const {
        mbarrier_arrive_expect_tx(ring.images[step & 1], bytes_of(0));
        cp_async_bulk(images_of(step), ring.images[step & 1], images_in_memory(step), bytes_of(0));
    }

    __device__ char* next_full() const {
        mbarrier_wait_parity(ring.full[turn.slot], turn.parity);
        return ring.slot(turn.slot);
    }
    __device__ char* next_updated() {
        mbarrier_wait_parity(ring.updated[turn.slot], times >> turn.slot & 1);
        times ^= 1u << turn.slot;
        return ring.slot(turn.slot);
    }
    __device__ void keep(Factor factor, int activations) const {
        if (threadIdx.x != 0) return;
        cp_async_bulk_wait_group_read<0>();  // those before, which others replace from the next meeting on
        cp_async_bulk_store(kept_at(factor, activations), at(activations), bytes_of(activations));
        cp_async_bulk_commit_group();
    }
    __device__ void fetch_kept(Factor factor, int activations) const {
        if (threadIdx.x != 0) return;
        cp_async_bulk_wait_all();
        mbarrier_arrive_expect_tx(*ring.kept, bytes_of(activations));
        cp_async_bulk(memory + KEPT_AT, *ring.kept, kept_at(factor, activations), bytes_of(activations));
    }
    __device__ void await_kept() { mbarrier_wait_parity(*ring.kept, fetches++ & 1); }
    // -rate times the products of kept images and this step's, over all units of a share, of which each team adds up half.
    __device__ void multiply_images(const char* before, const char* now, int tiles) const {
        float sums[CHUNKS][4] = {};
        for (int tile = team; tile < tiles; tile += TEAMS) {
            keep_in_place(sums);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < TILE / 16; ++k) {  // 64 rows: those beyond the images are of the next units
                wgmma_bf16<true, true>(sums, along_units(before + tile * TILE_BYTES, k), along_units(now + tile * TILE_BYTES, k));
            }
            wgmma_commit_group();
        }
        wgmma_wait_group<0>();
        keep_in_place(sums);
        if (warp * 16 < ROWS) {
            char* const to = memory + GRAMS_AT + team * GRAM_BYTES;
#pragma unroll
            for (int j = 0; j < CHUNKS; ++j) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    *reinterpret_cast<unsigned*>(to + unit_at(warp * 16 + half * 8 + g, j) + t * 4) =
                        cvt_bf16x2(-rate * sums[j][2 * half], -rate * sums[j][2 * half + 1]);
                }
            }
        }
        fence_proxy_async();
        bar_sync(1, TAKERS);
    }
    // Begins products of kept factors with those of images; `kept(k)` are those of sixteen images.
    template <typename Kept>
    __device__ void correct(float (&sums)[CHUNKS][4], const Kept& kept) const {
#pragma unroll
        for (int k = 0; k < TEAMS * ROWS / 16; ++k) {
            const char* const gram = memory + GRAMS_AT + k / (ROWS / 16) * GRAM_BYTES;
            multiply(sums, kept(k % (ROWS / 16)), along_units(gram, k % (ROWS / 16)));
        }
    }
    template <typename Matrices>
    __device__ static void multiply(float (&sums)[CHUNKS][4], const Matrices& left, const Matrices& right) {
        wgmma_bf16<false, true>(sums, left, right);
    }
    template <typename Matrices>
    __device__ static void multiply(float (&sums)[CHUNKS][4], const unsigned (&left)[4], const Matrices& right) {
        wgmma_bf16<true>(sums, left, right);
    }

    template <bool IS_THIN>
    __device__ void forward(int layer) {
        const auto sum = outputs.sum<IS_THIN>(mail);
        const int pairs = tiles_of(layer) / TEAMS, panels = tiles_of(layer + 1);
        const char* const inputs = at(layer);
        const bool corrects = corrects_in(step);
        if (corrects) {
            await_kept();
            multiply_images(kept(), inputs, tiles_of(layer));
            layer + 1 < DEPTH ? fetch_kept(INPUTS, layer + 1) : fetch_kept(GRADIENTS, DEPTH);
        }
        for (int panel = team; panel < panels; panel += TEAMS) {
            float sums[CHUNKS][4] = {};
            int last = -1;
            if (corrects) {
                keep_in_place(sums);
                wgmma_fence();
                correct(sums, [&](int k) { return along_images(at(layer + 1) + panel * TILE_BYTES, k); });
                wgmma_commit_group();
                wgmma_wait_group<0>();
                keep_in_place(sums);
            }
            for (int pair = 0; pair < pairs; ++pair) {
                const char* const tiles = next_full();
                keep_in_place(sums);
                wgmma_fence();
#pragma unroll
                for (int k = 0; k < 2 * TILE / 16; ++k) {
                    wgmma_bf16<true, true>(sums, wgmma_descriptor_128(tiles + k * 16 * ROW_BYTES),
                                           along_units(inputs + 2 * pair * TILE_BYTES, k));
                }
                wgmma_commit_group();
                wgmma_wait_group<1>();
                if (last >= 0) warp_arrives(ring.read[last]);
                last = turn.slot;
                turn.next(TEAMS);
            }
            wgmma_wait_group<0>();
            keep_in_place(sums);
            warp_arrives(ring.read[last]);
            sum.post_all(sums, panel);
        }
        if (corrects) bar_sync(1, TAKERS);  // the gradients of the step before have been read
        exchange<true>(sum, layer + 1);
        if (!updates_in(step, steps) && layer + 1 < DEPTH) keep(INPUTS, layer + 1);
    }

    template <bool IS_FORWARD, bool IS_THIN>
    __device__ void exchange(const Sum<IS_THIN>& sum, int activations, bool updates = false, bool corrects = false) {
        outputs.add_up<IS_FORWARD>(sum, activations);
        if (updates) mbarrier_wait_parity(*ring.spent, phases++ & 1);
        if (corrects) fetch_kept(GRADIENTS, activations);
        outputs.receive(sum, at(activations));
    }

    template <bool IS_THIN, bool CORRECTS>
    __device__ void backward(int layer, bool updates) {
        const auto sum = outputs.sum<IS_THIN>(mail);
        const int pairs = tiles_of(layer) / TEAMS, panels = tiles_of(layer + 1);
        const char* const doutputs = at(layer + 1);
        if (CORRECTS) await_kept();
        if (updates) warp_arrives(*ring.ready);
        if (CORRECTS) multiply_images(kept(), doutputs, panels);
        for (int pair = pairs - 1; pair >= 0; --pair) {
            const int row_tile = TEAMS * pair + team;
            float dinputs[CHUNKS][4] = {};
            Fragments kept_inputs = {};
            if (CORRECTS) load_kept(kept_inputs, kept_at(INPUTS, layer) + row_tile * TILE_BYTES);
            if (DEFERS && !updates) multiply_row<2>(dinputs, doutputs, panels);
            else multiply_row<1>(dinputs, doutputs, panels);
            if (CORRECTS) {
                keep_in_place(dinputs), hold(kept_inputs);
                wgmma_fence();
                correct(dinputs, [&](int k) -> auto& { return kept_inputs[k]; });
                wgmma_commit_group();
                wgmma_wait_group<0>();
                keep_in_place(dinputs);
            }
            sum.post_all(dinputs, row_tile);
        }
        outputs.update_bias(layer + 1, at(layer + 1), rate);
        if (!IS_THIN && layer == DEPTH - 1) head.update(rate);
        exchange<false>(sum, layer, updates, CORRECTS);
        if (DEFERS && !updates) keep(GRADIENTS, layer);
    }
    // Products of a team's row of tiles, of which a piece has so many; updaters wait for those that it has read.
    template <int TILES>
    __device__ void multiply_row(float (&dinputs)[CHUNKS][4], const char* doutputs, int panels) {
        for (int panel = panels - TILES; panel >= 0; panel -= TILES) {
            const char* const tiles = next_full();
            keep_in_place(dinputs);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < TILES * TILE / 16; ++k) {
                const int tile = k / (TILE / 16), step_of_k = k % (TILE / 16);
                wgmma_bf16<false, true>(dinputs, wgmma_descriptor_128(tiles + tile * PLANE_BYTES + step_of_k * 32),
                                        along_units(doutputs + (panel + tile) * TILE_BYTES, step_of_k));
            }
            wgmma_commit_group();
            wgmma_wait_group<0>();
            keep_in_place(dinputs);
            warp_arrives(ring.read[turn.slot]);
            if (TILES == 1) times ^= 1u << turn.slot;
            turn.next(TEAMS);
        }
    }

    // The first layer's products with the next step's images, once it is updated.
    __device__ void first_layer(bool updates, bool goes_on) {
        constexpr bool IS_THIN = is_thin(1);
        const auto sum = outputs.sum<IS_THIN>(mail);
        const int tiles = own.image_tiles();
        const bool keeps = DEFERS && step >= 0 && !updates;
        if (corrects_in(step)) await_kept();
        if (updates && tiles > 0) warp_arrives(*ring.ready);
        if (goes_on) mbarrier_wait_parity(ring.images[(step + 1) & 1], (step + 1) / 2 & 1);
        if (keeps) multiply_images(images_of(step), images_of(step + 1), tiles);
        for (int panel = team; panel < tiles_of(1); panel += TEAMS) {
            float sums[CHUNKS][4] = {};
            if (keeps) {
                keep_in_place(sums);
                wgmma_fence();
                correct(sums, [&](int k) { return along_images(at(1) + panel * TILE_BYTES, k); });
                wgmma_commit_group();
                wgmma_wait_group<0>();
                keep_in_place(sums);
            }
            for (int row_tile = 0; row_tile < tiles; ++row_tile) {
                const char* const tile = updates ? next_updated() : next_full();
                if (goes_on) {
                    keep_in_place(sums);
                    wgmma_fence();
#pragma unroll
                    for (int k = 0; k < TILE / 16; ++k) {  // rows beyond the last are old weights, or 0, and their images 0
                        wgmma_bf16<true, true>(sums, wgmma_descriptor_128(tile + k * 16 * ROW_BYTES),
                                               along_units(images_of(step + 1) + row_tile * TILE_BYTES, k));
                    }
                    wgmma_commit_group();
                    wgmma_wait_group<0>();
                    keep_in_place(sums);
                }
                warp_arrives(ring.read[turn.slot]);
                turn.next(TEAMS);
            }
            if (goes_on) sum.post_all(sums, panel);
        }
        if (updates || keeps) outputs.update_bias(1, at(1), rate);
        if (keeps) fetch_kept(INPUTS, 1);
        bar_sync(1, TAKERS);
        if (goes_on) exchange<true>(sum, 1);
        if (goes_on && !updates_in(step + 1, steps)) keep(INPUTS, 1);
    }

    float* const parameters;
    OwnOutputs outputs;
    Head head;
    unsigned times = 0;  // a bit for each slot: that of its last update
    int fetches = 0, phases = 0;
};

// streaming_epoch: a whole epoch of a network with hidden layers of one size. In each step parameters -= learning_rate * gradients.
//   images      (steps, S, E, R / 8, 8, 8)  u16  in: bits of bfloat16; S shares of the inputs, thin if the number of hidden layers
//               is even; E matrices of eight inputs, in the order of stored_at, R / 8 of eight images; zeros where there are none
//   labels      (steps, batch)  i32  in, each 0 <= label < classes
//   parameters  (count,)  f32  in, out: placed by the plan; hidden layers in planes
//   mail        (units, 4)  u32  in, out: zeros before each launch
//   totals      (2,)  f64  in, out: grows by the summed loss and the number right, if with_totals
// Kind:   fused.
// Launch: cooperative, THIN_SHARES THICK_SHARES blocks of THREADS with SHARED_BYTES of shared memory each; steps of the epoch;
//   rate for the mean over a batch, divided by GRADIENT_SCALE.
// Needs:  sm_90a.
// Order:  every sum has one order, independent of arrival; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS, 1) streaming_epoch(const unsigned short* images, const int* labels,
                                                                       float* parameters, unsigned* mail, double* totals,
                                                                       int steps, float rate, int with_totals) {
    extern __shared__ __align__(1024) char memory[];
    const Ring ring(memory);
    for (int i = threadIdx.x; i < IMAGES_AT / 16; i += THREADS) reinterpret_cast<uint4*>(memory)[i] = make_uint4(0, 0, 0, 0);
    fence_proxy_async();
    constexpr int LINE_UNITS = 8;  // 128 bytes
    for (int i = (blockIdx.x * THREADS + threadIdx.x) * LINE_UNITS; i < MAIL_UNITS; i += gridDim.x * THREADS * LINE_UNITS) {
        prefetch_evict_last(reinterpret_cast<const uint4*>(mail) + i);
    }
    if (threadIdx.x == 0) ring.begin();
    __syncthreads();
    const int warp = threadIdx.x / WARP;
    if (warp < TAKERS / WARP) {
        take_registers<TAKER_REGISTERS>();
        Takers takers(ring, memory, images, labels, parameters, reinterpret_cast<uint4*>(mail), rate, steps);
        takers.run(with_totals);
        if (with_totals && blockIdx.x == 0) takers.add_totals(totals);
    } else if (warp < (TAKERS + UPDATERS) / WARP) {
        give_registers<UPDATER_REGISTERS>();
        Updaters(ring, memory, images, reinterpret_cast<uint4*>(mail), rate, steps).run();
    } else {
        give_registers<MOVER_REGISTERS>();
        if (threadIdx.x == TAKERS + UPDATERS) Fetcher(ring, parameters).run(steps);
        if (threadIdx.x == TAKERS + UPDATERS + WARP) Storer(ring, parameters).run(steps);
    }
}

// A whole epoch of a network with wide hidden layers of one size, in one cooperative launch: weights stream through a ring that
// never stops between layers (epoch_streams.cuh), blocks exchange sums by messages (epoch_sums.cuh), and have the last layer in
// registers (epoch_head.cuh). Weights lie in memory in two planes of 16 bits, tile after tile, as weight_planes.cuh has them.
#include "streamed/epoch_head.cuh"

// What teams of warps share that multiply, and that update.
class Team {
  protected:
    __device__ Team(const Ring& ring, char* memory, const unsigned short* images, uint4* mail, float rate, int steps)
        : ring(ring), memory(memory), kept(mail, images), mail(mail), rate(rate), steps(steps),
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

    __device__ void leave(Barrier& barrier) const {
        __syncwarp();
        if (threadIdx.x % WARP == 0) mbarrier_arrive(barrier);
    }

    // Descriptors of 64 units in activations, from step k of sixteen units, or of sixteen images, on.
    __device__ static auto along_units(const char* tile, int k) {
        return wgmma_descriptor(tile + 2 * k * CHUNKS * MATRIX_BYTES, CHUNKS * MATRIX_BYTES, MATRIX_BYTES);
    }
    __device__ static auto along_images(const char* tile, int k) {
        return wgmma_descriptor(tile + 2 * k * MATRIX_BYTES, MATRIX_BYTES, CHUNKS * MATRIX_BYTES);
    }

    // A step that does not update keeps its factors in memory: activations, and their gradients. While its update is pending, products
    // with old weights lack (x a^T) d, where a and d are the kept factors: its correction. Then all pending updates are made at once.
    //
    // A tile of each pending step's activations, as left factors of sixteen images each; zeros if fewer are pending.
    using Fragments = unsigned[DEFERS ? MOST_PENDING * ROWS / 16 : 1][4];
    template <typename Tile>
    __device__ void load_kept(Fragments& fragments, int pending, const Tile& tile) const {
#pragma unroll
        for (int n = 0; n < MOST_PENDING; ++n) {
            if (n >= pending) continue;
#pragma unroll
            for (int i = 0; i < ROWS / 4; ++i) {
                const char* const from = tile(n) + unit_at(warp * 16 + i % 2 * 8 + g, i / 2) + t * 4;
                fragments[n * (ROWS / 16) + i / 4][i % 4] = __ldcg(reinterpret_cast<const unsigned*>(from));
            }
        }
    }
    __device__ static void hold(Fragments& fragments) {
#pragma unroll
        for (auto& each : fragments) keep_in_place(each);
    }

    const Ring& ring;
    char* const memory;
    const Kept kept;
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
            turn.skip(updates ? pieces_before_updates(step) : pieces_without_updates(own, step));
            if (!updates) continue;
            pending_in(step) > 0 ? run<DEFERS>() : run<false>();
        }
    }

  private:
    template <bool ADDS_KEPT>
    __device__ void run() {
        const int pending = pending_in(step);
        for (int layer = DEPTH - 1; layer > 0; --layer) {
            const int panels = tiles_of(layer + 1);
            turn.skip(pending * kept_pieces(panels));
            if (ADDS_KEPT) stage(layer + 1, panels - 1);
            await_factors();
            for (int pair = tiles_of(layer) / TEAMS - 1; pair >= 0; --pair) {
                const int row_tile = TEAMS * pair + team;
                const char* const inputs = at(layer) + row_tile * TILE_BYTES;
                Fragments kept_inputs = {};
                if (ADDS_KEPT) {
                    load_kept(kept_inputs, pending, [&](int n) { return kept.at(n, INPUTS, layer) + row_tile * TILE_BYTES; });
                }
                for (int panel = panels - 1; panel >= 0; --panel) {
                    float gradient[TILE / EDGE][4];
                    multiply<ADDS_KEPT>(gradient, kept_inputs, inputs, at(layer + 1), panel);
                    if (ADDS_KEPT && pair + panel > 0) stage(layer + 1, panel > 0 ? panel - 1 : panels - 1);
                    if (pair == 0 && panel == 0) leave(*ring.spent);
                    update(gradient, true);
                }
            }
        }
        const int tiles = own.image_tiles();
        if (tiles > 0) await_factors();
        for (int panel = team; panel < tiles_of(1); panel += TEAMS) {
            for (int row_tile = 0; row_tile < tiles; ++row_tile) {
                Fragments kept_images = {};
                if (ADDS_KEPT) {
                    if (row_tile == 0) stage(1, panel);
                    load_kept(kept_images, pending, [&](int n) { return kept.images_of(step - pending + n) + row_tile * TILE_BYTES; });
                }
                float gradient[TILE / EDGE][4];
                multiply<ADDS_KEPT>(gradient, kept_images, images_of(step) + row_tile * TILE_BYTES, at(1), panel);
                if (ADDS_KEPT && row_tile + 1 < tiles) stage(1, panel);
                update(gradient, false);
            }
        }
    }
    __device__ void await_factors() { mbarrier_wait_parity(*ring.ready, phases++ & 1); }

    // Brings what each pending step has kept of a panel's gradients, once this team has multiplied the panel before.
    __device__ char* staged(int n) const { return memory + STAGED_AT + (n * TEAMS + team) * TILE_BYTES; }
    __device__ void stage(int activations, int panel) const {
        if (threadIdx.x % TEAM_THREADS != 0) return;
        const int pending = pending_in(step);
        wait_for_count(ring.kept, kept_before(step));
        mbarrier_arrive_expect_tx(ring.staged[team], pending * TILE_BYTES);
        for (int n = 0; n < pending; ++n) {
            const char* const from = kept.at(n, GRADIENTS, activations) + panel * TILE_BYTES;
            cp_async_bulk(staged(n), ring.staged[team], from, TILE_BYTES);
        }
    }

    // A tile's gradient: products of inputs and gradients of outputs, over all images.
    template <bool ADDS_KEPT>
    __device__ void multiply(float (&gradient)[TILE / EDGE][4], Fragments& kept_inputs, const char* inputs, const char* doutputs,
                             int panel) {
#pragma unroll
        for (auto& four : gradient) four[0] = four[1] = four[2] = four[3] = 0.0f;
        keep_in_place(gradient);
        if (ADDS_KEPT) {
            mbarrier_wait_parity(ring.staged[team], stagings++ & 1);
            hold(kept_inputs);
        }
        wgmma_fence();
        if (ADDS_KEPT) {
#pragma unroll
            for (int k = 0; k < MOST_PENDING * ROWS / 16; ++k) {
                wgmma_bf16<false>(gradient, kept_inputs[k], along_images(staged(k / (ROWS / 16)), k % (ROWS / 16)));
            }
        }
#pragma unroll
        for (int k = 0; k < ROWS / 16; ++k) {
            wgmma_bf16<false, false>(gradient, along_images(inputs, k), along_images(doutputs + panel * TILE_BYTES, k));
        }
        wgmma_commit_group();
        wgmma_wait_group<0>();
        keep_in_place(gradient);
        if (ADDS_KEPT) bar_sync(4 + team, TEAM_THREADS);
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
                const unsigned one = __float_as_uint(joined(highs & 0xffffu, lows) - rate * gradient[j][2 * half]);
                const unsigned other = __float_as_uint(joined(highs >> 16, lows >> 16) - rate * gradient[j][2 * half + 1]);
                *high = one + 0x8000u >> 16 | (other + 0x8000u & 0xffff0000u);
                *low = (one & 0xffffu) | other << 16;
            }
        }
        fence_proxy_async();
        leave(ring.updated[turn.slot]);
        turn.next(TEAMS);
    }

    int phases = 0, stagings = 0;  // of factors, and of kept ones
};

class Takers : Team {
  public:
    __device__ Takers(const Ring& ring, char* memory, const unsigned short* images, const int* labels, float* parameters,
                      uint4* mail, float rate, int steps)
        : Team(ring, memory, images, mail, rate, steps), biases(reinterpret_cast<float*>(memory + BIASES_AT)),
          parameters(parameters), head(memory, own, labels, mail) {}

    __device__ void run(bool with_totals) {
        copy_biases<false>();
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
            if (!updates) keep(GRADIENTS, DEPTH, step);
            for (int layer = DEPTH - 1; layer > 0; --layer) {
                if (pending_in(step) > 0) is_thin(layer) ? backward<true, DEFERS>(layer, updates) : backward<false, DEFERS>(layer, updates);
                else is_thin(layer) ? backward<true, false>(layer, updates) : backward<false, false>(layer, updates);
            }
            first_layer(updates, step + 1 < steps);
        }
        copy_biases<true>();
        head.copy<true>(parameters);
    }

    // By block 0, after its last step: sums of threads, in their order.
    __device__ void add_totals(double* totals) {
        double* const both = reinterpret_cast<double*>(at(1));  // slots may still be stored
        bar_sync(1, TAKERS);
        both[2 * threadIdx.x] = head.loss, both[2 * threadIdx.x + 1] = head.right;
        bar_sync(1, TAKERS);
        if (threadIdx.x >= 2) return;
        double sum = 0.0;
        for (int i = 0; i < TAKERS; ++i) sum += both[2 * i + threadIdx.x];
        totals[threadIdx.x] += sum;
    }

  private:
    template <bool STORES>
    __device__ void copy_biases() {
        const int a = threadIdx.x / OWN_OUTPUTS + 1, i = threadIdx.x % OWN_OUTPUTS;
        for (int activations = a; activations <= DEPTH; activations += TAKERS / OWN_OUTPUTS) {
            float* const stored = parameters + bias_begin(activations - 1) + first_own(activations) + i;
            float& bias = biases[(activations - 1) * OWN_OUTPUTS + i];
            if (STORES) *stored = bias;
            else bias = *stored;
        }
    }
    // The first output that this block owns: among its share, or all.
    __device__ int rank(int activations) const { return is_thin(activations) ? own.thick : own.thin; }
    __device__ int first_own(int activations) const {
        return own.of(activations) * (UNITS / shares_of(activations)) + rank(activations) * OWN_OUTPUTS;
    }

    __device__ void fetch_images(int step) const {
        mbarrier_arrive_expect_tx(ring.images[step & 1], bytes_of(0));
        cp_async_bulk(images_of(step), ring.images[step & 1], kept.images_of(step), bytes_of(0));
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
    __device__ void keep(Factor factor, int activations, int of_step) {
        if (threadIdx.x != 0) return;
        complete_kept();
        cp_async_bulk_store(kept.at(pending_in(of_step), factor, activations), at(activations), bytes_of(activations));
        cp_async_bulk_commit_group();
        ++keeps;
    }
    // Those before, which others replace from the next meeting on.
    __device__ void complete_kept() const {
        cp_async_bulk_wait_all();
        set_count(ring.kept, keeps);
    }
    // For each pending step, -rate times the products of its images and this step's, over all units of a share, of which each team
    // adds up half.
    __device__ void multiply_images(int pending, const char* now, int tiles) {
        for (int n = 0; n < pending; ++n) {
            float sums[CHUNKS][4] = {};
            for (int first = 0; first < half_of(tiles); first += KEPT_TILES) {
                const char* const before = next_full();
                const char* const beside = now + (team * half_of(tiles) + first) * TILE_BYTES;
                keep_in_place(sums);
                wgmma_fence();
                for (int tile = 0; tile < kept_tiles(tiles, team, first); ++tile) {
#pragma unroll
                    for (int k = 0; k < TILE / 16; ++k) {  // 64 rows: those beyond the images are of the next units
                        wgmma_bf16<true, true>(sums, along_units(before + tile * TILE_BYTES, k),
                                               along_units(beside + tile * TILE_BYTES, k));
                    }
                }
                wgmma_commit_group();
                wgmma_wait_group<0>();
                keep_in_place(sums);
                leave(ring.read[turn.slot]);
                turn.next(TEAMS);
            }
            if (warp * 16 >= ROWS) continue;
            char* const to = memory + GRAMS_AT + (n * TEAMS + team) * GRAM_BYTES;
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
    // Step k of sixteen images of a team's product for the n-th pending step.
    __device__ auto gram(int n, int of_team, int k) const {
        return along_units(memory + GRAMS_AT + (n * TEAMS + of_team) * GRAM_BYTES, k);
    }
    // Adds the products of all pending steps' factors with those of images; of the `latest` step from activations in memory.
    __device__ void correct(float (&sums)[CHUNKS][4], Fragments& factors, const char* latest = nullptr, int n_latest = 0) const {
        keep_in_place(sums), hold(factors);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < MOST_PENDING * ROWS / 16; ++k) {
#pragma unroll
            for (int of = 0; of < TEAMS; ++of) wgmma_bf16<true>(sums, factors[k], gram(k / (ROWS / 16), of, k % (ROWS / 16)));
        }
        if (latest != nullptr) {
#pragma unroll
            for (int k = 0; k < ROWS / 16; ++k) {
#pragma unroll
                for (int of = 0; of < TEAMS; ++of) wgmma_bf16<false, true>(sums, along_images(latest, k), gram(n_latest, of, k));
            }
        }
        wgmma_commit_group();
        wgmma_wait_group<0>();
        keep_in_place(sums);
    }

    template <bool IS_THIN>
    __device__ void forward(int layer) {
        const Sum<IS_THIN> sum(own, mail, rounds[IS_THIN]);
        const int pairs = tiles_of(layer) / TEAMS, panels = tiles_of(layer + 1);
        const char* const inputs = at(layer);
        const int pending = pending_in(step);
        if (pending > 0) multiply_images(pending, inputs, tiles_of(layer));
        for (int panel = team; panel < panels; panel += TEAMS) {
            float sums[CHUNKS][4] = {};
            int last = -1;
            Fragments gradients = {};
            load_kept(gradients, pending, [&](int n) { return kept.at(n, GRADIENTS, layer + 1) + panel * TILE_BYTES; });
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
                if (last >= 0) leave(ring.read[last]);
                last = turn.slot;
                turn.next(TEAMS);
            }
            wgmma_wait_group<0>();
            keep_in_place(sums);
            leave(ring.read[last]);
            if (pending > 0) correct(sums, gradients);
            sum.post_all(sums, panel);
        }
        exchange<true>(sum, layer + 1);
        if (!updates_in(step, steps) && layer + 1 < DEPTH) keep(INPUTS, layer + 1, step);
    }

    template <bool IS_FORWARD, bool IS_THIN>
    __device__ void exchange(const Sum<IS_THIN>& sum, int activations, bool updates = false) {
        auto* const masks = reinterpret_cast<unsigned char*>(memory + MASKS_AT) + (activations - 1) * OWN;
        sum.template add_up<IS_FORWARD>(biases + (activations - 1) * OWN_OUTPUTS, masks);
        if (updates) mbarrier_wait_parity(*ring.spent, phases++ & 1);
        sum.receive(at(activations));
        ++rounds[IS_THIN].number;
        fence_proxy_async();
        bar_sync(1, TAKERS);
    }

    template <bool IS_THIN, bool CORRECTS>
    __device__ void backward(int layer, bool updates) {
        const Sum<IS_THIN> sum(own, mail, rounds[IS_THIN]);
        const int pairs = tiles_of(layer) / TEAMS, panels = tiles_of(layer + 1);
        const char* const doutputs = at(layer + 1);
        const int pending = pending_in(step);
        if (CORRECTS) multiply_images(pending, doutputs, panels);
        if (updates) leave(*ring.ready);  // they wait for slots that what is kept has left
        for (int pair = pairs - 1; pair >= 0; --pair) {
            const int row_tile = TEAMS * pair + team;
            float dinputs[CHUNKS][4] = {};
            Fragments inputs = {};
            if (CORRECTS) load_kept(inputs, pending, [&](int n) { return kept.at(n, INPUTS, layer) + row_tile * TILE_BYTES; });
            if (DEFERS && !updates) multiply_row<2>(dinputs, doutputs, panels);
            else multiply_row<1>(dinputs, doutputs, panels);
            if (CORRECTS) correct(dinputs, inputs);
            sum.post_all(dinputs, row_tile);
        }
        update_bias(layer + 1);
        exchange<false>(sum, layer, updates);
        if (DEFERS && !updates) keep(GRADIENTS, layer, step);
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
            leave(ring.read[turn.slot]);
            if (TILES == 1) times ^= 1u << turn.slot;
            turn.next(TEAMS);
        }
    }

    // The first layer's products with the next step's images, once it is updated.
    __device__ void first_layer(bool updates, bool goes_on) {
        constexpr bool IS_THIN = is_thin(1);
        const Sum<IS_THIN> sum(own, mail, rounds[IS_THIN]);
        const int tiles = own.image_tiles();
        const bool defers = DEFERS && step >= 0 && !updates;
        if (updates && tiles > 0) leave(*ring.ready);
        if (goes_on) mbarrier_wait_parity(ring.images[(step + 1) & 1], (step + 1) / 2 & 1);
        const int pending = defers ? pending_in(step) : 0;  // before this step
        if (defers) multiply_images(pending + 1, images_of(step + 1), tiles);
        for (int panel = team; panel < tiles_of(1); panel += TEAMS) {
            float sums[CHUNKS][4] = {};
            Fragments gradients = {};
            load_kept(gradients, pending, [&](int n) { return kept.at(n, GRADIENTS, 1) + panel * TILE_BYTES; });
            if (defers) correct(sums, gradients, at(1) + panel * TILE_BYTES, pending);
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
                leave(ring.read[turn.slot]);
                turn.next(TEAMS);
            }
            if (goes_on) sum.post_all(sums, panel);
        }
        if (updates || defers) update_bias(1);
        if (defers && threadIdx.x == 0) complete_kept();
        bar_sync(1, TAKERS);
        if (goes_on) exchange<true>(sum, 1);
        if (goes_on && !updates_in(step + 1, steps)) keep(INPUTS, 1, step + 1);
    }

    // Of the outputs that this block owns, from their gradients, which all of their blocks have.
    __device__ void update_bias(int activations) const {
        if (threadIdx.x >= OWN_OUTPUTS) return;
        const char* const from = at(activations);
        float sum = 0.0f;
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            const int output = rank(activations) * OWN_OUTPUTS + threadIdx.x;
            const uint4 eight = *reinterpret_cast<const uint4*>(from + unit_at(output, chunk));
            const unsigned words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float2 two = two_of(words[i]);
                sum += two.x + two.y;
            }
        }
        biases[(activations - 1) * OWN_OUTPUTS + threadIdx.x] -= rate * sum;
    }

    float* const biases;
    float* const parameters;
    Head head;
    unsigned times = 0;  // a bit for each slot: that of its last update
    int keeps = 0, phases = 0;
    Rounds rounds[2];  // of thick sums, and of thin ones
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
    for (int i = threadIdx.x * 16; i < LAST_WEIGHTS_AT; i += THREADS * 16) {
        if (i < IMAGES_AT || i >= GRAMS_AT) *reinterpret_cast<uint4*>(memory + i) = make_uint4(0, 0, 0, 0);
    }
    fence_proxy_async();
    constexpr int LINE_UNITS = 8, ALL_UNITS = MAIL_UNITS + MOST_PENDING * 2 * DEPTH * KEPT_UNITS;  // of 128 bytes; with what is kept
    for (int i = (blockIdx.x * THREADS + threadIdx.x) * LINE_UNITS; i < ALL_UNITS; i += gridDim.x * THREADS * LINE_UNITS) {
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
        if (threadIdx.x == TAKERS + UPDATERS) Fetcher(ring, parameters, Kept(reinterpret_cast<uint4*>(mail), images)).run(steps);
        if (threadIdx.x == TAKERS + UPDATERS + WARP) Storer(ring, parameters).run(steps);
    }
}

// A whole epoch of softmax regression in one cooperative launch: blocks share out the batch, and each has all weights.
//
// Who holds what. A tile is sixteen features by sixteen images; behind the last feature comes one of ones, whose weights are the
// biases. A unit is four neighbouring features' weights of a class, as one lane has them in a fragment.
//
//   registers of a block's warps  factors of the weights, each warp those of every sixteenth tile of features
//   its shared memory             its images of two steps, brought by the copy engine; the warps' parts of its logits; dlogits
//   registers of an owner         the weights of its units; blocks without images are owners, too
//
// What travels in a step, through L2, with a round's tag in each message's lowest bit: no barriers
//
//   gradients  each block's part of a unit's, to the unit's owner, which adds them up
//   weights    the owner's units, to all blocks that have images
#include "device/bulk_copies.cuh"
#include "grid/divided_softmax.cuh"

// stages/persistent/batch_plan.py compiles the kernel for these.
#ifndef IMAGE_BLOCKS  // 784-10, batches of 900
#define IMAGE_BLOCKS 57
#define IMAGE_TILES 1
#define OWN_UNITS 32
#define BATCH_SIZE 900
#define INPUT_COUNT 784
#define CLASS_COUNT 10
#define WEIGHTS_BEGIN 0
#define BIASES_BEGIN 7840
#define SHARED_BYTES 68624
#endif

constexpr int THREADS = 512, WARPS = THREADS / WARP;
constexpr int SOURCES = IMAGE_BLOCKS, OWN = OWN_UNITS, BATCH = BATCH_SIZE, INPUTS = INPUT_COUNT, CLASSES = CLASS_COUNT;
constexpr int TILES = INPUTS / 16 + 1, EACH = (TILES - 1) / WARPS + 1;       // of features; of a warp
using Softmax = DividedSoftmax<CLASSES, IMAGE_TILES, WARPS>;
constexpr int EDGES = Softmax::EDGES, EDGE_PAIRS = Softmax::EDGE_PAIRS;      // of classes
constexpr int UNITS = TILES * CLASSES * 4, OWNERS = (UNITS - 1) / OWN + 1;
constexpr int SHARERS = WARP / 2, SHARED_SOURCES = (SOURCES - 1) / SHARERS + 1;  // lanes that add up a unit; parts of a lane
constexpr int OWN_PAIRS = OWN / 2, ROUNDS = (OWN_PAIRS - 1) / WARPS + 1;         // of units, two a warp
constexpr int AT_ONCE = EACH < 2 ? EACH : 2, STRIPS = (EACH + AT_ONCE - 1) / AT_ONCE;  // tiles of a warp's gradients

// Places in shared memory, in bytes.
constexpr int IMAGE_BYTES = TILES * IMAGE_TILES * 4 * MATRIX * 2, PARTS_AT = 2 * IMAGE_BYTES;
constexpr int DLOGITS_AT = PARTS_AT + WARPS * IMAGE_TILES * EDGES * Softmax::QUAD * 4, DLOGIT_NUMBERS = Softmax::DLOGIT_NUMBERS;
constexpr int BARRIERS_AT = DLOGITS_AT + HALVES * DLOGIT_NUMBERS * 2;
static_assert(BARRIERS_AT + 2 * sizeof(Barrier) <= SHARED_BYTES && Softmax::THREADS <= THREADS && OWN % 2 == 0);

// Parts of gradients are float32 for either number of halves: those of float16 err by more than its factors do.
struct Mail {
    uint4 *totals, *parts;
    Part* wholes;

    __device__ explicit Mail(uint4* memory)
        : totals(memory), parts(totals + SOURCES), wholes(reinterpret_cast<Part*>(parts + SLOTS * OWNERS * SOURCES * OWN)) {}
};

// The place of a unit's number i among the parameters; -1 if there is none. Two are of neighbouring features, two eight on.
__device__ inline int place_of(int unit, int i) {
    const int feature = unit / (4 * CLASSES) * 16 + unit % 4 * 2 + i % 2 + i / 2 * EDGE, c = unit / 4 % CLASSES;
    return feature > INPUTS ? -1 : feature == INPUTS ? BIASES_BEGIN + c : WEIGHTS_BEGIN + feature * CLASSES + c;
}

// The sum of a unit's parts, and its weights.
class Owner {
  public:
    __device__ Owner(const Mail& mail, float* parameters, float rate) : mail(mail), parameters(parameters), rate(rate) {
        for_all([&](float& weight, int place) { weight = parameters[place]; });
    }

    __device__ void store() {
        if (lane() / 2 == 0) for_all([&](float& weight, int place) { parameters[place] = weight; });
    }

    __device__ void add_up(Round round) {
        const unsigned tag = round.tag();
#pragma unroll
        for (int r = 0; r < ROUNDS; ++r) {
            const int own = own_of(r), unit = blockIdx.x * OWN + own;
            if (!is_there(r)) continue;
            const uint4* from = mail.parts + ((round.slot() * OWNERS + static_cast<int>(blockIdx.x)) * SOURCES + lane() / 2) * OWN + own;
            uint4 parts[SHARED_SOURCES];
#pragma unroll
            for (int i = 0; i < SHARED_SOURCES; ++i) {
                parts[i] = none<uint4>(unit < UNITS && lane() / 2 + i * SHARERS < SOURCES ? tag : tag ^ 1);
            }
            complete(parts, tag, [&](int i) { return from + i * SHARERS * OWN; });
            float sums[4] = {};
#pragma unroll
            for (int i = 0; i < SHARED_SOURCES; ++i) add(sums, parts[i]);
#pragma unroll
            for (int apart = 2; apart < WARP; apart *= 2) {
#pragma unroll
                for (int i = 0; i < 4; ++i) sums[i] += __shfl_xor_sync(~0u, sums[i], apart);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) weights[r][i] -= rate * sums[i];
            if (lane() / 2 == 0 && unit < UNITS) post(mail.wholes + round.slot() * UNITS + unit, whole_of(weights[r], tag));
        }
    }

  private:
    __device__ static int lane() { return threadIdx.x % WARP; }
    __device__ static int own_of(int r) { return (threadIdx.x / WARP + r * WARPS) * 2 + lane() % 2; }
    __device__ static bool is_there(int r) { return blockIdx.x < OWNERS && threadIdx.x / WARP + r * WARPS < OWN_PAIRS; }

    template <class Work>
    __device__ void for_all(Work work) {
        for (int r = 0; r < ROUNDS; ++r) {
            const int unit = blockIdx.x * OWN + own_of(r);
            for (int i = 0; i < 4; ++i) {
                if (is_there(r) && unit < UNITS && place_of(unit, i) >= 0) work(weights[r][i], place_of(unit, i));
            }
        }
    }

    const Mail& mail;
    float* parameters;
    const float rate;
    float weights[ROUNDS][4] = {};
};

// A block's images: forward, softmax, and their part of the gradients.
class Images {
  public:
    __device__ Images(const Mail& mail, char* memory, const char* images, const int* labels)
        : mail(mail), memory(memory), fetched(reinterpret_cast<Barrier*>(memory + BARRIERS_AT)), images(images), warp(threadIdx.x / WARP),
          lane(threadIdx.x % WARP), softmax(labels, blockIdx.x * IMAGE_TILES * 16, BATCH) {}

    __device__ void begin(const float* parameters) {
        for (int i = threadIdx.x; i < HALVES * DLOGIT_NUMBERS / 2; i += THREADS) reinterpret_cast<unsigned*>(dlogits())[i] = 0;
        if (threadIdx.x == 0) {
            for (int i = 0; i < 2; ++i) mbarrier_init(fetched[i], 1);
            fence_mbarrier_init();
            fetch(0);
        }
        softmax.begin(0);
        for_all([&](unsigned(&factor)[HALVES][2], int unit) {
            float numbers[4];
            for (int i = 0; i < 4; ++i) numbers[i] = place_of(unit, i) >= 0 ? parameters[place_of(unit, i)] : 0.0f;
            set(factor, whole_of(numbers, 0));
        });
        __syncthreads();
    }

    // The weights after a step, from their owners.
    __device__ void receive(Round round) {
        const unsigned tag = round.tag();
        Part units[EACH][EDGES];
        const Part* places[EACH][EDGES];
        for_all_places([&](int i, int e, int unit, bool is_there) {
            units[i][e] = none(is_there ? tag : tag ^ 1), places[i][e] = mail.wholes + round.slot() * UNITS + unit;
        });
        complete(reinterpret_cast<Part(&)[EACH * EDGES]>(units), tag, [&](int i) { return places[i / EDGES][i % EDGES]; });
        for_all_places([&](int i, int e, int, bool) { set(weights[i][e], units[i][e]); });
    }

    __device__ void train(int step, int steps, Round round, bool with_totals) {
        const auto* batch = reinterpret_cast<const unsigned short*>(memory + step % 2 * IMAGE_BYTES);
        mbarrier_wait_parity(fetched[step % 2], step / 2 % 2);
        forward(batch);
        __syncthreads();
        if (threadIdx.x == 0 && step + 1 < steps) fetch(step + 1);
        if (softmax.works()) softmax.run(parts(), dlogits(), with_totals);
        if (step + 1 < steps) softmax.begin(step + 1);
        __syncthreads();
        backward(batch, round);
    }

    __device__ void add_totals(double* all) const { softmax.add_totals(all, memory, mail.totals, blockIdx.x, SOURCES); }

  private:
    __device__ unsigned short* dlogits() const { return reinterpret_cast<unsigned short*>(memory + DLOGITS_AT); }
    __device__ float* parts() const { return reinterpret_cast<float*>(memory + PARTS_AT); }

    __device__ void fetch(int step) const {
        mbarrier_arrive_expect_tx(fetched[step % 2], IMAGE_BYTES);
        const char* from = images + (static_cast<long long>(step) * SOURCES + blockIdx.x) * IMAGE_BYTES;
        cp_async_bulk(memory + step % 2 * IMAGE_BYTES, fetched[step % 2], from, IMAGE_BYTES);
    }

    template <class Work>
    __device__ void for_all_places(Work work) const {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
#pragma unroll
            for (int e = 0; e < EDGES; ++e) {
                const int tile = warp + i * WARPS, c = e * EDGE + lane / 4;
                work(i, e, (tile * CLASSES + c) * 4 + lane % 4, tile < TILES && c < CLASSES);
            }
        }
    }
    template <class Work>
    __device__ void for_all(Work work) {
        for_all_places([&](int i, int e, int unit, bool is_there) {
            if (is_there) work(weights[i][e], unit);
        });
    }

    __device__ static void set(unsigned (&factor)[HALVES][2], Part whole) {
#if FACTOR_HALVES == 2
        factor[0][0] = whole.y, factor[0][1] = whole.w, factor[1][0] = whole.x, factor[1][1] = whole.z;
#else
        factor[0][0] = whole.x, factor[0][1] = whole.y;
#endif
    }

    // Some of the warp's tiles, with sixteen images, each four matrices: images 0-7, then 8-15; of the first features, then the
    // others. Several at once, so that a product need not wait for its own.
    template <bool TRANSPOSED, int COUNT>
    __device__ void load(unsigned (&x)[COUNT][4], const unsigned short* batch, int first, int images_tile) const {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int tile = min(warp + (first + i) * WARPS, TILES - 1);
            ldmatrix<TRANSPOSED>(x[i], batch + ((tile * IMAGE_TILES + images_tile) * 4 + lane / EDGE % 2 * 2 + lane / 16) * MATRIX +
                                           lane % EDGE * EDGE);
        }
    }

    // The warp's part of the logits.
    __device__ void forward(const unsigned short* batch) const {
        float sums[HALVES][IMAGE_TILES][EDGES][4] = {};
#pragma unroll
        for (int n = 0; n < IMAGE_TILES; ++n) {
            unsigned x[EACH][4];
            load<false>(x, batch, 0, n);
#pragma unroll
            for (int i = 0; i < EACH; ++i) {  // behind the last tile weights are zeros
#pragma unroll
                for (int e = 0; e < EDGES; ++e) {
#pragma unroll
                    for (int half = 0; half < HALVES; ++half) {
                        mma_m16n8k16_f16(sums[half][n][e], x[i], weights[i][e][half][0], weights[i][e][half][1]);
                    }
                }
            }
        }
#pragma unroll
        for (int n = 0; n < IMAGE_TILES; ++n) {
#pragma unroll
            for (int e = 0; e < EDGES; ++e) {
                float(&sum)[4] = sums[0][n][e];
                if constexpr (HALVES == 2) {
#pragma unroll
                    for (int j = 0; j < 4; ++j) sum[j] += sums[HALVES - 1][n][e][j] * (1.0f / LOW);
                }
                reinterpret_cast<float4*>(parts())[((warp * IMAGE_TILES + n) * EDGES + e) * WARP + lane] = {sum[0], sum[1], sum[2], sum[3]};
            }
        }
    }

    // Posts this block's part of the gradients.
    __device__ void backward(const unsigned short* batch, Round round) const {
        uint4* const to = mail.parts + (round.slot() * OWNERS * SOURCES + static_cast<int>(blockIdx.x)) * OWN;
        const unsigned short* const row = dlogits() + (lane / 16 * 2 * EDGE_PAIRS + lane / EDGE % 2) * MATRIX + lane % EDGE * EDGE;
#pragma unroll
        for (int at = 0; at < EDGE_PAIRS * STRIPS; ++at) {
            const int pair = at / STRIPS, first = at % STRIPS * AT_ONCE;
            float sums[AT_ONCE][HALVES][2][4] = {};
#pragma unroll
            for (int n = 0; n < IMAGE_TILES; ++n) {
                unsigned x[AT_ONCE][4], d[HALVES][4];
#pragma unroll
                for (int half = 0; half < HALVES; ++half) {
                    ldmatrix<true>(d[half], row + half * DLOGIT_NUMBERS + (n * 4 * EDGE_PAIRS + 2 * pair) * MATRIX);
                }
                load<true>(x, batch, first, n);
#pragma unroll
                for (int i = 0; i < AT_ONCE; ++i) {
#pragma unroll
                    for (int half = 0; half < HALVES; ++half) {
                        mma_m16n8k16_f16(sums[i][half][0], d[half], x[i][0], x[i][1]);
                        mma_m16n8k16_f16(sums[i][half][1], d[half], x[i][2], x[i][3]);
                    }
                }
            }
#pragma unroll
            for (int own = 0; own < 2 * AT_ONCE; ++own) {
                const int i = own / 2, e = 2 * pair + own % 2, tile = warp + (first + i) * WARPS;
                if (tile >= TILES || e >= EDGES) continue;
                const int c = e * EDGE + lane / 4, unit = (tile * CLASSES + c) * 4 + lane % 4, j = e % 2 * 2;
                float numbers[4];
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    numbers[k] = sums[i][0][k / 2][j + k % 2];
                    if constexpr (HALVES == 2) numbers[k] += sums[i][HALVES - 1][k / 2][j + k % 2] * (1.0f / LOW);
                }
                if (c < CLASSES) post(to + unit / OWN * SOURCES * OWN + unit % OWN, part_of<uint4>(numbers, round.tag()));
            }
        }
    }

    const Mail& mail;
    char* memory;
    Barrier* fetched;  // a step's images, by the step's parity
    const char* images;
    const int warp, lane;
    unsigned weights[EACH][EDGES][HALVES][2] = {};
    Softmax softmax;
};

// divided_batch: a whole epoch of softmax regression whose batch is divided. In each step parameters -= learning_rate * gradients.
//   images      (steps, IMAGE_BLOCKS, TILES, IMAGE_TILES, 2, 2, 8, 8)  f16  in: a block's tiles of 16 images by 16 features, each as
//               four matrices of 8 by 8; after the last feature a one; zeros behind it and beyond the batch
//   labels      (steps, batch)  i32  in, each 0 <= label < classes
//   parameters  (count,)  f32  in, out: placed by the plan
//   mail        (units, 4)  u32  in, out: zeros before each launch
//   totals      (2,)  f64  in, out: grows by the summed loss and the number right, if with_totals
// Kind:   fused.
// Launch: cooperative, the larger of IMAGE_BLOCKS and OWNERS blocks of THREADS with SHARED_BYTES of shared memory each; steps of the
//   epoch; rate for the mean over a batch, divided by GRADIENT_SCALE. With FACTOR_HALVES = 1 factors, and weights in messages, are float16.
// Needs:  sm_90; |weight| < 60,000.
// Order:  every sum has one order, independent of arrival; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS, 1) divided_batch(const unsigned short* images, const int* labels,
                                                                     float* parameters, unsigned* mail, double* totals,
                                                                     int steps, float rate, int with_totals) {
    extern __shared__ __align__(128) uint4 memory[];
    const Mail boxes(reinterpret_cast<uint4*>(mail));
    Owner owner(boxes, parameters, rate);
    Round round;
    if (blockIdx.x >= SOURCES) {
        for (; round.number < steps; ++round.number) owner.add_up(round);
    } else {
        Images own(boxes, reinterpret_cast<char*>(memory), reinterpret_cast<const char*>(images), labels);
        own.begin(parameters);
        for (; round.number < steps; ++round.number) {
            own.train(round.number, steps, round, with_totals);
            owner.add_up(round);
            if (round.number + 1 < steps) own.receive(round);
        }
        if (with_totals) own.add_totals(totals);
    }
    owner.store();
}

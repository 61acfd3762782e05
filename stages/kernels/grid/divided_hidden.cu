// A whole epoch of a network with one hidden layer in one cooperative launch: blocks share out the batch, and hidden units.
//
// Who holds what. The blocks form a table of IMAGE_SHARES, of 64 images each, by SHARES, of UNIT_TILES tiles of units each. A tile is
// sixteen units by sixteen features, images or classes; a fragment is the eight numbers that a lane has of it. Behind the last
// feature comes one of ones, whose weights are the first layer's biases.
//
//   shared memory           a step's images, brought by the copy engine; the first layer's weights of the block's units
//   registers of the warps  the last layer's weights, each warp those of every fourth tile of units
//   registers of an owner   float32 of a part of what the blocks with its units share: these units' weights of both layers,
//                           and the last layer's biases, of which every share of units has a copy
//
// What travels in a step, through L2, with a round's tag in each message's lowest bit: no barriers
//
//   outputs    of the block's units for its images, to the blocks with these images: each computes all their logits
//   gradients  the block's parts of its units', to owners among the blocks with these units, who add them up
//   weights    first layer's, to the blocks with these units; the last layer's, to all
#ifndef FACTOR_HALVES
#define FACTOR_HALVES 1
#endif
#include "device/blocks_together.cuh"
#include "grid/divided_softmax.cuh"
#include "grid/message_products.cuh"

// stages/persistent/hidden_batch_plan.py compiles the kernel for these.
#ifndef IMAGE_SHARES  // 784-256-10, batches of 1,024
#define IMAGE_SHARES 16
#define UNIT_TILES 2
#define BATCH_SIZE 1024
#define INPUT_COUNT 784
#define HIDDEN_UNITS 256
#define CLASS_COUNT 10
#define WEIGHT_BEGINS 0, 200704
#define BIAS_BEGINS 203264, 203520
#define SHARED_BYTES 220240
#endif
static_assert(HALVES == 1);

constexpr int GROUPS = 4, WARPS = GROUPS * GROUP_WARPS, THREADS = WARPS * WARP;
constexpr int IMAGE_TILES = 4, IMAGES = IMAGE_TILES * 16, IMAGE_EDGES = IMAGES / EDGE;  // of a block
constexpr int SOURCES = IMAGE_SHARES, BATCH = BATCH_SIZE, INPUTS = INPUT_COUNT, HIDDEN = HIDDEN_UNITS, CLASSES = CLASS_COUNT;
constexpr int OWN_TILES = UNIT_TILES, OWN_EDGES = 2 * OWN_TILES;                  // of units, of a block
constexpr int SHARES = ((HIDDEN - 1) / 16 + OWN_TILES) / OWN_TILES, ALL_TILES = SHARES * OWN_TILES;
constexpr int EACH = (ALL_TILES + GROUPS - 1) / GROUPS;                          // of them, of a warp
constexpr int FEATURE_TILES = INPUTS / 16 + 1, STEPS = (FEATURE_TILES + GROUPS - 1) / GROUPS;  // of all; of a warp group
constexpr int weight_begins[] = {WEIGHT_BEGINS}, bias_begins[] = {BIAS_BEGINS};
using Softmax = DividedSoftmax<CLASSES, IMAGE_TILES, GROUPS>;
constexpr int EDGES = Softmax::EDGES, CLASS_TILES = Softmax::EDGE_PAIRS, CLASS_EDGES = 2 * CLASS_TILES;  // of classes; as tiles; in memory
static_assert(OWN_TILES * IMAGE_TILES <= WARPS);

// Fragments of a share of units: of the first layer, features by units; of the last, classes by units, a tile of units' beside each
// other; and of the last layer's biases, each with four.
constexpr int FIRST = FEATURE_TILES * OWN_TILES * WARP, LAST = OWN_TILES * CLASS_TILES * WARP;
constexpr int TILE_BIASES = 4, BIASES = CLASS_TILES * TILE_BIASES, ALL = FIRST + LAST + BIASES;
constexpr int OWN = (ALL + SOURCES - 1) / SOURCES;  // of an owner
__device__ constexpr int most_sharers() {
    int sharers = 1;
    while (2 * sharers <= SOURCES && 2 * sharers * OWN <= THREADS) sharers *= 2;
    return sharers;
}
constexpr int SHARERS = most_sharers(), PARTS = (SOURCES + SHARERS - 1) / SHARERS;  // threads that add up a fragment; its parts of a thread
constexpr int ROUNDS = (OWN * SHARERS + THREADS - 1) / THREADS;
constexpr int FIRST_EACH = (FIRST + THREADS - 1) / THREADS;  // fragments that a thread receives

// Places in shared memory, in numbers of 16 bits.
constexpr int WEIGHTS_AT = GROUPS * STEPS * 2 * IMAGE_EDGES * MATRIX;
constexpr bool ONE_PLACE = CLASS_TILES > 1;  // for the warp groups' parts of outputs and of logits
constexpr int SUMS = 2 * GROUPS * IMAGES * EDGE;  // numbers of parts for each edge
constexpr int SUMS_AT = WEIGHTS_AT + GROUPS * STEPS * 2 * OWN_EDGES * MATRIX;
constexpr int PARTS_AT = ONE_PLACE ? SUMS_AT : SUMS_AT + OWN_EDGES * SUMS;
constexpr int OUTPUTS_AT = PARTS_AT + (ONE_PLACE && OWN_EDGES > EDGES ? OWN_EDGES : EDGES) * SUMS;  // own units'
constexpr int DOUTPUTS_AT = OUTPUTS_AT + IMAGE_EDGES * OWN_EDGES * MATRIX;
constexpr int DLOGITS_AT = DOUTPUTS_AT + IMAGE_EDGES * OWN_EDGES * MATRIX;
constexpr int LAST_AT = DLOGITS_AT + Softmax::DLOGIT_NUMBERS;  // the last layer's weights from own units
constexpr int BIASES_AT = LAST_AT + CLASS_EDGES * OWN_EDGES * MATRIX;
constexpr int BARRIER_AT = BIASES_AT + 2 * CLASS_EDGES * EDGE;
static_assert(2 * BARRIER_AT + sizeof(Barrier) <= SHARED_BYTES && Softmax::THREADS == THREADS);

// This block's place in the table.
__device__ inline int image_share() { return blockIdx.x / SHARES; }
__device__ inline int unit_share() { return blockIdx.x % SHARES; }

struct Mail {
    uint4 *totals, *outputs, *parts, *wholes;

    __device__ explicit Mail(uint4* memory)
        : totals(memory), outputs(totals + SOURCES), parts(outputs + SLOTS * SOURCES * ALL_TILES * IMAGE_TILES * WARP),
          wholes(parts + SLOTS * SHARES * SOURCES * SOURCES * OWN) {}

    __device__ uint4* outputs_of(Round round, int tile, int image_tile) const {
        return outputs + (((round.slot() * SOURCES + image_share()) * ALL_TILES + tile) * IMAGE_TILES + image_tile) * WARP;
    }
    // The first part of a fragment of this block's units, at its owner.
    __device__ uint4* parts_of(Round round, int fragment) const {
        const int owner = (round.slot() * SHARES + unit_share()) * SOURCES + fragment / OWN;
        return parts + owner * SOURCES * OWN + fragment % OWN;
    }
    // Fragments of this block's units that are for the blocks with these; then those of the last layer's weights, of all units.
    __device__ uint4* own_wholes(Round round) const { return wholes + (round.slot() * SHARES + unit_share()) * ALL; }
    __device__ uint4* last_wholes(Round round) const { return wholes + SLOTS * SHARES * ALL + round.slot() * SHARES * LAST; }
};

// The place of a fragment's number i among the parameters; -1 if there is none.
__device__ inline int place_of(int share, int fragment, int i) {
    const int tile = fragment / WARP, lane = fragment % WARP, row = lane / 4 + i / 2 % 2 * EDGE, last_tile = tile - FIRST / WARP;
    const int own_tile = fragment < FIRST ? tile % OWN_TILES : last_tile / CLASS_TILES;
    const int unit = (share * OWN_TILES + own_tile) * 16 + lane % 4 * 2 + i % 2 + i / 4 * EDGE;
    if (fragment < FIRST) {
        const int feature = tile / OWN_TILES * 16 + row;
        if (unit >= HIDDEN || feature > INPUTS) return -1;
        return feature == INPUTS ? bias_begins[0] + unit : weight_begins[0] + feature * HIDDEN + unit;
    }
    if (fragment < FIRST + LAST) {
        const int c = last_tile % CLASS_TILES * 16 + row;
        return unit < HIDDEN && c < CLASSES ? weight_begins[1] + unit * CLASSES + c : -1;
    }
    const int c = (fragment - FIRST - LAST) * 4 + i;
    return i < 4 && c < CLASSES ? bias_begins[1] + c : -1;
}

// A fragment as float16.
__device__ inline uint4 rounded(const float (&first)[4], const float (&last)[4], unsigned tag) {
    return make_uint4(tagged(cvt_f16x2(first[0], first[1]), tag), cvt_f16x2(first[2], first[3]), cvt_f16x2(last[0], last[1]),
                      cvt_f16x2(last[2], last[3]));
}
__device__ inline uint4 whole_of(int fragment, const float (&numbers)[2][4], unsigned tag) {
    return fragment < FIRST + LAST ? rounded(numbers[0], numbers[1], tag) : part_of<uint4>(numbers[0], tag);
}

// The sums of some fragments' parts, and what they change.
class Owner {
  public:
    __device__ Owner(const Mail& mail, float* parameters, float rate) : mail(mail), parameters(parameters), rate(rate) {
        for_all([&](float& number, int place) { number = parameters[place]; });
    }

    __device__ void store() {
        if (threadIdx.x % SHARERS == 0) for_all([&](float& number, int place) { parameters[place] = number; });
    }

    __device__ void add_up(Round round) {
        const unsigned tag = round.tag();
#pragma unroll
        for (int r = 0; r < ROUNDS; ++r) {
            const int fragment = fragment_of(r), first = threadIdx.x % SHARERS * PARTS;
            uint4 parts[PARTS];
#pragma unroll
            for (int i = 0; i < PARTS; ++i) parts[i] = none<uint4>(is_there(r) && first + i < SOURCES ? tag : tag ^ 1);
            const uint4* const from = mail.parts_of(round, fragment) + first * OWN;
            complete(parts, tag, [&](int i) { return from + i * OWN; });
            float sums[2][4] = {};
#pragma unroll
            for (int i = 0; i < PARTS; ++i) {
                if (fragment >= FIRST + LAST) {
                    add(sums[0], parts[i]);
                } else {
                    add(sums[0], make_uint2(parts[i].x, parts[i].y)), add(sums[1], make_uint2(parts[i].z, parts[i].w));
                }
            }
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                float& sum = sums[i / 4][i % 4];
#pragma unroll
                for (int apart = 1; apart < SHARERS; apart *= 2) sum += __shfl_xor_sync(~0u, sum, apart);
                numbers[r][i / 4][i % 4] -= rate * sum;
            }
        }
        send(Round{round.number + 1});
    }

    // Posts this block's fragments.
    __device__ void send(Round round) const {
        uint4 *const own = mail.own_wholes(round), *const last = mail.last_wholes(round) + unit_share() * LAST - FIRST;
#pragma unroll
        for (int r = 0; r < ROUNDS; ++r) {
            const int fragment = fragment_of(r);
            if (!is_there(r) || threadIdx.x % SHARERS > 0) continue;
            const bool is_last = fragment >= FIRST && fragment < FIRST + LAST;
            post((is_last ? last : own) + fragment, whole_of(fragment, numbers[r], round.tag()));
        }
    }

  private:
    __device__ static int own_of(int r) { return (threadIdx.x + r * THREADS) / SHARERS; }
    __device__ static int fragment_of(int r) { return image_share() * OWN + min(own_of(r), OWN - 1); }
    __device__ static bool is_there(int r) { return own_of(r) < OWN && fragment_of(r) < ALL; }

    template <class Work>
    __device__ void for_all(Work work) {
#pragma unroll
        for (int r = 0; r < ROUNDS; ++r) {
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int place = is_there(r) ? place_of(unit_share(), fragment_of(r), i) : -1;
                if (place >= 0) work(numbers[r][i / 4][i % 4], place);
            }
        }
    }

    const Mail& mail;
    float* parameters;
    const float rate;
    float numbers[ROUNDS][2][4] = {};
};

// A block's images and units: forward, softmax, and their part of the gradients.
class Images {
  public:
    __device__ Images(const Mail& mail, unsigned short* memory, const unsigned short* images, const int* labels)
        : mail(mail), memory(memory), fetched(*reinterpret_cast<Barrier*>(memory + BARRIER_AT)), images(images),
          softmax(labels, image_share() * IMAGES, BATCH) {}

    __device__ void begin() {
        find_place();
        for (int i = threadIdx.x; i < BARRIER_AT / 2; i += THREADS) reinterpret_cast<unsigned*>(memory)[i] = 0;
        fence_proxy_async();
        __syncthreads();
        if (threadIdx.x == 0) {
            mbarrier_init(fetched, 1);
            fence_mbarrier_init();
            fetch(0);
        }
        softmax.begin(0);
    }

    // The parameters, from their owners.
    __device__ void receive(Round round) {
        const unsigned tag = round.tag();
        uint4 fragments[RECEIVED];
#pragma unroll
        for (int i = 0; i < RECEIVED; ++i) fragments[i] = none<uint4>(is_received(i) ? tag : tag ^ 1);
        const uint4 *const own = mail.own_wholes(round), *const first = own + fragment_of(0),
                    *const last = mail.last_wholes(round) + tile_of(0) * CLASS_TILES * WARP + lane;
        complete(fragments, tag, [&](int i) {
            if (i < FIRST_EACH) return first + i * THREADS;
            const int k = (i - FIRST_EACH) / CLASS_TILES, c = (i - FIRST_EACH) % CLASS_TILES;
            return i < RECEIVED - 1 ? last + (k * GROUPS * CLASS_TILES + c) * WARP : own + FIRST + LAST + lane;
        });
        keep(fragments);
    }

    __device__ void train(int step, int steps, Round round, bool with_totals) {
        find_place();
        mbarrier_wait_parity(fetched, step % 2);
        forward(round);
        if constexpr (ONE_PLACE) __syncthreads();
        multiply_logits(round);
        __syncthreads();
        softmax.run(floats(PARTS_AT), memory + DLOGITS_AT, with_totals);
        if (step + 1 < steps) softmax.begin(step + 1);
        __syncthreads();
        back_to_units();
        fence_proxy_async();
        last_gradients(round);
        __syncthreads();
        first_gradients(round);
        __syncthreads();
        if (threadIdx.x == 0 && step + 1 < steps) fetch(step + 1);
    }

    __device__ void add_totals(double* all) const {
        auto* own = reinterpret_cast<char*>(memory);
        if (unit_share() == 0) softmax.add_totals(all, own, mail.totals, image_share(), SOURCES);
    }

  private:
    // Lets the compiler derive no addresses from before this step: it would keep them in registers, and spill others.
    __device__ void find_place() {
        warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
        opaque(warp), opaque(lane);
        warp = __shfl_sync(~0u, warp, 0);  // the same in all lanes, for the compiler too
    }

    // What a thread receives: fragments of the first layer's weights, of the last layer's from every fourth tile of units, and of
    // its biases.
    static constexpr int RECEIVED = FIRST_EACH + EACH * CLASS_TILES + 1;
    __device__ int fragment_of(int i) const { return warp * WARP + lane + i * THREADS; }
    __device__ int tile_of(int k) const { return warp / GROUP_WARPS + k * GROUPS; }
    __device__ bool is_received(int i) const {
        if (i < FIRST_EACH) return (i + 1) * THREADS <= FIRST || fragment_of(i) < FIRST;
        const int k = (i - FIRST_EACH) / CLASS_TILES;
        return i < RECEIVED - 1 ? (k + 1) * GROUPS <= ALL_TILES || tile_of(k) < ALL_TILES : warp == 0 && lane < BIASES;
    }

    __device__ void keep(const uint4 (&fragments)[RECEIVED]) {
#pragma unroll
        for (int i = 0; i < RECEIVED - 1; ++i) {
            if (!is_received(i)) continue;
            if (i < FIRST_EACH) {
                const int tile = warp + i * WARPS;
                put(words(WEIGHTS_AT) + matrices_at(2 * (tile / OWN_TILES), 2 * (tile % OWN_TILES)), fragments[i]);
            } else {
                const int k = (i - FIRST_EACH) / CLASS_TILES, c = (i - FIRST_EACH) % CLASS_TILES;
                last[k][c] = fragments[i];
                const int tile = tile_of(k) - unit_share() * OWN_TILES;
                if (tile >= 0 && tile < OWN_TILES && warp % GROUP_WARPS == 0) put(words(LAST_AT) + matrices_at(2 * c, 2 * tile), fragments[i]);
            }
        }
        if (is_received(RECEIVED - 1)) reinterpret_cast<uint4*>(memory + BIASES_AT)[lane] = fragments[RECEIVED - 1];
        fence_proxy_async();
        __syncthreads();
    }

    __device__ unsigned* words(int at) const { return reinterpret_cast<unsigned*>(memory + at) + lane; }
    __device__ float* floats(int at) const { return reinterpret_cast<float*>(memory + at); }
    // Words to a matrix of own units, in rows of OWN_EDGES of them.
    __device__ static int matrices_at(int row, int column) { return (row * OWN_EDGES + column) * MATRIX / 2; }
    // A fragment's words into four matrices.
    __device__ static void put(unsigned* to, uint4 fragment) {
        to[0] = fragment.x, to[matrices_at(1, 0)] = fragment.y, to[matrices_at(0, 1)] = fragment.z, to[matrices_at(1, 1)] = fragment.w;
    }

    // The images' features are 8 by 8 numbers with images as rows.
    __device__ Factor images_at(int feature_edge, int along, int across) const {
        return {memory + feature_edge * IMAGE_EDGES * MATRIX, along, across, 0};
    }
    __device__ Factor of_units(int at, int row) const { return {memory + at + row * OWN_EDGES * MATRIX, OWN_EDGES * MATRIX, MATRIX, 0}; }

    __device__ void fetch(int step) const {
        constexpr int TILE = 4 * IMAGE_TILES * MATRIX, AT_ONCE = 8;  // 16 KB
        mbarrier_arrive_expect_tx(fetched, 2 * FEATURE_TILES * TILE);
        const unsigned short* from = images + (static_cast<long long>(step) * SOURCES + image_share()) * FEATURE_TILES * TILE;
        for (int tile = 0; tile < FEATURE_TILES; tile += AT_ONCE) {
            cp_async_bulk(memory + tile * TILE, fetched, from + tile * TILE, 2 * min(AT_ONCE, FEATURE_TILES - tile) * TILE);
        }
    }

    // Outputs of the block's units; warp groups share the features.
    __device__ void forward(Round round) const {
        const int group = warp / GROUP_WARPS, row = warp % GROUP_WARPS * WARP + lane;
        float sums[OWN_EDGES][4];
        multiply<STEPS, false, true, false, false>(sums, images_at(2 * group * STEPS, IMAGE_EDGES * MATRIX, MATRIX),
                                                   of_units(WEIGHTS_AT, 2 * group * STEPS));
        float4* const parts = reinterpret_cast<float4*>(memory + SUMS_AT);
#pragma unroll
        for (int n = 0; n < OWN_EDGES; ++n) {
            parts[(group * OWN_EDGES + n) * GROUP_WARPS * WARP + row] = {sums[n][0], sums[n][1], sums[n][2], sums[n][3]};
        }
        __syncthreads();
        if (warp >= OWN_TILES * IMAGE_TILES) return;
        const int tile = warp / IMAGE_TILES, image_tile = warp % IMAGE_TILES;
        float outputs[2][4];
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
            for (int i = 0; i < GROUPS; ++i) {
                const float4 part = parts[(i * OWN_EDGES + 2 * tile + n) * GROUP_WARPS * WARP + row];
                sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
            }
            outputs[n][0] = relu_of(sum.x), outputs[n][1] = relu_of(sum.y);
            outputs[n][2] = relu_of(sum.z), outputs[n][3] = relu_of(sum.w);
        }
        post(mail.outputs_of(round, unit_share() * OWN_TILES + tile, image_tile) + lane, rounded(outputs[0], outputs[1], round.tag()));
        put(words(OUTPUTS_AT) + matrices_at(2 * image_tile, 2 * tile), rounded(outputs[0], outputs[1], 0));
    }

    // A warp's part of the logits of sixteen images: of every fourth tile of all units.
    __device__ void multiply_logits(Round round) const {
        const unsigned tag = round.tag();
        const int image_tile = warp % IMAGE_TILES, group = warp / GROUP_WARPS;
        uint4 outputs[EACH];
#pragma unroll
        for (int k = 0; k < EACH; ++k) outputs[k] = none<uint4>(group + k * GROUPS < ALL_TILES ? tag : tag ^ 1);
        const uint4* const from = mail.outputs_of(round, group, image_tile) + lane;
        complete(outputs, tag, [&](int k) { return from + k * GROUPS * IMAGE_TILES * WARP; });
        float sums[EDGES][4];
#pragma unroll
        for (int e = 0; e < EDGES; ++e) {
            const float* const bias = floats(BIASES_AT) + e * EDGE + lane % 4 * 2;
            sums[e][0] = sums[e][2] = group == 0 ? bias[0] : 0.0f;
            sums[e][1] = sums[e][3] = group == 0 ? bias[1] : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < EACH; ++k) {
            const unsigned left[4] = {outputs[k].x, outputs[k].y, outputs[k].z, outputs[k].w};
#pragma unroll
            for (int c = 0; c < CLASS_TILES; ++c) {
                mma_m16n8k16_f16(sums[2 * c], left, last[k][c].x, last[k][c].z);
                if (2 * c + 1 < EDGES) mma_m16n8k16_f16(sums[min(2 * c + 1, EDGES - 1)], left, last[k][c].y, last[k][c].w);
            }
        }
#pragma unroll
        for (int e = 0; e < EDGES; ++e) {
            const int at = ((group * IMAGE_TILES + image_tile) * EDGES + e) * WARP + lane;
            reinterpret_cast<float4*>(memory + PARTS_AT)[at] = {sums[e][0], sums[e][1], sums[e][2], sums[e][3]};
        }
    }

    // The gradients of own units' outputs.
    __device__ void back_to_units() const {
        const int image_tile = warp % IMAGE_TILES, row = lane % EDGE * EDGE, second = lane / EDGE % 2;
        unsigned left[CLASS_TILES][4];
#pragma unroll
        for (int c = 0; c < CLASS_TILES; ++c) {
            ldmatrix<false>(left[c], memory + DLOGITS_AT + ((2 * image_tile + second) * CLASS_EDGES + 2 * c + lane / 16) * MATRIX + row);
        }
#pragma unroll
        for (int n = warp / IMAGE_TILES; n < OWN_EDGES; n += GROUPS) {
            float sums[4] = {};
#pragma unroll
            for (int c = 0; c < CLASS_TILES; ++c) {
                unsigned right[2];
                ldmatrix<true>(right, memory + LAST_AT + ((2 * c + second) * OWN_EDGES + n) * MATRIX + row);
                mma_m16n8k16_f16(sums, left[c], right[0], right[1]);
            }
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int at = matrices_at(2 * image_tile + i, n);
                const unsigned outputs = words(OUTPUTS_AT)[at];
                words(DOUTPUTS_AT)[at] = cvt_f16x2(outputs & 0x7fffu ? sums[2 * i] : 0.0f, outputs & 0x7fff0000u ? sums[2 * i + 1] : 0.0f);
            }
        }
    }

    // This block's parts of the last layer's gradients: a warp has a tile of own units, or the biases, by a tile of classes.
    __device__ void last_gradients(Round round) const {
        for (int at = WARPS - 1 - warp; at < (OWN_TILES + 1) * CLASS_TILES; at += WARPS) gradients_of(at / CLASS_TILES, at % CLASS_TILES, round);
    }

    __device__ void gradients_of(int tile, int class_tile, Round round) const {
        const int row = lane % EDGE * EDGE, second = lane / EDGE % 2, other = lane / 16;
        float sums[2][4] = {};
#pragma unroll
        for (int k = 0; k < IMAGE_TILES; ++k) {
            unsigned left[4], right[4] = {0x3c003c00, 0x3c003c00, 0, 0};  // ones
            ldmatrix<true>(left, memory + DLOGITS_AT + ((2 * k + other) * CLASS_EDGES + 2 * class_tile + second) * MATRIX + row);
            if (tile < OWN_TILES) ldmatrix<true>(right, memory + OUTPUTS_AT + ((2 * k + second) * OWN_EDGES + 2 * tile + other) * MATRIX + row);
            mma_m16n8k16_f16(sums[0], left, right[0], right[1]);
            mma_m16n8k16_f16(sums[1], left, right[2], right[3]);
        }
        if (tile < OWN_TILES) {
            post_part(round, FIRST + (tile * CLASS_TILES + class_tile) * WARP + lane, rounded(sums[0], sums[1], round.tag()));
            return;
        }
        float four[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int c = lane % TILE_BIASES * 4 + i;
            const float upper = __shfl_sync(~0u, sums[0][0], c % EDGE * 4), lower = __shfl_sync(~0u, sums[0][2], c % EDGE * 4);
            four[i] = c < EDGE ? upper : lower;
        }
        if (lane < TILE_BIASES) post_part(round, FIRST + LAST + class_tile * TILE_BIASES + lane, part_of<uint4>(four, round.tag()));
    }

    // This block's parts of the first layer's gradients; a warp group has sixty-four features at a time.
    __device__ void first_gradients(Round round) const {
#pragma unroll
        for (int at = warp / GROUP_WARPS; at < STEPS; at += GROUPS) {
            float sums[OWN_EDGES][4];
            multiply<IMAGE_TILES, true, true, false, false>(sums, images_at(8 * at, MATRIX, IMAGE_EDGES * MATRIX), of_units(DOUTPUTS_AT, 0));
            const int tile = 4 * at + warp % GROUP_WARPS;
            if (tile >= FEATURE_TILES) continue;
#pragma unroll
            for (int n = 0; n < OWN_TILES; ++n) {
                post_part(round, (tile * OWN_TILES + n) * WARP + lane, rounded(sums[2 * n], sums[2 * n + 1], round.tag()));
            }
        }
    }

    __device__ void post_part(Round round, int fragment, uint4 part) const {
        post(mail.parts_of(round, fragment) + image_share() * OWN, part);
    }

    const Mail& mail;
    unsigned short* memory;
    Barrier& fetched;
    const unsigned short* images;
    int warp, lane;
    Softmax softmax;
    uint4 last[EACH][CLASS_TILES] = {};  // fragments of the last layer's weights
};

// divided_hidden: a whole epoch of a network with one hidden layer, whose batch is divided. In each step parameters -= learning_rate *
// gradients.
//   images      (steps, IMAGE_SHARES, 2 FEATURE_TILES, 8, 8, 8)  f16  in: a block's 64 images, matrices of 8 images by 8 features, those of the
//               same features beside each other; after the last feature a one; zeros behind it and beyond the batch
//   labels      (steps, batch)  i32  in, each 0 <= label < classes
//   parameters  (count,)  f32  in, out: placed by the plan
//   mail        (units, 4)  u32  in, out: zeros before each launch
//   totals      (2,)  f64  in, out: grows by the summed loss and the number right, if with_totals
// Kind:   fused.
// Launch: cooperative, IMAGE_SHARES * SHARES blocks of THREADS with SHARED_BYTES of shared memory each; steps of the epoch; rate for
//   the mean over a batch, divided by GRADIENT_SCALE. Factors, and messages but the biases', are float16.
// Needs:  sm_90; classes <= 64; |weight|, |output|, |gradient's part| < 60,000.
// Order:  every sum has one order, independent of arrival; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS, 1) divided_hidden(const unsigned short* images, const int* labels,
                                                                        float* parameters, unsigned* mail, double* totals,
                                                                        int steps, float rate, int with_totals) {
    extern __shared__ __align__(128) uint4 memory[];
    const Mail boxes(reinterpret_cast<uint4*>(mail));
    Owner owner(boxes, parameters, rate);
    Images own(boxes, reinterpret_cast<unsigned short*>(memory), images, labels);
    own.begin();
    Round round;
    owner.send(round);
    own.receive(round);
    for (; round.number < steps; ++round.number) {
        own.train(round.number, steps, round, with_totals);
        owner.add_up(round);
        if (round.number + 1 < steps) own.receive(Round{round.number + 1});
    }
    if (with_totals) own.add_totals(totals);
    owner.store();
}

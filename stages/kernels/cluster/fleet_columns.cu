// Several softmax regressions in one small cluster: all see the same images, so that their classes are columns of one product.
//
// Who holds what. Sixteen features are a tile (the bias is one more feature, whose pixel is always 1), sixteen images a pair,
// and eight of either a chunk. Block b of four owns tiles b * tiles / 4 up to the next block's first, and of each half of the
// batch, four pairs, pair b.
//
//   forward    warps 0 to 3, a warp group, multiply all images by the block's weights, and send the products to their owners
//   head       warp n + 4 takes the softmax of network n for the first half of the images, then warp n for the second one, two
//              lanes an image; they send dlogits to all blocks
//   backward   warps 0 to 3 update the weights, which stay in their registers, also as left factors of the next step
//
// A warp of the warp group has eight columns, as sixteen rows of a left factor: high halves, then low ones. One half of the
// images is multiplied while the other one's messages travel. No barrier stops all warps. A network's sums have one order,
// wherever its columns lie and whoever its neighbours are.
//
// Precision: tensor cores give float32's. Pixels are exact in float16, and every other factor is two float16 halves.
#include "device/blocks_together.cuh"
#include "device/messages.cuh"
#include "device/warpgroup.cuh"
#include "cluster/fragments.cuh"

#ifndef SIZES  // the problem that it is compiled for
#define SIZES 4, 3, 10, 50, 8, 142592
#endif
constexpr int GIVEN[] = {SIZES};
constexpr int BLOCKS = GIVEN[0], NETWORKS = GIVEN[1], CLASSES = GIVEN[2];  // of a cluster, of a network
constexpr int ALL_TILES = GIVEN[3], TILES = (ALL_TILES + BLOCKS - 1) / BLOCKS, PAIRS = GIVEN[4];  // of a batch, a block at most

constexpr int GROUP = 4, WARPS = 2 * GROUP, THREADS = WARPS * WARP, STAGES = 2;
constexpr int COLUMNS = NETWORKS * CLASSES, ROWS = GROUP * HALF_EDGE;  // in use, and of the warp group
constexpr int HALVES = (PAIRS + BLOCKS - 1) / BLOCKS;                  // of the images
constexpr int HALF_CHUNKS = 2 * BLOCKS;                                // of images
constexpr int PART = 13, PARTS = (2 * TILES + PART - 1) / PART;        // chunks of features that are multiplied at once
constexpr int NEXT_IMAGES = HALF_EDGE, NEXT_FEATURES = 2 * PAIRS * HALF_EDGE;  // distances to the next chunk, in uint4
constexpr int PAIR_BYTES = EDGE * COLUMNS * 4;                                 // of the messages about a pair of images
static_assert(HALVES <= 2 && NETWORKS <= GROUP && COLUMNS <= ROWS);

// Scales before a number is split, so that the lower half is seldom too small for a float16.
constexpr float WEIGHT_SCALE = 16.0f;
constexpr float DLOGIT_SCALE = 1024.0f;

struct alignas(128) Shared {
    uint4 images[STAGES][PARTS * PART * NEXT_FEATURES];  // chunks of features by chunks of images, eight rows each
    uint4 dlogits[2 * PAIRS][2][ROWS];                   // eight images of a column: high halves, then low ones
    uint4 own_dlogits[NETWORKS][HALVES][4 * CLASSES];    // the same of the own images, as a head warp writes them
    float partial_logits[HALVES][BLOCKS][COLUMNS][EDGE]; // of the own images, from each block, in the order of slot_of
    double totals[NETWORKS][BLOCKS][HALVES][2];          // in the first block, from each warp: summed loss, number right
    Barrier fetched[STAGES], used[STAGES], logits_are_in[HALVES], dlogits_are_in[HALVES], totals_are_in;
};
static_assert(sizeof(Shared) == GIVEN[5]);  // as stages/persistent/fleet_columns.py counts it

// The place of an image of a pair in messages: a lane of a product has four images, which travel together.
__device__ inline int slot_of(int image) { return image % HALF_EDGE / 2 * 4 + image / HALF_EDGE * 2 + image % 2; }

// The kernel's arguments and a thread's place; the kernel's comment explains them.
struct Epoch {
    Shared& shared;
    const unsigned short* images;
    const int* labels;
    float *weight, *bias;
    const float* learning_rates;
    int steps, inputs, stride, networks, with_totals;
    int rank, warp, lane;
    double loss, correct;  // of this lane's images in the warp's network

    __device__ int first_tile() const { return rank * ALL_TILES / BLOCKS; }
    __device__ int tiles() const { return (rank + 1) * ALL_TILES / BLOCKS - first_tile(); }
    // Whether that block owns images of that half.
    __device__ static bool has_half(int block, int half) { return BLOCKS * half + block < PAIRS; }
    __device__ int logits_bytes(int half) const { return has_half(rank, half) * BLOCKS * PAIR_BYTES; }
    __device__ static int dlogits_bytes(int half) { return min(BLOCKS, PAIRS - BLOCKS * half) * PAIR_BYTES; }

    __device__ void fetch(int step) const {
        const int bytes = 2 * tiles() * NEXT_FEATURES * static_cast<int>(sizeof(uint4));
        Barrier& fetched = shared.fetched[step % STAGES];
        mbarrier_arrive_expect_tx(fetched, bytes);
        if (bytes == 0) return;
        const unsigned short* from = images + (step * ALL_TILES + first_tile()) * 2 * NEXT_FEATURES * HALF_EDGE;
        cp_async_bulk(shared.images[step % STAGES], fetched, from, bytes);
    }

    // The softmax of sixteen images for a network, and its dlogits to all blocks. Lanes i and i + 16 have an image, the first of
    // them the lower classes.
    __device__ void head(int network, int half, int step, int label) {
        constexpr int LOWER = (CLASSES + 1) / 2;
        const int column = network * CLASSES, image = lane % EDGE;
        const int first = lane / EDGE * LOWER;  // of this lane's classes
        float logits[LOWER], largest = -3.4e38f, wanted = 0.0f, powers = 0.0f;
        int best = CLASSES;
        mbarrier_wait_parity(shared.logits_are_in[half], step % 2);
        if (network == 0 && lane == 0) mbarrier_arrive_expect_tx(shared.logits_are_in[half], logits_bytes(half));
#pragma unroll
        for (int i = 0; i < LOWER; ++i) {
            if (first + i >= CLASSES) continue;
            float sum = 0.0f;
#pragma unroll
            for (int sender = 0; sender < BLOCKS; ++sender) {
                sum += shared.partial_logits[half][sender][column + first + i][slot_of(image)];
            }
            logits[i] = sum / WEIGHT_SCALE;
            if (first + i == label) wanted = logits[i];
            if (i == 0 || logits[i] > largest) largest = logits[i], best = first + i;
        }
        if (with_totals) {
            const float others = __shfl_xor_sync(~0u, largest, EDGE);
            const int its_best = __shfl_xor_sync(~0u, best, EDGE);
            if (others > largest || (others == largest && its_best < best)) best = its_best;
            wanted += __shfl_xor_sync(~0u, wanted, EDGE);  // one of them is 0
        }
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, EDGE));
#pragma unroll
        for (int i = 0; i < LOWER; ++i) {
            if (first + i >= CLASSES) continue;
            // Relative error |x| 2^-24; in absolute terms at most 2^-25, since e^x falls faster than |x| grows.
            logits[i] = __expf(logits[i] - largest);
            powers += logits[i];
        }
        powers += __shfl_xor_sync(~0u, powers, EDGE);
        if (with_totals && lane < EDGE) {
            loss += logf(powers) + (largest - wanted);
            correct += best == label;
        }
        // Accurate to two units in the last place for a sum from 1 to 16, and far quicker than `/`.
        const float scale = __fdividef(DLOGIT_SCALE, powers);
        auto* const own = reinterpret_cast<unsigned short(*)[2][CLASSES][HALF_EDGE]>(shared.own_dlogits[network][half]);
#pragma unroll
        for (int i = 0; i < LOWER; ++i) {
            if (first + i >= CLASSES) continue;
            const Halves halves = halves_of(logits[i] * scale - (first + i == label ? DLOGIT_SCALE : 0.0f), 0.0f);
            auto& of_chunk = own[image / HALF_EDGE];
            of_chunk[0][first + i][image % HALF_EDGE] = halves.high, of_chunk[1][first + i][image % HALF_EDGE] = halves.low;
        }
        __syncwarp();
        unsigned blocks[BLOCKS];
#pragma unroll
        for (int i = 0; i < BLOCKS; ++i) blocks[i] = peer_at((rank + i) % BLOCKS, &shared);
        const int chunk = 2 * (BLOCKS * half + rank);
#pragma unroll
        for (int i = 0; i < 4 * CLASSES; i += WARP) {
            const int row = i + lane;
            if (row >= 4 * CLASSES) continue;
            const uint4 numbers = shared.own_dlogits[network][half][row];
            uint4* to = &shared.dlogits[chunk + row / (2 * CLASSES)][row / CLASSES % 2][column + row % CLASSES];
#pragma unroll
            for (int peer = 0; peer < BLOCKS; ++peer) send(blocks[peer], to, shared.dlogits_are_in[half], numbers);
        }
        __syncwarp();  // all have read the rows that the next step overwrites
    }
};

// sums (16, 8 COUNT) += factor (16, 16) x, whose chunks begin at `first`: of images, or of features if COUNT is PART. What it
// multiplies is shared by a warp group.
template <int COUNT>
__device__ void add_product(float (&sums)[COUNT][4], const unsigned (&factor)[4], const uint4* first) {
    constexpr bool OF_FEATURES = COUNT == PART;
    constexpr int ALONG_K = OF_FEATURES ? NEXT_IMAGES : NEXT_FEATURES, ACROSS = OF_FEATURES ? NEXT_FEATURES : NEXT_IMAGES;
    if constexpr (HAS_WGMMA) {
        wgmma_mma_async(sums, factor, wgmma_descriptor(first, ALONG_K * sizeof(uint4), ACROSS * sizeof(uint4)));
    } else {
        const int lane = threadIdx.x % WARP, row = lane % HALF_EDGE + lane / HALF_EDGE % 2 * ALONG_K;
#pragma unroll
        for (int i = 0; i < COUNT; i += 2) {
            const uint4 x = ldmatrix<OF_FEATURES>(first + row + min(i + lane / EDGE, COUNT - 1) * ACROSS);
            mma_m16n8k16_f16(sums[i], factor, x.x, x.y);
            if (i + 1 < COUNT) mma_m16n8k16_f16(sums[i + 1], factor, x.z, x.w);
        }
    }
}

// The weights of a warp's eight columns: lane 4g + t has features 2t and 2t + 1 of each chunk by column g.
class Columns {
  public:
    __device__ explicit Columns(Epoch& epoch) : epoch(epoch), column(HALF_EDGE * epoch.warp + epoch.lane / 4) {
        const int network = column / CLASSES;
        if (network < epoch.networks) rate = epoch.learning_rates[network] / (EDGE * PAIRS) / DLOGIT_SCALE;
        copy([](float& kept, float& stored) { kept = stored; });
        split();
    }

    __device__ void train() {
        for (int step = 0; step < epoch.steps; ++step) {
            const uint4* batch = epoch.shared.images[step % STAGES];
            const bool has_head = HALVES > 1 && epoch.warp < NETWORKS && epoch.has_half(epoch.rank, 1);
            const int pair = min(BLOCKS + epoch.rank, PAIRS - 1);
            const int label = has_head ? epoch.labels[(step * PAIRS + pair) * EDGE + epoch.lane % EDGE] : 0;
            mbarrier_wait_parity(epoch.shared.fetched[step % STAGES], step / STAGES % 2);
            forward(batch);
            if (has_head) epoch.head(epoch.warp, HALVES - 1, step, label);
            backward(batch, step);
            split();
        }
        copy([](float& kept, float& stored) { stored = kept; });
    }

  private:
    __device__ void forward(const uint4* batch) const {
        float sums[HALVES][HALF_CHUNKS][4] = {};
#pragma unroll
        for (auto& own : sums) keep_in_place(own);
        wgmma_fence();
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile) {  // images beyond the batch's are others, whose products go nowhere
                add_product(sums[half], factors[tile], batch + 2 * tile * NEXT_FEATURES + half * HALF_CHUNKS * NEXT_IMAGES);
            }
            wgmma_commit_group();
        }
        if (HALVES == 2) {
            wgmma_wait_group<1>();
            keep_in_place(sums[0]);
            send_sums(sums[0], 0);
        }
        wgmma_wait_group<0>();
        keep_in_place(sums[HALVES - 1]);
        send_sums(sums[HALVES - 1], HALVES - 1);
    }

    // Sends the partial logits of a half of the images to their owners.
    __device__ void send_sums(const float (&sums)[HALF_CHUNKS][4], int half) const {
        if (column >= COLUMNS) return;
        float* const place = &epoch.shared.partial_logits[half][epoch.rank][column][epoch.lane % 4 * 4];
#pragma unroll
        for (int owner = 0; owner < BLOCKS; ++owner) {
            if (!epoch.has_half(owner, half)) break;
            const float(&first)[4] = sums[2 * owner], (&second)[4] = sums[2 * owner + 1];
            send(peer_at(owner, &epoch.shared), place, epoch.shared.logits_are_in[half],
                 make_uint4(__float_as_uint(first[0] + first[2]), __float_as_uint(first[1] + first[3]),
                            __float_as_uint(second[0] + second[2]), __float_as_uint(second[1] + second[3])));
        }
    }

    // weights -= rate * dlogits^T x.
    __device__ void backward(const uint4* batch, int step) {
        const int lane = epoch.lane;
        float sums[PARTS][PART][4] = {};
        unsigned left[HALVES][BLOCKS][4];
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
            Barrier& are_in = epoch.shared.dlogits_are_in[half];
            mbarrier_wait_parity(are_in, step % 2);
            if (threadIdx.x == 0) mbarrier_arrive_expect_tx(are_in, Epoch::dlogits_bytes(half));
#pragma unroll
            for (int i = 0; i < BLOCKS; ++i) {
                if (BLOCKS * half + i >= PAIRS) break;
                const auto& of_chunk = epoch.shared.dlogits[2 * (BLOCKS * half + i) + lane / EDGE];
                const uint4 four = ldmatrix<false>(&of_chunk[lane / HALF_EDGE % 2][HALF_EDGE * epoch.warp + lane % HALF_EDGE]);
                left[half][i][0] = four.x, left[half][i][1] = four.y, left[half][i][2] = four.z, left[half][i][3] = four.w;
            }
#pragma unroll
            for (int part = 0; part < PARTS && half == 0; ++part) keep_in_place(sums[part]);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < BLOCKS; ++i) {
                const int pair = BLOCKS * half + i;
                if (pair >= PAIRS) break;
#pragma unroll
                for (int part = 0; part < PARTS; ++part) {
                    add_product(sums[part], left[half][i], batch + part * PART * NEXT_FEATURES + 2 * pair * NEXT_IMAGES);
                }
            }
            wgmma_commit_group();
        }
#pragma unroll
        for (auto& own : sums) {
            wgmma_wait_group<0>();
            keep_in_place(own);
        }
        __syncwarp();
        if (lane == 0) mbarrier_arrive(epoch.shared.used[step % STAGES]);
#pragma unroll
        for (int chunk = 0; chunk < 2 * TILES; ++chunk) {
            const float(&sum)[4] = sums[chunk / PART][chunk % PART];
#pragma unroll
            for (int odd = 0; odd < 2; ++odd) weights[chunk][odd] -= rate * (sum[odd] + sum[odd + 2]);
        }
    }

    // Makes the left factors of the weights.
    __device__ void split() {
#pragma unroll
        for (int chunk = 0; chunk < 2 * TILES; ++chunk) {
            const Halves halves = halves_of(WEIGHT_SCALE * weights[chunk][0], WEIGHT_SCALE * weights[chunk][1]);
            factors[chunk / 2][chunk % 2 * 2] = halves.high, factors[chunk / 2][chunk % 2 * 2 + 1] = halves.low;
        }
    }

    // Calls copy(register, stored) for every weight and bias of these columns.
    template <class Copy>
    __device__ void copy(Copy copy) {
        const int network = column / CLASSES;
        if (network >= epoch.networks) return;
#pragma unroll
        for (int i = 0; i < 4 * TILES; ++i) {
            const int feature = EDGE * epoch.first_tile() + i / 2 * HALF_EDGE + epoch.lane % 4 * 2 + i % 2;
            float& kept = weights[i / 2][i % 2];
            if (i / 4 >= epoch.tiles()) continue;
            if (feature < epoch.inputs) copy(kept, epoch.weight[network * epoch.stride + feature * CLASSES + column % CLASSES]);
            if (feature == epoch.inputs) copy(kept, epoch.bias[network * epoch.stride + column % CLASSES]);
        }
    }

    Epoch& epoch;
    const int column;  // of this lane
    float rate = 0.0f;  // from a sum of scaled dlogits to an update
    float weights[2 * TILES][2] = {};
    unsigned factors[TILES][4];
};

// The warps beside the warp group: the last one also fetches images.
__device__ inline void help(Epoch& epoch) {
    const int network = epoch.warp - GROUP, pair = min(epoch.rank, PAIRS - 1);
    const bool has_head = network < NETWORKS && epoch.has_half(epoch.rank, 0);
    for (int step = 0; step < epoch.steps; ++step) {
        const int label = has_head ? epoch.labels[(step * PAIRS + pair) * EDGE + epoch.lane % EDGE] : 0;
        if (threadIdx.x == THREADS - WARP && step + 1 < epoch.steps) {
            if (step > 0) mbarrier_wait_parity(epoch.shared.used[(step - 1) % STAGES], (step - 1) / STAGES % 2);
            epoch.fetch(step + 1);
        }
        __syncwarp();
        if (has_head) epoch.head(network, 0, step, label);
    }
}

// fleet_columns: a whole epoch of softmax regression of several networks, NETWORKS in a cluster. In each step of each network
// weight -= learning_rate * x^T dlogits, the bias likewise.
//   images    (steps, 2 tiles, 2 P, 8, 8)  f16  in: eight images by eight features each, 2 P a batch; the bias's pixel, 1,
//             after the last feature, and zeros up to 16 * tiles
//   labels    (steps, 16 P)              i32  in, each 0 <= label < CLASSES
//   weight    (inputs, CLASSES)          f32  in, out: the first network's; the next one's lies `stride` numbers further on
//   bias      (CLASSES,)                 f32  in, out: likewise
//   totals    (K, 2)                     f64  in, out: grow by the summed loss and the number right, if with_totals
//   learning_rates  (K,)                 f32  in: of the networks, each for the mean over a batch
// Kind:   fused.
// Launch: ceil(K / NETWORKS) clusters of BLOCKS blocks of THREADS, with a Shared each; K = count, P = PAIRS. The kernel is
//   compiled for SIZES. Clusters need not run at once: none waits for another.
// Needs:  sm_90; pairs <= 8; tiles <= 64; BLOCKS = 4; NETWORKS <= 4; NETWORKS * CLASSES <= 32; |weight| < 4,000.
// Order:  every sum has one order, independent of arrival and of the other networks; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS, 1) fleet_columns(const unsigned short* images, const int* labels,
                                                                       float* weight, float* bias, double* totals,
                                                                       const float* learning_rates, int steps, int inputs,
                                                                       int stride, int count, int with_totals) {
    extern __shared__ __align__(128) uint4 memory[];  // bulk copies write whole 128-byte lines
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const int rank = cluster_ctarank(), first = blockIdx.x / BLOCKS * NETWORKS, networks = min(NETWORKS, count - first);
    const int warp = __shfl_sync(~0u, threadIdx.x / WARP, 0), lane = threadIdx.x % WARP;
    Epoch epoch = {shared, images, labels, weight + first * stride, bias + first * stride, learning_rates + first,
                   steps, inputs, stride, networks, with_totals, rank, warp, lane, 0.0, 0.0};
    // Products cover the full sizes: missing pixels, weights and dlogits must be zeros.
    for (int i = threadIdx.x; i < sizeof(Shared) / sizeof(uint4); i += THREADS) memory[i] = make_uint4(0, 0, 0, 0);
    fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(shared.fetched[stage], 1);
            mbarrier_init(shared.used[stage], GROUP);
        }
        for (int half = 0; half < HALVES; ++half) {
            mbarrier_init(shared.logits_are_in[half], 1);
            mbarrier_init(shared.dlogits_are_in[half], 1);
        }
        mbarrier_init(shared.totals_are_in, 1);
        fence_mbarrier_init();
        for (int half = 0; half < HALVES; ++half) {
            mbarrier_arrive_expect_tx(shared.logits_are_in[half], epoch.logits_bytes(half));
            mbarrier_arrive_expect_tx(shared.dlogits_are_in[half], Epoch::dlogits_bytes(half));
        }
        mbarrier_arrive_expect_tx(shared.totals_are_in, sizeof(shared.totals));
        epoch.fetch(0);
    }
    __syncwarp();
    barrier_cluster_aligned();
    if (warp < GROUP) {
        Columns(epoch).train();
    } else {
        help(epoch);
    }
    if (with_totals && warp % GROUP < NETWORKS && (HALVES == 2 || warp >= GROUP)) {
        for (int lanes = WARP / 2; lanes > 0; lanes /= 2) {
            epoch.loss += __shfl_xor_sync(~0u, epoch.loss, lanes);
            epoch.correct += __shfl_xor_sync(~0u, epoch.correct, lanes);
        }
        const double found[2] = {epoch.loss, epoch.correct};
        const uint4 bits = *reinterpret_cast<const uint4*>(found);
        double* const place = shared.totals[warp % GROUP][rank][warp < GROUP];
        if (lane == 0) send(peer_at(0, &shared), place, shared.totals_are_in, bits);
    }
    if (with_totals && rank == 0 && threadIdx.x < networks) {
        mbarrier_wait_parity(shared.totals_are_in, 0);
        const double* found = shared.totals[threadIdx.x][0][0];
        for (int i = 0; i < 2 * BLOCKS * HALVES; ++i) totals[2 * (first + threadIdx.x) + i % 2] += found[i];
    }
    __syncwarp();
    barrier_cluster_aligned();  // a block that ends takes its remote buffers with it
}

// Several softmax regressions in one small cluster: all see the same images, so that their classes are columns of one product.
//
// Who holds what. Sixteen features are a tile (the bias is one more feature, whose pixel is always 1), sixteen images a pair,
// eight a chunk, and eight columns a group. Block b of the cluster owns tiles b * tiles / BLOCKS up to the next block's first,
// and images 32 b to 32 b + 31.
//
//   forward    warp w < 4 multiplies images 32 w to 32 w + 31 by the block's weights, and sends the products to their owner
//   head       warp n takes the softmax of network n, lane i of image 32 b + i, and sends dlogits to all blocks
//   backward   warp w updates tiles w and w + WARPS, which it keeps in registers, and publishes them as float16 halves
//
// Every step has these three phases and two exchanges in a row. The work of several networks outweighs the waits, so that
// nothing is computed ahead. A network's sums have one order, wherever its columns lie and whoever its neighbours are.
//
// Precision: tensor cores give float32's. Pixels are exact in float16, and every other factor is two float16 halves.
#include "device/blocks_together.cuh"
#include "device/messages.cuh"
#include "cluster/fragments.cuh"

#ifndef SIZES  // the problem that it is compiled for
#define SIZES 4, 3, 10, 50, 8, 170496
#endif
constexpr int GIVEN[] = {SIZES};
constexpr int BLOCKS = GIVEN[0], NETWORKS = GIVEN[1], CLASSES = GIVEN[2];  // of a cluster, of a network
constexpr int ALL_TILES = GIVEN[3], TILES = (ALL_TILES + BLOCKS - 1) / BLOCKS, PAIRS = GIVEN[4];  // of a batch, a block at most

constexpr int WARPS = 8, THREADS = WARPS * WARP, STAGES = 2;
constexpr int CHUNKS = 4, IMAGES = CHUNKS * HALF_EDGE;  // of a block
constexpr int COLUMNS = NETWORKS * CLASSES, GROUPS = (COLUMNS + HALF_EDGE - 1) / HALF_EDGE;
constexpr int PART = (GROUPS * HALF_EDGE + 1) * HALF_EDGE;  // a chunk by all columns; the padding avoids bank conflicts
static_assert(TILES <= 2 * WARPS && 2 * PAIRS <= CHUNKS * BLOCKS && NETWORKS <= WARPS);

// Scales before a number is split, so that the lower half is seldom too small for a float16.
constexpr float WEIGHT_SCALE = 16.0f;
constexpr float DLOGIT_SCALE = 1024.0f;

struct alignas(128) Shared {
    uint4 images[STAGES][TILES * PAIRS * WARP];
    uint4 weights[TILES][GROUPS][WARP];  // left factors of a tile by a group: rows 0 to 7 high halves, 8 to 15 low ones
    uint4 dlogits[2 * PAIRS][2][GROUPS * HALF_EDGE];            // eight images of a column: high halves, then low ones
    uint4 own_dlogits[NETWORKS][CHUNKS * 2 * CLASSES];          // the same of the own images, as a head warp writes them
    float partial_logits[BLOCKS][CHUNKS][PART];                 // of the own images, from each block
    double totals[NETWORKS][BLOCKS][2];  // in the first block, from each: summed loss and number right
    Barrier fetched[STAGES], logits_are_in, dlogits_are_in, totals_are_in;
};
static_assert(sizeof(Shared) == GIVEN[5]);  // as stages/persistent/r3_fleet_columns.py counts it

// The kernel's arguments and a thread's place; the kernel's comment explains them.
struct Epoch {
    Shared& shared;
    const unsigned short* images;
    const int* labels;
    float *weight, *bias;
    const float* learning_rates;
    int steps, inputs, stride, networks, with_totals;
    int rank, warp, lane;
    double loss, correct;  // of this lane's image in the warp's network

    __device__ int first_tile() const { return rank * ALL_TILES / BLOCKS; }
    __device__ int chunks() const { return min(max(2 * PAIRS - CHUNKS * rank, 0), CHUNKS); }
    __device__ int logits_bytes() const { return BLOCKS * chunks() * COLUMNS * HALF_EDGE * 4; }
    __device__ int dlogits_bytes() const { return 2 * PAIRS * COLUMNS * HALF_EDGE * 4; }

    __device__ void fetch(int step) const {
        const int tiles = (rank + 1) * ALL_TILES / BLOCKS - first_tile();
        const int bytes = tiles * PAIRS * WARP * static_cast<int>(sizeof(uint4));
        Barrier& fetched = shared.fetched[step % STAGES];
        mbarrier_arrive_expect_tx(fetched, bytes);
        if (tiles == 0) return;
        const unsigned short* from = images + (step * ALL_TILES + first_tile()) * PAIRS * EDGE * EDGE;
        cp_async_bulk(shared.images[step % STAGES], fetched, from, bytes);
    }

    // Sends the partial logits of the warp's images to their owner. Tiles beyond the block's own have weights of zero.
    __device__ void forward(const uint4* batch) const {
        const int quad = warp;
        float sums[CHUNKS][GROUPS][4] = {};
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            uint4 x[CHUNKS / 2];
#pragma unroll
            for (int i = 0; i < CHUNKS / 2; ++i) {
                x[i] = load_transposed(batch + (tile * PAIRS + min(CHUNKS / 2 * quad + i, PAIRS - 1)) * WARP);
            }
#pragma unroll
            for (int group = 0; group < GROUPS; ++group) {
                const uint4 four = shared.weights[tile][group][lane];
                const unsigned left[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                for (int i = 0; i < CHUNKS / 2; ++i) {
                    mma_m16n8k16_f16(sums[2 * i][group], left, x[i].x, x[i].y);
                    mma_m16n8k16_f16(sums[2 * i + 1][group], left, x[i].z, x[i].w);
                }
            }
        }
        const unsigned owner = peer_at(quad, &shared);
#pragma unroll
        for (int group = 0; group < GROUPS; ++group) {
            const int column = HALF_EDGE * group + lane / 4;
            if (column >= COLUMNS) continue;
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; ++chunk) {
                if (CHUNKS * quad + chunk >= 2 * PAIRS) continue;
                const float(&sum)[4] = sums[chunk][group];
                send(owner, &shared.partial_logits[rank][chunk][HALF_EDGE * column + lane % 4 * 2], shared.logits_are_in,
                     make_uint2(__float_as_uint(sum[0] + sum[2]), __float_as_uint(sum[1] + sum[3])));
            }
        }
    }

    // The softmax of the warp's network, and its dlogits to all blocks.
    __device__ void head(int label) {
        const int chunk = lane / HALF_EDGE, image = lane % HALF_EDGE, column = warp * CLASSES;
        float logits[CLASSES], largest = 0.0f, wanted = 0.0f, powers = 0.0f;
        int best = 0;
#pragma unroll
        for (int c = 0; c < CLASSES; ++c) {
            float sum = 0.0f;
#pragma unroll
            for (int sender = 0; sender < BLOCKS; ++sender) {
                sum += shared.partial_logits[sender][chunk][HALF_EDGE * (column + c) + image];
            }
            logits[c] = sum / WEIGHT_SCALE;
            if (c == label) wanted = logits[c];
            if (c == 0 || logits[c] > largest) largest = logits[c], best = c;
        }
#pragma unroll
        for (int c = 0; c < CLASSES; ++c) {
            // Relative error |x| 2^-24; in absolute terms at most 2^-25, since e^x falls faster than |x| grows.
            logits[c] = __expf(logits[c] - largest);
            powers += logits[c];
        }
        if (with_totals && chunk < chunks()) {
            loss += logf(powers) + (largest - wanted);
            correct += best == label;
        }
        // Accurate to two units in the last place for a sum from 1 to 16, and far quicker than `/`.
        const float scale = __fdividef(DLOGIT_SCALE, powers);
        auto* const own = reinterpret_cast<unsigned short(*)[CLASSES][HALF_EDGE]>(shared.own_dlogits[warp]) + 2 * chunk;
#pragma unroll
        for (int c = 0; c < CLASSES; ++c) {
            const Halves halves = halves_of(logits[c] * scale - (c == label ? DLOGIT_SCALE : 0.0f), 0.0f);
            own[0][c][image] = halves.high, own[1][c][image] = halves.low;
        }
        __syncwarp();
        unsigned blocks[BLOCKS];
#pragma unroll
        for (int i = 0; i < BLOCKS; ++i) blocks[i] = peer_at((rank + i) % BLOCKS, &shared);
        for (int row = lane; row < chunks() * 2 * CLASSES; row += WARP) {
            const uint4 numbers = shared.own_dlogits[warp][row];
            uint4* to = &shared.dlogits[CHUNKS * rank + row / (2 * CLASSES)][row / CLASSES % 2][column + row % CLASSES];
#pragma unroll
            for (int i = 0; i < BLOCKS; ++i) send(blocks[i], to, shared.dlogits_are_in, numbers);
        }
        __syncwarp();  // all have read the rows that the next step overwrites
    }
};

// A warp's COUNT tiles of the weights, transposed: lane 4g + t has column 8 group + g of features 2t and 2t + 1 of each half.
template <int COUNT>
struct Tiles {
    float weights[COUNT][GROUPS][2][2];

    // weights -= rate * dlogits^T x.
    __device__ void backward(const Epoch& epoch, const uint4* batch, const float (&rates)[GROUPS]) {
        const int lane = epoch.lane;
        float sums[COUNT][GROUPS][2][4] = {};
#pragma unroll
        for (int pair = 0; pair < PAIRS; ++pair) {
            uint4 x[COUNT];
#pragma unroll
            for (int i = 0; i < COUNT; ++i) x[i] = load_factors(batch + ((epoch.warp + i * WARPS) * PAIRS + pair) * WARP);
#pragma unroll
            for (int group = 0; group < GROUPS; ++group) {
                const auto& of_chunk = epoch.shared.dlogits[2 * pair + lane / EDGE];
                const uint4 four = ldmatrix<false>(&of_chunk[lane / HALF_EDGE % 2][HALF_EDGE * group + lane % HALF_EDGE]);
                const unsigned left[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                for (int i = 0; i < COUNT; ++i) {
                    mma_m16n8k16_f16(sums[i][group][0], left, x[i].x, x[i].y);
                    mma_m16n8k16_f16(sums[i][group][1], left, x[i].z, x[i].w);
                }
            }
        }
        each([&](int i, int group, int half, int odd) {
            const float(&sum)[4] = sums[i][group][half];
            weights[i][group][half][odd] -= rates[group] * (sum[odd] + sum[odd + 2]);
        });
    }

    // Writes the weights, in halves, for the warps that multiply by them.
    __device__ void publish(const Epoch& epoch) const {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
#pragma unroll
            for (int group = 0; group < GROUPS; ++group) {
                const float(&own)[2][2] = weights[i][group];
                const Halves first = halves_of(WEIGHT_SCALE * own[0][0], WEIGHT_SCALE * own[0][1]);
                const Halves second = halves_of(WEIGHT_SCALE * own[1][0], WEIGHT_SCALE * own[1][1]);
                epoch.shared.weights[epoch.warp + i * WARPS][group][epoch.lane] =
                    make_uint4(first.high, first.low, second.high, second.low);
            }
        }
    }

    // Calls copy(register, stored) for every weight and bias of these tiles.
    template <class Copy>
    __device__ void copy(const Epoch& epoch, Copy copy) {
        const int last = (epoch.rank + 1) * ALL_TILES / BLOCKS;
        each([&](int i, int group, int half, int odd) {
            const int tile = epoch.first_tile() + epoch.warp + i * WARPS, column = HALF_EDGE * group + epoch.lane / 4;
            const int feature = EDGE * tile + HALF_EDGE * half + epoch.lane % 4 * 2 + odd;
            const int network = column / CLASSES;
            if (network >= epoch.networks || tile >= last) return;
            float& kept = weights[i][group][half][odd];
            if (feature < epoch.inputs) copy(kept, epoch.weight[network * epoch.stride + feature * CLASSES + column % CLASSES]);
            if (feature == epoch.inputs) copy(kept, epoch.bias[network * epoch.stride + column % CLASSES]);
        });
    }

  private:
    template <class Do>
    __device__ static void each(Do with) {
#pragma unroll
        for (int at = 0; at < COUNT * GROUPS * 4; ++at) with(at / 4 / GROUPS, at / 4 % GROUPS, at / 2 % 2, at % 2);
    }
};

template <>
struct Tiles<0> {
    __device__ void backward(const Epoch&, const uint4*, const float (&)[GROUPS]) {}
    __device__ void publish(const Epoch&) const {}
    template <class Copy>
    __device__ void copy(const Epoch&, Copy) {}
};

// A warp's epoch, with its COUNT tiles of the weights.
template <int COUNT>
__device__ void train(Epoch& epoch) {
    Shared& shared = epoch.shared;
    Tiles<COUNT> own = {};
    own.copy(epoch, [](float& kept, float& stored) { kept = stored; });
    own.publish(epoch);
    __syncthreads();
    float rates[GROUPS];  // from a sum of scaled dlogits to an update
#pragma unroll
    for (int group = 0; group < GROUPS; ++group) {
        const int network = (HALF_EDGE * group + epoch.lane / 4) / CLASSES;
        rates[group] = network < epoch.networks ? epoch.learning_rates[network] / (EDGE * PAIRS) / DLOGIT_SCALE : 0.0f;
    }
    const bool has_head = epoch.warp < NETWORKS && epoch.chunks() > 0;
    const int image = min(IMAGES * epoch.rank + epoch.lane, EDGE * PAIRS - 1);
    for (int step = 0; step < epoch.steps; ++step) {
        const uint4* batch = shared.images[step % STAGES];
        if (threadIdx.x == 0 && step + 1 < epoch.steps) epoch.fetch(step + 1);
        const int label = has_head ? epoch.labels[step * EDGE * PAIRS + image] : 0;
        mbarrier_wait_parity(shared.fetched[step % STAGES], step / STAGES % 2);
        if (CHUNKS * epoch.warp < 2 * PAIRS) epoch.forward(batch);
        if (has_head) {
            mbarrier_wait_parity(shared.logits_are_in, step % 2);
            if (threadIdx.x == 0) mbarrier_arrive_expect_tx(shared.logits_are_in, epoch.logits_bytes());
            epoch.head(label);
        }
        mbarrier_wait_parity(shared.dlogits_are_in, step % 2);
        if (threadIdx.x == 0) mbarrier_arrive_expect_tx(shared.dlogits_are_in, epoch.dlogits_bytes());
        own.backward(epoch, batch, rates);
        own.publish(epoch);
        __syncthreads();  // all have read the batch and dlogits, and published
    }
    own.copy(epoch, [](float& kept, float& stored) { stored = kept; });
}

// fleet_columns: a whole epoch of softmax regression of several networks, NETWORKS in a cluster. In each step of each network
// weight -= learning_rate * x^T dlogits, the bias likewise.
//   images    (steps, tiles, P, 2, 2, 8, 8)  f16  in: 16 images by 16 features each, as four matrices of 8 by 8, P a
//             batch; the bias's pixel, 1, after the last feature, and zeros up to 16 * tiles
//   labels    (steps, 16 P)              i32  in, each 0 <= label < CLASSES
//   weight    (inputs, CLASSES)          f32  in, out: the first network's; the next one's lies `stride` numbers further on
//   bias      (CLASSES,)                 f32  in, out: likewise
//   totals    (K, 2)                     f64  in, out: grow by the summed loss and the number right, if with_totals
//   learning_rates  (K,)                 f32  in: of the networks, each for the mean over a batch
// Kind:   fused.
// Launch: ceil(K / NETWORKS) clusters of BLOCKS blocks of THREADS, with a Shared each; K = count, P = PAIRS. The kernel is
//   compiled for SIZES. Clusters need not run at once: none waits for another.
// Needs:  sm_90; pairs <= 8; tiles <= 16 * BLOCKS; 4 <= BLOCKS <= 8; |weight| < 4,000.
// Order:  every sum has one order, independent of arrival and of the other networks; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS, 1) fleet_columns(const unsigned short* images, const int* labels,
                                                                       float* weight, float* bias, double* totals,
                                                                       const float* learning_rates, int steps, int inputs,
                                                                       int stride, int count, int with_totals) {
    extern __shared__ __align__(128) uint4 memory[];  // bulk copies write whole 128-byte lines
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const int rank = cluster_ctarank(), first = blockIdx.x / BLOCKS * NETWORKS, networks = min(NETWORKS, count - first);
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    Epoch epoch = {shared, images, labels, weight + first * stride, bias + first * stride, learning_rates + first,
                   steps, inputs, stride, networks, with_totals, rank, warp, lane, 0.0, 0.0};
    // Products cover the full sizes: missing pixels, weights and dlogits must be zeros.
    for (int i = threadIdx.x; i < sizeof(Shared) / sizeof(uint4); i += THREADS) memory[i] = make_uint4(0, 0, 0, 0);
    fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) mbarrier_init(shared.fetched[stage], 1);
        mbarrier_init(shared.logits_are_in, 1);
        mbarrier_init(shared.dlogits_are_in, 1);
        mbarrier_init(shared.totals_are_in, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect_tx(shared.logits_are_in, epoch.logits_bytes());
        mbarrier_arrive_expect_tx(shared.dlogits_are_in, epoch.dlogits_bytes());
        mbarrier_arrive_expect_tx(shared.totals_are_in, NETWORKS * BLOCKS * 16);
        epoch.fetch(0);
    }
    __syncwarp();
    barrier_cluster_aligned();
    if (warp + WARPS < TILES) {
        train<2>(epoch);
    } else if (warp < TILES) {
        train<1>(epoch);
    } else {
        train<0>(epoch);
    }
    if (with_totals && warp < NETWORKS) {
        for (int lanes = WARP / 2; lanes > 0; lanes /= 2) {
            epoch.loss += __shfl_xor_sync(~0u, epoch.loss, lanes);
            epoch.correct += __shfl_xor_sync(~0u, epoch.correct, lanes);
        }
        const double found[2] = {epoch.loss, epoch.correct};
        const uint4 bits = *reinterpret_cast<const uint4*>(found);
        if (lane == 0) send(peer_at(0, &shared), shared.totals[warp][rank], shared.totals_are_in, bits);
    }
    if (with_totals && rank == 0 && threadIdx.x < networks) {
        mbarrier_wait_parity(shared.totals_are_in, 0);
        for (int block = 0; block < BLOCKS; ++block) {
            for (int i = 0; i < 2; ++i) totals[2 * (first + threadIdx.x) + i] += shared.totals[threadIdx.x][block][i];
        }
    }
    __syncwarp();
    barrier_cluster_aligned();  // a block that ends takes its remote buffers with it
}

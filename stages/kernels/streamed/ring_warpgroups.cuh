// A layer's backward pass and update through a ring of tiles (ring.cuh), with exact products by warpgroups. Needs sm_90a.
//
// Who holds what:
//
//   a block, or a cluster   a row of tiles: 64 inputs; its blocks take turns at panels of 64 outputs
//   a team                  a warpgroup: a whole tile, in turn; 32 rows at once
//   a warp                  as left factors, in two parts of tf32: doutputs of 16 outputs, for the weights' gradient, transposed;
//                           weights of 16 inputs, for the inputs' gradient, transposed
//   shared memory           the ring; as right factors, in two parts: the block's inputs, and for each team the tile's doutputs
//
// Right factors lie in matrices of 8 columns by 4 k, 128 bytes each, along k first. Sums run over any order of k, and columns
// may stand in any order, if both factors agree: so lanes read their weights in pairs along the outputs for the gradient, in
// quads for the product, and hit no bank twice.
//
//   row 16w + 8i + g of doutputs^T   output 16w + 2g + i
//   column 8j + 2t + e of inputs     input 16(j / 2) + 4t + 2(j % 2) + e
//   k of weights and doutputs        output 16s + 4t + e is k t of quad 4s + e
#pragma once
#include "device/messages.cuh"
#include "device/warpgroup.cuh"
#include "streamed/ring_back.cuh"

constexpr int GROUP_WARPS = 4, EDGE = 8, QUAD = 4;

// A right factor of COLS columns by K, in two parts.
template <int COLS, int K>
struct alignas(128) RightFactor {
    static constexpr int ALONG_K = 4 * EDGE * QUAD, ACROSS = K / QUAD * ALONG_K;  // bytes to the next matrix
    float high[COLS * K], low[COLS * K];

    static __device__ int at(int col, int quad, int k) {
        return (col / EDGE * (K / QUAD) + quad) * EDGE * QUAD + col % EDGE * QUAD + k;
    }

    __device__ void write(int place, unsigned of_high, unsigned of_low) {
        high[place] = __uint_as_float(of_high), low[place] = __uint_as_float(of_low);
    }
};

struct TwoParts {
    unsigned high, low;

    __device__ explicit TwoParts(float number)
        : high(cvt_tf32(number)), low(cvt_tf32(number - __uint_as_float(high))) {}
};

// A step of eight k of a left factor.
struct LeftFactor {
    unsigned high[4], low[4];

    __device__ TwoParts set(int i, float number) {
        const TwoParts parts(number);
        high[i] = parts.high, low[i] = parts.low;
        return parts;
    }
};

// sums += left right from the right factor's k `first` on, but for the product of both low parts; then closes a group. All steps
// of a part before those of the next: small numbers first.
template <int STEPS, int COLS, int K>
__device__ inline void multiply(float (&sums)[COLS / EDGE][4], LeftFactor (&left)[STEPS], const RightFactor<COLS, K>& right,
                                int first = 0) {
    using Right = RightFactor<COLS, K>;
    const auto high = wgmma_descriptor(right.high, Right::ALONG_K, Right::ACROSS);
    const auto low = wgmma_descriptor(right.low, Right::ALONG_K, Right::ACROSS);
#pragma unroll
    for (int step = 0; step < STEPS; ++step) keep_in_place(left[step].high), keep_in_place(left[step].low);
    wgmma_fence();
#pragma unroll
    for (int part = 0; part < 3; ++part) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            const int bytes = (first / QUAD + 2 * step) * Right::ALONG_K;
            wgmma_mma_async_tf32(sums, part == 0 ? left[step].low : left[step].high, moved(part == 1 ? low : high, bytes));
        }
    }
    wgmma_commit_group();
}

struct GroupFactors {
    RightFactor<TILE, MOST_ROWS> inputs;
    RightFactor<ROWS_AT_ONCE, TILE> doutputs[BACK_TEAMS];
    Barrier met[BACK_TEAMS];  // for racecheck, which does not see that bar.sync orders a team
};

template <bool NEEDED>
class GroupBack {
  public:
    static constexpr int ROW_GROUPS = MOST_ROWS / ROWS_AT_ONCE;  // of a batch
    float sums[ROW_GROUPS][ROWS_AT_ONCE / EDGE][4] = {};  // of the inputs' gradient, transposed

    __device__ GroupBack(const BackLayer& layer, GroupFactors& factors, int row_tile)
        : layer(layer), factors(factors), row_tile(row_tile), team(threadIdx.x / (GROUP_WARPS * WARP)),
          warp(threadIdx.x / WARP % GROUP_WARPS), g(threadIdx.x % WARP / 4), t(threadIdx.x % 4) {}

    // By one team.
    __device__ void load_inputs() {
        const LayerSizes& sizes = layer.sizes;
        const int thread = threadIdx.x % (GROUP_WARPS * WARP), input = thread % TILE, col = row_tile * TILE + input;
        const int place = input / 16 * 16 + input % 4 / 2 * EDGE + input % 16 / 4 * 2 + input % 2;
#pragma unroll
        for (int i = 0; i < MOST_ROWS / 2; ++i) {
            const int row = 2 * i + thread / TILE;
            // Unconditional loads, so that none waits for another.
            const float number = layer.inputs[min(row, sizes.batch - 1) * sizes.fan_in + min(col, sizes.fan_in - 1)];
            const TwoParts parts(row < sizes.batch && col < sizes.fan_in ? number : 0.0f);
            factors.inputs.write(factors.inputs.at(place, row / QUAD, row % QUAD), parts.high, parts.low);
        }
        fence_proxy_async();
    }

    // Takes a tile: its weights, and doutputs of 64 outputs from `begin` on.
    __device__ void take(float* weights, const float* doutputs, int begin) {
        float totals[2] = {}, gradient[TILE / EDGE][4] = {};
#pragma unroll
        for (int part = 0; part < ROW_GROUPS; ++part) take_rows(part, weights, doutputs, begin, totals, gradient);
        update(weights, gradient);
        fence_proxy_async();
    }

    // Adds up the bias's gradient, the weights' gradient, and the gradient of the inputs, of one part of the rows.
    __device__ void take_rows(int part, const float* weights, const float* doutputs, int begin, float (&totals)[2],
                              float (&gradient)[TILE / EDGE][4]) {
        LeftFactor of_doutputs[ROWS_AT_ONCE / EDGE];
        auto& right = factors.doutputs[team];
        doutputs += part * ROWS_AT_ONCE * PITCH;
#pragma unroll
        for (int step = 0; step < ROWS_AT_ONCE / EDGE; ++step) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = EDGE * step + QUAD * half + t, output = 2 * g;
                float pair[2];
                copy_run<2>(pair, doutputs + row * PITCH + 16 * warp + output);
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    totals[i] += pair[i];
                    const TwoParts parts = of_doutputs[step].set(2 * half + i, pair[i]);
                    if constexpr (NEEDED) {
                        right.write(right.at(row, 4 * warp + output % 4 + i, output / 4), parts.high, parts.low);
                    }
                }
            }
        }
        if (part == ROW_GROUPS - 1 && row_tile == 0) update_bias(totals, begin);
        multiply(gradient, of_doutputs, factors.inputs, part * ROWS_AT_ONCE);
        if constexpr (NEEDED) {
            fence_proxy_async();
            meet();  // doutputs are there
            float product[ROWS_AT_ONCE / EDGE][4] = {};
#pragma unroll 1  // all steps at once take more registers
            for (int s = 0; s < TILE / 16; ++s) {
                LeftFactor of_weights[2];
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const int input = 16 * warp + EDGE * i + g;
                    float quad[4];
                    copy_run<4>(quad, weights + input * TILE + 4 * (4 * s + t ^ place_bits(input)));
#pragma unroll
                    for (int e = 0; e < 4; ++e) of_weights[e / 2].set(e % 2 * 2 + i, quad[e]);
                }
                multiply(product, of_weights, right, 16 * s);
                wgmma_wait_group<0>();
            }
            // Added outside of the tensor cores, which cut off the bits that a sum has no place for.
#pragma unroll
            for (int i = 0; i < ROWS_AT_ONCE / 2; ++i) sums[part][i / 4][i % 4] += product[i / 4][i % 4];
            meet();  // doutputs and weights have been read
        }
        wgmma_wait_group<0>();
    }

    __device__ void update(float* weights, const float (&gradient)[TILE / EDGE][4]) const {
        const float rate = layer.learning_rate;
#pragma unroll
        for (int j = 0; j < TILE / EDGE; ++j) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int input = j / 2 * 16 + 4 * t + j % 2 * 2 + e;
                float* own = weights + input * TILE + 4 * (4 * warp + g / 2 ^ place_bits(input)) + g % 2 * 2;
                float pair[2];
                copy_run<2>(pair, own);
                pair[0] -= rate * gradient[j][e], pair[1] -= rate * gradient[j][2 + e];
                store_run<2>(own, pair);
            }
        }
    }

    __device__ void keep(float* memory, const OutputTile& tile) const {
#pragma unroll
        for (int i = 0; i < MOST_ROWS / 2; ++i) {
            const int row = i / 4 * EDGE + 2 * t + i % 2, input = 16 * warp + i % 4 / 2 * EDGE + g;
            memory[(team * tile.height + row) * tile.stride() + input] = sums[i / (ROWS_AT_ONCE / 2)][i / 4 % 4][i % 4];
        }
    }

  private:
    __device__ void meet() {
#if LANES_ARRIVE == 1
        bar_sync(1 + team, GROUP_WARPS * WARP);
#else
        warp_arrives(factors.met[team]);
        mbarrier_wait_parity(factors.met[team], meetings++ % 2);
#endif
    }

    __device__ void update_bias(float (&totals)[2], int begin) const {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int flip = 1; flip < 4; flip *= 2) totals[i] += __shfl_xor_sync(~0u, totals[i], flip);
            // No thread waits for it.
            if (t == 0) atomicAdd(layer.bias + begin + 16 * warp + 2 * g + i, -layer.learning_rate * totals[i]);
        }
    }

    const BackLayer& layer;
    GroupFactors& factors;
    const int row_tile, team, warp, g, t;
    int meetings = 0;
};

template <bool NEEDED>
__device__ inline void ring_back_by_groups(const BackLayer& layer, const Product<float>& product, float* memory) {
    const int warp = threadIdx.x / WARP, team = warp / GROUP_WARPS;
    const LayerSizes& sizes = layer.sizes;
    const int row_tile = blockIdx.y, panels = sizes.fan_out / TILE;
    auto& factors = *reinterpret_cast<GroupFactors*>(memory);
    using TileSlot = Slot<PITCH, 4, 1>;
    auto& ring = *reinterpret_cast<Ring<TileSlot, sizeof(GroupFactors)>*>(&factors + 1);
    if (threadIdx.x < BACK_TEAMS) mbarrier_init(factors.met[threadIdx.x], GROUP_WARPS * LANES_ARRIVE);
    ring.begin(true, GROUP_WARPS);
    if (warp != BACK_TEAMS * GROUP_WARPS) wait_and_launch();
    const RingLayer tiles = {layer.weights, layer.doutputs, nullptr, sizes.batch, sizes.fan_in, sizes.fan_out};
    const Circle circle = {panels, row_tile % panels, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)};
    const auto place_of = [&](int tile) { return Place{row_tile, tile}; };
    GroupBack<NEEDED> back(layer, factors, row_tile);
    if (team < BACK_TEAMS) {
        if (team == 0) {
            back.load_inputs();
            warp_arrives(ring.ready);
        }
        mbarrier_wait_parity(ring.ready, 0);  // the inputs are there
        take_tiles(ring, ring.done, circle, team, BACK_TEAMS, [&](TileSlot& slot, int panel, int, int) {
            back.take(slot.weights, slot.factor, panel * TILE);
        });
    } else if (warp == BACK_TEAMS * GROUP_WARPS) {
        fetch_tiles(ring, tiles, circle, false, true, place_of);
    } else if (threadIdx.x % WARP == 0) {
        store_tiles(ring, tiles, circle, place_of);
    }
    if constexpr (!NEEDED) return;
    __syncthreads();  // all tiles have been read
    const OutputTile tile = {0, row_tile * TILE, MOST_ROWS, 4};
    if (team < BACK_TEAMS) back.keep(memory, tile);
    __syncthreads();
    Outputs<float>(product, tile).write(memory, BACK_TEAMS);
}

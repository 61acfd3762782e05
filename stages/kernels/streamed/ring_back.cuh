// A layer's backward pass and update through a ring of tiles (ring.cuh); a warp's part is that of streamed_back.cuh.
//
// Who holds what:
//
//   a block, or a cluster   a row of tiles: 64 inputs, in two groups; its blocks take turns at panels of 64 outputs
//   a warp of a team        of each tile 32 inputs by 16 outputs: group warp % 2, part warp % 8 / 2
//   the same, divided       for the inputs' gradient 16 inputs by 32 outputs, then for the update as above: with exact products,
//                           or more than 32 rows, a warp that does both at once would have registers for one team only
//   shared memory           the ring, and the block's inputs as factors
//
// A warp puts its updated weights where they were; the copy engine stores the tile.
#pragma once
#include "streamed/ring.cuh"

constexpr int GROUPS = TILE / OWN, BACK_TEAMS = 2;

// A lane's float32 weights in a slot.
struct FloatWeights {
    static constexpr int PLANES = 1, FLIPS_AT_ONCE = 1;
    float *even, *odd;  // of its first input, by place_bits of 8i + g

    __device__ FloatWeights(float* tile, int group, int part, int g, int t) {
        float* row = tile + (group * OWN + g) * TILE;
        even = row + 4 * (part * 4 + t ^ place_bits(g)), odd = row + 4 * (part * 4 + t ^ place_bits(8 + g));
    }
    __device__ float* at(int i) const { return (i % 2 == 0 ? even : odd) + 8 * i * TILE; }
    __device__ void read(float (&to)[4], int i) const { copy_run<4>(to, at(i)); }
    __device__ void write(int i, float4 updated) const { *reinterpret_cast<float4*>(at(i)) = updated; }
};

// Weights that other warps of the team still read until the barrier's phase is over.
template <class Weights>
struct ReadByOthers {
    static constexpr int FLIPS_AT_ONCE = Weights::FLIPS_AT_ONCE;
    const Weights& weights;
    Barrier& read_by_others;
    int parity;

    __device__ void read(float (&to)[4], int i) const { weights.read(to, i); }
    __device__ void write(int i, float4 updated) const {
        if (i == 0) mbarrier_wait_parity(read_by_others, parity);
        weights.write(i, updated);
    }
};

// A warp's share of the gradient of a tile's inputs: 16 inputs, by half of the tile's outputs.
template <class Arithmetic>
struct InputGradients {
    float sums[PARTS_OF_BATCH][EIGHTS][2][2] = {};
    const int quarter, half, g, t;

    template <class Weights, class TileSlot>
    __device__ void take(TileSlot& slot) {
#pragma unroll 1  // both at once take more registers
        for (int step = 0; step < 2; ++step) {
            const int part = 2 * half + step;
            float right[2][4];
            const Weights weights(slot.weights + quarter % 2 * 16 * TILE / Weights::PLANES, quarter / 2, part, g, t);
#pragma unroll
            for (int j = 0; j < 2; ++j) weights.read(right[j], j);
            typename Arithmetic::template Factors<EIGHTS, 2> factors(nullptr, 0, g, t);
            factors.take_b(right);
#pragma unroll
            for (int rows = 0; rows < PARTS_OF_BATCH; ++rows) {
                const float* from = slot.factor + (8 * EIGHTS * rows + row_of_8(g)) * PITCH + part * K_STEP + 4 * t;
                float left[EIGHTS][4];
#pragma unroll
                for (int i = 0; i < EIGHTS; ++i) copy_run<4>(left[i], from + 8 * i * PITCH);
                factors.take_a(left);
                factors.add_to(sums[rows]);
            }
        }
    }

    __device__ void keep(float* memory, const OutputTile& tile) const {
#pragma unroll
        for (int i = 0; i < MOST_ROWS / 8; ++i) {
            float* row = memory + (half * tile.height + 8 * i + row_of_8(g)) * tile.stride() + quarter * 16;
#pragma unroll
            for (int j = 0; j < 2; ++j) store_run<2>(row + 8 * j + 2 * t, sums[i / EIGHTS][i % EIGHTS][j]);
        }
    }
};

// Teams take turns at tiles. With ARE_DIVIDED their warps compute the gradient of the inputs and the update one after the other.
template <class Arithmetic, class Weights, bool ARE_DIVIDED, bool NEEDED>
__device__ inline void ring_back(const BackLayer& layer, const Product<float>& product, float* memory) {
    constexpr bool BY_OTHERS = ARE_DIVIDED && NEEDED;
    const int warp = threadIdx.x / WARP, g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    const int group = warp % GROUPS, part = warp % TEAM_WARPS / GROUPS, team = warp / TEAM_WARPS;
    const LayerSizes& sizes = layer.sizes;
    const int row_tile = blockIdx.y, panels = sizes.fan_out / TILE;
    using TileSlot = Slot<PITCH, 4 / Weights::PLANES, Weights::PLANES>;
    using Inputs = OwnInputs<Arithmetic>;
    auto& ring = *reinterpret_cast<Ring<TileSlot, GROUPS * sizeof(Inputs)>*>(memory);
    auto* inputs = reinterpret_cast<Inputs*>(&ring + 1);
    ring.begin(true);
    if (warp != BACK_TEAMS * TEAM_WARPS) wait_and_launch();
    const RingLayer tiles = {layer.weights, layer.doutputs, nullptr, sizes.batch, sizes.fan_in, sizes.fan_out};
    const Circle circle = {panels, row_tile % panels, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)};
    const auto place_of = [&](int tile) { return Place{row_tile, tile}; };
    const int first_input = row_tile * TILE + group * OWN;
    WayBack<Arithmetic, NEEDED && !ARE_DIVIDED> back(layer, inputs[group], first_input);
    InputGradients<Arithmetic> of_inputs = {{}, warp % TEAM_WARPS / 2, warp % 2, g, t};
    if (team < BACK_TEAMS) {
        if (team == 0) {
            inputs[group].load(layer, first_input, part);
            warp_arrives(ring.ready);
        }
        mbarrier_wait_parity(ring.ready, 0);  // the inputs are there
        take_tiles(ring, ring.done, circle, team, BACK_TEAMS, [&](TileSlot& slot, int panel, int s, int parity) {
            if constexpr (BY_OTHERS) {
                of_inputs.template take<Weights>(slot);
                warp_arrives(ring.read[s]);
            }
            const Weights weights(slot.weights, group, part, g, t);
            const float* rows = slot.factor + part * K_STEP;
            if constexpr (BY_OTHERS) {
                back.take(rows, ReadByOthers<Weights>{weights, ring.read[s], parity}, panel * TILE + part * K_STEP);
            } else {
                back.take(rows, weights, panel * TILE + part * K_STEP);
            }
            fence_proxy_async();
        });
    } else if (warp == BACK_TEAMS * TEAM_WARPS) {
        fetch_tiles(ring, tiles, circle, false, true, place_of);
    } else if (threadIdx.x % WARP == 0) {
        store_tiles(ring, tiles, circle, place_of);
    }
    if constexpr (!NEEDED) return;
    __syncthreads();  // all tiles have been read
    const OutputTile tile = {0, row_tile * TILE, MOST_ROWS, 4};
    if constexpr (ARE_DIVIDED) {
        if (team < BACK_TEAMS) of_inputs.keep(memory + 2 * team * tile.height * tile.stride(), tile);
    } else if (team < BACK_TEAMS) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row_of_sums = (team * PARTS + part) * tile.height + 8 * i + row_of_8(g);
            float* row = memory + row_of_sums * tile.stride() + group * OWN;
#pragma unroll
            for (int j = 0; j < 4; ++j) store_run<2>(row + 8 * j + 2 * t, back.sums[i][j]);
        }
    }
    __syncthreads();
    Outputs<float>(product, tile).write(memory, BACK_TEAMS * (ARE_DIVIDED ? 2 : PARTS));
}

template <class Arithmetic, class Weights, bool ARE_DIVIDED>
__device__ inline void ring_back(const BackLayer& layer, const Product<float>& product, float* memory) {
    product.mask_bytes > 0 ? ring_back<Arithmetic, Weights, ARE_DIVIDED, true>(layer, product, memory)
                           : ring_back<Arithmetic, Weights, ARE_DIVIDED, false>(layer, product, memory);
}

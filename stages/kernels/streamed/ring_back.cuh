// A layer's backward pass and update through a ring of tiles (ring.cuh); a warp's part is that of streamed_back.cuh.
//
// Who holds what:
//
//   a block, or a cluster   a row of tiles: 64 inputs, in two groups; its blocks take turns at panels of 64 outputs
//   a warp of a team        of each tile 32 inputs by 16 outputs: group warp % 2, part warp % 8 / 2
//   shared memory           the ring, and the block's inputs as factors
//
// A warp puts its updated weights where they were; the copy engine stores the tile.
#pragma once
#include "streamed/ring.cuh"

constexpr int GROUPS = TILE / OWN, BACK_SLOTS = 8;

// A lane's float32 weights in a slot.
struct FloatWeights {
    static constexpr int PLANES = 1;
    float *even, *odd;  // of its first input, by place_bits of 8i + g

    __device__ FloatWeights(float* tile, int group, int part, int g, int t) {
        float* row = tile + (group * OWN + g) * TILE;
        even = row + 4 * (part * 4 + t ^ place_bits(g)), odd = row + 4 * (part * 4 + t ^ place_bits(8 + g));
    }
    __device__ float* at(int i) const { return (i % 2 == 0 ? even : odd) + 8 * i * TILE; }
    __device__ void read(float (&to)[4], int i) const { copy_run<4>(to, at(i)); }
    __device__ void write(int i, float4 updated) const { *reinterpret_cast<float4*>(at(i)) = updated; }
};

template <class Arithmetic, class Weights, int TEAMS, bool NEEDED>
__device__ inline void ring_back(const BackLayer& layer, const Product<float>& product, float* memory) {
    const int warp = threadIdx.x / WARP, g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    const int group = warp % GROUPS, part = warp % TEAM_WARPS / GROUPS, team = warp / TEAM_WARPS;
    const LayerSizes& sizes = layer.sizes;
    const int row_tile = blockIdx.y, panels = sizes.fan_out / TILE;
    using TileSlot = Slot<PITCH, 4 / Weights::PLANES, Weights::PLANES>;
    auto& ring = *reinterpret_cast<Ring<TileSlot, BACK_SLOTS>*>(memory);
    auto* inputs = reinterpret_cast<OwnInputs<Arithmetic>*>(&ring + 1);
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    ring.begin(true);
    const RingLayer tiles = {layer.weights, layer.doutputs, nullptr, sizes.batch, sizes.fan_in, sizes.fan_out};
    const Circle circle = {panels, row_tile % panels, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)};
    const auto place_of = [&](int tile) { return Place{row_tile, tile}; };
    const int first_input = row_tile * TILE + group * OWN;
    WayBack<Arithmetic, NEEDED> back(layer, inputs[group], first_input);
    if (team < TEAMS) {
        if (team == 0) {
            inputs[group].load(layer, first_input, part);
            __syncwarp();
            if (threadIdx.x % WARP == 0) mbarrier_arrive(ring.ready);
        }
        mbarrier_wait_parity(ring.ready, 0);  // the inputs are there
        take_tiles<TEAMS>(ring, ring.done, circle, [&](TileSlot& slot, int panel) {
            const Weights weights(slot.weights, group, part, g, t);
            back.take(slot.factor + part * K_STEP, weights, panel * TILE + part * K_STEP);
            fence_proxy_async();
        });
    } else if (warp == TEAMS * TEAM_WARPS) {
        fetch_tiles(ring, tiles, circle, false, place_of);
    } else if (threadIdx.x % WARP == 0) {
        store_tiles(ring, tiles, circle, place_of);
    }
    if constexpr (!NEEDED) return;
    __syncthreads();  // all tiles have been read
    const OutputTile tile = {0, row_tile * TILE, MOST_ROWS, 4};
    if (team < TEAMS) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row_of_sums = (team * PARTS + part) * tile.height + 8 * i + row_of_8(g);
            float* row = memory + row_of_sums * tile.stride() + group * OWN;
#pragma unroll
            for (int j = 0; j < 4; ++j) store_run<2>(row + 8 * j + 2 * t, back.sums[i][j]);
        }
    }
    __syncthreads();
    Outputs<float>(product, tile).write(memory, TEAMS * PARTS);
}

template <class Arithmetic, class Weights, int TEAMS>
__device__ inline void ring_back(const BackLayer& layer, const Product<float>& product, float* memory) {
    product.mask_bytes > 0 ? ring_back<Arithmetic, Weights, TEAMS, true>(layer, product, memory)
                           : ring_back<Arithmetic, Weights, TEAMS, false>(layer, product, memory);
}

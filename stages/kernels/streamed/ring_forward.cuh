// A layer's forward product through a ring of tiles (ring.cuh).
//
// Who holds what:
//
//   a block, or a cluster   a panel of 64 outputs of all rows; the blocks of a cluster take turns at its tiles of 64 inputs
//   a warp of a team        of each tile 16 inputs by 32 outputs: share warp / 2, side warp % 2
//   a lane (g, t)           inputs 4t to 4t + 3 of 16; outputs 4g to 4g + 3 of 32
//
// Inputs come row by row, or in panels of 64, (panels, MOST_ROWS, INPUTS_PITCH): a panel by one copy. Outputs are written row by row,
// and for the next layer in panels, too. At the end the sums are added up over warps and teams, then over the blocks of the cluster.
#pragma once
#include "streamed/ring.cuh"

constexpr int INPUTS_PITCH = TILE + 16;  // floats: no bank twice for quads of neighbouring rows
constexpr int SHARES = TILE / K_STEP, SIDES = TILE / OWN;

// A tile of float32 weights, as a right factor.
struct FloatTile {
    static constexpr int BYTES = 4;

    template <class Factors>
    static __device__ void take(Factors& factors, const float* tile, int first, int cols, int g, int t) {
        float right[4][4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            float run[4];
            copy_run<4>(run, tile + (first + 4 * t + e) * TILE + 4 * (cols / 4 + g ^ place_bits(4 * t + e)));
#pragma unroll
            for (int j = 0; j < 4; ++j) right[j][e] = run[j];
        }
        factors.take_b(right);
    }
};

template <class Arithmetic, class Tile, int TEAMS>
__device__ inline void ring_forward(const Product<float>& product, const float* input_panels, float* output_panels,
                                    float* memory) {
    const int warp = threadIdx.x / WARP, g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    const int side = warp % SIDES, share = warp % TEAM_WARPS / SIDES, team = warp / TEAM_WARPS;
    const int panel = blockIdx.y, row_tiles = (product.k + TILE - 1) / TILE;
    using TileSlot = Slot<INPUTS_PITCH, Tile::BYTES, 1>;
    auto& ring = *reinterpret_cast<Ring<TileSlot, 0>*>(memory);
    ring.begin(false);
    const RingLayer layer = {const_cast<float*>(product.b), product.a, input_panels, product.m, product.k, product.k};
    const Circle circle = {row_tiles, (panel + 1) % row_tiles, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)};
    float sums[PARTS_OF_BATCH][EIGHTS][4][2] = {};
    const bool are_old = input_panels != nullptr;  // the first layer's weights were the last to be updated
    if (team < TEAMS) {
        wait_and_launch();
        take_tiles(ring, ring.empty, circle, team, TEAMS, [&](const TileSlot& slot, int row_tile, int, int) {
            if (share * K_STEP >= layer.rows(row_tile)) return;
            const float* inputs = slot.factor + g * INPUTS_PITCH + share * K_STEP + 4 * t;
            typename Arithmetic::template Factors<EIGHTS, 4> factors(nullptr, 0, g, t);
#pragma unroll
            for (int part = 0; part < PARTS_OF_BATCH; ++part) {
                float left[EIGHTS][4];
#pragma unroll
                for (int i = 0; i < EIGHTS; ++i) copy_run<4>(left[i], inputs + 8 * (EIGHTS * part + i) * INPUTS_PITCH);
                factors.take_a(left);
                if (part == 0) Tile::take(factors, slot.weights, share * K_STEP, side * OWN, g, t);
                factors.add_to(sums[part]);
            }
        });
    } else if (warp == TEAMS * TEAM_WARPS) {
        fetch_tiles(ring, layer, circle, true, are_old, [&](int tile) { return Place{tile, panel}; });
    }
    __syncthreads();  // all tiles have been read
    const OutputTile tile = {0, panel * TILE, MOST_ROWS, 4};
    if (team < TEAMS) {
#pragma unroll
        for (int i = 0; i < MOST_ROWS / 8; ++i) {
            float* row = memory + ((team * SHARES + share) * tile.height + 8 * i + g) * tile.stride() + side * OWN;
            float run[8];
#pragma unroll
            for (int j = 0; j < 8; ++j) run[j] = sums[i / EIGHTS][i % EIGHTS][j % 4][j / 4];
            store_run<8>(row + 8 * t, run);
        }
    }
    __syncthreads();
    Outputs<float>(product, tile).write(memory, TEAMS * SHARES, [&](int row, int col, float4 quad) {
        float* to = output_panels + (panel * MOST_ROWS + row) * INPUTS_PITCH + col - tile.first_col;
        if (output_panels != nullptr && row < product.m) *reinterpret_cast<float4*>(to) = quad;
    });
}

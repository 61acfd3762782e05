// A layer's forward product, with its weights streamed through a ring in shared memory.
//
// Who holds what:
//
//   a block, or a cluster   64 outputs of all rows (WIDTH); the blocks of a cluster take turns at pieces of 64 inputs
//   shared memory           a ring of FORWARD_PIECES pieces: inputs (32 rows x 64) and weights (64 inputs x 64 outputs)
//   8 warps                 of each piece 16 inputs by 32 outputs: share warp / 2, side warp % 2
//   a lane (g, t)           inputs t, t + 4, t + 8, t + 12 of 16; outputs 4g to 4g + 3 of 32; sums run over any order of k
//
// What travels: each piece from memory into the ring, FORWARD_PIECES - 1 ahead; at the end the sums, added up over warps,
// then over the blocks of the cluster.
#pragma once
#include "streamed/weight_stream.cuh"

constexpr int PIECE_INPUTS = 64;  // inputs of a piece
constexpr int INPUTS_PITCH = PIECE_INPUTS + 8;
constexpr int FORWARD_PIECES = 4;  // in the ring
constexpr int SHARES = PIECE_INPUTS / K_STEP;  // of a piece, one a warp
constexpr int SIDES = WIDTH / OWN;
constexpr int FORWARD_THREADS = SHARES * SIDES * WARP;

template <class Arithmetic>
__device__ inline void streamed_forward(const Product<float>& product, int kept, float* memory) {
    const int warp = threadIdx.x / WARP, g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    const int side = warp % SIDES, share = warp / SIDES;
    const OutputTile tile = {0, static_cast<int>(blockIdx.y) * WIDTH, MOST_ROWS, 4};
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    const auto copy = [&](float* piece, int from) {
        copy_rows<MOST_ROWS, PIECE_INPUTS, INPUTS_PITCH, FORWARD_THREADS>(piece, product.a + from, product.k, product.m,
                                                                   product.k - from);
        copy_rows<PIECE_INPUTS, WIDTH, PITCH, FORWARD_THREADS>(piece + MOST_ROWS * INPUTS_PITCH,
                                                        product.b + from * product.n + tile.first_col, product.n,
                                                        product.k - from, product.n - tile.first_col,
                                                        policy_of_piece(from, tile.first_col, kept));
    };
    constexpr int FLOATS = MOST_ROWS * INPUTS_PITCH + PIECE_INPUTS * PITCH;
    const int rank = cluster_ctarank(), blocks = cluster_nctarank();
    Stream<FORWARD_PIECES, decltype(copy)> stream(memory, FLOATS, rank * PIECE_INPUTS, blocks * PIECE_INPUTS, product.k, copy);
    float sums[4][4][2] = {};
    stream.run([&](const float* piece, int) {
        float left[4][4], right[4][4];
        const float* inputs = piece + g * INPUTS_PITCH + share * K_STEP + t;
#pragma unroll
        for (int i = 0; i < 16; ++i) left[i / 4][i % 4] = inputs[8 * (i / 4) * INPUTS_PITCH + 4 * (i % 4)];
        const float* weights = piece + MOST_ROWS * INPUTS_PITCH + (share * K_STEP + t) * PITCH + side * OWN + 4 * g;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            float run[4];
            copy_run<4>(run, weights + 4 * e * PITCH);
#pragma unroll
            for (int j = 0; j < 4; ++j) right[j][e] = run[j];
        }
        typename Arithmetic::template Factors<4, 4> factors(nullptr, 0, g, t);
        factors.take(left, right);
        factors.add_to(sums);
    });
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        float* row = memory + (share * tile.height + 8 * i + g) * tile.stride() + side * OWN;
        float run[8];
#pragma unroll
        for (int j = 0; j < 8; ++j) run[j] = sums[i][j % 4][j / 4];
        store_run<8>(row + 8 * t, run);
    }
    __syncthreads();
    Outputs<float>(product, tile).write(memory, SHARES);
}

// A layer's outputs: a block, or a cluster of them, owns 32 outputs of up to 64 rows, and streams their columns of the weights.
#pragma once
#include "weight_stream.cuh"

template <class Arithmetic, int CHUNKS>
__device__ inline void streamed_forward(const Product<float>& product, int first_row, float* memory) {
    const int warp = threadIdx.x / WARP, warps = blockDim.x / WARP, g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    const int lane = threadIdx.x % WARP;
    const Tile tile = {first_row, static_cast<int>(blockIdx.y) * OWN, CHUNKS * CHUNK, 3};
    const Outputs<float> outputs(product, tile);
    const int col = tile.first_col + 4 * g;  // of a lane's four
    const auto copy = [&](Stage<CHUNKS>& stage, int begin) {
        stage.copy_rows(product.a + first_row * product.k, product.m - first_row, product.k, begin);
        const bool is_there = col < product.n;
        const float* first = product.b + (begin + 4 * t) * product.n + (is_there ? col : 0);
#pragma unroll
        for (int e = 0; e < 4; ++e) copy_four(&stage.weights[e][lane].x, first + e * product.n, is_there);
    };
    Stage<CHUNKS>* ring = reinterpret_cast<Stage<CHUNKS>*>(memory) + warp * Stage<CHUNKS>::COUNT;
    Stream<CHUNKS, decltype(copy)> stream(ring, rank_of_block() * warps + warp, blocks_together() * warps, product.k, copy);
    float sums[CHUNKS][4][4][2] = {};
    stream.run([&](const Stage<CHUNKS>& stage, int) {
        float weights[4][4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const float4 quad = stage.weights[e][lane];
            weights[0][e] = quad.x, weights[1][e] = quad.y, weights[2][e] = quad.z, weights[3][e] = quad.w;
        }
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
            float left[4][4];
            stage.read_rows(left, c);
            typename Arithmetic::template Factors<4, 4> factors(nullptr, 0, g, t);
            factors.take(left, weights);
            factors.multiply_into(sums[c]);
        }
    });
    __syncthreads();  // nobody copies or reads any more
#pragma unroll
    for (int i = 0; i < 4 * CHUNKS; ++i) {
        float run[8];
#pragma unroll
        for (int j = 0; j < 4; ++j) run[j] = sums[i / 4][i % 4][j][0], run[4 + j] = sums[i / 4][i % 4][j][1];
        store_run<8>(memory + (warp * tile.height + 8 * i + g) * tile.stride() + 8 * t, run);
    }
    __syncthreads();
    outputs.write(memory);
}

// Rows in groups of 64, one for each cluster along x.
template <class Arithmetic>
__device__ inline void streamed_forward(const Product<float>& product, float* memory) {
    if (product.m <= CHUNK) {
        streamed_forward<Arithmetic, 1>(product, 0, memory);
    } else {
        streamed_forward<Arithmetic, 2>(product, group_of_blocks() * 2 * CHUNK, memory);
    }
}

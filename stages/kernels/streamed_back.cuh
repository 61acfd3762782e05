// A layer's way back in one pass over its weights: each is read once, for the gradient of the inputs, and written once,
// updated, where the two products by themselves read it twice.
//
// A block owns one group of 32 inputs or two: their rows of the weights, with all outputs, or a share of them where a cluster
// has the rest. Four warps have a group, each 16 columns of every piece of its rows. As in output_tiles.cuh,
// g = lane / 4 and t = lane % 4, and any order of what is added up will do: a lane has four weights of each of four rows,
// 8i + g, in columns 4t to 4t+3. These are its share of a right factor; and its share of a product, the weights' own
// gradient, if fragment j of that has columns 2g + j: thus no weight is moved between them.
#pragma once
#include "weight_stream.cuh"

struct BackLayer {
    const float *inputs, *doutputs;
    float *weights, *bias;
    LayerSizes sizes;
    float learning_rate;
};

constexpr int BACK_PIECES = 3;       // in the ring
constexpr int PARTS = WIDTH / STEP;  // of a piece, each a warp's

// Of 8 rows of a batch, the one that g stands for as it goes through the columns; neighbouring lanes are two rows apart.
__device__ inline int row_of_8(int g) { return 2 * (g % 4) + g / 4; }

// Of 16, those that a lane adds up for the weights' gradient.
__device__ inline int row_of_16(int t, int e) { return t + 4 * e; }

// Of a group's inputs, what each lane multiplies, inputs 8i + g.
struct OwnInputs {
    float4 rows[MOST_ROWS / STEP][4][WARP];

    __device__ void load(const BackLayer& layer, int first_input) {
        const LayerSizes& sizes = layer.sizes;
        float* numbers = &rows[0][0][0].x;
#pragma unroll 4
        for (int i = threadIdx.x; i < MOST_ROWS * OWN; i += blockDim.x) {
            const int e = i % 4, lane = i / 4 % WARP, fourth = i / (4 * WARP) % 4, s = i / (16 * WARP);
            const int row = 16 * s + row_of_16(lane % 4, e), col = first_input + 8 * fourth + lane / 4;
            // Read in any case, so that no load waits for another.
            const float number = layer.inputs[min(row, sizes.batch - 1) * sizes.fan_in + min(col, sizes.fan_in - 1)];
            numbers[i] = row < sizes.batch && col < sizes.fan_in ? number : 0.0f;
        }
    }
};

// A warp's share: sums of the inputs' gradient, and its weights updated.
template <class Arithmetic>
class WayBack {
  public:
    float sums[4][4][2] = {};

    __device__ WayBack(const BackLayer& layer, const OwnInputs& inputs, int first_input)
        : layer(layer), inputs(inputs), first_input(first_input), lane(threadIdx.x % WARP), g(lane / 4), t(lane % 4) {}

    // STEP columns from `begin` on: the other factor's in `rows`, and the group's in `own`.
    __device__ void take(const float* rows, const float* own, int begin) {
        float weights[4][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) copy_run<4>(weights[i], own + (8 * i + g) * WIDER + 4 * t);
        float of_bias[4] = {};
        {
            float left[4][4];
#pragma unroll
            for (int i = 0; i < 4; ++i) copy_run<4>(left[i], rows + (8 * i + row_of_8(g)) * PITCH + 4 * t);
#pragma unroll
            for (int i = 0; i < 16; ++i) of_bias[i % 4] += left[i / 4][i % 4];
            typename Arithmetic::template Factors<4, 4> factors(nullptr, 0, g, t);
            factors.take(left, weights);
            factors.multiply_into(sums);
        }
        float gradient[2][2][2][2] = {};
#pragma unroll
        for (int s = 0; s < MOST_ROWS / STEP; ++s) {
            float right[2][4];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                float pair[2];
                copy_run<2>(pair, rows + (16 * s + row_of_16(t, e)) * PITCH + 2 * g);
                right[0][e] = pair[0], right[1][e] = pair[1];
            }
#pragma unroll
            for (int half = 0; half < 2; ++half) {  // all four at once would take more registers
                float left[2][4];
#pragma unroll
                for (int i = 0; i < 2; ++i) copy_run<4>(left[i], &inputs.rows[s][2 * half + i][lane].x);
                typename Arithmetic::template Factors<2, 2> factors(nullptr, 0, g, t);
                factors.take(left, right);
                factors.multiply_into(gradient[half]);
            }
        }
        const float rate = layer.learning_rate;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = first_input + 8 * i + g;
            const auto& of_row = gradient[i / 2][i % 2];
            float4* at = reinterpret_cast<float4*>(layer.weights + row * layer.sizes.fan_out + begin + 4 * t);
            const float4 updated = {weights[i][0] - rate * of_row[0][0], weights[i][1] - rate * of_row[1][0],
                                    weights[i][2] - rate * of_row[0][1], weights[i][3] - rate * of_row[1][1]};
            if (row < layer.sizes.fan_in) __stcg(at, updated);  // the compiler takes an assignment apart
        }
        if (first_input == 0) update_bias(of_bias, begin);
    }

  private:
    __device__ void update_bias(float (&of_rows)[4], int begin) const {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            for (int flip = 4; flip < WARP; flip *= 2) of_rows[e] += __shfl_xor_sync(~0u, of_rows[e], flip);
            if (g == 0) atomicAdd(layer.bias + begin + 4 * t + e, -layer.learning_rate * of_rows[e]);  // nobody waits for it
        }
    }

    const BackLayer& layer;
    const OwnInputs& inputs;
    const int first_input, lane, g, t;
};

template <class Arithmetic, int GROUPS>
__device__ inline void streamed_back(const BackLayer& layer, const Product<float>& product, float* memory) {
    const int warp = threadIdx.x / WARP, group = warp % GROUPS, part = warp / GROUPS;
    const int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    constexpr int INPUTS = GROUPS * OWN, FLOATS = MOST_ROWS * PITCH + INPUTS * WIDER;  // of a block, and of a piece
    const LayerSizes& sizes = layer.sizes;
    const Tile tile = {0, static_cast<int>(blockIdx.y) * INPUTS, MOST_ROWS, 2 + GROUPS};  // 8 quads a group, or 16
    let_next_begin();
    wait_for_previous();
    const auto copy = [&](float* piece, int from) {
        const int cols = sizes.fan_out - from;
        copy_rows<WIDTH, PITCH>(piece, layer.doutputs + from, sizes.fan_out, MOST_ROWS, sizes.batch, cols);
        copy_rows<WIDTH, WIDER>(piece + MOST_ROWS * PITCH, layer.weights + tile.first_col * sizes.fan_out + from,
                                sizes.fan_out, INPUTS, sizes.fan_in - tile.first_col, cols);
    };
    OwnInputs* inputs = reinterpret_cast<OwnInputs*>(memory);
    float* ring = reinterpret_cast<float*>(inputs + GROUPS);
    const int rank = rank_of_block(), blocks = blocks_together();
    Stream<BACK_PIECES, decltype(copy)> stream(ring, FLOATS, rank * WIDTH, blocks * WIDTH, sizes.fan_out, copy);
    for (int i = 0; i < GROUPS; ++i) inputs[i].load(layer, tile.first_col + i * OWN);
    WayBack<Arithmetic> back(layer, inputs[group], tile.first_col + group * OWN);
    stream.run([&](const float* piece, int from) {
        const int at = part * STEP;
        if (from + at < sizes.fan_out) back.take(piece + at, piece + (MOST_ROWS * PITCH + group * OWN * WIDER) + at, from + at);
    });
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        float* row = memory + (part * tile.height + 8 * i + row_of_8(g)) * tile.stride() + group * OWN;
#pragma unroll
        for (int j = 0; j < 4; ++j) store_run<2>(row + 8 * j + 2 * t, back.sums[i][j]);
    }
    __syncthreads();
    Outputs<float>(product, tile).write(memory, PARTS);
}

template <class Arithmetic>
__device__ inline void streamed_back(const BackLayer& layer, const Product<float>& product, int groups, float* memory) {
    if (groups == 1) {
        streamed_back<Arithmetic, 1>(layer, product, memory);
    } else {
        streamed_back<Arithmetic, 2>(layer, product, memory);
    }
}

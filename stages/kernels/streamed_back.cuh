// A layer's way back in one pass over its weights: each is read once, for the gradient of the inputs, and written once,
// updated, where the two products by themselves read it twice.
//
// A block, or a cluster of them, owns 32 inputs: their rows of the weights, with all outputs, so that the inputs' gradient
// is a sum of its own. Lane (g, t) has four weights of each of four rows, 8i + g, in columns 4t to 4t+3. These are its share
// of a right factor; and its share of a product, the weights' own gradient, if fragment j of that has columns 2g + j: thus
// no weight is moved between them.
#pragma once
#include "weight_stream.cuh"

struct BackLayer {
    const float *inputs, *doutputs;
    float *weights, *bias;
    LayerSizes sizes;
    float learning_rate;
};

// Of 16 rows of a batch, those that a lane adds up for the weights' gradient.
__device__ inline int row_of(int t, int e) { return t + 4 * e; }

// Of the block's inputs, what each lane multiplies, inputs 8i + g.
template <int CHUNKS>
struct OwnInputs {
    float4 rows[2 * CHUNKS][4][WARP];

    __device__ void load(const BackLayer& layer, int first_input) {
        const LayerSizes& sizes = layer.sizes;
        float* numbers = &rows[0][0][0].x;
        for (int i = threadIdx.x; i < CHUNKS * CHUNK * OWN; i += blockDim.x) {
            const int e = i % 4, lane = i / 4 % WARP, fourth = i / (4 * WARP) % 4, s = i / (16 * WARP);
            const int row = 16 * s + row_of(lane % 4, e), col = first_input + 8 * fourth + lane / 4;
            numbers[i] = row < sizes.batch && col < sizes.fan_in ? layer.inputs[row * sizes.fan_in + col] : 0.0f;
        }
    }
};

// A warp's share: sums of the inputs' gradient, and its weights updated.
template <class Arithmetic, int CHUNKS>
class WayBack {
  public:
    float sums[CHUNKS][4][4][2] = {};

    __device__ WayBack(const BackLayer& layer, const OwnInputs<CHUNKS>& inputs, int first_input)
        : layer(layer), inputs(inputs), first_input(first_input), lane(threadIdx.x % WARP), g(lane / 4), t(lane % 4) {}

    __device__ void copy(Stage<CHUNKS>& stage, int begin) const {
        const LayerSizes& sizes = layer.sizes;
        stage.copy_rows(layer.doutputs, sizes.batch, sizes.fan_out, begin);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = min(first_input + 8 * i + g, sizes.fan_in - 1);
            copy_four(&stage.weights[i][lane].x, layer.weights + row * sizes.fan_out + begin + 4 * t);
        }
    }

    __device__ void take(const Stage<CHUNKS>& stage, int begin) {
        float weights[4][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) copy_run<4>(weights[i], &stage.weights[i][lane].x);
        float of_bias[4] = {};
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
            float left[4][4];
            stage.read_rows(left, c);
#pragma unroll
            for (int i = 0; i < 16; ++i) of_bias[i % 4] += left[i / 4][i % 4];
            typename Arithmetic::template Factors<4, 4> factors(nullptr, 0, g, t);
            factors.take(left, weights);
            factors.multiply_into(sums[c]);
        }
        float gradient[4][2][2] = {};
#pragma unroll
        for (int s = 0; s < 2 * CHUNKS; ++s) {
            float left[4][4], right[2][4];
#pragma unroll
            for (int i = 0; i < 4; ++i) copy_run<4>(left[i], &inputs.rows[s][i][lane].x);
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                float pair[2];
                copy_run<2>(pair, stage.rows + (16 * s + row_of(t, e)) * PITCH + 2 * g);
                right[0][e] = pair[0], right[1][e] = pair[1];
            }
            typename Arithmetic::template Factors<4, 2> factors(nullptr, 0, g, t);
            factors.take(left, right);
            factors.multiply_into(gradient);
        }
        const float rate = layer.learning_rate;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = first_input + 8 * i + g;
            const float updated[4] = {weights[i][0] - rate * gradient[i][0][0], weights[i][1] - rate * gradient[i][1][0],
                                      weights[i][2] - rate * gradient[i][0][1], weights[i][3] - rate * gradient[i][1][1]};
            if (row < layer.sizes.fan_in) store_run<4>(layer.weights + row * layer.sizes.fan_out + begin + 4 * t, updated);
        }
        if (first_input == 0) update_bias(of_bias, begin);
    }

  private:
    __device__ void update_bias(float (&of_rows)[4], int begin) const {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            for (int flip = 4; flip < WARP; flip *= 2) of_rows[e] += __shfl_xor_sync(~0u, of_rows[e], flip);
            if (g == 0) layer.bias[begin + 4 * t + e] -= layer.learning_rate * of_rows[e];
        }
    }

    const BackLayer layer;
    const OwnInputs<CHUNKS>& inputs;
    const int first_input, lane, g, t;
};

template <class Arithmetic, int CHUNKS>
__device__ inline void streamed_back(const BackLayer& layer, const Product<float>& product, float* memory) {
    const int warp = threadIdx.x / WARP, warps = blockDim.x / WARP, g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    const Tile tile = {0, static_cast<int>(blockIdx.y) * OWN, CHUNKS * CHUNK, 3};
    wait_for_previous();
    const Outputs<float> outputs(product, tile);
    OwnInputs<CHUNKS>& inputs = *reinterpret_cast<OwnInputs<CHUNKS>*>(memory);
    Stage<CHUNKS>* ring = reinterpret_cast<Stage<CHUNKS>*>(&inputs + 1) + warp * Stage<CHUNKS>::COUNT;
    WayBack<Arithmetic, CHUNKS> back(layer, inputs, tile.first_col);
    const auto copy = [&](Stage<CHUNKS>& stage, int begin) { back.copy(stage, begin); };
    Stream<CHUNKS, decltype(copy)> stream(ring, rank_of_block() * warps + warp, blocks_together() * warps,
                                          layer.sizes.fan_out, copy);
    inputs.load(layer, tile.first_col);
    __syncthreads();
    stream.run([&](const Stage<CHUNKS>& stage, int begin) { back.take(stage, begin); });
    __syncthreads();  // nobody copies or reads any more
#pragma unroll
    for (int i = 0; i < 4 * CHUNKS; ++i) {
        float* row = memory + (warp * tile.height + 8 * i + g) * tile.stride();
#pragma unroll
        for (int j = 0; j < 4; ++j) store_run<2>(row + 8 * j + 2 * t, back.sums[i / 4][i % 4][j]);
    }
    __syncthreads();
    outputs.write(memory);
}

template <class Arithmetic>
__device__ inline void streamed_back(const BackLayer& layer, const Product<float>& product, float* memory) {
    let_next_begin();
    if (layer.sizes.batch <= CHUNK) {
        streamed_back<Arithmetic, 1>(layer, product, memory);
    } else {
        streamed_back<Arithmetic, 2>(layer, product, memory);
    }
}

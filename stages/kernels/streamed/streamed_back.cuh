// A layer's backward pass and update in one pass over its weights: each weight is read once, for the inputs' gradient, and
// written once, updated. Two separate products read it twice.
//
// Who holds what. A group is 32 inputs of the layer: 32 rows of the weights.
//
//   a block, or a cluster   one group or two; the blocks of a cluster take turns at pieces of 64 outputs
//   shared memory           the group's inputs, as factors; a ring of BACK_PIECES pieces: doutputs (32 rows x 64 outputs)
//                           and weights (32 inputs x 64 outputs a group)
//   four warps a group      16 outputs of every piece each
//   a lane (g, t)           weights of inputs 8i + g in outputs 4t to 4t + 3, with g = lane / 4, t = lane % 4
//
// What travels, for each piece:
//
//   memory  --cp.async-->  ring  --------------->  registers    BACK_PIECES - 1 pieces ahead
//   weights, doutputs      --tensor cores------->  the warp's share of dinputs, added up over pieces
//   inputs, doutputs       --tensor cores------->  the gradient of the lane's own weights
//   updated weights        --st.global---------->  memory       by a policy for L2
//   dinputs                --at the end--------->  added up over warps, then over the blocks of the cluster
//
// No weight moves between lanes. A lane's weights are its share of a right factor, and also its share of a product, their
// gradient, if fragment j of the product has columns 2g + j: sums run over any order of k (output_tiles.cuh).
#pragma once
#include "streamed/weight_stream.cuh"

struct BackLayer {
    const float *inputs, *doutputs;
    float *weights, *bias;
    LayerSizes sizes;
    float learning_rate;
    int kept;  // patches of 16 that stay in L2
};

constexpr int BACK_PIECES = 3;       // in the ring
constexpr int PARTS = WIDTH / K_STEP;  // of a piece, one a warp

// The row that g stands for among 8 rows of a batch; neighbouring lanes are two rows apart.
__device__ inline int row_of_8(int g) { return 2 * (g % 4) + g / 4; }

// The rows, among 16, that a lane adds up for the weights' gradient.
__device__ inline int row_of_16(int t, int e) { return t + 4 * e; }

struct alignas(16) Quad {
    unsigned words[4];
};

// A group's inputs as left factors, which every piece needs again: for each 16 rows of the batch, what each lane holds.
template <class Arithmetic>
struct OwnInputs {
    static constexpr int STEPS = MOST_ROWS / K_STEP, HALVES = 2;  // a lane's four inputs in two rounds: all four at once take more registers
    static_assert(STEPS * HALVES % PARTS == 0, "each warp of a group loads as many");
    using Factors = typename Arithmetic::template Factors<2, 2>;

    Quad quads[STEPS][HALVES][Factors::QUADS_OF_A][WARP];

    // Loads one of four shares, a warp each.
    __device__ void load(const BackLayer& layer, int first_input, int part) {
#pragma unroll
        for (int step = 0; step < STEPS * HALVES; step += PARTS) load_half(layer, first_input, step + part);
    }

    __device__ void load_half(const BackLayer& layer, int first_input, int place) {
        const LayerSizes& sizes = layer.sizes;
        const int lane = threadIdx.x % WARP, s = place / HALVES, half = place % HALVES;
        float numbers[2][4];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int row = K_STEP * s + row_of_16(lane % 4, i % 4), col = first_input + 8 * (2 * half + i / 4) + lane / 4;
            // Unconditional loads, so that none waits for another.
            const float number = layer.inputs[min(row, sizes.batch - 1) * sizes.fan_in + min(col, sizes.fan_in - 1)];
            numbers[i / 4][i % 4] = row < sizes.batch && col < sizes.fan_in ? number : 0.0f;
        }
        Factors factors(nullptr, 0, lane / 4, lane % 4);
        factors.take_a(numbers);
#pragma unroll
        for (int i = 0; i < Factors::QUADS_OF_A; ++i) {
            const unsigned (&quad)[4] = factors.quad_of_a(i);
            quads[s][half][i][lane] = {quad[0], quad[1], quad[2], quad[3]};
        }
    }

    __device__ void read(Factors& factors, int s, int half) const {
#pragma unroll
        for (int i = 0; i < Factors::QUADS_OF_A; ++i) {
            const Quad quad = quads[s][half][i][threadIdx.x % WARP];
#pragma unroll
            for (int e = 0; e < 4; ++e) factors.quad_of_a(i)[e] = quad.words[e];
        }
    }
};

// A lane's weights in a piece of the ring, from where they are read; they are written to memory.
struct PieceWeights {
    static constexpr int FLIPS_AT_ONCE = 3;
    const float* piece;  // of the lane's first
    float* memory;
    int fan_out, rows_there;
    unsigned long long policy;

    __device__ void read(float (&to)[4], int i) const { copy_run<4>(to, piece + 8 * i * WIDER); }

    // In place of an assignment, which the compiler splits.
    __device__ void write(int i, float4 updated) const {
        if (8 * i < rows_there) st_global_cg_v4(memory + 8 * i * fan_out, updated, policy);
    }
};

// A warp's share: sums of the inputs' gradient, if NEEDED, and the update of its weights.
template <class Arithmetic, bool NEEDED>
class WayBack {
    static_assert(!NEEDED || MOST_ROWS == ROWS_AT_ONCE, "with more rows a ring divides the pass");

  public:
    float sums[4][4][2] = {};

    __device__ WayBack(const BackLayer& layer, const OwnInputs<Arithmetic>& inputs, int first_input)
        : layer(layer), inputs(inputs), first_input(first_input), g(threadIdx.x % WARP / 4), t(threadIdx.x % 4) {}

    // Takes K_STEP columns from `begin` on: doutputs in `rows`, the lane's weights in `own`, which reads and writes the four
    // of input 8i + g.
    template <class Own>
    __device__ void take(const float* rows, const Own& own, int begin) {
        float weights[4][4];
        if constexpr (NEEDED) {
#pragma unroll
            for (int i = 0; i < 4; ++i) own.read(weights[i], i);
        }
        if (NEEDED || first_input == 0) {
            float left[MOST_ROWS / 8][4];
#pragma unroll
            for (int i = 0; i < MOST_ROWS / 8; ++i) copy_run<4>(left[i], rows + (8 * i + row_of_8(g)) * PITCH + 4 * t);
            if (first_input == 0) update_bias<Own::FLIPS_AT_ONCE>(left, begin);
            if constexpr (NEEDED) {
                typename Arithmetic::template Factors<4, 4> factors(nullptr, 0, g, t);
                factors.take(left, weights);
                factors.add_to(sums);
            }
        }
        float gradient[2][2][2][2] = {};
#pragma unroll
        for (int s = 0; s < MOST_ROWS / K_STEP; ++s) {
            float right[2][4];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                float pair[2];
                copy_run<2>(pair, rows + (16 * s + row_of_16(t, e)) * PITCH + 2 * g);
                right[0][e] = pair[0], right[1][e] = pair[1];
            }
            typename OwnInputs<Arithmetic>::Factors factors(nullptr, 0, g, t);
            factors.take_b(right);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                inputs.read(factors, s, half);
                factors.multiply_in_turn(gradient[half]);
            }
        }
        const float rate = layer.learning_rate;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if constexpr (!NEEDED) own.read(weights[i], i);  // not before, since they take registers
            const auto& of_row = gradient[i / 2][i % 2];
            own.write(i, {weights[i][0] - rate * of_row[0][0], weights[i][1] - rate * of_row[1][0],
                          weights[i][2] - rate * of_row[0][1], weights[i][3] - rate * of_row[1][1]});
        }
    }

  private:
    // Only the first blocks do it; how far its loop is unrolled decides whether the others have a register too few.
    template <int FLIPS_AT_ONCE>
    __device__ void update_bias(const float (&of_rows)[MOST_ROWS / 8][4], int begin) const {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            float sum = (of_rows[0][e] + of_rows[1][e]) + (of_rows[2][e] + of_rows[3][e]);
#pragma unroll
            for (int i = 4; i < MOST_ROWS / 8; ++i) sum += of_rows[i][e];
#pragma unroll FLIPS_AT_ONCE
            for (int flip = 4; flip < WARP; flip *= 2) sum += __shfl_xor_sync(~0u, sum, flip);
            if (g == 0) atomicAdd(layer.bias + begin + 4 * t + e, -layer.learning_rate * sum);  // no thread waits for it
        }
    }

    const BackLayer& layer;
    const OwnInputs<Arithmetic>& inputs;
    const int first_input, g, t;
};

template <class Arithmetic, int GROUPS, bool NEEDED>
__device__ inline void streamed_back(const BackLayer& layer, const Product<float>& product, float* memory) {
    const int warp = threadIdx.x / WARP, group = warp % GROUPS, part = warp / GROUPS;
    const int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    constexpr int THREADS = GROUPS * PARTS * WARP, INPUTS = GROUPS * OWN;  // of a block
    constexpr int FLOATS = MOST_ROWS * PITCH + INPUTS * WIDER;             // of a piece
    const LayerSizes& sizes = layer.sizes;
    const OutputTile tile = {0, static_cast<int>(blockIdx.y) * INPUTS, MOST_ROWS, 2 + GROUPS};  // 8 quads a group, or 16
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    const auto policy_of = [&](int from) { return policy_of_piece(tile.first_col, from, layer.kept); };
    const auto copy = [&](float* piece, int from) {
        const int cols = sizes.fan_out - from;
        copy_rows<MOST_ROWS, WIDTH, PITCH, THREADS>(piece, layer.doutputs + from, sizes.fan_out, sizes.batch, cols);
        copy_rows<INPUTS, WIDTH, WIDER, THREADS>(piece + MOST_ROWS * PITCH,
                                                 layer.weights + tile.first_col * sizes.fan_out + from, sizes.fan_out,
                                                 sizes.fan_in - tile.first_col, cols, policy_of(from));
    };
    auto* inputs = reinterpret_cast<OwnInputs<Arithmetic>*>(memory);
    float* ring = reinterpret_cast<float*>(inputs + GROUPS);
    const int rank = cluster_ctarank(), blocks = cluster_nctarank();
    Stream<BACK_PIECES, decltype(copy)> stream(ring, FLOATS, rank * WIDTH, blocks * WIDTH, sizes.fan_out, copy);
    inputs[group].load(layer, tile.first_col + group * OWN, part);
    WayBack<Arithmetic, NEEDED> back(layer, inputs[group], tile.first_col + group * OWN);
    stream.run([&](const float* piece, int from) {
        const int at = part * K_STEP, input = tile.first_col + group * OWN + g;
        const float* own = piece + MOST_ROWS * PITCH + (group * OWN + g) * WIDER + at + 4 * t;
        float* memory = layer.weights + input * sizes.fan_out + from + at + 4 * t;
        const PieceWeights weights = {own, memory, sizes.fan_out, sizes.fan_in - input, policy_of(from)};
        if (from + at < sizes.fan_out) back.take(piece + at, weights, from + at);
    });
    if constexpr (!NEEDED) return;
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
    const bool needed = product.mask_bytes > 0;
    if (groups == 1) {
        needed ? streamed_back<Arithmetic, 1, true>(layer, product, memory)
               : streamed_back<Arithmetic, 1, false>(layer, product, memory);
    } else {
        needed ? streamed_back<Arithmetic, 2, true>(layer, product, memory)
               : streamed_back<Arithmetic, 2, false>(layer, product, memory);
    }
}

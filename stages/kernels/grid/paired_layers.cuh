// The wide layers of grid_pairs. A block has some outputs of a layer with all their inputs, so it completes them by itself; in a
// pair it multiplies them on by the same inputs of the layer above. Only that layer's outputs are sums over blocks, and on the
// way back only the gradients of the lower layer's inputs.
#pragma once
#include "grid/sums_by_shares.cuh"
#include "grid/wide_layers.cuh"

__device__ constexpr bool is_upper(int l) { return l < plan.wide && layers[l].kept_at >= 0; }
template <int L>
constexpr bool IN_PAIR = is_upper(L + 1);  // a group is a pair from layer L on, or that layer alone
template <int L>
constexpr int AFTER = L + 1 + IN_PAIR<L>;
template <int L>
constexpr bool IS_SUMMED = IN_PAIR<L> || layers[L].slices > 1;  // whether a group's outputs have parts

class PairedLayers : public WideLayers {
  public:
    using WideLayers::WideLayers;

    // Biases of outputs that the block completes; store_biases writes them back after the epoch.
    template <int L = 0>
    __device__ void load_biases() {
        for_own_biases<L>([](float& own, float& other) { own = other; });
    }
    template <int L = 0>
    __device__ void store_biases() {
        for_own_biases<L>([](float& own, float& other) { other = own; });
    }

    // The next step's images, where there is room for both.
    __device__ void fetch_ahead(int step) {
        if (plan.buffers == 2) fetch_images(step + 1);
    }

    // Outputs of a group's first layer; of the network's first layer, if it is cut, their parts.
    template <int L>
    __device__ void forward_lower(int step) {
        constexpr Layer layer = layers[L];
        if constexpr (layer.bias_at < 0) {
            forward<L>(step);
        } else {
            for_tiles<L>([=](int tile) {
                const float* biases = memory + layer.bias_at;
                const SharedTile inputs = inputs_of<L>(tile, step, 0, plan.rows);
                cp_async_wait_all();
                __syncthreads();
                block_product<PARTS_OF_INPUTS<L>>(AlongRows{inputs}, AlongColumns{held_weights<L>()}, plan.rows, layer.tile_n,
                                                  layer.tile_k, [=](int row, int col, float a, float b) {
                                                      const float2 bias = *reinterpret_cast<const float2*>(biases + col);
                                                      keep_outputs<L>(tile, row, col, a + bias.x, b + bias.y);
                                                  });
                __syncthreads();
            });
        }
    }

    // Parts of the sums of a pair's upper layer, over the units of this block.
    template <int L>
    __device__ void forward_upper() {
        constexpr Layer layer = layers[L];
        for_tiles<L>([=](int tile) {
            block_product<PARTS>(AlongRows{kept<L>()}, AlongColumns{held_weights<L>()}, plan.rows, layer.tile_n, layer.tile_k,
                                 part_store<L>(tile, layer.tile_n));
        });
    }

    template <int L>
    __device__ void add_up_outputs() {
        constexpr Layer layer = layers[L];
        add_up_everywhere<layer.slices, layer.columns * layer.tile_n>(
            [=](int, int col) { return col < layer.outputs ? __ldcg(parameters + layer.bias + col) : 0.0f; },
            [=](int row, int col, float sum, float bias) {
                if (col < layer.outputs) pass_on(passed_at(layer.output) + row * layer.stride + col, relu_of(sum + bias));
            });
    }

    // Gradients of a pair's units, where their ReLU passed.
    template <int L>
    __device__ void backward_upper() {
        constexpr Layer layer = layers[L];
        for_tiles<L>([=](int) {
            const SharedTile outputs = kept<L>(), to = dinputs<L>();
            const SharedTile doutputs = copy_doutputs<L, layer.tile_n>(0, 0, plan.rows);
            if (TAKEN_BY_COPIES) cp_async_wait_all();
            __syncthreads();
            block_product<PARTS>(AlongRows{doutputs}, AlongRows{held_weights<L>()}, plan.rows, layer.tile_k, layer.tile_n,
                                 [=](int row, int col, float a, float b) {
                                     const float2 output = outputs.read<PARTS>(row, col);
                                     to.write<PARTS>(row, col, output.x <= 0.0f ? 0.0f : a, output.y <= 0.0f ? 0.0f : b);
                                 });
            __syncthreads();
        });
    }

    // Parts of the gradients of the inputs of a group's first layer.
    template <int L>
    __device__ void backward_lower() {
        constexpr Layer layer = layers[L];
        if constexpr (!IN_PAIR<L>) {
            backward<L>();
        } else {
            for_tiles<L>([=](int tile) {
                block_product<PARTS>(AlongRows{dinputs<L + 1>()}, AlongRows{held_weights<L>()}, plan.rows, layer.tile_k,
                                     layer.tile_n, part_store<L>(tile, layer.tile_k));
            });
        }
    }

    template <int L>
    __device__ void add_up_doutputs() {
        constexpr Layer layer = layers[L], below = layers[L - 1];
        add_up_everywhere<layer.columns, layer.tile_k>(
            [=](int row, int col) { return col < below.outputs ? passed_on(passed_at(below.output) + row * below.stride + col) : 0.0f; },
            [=](int row, int col, float sum, float output) {
                if (col >= below.outputs) return;
                pass_on(passed_at(below.doutput) + row * below.stride + col, output <= 0.0f ? 0.0f : sum);
            });
    }

    // The update of a pair's upper layer; doutputs are in shared memory from backward_upper(). That of the lower layer follows
    // without a wait, by warps without work here.
    template <int L>
    __device__ void update_upper() {
        constexpr Layer layer = layers[L];
        for_tiles<L>([=](int tile) {
            const SharedTile doutputs = tile_at<layer.tile_n>(plan.doutputs_at, plan.rows);
            subtract<L, PARTS, 0>(kept<L>(), doutputs, plan.rows);
            for (int col = EDGE * tile; col < layer.tile_n; col += EDGE * TILES_OF<L>) {  // all blocks have all doutputs
                update_biases<L>(biases_of<L>(col), {doutputs.memory + col, EDGE, doutputs.pitch, doutputs.plane}, col, plan.rows);
            }
        });
    }

    // The same of a group's first layer. Where the next step's images have no room of their own, they take that of rows whose
    // part of the update is done.
    template <int L>
    __device__ void update_lower(int step) {
        constexpr Layer layer = layers[L];
        constexpr bool REFILLS = L == 0 && plan.buffers == 1;
        for_tiles<L>([=](int tile) {
            const SharedTile doutputs = doutputs_of<L>(tile), inputs = inputs_of<L>(tile, step, 0, plan.rows);
            if (L > 0 || !IN_PAIR<L>) {
                cp_async_wait_all();
                __syncthreads();
            }
            for (int first = 0; first < plan.rows; first += REFILLS ? REFILL : plan.rows) {
                const int rows = REFILLS ? min(REFILL, plan.rows - first) : plan.rows;
                subtract<L, PARTS_OF_INPUTS<L>, BUSY<L>>(from_row(inputs, first), from_row(doutputs, first), rows);
                __syncthreads();
                if (REFILLS && step + 1 < steps) {
                    copy_images(from_row(inputs, first), images_of(tile, step + 1) + first * layer.tile_k, rows);
                }
            }
            const int n0 = tile % layer.columns * layer.tile_n;
            float* biases = layer.bias_at < 0 ? biases_of<L>(n0) : memory + layer.bias_at;
            if (tile < layer.columns) update_biases<L>(biases, doutputs, n0, plan.rows);
            __syncthreads();
        });
    }

  private:
    static constexpr int REFILL = 64;  // rows of images at once

    // Warps with work in the update of a pair's upper layer.
    template <int L>
    __device__ static constexpr int busy() {
        if constexpr (!IN_PAIR<L>) return 0;
        constexpr Layer upper = layers[IN_PAIR<L> ? L + 1 : L];
        constexpr int across = upper.tile_n / HALF_EDGE, fragments = upper.tile_k / EDGE * across;
        constexpr int tiles = fragments > 2 * WARPS ? 4 : fragments > WARPS ? 2 : 1;  // as block_product() has
        return upper.tile_k / EDGE * ((across + tiles - 1) / tiles) % WARPS;
    }
    template <int L>
    static constexpr int BUSY = busy<L>();

    template <int L, class Work>
    __device__ void for_own_biases(Work work) {
        if constexpr (L < plan.wide) {
            constexpr Layer layer = layers[L];
            if constexpr (layer.bias_at >= 0) {
                const int i = threadIdx.x, col = blockIdx.x * layer.tile_n + i;
                static_assert(layer.tile_n <= THREADS);
                if (blockIdx.x < TILES_OF<L> && i < layer.tile_n) {
                    if (col < layer.outputs) work(memory[layer.bias_at + i], parameters[layer.bias + col]);
                    else memory[layer.bias_at + i] = 0.0f;
                }
            }
            for_own_biases<L + 1>(work);
        } else {
            __syncthreads();
        }
    }

    // The outputs of the layer below that this block has computed, and their gradients.
    template <int L>
    __device__ SharedTile kept() {
        return tile_at<layers[L].tile_k>(layers[L].kept_at, plan.rows);
    }
    template <int L>
    __device__ SharedTile dinputs() {
        return tile_at<layers[L].tile_k>(plan.dinputs_at, plan.rows);
    }
    __device__ static SharedTile from_row(const SharedTile& tile, int row) {
        return {tile.memory + row * tile.pitch, tile.cols, tile.pitch, tile.plane};
    }

    template <int L>
    __device__ SharedTile doutputs_of(int tile) {
        if constexpr (IN_PAIR<L>) return dinputs<L + 1>();
        return copy_doutputs<L, layers[L].tile_n>(tile % layers[L].columns * layers[L].tile_n, 0, plan.rows);
    }

    // ReLU of two neighbours of a row, for the layer above in the block, or for other blocks.
    template <int L>
    __device__ void keep_outputs(int tile, int row, int col, float first, float second) {
        const float a = relu_of(first), b = relu_of(second);
        if constexpr (IN_PAIR<L>) {
            kept<L + 1>().template write<PARTS>(row, col, a, b);
        } else if (row < plan.batch) {
            Passed* to = passed_at(layers[L].output) + row * layers[L].stride + tile * layers[L].tile_n + col;
            pass_on(to, a), pass_on(to + 1, b);
        }
    }

    // The store of a part (rows, width) of all sums.
    template <int L>
    __device__ auto part_store(int tile, int width) {
        float* part = workspace + plan.partials + tile * plan.rows * width;
        return [=](int row, int col, float a, float b) {
            *reinterpret_cast<float2*>(part + row * width + col) = make_float2(a, b);
        };
    }

    template <int PARTS_OF_SUMS, int WIDTH, class Begin, class Finish>
    __device__ void add_up_everywhere(Begin begin, Finish finish) {
        constexpr int ROWS = (plan.batch + plan.blocks - 1) / plan.blocks;
        add_up_by_shares<PARTS_OF_SUMS, WIDTH, ROWS>(workspace + plan.partials, plan.rows * WIDTH, memory + plan.scratch_at,
                                                     plan.batch, blockIdx.x, gridDim.x, [](int row) { return row; }, begin, finish);
    }

    template <int L, int LEFT_PARTS, int BUSY_WARPS>
    __device__ void subtract(const SharedTile& inputs, const SharedTile& doutputs, int rows) {
        const SharedTile weights = held_weights<L>();
        const float rate = learning_rate;
        block_product<LEFT_PARTS, BUSY_WARPS>(AlongColumns{inputs}, AlongColumns{doutputs}, layers[L].tile_k, layers[L].tile_n, rows,
                                  [=](int row, int col, float a, float b) {
                                      const float2 pair = weights.read_whole(row, col);
                                      weights.write_whole(row, col, pair.x - rate * a, pair.y - rate * b);
                                  });
    }
};

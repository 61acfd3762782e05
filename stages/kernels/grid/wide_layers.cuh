// The wide layers of persistent_grid: blocks own tiles of their weights, tile_k inputs by tile_n outputs. A product leaves
// one part of every sum for each tile along it; the next phase adds the parts up.
//
// Factors lie in shared memory as bfloat16: images in one part, which is exact; held weights in all their parts; outputs and
// doutputs in as many parts as products take.
#pragma once
#include "grid/tile_product.cuh"

class WideLayers {
  public:
    int later = 0;  // index in a run of equal layers: templates name the run's first layer

    __device__ WideLayers(float* memory, const BFloat16* images, int steps, float* parameters, float* workspace,
                          float learning_rate)
        : memory(memory), images(images), steps(steps), parameters(parameters), workspace(workspace),
          learning_rate(learning_rate) {}

    // Loads this block's tiles into shared memory, zeros beyond the weights; store_held writes them back after the epoch.
    template <int L = 0>
    __device__ void load_held() {
        if constexpr (plan.held && L < plan.wide) {
            if (blockIdx.x < TILES_OF<L>) load_weights<L>(blockIdx.x, held_weights<L>());
            load_held<L + 1>();
        } else {
            __syncthreads();
        }
    }

    template <int L = 0>
    __device__ void store_held() {
        if constexpr (plan.held && L < plan.wide) {
            const Target to = target<L>(blockIdx.x);
            const SharedTile own = held_weights<L>();
            const int size = blockIdx.x < TILES_OF<L> ? layers[L].tile_k * layers[L].tile_n : 0;
            for (int i = 2 * threadIdx.x; i < size; i += 2 * THREADS) {
                const int row = i / layers[L].tile_n, col = i % layers[L].tile_n;
                const float2 pair = own.read_whole(row, col);
                if (to.has(row, col)) *to.at(row, col) = pair.x;
                if (to.has(row, col + 1)) *to.at(row, col + 1) = pair.y;
            }
            store_held<L + 1>();
        }
    }

    // Starts the copy of the images that this block's first-layer tile needs in a step, if tiles are held.
    __device__ void fetch_images(int step) {
        if (!plan.held || step >= steps || blockIdx.x >= TILES_OF<0>) return;
        copy_images(held_images(step), images_of(blockIdx.x, step), plan.rows);
    }

    // partials[slice] (rows, columns * tile_n) = a slice of the inputs times the same slice of the weights.
    template <int L>
    __device__ void forward(int step) {
        constexpr Layer layer = layers[L];
        constexpr int WIDTH = layer.columns * layer.tile_n;
        for_tiles<L>([=](int tile) {
            const SharedTile weights = weights_of<L>(tile);
            for (int first = 0; first < plan.rows; first += plan.chunk) {
                const int rows = min(plan.chunk, plan.rows - first);
                const SharedTile inputs = inputs_of<L>(tile, step, first, rows);
                if (L == 0 || TAKEN_BY_COPIES) cp_async_wait_all();
                __syncthreads();
                float* part = workspace + plan.partials + (tile / layer.columns * plan.rows + first) * WIDTH +
                              tile % layer.columns * layer.tile_n;
                block_product<PARTS_OF_INPUTS<L>>(AlongRows{inputs}, AlongColumns{weights}, rows, layer.tile_n,
                                                  layer.tile_k, [=](int row, int col, float a, float b) {
                                                      *reinterpret_cast<float2*>(part + row * WIDTH + col) =
                                                          make_float2(a, b);
                                                  });
                __syncthreads();
            }
        });
    }

    // outputs = ReLU(the sum of the parts + bias).
    template <int L>
    __device__ void add_up_forward() {
        constexpr Layer layer = layers[L];
        constexpr int WIDTH = layer.columns * layer.tile_n;
        for (int i = blockIdx.x * THREADS + threadIdx.x; i < plan.batch * layer.outputs; i += gridDim.x * THREADS) {
            const int row = i / layer.outputs, col = i % layer.outputs;
            const float bias = __ldcg(parameters + place_of<L>().bias + col);
            const float sum =
                sum_of<layer.slices>(workspace + plan.partials + row * WIDTH + col, plan.rows * WIDTH) + bias;
            pass_on(passed_at(place_of<L>().output) + row * layer.stride + col, sum < 0.0f ? 0.0f : sum);
        }
    }

    // partials[column] (rows, slices * tile_k) = a column of doutputs times the same column of the weights, transposed.
    template <int L>
    __device__ void backward() {
        constexpr Layer layer = layers[L];
        constexpr int WIDTH = layer.slices * layer.tile_k;
        for_tiles<L>([=](int tile) {
            const SharedTile weights = weights_of<L>(tile);
            for (int first = 0; first < plan.rows; first += plan.chunk) {
                const int rows = min(plan.chunk, plan.rows - first);
                const SharedTile doutputs = copy_doutputs<L, layer.tile_n>(tile % layer.columns * layer.tile_n, first, rows);
                if (TAKEN_BY_COPIES) cp_async_wait_all();
                __syncthreads();
                float* part = workspace + plan.partials + (tile % layer.columns * plan.rows + first) * WIDTH +
                              tile / layer.columns * layer.tile_k;
                block_product<PARTS>(AlongRows{doutputs}, AlongRows{weights}, rows, layer.tile_k, layer.tile_n,
                                     [=](int row, int col, float a, float b) {
                                         *reinterpret_cast<float2*>(part + row * WIDTH + col) = make_float2(a, b);
                                     });
                __syncthreads();
            }
        });
    }

    // doutputs of the layer below = the sum of the parts where its ReLU passed, else 0.
    template <int L>
    __device__ void add_up_backward() {
        constexpr Layer layer = layers[L], below = layers[L - 1];
        constexpr int WIDTH = layer.slices * layer.tile_k;
        for (int i = blockIdx.x * THREADS + threadIdx.x; i < plan.batch * below.outputs; i += gridDim.x * THREADS) {
            const int row = i / below.outputs, col = i % below.outputs, at = row * below.stride + col;
            const float output = passed_on(passed_at(place_below<L>().output) + at);
            const float sum = sum_of<layer.columns>(workspace + plan.partials + row * WIDTH + col, plan.rows * WIDTH);
            pass_on(passed_at(place_below<L>().doutput) + at, output <= 0.0f ? 0.0f : sum);
        }
    }

    // weights -= learning_rate * inputs^T doutputs for this block's tiles; tiles of the first inputs also update the biases.
    // With IN_PLACE and held tiles, doutputs are still in shared memory from backward().
    template <int L, bool IN_PLACE>
    __device__ void update(int step) {
        constexpr Layer layer = layers[L];
        const float rate = learning_rate;
        for_tiles<L>([=](int tile) {
            for (int first = 0; first < plan.rows; first += plan.chunk) {
                const int rows = min(plan.chunk, plan.rows - first);
                if (!(plan.held && IN_PLACE)) {
                    copy_doutputs<L, layer.tile_n>(tile % layer.columns * layer.tile_n, first, rows);
                }
                const AlongColumns left = {inputs_of<L>(tile, step, first, rows)};
                const AlongColumns right = {tile_at<layer.tile_n>(plan.doutputs_at, plan.chunk)};
                if (TAKEN_BY_COPIES || L == 0 && !plan.held) cp_async_wait_all();
                __syncthreads();
                if constexpr (plan.held) {
                    const SharedTile weights = held_weights<L>();
                    block_product<PARTS_OF_INPUTS<L>>(
                        left, right, layer.tile_k, layer.tile_n, rows, [=](int row, int col, float a, float b) {
                            const float2 pair = weights.read_whole(row, col);
                            weights.write_whole(row, col, pair.x - rate * a, pair.y - rate * b);
                        });
                } else {
                    block_product<PARTS_OF_INPUTS<L>>(left, right, layer.tile_k, layer.tile_n, rows,
                                                      subtraction(target<L>(tile)));
                }
                if (tile < layer.columns) update_biases<L>(biases_of<L>(tile * layer.tile_n), right.tile, tile * layer.tile_n, rows);
                __syncthreads();
            }
        });
    }

    // Updates the tail's weights, which no block owns, in tiles of TASK by TASK, and its biases, TASK at a time. The last
    // blocks do it, since the first ones have tiles of wide layers.
    __device__ void update_rest() {
        const int own = gridDim.x - 1 - blockIdx.x, helpers = min(plan.helpers, static_cast<int>(gridDim.x));
        if constexpr (plan.wide < LAYER_COUNT) {
            for (int task = own; own < helpers && update_task<plan.wide>(task); task += helpers) continue;
        }
    }

  protected:
    static constexpr int TASK = 32;
    template <int L>
    static constexpr int PARTS_OF_INPUTS = L == 0 ? 1 : PARTS;

    struct Target {  // weights (rows, cols) in memory, `stride` numbers from row to row
        float* memory;
        int stride, rows, cols;

        __device__ bool has(int row, int col) const { return row < rows && col < cols; }
        __device__ float* at(int row, int col) const { return memory + row * stride + col; }
    };

    // Calls work(tile) for each of this block's tiles.
    template <int L, class Work>
    __device__ void for_tiles(Work work) {
        if (plan.held) {
            if (blockIdx.x < TILES_OF<L>) work(blockIdx.x);
        } else {
            for (int tile = blockIdx.x; tile < TILES_OF<L>; tile += gridDim.x) work(tile);
        }
    }

    __device__ Passed* passed_at(int place) const { return reinterpret_cast<Passed*>(workspace + place); }

    struct Place {
        int weight, bias, output, doutput, weight_at;
    };

    template <int L>
    __device__ Place place_of() const {
        constexpr Layer layer = layers[L], next = layers[L + (ALIKE<L> > 1)];
        if constexpr (ALIKE<L> == 1) {
            return {layer.weight, layer.bias, layer.output, layer.doutput, layer.weight_at};
        } else {
            return {layer.weight + later * (next.weight - layer.weight), layer.bias + later * (next.bias - layer.bias),
                    layer.output + later * (next.output - layer.output),
                    layer.doutput + later * (next.doutput - layer.doutput),
                    layer.weight_at + later * (next.weight_at - layer.weight_at)};
        }
    }

    // Outputs and doutputs of the layer below; its other places are not needed.
    template <int L>
    __device__ Place place_below() const {
        constexpr Layer layer = layers[L], below = layers[L - 1];
        const int apart = ALIKE<L> > 1 ? later * (layer.output - below.output) : 0;
        return {0, 0, below.output + apart, below.doutput + apart, 0};
    }

    // A tile (rows, COLS) at that place in shared memory.
    template <int COLS>
    __device__ SharedTile tile_at(int at, int rows) {
        return {reinterpret_cast<BFloat16*>(memory + at), COLS, PITCH_OF<COLS>, rows * PITCH_OF<COLS>};
    }

    template <int L>
    __device__ SharedTile held_weights() {
        return tile_at<layers[L].tile_n>(place_of<L>().weight_at, layers[L].tile_k);
    }

    __device__ SharedTile held_images(int step, int first = 0) {
        constexpr int COLS = layers[0].tile_k;
        return tile_at<COLS>(plan.images_at + (step % plan.buffers * plan.rows + first) * PITCH_OF<COLS> / 2, plan.rows);
    }

    __device__ const BFloat16* images_of(int tile, int step) {
        return images + (step * layers[0].slices + tile / layers[0].columns) * plan.rows * layers[0].tile_k;
    }

    __device__ void copy_images(const SharedTile& to, const BFloat16* from, int rows) {
        constexpr int PIECES = layers[0].tile_k / 8;  // of 16 bytes
        for (int i = threadIdx.x; i < rows * PIECES; i += THREADS) {
            cp_async_16(reinterpret_cast<float*>(to.memory + place_in_tile(i / PIECES, i % PIECES * 8, to.pitch)),
                      reinterpret_cast<const float*>(from + 8 * i));
        }
    }

    template <int L>
    __device__ Target target(int tile) {
        return target<L>(tile / layers[L].columns * layers[L].tile_k, tile % layers[L].columns * layers[L].tile_n);
    }

    template <int L>
    __device__ Target target(int k0, int n0) {
        constexpr Layer layer = layers[L];
        return {parameters + place_of<L>().weight + k0 * layer.outputs + n0, layer.outputs, layer.inputs - k0,
                layer.outputs - n0};
    }

    template <int L>
    __device__ void load_weights(int tile, const SharedTile& to) {
        const Target from = target<L>(tile);
        for (int i = 2 * threadIdx.x; i < layers[L].tile_k * layers[L].tile_n; i += 2 * THREADS) {
            const int row = i / layers[L].tile_n, col = i % layers[L].tile_n;
            const float first = from.has(row, col) ? __ldcg(from.at(row, col)) : 0.0f;
            const float second = from.has(row, col + 1) ? __ldcg(from.at(row, col + 1)) : 0.0f;
            if (plan.held) to.write_whole(row, col, first, second);
            else to.write<PARTS>(row, col, first, second);
        }
    }

    template <int L>
    __device__ SharedTile weights_of(int tile) {
        if (plan.held) return held_weights<L>();
        const SharedTile weights = tile_at<layers[L].tile_n>(plan.weights_at, layers[L].tile_k);
        load_weights<L>(tile, weights);
        return weights;
    }

    // Brings `rows` rows of a tile's inputs, from `first` on, into shared memory; there after cp_async_wait_all().
    template <int L>
    __device__ SharedTile inputs_of(int tile, int step, int first, int rows) {
        constexpr Layer layer = layers[L];
        if constexpr (L > 0) {
            return copy_inputs<L, layer.tile_k>(tile / layer.columns * layer.tile_k, first, rows);
        } else {
            if (plan.held) return held_images(step, first);
            const SharedTile inputs = tile_at<layer.tile_k>(plan.inputs_at, plan.chunk);
            copy_images(inputs, images_of(tile, step) + first * layer.tile_k, rows);
            return inputs;
        }
    }

    template <int L, int COLS>
    __device__ SharedTile copy_inputs(int k0, int first, int rows) {
        constexpr Layer below = layers[L - 1];
        const SharedTile inputs = tile_at<COLS>(plan.inputs_at, plan.chunk);
        take_tile<COLS>(inputs, passed_at(place_below<L>().output) + first * below.stride + k0, below.stride, rows);
        return inputs;
    }

    template <int L, int COLS>
    __device__ SharedTile copy_doutputs(int n0, int first, int rows) {
        constexpr Layer layer = layers[L];
        const SharedTile doutputs = tile_at<COLS>(plan.doutputs_at, plan.chunk);
        take_tile<COLS>(doutputs, passed_at(place_of<L>().doutput) + first * layer.stride + n0, layer.stride, rows);
        return doutputs;
    }

    // The store of a product that is the gradient of weights in memory.
    __device__ auto subtraction(const Target& weights) {
        const float rate = learning_rate;
        return [=](int row, int col, float a, float b) {
            if (weights.has(row, col)) atomicAdd(weights.at(row, col), -rate * a);  // no wait for a load
            if (weights.has(row, col + 1)) atomicAdd(weights.at(row, col + 1), -rate * b);
        };
    }

    // Does the task of that number, counted from layer L on; false if there is none.
    template <int L>
    __device__ bool update_task(int task) {
        constexpr int ACROSS = (layers[L].outputs + TASK - 1) / TASK;
        constexpr int DOWN = (layers[L].inputs + TASK - 1) / TASK;
        if (task < DOWN * ACROSS) {
            update_tail_tile<L>(task / ACROSS * TASK, task % ACROSS * TASK);
            return true;
        }
        if constexpr (L < LAST) return update_task<L + 1>(task - DOWN * ACROSS);
        return false;
    }

    template <int L>
    __device__ void update_tail_tile(int k0, int n0) {
        for (int first = 0; first < plan.rows; first += plan.chunk) {
            const int rows = min(plan.chunk, plan.rows - first);
            const AlongColumns inputs = {copy_inputs<L, TASK>(k0, first, rows)};
            const AlongColumns doutputs = {copy_doutputs<L, TASK>(n0, first, rows)};
            if (TAKEN_BY_COPIES) cp_async_wait_all();
            __syncthreads();
            // The tile has no more fragments than the block has warps.
            multiply_by_warps<PARTS, 1>(inputs, doutputs, TASK, TASK, rows, subtraction(target<L>(k0, n0)));
            if (k0 == 0) update_biases<L>(biases_of<L>(n0), doutputs.tile, n0, rows);
            __syncthreads();
        }
    }

    template <int L>
    __device__ float* biases_of(int n0) {
        return parameters + place_of<L>().bias + n0;
    }

    // Updates the biases from n0 on, at `bias`, by sums of doutputs over `rows` rows. A warp has eight biases; a lane adds up two of them
    // over every eighth row. The last warp begins, since it is the likeliest to have had no product.
    template <int L>
    __device__ void update_biases(float* bias, const SharedTile& doutputs, int n0, int rows) {
        constexpr int AT_ONCE = 8;
        const int warp = WARPS - 1 - threadIdx.x / WARP, lane = threadIdx.x % WARP;
#pragma unroll 1
        for (int first = AT_ONCE * warp; first < doutputs.cols; first += AT_ONCE * WARPS) {
            const int col = first + lane % 4 * 2;
            float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll 4
            for (int row = lane / 4; row < rows; row += 8) add(sum, doutputs.read<PARTS>(row, col));
#pragma unroll
            for (int flip = WARP / 2; flip >= 4; flip /= 2) {
                sum.x += __shfl_xor_sync(0xffffffffu, sum.x, flip);
                sum.y += __shfl_xor_sync(0xffffffffu, sum.y, flip);
            }
            if (lane >= 4) continue;
            if (n0 + col < layers[L].outputs) atomicAdd(bias + col, -learning_rate * sum.x);
            if (n0 + col + 1 < layers[L].outputs) atomicAdd(bias + col + 1, -learning_rate * sum.y);
        }
    }

    float* memory;
    const BFloat16* images;
    int steps;
    float* parameters;
    float* workspace;
    float learning_rate;
};

// The wide layers of persistent_grid: their weights are cut into tiles, tile_k inputs by tile_n outputs, which blocks own.
// Products leave one part of every sum for each tile along it; another phase adds the parts up.
#pragma once
#include "tile_product.cuh"

class WideLayers {
  public:
    __device__ WideLayers(const Plan& plan, const Layer* layers, float* memory, const float* images, float* parameters,
                          float* workspace, float learning_rate)
        : plan(plan), layers(layers), memory(memory), images(images), parameters(parameters), workspace(workspace),
          learning_rate(learning_rate) {}

    // Shared memory gets this block's tiles, zeros where there is no weight; the tiles go back when the epoch is over.
    __device__ void load_held() {
        for (int l = 0; plan.held && l < plan.wide; ++l) {
            const int tile = blockIdx.x;
            if (tile < tiles_of(layers[l])) load_weights(layers[l], tile, memory + layers[l].weight_at);
        }
        __syncthreads();
    }

    __device__ void store_held() {
        for (int l = 0; plan.held && l < plan.wide; ++l) {
            const Layer& layer = layers[l];
            if (blockIdx.x >= tiles_of(layer)) continue;
            const int k0 = blockIdx.x / layer.columns * layer.tile_k, n0 = blockIdx.x % layer.columns * layer.tile_n;
            const int rows = min(layer.tile_k, layer.inputs - k0), cols = min(layer.tile_n, layer.outputs - n0);
            float* weight = parameters + layer.weight + k0 * layer.outputs + n0;
            for (int i = threadIdx.x; i < rows * cols; i += THREADS) {
                const int row = i / cols, col = i % cols;
                weight[row * layer.outputs + col] = memory[layer.weight_at + row * layer.pitch + col];
            }
        }
    }

    // The images that this block's tile of the first layer takes in a step, if it is held; asynchronous.
    __device__ void fetch_images(int step) {
        if (!plan.held || step >= plan.steps || blockIdx.x >= tiles_of(layers[0])) return;
        const Layer& layer = layers[0];
        copy_tile(held_images(step), images_of(layer, blockIdx.x, step), layer.tile_k, plan.rows, layer.tile_k);
    }

    // partials[slice] (rows, columns * tile_n) = a slice of the inputs times the same slice of the weights. With EXACT,
    // tf32 holds every input.
    template <bool EXACT>
    __device__ void forward(int l, int step) {
        const Layer& layer = layers[l];
        for (int tile = blockIdx.x; tile < tiles_of(layer); tile += gridDim.x) {
            const float* weights = weights_of(layer, tile);
            for (int first = 0; first < plan.rows; first += plan.chunk) {
                const int rows = min(plan.chunk, plan.rows - first);
                const float* inputs = inputs_of(l, tile, step, first, rows);
                wait_for_copies();
                __syncthreads();
                const int width = layer.columns * layer.tile_n;
                float* part = workspace + plan.partials + (tile / layer.columns * plan.rows + first) * width +
                              tile % layer.columns * layer.tile_n;
                const auto store = [=](int row, int col, float a, float b) {
                    *reinterpret_cast<float2*>(part + row * width + col) = make_float2(a, b);
                };
                block_product<EXACT>(AlongRows{inputs, pitch_of(layer.tile_k)}, AlongColumns{weights, layer.pitch}, rows,
                                     layer.tile_n, layer.tile_k, store);
                __syncthreads();
            }
        }
    }

    // outputs = ReLU(the sum of the parts + bias).
    __device__ void add_up_forward(int l) {
        const Layer& layer = layers[l];
        const int width = layer.columns * layer.tile_n;
        for (int i = blockIdx.x * THREADS + threadIdx.x; i < plan.batch * layer.outputs; i += gridDim.x * THREADS) {
            const int row = i / layer.outputs, col = i % layer.outputs;
            const float bias = __ldcg(parameters + layer.bias + col);
            const float sum =
                sum_of(workspace + plan.partials + row * width + col, layer.slices, plan.rows * width) + bias;
            workspace[layer.output + row * layer.stride + col] = sum < 0.0f ? 0.0f : sum;
        }
    }

    // partials[column] (rows, slices * tile_k) = a column of doutputs times the same column of the weights, transposed.
    __device__ void backward(int l) {
        const Layer& layer = layers[l];
        for (int tile = blockIdx.x; tile < tiles_of(layer); tile += gridDim.x) {
            const float* weights = weights_of(layer, tile);
            for (int first = 0; first < plan.rows; first += plan.chunk) {
                const int rows = min(plan.chunk, plan.rows - first);
                copy_doutputs(layer, tile % layer.columns * layer.tile_n, layer.tile_n, first, rows);
                wait_for_copies();
                __syncthreads();
                const int width = layer.slices * layer.tile_k;
                float* part = workspace + plan.partials + (tile % layer.columns * plan.rows + first) * width +
                              tile / layer.columns * layer.tile_k;
                block_product<false>(AlongRows{memory + plan.doutputs_at, pitch_of(layer.tile_n)},
                                     AlongRows{weights, layer.pitch}, rows, layer.tile_k, layer.tile_n,
                                     [=](int row, int col, float a, float b) {
                                         *reinterpret_cast<float2*>(part + row * width + col) = make_float2(a, b);
                                     });
                __syncthreads();
            }
        }
    }

    // doutputs of the layer below = the sum of the parts where its ReLU was open.
    __device__ void add_up_backward(int l) {
        const Layer& layer = layers[l];
        const Layer& below = layers[l - 1];
        const int width = layer.slices * layer.tile_k;
        for (int i = blockIdx.x * THREADS + threadIdx.x; i < plan.batch * below.outputs; i += gridDim.x * THREADS) {
            const int row = i / below.outputs, col = i % below.outputs, at = row * below.stride + col;
            const float output = __ldcg(workspace + below.output + at);
            const float sum = sum_of(workspace + plan.partials + row * width + col, layer.columns, plan.rows * width);
            workspace[below.doutput + at] = output <= 0.0f ? 0.0f : sum;
        }
    }

    // This block's tiles of weights -= learning_rate * inputs^T doutputs. With `in_place`, doutputs are still in shared
    // memory from backward().
    template <bool EXACT>
    __device__ void update(int l, int step, bool in_place) {
        const Layer& layer = layers[l];
        for (int tile = blockIdx.x; tile < tiles_of(layer); tile += gridDim.x) {
            const int k0 = tile / layer.columns * layer.tile_k, n0 = tile % layer.columns * layer.tile_n;
            const Target weights = plan.held ? Target{memory + layer.weight_at, layer.pitch, layer.tile_k, layer.tile_n}
                                             : target(layer, k0, n0);
            for (int first = 0; first < plan.rows; first += plan.chunk) {
                const int rows = min(plan.chunk, plan.rows - first);
                if (!(plan.held && in_place)) copy_doutputs(layer, n0, layer.tile_n, first, rows);
                const AlongColumnsApart left = {inputs_of(l, tile, step, first, rows), pitch_of(layer.tile_k)};
                const AlongColumnsApart right = {memory + plan.doutputs_at, pitch_of(layer.tile_n)};
                wait_for_copies();
                __syncthreads();
                block_product<EXACT>(left, right, layer.tile_k, layer.tile_n, rows,
                                     subtraction(weights, layer.tile_k));
                __syncthreads();
            }
        }
    }

    // What no block owns: the tail's weights, in tiles of TASK by TASK, and all biases, TASK at a time. From the last
    // block down, since the first ones may have tiles of wide layers.
    __device__ void update_rest() {
        int before = 0;
        for (int l = 0; l < plan.layers; ++l) {
            const Layer& layer = layers[l];
            const int across = (layer.outputs + TASK - 1) / TASK;
            const int down = l < plan.wide ? 0 : (layer.inputs + TASK - 1) / TASK;
            const int own = gridDim.x - 1 - blockIdx.x;
            int task = (own + gridDim.x - before % gridDim.x) % gridDim.x;
            for (; task < (down + 1) * across; task += gridDim.x) {
                if (task < across) {
                    update_bias(layer, task * TASK);
                } else {
                    update_tail_tile(l, (task / across - 1) * TASK, task % across * TASK);
                }
            }
            before += (down + 1) * across;
        }
    }

  private:
    static constexpr int TASK = 32;

    struct Target {  // weights (rows, cols), so many numbers from row to row
        float* memory;
        int stride, rows, cols;
    };

    __device__ static int tiles_of(const Layer& layer) { return layer.slices * layer.columns; }

    __device__ float* held_images(int step) {
        return memory + plan.images_at + step % 2 * plan.rows * pitch_of(layers[0].tile_k);
    }

    __device__ const float* images_of(const Layer& layer, int tile, int step) {
        return images + (step * layer.slices + tile / layer.columns) * plan.rows * layer.tile_k;
    }

    __device__ Target target(const Layer& layer, int k0, int n0) {
        return {parameters + layer.weight + k0 * layer.outputs + n0, layer.outputs, layer.inputs - k0,
                layer.outputs - n0};
    }

    __device__ void load_weights(const Layer& layer, int tile, float* to) {
        const Target from = target(layer, tile / layer.columns * layer.tile_k, tile % layer.columns * layer.tile_n);
        for (int i = threadIdx.x; i < layer.tile_k * layer.tile_n; i += THREADS) {
            const int row = i / layer.tile_n, col = i % layer.tile_n;
            const bool is_there = row < from.rows && col < from.cols;
            to[row * layer.pitch + col] = is_there ? __ldcg(from.memory + row * from.stride + col) : 0.0f;
        }
    }

    __device__ const float* weights_of(const Layer& layer, int tile) {
        if (plan.held) return memory + layer.weight_at;
        load_weights(layer, tile, memory + plan.weights_at);
        return memory + plan.weights_at;
    }

    // Where `rows` rows of a tile's inputs from `first` on are in shared memory, once copies are waited for.
    __device__ const float* inputs_of(int l, int tile, int step, int first, int rows) {
        const Layer& layer = layers[l];
        if (l > 0) {
            copy_inputs(l, tile / layer.columns * layer.tile_k, layer.tile_k, first, rows);
        } else if (plan.held) {
            return held_images(step);
        } else {
            copy_tile(memory + plan.inputs_at, images_of(layer, tile, step) + first * layer.tile_k, layer.tile_k, rows,
                      layer.tile_k);
        }
        return memory + plan.inputs_at;
    }

    __device__ void copy_inputs(int l, int k0, int cols, int first, int rows) {
        const Layer& below = layers[l - 1];
        copy_tile(memory + plan.inputs_at, workspace + below.output + first * below.stride + k0, below.stride, rows, cols);
    }

    __device__ void copy_doutputs(const Layer& layer, int n0, int cols, int first, int rows) {
        copy_tile(memory + plan.doutputs_at, workspace + layer.doutput + first * layer.stride + n0, layer.stride, rows,
                  cols);
    }

    // What a product does with the gradient of weights of which so many rows are its own.
    __device__ auto subtraction(Target weights, int own_rows) {
        const float rate = learning_rate;
        const int rows = min(own_rows, weights.rows);
        return [=](int row, int col, float a, float b) {
            float* weight = weights.memory + row * weights.stride + col;
            if (row < rows && col < weights.cols) weight[0] -= rate * a;
            if (row < rows && col + 1 < weights.cols) weight[1] -= rate * b;
        };
    }

    __device__ void update_tail_tile(int l, int k0, int n0) {
        for (int first = 0; first < plan.rows; first += plan.chunk) {
            const int rows = min(plan.chunk, plan.rows - first);
            copy_inputs(l, k0, TASK, first, rows);
            copy_doutputs(layers[l], n0, TASK, first, rows);
            wait_for_copies();
            __syncthreads();
            // So small a tile has no more fragments than there are warps.
            multiply_by_warps<false, 1>(AlongColumnsApart{memory + plan.inputs_at, pitch_of(TASK)},
                                        AlongColumnsApart{memory + plan.doutputs_at, pitch_of(TASK)}, TASK, TASK, rows,
                                        subtraction(target(layers[l], k0, n0), TASK));
            __syncthreads();
        }
    }

    // Lane i of every warp adds up output n0 + i, each warp the rows of its own.
    __device__ void update_bias(const Layer& layer, int n0) {
        const int warp = threadIdx.x / WARP, col = n0 + threadIdx.x % WARP;
        float* sums = memory + plan.inputs_at;
        const int rows = warp < plan.batch ? (plan.batch - 1 - warp) / WARPS + 1 : 0;
        sums[threadIdx.x] =
            sum_of(workspace + layer.doutput + warp * layer.stride + col, rows, WARPS * layer.stride);
        __syncthreads();
        if (warp == 0 && col < layer.outputs) {
            float sum = 0.0f;
            for (int i = 0; i < WARPS; ++i) sum += sums[i * WARP + threadIdx.x];
            parameters[layer.bias + col] -= learning_rate * sum;
        }
        __syncthreads();
    }

    const Plan& plan;
    const Layer* layers;
    float* memory;
    const float* images;
    float* parameters;
    float* workspace;
    float learning_rate;
};

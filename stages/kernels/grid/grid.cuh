// Shared by the phases of persistent_grid: the plan, and the barrier of all blocks.
#pragma once

constexpr int WARP = 32;
constexpr int THREADS = 512;
constexpr int WARPS = THREADS / WARP;

// stages/persistent/grid_plan.py writes both structs, in this order, and the kernel is compiled for them: phases are so short
// that reading sizes, dividing by them and fetching general code would take most of their time. Fields `.._at` count floats
// from the start of shared memory; other places count from the start of the tensor named.
struct Plan {
    int wide;  // number of wide layers; the others are the tail
    int batch;
    int rows;        // the batch, padded with zeros to a multiple of 16
    int chunk;       // rows in shared memory at once
    int held;        // 1: a block has at most one tile of a wide layer, and keeps it for the epoch; 0: it keeps none
    int partials;    // in workspace
    int images_at;   // the tile's slices of two batches, if held
    int inputs_at, doutputs_at, weights_at;  // a tile of each; the tail's memory also begins at inputs_at
    int vectors_at, scratch_at;              // the tail's: a row of every layer, then THREADS sums
    int helpers;  // the last blocks: they update the tail, which no block owns
    int buffers;  // steps whose images are in shared memory at once, if held: 1 or 2
    // Of grid_pairs alone, else 0.
    int blocks;                // of the launch
    int dinputs_at, stash_at;  // gradients of a pair's units; the tail's sums, of all its rows
};

struct Layer {
    int inputs, outputs;
    int weight, bias;    // in parameters
    int tile_k, tile_n;  // inputs and outputs of a tile: multiples of 16; of 8 for the first layer's outputs
    int slices, columns; // tiles along the inputs, and along the outputs
    int output, doutput; // in workspace, in floats: Passed (rows, stride), zeros beyond the outputs
    int stride;
    int weight_at;  // a wide layer's tile or a tail's matrix, if in shared memory; else negative
    int bias_at;    // the tile's biases, if the block completes its outputs by itself; else negative
    int kept_at;    // its inputs, if the block computes them by itself; else negative
};

#ifndef PLAN  // 784-256-10, batches of 128, 132 blocks
#define PLAN 1, 128, 128, 128, 1, 73728, 2688, 17024, 26240, 35456, 17024, 17556, 20, 2, 0, 0, 0
#define LAYERS \
    784, 256, 0, 203264, 112, 16, 7, 16, 0, 32768, 256, 0, -1, -1, 256, 10, 200704, 203520, 0, 0, 0, 0, 65536, 69632, 32, 18080, -1, -1
#endif
constexpr Plan plan = {PLAN};
constexpr Layer layers[] = {LAYERS};
constexpr int LAYER_COUNT = sizeof layers / sizeof(Layer), LAST = LAYER_COUNT - 1;

// The smallest power of two that is at least `count`, or `most`, itself a power of two.
__device__ constexpr int power_from(int count, int most) {
    int power = 1;
    while (power < count && power < most) power *= 2;
    return power;
}

template <int L>
constexpr int TILES_OF = layers[L].slices * layers[L].columns;

// Whether `to` lies `count` distances behind `from`, where the distance is that to `next`.
__device__ constexpr bool is_next(int from, int next, int to, int count) { return to - from == count * (next - from); }

// How many wide layers from l on have the same sizes at the same distances, as have the layers below them; 1 for l = 0. The
// kernel takes these layers in a loop, so that their code exists once.
__device__ constexpr int alike_from(int l) {
    int count = 1;
    for (; l > 0 && l + count < plan.wide; ++count) {
        const Layer &a = layers[l], &next = layers[l + 1], &b = layers[l + count], &below = layers[l - 1];
        const bool same_sizes = b.inputs == a.inputs && b.outputs == a.outputs && b.tile_k == a.tile_k &&
                                b.tile_n == a.tile_n && b.stride == a.stride && below.stride == a.stride;
        const bool as_far = is_next(a.weight, next.weight, b.weight, count) && is_next(a.bias, next.bias, b.bias, count) &&
                            is_next(a.output, next.output, b.output, count) &&
                            is_next(a.doutput, next.doutput, b.doutput, count) &&
                            is_next(a.weight_at, next.weight_at, b.weight_at, count) &&
                            is_next(below.output, a.output, b.output, count + 1) &&
                            is_next(below.doutput, a.doutput, b.doutput, count + 1);
        if (!same_sizes || !as_far) break;
    }
    return count;
}

template <int L>
constexpr int ALIKE = alike_from(L);

// The place of a 16-bit number in a tile with this pitch. Rows are whole runs of 16 numbers, 32 bytes, the size of a sector
// from memory. An odd number of runs, with the halves of each run exchanged in every second group of four rows, makes a
// column of eight rows by eight numbers use all banks.
template <int COLS>
constexpr int PITCH_OF = ((COLS + 15) / 16 | 1) * 16;
__device__ inline int place_in_tile(int row, int col, int pitch) { return row * pitch + (col ^ (row & 4) << 1); }

// The barrier of all blocks: wait() returns once every block has called arrive(), and writes before arrive() are visible after
// wait(). One counter that only grows, 0 before the launch.
class GridBarrier {
  public:
    __device__ explicit GridBarrier(unsigned* arrived) : arrived(arrived) {}

    __device__ void arrive() {
        __syncthreads();
        complete += gridDim.x;
        if (gridDim.x > 1 && threadIdx.x == 0) add_one(arrived);
    }

    // A whole warp polls: in trials up to 2 % of a step faster than one thread.
    __device__ void wait() {
        if (gridDim.x > 1 && threadIdx.x < WARP) {
            while (static_cast<int>(read(arrived) - complete) < 0) continue;
        }
        __syncthreads();
    }

    __device__ void pass() {
        arrive();
        wait();
    }

  private:
    __device__ static void add_one(unsigned* count) {
#if __CUDA_ARCH__ >= 700
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(count) : "memory");
#else
        atomicAdd(count, 1u);
#endif
    }

    __device__ static unsigned read(unsigned* count) {
#if __CUDA_ARCH__ >= 700
        unsigned seen;
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(count) : "memory");
        return seen;
#else
        __nanosleep(0);  // on the CPU, other threads run only when this one yields
        return *count;
#endif
    }

    unsigned* arrived;
    unsigned complete = 0;
};

__device__ inline void add(float& sum, float number) { sum += number; }
__device__ inline void add(float2& sum, float2 number) {
    sum.x += number.x;
    sum.y += number.y;
}

// The sum of COUNT numbers or pairs, `apart` from each other, in order. Up to 16 loads are in flight at once.
template <int COUNT, class Number>
__device__ inline Number sum_of(const Number* first, int apart) {
    constexpr int AT_ONCE = COUNT < 16 ? COUNT : 16;
    Number sum = {};
#pragma unroll 1
    for (int begin = 0; begin < COUNT; begin += AT_ONCE) {
        Number numbers[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            numbers[i] = begin + i < COUNT ? __ldcg(first + (begin + i) * apart) : Number{};
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) add(sum, numbers[i]);
    }
    return sum;
}

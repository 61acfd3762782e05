// What the phases of persistent_grid share: the plan, the barrier of all blocks, and copies into shared memory.
#pragma once
#include "async_copies.cuh"

constexpr int WARP = 32;
constexpr int THREADS = 512;
constexpr int WARPS = THREADS / WARP;

// stages/grid_plan.py writes both of these, in this order. What begins `..._at` is counted in floats from the start of
// shared memory; other places are counted from the start of the tensor that is named.
struct Plan {
    int layers, wide;  // layers from `wide` on are the tail: blocks take rows of the batch through all of them
    int steps, batch;
    int rows;        // of the batch and of zeros after it: a multiple of 16
    int chunk;       // rows that are in shared memory at once
    int held;        // 1: each block has one tile of a wide layer at most, and keeps it for the epoch; 0: none is kept
    int partials;    // in workspace
    int images_at;   // two batches' tiles of images, if held
    int inputs_at, doutputs_at, weights_at;  // a tile of each; the tail's memory begins at inputs_at, too
    int vectors_at, scratch_at;              // the tail's: a row of every layer, then THREADS sums
};

struct Layer {
    int inputs, outputs;
    int weight, bias;    // in parameters
    int tile_k, tile_n;  // inputs and outputs of a tile, multiples of 8
    int slices, columns; // tiles along the inputs, and along the outputs
    int output, doutput; // in workspace: (rows, stride), zeros where there is no output
    int stride;
    int weight_at, pitch;  // a wide layer's tile or the tail's whole matrix, if kept in shared memory; else negative
};

constexpr int PLAN_INTS = sizeof(Plan) / sizeof(int);
constexpr int LAYER_INTS = sizeof(Layer) / sizeof(int);

// Floats between the rows of a tile of so many columns: no two of the lanes that read a column of fragments from it
// (eight rows apart by one, or four apart by one and eight columns) then use the same bank.
__device__ inline int pitch_of(int cols) { return (cols + 15) / 16 * 16 + 8; }

// Every block has come to an arrive() before any returns from the wait() after it; what was written before the one is
// read after the other. One counter that only grows; it has to be 0 before the launch.
class GridBarrier {
  public:
    __device__ explicit GridBarrier(unsigned* arrived) : arrived(arrived) {}

    __device__ void arrive() {
        __syncthreads();
        complete += gridDim.x;
        if (gridDim.x > 1 && threadIdx.x == 0) add_one(arrived);
    }

    __device__ void wait() {
        if (gridDim.x > 1 && threadIdx.x == 0) {
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
        __nanosleep(0);  // on a CPU, others run only when this one lets them
        return *count;
#endif
    }

    unsigned* arrived;
    unsigned complete = 0;
};

// A tile (rows, cols) with pitch_of(cols), cols a multiple of 4; by all threads.
__device__ inline void copy_tile(float* to, const float* from, int stride, int rows, int cols) {
    const int quads = cols / 4, pitch = pitch_of(cols);
    const int more_rows = THREADS / quads, more_quads = THREADS % quads;
    int row = threadIdx.x / quads, quad = threadIdx.x % quads;  // on from here without a division, which takes long
    while (row < rows) {
        copy_four(to + row * pitch + 4 * quad, from + row * stride + 4 * quad);
        row += more_rows;
        quad += more_quads;
        if (quad >= quads) {
            quad -= quads;
            ++row;
        }
    }
}

__device__ inline void add(float& sum, float number) { sum += number; }
__device__ inline void add(float2& sum, float2 number) {
    sum.x += number.x;
    sum.y += number.y;
}

// The sum of so many numbers, or pairs of them, `apart` from each other, in order. All of up to 16 are under way at once:
// a loop unrolled by the compiler waits for each of those that are left over.
template <class Number>
__device__ inline Number sum_of(const Number* first, int count, int apart) {
    constexpr int AT_ONCE = 16;
    Number sum = {};
    for (int begin = 0; begin < count; begin += AT_ONCE) {
        Number numbers[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            numbers[i] = begin + i < count ? __ldcg(first + (begin + i) * apart) : Number{};
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) add(sum, numbers[i]);
    }
    return sum;
}

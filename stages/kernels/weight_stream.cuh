// A layer's weights on their way through a block: each warp takes 16 of what is added up at once, and after them those that
// all other warps have left. What it needs next of the weights and of the other factor is copied into its own piece of
// shared memory some steps ahead, which is what memory takes to deliver at full rate; nobody else waits for it.
//
// As in output_tiles.cuh, g = lane / 4 and t = lane % 4, lanes hold fragments, and any order of what is added up will do.
#pragma once
#include "async_copies.cuh"

constexpr int OWN = 32;          // inputs or outputs of a layer that a block, or a cluster of them, takes
constexpr int CHUNK = 32;        // rows of a batch for which a lane has fragments at once
constexpr int PITCH = STEP + 8;  // floats between rows: no bank twice when 4 rows are read at once

// The layer's inputs are (batch, fan_in), its weights (fan_in, fan_out).
struct LayerSizes {
    int batch, fan_in, fan_out;
};

// What a warp needs for a step, as in stages/streamed_gemm.py, which counts the bytes.
template <int CHUNKS>
struct Stage {
    static constexpr int COUNT = CHUNKS == 1 ? 4 : 3;
    float rows[CHUNKS * CHUNK * PITCH];  // STEP columns of the other factor
    float4 weights[4][WARP];             // of each lane

    // Columns from `from` on of the other factor, so many rows with so many numbers from one to the next.
    __device__ void copy_rows(const float* factor, int count, int stride, int from) {
        const int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
#pragma unroll
        for (int i = 0; i < 4 * CHUNKS; ++i) {
            const int row = 8 * i + g;
            const bool is_there = row < count;
            copy_four(rows + row * PITCH + 4 * t, factor + (is_there ? row * stride + from + 4 * t : 0), is_there);
        }
    }

    __device__ void read_rows(float (&to)[4][4], int chunk) const {
        const int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
#pragma unroll
        for (int i = 0; i < 4; ++i) copy_run<4>(to[i], rows + (chunk * CHUNK + 8 * i + g) * PITCH + 4 * t);
    }
};

// Steps of a warp through `length` of what is added up. copy(stage, begin) asks for what a step needs.
template <int CHUNKS, class Copy>
class Stream {
  public:
    __device__ Stream(Stage<CHUNKS>* ring, int share, int shares, int length, Copy copy)
        : ring(ring), begin(share * STEP), apart(shares * STEP), length(length), copy(copy) {
        for (int i = 0; i < AHEAD_STEPS; ++i) fetch(ring[i], begin + i * apart);
    }

    // take(stage, begin) for each step.
    template <class Take>
    __device__ void run(Take take) {
        for (int stage = 0; begin < length; begin += apart) {
            wait_for_older_copies<AHEAD_STEPS - 1>();
            __syncwarp();  // and no lane reads any more what the next copies go to
            fetch(ring[stage == 0 ? AHEAD_STEPS : stage - 1], begin + AHEAD_STEPS * apart);
            take(ring[stage], begin);
            stage = stage == AHEAD_STEPS ? 0 : stage + 1;
        }
        wait_for_copies();
    }

  private:
    static constexpr int AHEAD_STEPS = Stage<CHUNKS>::COUNT - 1;

    __device__ void fetch(Stage<CHUNKS>& stage, int from) const {
        if (from < length) copy(stage, from);
        end_group_of_copies();
    }

    Stage<CHUNKS>* ring;
    int begin;
    const int apart, length;
    const Copy copy;
};

// A layer's weights, streamed through a ring in shared memory: pieces of some rows by WIDTH columns, so that 256 bytes of a row
// are neighbours in memory. All threads start the copies of a piece and of its other factor a few pieces ahead, then multiply
// the oldest piece together. They meet once a piece; only there do they wait for memory.
//
// L2 keeps some of the weights from pass to pass; these are neither read from nor written to memory. Of every 16 patches
// along a diagonal `kept` stay, a number that the host chooses by L2's size. The others are first to be evicted: otherwise
// each would push out the next before its turn.
#pragma once
#include "device/async_copies.cuh"
#include "device/l2_lines.cuh"

#ifndef MOST_ROWS
#define MOST_ROWS 32  // of a batch; the rings are compiled for 64, too
#endif

constexpr int OWN = 32;             // inputs or outputs of a warp
constexpr int ROWS_AT_ONCE = 32;    // of a batch in a lane's factors: more take more registers, and leave room for fewer warps
static_assert(MOST_ROWS % ROWS_AT_ONCE == 0, "a batch is multiplied in whole parts");
constexpr int WIDTH = 64;           // columns of a piece
constexpr int PITCH = WIDTH + 8;    // floats between its rows: no bank twice for pairs of 4 rows, or quads of rows 2 apart
constexpr int WIDER = WIDTH + 16;   // the same for quads of neighbouring rows
constexpr int PATCH = 128;          // rows and columns of weights that L2 keeps or evicts together
constexpr int PATCHES = 16;         // along a diagonal, after which the pattern repeats

// The layer's inputs are (batch, fan_in), its weights (fan_in, fan_out).
struct LayerSizes {
    int batch, fan_in, fan_out;
};

// Copies COUNT rows of COLS columns, `stride` floats apart at `from` and PITCH_TO apart at `to`, by THREADS threads. Zeros
// replace rows and columns that do not exist. Sizes known at compile time cost no instruction.
template <int COUNT, int COLS, int PITCH_TO, int THREADS, class... Policy>
__device__ inline void copy_rows(float* to, const float* from, int stride, int rows_there, int cols_there,
                                 Policy... policy) {
    constexpr int QUADS = COLS / 4, APART = THREADS / QUADS;
    static_assert(THREADS % QUADS == 0 && COUNT % APART == 0, "each thread copies as many");
    const int col = threadIdx.x % QUADS * 4, first = threadIdx.x / QUADS;
    const int left = (col < cols_there ? rows_there : 0) - first;
    const long long further = static_cast<long long>(APART) * stride;
    to += first * PITCH_TO + col;
    from += first * stride + col;
#pragma unroll
    for (int row = 0; row < COUNT; row += APART, from += further) {
        cp_async_16(to + row * PITCH_TO, from, row < left, policy...);
    }
}

// The L2 policy for a piece of weights that begins there: its patch stays, or is first to be evicted.
__device__ inline unsigned long long policy_of_piece(unsigned row, unsigned col, unsigned kept) {
    return createpolicy_fractional((row / PATCH + col / PATCH) % PATCHES < kept);
}

// A ring of COUNT pieces, `floats` each: from `begin` on, each `apart` after the one before, up to `length`. copy(piece, begin)
// starts a piece's copy; the constructor starts the first COUNT - 1.
template <int COUNT, class Copy>
class Stream {
  public:
    __device__ Stream(float* ring, int floats, int begin, int apart, int length, Copy copy)
        : ring(ring), floats(floats), begin(begin), apart(apart), length(length), copy(copy) {
        for (int i = 0; i < COUNT - 1; ++i) fetch(i, begin + i * apart);
    }

    // Calls take(piece, begin) for each piece, by all threads.
    template <class Take>
    __device__ void run(Take take) {
        for (int place = 0; begin < length; begin += apart) {
            cp_async_wait_group<COUNT - 2>();
            __syncthreads();  // all copies of this piece are there, and the slot that is filled next has been read
            fetch(place == 0 ? COUNT - 1 : place - 1, begin + (COUNT - 1) * apart);
            take(ring + place * floats, begin);
            place = place == COUNT - 1 ? 0 : place + 1;
        }
        cp_async_wait_all();
        __syncthreads();  // all copies and reads are done
    }

  private:
    __device__ void fetch(int place, int from) const {
        if (from < length) copy(ring + place * floats, from);
        cp_async_commit_group();
    }

    float* ring;
    const int floats;
    int begin;
    const int apart, length;
    const Copy copy;
};

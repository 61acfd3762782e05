// A layer's weights on their way through a block: pieces of some rows by WIDTH columns, so that 256 bytes of a row lie
// together in memory. All threads ask for a piece and for what it is multiplied by, some pieces before all of them
// multiply it; no thread waits for memory but where the block meets, once a piece.
//
// Include async_copies.cuh before this: the tests have a stand-in.
//
// Of all weights L2 keeps some from pass to pass, which are then neither read nor written where memory is: of every 16
// patches along a diagonal as many as the host says, for which there is room. The others leave first: else each would be
// gone before its next turn.
#pragma once
#include "device/l2_lines.cuh"

constexpr int OWN = 32;             // inputs or outputs of a layer, those of a warp
constexpr int MOST_ROWS = 32;       // of a batch: more would take registers, and so warps from the others
constexpr int WIDTH = 64;           // columns of a piece
constexpr int PITCH = WIDTH + 8;    // floats between its rows: no bank twice for pairs of 4 rows, or quads of rows 2 apart
constexpr int WIDER = WIDTH + 16;   // the same for quads of neighbouring rows
constexpr int PATCH = 128;          // rows and columns of weights that L2 keeps or lets go: of two blocks of a cluster
constexpr int PATCHES = 16;         // along a diagonal, after which the same ones stay again

// The layer's inputs are (batch, fan_in), its weights (fan_in, fan_out).
struct LayerSizes {
    int batch, fan_in, fan_out;
};

// COUNT rows of COLS columns, `stride` floats after each other at `from` and PITCH_TO at `to`, by THREADS threads; all that
// is known when this is compiled costs no instruction. Where there are fewer, zeros take their place.
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
        copy_four(to + row * PITCH_TO, from, row < left, policy...);
    }
}

// For a piece of weights that begins there: the patch that it is in stays, or is one of those that leave.
__device__ inline unsigned long long policy_of_piece(unsigned row, unsigned col, unsigned kept) {
    return l2_policy((row / PATCH + col / PATCH) % PATCHES < kept);
}

// Pieces of so many floats through a ring of COUNT: from `begin` on, the next `apart` further, up to `length`. The first
// ones are asked for at once; copy(piece, begin) does it.
template <int COUNT, class Copy>
class Stream {
  public:
    __device__ Stream(float* ring, int floats, int begin, int apart, int length, Copy copy)
        : ring(ring), floats(floats), begin(begin), apart(apart), length(length), copy(copy) {
        for (int i = 0; i < COUNT - 1; ++i) fetch(i, begin + i * apart);
    }

    // take(piece, begin) for each, by all threads.
    template <class Take>
    __device__ void run(Take take) {
        for (int place = 0; begin < length; begin += apart) {
            wait_for_older_copies<COUNT - 2>();
            __syncthreads();  // everyone's copies are there, and nobody reads any more what the next go to
            fetch(place == 0 ? COUNT - 1 : place - 1, begin + (COUNT - 1) * apart);
            take(ring + place * floats, begin);
            place = place == COUNT - 1 ? 0 : place + 1;
        }
        wait_for_copies();
        __syncthreads();  // nobody copies or reads any more
    }

  private:
    __device__ void fetch(int place, int from) const {
        if (from < length) copy(ring + place * floats, from);
        end_group_of_copies();
    }

    float* ring;
    const int floats;
    int begin;
    const int apart, length;
    const Copy copy;
};

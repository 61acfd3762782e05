// The gradients of a large batch's step, added up over two GPUs before update_all.

#include "devices/rounds.cuh"

#ifndef FACTOR_HALVES
#define FACTOR_HALVES 2
#endif

constexpr int RANKS = 2, THREADS = 512;
constexpr int UNITS = 16;                // of shares, that a block adds up
constexpr int GROUPS = THREADS / UNITS;  // of shares

__device__ inline void add(float4& sum, float4 more) {
    sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
}

// A unit of four numbers, added up over both ranks in their order: each has the same bits.
struct Exchange {
    unsigned *theirs;
    const unsigned* mailbox;
    float part;
    int units, rank;

    __device__ float4 operator()(const Round& round, int unit, float4 own) const {
        const unsigned tag = round.tag();
        const uint4 message = make_uint4(tagged(part * own.x, tag), tagged(part * own.y, tag), tagged(part * own.z, tag),
                                         tagged(part * own.w, tag));
        const long long begin = static_cast<long long>(round.place()) * RANKS * units + unit;
        post(reinterpret_cast<uint4*>(theirs) + begin + static_cast<long long>(rank) * units, message);
        float4 sum = {};
        for (int other = 0; other < RANKS; ++other) {
            uint4 seen[1] = {message};
            const long long at = begin + static_cast<long long>(other) * units;
            if (other != rank) receive(seen, reinterpret_cast<const uint4*>(mailbox) + at, 0, 1, tag);
            add(sum, make_float4(untagged(seen[0].x), untagged(seen[0].y), untagged(seen[0].z), untagged(seen[0].w)));
        }
        return sum;
    }
};

// peer_sums: sums over all parts of a batch on both ranks of part * gradient, in the place of the first part; low halves become
// zero. If with_totals, block_totals of all shares come to the place of the first one.
//   gradients     (splits, features, FACTOR_HALVES * width)  f32  in, out: halves beside each other
//   partials      (shares, share)                            f32  in, out
//   block_totals  (shares, 2)                                f64  in, out
//   theirs        (2, 2, 4 * units)                          u32  in, out: the other rank's mailbox, by place and sender
//   mailbox       (2, 2, 4 * units)                          u32  in: this rank's
//   rounds        (blocks,)                                  u32  in, out: that each block has ended
//   part          of the batch's images that this rank has; splits, features, width, shares, share, units, rank, with_totals
// Kind:   update.
// Launch: 1-D, 512 threads a block; a block for each 16 units of a share, then one for each 512 of features * width / 4; units is
//   both together; compiled with FACTOR_HALVES.
// Needs:  sm_70; width a multiple of 4; units <= 2^28.
// Order:  each sum in a fixed order; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS) peer_sums(float* gradients, float* partials, double* block_totals,
                unsigned* theirs, const unsigned* mailbox, unsigned* rounds, float part, int splits, int features, int width,
                int shares, int share, int units, int rank, int with_totals) {
    __shared__ float4 sums[GROUPS][UNITS];
    const Round round(rounds);
    const Exchange exchange = {theirs, mailbox, part, units, rank};
    const int of_share = (share + 3) / 4, blocks_of_shares = (of_share + UNITS - 1) / UNITS;
    if (blockIdx.x < blocks_of_shares) {
        const int group = threadIdx.x / UNITS, own = threadIdx.x % UNITS, unit = blockIdx.x * UNITS + own;
        float mine[4] = {};
#pragma unroll 4
        for (int other = group; other < shares; other += GROUPS) {
            for (int i = 0; i < 4; ++i) {
                if (4 * unit + i < share) mine[i] += partials[static_cast<long long>(other) * share + 4 * unit + i];
            }
        }
        sums[group][own] = make_float4(mine[0], mine[1], mine[2], mine[3]);
        __syncthreads();
        if (group == 0 && unit < of_share) {
            float4 sum = sums[0][own];
            for (int other = 1; other < GROUPS; ++other) add(sum, sums[other][own]);
            sum = exchange(round, unit, sum);
            const float all[4] = {sum.x, sum.y, sum.z, sum.w};
            for (int i = 0; i < 4; ++i) {
                if (4 * unit + i < share) partials[4 * unit + i] = all[i];
            }
        }
        if (with_totals && blockIdx.x == 0 && group == 1 && own < 2) {
            double total = 0.0;
            for (int other = 0; other < shares; ++other) total += block_totals[2 * other + own];
            block_totals[own] = total;
        }
    } else {
        const int number = (blockIdx.x - blocks_of_shares) * THREADS + threadIdx.x, columns = width / 4;
        if (number < features * columns) {
            const int wide = FACTOR_HALVES * columns;
            float4* const first = reinterpret_cast<float4*>(gradients) + number / columns * wide + number % columns;
            float4 sum = {};
#pragma unroll 4
            for (int split = 0; split < splits; ++split) {
                for (int half = 0; half < FACTOR_HALVES; ++half) {
                    add(sum, first[static_cast<long long>(split) * features * wide + half * columns]);
                }
            }
            first[0] = exchange(round, of_share + number, sum);
            for (int half = 1; half < FACTOR_HALVES; ++half) first[half * columns] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
    }
    round.end(rounds);
}

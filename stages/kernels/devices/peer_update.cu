// The sum of several GPUs' gradients and the update by it: no library, and no launch between them.

#include "devices/rounds.cuh"

#ifndef RANKS
#define RANKS 2
#endif

constexpr int MOST = 4;  // units of four messages that a thread awaits at once
constexpr int THREADS = 512;

__device__ inline uint4 message(float4 gradient, float share, unsigned tag) {
    return make_uint4(tagged(share * gradient.x, tag), tagged(share * gradient.y, tag), tagged(share * gradient.z, tag),
                      tagged(share * gradient.w, tag));
}

// The units of a rank in a mailbox, in the round's place.
__device__ inline long long begin_of(const Round& round, int rank, int units) {
    return (static_cast<long long>(round.place()) * RANKS + rank) * units;
}

// Sends the units from `begin` to `end`.
__device__ inline void send(const Round& round, const float* gradient, unsigned* theirs, float share, int begin, int end,
                            int units, int rank) {
    uint4* const to = reinterpret_cast<uint4*>(theirs) + begin_of(round, rank, units);
    for (int unit = begin + blockIdx.x * THREADS + threadIdx.x; unit < end; unit += gridDim.x * THREADS) {
        post(to + unit, message(reinterpret_cast<const float4*>(gradient)[unit], share, round.tag()));
    }
}

// peer_send: units from `begin` to `end` of share * gradient as messages to another rank.
//   gradient  (4 * units,)            f32  in: means over this rank's images
//   theirs    (2, RANKS, 4 * units)   u32  in, out: the other's mailbox, messages by the round's place and the sender
//   rounds    (blocks,)               u32  in, out: that each block has sent
//   share     of the batch's images that this rank has; begin, end, units, rank
// Kind:   update.
// Launch: 1-D, 512 threads a block, any number of blocks, the same in every round; compiled with RANKS.
// Needs:  sm_70; units <= 2^28.
// Order:  elementwise; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS) peer_send(const float* gradient, unsigned* theirs, unsigned* rounds,
                float share, int begin, int end, int units, int rank) {
    const Round round(rounds);
    send(round, gradient, theirs, share, begin, end, units, rank);
    round.end(rounds);
}

// peer_update: param -= learning_rate * the sum over all ranks of share * gradient, rounded to messages: the same bits on
// every rank. It sends this rank's messages first if `sends`; else peer_send has.
//   param     (4 * units,)            f32  in, out
//   gradient  (4 * units,)            f32  in: means over this rank's images
//   theirs    (2, RANKS, 4 * units)   u32  in, out: another rank's mailbox, messages by the round's place and the sender
//   mailbox   (2, RANKS, 4 * units)   u32  in: this rank's
//   rounds    (blocks,)               u32  in, out: that each block has ended
//   share     of the batch's images that this rank has; learning_rate, units, rank, sends
// Kind:   update.
// Launch: 1-D, 512 threads a block, any number of blocks, the same in every round; compiled with RANKS.
// Needs:  sm_70; units <= 2^28.
// Order:  each sum in the order of ranks; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS) peer_update(float* param, const float* gradient, unsigned* theirs,
                const unsigned* mailbox, unsigned* rounds, float share, float learning_rate, int units, int rank, int sends) {
    const Round round(rounds);
    if (sends) send(round, gradient, theirs, share, 0, units, units, rank);
    const int step = gridDim.x * THREADS;
    for (int first = blockIdx.x * THREADS + threadIdx.x; first < units; first += MOST * step) {
        const int count = min(MOST, (units - first + step - 1) / step);
        float4 sums[MOST] = {};
        for (int other = 0; other < RANKS; ++other) {
            uint4 seen[MOST];
            if (other != rank) {
                const uint4* const from = reinterpret_cast<const uint4*>(mailbox) + begin_of(round, other, units);
                receive(seen, from + first, step, count, round.tag());
            }
#pragma unroll
            for (int i = 0; i < MOST; ++i) {
                if (i >= count) break;
                if (other == rank) {
                    seen[i] = message(reinterpret_cast<const float4*>(gradient)[first + i * step], share, round.tag());
                }
                sums[i].x += untagged(seen[i].x), sums[i].y += untagged(seen[i].y);
                sums[i].z += untagged(seen[i].z), sums[i].w += untagged(seen[i].w);
            }
        }
#pragma unroll
        for (int i = 0; i < MOST; ++i) {
            if (i >= count) break;
            float4& moved = reinterpret_cast<float4*>(param)[first + i * step];
            moved.x -= learning_rate * sums[i].x, moved.y -= learning_rate * sums[i].y;
            moved.z -= learning_rate * sums[i].z, moved.w -= learning_rate * sums[i].w;
        }
    }
    round.end(rounds);
}

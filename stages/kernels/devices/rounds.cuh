// Messages between GPUs that write into each other's memory.
//
// A message is one float whose lowest bit, a tag, says in which round it was sent: it needs no flag and no fence, and messages
// may arrive in any order. The number is rounded to the other bits. A message has two places, by turns: a rank sends those of
// the next round after it has received all of this one, so nobody still reads what it overwrites.
#pragma once
#include "device/ranks.cuh"

// The round of this block, counted from 0; each block counts by itself. The memory of messages begins as zeros.
struct Round {
    unsigned number;

    __device__ explicit Round(const unsigned* rounds) : number(rounds[blockIdx.x]) {}
    __device__ unsigned place() const { return number & 1; }
    __device__ unsigned tag() const { return (number >> 1 & 1) ^ 1; }
    __device__ void end(unsigned* rounds) const {
        __syncthreads();
        if (threadIdx.x == 0) rounds[blockIdx.x] = number + 1;
    }
};

// Rounded to even without the lowest bit, which is the tag. What is no number stays none.
__device__ inline unsigned tagged(float value, unsigned tag) {
    const unsigned bits = value == value ? __float_as_uint(value) : 0x7fc00000u;
    return ((bits + (bits >> 1 & 1)) & ~1u) | tag;
}
__device__ inline float untagged(unsigned message) { return __uint_as_float(message & ~1u); }

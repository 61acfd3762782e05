// Numbers in messages between blocks and in the factors of products: four of a fragment a unit, with the round's tag.
#pragma once
#include "device/messages.cuh"
#include "device/tensor_cores.cuh"

#ifndef FACTOR_HALVES
#define FACTOR_HALVES 2
#endif

constexpr int WARP = 32;
constexpr int EDGE = 8;  // of a matrix: 64 numbers of 16 bits, 128 bytes without gaps
constexpr int MATRIX = EDGE * EDGE;
constexpr int HALVES = FACTOR_HALVES;    // float16 summands of a factor: two for float32's class, or one
constexpr float LOW = 2048.0f;           // the scale of lower halves, so that they are seldom too small for a float16
constexpr float GRADIENT_SCALE = 64.0f;  // likewise of gradients
constexpr int SLOTS = 2;                 // of a mailbox, by the round

// Two numbers as halves; the lower ones times LOW.
struct Halves {
    unsigned high, low;
};
__device__ inline Halves halves_of(float first, float second) {
    Halves halves = {cvt_f16x2(first, second), 0};
    if constexpr (HALVES == 2) {
        const float2 high = cvt_f32_f16x2(halves.high);
        halves.low = cvt_f16x2((first - high.x) * LOW, (second - high.y) * LOW);
    }
    return halves;
}

// A fragment's unit of a message: rows g and g + 8 in columns 2t and 2t + 1. Its lowest bit is a tag.
#if FACTOR_HALVES == 2
using Part = uint4;  // of a sum: float32; of activations: low and high halves of row g, then of row g + 8
#else
using Part = uint2;  // float16
#endif

// Two float16, the lowest bit of the first replaced by a tag. Rounded to the nearest even number: if it were cut off, sums would
// lean towards zero.
__device__ inline unsigned tagged(unsigned two, unsigned tag) { return two + (two >> 1 & two & 1u) & ~1u | tag; }

template <class Unit = Part>
__device__ Unit part_of(const float (&sums)[4], unsigned tag) {
    if constexpr (sizeof(Unit) == sizeof(uint4)) {
        return make_uint4(__float_as_uint(sums[0]) & ~1u | tag, __float_as_uint(sums[1]), __float_as_uint(sums[2]),
                          __float_as_uint(sums[3]));
    } else {
        return make_uint2(tagged(cvt_f16x2(sums[0], sums[1]), tag), cvt_f16x2(sums[2], sums[3]));
    }
}
__device__ inline void add(float (&sums)[4], uint4 part) {
    sums[0] += __uint_as_float(part.x), sums[1] += __uint_as_float(part.y);
    sums[2] += __uint_as_float(part.z), sums[3] += __uint_as_float(part.w);
}
__device__ inline void add(float (&sums)[4], uint2 part) {
    const float2 upper = cvt_f32_f16x2(part.x), lower = cvt_f32_f16x2(part.y);
    sums[0] += upper.x, sums[1] += upper.y, sums[2] += lower.x, sums[3] += lower.y;
}
// Zeros without this tag: they are read again until they have it. Zeros without the other tag count as arrived.
template <class Unit = Part>
__device__ Unit none(unsigned tag) {
    Unit part = {};
    part.x = tag ^ 1;
    return part;
}
__device__ inline Part whole_of(const float (&numbers)[4], unsigned tag) {
    const Halves upper = halves_of(numbers[0], numbers[1]), lower = halves_of(numbers[2], numbers[3]);
#if FACTOR_HALVES == 2
    return make_uint4(upper.low & ~1u | tag, upper.high, lower.low, lower.high);
#else
    return make_uint2(tagged(upper.high, tag), lower.high);
#endif
}

// Messages of one kind: round after round through two slots. Memory begins as zeros, so the first rounds' tag is 1. A slot is
// free two rounds later: its writer has had messages that its readers sent, or caused, after they had read it.
struct Round {
    int number = 0;
    __device__ int slot() const { return number % SLOTS; }
    __device__ unsigned tag() const { return (number / SLOTS & 1) ^ 1; }
};

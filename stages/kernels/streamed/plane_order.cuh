// The order of a tile's rows in planes of weights (weight_planes.cuh), and the float32 of two planes.
#pragma once

// Where a tile's row stands: rows that a warp of ring.cuh reads at once differ in the bits that move their units.
__device__ inline int stored_at(int row) {
    const int b0 = row & 1, b1 = row >> 1 & 1, b2 = row >> 2 & 1, b3 = row >> 3 & 1;
    return (row & ~7) | (b1 ^ b3) << 2 | (b0 ^ b2) << 1 | b2;
}
// Its inverse.
__device__ inline int row_at(int stored) {
    const int b0 = stored & 1, b1 = stored >> 1 & 1, b2 = stored >> 2 & 1, b3 = stored >> 3 & 1;
    return (stored & ~7) | b0 << 2 | (b2 ^ b3) << 1 | (b1 ^ b0);
}

__device__ inline float joined(unsigned high, unsigned low) {
    return __uint_as_float((high << 16) + static_cast<unsigned>(static_cast<int>(static_cast<short>(low))));
}

// Two float32 as a word of each plane.
__device__ inline void split(float one, float other, unsigned& high, unsigned& low) {
    const unsigned bits = __float_as_uint(one), others = __float_as_uint(other);
    high = bits + 0x8000u >> 16 | (others + 0x8000u & 0xffff0000u);
    low = (bits & 0xffffu) | others << 16;
}

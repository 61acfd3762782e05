// Weights in two planes of 16 bits, for ring.cuh: a bfloat16, rounded half away from zero, and what is left of the float32's bits
// as a signed number. Together they are the float32, bit for bit; the first alone is what bfloat16 products need.
//
// A tile has its rows' bfloat16s, then its rows' remainders. Its row i stands at row stored_at(i), and there the unit u of eight
// numbers at u ^ stored_at(i) % 8: the order of 128 bytes that wgmma knows, in which single warps hit no bank twice either.
#pragma once
#include "streamed/plane_order.cuh"
#include "streamed/ring_back.cuh"
#include "streamed/ring_forward.cuh"

struct alignas(8) FourShorts {
    unsigned words[2];
};

__device__ inline int place_in_plane(int row, int col) {
    const int stored = stored_at(row);
    return stored * TILE + (col / 8 ^ stored % 8) * 8 + col % 8;
}

// A tile's first plane, as a right factor.
struct PlaneTile {
    static constexpr int BYTES = 2;

    template <class Factors>
    static __device__ void take(Factors& factors, const float* tile, int first, int cols, int g, int t) {
        const auto* plane = reinterpret_cast<const unsigned short*>(tile);
        FourShorts rows[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const unsigned short* at = plane + place_in_plane(first + 4 * t + e, cols + 4 * g);
            rows[e] = *reinterpret_cast<const FourShorts*>(at);
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const unsigned one = rows[2 * half].words[j / 2], other = rows[2 * half + 1].words[j / 2];
                factors.b[j][half] = j % 2 == 0 ? (one & 0xffffu) | other << 16 : one >> 16 | (other & 0xffff0000u);
            }
        }
    }
};

// A lane's weights in a slot.
struct PlaneWeights {
    static constexpr int PLANES = 2, FLIPS_AT_ONCE = 3;
    unsigned short *even, *odd;  // of its first input, by what stored_at makes of 8i + g

    __device__ PlaneWeights(float* tile, int group, int part, int g, int t) {
        auto* plane = reinterpret_cast<unsigned short*>(tile) + group * OWN * TILE;
        even = plane + place_in_plane(g, part * 16 + 4 * t), odd = plane + place_in_plane(8 + g, part * 16 + 4 * t) - 8 * TILE;
    }
    __device__ FourShorts& high(int i) const {
        return *reinterpret_cast<FourShorts*>((i % 2 == 0 ? even : odd) + 8 * i * TILE);
    }
    __device__ FourShorts& low(int i) const {
        return *reinterpret_cast<FourShorts*>((i % 2 == 0 ? even : odd) + 8 * i * TILE + TILE * TILE);
    }

    __device__ void read(float (&to)[4], int i) const {
        const FourShorts highs = high(i), lows = low(i);
#pragma unroll
        for (int j = 0; j < 4; ++j) to[j] = joined(highs.words[j / 2] >> j % 2 * 16, lows.words[j / 2] >> j % 2 * 16);
    }

    __device__ void write(int i, float4 updated) const {
        const unsigned bits[4] = {__float_as_uint(updated.x), __float_as_uint(updated.y), __float_as_uint(updated.z),
                                  __float_as_uint(updated.w)};
        FourShorts highs, lows;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const unsigned one = bits[2 * j], other = bits[2 * j + 1];
            highs.words[j] = one + 0x8000u >> 16 | (other + 0x8000u & 0xffff0000u);
            lows.words[j] = (one & 0xffffu) | other << 16;
        }
        high(i) = highs;
        low(i) = lows;
    }
};

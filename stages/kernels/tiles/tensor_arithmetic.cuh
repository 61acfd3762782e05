// Tensor-core arithmetic for output_tiles.cuh: the numbers that a lane has loaded are its share of a fragment.
#pragma once
#include "device/tensor_cores.cuh"
#include "tiles/output_tiles.cuh"

// A lane's four k of a step, 4t to 4t+3, take the places that PTX's mma.m16n8k16 calls 2t, 2t+1, 2t+8 and 2t+9.
template <int ROWS, int COLS>
struct Pairs {
    unsigned a[ROWS / 2][4], b[COLS][2];

    __device__ Pairs(float*, int, int, int) {}

    template <class Convert>
    __device__ void convert_a(const float (&from_a)[ROWS][4], Convert pair_of) {
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            a[i / 2][i % 2] = pair_of(from_a[i][0], from_a[i][1]);
            a[i / 2][i % 2 + 2] = pair_of(from_a[i][2], from_a[i][3]);
        }
    }

    template <class Convert>
    __device__ void convert_b(const float (&from_b)[COLS][4], Convert pair_of) {
#pragma unroll
        for (int j = 0; j < COLS; ++j) {
            b[j][0] = pair_of(from_b[j][0], from_b[j][1]);
            b[j][1] = pair_of(from_b[j][2], from_b[j][3]);
        }
    }
};

template <int ROWS, int COLS, class Multiply>
__device__ inline void multiply_fragments(float (&sums)[ROWS][COLS][2], Multiply multiply) {
#pragma unroll
    for (int i = 0; i < ROWS; i += 2) {
#pragma unroll
        for (int j = 0; j < COLS; ++j) {
            float c[4] = {sums[i][j][0], sums[i][j][1], sums[i + 1][j][0], sums[i + 1][j][1]};
            multiply(c, i / 2, j);
            sums[i][j][0] = c[0], sums[i][j][1] = c[1], sums[i + 1][j][0] = c[2], sums[i + 1][j][1] = c[3];
        }
    }
}

template <int ROWS, int COLS>
__device__ inline void add(float (&sums)[ROWS][COLS][2], const float (&product)[ROWS][COLS][2]) {
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
#pragma unroll
        for (int j = 0; j < COLS; ++j) sums[i][j][0] += product[i][j][0], sums[i][j][1] += product[i][j][1];
    }
}

struct BFloat16 {
    static constexpr bool SCALED = false;

    template <int ROWS, int COLS>
    struct Factors : Pairs<ROWS, COLS> {
        using Pairs<ROWS, COLS>::Pairs;

        static constexpr int QUADS_OF_A = ROWS / 2;

        __device__ void take(const float (&from_a)[ROWS][4], const float (&from_b)[COLS][4]) {
            take_a(from_a);
            take_b(from_b);
        }

        __device__ void take_a(const float (&from_a)[ROWS][4]) { this->convert_a(from_a, cvt_bf16x2); }
        __device__ void take_b(const float (&from_b)[COLS][4]) { this->convert_b(from_b, cvt_bf16x2); }
        __device__ unsigned (&quad_of_a(int i))[4] { return this->a[i]; }

        __device__ void multiply_into(float (&sums)[ROWS][COLS][2]) const {
            multiply_fragments<ROWS, COLS>(sums, [this](float (&c)[4], int i, int j) {
                mma_m16n8k16_bf16(c, this->a[i], this->b[j][0], this->b[j][1]);
            });
        }

        __device__ void multiply_in_turn(float (&sums)[ROWS][COLS][2]) const { multiply_into(sums); }
        __device__ void add_to(float (&sums)[ROWS][COLS][2]) const { multiply_into(sums); }
    };
};

// Gradients are multiplied by `scale`, a power of two, and alpha by its inverse. They are as small as a probability / batch,
// and float16 has no normal numbers below 6e-5.
struct Float16 {
    static constexpr bool SCALED = true;

    template <int ROWS, int COLS>
    struct Factors : Pairs<ROWS, COLS> {
        using Pairs<ROWS, COLS>::Pairs;

        __device__ void take(const float (&from_a)[ROWS][4], const float (&from_b)[COLS][4]) {
            this->convert_a(from_a, cvt_f16x2);
            this->convert_b(from_b, cvt_f16x2);
        }

        __device__ void multiply_into(float (&sums)[ROWS][COLS][2]) const {
            multiply_fragments<ROWS, COLS>(sums, [this](float (&c)[4], int i, int j) {
                mma_m16n8k16_f16(c, this->a[i], this->b[j][0], this->b[j][1]);
            });
        }
    };
};

// Two products of eight k each. The first takes a lane's k 4t and 4t+1, in the places that PTX calls t and t+4.
struct Tf32 {
    static constexpr bool SCALED = false;

    template <int ROWS, int COLS>
    struct Factors {
        unsigned a[2][ROWS / 2][4], b[2][COLS][2];

        __device__ Factors(float*, int, int, int) {}

        __device__ void take(const float (&from_a)[ROWS][4], const float (&from_b)[COLS][4]) {
            take_a(from_a);
            take_b(from_b);
        }

        __device__ void take_a(const float (&from_a)[ROWS][4]) {
#pragma unroll
            for (int i = 0; i < 4 * ROWS; ++i) part_of_a(i / 4, i % 4) = cvt_tf32(from_a[i / 4][i % 4]);
        }

        __device__ void take_b(const float (&from_b)[COLS][4]) {
#pragma unroll
            for (int j = 0; j < 4 * COLS; ++j) part_of_b(j / 4, j % 4) = cvt_tf32(from_b[j / 4][j % 4]);
        }

        __device__ unsigned& part_of_a(int i, int e) { return a[e / 2][i / 2][i % 2 + e % 2 * 2]; }
        __device__ unsigned& part_of_b(int j, int e) { return b[e / 2][j][e % 2]; }

        // The product with the b of other factors: their roundings, or the rests.
        __device__ void multiply_into(float (&sums)[ROWS][COLS][2], const Factors& of_b) const {
            multiply_fragments<ROWS, COLS>(sums, [this, &of_b](float (&c)[4], int i, int j) {
                mma_m16n8k8_tf32(c, a[0][i], of_b.b[0][j][0], of_b.b[0][j][1]);
                mma_m16n8k8_tf32(c, a[1][i], of_b.b[1][j][0], of_b.b[1][j][1]);
            });
        }

        __device__ void multiply_into(float (&sums)[ROWS][COLS][2]) const { multiply_into(sums, *this); }
    };
};

// float32 in two parts of tf32, which keep 22 bits: high * high + high * low + low * high. If a's numbers have at most 11 bits,
// as pixels have, a is its own high part.
template <bool A_IS_SHORT>
struct TwoTf32 {
    static constexpr bool SCALED = false;

    template <int ROWS, int COLS>
    struct Factors {
        Tf32::Factors<ROWS, COLS> high, low;

        __device__ Factors(float* shared, int warp, int g, int t) : high(shared, warp, g, t), low(shared, warp, g, t) {}

        static constexpr int QUADS_OF_A = 2 * ROWS;

        __device__ void take(const float (&from_a)[ROWS][4], const float (&from_b)[COLS][4]) {
            take_a(from_a);
            take_b(from_b);
        }

        __device__ void take_a(const float (&from)[ROWS][4]) {
            high.take_a(from);
            float rest[ROWS][4];
#pragma unroll
            for (int i = 0; i < 4 * ROWS; ++i) {
                rest[i / 4][i % 4] = from[i / 4][i % 4] - __uint_as_float(high.part_of_a(i / 4, i % 4));
            }
            low.take_a(rest);
        }

        __device__ void take_b(const float (&from)[COLS][4]) {
            high.take_b(from);
            float rest[COLS][4];
#pragma unroll
            for (int j = 0; j < 4 * COLS; ++j) {
                rest[j / 4][j % 4] = from[j / 4][j % 4] - __uint_as_float(high.part_of_b(j / 4, j % 4));
            }
            low.take_b(rest);
        }

        __device__ unsigned (&quad_of_a(int i))[4] {
            return (i < ROWS ? high : low).a[i / (ROWS / 2) % 2][i % (ROWS / 2)];
        }

        // Adds to the sums outside of the tensor cores, which cut off the bits that a sum has no place for: of 8,192 terms, a
        // sum would be too small by hundreds of its factors' roundings.
        __device__ void multiply_into(float (&sums)[ROWS][COLS][2]) const {
            float product[ROWS][COLS][2] = {};
            high.multiply_into(product, low);
            if constexpr (!A_IS_SHORT) low.multiply_into(product, high);
            high.multiply_into(product);
            add(sums, product);
        }

        // A sum's products in another order: none waits for the one before it.
        __device__ void multiply_in_turn(float (&sums)[ROWS][COLS][2]) const {
#pragma unroll
            for (int part = A_IS_SHORT; part < 3; ++part) {
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const auto& of_a = part == 0 ? low : high;
                    const auto& of_b = part == 1 ? low : high;
                    multiply_fragments<ROWS, COLS>(sums, [&](float (&c)[4], int i, int j) {
                        mma_m16n8k8_tf32(c, of_a.a[e][i], of_b.b[e][j][0], of_b.b[e][j][1]);
                    });
                }
            }
        }

        __device__ void add_to(float (&sums)[ROWS][COLS][2]) const {
            float product[ROWS][COLS][2] = {};
            multiply_in_turn(product);
            add(sums, product);
        }
    };
};

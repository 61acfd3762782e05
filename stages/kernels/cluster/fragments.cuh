// A warp's products on tensor cores, with float32 factors as two float16 halves. Needs sm_80.
#pragma once

constexpr int WARP = 32;
constexpr int EDGE = 16;      // rows and columns of a left factor
constexpr int HALF_EDGE = 8;  // columns of a right factor and of the product; lanes have rows g and g + 8

// c (16, 8) += a (16, 16) b (16, 8): float16 factors, float32 sums. Fragments are those of PTX's
// mma.m16n8k16. With g = lane / 4 and t = lane % 4, c holds rows g, g, g+8, g+8 in columns 2t, 2t+1, 2t, 2t+1; a holds rows g,
// g+8, g, g+8 in pairs of columns 2t, 2t, 2t+8, 2t+8; b holds column g in pairs of rows 2t, 2t+8.
__device__ inline void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Loads the transpose of a matrix (16, 16) as two right factors: of the upper rows, and of the lower rows. In shared memory
// it lies as four row-major matrices of 8 by 8, the upper two first. (PTX ISA: ldmatrix.)
__device__ inline uint4 load_transposed(const uint4* matrix) {
    uint4 factors;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(factors.x), "=r"(factors.y), "=r"(factors.z), "=r"(factors.w)
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(matrix + threadIdx.x % WARP)))
                 : "memory");
    return factors;
}

// Loads the same matrix, not transposed, as two right factors: of the left columns, and of the right columns.
__device__ inline uint4 load_factors(const uint4* matrix) {
    uint4 factors;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %2, %1, %3}, [%4];"
                 : "=r"(factors.x), "=r"(factors.y), "=r"(factors.z), "=r"(factors.w)
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(matrix + threadIdx.x % WARP)))
                 : "memory");
    return factors;
}

// Two numbers as float16, and the rest of each after that rounding as float16: together 22 bits.
struct Halves {
    unsigned high, low;  // each a pair of float16, the first number in the lower bits
};

__device__ inline Halves halves_of(float first, float second) {
    Halves halves;
    float high_first, high_second;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(halves.high) : "f"(second), "f"(first));
    asm("{\n.reg .f16 a, b;\nmov.b32 {a, b}, %2;\ncvt.f32.f16 %0, a;\ncvt.f32.f16 %1, b;\n}"
        : "=f"(high_first), "=f"(high_second)
        : "r"(halves.high));
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(halves.low) : "f"(second - high_second), "f"(first - high_first));
    return halves;
}

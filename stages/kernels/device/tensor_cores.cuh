// A warp's products on tensor cores, and the conversions of float32 for them. Needs sm_80, except cvt_bf16x2.
//
// Fragments are those of PTX's mma.m16n8k16 and m16n8k8. With g = lane / 4 and t = lane % 4, c holds rows g, g, g+8, g+8
// in columns 2t, 2t+1, 2t, 2t+1.
#pragma once

// Rounds to the 11 bits of tf32; the other bits are 0, so that the result is also a float32. Ties go to even where the GPU
// has an instruction for it, else away from zero: to even would take five instructions.
__device__ inline unsigned cvt_tf32(float value) {
    unsigned rounded;
#if __CUDA_ARCH__ >= 900
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(value));
#else
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(value));
#endif
    return rounded;
}

// The bits of a float32 rounded to bfloat16, ties to even. A NaN stays one; adding to its bits could make it zero.
__device__ inline unsigned rounded_to_bfloat16(unsigned bits) {
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff0000u;
    return bits + 0x7fffu + (bits >> 16 & 1) & 0xffff0000u;
}

// Two numbers as bfloat16, the first in the lower bits, ties to even.
__device__ inline unsigned cvt_bf16x2(float first, float second) {
#if __CUDA_ARCH__ >= 800
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
#else
    return rounded_to_bfloat16(__float_as_uint(first)) >> 16 | rounded_to_bfloat16(__float_as_uint(second));
#endif
}

// The larger of the number and 0; a NaN stays one. Needs sm_80.
__device__ inline float relu_of(float value) {
#if __CUDA_ARCH__ >= 800
    asm("max.NaN.f32 %0, %0, 0f00000000;" : "+f"(value));
    return value;
#else
    return value < 0.0f ? 0.0f : value;
#endif
}

__device__ inline unsigned cvt_f16x2(float first, float second) {
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

// The two numbers of cvt_f16x2.
__device__ inline float2 cvt_f32_f16x2(unsigned pair) {
    float2 two;
    asm("{\n.reg .f16 first, second;\nmov.b32 {first, second}, %2;\ncvt.f32.f16 %0, first;\ncvt.f32.f16 %1, second;\n}"
        : "=f"(two.x), "=f"(two.y)
        : "r"(pair));
    return two;
}

// c (16, 8) += a (16, 8) b (8, 8): a holds rows g, g+8, g, g+8 in columns t, t, t+4, t+4; b column g in rows t, t+4.
__device__ inline void mma_m16n8k8_tf32(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// c (16, 8) += a (16, 16) b (16, 8): a holds rows g, g+8, g, g+8 in pairs of columns 2t, 2t, 2t+8, 2t+8; b column g in
// pairs of rows 2t, 2t+8.
__device__ inline void mma_m16n8k16_bf16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline void mma_m16n8k16_f16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Loads four matrices (8, 8) of 16-bit numbers from shared memory as fragments. Lane 8i + r passes the address of row r of
// matrix i, aligned to 16 bytes. A lane gets columns 2t and 2t+1 of each matrix's row g; if TRANSPOSED, rows 2t and 2t+1 of
// column g.
template <bool TRANSPOSED>
__device__ inline void ldmatrix(unsigned (&to)[4], const unsigned short* row) {
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    if constexpr (TRANSPOSED) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(address)
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(address)
                     : "memory");
    }
}

// The same, returned.
template <bool TRANSPOSED>
__device__ inline uint4 ldmatrix(const void* row) {
    unsigned four[4];
    ldmatrix<TRANSPOSED>(four, static_cast<const unsigned short*>(row));
    return {four[0], four[1], four[2], four[3]};
}

// The same for two matrices; lanes 0 to 15 pass the addresses.
template <bool TRANSPOSED>
__device__ inline void ldmatrix(unsigned (&to)[2], const unsigned short* row) {
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    if constexpr (TRANSPOSED) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(to[0]), "=r"(to[1])
                     : "r"(address)
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(to[0]), "=r"(to[1])
                     : "r"(address)
                     : "memory");
    }
}

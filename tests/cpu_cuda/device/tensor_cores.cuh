// In place of stages/kernels/device/tensor_cores.cuh: the same instructions in C++, from PTX's tables of fragments.
#pragma once

inline unsigned cvt_tf32(float value) { return as_bits(value) + 0x1000u & ~0x1fffu; }

inline unsigned bfloat16_bits(float value) {
    const unsigned bits = as_bits(value);
    if (value != value) return 0x7fff;
    return bits + 0x7fffu + (bits >> 16 & 1) >> 16;
}

inline unsigned float16_bits(float value) {
    const _Float16 half = static_cast<_Float16>(value);
    unsigned short bits;
    std::memcpy(&bits, &half, sizeof bits);
    return bits;
}

inline float relu_of(float value) { return value < 0.0f ? 0.0f : value; }

inline unsigned cvt_bf16x2(float first, float second) { return bfloat16_bits(first) | bfloat16_bits(second) << 16; }
inline unsigned cvt_f16x2(float first, float second) { return float16_bits(first) | float16_bits(second) << 16; }

namespace cpu_cuda {

inline float of_bfloat16(unsigned bits) { return as_float(bits << 16); }

inline float of_float16(unsigned bits) {
    const float size = as_float((bits & 0x7fff) << 13);  // less what the exponents' biases differ by
    const bool is_finite = (bits & 0x7c00) != 0x7c00;
    return as_float((is_finite ? as_bits(size * 0x1p112f) : as_bits(size) | 0x7f800000) | (bits & 0x8000) << 16);
}

// c += a b by a warp. `number` reads one of a register's numbers, of which there are K / 8. K is 8 or 16.
template <int K, class Read>
void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, Read number, int line) {
    Fragment own;
    for (int part = 0; part < K / 8; ++part) {
        for (int i = 0; i < 4; ++i) own.a[i][part] = number(a[i], part);
        own.b[0][part] = number(b0, part), own.b[1][part] = number(b1, part);
    }
    multiply(c, own, K / 8, line);
}

}  // namespace cpu_cuda

inline float2 cvt_f32_f16x2(unsigned pair) {
    return {cpu_cuda::of_float16(pair & 0xffff), cpu_cuda::of_float16(pair >> 16)};
}

inline void mma_m16n8k8_tf32(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                          int line = __builtin_LINE()) {
    cpu_cuda::multiply<8>(c, a, b0, b1, [](unsigned bits, int) { return as_float(bits); }, line);
}

inline void mma_m16n8k16_bf16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                              int line = __builtin_LINE()) {
    const auto number = [](unsigned bits, int part) { return cpu_cuda::of_bfloat16(bits >> 16 * part & 0xffff); };
    cpu_cuda::multiply<16>(c, a, b0, b1, number, line);
}

inline void mma_m16n8k16_f16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                             int line = __builtin_LINE()) {
    const auto number = [](unsigned bits, int part) { return cpu_cuda::of_float16(bits >> 16 * part & 0xffff); };
    cpu_cuda::multiply<16>(c, a, b0, b1, number, line);
}

template <bool TRANSPOSED, int COUNT>
void ldmatrix(unsigned (&to)[COUNT], const unsigned short* row, int line = __builtin_LINE()) {
    const int g = cpu_cuda::lane() / 4, t = cpu_cuda::lane() % 4;
    const auto row_of = [=](int lane) {
        return reinterpret_cast<const unsigned short*>(
            cpu_cuda::shuffle("ldmatrix", ~0u, reinterpret_cast<std::uint64_t>(row), lane, line));
    };
    for (int i = 0; i < COUNT; ++i) {
        const unsigned short *first = row_of(8 * i + (TRANSPOSED ? 2 * t : g)), *second = row_of(8 * i + 2 * t + 1);
        to[i] = TRANSPOSED ? first[g] | second[g] << 16 : first[2 * t] | first[2 * t + 1] << 16;
    }
}

template <bool TRANSPOSED>
uint4 ldmatrix(const void* row, int line = __builtin_LINE()) {
    unsigned four[4];
    ldmatrix<TRANSPOSED>(four, static_cast<const unsigned short*>(row), line);
    return {four[0], four[1], four[2], four[3]};
}

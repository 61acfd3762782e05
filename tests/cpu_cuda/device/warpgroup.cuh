// In place of stages/kernels/device/warpgroup.cuh: a CPU has no such instructions, so that single warps multiply; but products
// of tf32 are here, in C++ by PTX's tables. They are there at once.
#pragma once
#include <cstring>

constexpr bool HAS_WGMMA = false, MOVES_REGISTERS = true;

struct Descriptor {
    const char* first;
    int along_k, across;
    bool in_rows;  // of 128 bytes

    Descriptor(const char* first, int along_k, int across, bool in_rows)
        : first(first), along_k(along_k), across(across), in_rows(in_rows) {}
    // A GPU's is a number. Declared, and never called.
    Descriptor(unsigned long long);
    operator unsigned long long() const;

    // A number of 16 bits in row or column `col`; `transposed` matrices have k as rows.
    float bfloat16_at(int col, int k, bool transposed) const {
        const int row = transposed ? k : col, other = transposed ? col : k;
        std::uintptr_t place;
        if (in_rows) {
            const auto begin = reinterpret_cast<std::uintptr_t>(cpu_cuda::dynamic_shared);  // a multiple of 1024 on a GPU
            place = reinterpret_cast<std::uintptr_t>(first) - begin + row * 128 + other * 2;
            place = begin + (place ^ (place / 128 % 8 * 16));
        } else {
            place = reinterpret_cast<std::uintptr_t>(first) + col / 8 * across + k / 8 * along_k + row % 8 * 16 + other % 8 * 2;
        }
        return as_float(*reinterpret_cast<const unsigned short*>(place) << 16);
    }

    float at(int col, int k) const {
        const void* number = first + col / 8 * across + k / 4 * along_k + col % 8 * 16 + k % 4 * 4;
        return as_float(*static_cast<const unsigned*>(number) & ~0x1fffu);
    }
};
inline Descriptor wgmma_descriptor(const void* first, int along_k, int across) {
    return {static_cast<const char*>(first), along_k, across, false};
}
inline Descriptor wgmma_descriptor_128(const void* first) { return {static_cast<const char*>(first), 16, 1024, true}; }
inline Descriptor moved(Descriptor matrices, int bytes) { return {matrices.first + bytes, matrices.along_k, matrices.across, matrices.in_rows}; }
inline Descriptor moved_low(Descriptor matrices, int bytes) { return moved(matrices, bytes); }
template <int>
inline void take_registers() {}
template <int>
inline void give_registers() {}
inline void wgmma_fence() {}
inline void wgmma_commit_group() {}
template <int BUT>
void wgmma_wait_group() {}
template <int N>
void keep_in_place(float (&)[N][4]) {}
template <int N>
void keep_in_place(unsigned (&)[N]) {}
// Declared, and never called.
template <int N, class Left>
void wgmma_mma_async(float (&c)[N][4], const Left& a, Descriptor b);
template <int N>
void wgmma_mma_async_by_rows(float (&c)[N][4], const unsigned (&a)[4], Descriptor b);
template <bool LEFT_TRANSPOSED, bool RIGHT_TRANSPOSED, int COLS>
void wgmma_of_shared(float (&c)[COLS][4], Descriptor a, Descriptor b, int across, bool adds);

// A warp's sixteen rows.
template <int COUNT>
void wgmma_mma_async_tf32(float (&c)[COUNT][4], const unsigned (&a)[4], Descriptor b, int line = __builtin_LINE()) {
    static unsigned held[128][32][32][4];
    auto& warp = held[(blockIdx.x + gridDim.x * blockIdx.y) % 128][threadIdx.x / 32];
    const int own = cpu_cuda::lane();
    std::memcpy(warp[own], a, sizeof a);
    __syncwarp(~0u, line);
    for (int i = 0; i < 4 * COUNT; ++i) {
        const int row = own / 4 + i % 4 / 2 * 8, col = i / 4 * 8 + own % 4 * 2 + i % 2;
        for (int k = 0; k < 8; ++k) {
            c[i / 4][i % 4] += as_float(warp[row % 8 * 4 + k % 4][row / 8 + k / 4 * 2] & ~0x1fffu) * b.at(col, k);
        }
    }
    __syncwarp(~0u, line);
}

// Both factors are in shared memory, so that each lane computes its own sums.
template <bool LEFT_TRANSPOSED, bool RIGHT_TRANSPOSED, int COLS>
void wgmma_bf16(float (&c)[COLS][4], Descriptor a, Descriptor b) {
    const int own = cpu_cuda::lane(), warp = threadIdx.x / 32 % 4;
    for (int i = 0; i < 4 * COLS; ++i) {
        const int row = warp * 16 + own / 4 + i % 4 / 2 * 8, col = i / 4 * 8 + own % 4 * 2 + i % 2;
        for (int k = 0; k < 16; ++k) {
            c[i / 4][i % 4] += a.bfloat16_at(row, k, LEFT_TRANSPOSED) * b.bfloat16_at(col, k, RIGHT_TRANSPOSED);
        }
    }
}

// A left factor in registers: a warp's sixteen rows.
template <bool RIGHT_TRANSPOSED, int COLS>
void wgmma_bf16(float (&c)[COLS][4], const unsigned (&a)[4], Descriptor b, int line = __builtin_LINE()) {
    static unsigned held[128][32][32][4];
    auto& warp = held[(blockIdx.x + gridDim.x * blockIdx.y) % 128][threadIdx.x / 32];
    const int own = cpu_cuda::lane();
    std::memcpy(warp[own], a, sizeof a);
    __syncwarp(~0u, line);
    for (int i = 0; i < 4 * COLS; ++i) {
        const int row = own / 4 + i % 4 / 2 * 8, col = i / 4 * 8 + own % 4 * 2 + i % 2;
        for (int k = 0; k < 16; ++k) {
            const unsigned pair = warp[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2];
            c[i / 4][i % 4] += as_float(k % 2 ? pair & 0xffff0000u : pair << 16) * b.bfloat16_at(col, k, RIGHT_TRANSPOSED);
        }
    }
    __syncwarp(~0u, line);
}

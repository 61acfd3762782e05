// Products of a warpgroup on tensor cores: four warps, the first a multiple of four. Needs sm_90a.
//
// Each warp has sixteen of the product's 64 rows, in fragments like those of mma_m16n8k16_f16. All four multiply by the same
// right factor. A left factor may be in registers. Other factors lie in shared memory, in matrices of 8 by 8 without gaps. A
// product is in flight until wgmma_wait_group; its registers must not be touched before. (PTX ISA: wgmma.mma_async, matrix
// descriptors.) Elsewhere a kernel has other products instead, and these calls do nothing.
#pragma once
#include "device/cluster.cuh"

// Whether the architecture has these instructions: only sm_90a.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool HAS_WGMMA = true;
#else
constexpr bool HAS_WGMMA = false;
#endif
// Whether warpgroups can give each other registers; a kernel that spills without them does nothing elsewhere.
constexpr bool MOVES_REGISTERS = HAS_WGMMA;

// The descriptor of a factor that begins at `first`; `along_k` and `across` are the bytes to the next matrix in k, and in rows
// or columns.
__device__ inline unsigned long long wgmma_descriptor(const void* first, int along_k, int across) {
    const unsigned offset = shared_address(first) % (1 << 18);  // the bits above say which block of the cluster
    return static_cast<unsigned long long>(offset / 16) |
           static_cast<unsigned long long>(along_k / 16) << 16 |
           static_cast<unsigned long long>(across / 16) << 32;
}

// The same factor, `bytes` further on.
__device__ inline unsigned long long moved(unsigned long long matrices, int bytes) { return matrices + bytes / 16; }

// Call before the first product, and before one whose left factor or sums other instructions have written.
__device__ inline void wgmma_fence() {
    if constexpr (HAS_WGMMA) asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Ends a group of products; the warp may then do something else.
__device__ inline void wgmma_commit_group() {
    if constexpr (HAS_WGMMA) asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits for all groups of products but the last BUT.
template <int BUT>
__device__ void wgmma_wait_group() {
    if constexpr (HAS_WGMMA) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(BUT) : "memory");
}

// So many registers a thread from here on: more, once other warpgroups of the block have given some away, or fewer. A warpgroup
// calls it as a whole, in a branch that no other takes. (PTX ISA: setmaxnreg.)
template <int EACH>
__device__ void take_registers() {
    if constexpr (HAS_WGMMA) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(EACH));
}
template <int EACH>
__device__ void give_registers() {
    if constexpr (HAS_WGMMA) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(EACH));
}
// Call for sums before wgmma_fence and after wgmma_wait_group: the compiler does not see that a product is in flight, and
// would move their first and last uses between the products.
template <int N>
__device__ void keep_in_place(float (&c)[N][4]) {
#pragma unroll
    for (int i = 0; i < 4 * N; ++i) asm volatile("" : "+f"(c[i / 4][i % 4])::"memory");
}

// The same for a left factor, before wgmma_fence.
template <int N>
__device__ void keep_in_place(unsigned (&a)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+r"(a[i])::"memory");
}

#define SUMS(c) "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])

// c (64, 64) += a (64, 16) b (16, 64). The rows of a's matrices are its rows; the rows of b's are its columns.
__device__ inline void wgmma_mma_async(float (&c)[8][4], unsigned long long a, unsigned long long b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
        "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, "
        "1, 1, 1, 0, 0;"
        : SUMS(c[0]), SUMS(c[1]), SUMS(c[2]), SUMS(c[3]), SUMS(c[4]), SUMS(c[5]), SUMS(c[6]), SUMS(c[7])
        : "l"(a), "l"(b)
        : "memory");
}

// c (64, 32) += a (64, 16) b (16, 32), likewise.
__device__ inline void wgmma_mma_async(float (&c)[4][4], unsigned long long a, unsigned long long b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
        "%13, %14, %15}, %16, %17, 1, 1, 1, 0, 0;"
        : SUMS(c[0]), SUMS(c[1]), SUMS(c[2]), SUMS(c[3])
        : "l"(a), "l"(b)
        : "memory");
}

// c (64, 56) += a (64, 16) b (16, 56). The rows of a's matrices are its columns; the rows of b's are its rows.
__device__ inline void wgmma_mma_async(float (&c)[7][4], unsigned long long a, unsigned long long b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n56k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
        "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27}, %28, %29, 1, 1, 1, 1, 1;"
        : SUMS(c[0]), SUMS(c[1]), SUMS(c[2]), SUMS(c[3]), SUMS(c[4]), SUMS(c[5]), SUMS(c[6])
        : "l"(a), "l"(b)
        : "memory");
}

// c (64, 64) += a (64, 16) b (16, 64). The rows of b's matrices are its columns.
__device__ inline void wgmma_mma_async(float (&c)[8][4], const unsigned (&a)[4], unsigned long long b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
        "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, "
        "%35}, %36, 1, 1, 1, 0;"
        : SUMS(c[0]), SUMS(c[1]), SUMS(c[2]), SUMS(c[3]), SUMS(c[4]), SUMS(c[5]), SUMS(c[6]), SUMS(c[7])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
        : "memory");
}

// The same, where the rows of b's matrices are its rows.
__device__ inline void wgmma_mma_async_by_rows(float (&c)[8][4], const unsigned (&a)[4], unsigned long long b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
        "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, "
        "%35}, %36, 1, 1, 1, 1;"
        : SUMS(c[0]), SUMS(c[1]), SUMS(c[2]), SUMS(c[3]), SUMS(c[4]), SUMS(c[5]), SUMS(c[6]), SUMS(c[7])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
        : "memory");
}

// c (64, 56) += a (64, 16) b (16, 56). The rows of b's matrices are its rows.
__device__ inline void wgmma_mma_async(float (&c)[7][4], const unsigned (&a)[4], unsigned long long b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n56k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
        "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27}, {%28, %29, %30, %31}, %32, 1, 1, "
        "1, 1;"
        : SUMS(c[0]), SUMS(c[1]), SUMS(c[2]), SUMS(c[3]), SUMS(c[4]), SUMS(c[5]), SUMS(c[6])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
        : "memory");
}

// c (64, 104) += a (64, 16) b (16, 104), likewise.
__device__ inline void wgmma_mma_async(float (&c)[13][4], const unsigned (&a)[4], unsigned long long b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n104k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
        "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, "
        "%35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51}, {%52, %53, %54, %55}, "
        "%56, 1, 1, 1, 1;"
        : SUMS(c[0]), SUMS(c[1]), SUMS(c[2]), SUMS(c[3]), SUMS(c[4]), SUMS(c[5]), SUMS(c[6]), SUMS(c[7]), SUMS(c[8]),
          SUMS(c[9]), SUMS(c[10]), SUMS(c[11]), SUMS(c[12])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
        : "memory");
}

// c (64, 32) += a (64, 8) b (8, 32) in tf32. The rows of b's matrices, of 16 bytes, are its columns.
__device__ inline void wgmma_mma_async_tf32(float (&c)[4][4], const unsigned (&a)[4], unsigned long long b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k8.f32.tf32.tf32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
        "%13, %14, %15}, {%16, %17, %18, %19}, %20, 1, 1, 1;"
        : SUMS(c[0]), SUMS(c[1]), SUMS(c[2]), SUMS(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
        : "memory");
}

// c (64, 64) += a (64, 8) b (8, 64), likewise.
__device__ inline void wgmma_mma_async_tf32(float (&c)[8][4], const unsigned (&a)[4], unsigned long long b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
        "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, "
        "%34, %35}, %36, 1, 1, 1;"
        : SUMS(c[0]), SUMS(c[1]), SUMS(c[2]), SUMS(c[3]), SUMS(c[4]), SUMS(c[5]), SUMS(c[6]), SUMS(c[7])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
        : "memory");
}


// A factor of 64 rows, or columns, in the order of 128 bytes: rows of 128 bytes, eight numbers c of row r at place c ^ r % 8. It
// begins at a multiple of 1024 bytes. The rows are the factor's rows, 32 bytes a step of k; or its k, 2048 bytes a step.
__device__ inline unsigned long long wgmma_descriptor_128(const void* first) {
    return wgmma_descriptor(first, 16, 1024) | 1ull << 62;
}

// c (64, 8 COLS) += a (64, 16) b (16, 8 COLS) in bfloat16. The rows of a's matrices are its rows, or its columns if
// LEFT_TRANSPOSED; those of b's are its columns, or its rows if RIGHT_TRANSPOSED.
#define OF_BFLOAT16(shape, sums, a, b, left, right) \
    "wgmma.mma_async.sync.aligned." shape "k16.f32.bf16.bf16 {" sums "}, " a ", " b ", 1, 1, 1, " left ", " right ";"
template <bool LEFT_TRANSPOSED, bool RIGHT_TRANSPOSED, int COLS>
__device__ void wgmma_bf16(float (&c)[COLS][4], unsigned long long a, unsigned long long b) {
    static_assert(COLS == 2 || COLS == 4 || COLS == 8);
    if constexpr (!HAS_WGMMA) {
    } else if constexpr (COLS == 2) {
        asm volatile(OF_BFLOAT16("m64n16", "%0, %1, %2, %3, %4, %5, %6, %7", "%8", "%9", "%10", "%11")
                     : SUMS(c[0]), SUMS(c[1])
                     : "l"(a), "l"(b), "n"(LEFT_TRANSPOSED), "n"(RIGHT_TRANSPOSED)
                     : "memory");
    } else if constexpr (COLS == 4) {
        asm volatile(OF_BFLOAT16("m64n32", "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15", "%16",
                                 "%17", "%18", "%19")
                     : SUMS(c[0]), SUMS(c[1]), SUMS(c[2]), SUMS(c[3])
                     : "l"(a), "l"(b), "n"(LEFT_TRANSPOSED), "n"(RIGHT_TRANSPOSED)
                     : "memory");
    } else {
        asm volatile(OF_BFLOAT16("m64n64",
                                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
                                 "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31",
                                 "%32", "%33", "%34", "%35")
                     : SUMS(c[0]), SUMS(c[1]), SUMS(c[2]), SUMS(c[3]), SUMS(c[4]), SUMS(c[5]), SUMS(c[6]), SUMS(c[7])
                     : "l"(a), "l"(b), "n"(LEFT_TRANSPOSED), "n"(RIGHT_TRANSPOSED)
                     : "memory");
    }
}
// The same with a left factor in registers.
template <bool RIGHT_TRANSPOSED, int COLS>
__device__ void wgmma_bf16(float (&c)[COLS][4], const unsigned (&a)[4], unsigned long long b) {
    static_assert(COLS == 4 || COLS == 8);
    if constexpr (!HAS_WGMMA) {
    } else if constexpr (COLS == 4) {
        asm volatile(
            "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
            "%14, %15}, {%16, %17, %18, %19}, %20, 1, 1, 1, %21;"
            : SUMS(c[0]), SUMS(c[1]), SUMS(c[2]), SUMS(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(RIGHT_TRANSPOSED)
            : "memory");
    } else {
        asm volatile(
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
            "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, "
            "%36, 1, 1, 1, %37;"
            : SUMS(c[0]), SUMS(c[1]), SUMS(c[2]), SUMS(c[3]), SUMS(c[4]), SUMS(c[5]), SUMS(c[6]), SUMS(c[7])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(RIGHT_TRANSPOSED)
            : "memory");
    }
}
#undef OF_BFLOAT16

// `moved`, where the upper half of the descriptor is a constant for the compiler, and stays one.
__device__ inline unsigned long long moved_low(unsigned long long matrices, int bytes) {
    const unsigned low = static_cast<unsigned>(matrices) + bytes / 16;
    return matrices >> 32 << 32 | low;
}

// c (64, 8 COLS) += a (64, 16) b (16, 8 COLS), or = unless it adds. The rows of b's matrices are its columns, or its rows if
// RIGHT_TRANSPOSED; those of a's are its rows, or its columns if LEFT_TRANSPOSED. `across` are the bytes from eight columns of
// b to the next.
#define OF_SHARED(shape, sums, a, b, adds, left, right)                                                        \
    "{\n.reg .pred added;\nsetp.ne.b32 added, " adds ", 0;\n"                                                  \
    "wgmma.mma_async.sync.aligned." shape "k16.f32.f16.f16 {" sums "}, " a ", " b ", added, 1, 1, " left ", " right ";\n}"
template <bool LEFT_TRANSPOSED, bool RIGHT_TRANSPOSED, int COLS>
__device__ void wgmma_of_shared(float (&c)[COLS][4], unsigned long long a, unsigned long long b, int across, bool adds) {
    if constexpr (COLS == 1) {
        asm volatile(OF_SHARED("m64n8", "%0, %1, %2, %3", "%4", "%5", "%6", "%7", "%8")
                     : SUMS(c[0])
                     : "l"(a), "l"(b), "r"(static_cast<int>(adds)), "n"(LEFT_TRANSPOSED), "n"(RIGHT_TRANSPOSED)
                     : "memory");
    } else if constexpr (COLS == 2) {
        asm volatile(OF_SHARED("m64n16", "%0, %1, %2, %3, %4, %5, %6, %7", "%8", "%9", "%10", "%11", "%12")
                     : SUMS(c[0]), SUMS(c[1])
                     : "l"(a), "l"(b), "r"(static_cast<int>(adds)), "n"(LEFT_TRANSPOSED), "n"(RIGHT_TRANSPOSED)
                     : "memory");
    } else if constexpr (COLS == 4) {
        asm volatile(OF_SHARED("m64n32", "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15", "%16", "%17",
                               "%18", "%19", "%20")
                     : SUMS(c[0]), SUMS(c[1]), SUMS(c[2]), SUMS(c[3])
                     : "l"(a), "l"(b), "r"(static_cast<int>(adds)), "n"(LEFT_TRANSPOSED), "n"(RIGHT_TRANSPOSED)
                     : "memory");
    } else if constexpr (COLS == 7) {
        asm volatile(OF_SHARED("m64n56",
                               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
                               "%21, %22, %23, %24, %25, %26, %27",
                               "%28", "%29", "%30", "%31", "%32")
                     : SUMS(c[0]), SUMS(c[1]), SUMS(c[2]), SUMS(c[3]), SUMS(c[4]), SUMS(c[5]), SUMS(c[6])
                     : "l"(a), "l"(b), "r"(static_cast<int>(adds)), "n"(LEFT_TRANSPOSED), "n"(RIGHT_TRANSPOSED)
                     : "memory");
    } else {
        constexpr int PART = COLS > 7 ? 7 : COLS > 4 ? 4 : 2;
        auto& first = reinterpret_cast<float(&)[PART][4]>(c[0]);
        auto& rest = reinterpret_cast<float(&)[COLS - PART][4]>(c[PART]);
        wgmma_of_shared<LEFT_TRANSPOSED, RIGHT_TRANSPOSED>(first, a, b, across, adds);
        wgmma_of_shared<LEFT_TRANSPOSED, RIGHT_TRANSPOSED>(rest, a, moved_low(b, PART * across), across, adds);
    }
}

#undef OF_SHARED
#undef SUMS

// The first layer's sums of a batch of some hundred images, by a kernel that starts early: its images are in shared memory by the
// time that the kernel before has updated the weights.
//
// A block has ROWS images and COLUMNS units. Its warps share out the features, in chunks: each brings in what it multiplies.

#include "large_batch/chunks.cuh"
#include "device/bulk_copies.cuh"
#include "device/dependent.cuh"

#ifndef ROWS
#define ROWS 64
#endif
#ifndef COLUMNS
#define COLUMNS 16
#endif
constexpr int R = ROWS / EDGE, C = COLUMNS / EDGE;
constexpr int WARPS = 8, THREADS = WARPS * WARP;

// images_product: sums = images @ weights / 64.
//   images   (batch / 16, features / 16, 256)           u16  in: bits of float16, in chunks; batch rounded up, with zeros
//   weights  (HALVES, width / 16, features / 16, 256)   u16  in: bits of float16, halves of 64 times the weights
//   sums     (batch, width)                             u16  out: bits of float16, with two halves of float32
// Kind:   gemm.
// Launch: 2-D, (batch / ROWS, width / COLUMNS) blocks, rounded up, of THREADS threads; dynamic shared memory for ROWS + HALVES *
//   COLUMNS rows of features numbers, and for WARPS * ROWS * COLUMNS float32; compiled with FACTOR_HALVES, ROWS and COLUMNS.
// Early:  images.
// Needs:  sm_90; features a multiple of 16; width a multiple of COLUMNS.
// Order:  each sum in a fixed order; repeats bit for bit.
extern "C" __global__ void __launch_bounds__(THREADS, 2) images_product(const unsigned short* images, const unsigned short* weights, unsigned short* sums, int batch, int features, int width) {
    extern __shared__ float4 dynamic[];
    __shared__ Barrier arrived[WARPS];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int chunks = features / EDGE, rows = min((batch + EDGE - 1) / EDGE - static_cast<int>(blockIdx.x) * R, R);
    const Span own(chunks, WARPS);
    const int size = own.size();
    Number* const left = reinterpret_cast<Number*>(dynamic) + own.begin * R * CHUNK;
    Number* const right = reinterpret_cast<Number*>(dynamic) + (chunks * R + own.begin * HALVES * C) * CHUNK;
    if (lane == 0) {
        mbarrier_init(arrived[warp], 2);
        fence_mbarrier_init();
        mbarrier_arrive_expect_tx(arrived[warp], rows * size * CHUNK * 2);
        for (int i = 0; i < rows && size > 0; ++i) {
            const long long from = static_cast<long long>(blockIdx.x * R + i) * chunks + own.begin;
            cp_async_bulk(left + i * size * CHUNK, arrived[warp], images + from * CHUNK, size * CHUNK * 2);
        }
    }
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
    if (lane == 0) {
        mbarrier_arrive_expect_tx(arrived[warp], HALVES * C * size * CHUNK * 2);
        for (int i = 0; i < HALVES * C && size > 0; ++i) {
            const int from = (i / C * (width / EDGE) + blockIdx.y * C + i % C) * chunks + own.begin;
            cp_async_bulk(right + i * size * CHUNK, arrived[warp], weights + from * CHUNK, size * CHUNK * 2);
        }
    }
    __syncwarp();
    mbarrier_wait_parity(arrived[warp], 0);
    float c[R][C][2][4] = {};
    for (int k = 0; k < size; ++k) {
        unsigned b[HALVES * C][4];
#pragma unroll
        for (int i = 0; i < HALVES * C; ++i) load_right(b[i], right + (i * size + k) * CHUNK);
#pragma unroll
        for (int i = 0; i < R; ++i) {
            if (R > 1 && i >= rows) continue;
            unsigned a[4];
            load_left<false>(a, left + (i * size + k) * CHUNK);
            for (int j = HALVES * C - 1; j >= 0; --j) multiply_chunk(c[i][j % C], a, b[j]);
        }
    }
    add_up<WARPS>(c, dynamic, [&](int i, const float4& sum) {
        const int at = WARPS * i + warp, g = lane / 4, t = lane % 4;
        const int column = blockIdx.y * COLUMNS + at % (2 * C) * 8 + 2 * t;
        for (int j = 0; j < 2; ++j) {
            const int row = blockIdx.x * ROWS + at / (2 * C) * EDGE + g + 8 * j;
            if (row >= batch) continue;
            const float first = (j == 0 ? sum.x : sum.z) * (1.0f / WEIGHT_SCALE), second = (j == 0 ? sum.y : sum.w) * (1.0f / WEIGHT_SCALE);
            if constexpr (HALVES == 1) {
                *reinterpret_cast<unsigned*>(sums + row * width + column) = cvt_f16x2(first, second);
            } else {
                *reinterpret_cast<float2*>(sums + 2 * (row * width + column)) = make_float2(first, second);
            }
        }
    });
}

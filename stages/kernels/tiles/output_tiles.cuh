// out = fusion of alpha * op(a) @ op(b), for products whose output tiles alone cannot fill a GPU.
//
// A block, or a cluster of blocks, owns a tile of outputs. Each warp multiplies the whole tile over its share of k, K_STEP
// values at a time; its lanes load their numbers straight from memory. Warps do not wait for each other until all sums are
// there. Then the block, and the cluster, add them up in a fixed order.
//
// In a warp g = lane / 4 selects rows of the tile and t = lane % 4 columns, as in tensor cores' fragments. Row i of g is tile
// row 8i + g; or g * ROWS + i if neighbouring rows of op(a) are neighbours in memory, so that a lane loads them as a vector.
// Columns likewise. Of a step's k lane t takes 4t to 4t + 3 in both factors: the order of k does not matter, if both agree.
#pragma once
#include "device/blocks_together.cuh"
#include "device/dependent.cuh"

constexpr int WARP = 32;
constexpr int K_STEP = 16;      // values of k that a warp takes at once
constexpr int MOST_WARPS = 8;   // of a block, as in stages/tiles/tile_kernels.py
#if __CUDA_ARCH__ >= 1000
constexpr int RESIDENT = 1;     // blocks of a multiprocessor: for two the compiler would spill
#else
constexpr int RESIDENT = 2;
#endif
constexpr int MOST_BLOCKS = 8;  // of a cluster
constexpr int AHEAD = 2;        // quads of outputs whose other operands a thread reads in advance
constexpr int PADDING = 4;      // floats between rows of partial sums, for different banks
constexpr int SHARED = 10240;   // floats: partial sums, or a warp's factors while it multiplies

// What follows alpha times the sum: the fusions of common/cuda/epilogue.py, in the order of stages/tiles/tile_kernels.py.
enum Fusion { ADD, BIAS, RELU_BIAS, RELU_BACKWARD, BIAS_ROW };

template <class Number>
struct Product {
    const Number* a;
    const float* b;
    float* out;
    float* bias;
    unsigned char* mask;
    int m, n, k, mask_bytes, fusion;
    float alpha, beta, scale;
};

// Copies neighbouring numbers from memory or shared memory, aligned to their size or to 16 bytes.
template <int COUNT>
__device__ inline void copy_run(float (&to)[COUNT], const float* from) {
    if constexpr (COUNT == 2) {
        const float2 pair = *reinterpret_cast<const float2*>(from);
        to[0] = pair.x, to[1] = pair.y;
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; i += 4) {
            const float4 quad = *reinterpret_cast<const float4*>(from + i);
            to[i] = quad.x, to[i + 1] = quad.y, to[i + 2] = quad.z, to[i + 3] = quad.w;
        }
    }
}

template <int COUNT>
__device__ inline void store_run(float* to, const float (&from)[COUNT]) {
    if constexpr (COUNT == 2) {
        *reinterpret_cast<float2*>(to) = make_float2(from[0], from[1]);
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; i += 4) {
            *reinterpret_cast<float4*>(to + i) = make_float4(from[i], from[i + 1], from[i + 2], from[i + 3]);
        }
    }
}

// A pixel is a byte that counts 256ths.
__device__ inline float number(float value) { return value; }
__device__ inline float number(unsigned char value) { return value * (1.0f / 256); }

template <int COUNT>
__device__ inline void copy_run(float (&to)[COUNT], const unsigned char* from) {
    if constexpr (COUNT == 2) {
        const unsigned pair = *reinterpret_cast<const unsigned short*>(from);
        to[0] = number(static_cast<unsigned char>(pair)), to[1] = number(static_cast<unsigned char>(pair >> 8));
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; i += 4) {
            const unsigned quad = *reinterpret_cast<const unsigned*>(from + i);
#pragma unroll
            for (int j = 0; j < 4; ++j) to[i + j] = number(static_cast<unsigned char>(quad >> 8 * j));
        }
    }
}

// A factor in memory: for each g FREE rows of op(a), or columns of op(b), from `first` on; `extent` exist in all.
template <int FREE, bool K_IS_INNER, class Number>
struct GlobalFactor {
    const Number* data;
    int first, extent, k;
    bool aligned;

    __device__ GlobalFactor(const Number* data, int first, int extent, int k)
        : data(data), first(first), extent(extent), k(k) {
        const int inner = K_IS_INNER ? k : extent;
        // Vectors have four numbers at most; a batch may begin at any address.
        const unsigned long long address = reinterpret_cast<unsigned long long>(data);
        aligned = inner % 4 == 0 && address % (4 * sizeof(Number)) == 0;
    }

    static __device__ int place(int g, int i) { return K_IS_INNER ? 8 * i + g : g * FREE + i; }

    // Loads the numbers of lane (g, t) from `begin` on. Beyond k they are 0. Beyond the extent any finite number would do,
    // since no such sum is an output; it is 1, which BIAS_ROW's column sums need.
    __device__ void load(float (&to)[FREE][4], int begin, int g, int t) const {
        begin += 4 * t;
        if (aligned && begin - 4 * t + K_STEP <= k && (K_IS_INNER || first + 8 * FREE <= extent)) {
            if constexpr (K_IS_INNER) {
#pragma unroll
                for (int i = 0; i < FREE; ++i) {
                    copy_run<4>(to[i], data + min(first + place(g, i), extent - 1) * k + begin);
                }
            } else {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    float run[FREE];
                    copy_run<FREE>(run, data + (begin + e) * extent + first + place(g, 0));
#pragma unroll
                    for (int i = 0; i < FREE; ++i) to[i][e] = run[i];
                }
            }
        } else {
#pragma unroll
            for (int i = 0; i < FREE; ++i) {
                const int at = first + place(g, i);
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const int kth = begin + e;
                    to[i][e] = kth < k ? 1.0f : 0.0f;
                    if (kth < k && at < extent) to[i][e] = number(data[K_IS_INNER ? at * k + kth : kth * extent + at]);
                }
            }
        }
    }
};

// Plain float32: a warp's factors lie in shared memory, since every lane needs other lanes' numbers.
struct Float32 {
    static constexpr bool SCALED = false;

    template <int ROWS, int COLS>
    struct Factors {
        static constexpr int A_STRIDE = 8 * ROWS + 8, B_STRIDE = 8 * COLS + 8;  // padded, so that no bank is hit twice
        float *a, *b;
        int g, t;

        __device__ Factors(float* shared, int warp, int g, int t)
            : a(shared + warp * K_STEP * (A_STRIDE + B_STRIDE)), b(a + K_STEP * A_STRIDE), g(g), t(t) {}

        __device__ void take(const float (&from_a)[ROWS][4], const float (&from_b)[COLS][4]) {
            __syncwarp();
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                float of_a[ROWS], of_b[COLS];
#pragma unroll
                for (int i = 0; i < ROWS; ++i) of_a[i] = from_a[i][e];
#pragma unroll
                for (int j = 0; j < COLS; ++j) of_b[j] = from_b[j][e];
                store_run<ROWS>(a + (4 * e + t) * A_STRIDE + g * ROWS, of_a);
                store_run<COLS>(b + (4 * e + t) * B_STRIDE + g * COLS, of_b);
            }
            __syncwarp();
        }

        __device__ void multiply_into(float (&sums)[ROWS][COLS][2]) const {
#pragma unroll 4
            for (int kth = 0; kth < K_STEP; ++kth) {
                float of_a[ROWS], of_b[2 * COLS];
                copy_run<ROWS>(of_a, a + kth * A_STRIDE + g * ROWS);
                copy_run<2 * COLS>(of_b, b + kth * B_STRIDE + t * 2 * COLS);
#pragma unroll
                for (int i = 0; i < ROWS; ++i) {
#pragma unroll
                    for (int j = 0; j < COLS; ++j) {
                        sums[i][j][0] += of_a[i] * of_b[j];
                        sums[i][j][1] += of_a[i] * of_b[COLS + j];
                    }
                }
            }
        }
    };
};

// One warp's sums of a tile over its share of k. `shared` is for the arithmetic alone.
template <class Arithmetic, int ROWS, int COLS, bool TRANS_A, bool TRANS_B, class Number>
__device__ inline void sum_up(float (&sums)[ROWS][COLS][2], const Product<Number>& product, int first_row,
                              int first_col, int share, int shares, float* shared) {
    const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    const GlobalFactor<ROWS, !TRANS_A, Number> a(product.a, first_row, product.m, product.k);
    const GlobalFactor<COLS, TRANS_B, float> b(product.b, first_col, product.n, product.k);
    typename Arithmetic::template Factors<ROWS, COLS> factors(shared, threadIdx.x / WARP, g, t);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
#pragma unroll
        for (int j = 0; j < COLS; ++j) sums[i][j][0] = sums[i][j][1] = 0.0f;
    }
    float next_a[ROWS][4], next_b[COLS][4];
    bool loaded = false;
    for (int begin = share * K_STEP;; begin += shares * K_STEP) {  // loads of the next step are in flight while one is multiplied
        if (loaded) {
            if constexpr (Arithmetic::SCALED && TRANS_B) {  // a holds gradients
#pragma unroll
                for (int i = 0; i < 4 * ROWS; ++i) next_a[i / 4][i % 4] *= product.scale;
            }
            if constexpr (Arithmetic::SCALED && TRANS_A) {  // b does
#pragma unroll
                for (int j = 0; j < 4 * COLS; ++j) next_b[j / 4][j % 4] *= product.scale;
            }
            factors.take(next_a, next_b);
        }
        const bool more = begin < product.k;
        if (more) {
            a.load(next_a, begin, g, t);
            b.load(next_b, begin, g, t);
        }
        if (loaded) factors.multiply_into(sums);
        if (!more) break;
        loaded = true;
    }
}

// A tile's place, and its outputs in quads, four of a row. It divides nothing: a division takes as long as a load.
struct OutputTile {
    int first_row, first_col, height, row_bits;  // a row has 2^row_bits quads

    __device__ int quads() const { return height << row_bits; }
    __device__ int stride() const { return (4 << row_bits) + PADDING; }  // floats between its rows in shared memory
    __device__ int row(int quad) const { return quad >> row_bits; }
    __device__ int col(int quad) const { return 4 * (quad & ((1 << row_bits) - 1)); }
    __device__ int place(int quad) const { return row(quad) * stride() + col(quad); }
};

__device__ inline float4 operator+(float4 x, float4 y) { return {x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w}; }

// Reads four numbers of a row, of which `left` exist.
__device__ inline float4 read_quad(const float* from, int left, bool wide) {
    if (wide) return *reinterpret_cast<const float4*>(from);
    return {from[0], left > 1 ? from[1] : 0.0f, left > 2 ? from[2] : 0.0f, left > 3 ? from[3] : 0.0f};
}

__device__ inline void write_quad(float* to, float4 value, int left, bool wide) {
    if (wide) {
        *reinterpret_cast<float4*>(to) = value;
    } else {
        to[0] = value.x;
        if (left > 1) to[1] = value.y;
        if (left > 2) to[2] = value.z;
        if (left > 3) to[3] = value.w;
    }
}

// Reads what a quad of outputs needs besides its sums; row m is the bias.
template <class Number>
__device__ inline float4 read_besides(const Product<Number>& product, int row, int col, bool wide) {
    const int left = product.n - col;
    if (left <= 0 || row > product.m || (row == product.m && product.fusion != BIAS_ROW)) return {0, 0, 0, 0};
    if (product.fusion == RELU_BACKWARD) {
        const unsigned bits = product.mask[row * product.mask_bytes + col / 8] >> col % 8;
        return {bits & 1 ? 1.0f : 0.0f, bits & 2 ? 1.0f : 0.0f, bits & 4 ? 1.0f : 0.0f, bits & 8 ? 1.0f : 0.0f};
    }
    const bool of_bias = row == product.m || product.fusion == BIAS || product.fusion == RELU_BIAS;
    if (!of_bias && product.beta == 0.0f) return {0, 0, 0, 0};
    return read_quad(of_bias ? product.bias + col : product.out + row * product.n + col, left, wide);
}

__device__ inline float cut_off(float value) { return value <= 0.0f ? 0.0f : value; }  // a NaN stays one

// Writes a quad of outputs and returns it. The whole warp must call it, each two lanes with eight neighbours of a row.
template <class Number>
__device__ inline float4 write_out(const Product<Number>& product, int row, int col, float4 sum, float4 besides,
                                 bool wide) {
    const float alpha = product.alpha, beta = product.beta;
    const int left = product.n - col;
    const bool inside = row < product.m && left > 0;
    float4 value = {alpha * sum.x, alpha * sum.y, alpha * sum.z, alpha * sum.w};
    if (product.fusion == RELU_BACKWARD) {
        value = {besides.x != 0.0f ? value.x : 0.0f, besides.y != 0.0f ? value.y : 0.0f,
                 besides.z != 0.0f ? value.z : 0.0f, besides.w != 0.0f ? value.w : 0.0f};
    } else if (product.fusion == BIAS || product.fusion == RELU_BIAS) {
        value = value + besides;
    } else if (beta != 0.0f) {
        value = value + float4{beta * besides.x, beta * besides.y, beta * besides.z, beta * besides.w};
    }
    if (product.fusion == RELU_BIAS) {
        const unsigned passed = (value.x > 0.0f) | (value.y > 0.0f && left > 1) << 1 |
                                (value.z > 0.0f && left > 2) << 2 | (value.w > 0.0f && left > 3) << 3;
        const unsigned next = __shfl_xor_sync(~0u, left > 0 ? passed : 0u, 1);
        if (inside && col % 8 == 0) product.mask[row * product.mask_bytes + col / 8] = passed | next << 4;
        value = {cut_off(value.x), cut_off(value.y), cut_off(value.z), cut_off(value.w)};
    }
    if (inside) write_quad(product.out + row * product.n + col, value, left, wide);
    if (product.fusion == BIAS_ROW && row == product.m && left > 0) write_quad(product.bias + col, value, left, wide);
    return value;
}

// Leaves one warp's sums of a tile of 8 ROWS by 8 COLS outputs in shared memory, where the block adds them up.
template <class Arithmetic, int ROWS, int COLS, bool TRANS_A, bool TRANS_B, class Number>
__device__ inline void leave_sums(const Product<Number>& product, const OutputTile& tile, int share, int shares,
                                  float* shared) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    float sums[ROWS][COLS][2];
    sum_up<Arithmetic, ROWS, COLS, TRANS_A, TRANS_B>(sums, product, tile.first_row, tile.first_col, share, shares,
                                                     shared);
    __syncthreads();  // the arithmetic no longer needs its memory
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const int place = warp * 8 * ROWS + GlobalFactor<ROWS, !TRANS_A, Number>::place(g, i);
        float* row = shared + place * (8 * COLS + PADDING);  // OutputTile::stride
        if constexpr (TRANS_B) {
#pragma unroll
            for (int j = 0; j < COLS; ++j) store_run<2>(row + 8 * j + 2 * t, sums[i][j]);
        } else {
            float run[2 * COLS];
#pragma unroll
            for (int j = 0; j < COLS; ++j) run[j] = sums[i][j][0], run[COLS + j] = sums[i][j][1];
            store_run<2 * COLS>(row + t * 2 * COLS, run);
        }
    }
    __syncthreads();
}

template <class Arithmetic, int ROWS, int COLS, class Number>
__device__ inline void leave_sums_of(int transposes, const Product<Number>& product, const OutputTile& tile, int share,
                                     int shares, float* shared) {
    switch (transposes) {
        case 0: leave_sums<Arithmetic, ROWS, COLS, false, false>(product, tile, share, shares, shared); break;
        case 1: leave_sums<Arithmetic, ROWS, COLS, true, false>(product, tile, share, shares, shared); break;
        default: leave_sums<Arithmetic, ROWS, COLS, false, true>(product, tile, share, shares, shared);
    }
}

// All loads before the sum, which is in order: otherwise each load would wait for an addition.
__device__ inline float4 sum_of_warps(const float* own, int warps, int apart) {
    float4 parts[MOST_WARPS];
#pragma unroll
    for (int i = 0; i < MOST_WARPS; ++i) {
        if (i < warps) parts[i] = *reinterpret_cast<const float4*>(own + i * apart);
    }
    float4 sum = parts[0];
#pragma unroll
    for (int i = 1; i < MOST_WARPS; ++i) {
        if (i < warps) sum = sum + parts[i];
    }
    return sum;
}

__device__ inline float4 sum_of_blocks(const float* own, int blocks) {
    float4 parts[MOST_BLOCKS];
#pragma unroll
    for (int i = 0; i < MOST_BLOCKS; ++i) {
        if (i < blocks) parts[i] = ld_shared_cluster_v4(own, i);
    }
    float4 sum = parts[0];
#pragma unroll
    for (int i = 1; i < MOST_BLOCKS; ++i) {
        if (i < blocks) sum = sum + parts[i];
    }
    return sum;
}

struct NowhereElse {
    __device__ void operator()(int, int, float4) const {}
};

// Finishes a tile's outputs from its sums. Each block of the cluster finishes some, in whole warps of quads.
template <class Number>
class Outputs {
  public:
    __device__ Outputs(const Product<Number>& product, const OutputTile& tile) : product(product), tile(tile) {
        const unsigned long long addresses = reinterpret_cast<unsigned long long>(product.out) |
                                             reinterpret_cast<unsigned long long>(product.bias);
        wide = product.n % 4 == 0 && addresses % sizeof(float4) == 0;
        const int blocks = cluster_nctarank();
        const int part = blocks == 1 ? tile.quads() : (tile.quads() / WARP + blocks - 1) / blocks * WARP;
        begin = cluster_ctarank() * part + threadIdx.x;
        end = min((cluster_ctarank() + 1) * part, tile.quads());
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
            const int quad = begin + i * blockDim.x;
            const int row = tile.first_row + tile.row(quad), col = tile.first_col + tile.col(quad);
            ahead[i] = quad < end ? read_besides(product, row, col, wide) : float4{0, 0, 0, 0};
        }
    }

    // `shared` has the sums of `warps` warps, one tile after the other. also(row, col, quad) takes each quad of outputs.
    template <class Also = NowhereElse>
    __device__ void write(float* shared, int warps, Also also = {}) const {
        const int threads = blockDim.x, blocks = cluster_nctarank();
        const int apart = tile.height * tile.stride();  // the sums of two warps
        if (blocks > 1) {
            for (int quad = threadIdx.x; quad < tile.quads(); quad += threads) {
                float4* own = reinterpret_cast<float4*>(shared + tile.place(quad));
                *own = sum_of_warps(shared + tile.place(quad), warps, apart);
            }
            barrier_cluster_aligned();
        }
        int round = 0;
        for (int quad = begin; quad < end; quad += threads, ++round) {
            const float* own = shared + tile.place(quad);
            const float4 sum = blocks > 1 ? sum_of_blocks(own, blocks) : sum_of_warps(own, warps, apart);
            const int row = tile.first_row + tile.row(quad), col = tile.first_col + tile.col(quad);
            const float4 besides =
                round == 0 ? ahead[0] : round == 1 ? ahead[1] : read_besides(product, row, col, wide);
            also(row, col, write_out(product, row, col, sum, besides, wide));
        }
        if (blocks > 1) barrier_cluster_aligned();  // no block ends while another reads from it
    }

  private:
    const Product<Number>& product;
    const OutputTile& tile;
    bool wide;
    int begin, end;
    float4 ahead[AHEAD];
};

// Computes the tile of this block. shape: 0 for 16 by 16 outputs, 1 for 32 by 32; transposes: 0 none, 1 a, 2 b.
template <class Arithmetic, class Number>
__device__ inline void tile_product(const Product<Number>& product, int shape, int transposes) {
    griddepcontrol_launch_dependents();
    __shared__ float4 memory[SHARED / 4];
    float* shared = reinterpret_cast<float*>(memory);
    const int warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    const int height = shape == 0 ? 16 : 32, row_bits = 2 + shape;
    const OutputTile tile = {clusterid_x() * height, static_cast<int>(blockIdx.y) * (4 << row_bits), height, row_bits};
    griddepcontrol_wait();
    const Outputs<Number> outputs(product, tile);
    const int share = cluster_ctarank() * warps + warp, shares = cluster_nctarank() * warps;
    switch (shape) {
        case 0: leave_sums_of<Arithmetic, 2, 2>(transposes, product, tile, share, shares, shared); break;
        default: leave_sums_of<Arithmetic, 4, 4>(transposes, product, tile, share, shares, shared);
    }
    outputs.write(shared, warps);
}

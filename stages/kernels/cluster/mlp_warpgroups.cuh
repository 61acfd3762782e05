#pragma once
#include "cluster/mlp_first_layer.cuh"
#include "cluster/mlp_parameters.cuh"

// The first layer's two passes with wgmma. The weights stay in registers of the warps that update them. Each update also
// writes them to shared memory as factors, so that the forward pass rounds and loads nothing.
class FirstLayer {
  public:
    // UNIT_WARPS warps have all units in the rows of their left factors. In the update, sets of such warps divide the features.
    // If features are too few, the last sets overlap, and update the shared ones alike.
    static constexpr int OWN_IMAGES = 8, OWN_FEATURES = UPDATED_FEATURES;  // chunks
    using Sums = float[OWN_FEATURES][4];

    __device__ explicit FirstLayer(const Block& block) : block(block) {}

    template <class Copy>
    __device__ void copy_weights(float* parameters, Copy copy) {
        for_all([&](float2& own, int i, int c) {
            copy_first(block, parameters, first_feature() + i, first_chunk() + c, own, copy);
            put(factor(first_feature() + i, first_chunk() + c), own, block.lane);
        });
        fence_proxy_async();
    }

    // As forward_first, by one warp group. `sums_of_others` is room for SUM_BYTES.
    template <class Wait>
    __device__ void forward_by_parts(const uint4* images, void* sums_of_others, Wait wait_to_send) const {
        constexpr int COLS = 2 * PART_PAIRS, HALF_TILES = (TILES + 1) / 2;
        const int part = __shfl_sync(~0u, block.warp, 0) / 4, half = part / 2;  // of the features
        const int unit_part = UNIT_PARTS == 1 ? 0 : part % 2, image_part = IMAGE_PARTS == 1 ? 0 : part % 2;
        const int chunk = (unit_part * 4 + block.warp % 4) * ROW_CHUNKS;
        const int pair = min(image_part * PART_PAIRS, PAIRS - PART_PAIRS);  // parts may overlap
        const auto weights = wgmma_descriptor(&factor(half * HALF_TILES * 2, unit_part * 4 * ROW_CHUNKS), NEXT_FACTOR,
                                              HALF_EDGE * sizeof(uint4));
        const auto x = wgmma_descriptor(images + half * HALF_TILES * 2 * NEXT_FEATURES + 2 * pair * NEXT_IMAGES, NEXT_X,
                                        NEXT_IMAGES * sizeof(uint4));
        float sums[COLS][4] = {};
        if (half == 0) multiply<HALF_TILES>(sums, weights, x);
        else multiply<TILES - HALF_TILES>(sums, weights, x);
        // Own sums of a chunk of images: the rows of one chunk of units, or of two.
        using Own = float[ROW_CHUNKS][2];
        Own* const others = static_cast<Own*>(sums_of_others) + (part % 2 * 4 + block.warp % 4) * COLS * WARP + block.lane;
        if (half == 1) {
#pragma unroll
            for (int i = 0; i < COLS; ++i) {
#pragma unroll
                for (int c = 0; c < ROW_CHUNKS; ++c) {
                    const float2 own = sums_of(sums[i], c);
                    others[i * WARP][c][0] = own.x, others[i * WARP][c][1] = own.y;
                }
            }
        }
        wait_to_send();
        __syncthreads();
        if (half == 0) {
#pragma unroll
            for (int c = 0; c < ROW_CHUNKS; ++c) {
                const int owner = block.owner_in_group(chunk + c);
                const unsigned barrier = mapa(shared_address(&block.barriers.parts[0][0]), owner);
                Part* own = parts_of(block, chunk + c, 0) + pair * WARP;
                const unsigned there = mapa(shared_address(own), owner);
#pragma unroll
                for (int i = 0; i < PART_PAIRS; ++i) {
                    float2 two[2];
#pragma unroll
                    for (int j = 0; j < 2; ++j) {
                        const float(&other)[2] = others[(2 * i + j) * WARP][c];
                        two[j] = sums_of(sums[2 * i + j], c);
                        two[j] = {two[j].x + other[0], two[j].y + other[1]};
                    }
                    if (pair + i < image_part * PART_PAIRS) continue;  // the other part has it
                    const Part part_of_sum(two[0], two[1]);
                    if (owner == block.rank) own[i * WARP] = part_of_sum;
                    else st_async(there + i * WARP * sizeof(Part), barrier, part_of_sum.bits);
                }
            }
        }
        fence_proxy_async();  // images come there next
    }

    // As forward_first, by two warp groups. The second warp group begins when the first has nearly finished its products: one sends while the
    // other multiplies.
    template <class Wait>
    __device__ void forward(const uint4* images, Wait wait_to_send) const {
        constexpr int LEFT = 3;  // tiles left when the second warp group begins: as long as the signal takes
        const bool multiplies = block.warp_in_group < UNIT_WARPS;
        const auto weights = wgmma_descriptor(&factor(0, block.warp_in_group / 4 * 4), NEXT_FACTOR, HALF_EDGE * sizeof(uint4));
        const auto x = wgmma_descriptor(images + 2 * block.first_pair() * NEXT_IMAGES, NEXT_X, NEXT_IMAGES * sizeof(uint4));
        float sums[OWN_IMAGES][4] = {};
        if (block.warp_group == 1) bar_sync(FIRST_WARP_GROUP_HAS_BEGUN, THREADS);
        if (multiplies) {
            wgmma_fence();
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile) {
                if (tile == TILES - LEFT) wgmma_commit_group();
                wgmma_mma_async(sums, moved(weights, 2 * tile * NEXT_FACTOR), moved(x, 2 * tile * NEXT_X));
            }
            wgmma_commit_group();
            wgmma_wait_group<1>();
            if (block.warp_group == 0) bar_arrive(FIRST_WARP_GROUP_HAS_BEGUN, THREADS);
            wgmma_wait_group<0>();
        } else if (block.warp_group == 0) {
            bar_arrive(FIRST_WARP_GROUP_HAS_BEGUN, THREADS);
        }
        wait_to_send();
        if (!multiplies) return;
#pragma unroll
        for (int c = 0; c < ROW_CHUNKS; ++c) {
            const int chunk = first_chunk() + c, owner = block.owner_in_group(chunk);
            const unsigned barrier = mapa(shared_address(&block.barriers.parts[0][block.warp_group]), owner);
            Part* own = parts_of(block, chunk, 0) + block.first_pair() * WARP;
            const unsigned there = mapa(shared_address(own), owner);
#pragma unroll
            for (int i = 0; i < OWN_IMAGES / 2; ++i) {
                const Part part(sums_of(sums[2 * i], c), sums_of(sums[2 * i + 1], c));
                if (owner == block.rank) own[i * WARP] = part;
                else st_async(there + i * WARP * sizeof(Part), barrier, part.bits);
            }
        }
    }

    // sums += doutputs^T x, over a warp group's images.
    __device__ void add(const uint4* images, int warp_group, Sums& sums) const {
        const int first = warp_group * PAIRS_OF_GROUP;
        const Matrix* doutputs =
            block.at<Matrix>(plan.layers[0].exchange) + (first_chunk() * PAIRS + first) * 2 + block.right();
        const auto x = wgmma_descriptor(images + first_feature() * NEXT_FEATURES + 2 * first * NEXT_IMAGES,
                                   NEXT_IMAGES * sizeof(uint4), NEXT_FEATURES * sizeof(uint4));
        unsigned factors[PAIRS_OF_GROUP][4];
#pragma unroll
        for (int i = 0; i < PAIRS_OF_GROUP; ++i) {
            const uint4 d = ldmatrix<false>(row_of(doutputs + 2 * i, block.lower(), 2 * PAIRS, block.lane));
            factors[i][0] = d.x, factors[i][1] = d.y, factors[i][2] = d.z, factors[i][3] = d.w;
        }
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < PAIRS_OF_GROUP; ++i) {
            wgmma_mma_async(sums, factors[i], moved(x, 2 * i * NEXT_IMAGES * sizeof(uint4)));
        }
        wgmma_commit_group();
        wgmma_wait_group<0>();
    }

    // weights -= rate * sums. The next product by them must wait for all threads.
    __device__ void subtract(const Sums& sums, float rate) {
        for_all([&](float2& own, int i, int c) {
            const float2 sum = sums_of(sums[i], c);
            own = {own.x - rate * sum.x, own.y - rate * sum.y};
            put(factor(first_feature() + i, first_chunk() + c), own, block.lane);
        });
        fence_proxy_async();
    }

  private:
    static constexpr int NEXT_FACTOR = GROUP_CHUNKS * sizeof(Matrix), NEXT_X = NEXT_FEATURES * sizeof(uint4);

    // sums = weights^T x over so many tiles of features.
    template <int COUNT, int COLS>
    __device__ static void multiply(float (&sums)[COLS][4], unsigned long long weights, unsigned long long x) {
        constexpr int AT_ONCE = COLS >= 8 ? 8 : 0;
        keep_in_place(sums);
        wgmma_fence();
#pragma unroll
        for (int tile = 0; tile < COUNT; ++tile) {
            const auto left = moved_low(weights, 2 * tile * NEXT_FACTOR), right = moved_low(x, 2 * tile * NEXT_X);
            if constexpr (AT_ONCE > 0) wgmma_mma_async(reinterpret_cast<float(&)[8][4]>(sums), left, right);
            if constexpr (COLS > AT_ONCE) {
                wgmma_of_shared<false, false>(reinterpret_cast<float(&)[COLS - AT_ONCE][4]>(sums[AT_ONCE]), left,
                                              moved_low(right, AT_ONCE * NEXT_IMAGES * sizeof(uint4)),
                                              NEXT_IMAGES * sizeof(uint4), true);
            }
        }
        wgmma_commit_group();
        wgmma_wait_group<0>();
        keep_in_place(sums);
    }

    __device__ int first_chunk() const { return block.warp % UNIT_WARPS * ROW_CHUNKS; }
    __device__ int first_feature() const {
        return min(block.warp / UNIT_WARPS * OWN_FEATURES, 2 * TILES - OWN_FEATURES);
    }

    // Calls work(weights, i, c) for each of the warp's chunks of features by each of its chunks of units.
    template <class Work>
    __device__ void for_all(Work work) {
#pragma unroll
        for (int i = 0; i < OWN_FEATURES; ++i) {
#pragma unroll
            for (int c = 0; c < ROW_CHUNKS; ++c) work(weights[i][c], i, c);
        }
    }

    // The factor of a chunk of features by a chunk of units.
    __device__ Matrix& factor(int feature, int chunk) const {
        return block.at<Matrix>(plan.layers[0].weights)[feature * GROUP_CHUNKS + chunk];
    }

    const Block& block;
    float2 weights[OWN_FEATURES][ROW_CHUNKS] = {};  // times WEIGHT_SCALE
};

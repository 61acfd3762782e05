#pragma once
#include "mlp_first_layer.cuh"
#include "warpgroup.cuh"

// The first layer's two passes by warpgroups, which multiply faster than single warps do, for the size that there are
// instructions for here: eight chunks of units, four to a warpgroup and one to each of its warps; 16 chunks of images and
// 26 of features, halved between warpgroups.
constexpr int OWN_IMAGES = 8, OWN_FEATURES = 13;  // chunks of a warpgroup
constexpr bool BY_WARPGROUPS = HAS_WARPGROUPS && WARPS == 16 && GROUP_CHUNKS == 8 && PAIRS == OWN_IMAGES && TILES == OWN_FEATURES;

struct Warpgroup {
    int half, chunk;  // of images or features; of units, this warp's own

    __device__ explicit Warpgroup(const Block& block) : half(block.warp / 8), chunk(block.warp % 8) {}
};

// As forward_first.
template <class Wait>
__device__ void forward_by_warpgroups(const Block& block, const uint4* images, Wait wait_to_send) {
    constexpr int AT_A_TIME = 2;  // of tiles, whose weights are split while those before are multiplied
    const Warpgroup own(block);
    const float2* weights = block.at<float2>(plan.layers[0].weights) + block.lane;
    const uint4* x = images + own.half * OWN_IMAGES * NEXT_IMAGES;
    float sums[OWN_IMAGES][4] = {};
    unsigned factors[TILES][4];
#pragma unroll
    for (int first = 0; first < TILES; first += AT_A_TIME) {
        const int end = min(first + AT_A_TIME, TILES);
#pragma unroll
        for (int tile = first; tile < end; ++tile) split_weights(weights, tile, own.chunk, factors[tile]);
        begin_products();
#pragma unroll
        for (int tile = first; tile < end; ++tile) {
            multiply_add_async(sums, factors[tile],
                               right_factor(x + 2 * tile * NEXT_FEATURES, NEXT_FEATURES * sizeof(uint4),
                                            NEXT_IMAGES * sizeof(uint4)));
        }
    }
    wait_for_products();
    wait_to_send();
    const int owner = block.owner_in_group(own.chunk);
    const unsigned barrier = address_in(shared_address(&block.barriers.parts[0]), owner);
    const unsigned parts = address_in(shared_address(parts_of(block, own.chunk, 0) + own.half * OWN_IMAGES / 2 * WARP), owner);
#pragma unroll
    for (int i = 0; i < OWN_IMAGES / 2; ++i) {
        send(parts + i * WARP * sizeof(uint4), barrier, bits_of(added_up(sums[2 * i]), added_up(sums[2 * i + 1])));
    }
}

// As update_first.
__device__ inline void update_by_warpgroups(const Block& block, const uint4* images, float rate) {
    const Warpgroup own(block);
    const uint4* doutputs = block.at<uint4>(plan.layers[0].exchange) + own.chunk * PAIRS * WARP + block.lane;
    const uint4* x = images + own.half * OWN_FEATURES * NEXT_FEATURES;
    unsigned factors[PAIRS][4];
#pragma unroll
    for (int pair = 0; pair < PAIRS; ++pair) {
        const uint4 halves = load_rows(doutputs + pair * WARP);
        factors[pair][0] = halves.x, factors[pair][1] = halves.y, factors[pair][2] = halves.z, factors[pair][3] = halves.w;
    }
    float sums[OWN_FEATURES][4] = {};
    begin_products();
#pragma unroll
    for (int pair = 0; pair < PAIRS; ++pair) {
        multiply_add_async(sums, factors[pair],
                           right_factor(x + 2 * pair * NEXT_IMAGES, NEXT_IMAGES * sizeof(uint4),
                                        NEXT_FEATURES * sizeof(uint4)));
    }
    wait_for_products();
    float2* weights = block.at<float2>(plan.layers[0].weights) + block.lane;
#pragma unroll
    for (int i = 0; i < OWN_FEATURES; ++i) {
        subtract(weights[((own.half * OWN_FEATURES + i) * GROUP_CHUNKS + own.chunk) * WARP], rate, sums[i]);
    }
}

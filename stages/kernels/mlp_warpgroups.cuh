#pragma once
#include "mlp_first_layer.cuh"

// The first layer's two passes by warpgroups: each warp has a chunk of units, and each crew a half of what these are
// multiplied by, images forward and features in the update.

// As forward_first. The second crew begins when the first has all its products under way: what one finishes is sent while
// the other multiplies.
template <class Wait>
__device__ void forward_by_warpgroups(const Block& block, const uint4* images, Wait wait_to_send) {
    // Tiles, whose weights are split while those before are multiplied: more of them have fewer fences, each of which waits
    // for the products before it, but all of them at once leave the tensor cores nothing to do while the first are split.
    constexpr int AT_A_TIME = 4;
    const int chunk = block.crew_warp, owner = block.owner_in_group(chunk);
    const float2* weights = block.at<float2>(plan.layers[0].weights) + block.lane;
    const uint4* x = images + 2 * block.first_pair() * NEXT_IMAGES;
    float sums[OWN_IMAGES][4] = {};
    unsigned factors[TILES][4];
    if (block.crew == 1) wait_for_warps(FIRST_CREW_HAS_BEGUN, THREADS);
#pragma unroll
    for (int first = 0; first < TILES; first += AT_A_TIME) {
        const int end = min(first + AT_A_TIME, TILES);
#pragma unroll
        for (int tile = first; tile < end; ++tile) split_weights(weights, tile, chunk, factors[tile]);
        begin_products();
#pragma unroll
        for (int tile = first; tile < end; ++tile) {
            multiply_add_async(sums, factors[tile],
                               right_factor(x + 2 * tile * NEXT_FEATURES, NEXT_FEATURES * sizeof(uint4),
                                            NEXT_IMAGES * sizeof(uint4)));
        }
    }
    end_products();
    if (block.crew == 0) tell_warps(FIRST_CREW_HAS_BEGUN, THREADS);
    wait_for_products();
    wait_to_send();
    const unsigned barrier = address_in(shared_address(&block.barriers.parts[0][block.crew]), owner);
    const unsigned parts = address_in(shared_address(parts_of(block, chunk, 0) + block.first_pair() * WARP), owner);
#pragma unroll
    for (int i = 0; i < OWN_IMAGES / 2; ++i) {
        send(parts + i * WARP * sizeof(uint4), barrier, bits_of(added_up(sums[2 * i]), added_up(sums[2 * i + 1])));
    }
}

// As update_first, but a crew's images at a time.
class FirstUpdate {
  public:
    __device__ FirstUpdate(const Block& block, const uint4* images)
        : block(block), images(images + block.crew * OWN_FEATURES * NEXT_FEATURES) {}

    // sums += doutputs^T x, of the images that a crew has.
    __device__ void add(int crew) {
        const int first = crew * CREW_PAIRS;
        const uint4* doutputs =
            block.at<uint4>(plan.layers[0].exchange) + (block.crew_warp * PAIRS + first) * WARP + block.lane;
        const uint4* x = images + 2 * first * NEXT_IMAGES;
        unsigned factors[CREW_PAIRS][4];
#pragma unroll
        for (int i = 0; i < CREW_PAIRS; ++i) {
            const uint4 halves = load_rows(doutputs + i * WARP);
            factors[i][0] = halves.x, factors[i][1] = halves.y, factors[i][2] = halves.z, factors[i][3] = halves.w;
        }
        begin_products();
#pragma unroll
        for (int i = 0; i < CREW_PAIRS; ++i) {
            multiply_add_async(sums, factors[i],
                               right_factor(x + 2 * i * NEXT_IMAGES, NEXT_IMAGES * sizeof(uint4),
                                            NEXT_FEATURES * sizeof(uint4)));
        }
        end_products();
        wait_for_products();
    }

    // weights -= rate * sums.
    __device__ void subtract_from_weights(float rate) const {
        float2* weights = block.at<float2>(plan.layers[0].weights) + block.lane;
#pragma unroll
        for (int i = 0; i < OWN_FEATURES; ++i) {
            subtract(weights[((block.crew * OWN_FEATURES + i) * GROUP_CHUNKS + block.crew_warp) * WARP], rate, sums[i]);
        }
    }

  private:
    const Block& block;
    const uint4* images;  // this crew's features of them
    float sums[OWN_FEATURES][4] = {};
};

#pragma once
#include "cluster/epoch.cuh"

// The softmax of a block's eight images, spread over a warp: in lane 4g + t, numbers i and i + 2 belong to image 2t + i,
// and to classes g and g + 8.
struct ImageSoftmax {
    float logits[4];           // NO_CLASS for padded classes
    float powers[4];           // e^(logit - the image's largest)
    float largest[2], sum[2];  // over an image's logits, and its powers; the same in eight lanes

    // From the four head warps' shares of the logits.
    __device__ ImageSoftmax(const float4 (&shares)[HEAD_WARPS][WARP], const Classes& classes) {
        const int lane = threadIdx.x % WARP;
        float4 total = shares[0][lane];
#pragma unroll
        for (int i = 1; i < HEAD_WARPS; ++i) {
            const float4 share = shares[i][lane];
            total.x += share.x, total.y += share.y, total.z += share.z, total.w += share.w;
        }
        logits[0] = classes.has_upper ? total.x : NO_CLASS, logits[1] = classes.has_upper ? total.y : NO_CLASS;
        logits[2] = classes.has_lower ? total.z : NO_CLASS, logits[3] = classes.has_lower ? total.w : NO_CLASS;
#pragma unroll
        for (int i = 0; i < 2; ++i) largest[i] = fmaxf(logits[i], logits[i + 2]);
#pragma unroll
        for (int lanes = 4; lanes < WARP; lanes *= 2) {
#pragma unroll
            for (int i = 0; i < 2; ++i) largest[i] = fmaxf(largest[i], __shfl_xor_sync(~0u, largest[i], lanes));
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            // Relative error |x| 2^-24; in absolute terms at most 2^-25, since e^x falls faster than |x| grows.
            powers[i] = __expf(logits[i] - largest[i]);
            powers[i + 2] = __expf(logits[i + 2] - largest[i]);
            sum[i] = powers[i] + powers[i + 2];
        }
#pragma unroll
        for (int lanes = 4; lanes < WARP; lanes *= 2) {
#pragma unroll
            for (int i = 0; i < 2; ++i) sum[i] += __shfl_xor_sync(~0u, sum[i], lanes);
        }
    }
};

#pragma once
#include "mlp_plan.cuh"

// The softmax of the eight images that a block has, by the first warp of their crew. With g = lane / 4 and t = lane % 4 a lane has
// classes g and g + 8 of images 2t and 2t + 1.
class Head {
  public:
    __device__ Head(const Block& block, const int* labels)
        : block(block), labels(labels), image(block.rank * TILE + block.lane % 4 * 2) {}

    // Labels of a step's images, early; -1 for an image that the batch has not.
    __device__ void load(int step) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const bool is_there = image + i < plan.batch;
            wanted[i] = is_there ? __ldg(labels + step * plan.batch + image + i) : -1;
        }
    }

    // GRADIENT_SCALE times dlogits, to where they belong in this block.
    __device__ void run() {
        add_up();
        const int upper = block.lane / 4;
        float dlogits[CLASS_CHUNKS][2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float first = logits[0][i], second = logits[1][i];
            largest[i] = over_classes(fmaxf(first, second), [](float a, float b) { return fmaxf(a, b); });
            const float powers[2] = {expf(first - largest[i]), expf(second - largest[i])};
            sum[i] = over_classes(powers[0] + powers[1], [](float a, float b) { return a + b; });
            const float scale = wanted[i] < 0 ? 0.0f : __fdividef(GRADIENT_SCALE, sum[i]);
#pragma unroll
            for (int c = 0; c < CLASS_CHUNKS; ++c) {
                dlogits[c][i] = powers[c] * scale - (upper + c * TILE == wanted[i] ? GRADIENT_SCALE : 0.0f);
            }
        }
#pragma unroll
        for (int c = 0; c < CLASS_CHUNKS; ++c) put(own_dlogits(c), {dlogits[c][0], dlogits[c][1]}, block.lane);
    }

    // From there to the other blocks, by all warps of the crew, as many blocks at once as have enough lanes.
    __device__ void share() const {
        constexpr int ROWS = sizeof(Matrix) / sizeof(uint4), READERS = WARP / (CLASS_CHUNKS * ROWS);
        const int row = block.lane % (CLASS_CHUNKS * ROWS);
        const uint4* part = reinterpret_cast<const uint4*>(&own_dlogits(row / ROWS)) + row % ROWS;
        const unsigned own = shared_address(part), barrier = shared_address(&block.barriers.doutputs[LAST][block.crew]);
        deal_out<BLOCKS / READERS>(block, [&](int task) {
            const int reader = task * READERS + block.lane / (CLASS_CHUNKS * ROWS);
            if (reader != block.rank) send(address_in(own, reader), address_in(barrier, reader), *part);
        });
    }

    // By the warp that ran last, while what was shared is on its way.
    __device__ void add_to_totals() {
#pragma unroll
        for (int i = 0; i < 2; ++i) add_to_totals(logits[0][i], logits[1][i], largest[i], sum[i], wanted[i]);
    }

    // That warp's sums, in its first lane.
    __device__ void add_up_totals() {
        for (int lanes = WARP / 2; lanes > 0; lanes /= 2) {
            loss += __shfl_xor_sync(~0u, loss, lanes);
            correct += __shfl_xor_sync(~0u, correct, lanes);
        }
    }

    double loss = 0.0, correct = 0.0;

  private:
    // What the senders sent, and the biases.
    __device__ void add_up() {
        const Part* parts = block.at<Part>(plan.logits) + block.lane;
        float4 all = parts[0].numbers();
#pragma unroll
        for (int sender = 1; sender < BLOCKS; ++sender) {
            const float4 part = parts[sender * WARP].numbers();
            all.x += part.x, all.y += part.y, all.z += part.z, all.w += part.w;
        }
        const float sums[CLASS_CHUNKS][2] = {{all.x, all.y}, {all.z, all.w}};
        const int upper = block.lane / 4;
#pragma unroll
        for (int c = 0; c < CLASS_CHUNKS; ++c) {
            const float bias = block.at<float>(classes.biases)[c * TILE + upper];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float logit = sums[c][i] / (WEIGHT_SCALE * OUTPUT_SCALE) + bias;
                logits[c][i] = upper + c * TILE < classes.units ? logit : NO_CLASS;
            }
        }
    }

    // An image is right if the first of its largest logits is its label's.
    __device__ void add_to_totals(float first, float second, float largest, float sum, int label) {
        const int upper = block.lane / 4, none = CLASS_CHUNKS * TILE;
        const int candidate = first == largest ? upper : second == largest ? upper + TILE : none;
        const int best = over_classes(candidate, [](int a, int b) { return min(a, b); });
        if (label == upper) loss += largest - first;
        if (label == upper + TILE) loss += largest - second;
        if (upper == 0 && label >= 0) {
            loss += logf(sum);
            correct += best == label;
        }
    }

    template <class Number, class Join>
    __device__ static Number over_classes(Number number, Join join) {
#pragma unroll
        for (int lanes = 4; lanes < WARP; lanes *= 2) number = join(number, __shfl_xor_sync(~0u, number, lanes));
        return number;
    }

    __device__ Matrix& own_dlogits(int chunk) const {
        return block.at<Matrix>(classes.exchange)[chunk * 2 * PAIRS + block.rank];
    }

    static constexpr Layer classes = plan.layers[LAST];

    const Block& block;
    const int* labels;
    const int image;  // the first of this lane's two
    int wanted[2];
    float logits[CLASS_CHUNKS][2], largest[2], sum[2];  // of the step
};

#pragma once
#include "cluster/mlp_plan.cuh"

// The softmax of the eight images that a block has, by the first warps of their warp_group, two images each: a lane has a class of
// an image.
class Head {
  public:
    __device__ Head(const Block& block, const int* labels)
        : block(block), labels(labels), own(block.lane / 2), image(block.rank * HALF_EDGE + block.warp_in_group * 2 + block.lane % 2) {}

    // The label of a step's image, early; -1 for an image that the batch has not.
    __device__ void load(int step) { wanted = image < plan.batch ? __ldg(labels + step * plan.batch + image) : -1; }

    // GRADIENT_SCALE times dlogits, to where they belong in this block.
    __device__ void run() {
        logit = own < classes.units ? added_up() + block.at<float>(classes.biases)[own] : NO_CLASS;
        largest = over_classes(logit, [](float a, float b) { return fmaxf(a, b); });
        const float power = expf(logit - largest);
        sum = over_classes(power, [](float a, float b) { return a + b; });
        const float scale = wanted < 0 ? 0.0f : __fdividef(GRADIENT_SCALE, sum);
        const float dlogit = power * scale - (own == wanted ? GRADIENT_SCALE : 0.0f);
        const float next = __shfl_xor_sync(~0u, dlogit, 1);  // image
        if (block.lane % 2 == 0) put(own_dlogits(own / HALF_EDGE), {dlogit, next}, place());
    }

    // From there to the other blocks, by all warps of the warp_group, as many blocks at once as have enough lanes.
    __device__ void share() const {
        constexpr int ROWS = sizeof(Matrix) / sizeof(uint4), READERS = WARP / (CLASS_CHUNKS * ROWS);
        const int row = block.lane % (CLASS_CHUNKS * ROWS);
        const uint4* part = reinterpret_cast<const uint4*>(&own_dlogits(row / ROWS)) + row % ROWS;
        const unsigned own = shared_address(part), barrier = shared_address(&block.barriers.doutputs[LAST][block.warp_group]);
        deal_out<BLOCKS / READERS>(block, [&](int task) {
            const int reader = task * READERS + block.lane / (CLASS_CHUNKS * ROWS);
            if (reader != block.rank) send(address_in(own, reader), address_in(barrier, reader), *part);
        });
    }

    // By the warps that ran last, while what was shared is on its way: summed loss and number right of this warp's images are
    // added to `totals`. An image is right if the first of its largest logits is its label's.
    __device__ void add_to_totals(double2& totals) const {
        const int best = over_classes(logit == largest ? own : CLASS_CHUNKS * HALF_EDGE, [](int a, int b) { return min(a, b); });
        float loss = own == wanted ? largest - logit : 0.0f;
        float correct = 0.0f;
        if (own == 0 && wanted >= 0) {
            loss += logf(sum);
            correct = best == wanted;
        }
        for (int lanes = WARP / 2; lanes > 0; lanes /= 2) {
            loss += __shfl_xor_sync(~0u, loss, lanes);
            correct += __shfl_xor_sync(~0u, correct, lanes);
        }
        if (block.lane == 0) totals.x += loss, totals.y += correct;
    }

  private:
    // Where two images of a class are among a matrix's pairs of numbers.
    __device__ int place() const { return own % HALF_EDGE * (HALF_EDGE / 2) + block.warp_in_group; }

    // What the senders sent. Of a class and an image each has a lane's first two numbers or, of a class above the eighth, its
    // other two. Not from one sender at the same time: numbers of every other class would come from the same banks.
    __device__ float added_up() const {
        const Part* parts = block.at<Part>(plan.logits) + place();
        const int which = own / HALF_EDGE * 2 + block.lane % 2;
        float sums[4] = {};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const Part* from = parts + (i ^ own % HALF_EDGE / 2) * NEXT_SENDER;
#pragma unroll
            for (int sender = 0; sender < BLOCKS; sender += 4) sums[i] += from[sender * NEXT_SENDER].number(which);
        }
        return (sums[0] + sums[1] + sums[2] + sums[3]) / (WEIGHT_SCALE * OUTPUT_SCALE);
    }

    template <class Number, class Join>
    __device__ static Number over_classes(Number number, Join join) {
#pragma unroll
        for (int lanes = 2; lanes < WARP; lanes *= 2) number = join(number, __shfl_xor_sync(~0u, number, lanes));
        return number;
    }

    __device__ Matrix& own_dlogits(int chunk) const {
        return block.at<Matrix>(classes.exchange)[chunk * 2 * PAIRS + block.rank];
    }

    static constexpr Layer classes = plan.layers[LAST];

    const Block& block;
    const int* labels;
    const int own, image;  // class and image of this lane
    int wanted;
    float logit, largest, sum;  // of the step
};

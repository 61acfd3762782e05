#pragma once
#include "cluster/mlp_plan.cuh"

// The softmax of the block's eight images, by the first four warps of their warp group, two images each. Lane 2c + i has class c
// of image i.
class Head {
  public:
    __device__ Head(const Block& block, const int* labels)
        : block(block), labels(labels), own(block.lane / 2), image(block.rank * HALF_EDGE + block.warp_in_group * 2 + block.lane % 2) {}

    // Loads the label of a step's image, early; -1 beyond the batch.
    __device__ void load(int step) { wanted = image < plan.batch ? __ldg(labels + step * plan.batch + image) : -1; }

    // Writes dlogits times GRADIENT_SCALE to their place in this block.
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

    // Sends them from there to the other blocks; all warps of the warp group do, a warp to several blocks at once.
    __device__ void share() const {
        constexpr int ROWS = sizeof(Matrix) / sizeof(uint4), READERS = WARP / (CLASS_CHUNKS * ROWS);
        const int row = block.lane % (CLASS_CHUNKS * ROWS);
        const uint4* part = reinterpret_cast<const uint4*>(&own_dlogits(row / ROWS)) + row % ROWS;
        const unsigned own = shared_address(part), barrier = shared_address(&block.barriers.doutputs[LAST][block.warp_group]);
        deal_out<BLOCKS / READERS>(block, [&](int task) {
            const int reader = task * READERS + block.lane / (CLASS_CHUNKS * ROWS);
            if (reader != block.rank) st_async(mapa(own, reader), mapa(barrier, reader), *part);
        });
    }

    // Adds the summed loss and number right of this warp's images to `totals`, while the messages travel; for the warps that
    // called run. An image is right if the first of its largest logits is its label's.
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
    // The index of this warp's two images of a class among a matrix's pairs of numbers.
    __device__ int place() const { return own % HALF_EDGE * (HALF_EDGE / 2) + block.warp_in_group; }

    // The sum of the senders' parts for this lane's class and image. Classes 0 to 7 are a lane's first two numbers, the others
    // its last two. Lanes begin with different senders: with the same one, every other class would hit the same banks.
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

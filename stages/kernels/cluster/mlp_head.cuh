#pragma once
#include "cluster/mlp_plan.cuh"

// The softmax of the block's images, eight by each four warps of their warp group, two images a warp. Lane 2c + i has classes
// c, c + 16, .. of image i.
class Head {
  public:
    __device__ Head(const Block& block, const int* labels)
        : block(block), labels(labels), own(block.lane / 2) {}

    // Loads the label of a step's image, early; -1 beyond the batch.
    __device__ void load(int step) {
        const int image = images(head()) * HALF_EDGE + block.warp_in_group % HEAD_WARPS * 2 + block.lane % 2;
        wanted = image < plan.batch ? __ldg(labels + step * plan.batch + image) : -1;
    }

    // Writes dlogits times GRADIENT_SCALE to their place in this block.
    __device__ void run() {
        largest = NO_CLASS;
#pragma unroll
        for (int pair = 0; pair < CLASS_PAIRS; ++pair) {
            const int c = pair * EDGE + own;
            logits[pair] = c < classes.units ? added_up(pair) + block.at<float>(classes.biases)[c] : NO_CLASS;
            largest = fmaxf(largest, logits[pair]);
        }
        largest = over_classes(largest, [](float a, float b) { return fmaxf(a, b); });
        float powers[CLASS_PAIRS];
        sum = 0.0f;
#pragma unroll
        for (int pair = 0; pair < CLASS_PAIRS; ++pair) sum += powers[pair] = expf(logits[pair] - largest);
        sum = over_classes(sum, [](float a, float b) { return a + b; });
        const float scale = wanted < 0 ? 0.0f : __fdividef(GRADIENT_SCALE, sum);
#pragma unroll
        for (int pair = 0; pair < CLASS_PAIRS; ++pair) {
            const int c = pair * EDGE + own;
            const float dlogit = powers[pair] * scale - (c == wanted ? GRADIENT_SCALE : 0.0f);
            const float next = __shfl_xor_sync(~0u, dlogit, 1);  // image
            if (block.lane % 2 == 0) put(own_dlogits(c / HALF_EDGE, head()), {dlogit, next}, place());
        }
    }

    // Sends them from there to the other blocks; all warps of the warp group do, a warp to several blocks at once.
    __device__ void share() const {
        constexpr int ROWS = sizeof(Matrix) / sizeof(uint4), READERS = WARP / (2 * ROWS);
        const int row = block.lane % (2 * ROWS);
        const unsigned barrier = shared_address(&block.barriers.doutputs[LAST][block.warp_group]);
        deal_out<HEADS * CLASS_PAIRS * BLOCKS / READERS>(block, [&](int task) {
            const int reader = task % (BLOCKS / READERS) * READERS + block.lane / (2 * ROWS);
            const int pair = task / (BLOCKS / READERS) % CLASS_PAIRS, head = task / (BLOCKS / READERS * CLASS_PAIRS);
            const uint4* part = reinterpret_cast<const uint4*>(&own_dlogits(pair * 2 + row / ROWS, head)) + row % ROWS;
            if (reader != block.rank && head < block.heads()) st_async(mapa(shared_address(part), reader), mapa(barrier, reader), *part);
        });
    }

    // Adds the summed loss and number right of this warp's images to `totals`, while the messages travel; for the warps that
    // called run. An image is right if the first of its largest logits is its label's.
    __device__ void add_to_totals(double2& totals) const {
        int best = CLASS_CHUNKS * HALF_EDGE;
        float loss = 0.0f, correct = 0.0f;
#pragma unroll
        for (int pair = CLASS_PAIRS - 1; pair >= 0; --pair) {
            if (logits[pair] == largest) best = pair * EDGE + own;
            if (pair * EDGE + own == wanted) loss = largest - logits[pair];
        }
        best = over_classes(best, [](int a, int b) { return min(a, b); });
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
    // Which of the block's chunks of images this warp has two of; and which of the batch's that is.
    __device__ int head() const { return HEADS == 1 ? 0 : block.warp_in_group / HEAD_WARPS; }
    __device__ int images(int head) const { return block.rank + head * BLOCKS; }
    // The index of these two images of a class among a matrix's pairs of numbers.
    __device__ int place() const { return own % HALF_EDGE * (HALF_EDGE / 2) + block.warp_in_group % HEAD_WARPS; }

    // The sum of the senders' parts for this lane's image and its class of a pair of chunks. Classes 0 to 7 are a lane's first two numbers, the others
    // its last two. Lanes begin with different senders: with the same one, every other class would hit the same banks.
    __device__ float added_up(int pair) const {
        const Part* parts = block.at<Part>(plan.logits) + head() * BLOCKS * NEXT_SENDER + pair * WARP + place();
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

    __device__ Matrix& own_dlogits(int chunk, int head) const {
        return block.at<Matrix>(classes.exchange)[chunk * 2 * PAIRS + images(head)];
    }

    static constexpr Layer classes = plan.layers[LAST];

    const Block& block;
    const int* labels;
    const int own;  // class of each sixteen of this lane
    int wanted;
    float logits[CLASS_PAIRS], largest, sum;  // of the step
};

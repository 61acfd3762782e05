// Softmax and cross-entropy of a block's images, where blocks share out the batch and each has all logits of its own.
#pragma once
#include "grid/message_parts.cuh"

// TILES of sixteen images, whose logits are the sum of so many PARTS, each as the fragments of its products: (PARTS, TILES, EDGES,
// 32, 4). Of every eight classes a thread has one of an image.
template <int CLASSES, int TILES, int PARTS>
class DividedSoftmax {
  public:
    static constexpr int QUAD = 4 * WARP, THREADS = TILES * QUAD;                         // numbers of a fragment; those that work
    static constexpr int EDGES = (CLASSES - 1) / EDGE + 1, EDGE_PAIRS = (EDGES + 1) / 2;  // of classes
    static constexpr int DLOGIT_NUMBERS = TILES * 4 * EDGE_PAIRS * MATRIX;

    // `first` is the block's first image.
    __device__ DividedSoftmax(const int* labels, int first, int batch)
        : labels(labels), number(threadIdx.x % QUAD), tile(threadIdx.x / QUAD),
          image(first + tile * 16 + number / 16 + number / 2 % 2 * EDGE), batch(batch) {}

    __device__ bool works() const { return threadIdx.x < THREADS; }

    // Reads a step's label, early: it comes from memory.
    __device__ void begin(int step) { label = works() && image < batch ? labels[step * batch + image] : -1; }

    // Leaves the logits' gradients, times GRADIENT_SCALE, as matrices (HALVES, 2 TILES, 2 EDGE_PAIRS, 8, 8) of images by classes.
    __device__ void run(const float* parts, unsigned short* dlogits, bool with_totals) {
        const int first = number / 4 % 4 * 2 + number % 2;
        float logits[EDGES], largest = -3.4e38f, sum = 0.0f;
#pragma unroll
        for (int e = 0; e < EDGES; ++e) {
            const float* from = parts + (tile * EDGES + e) * QUAD + number;
            float two[2] = {};
#pragma unroll
            for (int i = 0; i < PARTS; ++i) two[i % 2] += from[i * TILES * EDGES * QUAD];
            logits[e] = e * EDGE + first < CLASSES ? two[0] + two[1] : -3.4e38f;
            largest = fmaxf(largest, logits[e]);
        }
        largest = over_classes(largest, [](float a, float b) { return fmaxf(a, b); });
        float powers[EDGES];
#pragma unroll
        for (int e = 0; e < EDGES; ++e) sum += powers[e] = __expf(logits[e] - largest);
        sum = over_classes(sum, [](float a, float b) { return a + b; });
        const float scale = label < 0 ? 0.0f : __fdividef(GRADIENT_SCALE, sum);
#pragma unroll
        for (int e = 0; e < EDGES; ++e) {
            const float own = powers[e] * scale - (e * EDGE + first == label ? GRADIENT_SCALE : 0.0f);
            const float next = __shfl_xor_sync(~0u, own, 1);  // class
            if (number % 2 == 1) continue;
            const Halves halves = halves_of(own, next);
            auto* to = reinterpret_cast<unsigned*>(dlogits + ((tile * 2 + number / 2 % 2) * 2 * EDGE_PAIRS + e) * MATRIX) + number / 4;
            to[0] = halves.high;
            if constexpr (HALVES == 2) to[DLOGIT_NUMBERS / 2] = halves.low;
        }
        if (!with_totals) return;
        int best = CLASSES;
#pragma unroll
        for (int e = EDGES - 1; e >= 0; --e) {
            if (logits[e] == largest) best = e * EDGE + first;
            if (e * EDGE + first == label) loss += largest - logits[e];
        }
        best = over_classes(best, [](int a, int b) { return min(a, b); });
        if (first == 0 && label >= 0) loss += logf(sum), correct += best == label;
    }

    // Adds the sums of all `blocks` that call it to `all`, in one order: threads, then blocks. `memory` is shared; `mail` has a
    // unit of each block.
    __device__ void add_totals(double* all, char* memory, uint4* mail, int block, int blocks) const {
        auto* own = reinterpret_cast<double(*)[2]>(memory);
        __syncthreads();
        if (works()) own[threadIdx.x][0] = loss, own[threadIdx.x][1] = correct;
        __syncthreads();
        if (threadIdx.x >= WARP) return;
        double both[2] = {};
        for (int i = 0; i < THREADS; ++i) both[0] += own[i][0], both[1] += own[i][1];
        uint4 unit;
        memcpy(&unit, both, sizeof unit);
        unit.x |= 1u;
        if (threadIdx.x == 0) post(mail + block, unit);
        if (block != 0) return;
        for (int other = 0; other < blocks; ++other) {
            uint4 units[1] = {{0, 0, 0, 0}};
            complete(units, 1, [&](int) { return mail + other; });
            memcpy(both, units, sizeof both);
            if (threadIdx.x == 0) all[0] += both[0], all[1] += both[1];
        }
    }

  private:
    template <class Number, class Join>
    __device__ static Number over_classes(Number number, Join join) {
        number = join(number, __shfl_xor_sync(~0u, number, 1));
        number = join(number, __shfl_xor_sync(~0u, number, 4));
        return join(number, __shfl_xor_sync(~0u, number, 8));
    }

    const int* labels;
    const int number, tile, image, batch;  // of this thread
    int label;                             // -1 beyond the batch
    double loss = 0.0, correct = 0.0;
};

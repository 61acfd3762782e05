#pragma once
#include "mlp_first_layer.cuh"
#include "mlp_head.cuh"
#include "mlp_layer.cuh"
#include "mlp_warpgroups.cuh"

// The phases of a step in order, and what has to be waited for between them.
class Epoch {
  public:
    __device__ Epoch(const Block& block, const uint4* images, const int* labels, int steps, float learning_rate)
        : block(block), images(images), steps(steps), rate(learning_rate / plan.batch / GRADIENT_SCALE),
          head(block, labels) {}

    // One thread makes the barriers, each for the messages of one step after the other.
    __device__ void begin() {
        Barriers& barriers = block.barriers;
        for (Barrier& barrier : barriers.fetched) make_barrier(barrier, 1);
        for (int index = 0; index <= LAST; ++index) {
            make_barrier(barriers.parts[index], 1);
            make_barrier(barriers.doutputs[index], 1);
        }
        publish_barriers();
        for (int index = 0; index <= LAST; ++index) {
            expect_bytes(barriers.parts[index], bytes_of_parts(index));
            expect_bytes(barriers.doutputs[index], bytes_of_doutputs(index));
        }
        fetch_images(0);
    }

    __device__ void train(int step, bool with_totals) {
        parity = step % 2;
        const uint4* batch = block.at<uint4>(plan.images[0] + parity * (plan.images[1] - plan.images[0]));
        if (block.warp == 0) head.load(step);
        wait_for(block.barriers.fetched[parity], step / 2 % 2);
        // Others may still be reading what they received in the last step.
        const auto wait_to_send = [&] { if (step > 0) hear_cluster(); };
        if constexpr (BY_WARPGROUPS) forward_by_warpgroups(block, batch, wait_to_send);
        else forward_first(block, batch, wait_to_send);
        if (SPLIT == 1) __syncthreads();
        else receive(block.barriers.parts[0], bytes_of_parts(0));
        collect<0>(block);
        forward_from<1>();
        // While all wait for logits or dlogits, by a warp that has no head.
        if (threadIdx.x == THREADS - WARP) fetch_images(step + 1);

        if (block.has_head()) {
            receive(block.barriers.parts[LAST], bytes_of_parts(LAST));
            if (block.warp == 0) head.run();
            __syncthreads();
            head.share();
            if (with_totals && block.warp == 0) head.add_to_totals();
        }
        receive(block.barriers.doutputs[LAST], bytes_of_doutputs(LAST));
        backward_from<LAST>();
        if constexpr (BY_WARPGROUPS) update_by_warpgroups(block, batch, WEIGHT_SCALE * rate);
        else update_first(block, batch, WEIGHT_SCALE * rate);
        update_biases<0>(block, rate);
        __syncthreads();
        tell_cluster();
    }

    __device__ void end() { hear_cluster(); }

    // Summed loss and number right of this block's images, in the first thread.
    __device__ double2 totals() {
        if (block.warp == 0) head.add_up_totals();
        return {head.loss, head.correct};
    }

  private:
    template <int INDEX>
    __device__ void forward_from() {
        __syncthreads();
        if constexpr (INDEX == LAST) {
            forward_classes(block);
        } else {
            forward<INDEX>(block);
            receive(block.barriers.parts[INDEX], bytes_of_parts(INDEX));
            collect<INDEX>(block);
            forward_from<INDEX + 1>();
        }
    }

    template <int INDEX>
    __device__ void backward_from() {
        constexpr bool HAS_READERS = INDEX > 1 || SPLIT > 1;
        backward<INDEX>(block);
        __syncthreads();
        if constexpr (HAS_READERS) share<INDEX - 1>(block);
        update<INDEX>(block, WEIGHT_SCALE / OUTPUT_SCALE * rate);
        update_biases<INDEX>(block, rate);
        if constexpr (HAS_READERS) receive(block.barriers.doutputs[INDEX - 1], bytes_of_doutputs(INDEX - 1));
        if constexpr (INDEX > 1) backward_from<INDEX - 1>();
    }

    // Waits for a step's messages, and expects as many in the next one.
    __device__ void receive(Barrier& barrier, int bytes) {
        wait_for(barrier, parity);
        if (threadIdx.x == 0) expect_bytes(barrier, bytes);
    }

    __device__ static int slots_of(int index) {
        constexpr int SLOTS[] = {plan.layers[0].slots, plan.layers[1].slots, plan.layers[2].slots,
                                 plan.layers[3].slots};
        return SLOTS[index];
    }

    __device__ static int bytes_of_parts(int index) {
        constexpr int PART = WARP * sizeof(uint4);
        if (index == LAST) return BLOCKS * PART;
        return (index == 0 ? SPLIT * WAYS : BLOCKS) * slots_of(index) * PAIRS * PART;
    }

    // Without the block's own.
    __device__ int bytes_of_doutputs(int index) const {
        if (index == LAST) return (2 * PAIRS - block.has_head()) * CLASS_CHUNKS * static_cast<int>(sizeof(Matrix));
        const int senders = index == 0 ? SPLIT - 1 : BLOCKS - 1;
        return senders * slots_of(index) * 2 * PAIRS * static_cast<int>(sizeof(Matrix));
    }

    __device__ void fetch_images(int step) {
        if (step >= steps) return;
        const int from = (step * plan.group_tiles + block.member() * TILES) * PAIRS * WARP;
        constexpr int BYTES = TILES * PAIRS * WARP * static_cast<int>(sizeof(uint4));
        Barrier& fetched = block.barriers.fetched[step % 2];
        expect_bytes(fetched, BYTES);
        fetch(block.at<uint4>(step % 2 == 0 ? plan.images[0] : plan.images[1]), fetched, images + from, BYTES);
    }

    const Block& block;
    const uint4* images;
    const int steps;
    const float rate;  // what turns a sum of scaled doutputs into an update
    int parity = 0;    // of the step
    Head head;
};

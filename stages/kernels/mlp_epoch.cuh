#pragma once
#include "mlp_head.cuh"
#include "mlp_layer.cuh"

// The phases of a step in order, and what has to be waited for between them.
class Epoch {
  public:
    __device__ Epoch(const Block& block, Barrier (&fetched)[2], const uint4* images, const int* labels, int steps,
                     float learning_rate)
        : block(block), plan(block.plan), fetched(fetched), images(images), steps(steps), learning_rate(learning_rate),
          last(plan.depth - 1), head(block, labels) {}

    // Weights have to be here already.
    __device__ void begin() {
        for (int index = 1; index < plan.depth; ++index) {
            const Layer& layer = plan.layers[index];
            for (int i = block.warp; i < plan.layers[index - 1].slots * layer.chunks; i += WARPS) {
                Weights& weights = block.at<Weights>(layer.weights)[i];
                publish(weights, weights.values[block.lane], block.lane);
            }
        }
        if (threadIdx.x == 0) {
            for (Barrier& barrier : fetched) make_barrier(barrier, 1);
            publish_barriers();
            fetch_images(0);
        }
        wait_for_cluster();  // nobody sends to a block that has not begun
    }

    __device__ void train(int step, bool with_totals) {
        const uint4* batch = block.at<uint4>(plan.images[step % 2]);
        if (threadIdx.x == 0) fetch_images(step + 1);
        if (block.warp == 0) head.load(step);
        wait_for(fetched[step % 2], step / 2 % 2);

        // Others may still be reading what they received in the last step.
        const auto can_send = [&] { if (step > 0) hear_cluster(); };
        const bool in_twos = block.group_chunks() % 2 == 0;
        if (in_twos) forward_first<2>(block, batch, can_send);
        else forward_first<1>(block, batch, can_send);
        if (plan.split > 1) exchange();
        else __syncthreads();
        collect(block, 0);
        for (int index = 1; index <= last; ++index) {
            __syncthreads();
            forward(block, index);
            exchange();
            if (index < last) collect(block, index);
        }

        const bool has_head = block.rank < 2 * plan.pairs;
        if (has_head && block.warp == 0) head.run(with_totals);
        __syncthreads();
        if (has_head) head.share();
        exchange();
        for (int index = last; index > 0; --index) {
            backward(block, index);
            __syncthreads();
            const bool has_readers = index > 1 || plan.split > 1;
            if (has_readers) {
                share(block, index - 1);
                tell_cluster();
            }
            update(block, index, rate(OUTPUT_SCALE));
            update_biases(block, index, rate(1.0f));
            if (has_readers) hear_cluster();
        }
        if (in_twos) update_first<2>(block, batch, rate(1.0f));
        else update_first<1>(block, batch, rate(1.0f));
        update_biases(block, 0, rate(1.0f));
        tell_cluster();
        __syncthreads();
    }

    __device__ void end() { hear_cluster(); }

    // Summed loss and number right of this block's images, in the first thread.
    __device__ double2 totals() {
        if (block.warp == 0 && block.rank < 2 * plan.pairs) head.add_up_totals();
        return {head.loss, head.correct};
    }

  private:
    __device__ static void exchange() {
        tell_cluster();
        hear_cluster();
    }

    __device__ void fetch_images(int step) {
        if (step >= steps) return;
        const int bytes = plan.tiles * plan.pairs * WARP * static_cast<int>(sizeof(uint4));
        const int from = (step * plan.group_tiles + block.member() * plan.tiles) * plan.pairs * WARP;
        expect_bytes(fetched[step % 2], bytes);
        fetch(block.at<uint4>(plan.images[step % 2]), fetched[step % 2], images + from, bytes);
    }

    // What turns a sum of scaled products into an update.
    __device__ float rate(float scale) const { return learning_rate / plan.batch / (GRADIENT_SCALE * scale); }

    const Block& block;
    const Plan& plan;
    Barrier (&fetched)[2];
    const uint4* images;
    const int steps;
    const float learning_rate;
    const int last;  // layer
    Head head;
};

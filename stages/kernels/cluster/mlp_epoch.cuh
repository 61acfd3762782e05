#pragma once
#include "cluster/mlp_first_layer.cuh"
#include "cluster/mlp_head.cuh"
#include "cluster/mlp_layer.cuh"
#include "cluster/mlp_parameters.cuh"
#include "cluster/mlp_warpgroups.cuh"

// The phases of a step in order, and the waits between them.
class MlpEpoch {
  public:
    __device__ MlpEpoch(const Block& block, const uint4* images, const int* labels, int steps, float learning_rate)
        : block(block), images(images), steps(steps), rate(learning_rate / plan.batch / GRADIENT_SCALE),
          first(block), head(block, labels) {}

    // Calls copy(own, stored, scale) for every weight and bias that the block keeps, where own is scale times stored. Every
    // block keeps the classes' biases.
    template <class Copy>
    __device__ void copy_parameters(float* parameters, Copy copy) {
        if constexpr (BY_WGMMA) {
            first.copy_weights(parameters, copy);
        } else {
            float2* weights = block.at<float2>(plan.layers[0].weights) + block.lane;
#pragma unroll 1
            for (int i = block.warp; i < 2 * TILES * GROUP_CHUNKS; i += WARPS) {
                copy_first(block, parameters, i / GROUP_CHUNKS, i % GROUP_CHUNKS, weights[i * WARP], copy);
            }
        }
        copy_layers<1>(block, parameters, copy);
        copy_biases<0>(block, parameters, copy);
    }

    // Makes the mbarriers, and arms them for the first step's messages; one thread.
    __device__ void begin() {
        Barriers& barriers = block.barriers;
        for (Barrier& barrier : barriers.fetched) mbarrier_init(barrier, 1);
        for (int index = 0; index <= LAST; ++index) {
            for (Barrier& barrier : barriers.parts[index]) mbarrier_init(barrier, 1);
            for (Barrier& barrier : barriers.doutputs[index]) mbarrier_init(barrier, 1);
        }
        fence_mbarrier_init();
#pragma unroll
        for (int index = 0; index <= LAST; ++index) {
            for (int i = 0; i < (index == LAST ? 1 : index == 0 ? WARP_GROUPS : PORTIONS); ++i) {
                mbarrier_arrive_expect_tx(barriers.parts[index][i], bytes_of_parts(index));
            }
            for (int i = 0; i < (index == LAST ? WARP_GROUPS : PORTIONS); ++i) {
                mbarrier_arrive_expect_tx(barriers.doutputs[index][i], bytes_of_doutputs(index, i));
            }
        }
    }

    // Starts the copy of a step's images; one thread of the last warp does.
    __device__ void fetch_images(int step) {
        if (step >= steps || threadIdx.x != THREADS - WARP) return;
        const int from = (step * plan.group_tiles + block.member() * TILES) * PAIRS * WARP;
        constexpr int BYTES = TILES * PAIRS * WARP * static_cast<int>(sizeof(uint4));
        Barrier& fetched = block.barriers.fetched[step % 2];
        mbarrier_arrive_expect_tx(fetched, BYTES);
        cp_async_bulk(block.at<uint4>(step % 2 == 0 ? plan.images[0] : plan.images[1]), fetched, images + from, BYTES);
    }

    __device__ void train(int step, bool with_totals) {
        parity = step % 2;
        const uint4* batch = block.at<uint4>(plan.images[0] + parity * (plan.images[1] - plan.images[0]));
        if (has_head()) head.load(step);
        mbarrier_wait_parity(block.barriers.fetched[parity], step / 2 % 2);
        // Other blocks may still read the messages of the last step.
        const auto wait_to_send = [&] { if (step > 0) barrier_cluster_wait(); };
        if constexpr (BY_WGMMA && WARP_GROUPS == 1) {
            first.forward_by_parts(batch, block.at<uint4>(plan.images[0] + (1 - parity) * (plan.images[1] - plan.images[0])),
                                   wait_to_send);
        } else if constexpr (BY_WGMMA) {
            first.forward(batch, wait_to_send);
            fetch_images(step + 1);
            if (step > 0 && block.warp_group == 0) update_classes();
        } else {
            forward_first(block, batch, wait_to_send);
        }
        if (SPLIT > 1) receive(block.barriers.parts[0][block.warp_group], bytes_of_parts(0));
        block.meet();
        if (WARP_GROUPS > 1 && step > 0 && block.warp_group == 1) bar_sync(CLASSES_ARE_UPDATED, THREADS);
        collect<0>(block, 0);
        block.meet();
        forward_from<0>();
        if (WARP_GROUPS == 1) fetch_images(step + 1);  // while all wait for the logits

        if (block.heads() > 0 && block.warp_group == block.head_warp_group()) {
            receive(block.barriers.parts[LAST][0], bytes_of_parts(LAST));
            if (has_head()) head.run();
            block.meet();
            head.share();
            if (with_totals && has_head()) head.add_to_totals(block.totals[block.warp_in_group]);
        }
        receive_doutputs(LAST, block.warp_group);
        if constexpr (WARP_GROUPS > 1) backward_by_warp_groups(batch);
        else backward_from<LAST>(batch);
        __syncthreads();
        barrier_cluster_arrive_relaxed();
    }

    __device__ void end() {
        barrier_cluster_wait();
        if constexpr (WARP_GROUPS > 1) {
            if (block.warp_group == 0) update_classes();
            else bar_sync(CLASSES_ARE_UPDATED, THREADS);
            block.meet();
        }
    }

    // Whether this warp takes part of the block's softmax.
    __device__ bool has_head() const {
        return block.warp_group == block.head_warp_group() && block.warp_in_group < HEAD_WARPS * block.heads();
    }

  private:
    // From a layer's outputs up to the logits. The first layer's outputs are there; others are collected from messages.
    template <int INDEX>
    __device__ void forward_from() {
#pragma unroll 1
        for (int turn = 0; turn < TURNS; ++turn) {
            if constexpr (INDEX > 0) {
                if (block.sent_slots(INDEX) > 0) {  // else no bytes come, and no phase of the barrier ends
                    receive(block.barriers.parts[INDEX][turn], bytes_of_parts(INDEX));
                    collect<INDEX>(block, turn);
                    block.meet();
                }
            }
            if constexpr (INDEX + 1 < LAST) forward<INDEX + 1>(block, turn);
            else forward_classes(block, turn);
        }
        if constexpr (INDEX + 1 < LAST) forward_from<INDEX + 1>();
    }

    template <int INDEX>
    __device__ void backward_from(const uint4* batch) {
        constexpr bool HAS_READERS = INDEX > 1 || SPLIT > 1;
        // All dlogits are here. A sender of doutputs thereby knows that every block has read the parts that they overwrite.
#pragma unroll 1
        for (int turn = 0; turn < TURNS; ++turn) {
            if (INDEX < LAST) receive_doutputs(INDEX, turn);
            backward<INDEX>(block, turn);
            __syncthreads();
            if constexpr (HAS_READERS) share<INDEX - 1>(block, turn);
        }
        update<INDEX>(block, WEIGHT_SCALE / OUTPUT_SCALE * rate);
        update_biases<INDEX>(block, rate);
        if constexpr (INDEX > 1) {
            backward_from<INDEX - 1>(batch);
        } else {
            for (int turn = 0; turn < TURNS && HAS_READERS; ++turn) receive_doutputs(0, turn);
            if constexpr (BY_WGMMA) {
                FirstLayer::Sums sums = {};
                first.add(batch, 0, sums);
                first.subtract(sums, WEIGHT_SCALE * rate);
            } else {
                update_first(block, batch, WEIGHT_SCALE * rate);
            }
            update_biases<0>(block, rate);
        }
    }

    // One hidden layer, two warp groups: the first group's images are added to the first layer's update while the second
    // group's doutputs travel.
    __device__ void backward_by_warp_groups(const uint4* batch) {
        backward<LAST>(block, 0);
        block.meet();
        share<0>(block, 0);
        bar_arrive(WARP_GROUP_HAS_SHARED + block.warp_group, THREADS);
        FirstLayer::Sums sums = {};
        if (block.warp_group == 1) bar_sync(WARP_GROUP_HAS_SHARED, THREADS);
        receive_doutputs(0, 0);
        first.add(batch, 0, sums);
        if (block.warp_group == 0) {
            bar_sync(WARP_GROUP_HAS_SHARED + 1, THREADS);
            update_biases<0>(block, rate);
        }
        receive_doutputs(0, 1);
        first.add(batch, 1, sums);
        first.subtract(sums, WEIGHT_SCALE * rate);
    }

    // The update of the last layer. The first warp group does it while it waits for the next step's parts: before it has new
    // outputs, and before either warp group multiplies by the classes' weights.
    __device__ void update_classes() {
        update<LAST>(block, WEIGHT_SCALE / OUTPUT_SCALE * rate);
        update_biases<LAST>(block, rate);
        bar_arrive(CLASSES_ARE_UPDATED, THREADS);
    }

    // Waits for a step's messages, and arms the barrier for the next step's.
    __device__ void receive(Barrier& barrier, int bytes) {
        mbarrier_wait_parity(barrier, parity);
        if (block.is_first_of_warp_group()) mbarrier_arrive_expect_tx(barrier, bytes);
    }

    // The same for the doutputs of a portion, for which any warp group may wait.
    __device__ void receive_doutputs(int index, int portion) {
        mbarrier_wait_parity(block.barriers.doutputs[index][portion], parity);
        if (block.warp_group == portion / TURNS && block.is_first_of_warp_group()) {
            mbarrier_arrive_expect_tx(block.barriers.doutputs[index][portion], bytes_of_doutputs(index, portion));
        }
    }

    __device__ int bytes_of_parts(int index) const {
        constexpr int PART = WARP * sizeof(Part);
        if (index == LAST) return block.heads() * BLOCKS * CLASS_PAIRS * PART;
        return (index == 0 ? (SPLIT - 1) * WAYS * PAIRS_OF_GROUP : BLOCKS * TURN_PAIRS) * block.sent_slots(index) * PART;
    }

    // Bytes from the other blocks; the block's own do not travel.
    __device__ int bytes_of_doutputs(int index, int portion) const {
        const int own = portion == block.head_warp_group() ? block.heads() : 0;
        if (index == LAST) return (2 * PAIRS_OF_GROUP - own) * CLASS_CHUNKS * static_cast<int>(sizeof(Matrix));
        const int own_slots = block.sent_slots(index), others = index == 0 ? (SPLIT - 1) * own_slots : SENT[index] - own_slots;
        return others * 2 * TURN_PAIRS * static_cast<int>(sizeof(Matrix));
    }

    const Block& block;
    const uint4* images;
    const int steps;
    const float rate;  // the factor from a sum of scaled doutputs to an update
    int parity = 0;    // of the step
    FirstLayer first;  // with wgmma
    Head head;
};

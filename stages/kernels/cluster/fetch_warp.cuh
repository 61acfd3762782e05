#pragma once
#include "cluster/epoch.cuh"

// One thread that starts the copies of the next batches into the ring, each as soon as its slot is free.
class FetchWarp {
  public:
    __device__ FetchWarp(Shared& shared, const EpochArguments& epoch)
        : shared(shared), epoch(epoch), rank(cluster_ctarank()), first(epoch.first_tile(rank)),
          tiles(epoch.first_tile(rank + 1) - first) {}

    __device__ void run() {
        for (int step = 0; step < epoch.steps; ++step) {
            const int stage = step % STAGES;
            if (step >= STAGES) mbarrier_wait_parity(shared.done_with[stage], (step / STAGES + 1) % 2);
            fetch_batch(step, shared.batches[stage], shared.fetched[stage]);
        }
    }

  private:
    __device__ void fetch_batch(int step, Batch& batch, Barrier& fetched) {
        const int row = epoch.pairs * WARP;  // one tile's pixels or one image group's grams, in uint4
        const int pixels = tiles * row * sizeof(uint4), from = (step * epoch.tiles + first) * row;
        const int grams = step > 0 ? row * sizeof(uint4) : 0;
        const bool has_head = epoch.has_head(rank);
        mbarrier_arrive_expect_tx(fetched, pixels + (has_head ? grams + static_cast<int>(sizeof(batch.labels)) : 0));
        if (tiles > 0) cp_async_bulk(batch.images, fetched, epoch.images + from, pixels);
        if (!has_head) return;
        cp_async_bulk(batch.labels, fetched, epoch.labels + (step * 2 * epoch.pairs + rank) * HALF_EDGE, sizeof(batch.labels));
        if (step == 0) return;
        wait_for_flag(epoch.ready + step - 1, epoch.number);
        cp_async_bulk(batch.grams, fetched, epoch.grams + ((step - 1) * 2 * epoch.pairs + rank) * row, grams);
    }

    Shared& shared;
    const EpochArguments& epoch;
    const int rank, first, tiles;
};

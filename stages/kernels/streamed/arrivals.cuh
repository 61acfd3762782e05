// A warp's arrival at a barrier, once all its lanes have read or written what it stands for.
#pragma once
#include "device/bulk_copies.cuh"

#ifndef LANES_ARRIVE  // lanes of each warp that arrive, so barriers expect as many; racecheck needs 32 (cluster/epoch.cuh)
#define LANES_ARRIVE 1
#endif

__device__ inline void warp_arrives(Barrier& barrier) {
    __syncwarp();
    if (threadIdx.x % 32 < LANES_ARRIVE) mbarrier_arrive(barrier);
}

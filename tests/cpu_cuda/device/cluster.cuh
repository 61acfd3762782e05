// In place of stages/kernels/device/cluster.cuh. An address is a place in shared memory, below 2^24, and above it the block's
// rank + 1, or 0 for the thread's own block.
#pragma once
#include "device/blocks_together.cuh"
#include "device/messages.cuh"

inline unsigned shared_address(const void* own) { return cpu_cuda::place_of(own); }
inline unsigned distance_to(int rank, const void*) { return rank + 1 << 24; }
inline unsigned mapa(unsigned own, int rank) { return own + distance_to(rank, nullptr); }

namespace cpu_cuda {

inline void* at_address(unsigned address) {
    const unsigned rank = address >> 24;
    return in_block(at_place(address & 0xffffff), rank > 0 ? rank - 1 : cluster_ctarank());
}

}  // namespace cpu_cuda

template <class Bytes>
void st_async(unsigned address, unsigned barrier, Bytes bytes) {
    cpu_cuda::send(cpu_cuda::at_address(address), cpu_cuda::at_address(barrier), bytes);
}

inline void raise_flag(int* flag, int value) { *flag = value; }
inline void st_shared_cluster(unsigned address, double value) { *static_cast<double*>(cpu_cuda::at_address(address)) = value; }
inline void barrier_cluster(int line = __builtin_LINE()) { cpu_cuda::meet(line); }
inline void barrier_sync(int id, int threads, int line = __builtin_LINE()) { bar_sync(id, threads, line); }

inline void bar_arrive(int id, int threads) { cpu_cuda::meetings[{cpu_cuda::dynamic_shared, id}].arrive(threads); }

// The cluster's barrier in two halves: a thread waits for the opening that it has arrived for.
namespace cpu_cuda {

inline std::map<std::pair<const void*, int>, int> arrived_for;  // by the block's memory and the thread

inline Meeting& whole_cluster() { return meetings[{nullptr, clusterid_x()}]; }

}  // namespace cpu_cuda

inline void barrier_cluster_arrive_relaxed() {
    cpu_cuda::Meeting& meeting = cpu_cuda::whole_cluster();
    cpu_cuda::arrived_for[{cpu_cuda::dynamic_shared, threadIdx.x}] = meeting.opened;
    meeting.arrive(blockDim.x * cpu_cuda::cluster);
}

inline void barrier_cluster_wait(int line = __builtin_LINE()) {
    const int opened = cpu_cuda::arrived_for[{cpu_cuda::dynamic_shared, threadIdx.x}];
    const cpu_cuda::Meeting& meeting = cpu_cuda::whole_cluster();
    cpu_cuda::await([&] { return meeting.opened != opened; }, line);
}

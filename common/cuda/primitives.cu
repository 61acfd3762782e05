// The primitives that every training step is made of, each alone in a loop: what the chip gives at best. None of them
// computes anything that is used; common/cuda/primitives.py takes the difference of two loop counts.
// What needs sm_90 is empty on older architectures, so that the rest compiles there.

// A wait for every thread of the cluster; `aligned` since all threads of a warp come to it together.
__device__ inline void cluster_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#endif
}

// empty: nothing, so that what remains is what it costs the host to launch it.
// Launch: any.
// Needs:  any architecture.
// Order:  writes nothing.
extern "C" __global__ void empty() {}

// pass_on: adds one to what the kernel before it left: the least that a kernel with an input and an output does.
//   value  (threads of the grid,)  u32  in, out
// Launch: 1-D, any.
// Needs:  any architecture.
// Order:  repeats bit for bit.
extern "C" __global__ void pass_on(unsigned* value) { value[blockIdx.x * blockDim.x + threadIdx.x] += 1; }

// pass_on_early: the same, launched early: it lets the next kernel's blocks start, and waits for the one before.
//   value  (threads of the grid,)  u32  in, out
// Launch: 1-D, any, with programmatic stream serialisation.
// Needs:  sm_90 for programmatic dependent launch.
// Order:  repeats bit for bit.
extern "C" __global__ void pass_on_early(unsigned* value) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;\ngriddepcontrol.wait;" ::: "memory");
#endif
    value[blockIdx.x * blockDim.x + threadIdx.x] += 1;
}

// block_barrier: rounds times __syncthreads.
// Launch: any.
// Needs:  any architecture.
// Order:  writes nothing.
extern "C" __global__ void block_barrier(int rounds) {
    for (int round = 0; round < rounds; ++round) __syncthreads();
}

// grid_barrier: rounds times a barrier of all blocks: one atomic a block on one counter, and one thread of each that
// waits until the counter has gone round. The counter only grows, so that nobody has to set it back.
//   arrived  (1,)   u32  in, out; 0 before the first launch, and always used with the same grid
// Launch: cooperative, so that all blocks run at once; 1-D, any block.
// Needs:  any architecture with cooperative launch; fewer than 2^32 arrivals over all launches.
// Order:  the last arrival of a round lets everyone go, whoever it is; the counter ends the same.
extern "C" __global__ void grid_barrier(unsigned* arrived, int rounds) {
    for (int round = 0; round < rounds; ++round) {
        __syncthreads();
        if (threadIdx.x == 0) {
            unsigned before, seen;
            asm volatile("atom.add.release.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(arrived) : "memory");
            const unsigned complete = (before / gridDim.x + 1) * gridDim.x;
            do {
                asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
            } while (seen < complete);
        }
        __syncthreads();
    }
}

// cluster_barrier: rounds times a barrier of all blocks of a cluster.
// Launch: one cluster, any block of whole warps.
// Needs:  sm_90 for clusters.
// Order:  writes nothing.
extern "C" __global__ void cluster_barrier(int rounds) {
    for (int round = 0; round < rounds; ++round) cluster_wait();
}

// cluster_hop: rounds times 256 bytes, written at once by a block's first warp to the shared memory of the next block
// of the cluster, and the barrier after which they can be read there.
// Launch: one cluster, 1-D blocks of whole warps.
// Needs:  sm_90 for clusters.
// Order:  writes nothing but shared memory.
extern "C" __global__ void cluster_hop(int rounds) {
#if __CUDA_ARCH__ >= 900
    __shared__ uint2 inbox[32];
    unsigned rank, blocks, neighbour;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
    const auto own = static_cast<unsigned>(__cvta_generic_to_shared(inbox + threadIdx.x % 32));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(neighbour) : "r"(own), "r"((rank + 1) % blocks));
    cluster_wait();  // the neighbour has to run before its memory is written
    for (int round = 0; round < rounds; ++round) {
        if (threadIdx.x < 32) {
            asm volatile("st.shared::cluster.v2.u32 [%0], {%1, %1};" ::"r"(neighbour), "r"(round) : "memory");
        }
        cluster_wait();
    }
#endif
}

// follow_chain: steps loads, each of which has to know what the one before it read; past L1, which would hold some.
//   next  (count,)   u32  in: where to go from each index, one cycle through all that are used, 0 among them
//   end   (1,)       u32  out: where it ended, lest the compiler leave the loads out
// Launch: one thread.
// Needs:  any architecture; steps >= 0.
// Order:  one after the other; repeats bit for bit.
extern "C" __global__ void follow_chain(const unsigned* next, unsigned* end, int steps) {
    unsigned at = 0;
    for (int step = 0; step < steps; ++step) at = __ldcg(next + at);
    *end = at;
}

// How many loads of a thread are under way at once in read_repeatedly: enough for Little's law with 1,024 threads a
// multiprocessor. READS_AT_ONCE in the launch code (common/cuda/primitives.py) is this.
constexpr int READS_AT_ONCE = 8;

// read_repeatedly: batches times READS_AT_ONCE loads of 16 bytes a thread, round and round through data; past L1.
//   data  (count,)   4 u32  in; count 16-byte elements, a multiple of all threads
//   sink  (1,)       u32    out: written only if the sum of all that a thread read is 1, lest the loads be left out
// Launch: 1-D, any.
// Needs:  any architecture; count a multiple of the grid's threads and below 2^31 less than those; batches >= 0.
// Order:  of loads only.
extern "C" __global__ void read_repeatedly(const uint4* data, unsigned* sink, int count, int batches) {
    const int first = blockIdx.x * blockDim.x + threadIdx.x;
    const int stride = gridDim.x * blockDim.x;
    int at = first;
    unsigned sum = 0;
    for (int batch = 0; batch < batches; ++batch) {
        uint4 read[READS_AT_ONCE];
#pragma unroll
        for (int i = 0; i < READS_AT_ONCE; ++i) {
            read[i] = __ldcg(data + at);
            at += stride;
            if (at >= count) at = first;
        }
#pragma unroll
        for (int i = 0; i < READS_AT_ONCE; ++i) sum += read[i].x + read[i].y + read[i].z + read[i].w;
    }
    if (sum == 1) *sink = sum;
}

// The primitives of a training step, each alone in a loop: the chip's limits. No result is used;
// common/cuda/primitives.py takes the difference of two loop counts.
// Kernels that need sm_90 are empty on older architectures, so the file compiles everywhere.

// Waits for every thread of the cluster; `aligned`: all threads of a warp arrive together.
__device__ inline void cluster_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#endif
}

// empty: does nothing; its launch is measured.
// Launch: any.
// Needs:  any architecture.
// Order:  writes nothing.
extern "C" __global__ void empty() {}

// pass_on: adds one to its predecessor's output, the least work of a kernel with input and output.
//   value  (threads of the grid,)  u32  in, out
// Launch: 1-D, any.
// Needs:  any architecture.
// Order:  repeats bit for bit.
extern "C" __global__ void pass_on(unsigned* value) { value[blockIdx.x * blockDim.x + threadIdx.x] += 1; }

// pass_on_early: the same, launched early: it lets the next kernel start, and waits for its predecessor.
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

// block_barrier: __syncthreads, rounds times.
// Launch: any.
// Needs:  any architecture.
// Order:  writes nothing.
extern "C" __global__ void block_barrier(int rounds) {
    for (int round = 0; round < rounds; ++round) __syncthreads();
}

// grid_barrier: a barrier of all blocks, rounds times: each block adds one to a counter, and one of its threads waits
// for the round's last arrival. The counter only grows, so it needs no reset.
//   arrived  (1,)   u32  in, out; 0 before the first launch, and always used with the same grid
// Launch: cooperative, so that all blocks run at once; 1-D, any block.
// Needs:  any architecture with cooperative launch; fewer than 2^32 arrivals over all launches.
// Order:  the last arrival of a round releases all blocks; the final counter does not depend on the order.
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

// cluster_barrier: a barrier of all blocks of a cluster, rounds times.
// Launch: one cluster, any block of whole warps.
// Needs:  sm_90 for clusters.
// Order:  writes nothing.
extern "C" __global__ void cluster_barrier(int rounds) {
    for (int round = 0; round < rounds; ++round) cluster_wait();
}

// cluster_hop: 256 bytes from each block's first warp to the shared memory of the cluster's next block, then the barrier
// after which they can be read, rounds times.
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
    cluster_wait();  // the neighbour must run before its memory is written
    for (int round = 0; round < rounds; ++round) {
        if (threadIdx.x < 32) {
            asm volatile("st.shared::cluster.v2.u32 [%0], {%1, %1};" ::"r"(neighbour), "r"(round) : "memory");
        }
        cluster_wait();
    }
#endif
}

// follow_chain: steps dependent loads, past L1.
//   next  (count,)   u32  in: each index's successor, one cycle through all used indices, 0 among them
//   end   (1,)       u32  out: the last index, so that the compiler keeps the loads
// Launch: one thread.
// Needs:  any architecture; steps >= 0.
// Order:  one after the other; repeats bit for bit.
extern "C" __global__ void follow_chain(const unsigned* next, unsigned* end, int steps) {
    unsigned at = 0;
    for (int step = 0; step < steps; ++step) at = __ldcg(next + at);
    *end = at;
}

// Concurrent loads of a thread in read_repeatedly: enough by Little's law with 1,024 threads a multiprocessor.
// Equals READS_AT_ONCE in common/cuda/primitives.py.
constexpr int READS_AT_ONCE = 8;

// read_repeatedly: batches x READS_AT_ONCE loads of 16 bytes a thread, cyclic through data, past L1.
//   data  (count,)   4 u32  in; count 16-byte elements, a multiple of all threads
//   sink  (1,)       u32    out: written only if a thread's sum is 1, so that the compiler keeps the loads
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

// update_repeatedly: as read_repeatedly, but each number that was read is stored where it was, one larger.
//   data  (count,)   4 u32  in, out; count 16-byte elements, a multiple of all threads
// Launch: 1-D, any.
// Needs:  any architecture; count a multiple of the grid's threads, at least READS_AT_ONCE for each, and below 2^31 less than the
//   threads; batches >= 0.
// Order:  each number by one thread; repeats bit for bit.
extern "C" __global__ void update_repeatedly(uint4* data, int count, int batches) {
    const int first = blockIdx.x * blockDim.x + threadIdx.x;
    const int stride = gridDim.x * blockDim.x;
    int at = first, to = first;
    for (int batch = 0; batch < batches; ++batch) {
        uint4 read[READS_AT_ONCE];
#pragma unroll
        for (int i = 0; i < READS_AT_ONCE; ++i) {
            read[i] = __ldcg(data + at);
            at += stride;
            if (at >= count) at = first;
        }
#pragma unroll
        for (int i = 0; i < READS_AT_ONCE; ++i) {
            __stcg(data + to, make_uint4(read[i].x + 1, read[i].y + 1, read[i].z + 1, read[i].w + 1));
            to += stride;
            if (to >= count) to = first;
        }
    }
}

// peer_hop: a word to and fro between two GPUs: each stores the number of a round in the other's memory, and one of them, `first`,
//   begins a round; the other answers.
//   own    (1,)  u32  in: the other GPU stores here; `before` when both start
//   other  (1,)  u32  out: in the other GPU's memory
// Launch: 1 thread on each of two GPUs, with the same before and rounds.
// Needs:  sm_70; two GPUs with access to each other's memory; rounds >= 0.
// Order:  each round after the one before.
extern "C" __global__ void peer_hop(const unsigned* own, unsigned* other, int first, unsigned before, int rounds) {
    for (unsigned round = before + 1; round != before + 1 + rounds; ++round) {
        if (first) *static_cast<volatile unsigned*>(other) = round;
        while (*static_cast<const volatile unsigned*>(own) != round) continue;
        if (!first) *static_cast<volatile unsigned*>(other) = round;
    }
}

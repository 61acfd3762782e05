// Asynchronous copies into shared memory, from sm_80 on; before, a copy is a load and a store.
#pragma once

// Copies four floats, or other 16 bytes; writes zeros and reads nothing unless `are_there`. It bypasses L1, which does not see
// other blocks' writes. The copy is there after the calling thread's cp_async_wait_all(), for other threads after a barrier.
__device__ inline void cp_async_16(float* to, const float* from, bool are_there = true) {
#if __CUDA_ARCH__ >= 800
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(are_there ? 16 : 0)
                 : "memory");
#else
    *reinterpret_cast<float4*>(to) =
        are_there ? __ldcg(reinterpret_cast<const float4*>(from)) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#endif
}

// The same with a policy of l2_lines.cuh.
__device__ inline void cp_async_16(float* to, const float* from, bool are_there, unsigned long long policy) {
#if __CUDA_ARCH__ >= 800
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(address), "l"(from),
                 "r"(are_there ? 16 : 0), "l"(policy)
                 : "memory");
#else
    cp_async_16(to, from, are_there);
#endif
}

// Closes a group: the copies since the last call.
__device__ inline void cp_async_commit_group() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all groups but the YOUNGEST last ones.
template <int YOUNGEST>
__device__ inline void cp_async_wait_group() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(YOUNGEST) : "memory");
#endif
}

__device__ inline void cp_async_wait_all() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

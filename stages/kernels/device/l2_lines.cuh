// L2 policies of loads and stores, from sm_80 on (PTX ISA: createpolicy, .L2::cache_hint). All lanes of a warp need the same
// policy: from sm_90 on an instruction takes one for the warp.
#pragma once

// The policy for lines that should stay until the next step, or that should be evicted first.
__device__ inline unsigned long long createpolicy_fractional(bool stay) {
    unsigned long long kept = 0, leaving = 0;
#if __CUDA_ARCH__ >= 800
    asm("createpolicy.fractional.L2::evict_last.b64 %0;" : "=l"(kept));
    asm("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(leaving));
#endif
    return stay ? kept : leaving;
}

__device__ inline void st_global_cg_v4(float* to, float4 value, unsigned long long policy) {
#if __CUDA_ARCH__ >= 800
    asm volatile("st.global.cg.L2::cache_hint.v4.f32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(to), "f"(value.x), "f"(value.y),
                 "f"(value.z), "f"(value.w), "l"(policy)
                 : "memory");
#else
    __stcg(reinterpret_cast<float4*>(to), value);
#endif
}

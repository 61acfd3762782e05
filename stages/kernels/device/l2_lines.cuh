// How long lines stay in L2, as loads and stores ask for it (PTX ISA: createpolicy, .L2::cache_hint); before sm_80 they
// cannot. A policy has to be the same in all lanes of a warp: from sm_90 on an instruction takes one for all of them.
#pragma once

// For lines that are to be there when they are needed again, a step later, or for those that are to leave first.
__device__ inline unsigned long long l2_policy(bool stay) {
    unsigned long long kept = 0, leaving = 0;
#if __CUDA_ARCH__ >= 800
    asm("createpolicy.fractional.L2::evict_last.b64 %0;" : "=l"(kept));
    asm("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(leaving));
#endif
    return stay ? kept : leaving;
}

__device__ inline void store_four(float* to, float4 value, unsigned long long policy) {
#if __CUDA_ARCH__ >= 800
    asm volatile("st.global.cg.L2::cache_hint.v4.f32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(to), "f"(value.x), "f"(value.y),
                 "f"(value.z), "f"(value.w), "l"(policy)
                 : "memory");
#else
    __stcg(reinterpret_cast<float4*>(to), value);
#endif
}

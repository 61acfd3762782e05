// Programmatic dependent launch, compiled in by DEPENDENT_LAUNCH; without it, and before sm_90, there is nothing here.
//
// Every kernel of a file that includes this calls both, before it touches any memory: common/cuda/dependent_launch.py says why.
// Include it before headers that need it: the tests have a stand-in.
#pragma once

// The next kernel's blocks may start as soon as all of this one's have come here, and find room.
__device__ inline void let_next_begin() {
#if defined(DEPENDENT_LAUNCH) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Until the kernel before is complete, and what it wrote is there for everyone.
__device__ inline void wait_for_previous() {
#if defined(DEPENDENT_LAUNCH) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

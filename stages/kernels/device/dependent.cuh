// Programmatic dependent launch, compiled in by DEPENDENT_LAUNCH; without it, and before sm_90, both functions are empty.
//
// Every kernel of a file that includes this calls both, and touches no memory before the second but what its comment calls early
// (common/cuda/dependent_launch.py says why).
#pragma once

// Whether a kernel may start while the one before runs.
#if defined(DEPENDENT_LAUNCH) && __CUDA_ARCH__ >= 900
constexpr bool STARTS_EARLY = true;
#else
constexpr bool STARTS_EARLY = false;
#endif

// Lets the next kernel's blocks start once all blocks of this kernel have called it and there is room.
__device__ inline void griddepcontrol_launch_dependents() {
#if defined(DEPENDENT_LAUNCH) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the kernel before is complete and its writes are visible.
__device__ inline void griddepcontrol_wait() {
#if defined(DEPENDENT_LAUNCH) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

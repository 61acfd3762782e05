// In place of stages/kernels/device/async_copies.cuh: a copy arrives when the thread waits for it, not before.
#pragma once

inline void cp_async_16(float* to, const float* from, bool are_there = true) {
    cpu_cuda::cp_async_16(to, from, are_there);
}
inline void cp_async_16(float* to, const float* from, bool are_there, unsigned long long) { cp_async_16(to, from, are_there); }
inline void cp_async_commit_group() { cpu_cuda::cp_async_commit_group(); }

template <int YOUNGEST>
inline void cp_async_wait_group() {
    cpu_cuda::cp_async_wait_group(YOUNGEST);
}

inline void cp_async_wait_all() {
    cp_async_commit_group();
    cpu_cuda::cp_async_wait_group(0);
}

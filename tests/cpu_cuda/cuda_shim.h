// CUDA's keywords and functions for g++. Included before a kernel's source, it lets the kernel run unchanged on the CPU.
//
// runtime.cpp runs the threads of a block as fibres, one at a time and in random order; a fibre yields only where CUDA makes
// threads wait for each other. Inline PTX is missing: the headers in device/ stand in for those of the kernels that have it.
// __CUDA_ARCH__ is not defined, so that a kernel can leave it out.
#pragma once

#include <math.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
};
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
// A block's shared variables are static, since one thread runs at a time. A section of its own lets the runtime poison them
// before each block, and exchange them when a thread of another block goes on; `used` keeps the compiler from assuming that
// they are not written elsewhere.
#define __shared__ static __attribute__((section("cuda_shared"), used))

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) double2 {
    double x, y;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float as_float(unsigned bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline unsigned as_bits(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float __uint_as_float(unsigned bits) { return as_float(bits); }
inline unsigned __float_as_uint(float value) { return as_bits(value); }

inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

template <class T>
T min(T a, T b) {
    return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
    return a < b ? b : a;
}

namespace cpu_cuda {

extern void* dynamic_shared;
extern unsigned cluster;  // blocks of one, along x

// Waits for all threads of the cluster that have not ended.
void meet(int line);

// The place in the shared memory of the block of that rank that `own` has in the running thread's block.
void* in_block(const void* own, unsigned rank);

// A place in the block's shared memory as a number, and back; __shared__ variables come after the dynamic memory.
unsigned place_of(const void* own);
void* at_place(unsigned place);

// What names a place in the running thread's block in the whole launch: all blocks have their __shared__ variables at the same
// addresses while they run. And back.
void* kept(void* own);
void* in_use(void* kept);

void barrier(int line);

// Lets other threads run, of other blocks too.
void sleep(int line);

// The same until the scheduler, which asks in the thread's stead, finds it over.
void sleep_until(bool (*is_over)(const void*), const void* condition, int line);

template <class Condition>
void await(const Condition& condition, int line) {
    const auto is_over = [](const void* asked) { return (*static_cast<const Condition*>(asked))(); };
    while (!condition()) sleep_until(is_over, &condition, line);
}

// In a dependent launch, waits until no thread of the block can go on without the kernel before.
void griddepcontrol_wait(int line);

// Copies 16 bytes, or zeros, when the thread waits for their group. Until then the target is poison, so that both a read and
// an overwrite too early show.
void cp_async_16(void* to, const void* from, bool are_there);
void cp_async_commit_group();

// Waits for all closed groups but the youngest ones; copies in no group yet go on.
void cp_async_wait_group(unsigned youngest);

// Waits until the lanes in `mask` are at the same line; then returns what lane `source` has sent.
std::uint64_t shuffle(const char* what, unsigned mask, std::uint64_t sent, int source, int line);

// Waits likewise; then returns, as bits, the lanes that have sent something other than 0.
unsigned ballot(const char* what, unsigned mask, bool sent, int line);

// The numbers of a lane's registers in a product, as many of each as it holds.
struct Fragment {
    double a[4][2], b[2][2];
};

// c += a b by a warp, with so many numbers a register.
void multiply(float (&c)[4], const Fragment& own, int per_register, int line);

inline int lane() {
    return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % warpSize;
}

template <class T>
T shuffle_value(const char* what, unsigned mask, T value, int source, int line) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = shuffle(what, mask, bits, source, line);
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

}  // namespace cpu_cuda

// A default argument of __builtin_LINE() is the line of the call, which distinguishes waits.

inline void __syncthreads(int line = __builtin_LINE()) { cpu_cuda::barrier(line); }

inline void __syncwarp(unsigned mask = ~0u, int line = __builtin_LINE()) {
    cpu_cuda::ballot("__syncwarp", mask, false, line);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return cpu_cuda::ballot("__ballot_sync", mask, predicate != 0, line);
}

inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return cpu_cuda::ballot("__any_sync", mask, predicate != 0, line) != 0;
}

inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return cpu_cuda::ballot("__all_sync", mask, predicate == 0, line) == 0;
}

// Lanes outside the segment of `width` return the caller's own value, as the programming guide says.

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize, int line = __builtin_LINE()) {
    const int first = cpu_cuda::lane() / width * width;
    return cpu_cuda::shuffle_value("__shfl_sync", mask, value, first + (source & (width - 1)), line);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int flip, int width = warpSize, int line = __builtin_LINE()) {
    const int lane = cpu_cuda::lane(), end = lane / width * width + width, other = lane ^ flip;
    return cpu_cuda::shuffle_value("__shfl_xor_sync", mask, value, other < end ? other : lane, line);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = warpSize, int line = __builtin_LINE()) {
    const int lane = cpu_cuda::lane(), end = lane / width * width + width, other = lane + static_cast<int>(by);
    return cpu_cuda::shuffle_value("__shfl_down_sync", mask, value, other < end ? other : lane, line);
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = warpSize, int line = __builtin_LINE()) {
    const int lane = cpu_cuda::lane(), first = lane / width * width, other = lane - static_cast<int>(by);
    return cpu_cuda::shuffle_value("__shfl_up_sync", mask, value, other >= first ? other : lane, line);
}

// Fibres yield nowhere else, so plain reads and writes are atomic.
template <class T>
T atomicAdd(T* address, std::common_type_t<T> value) {
    const T before = *address;
    *address = before + value;
    return before;
}

template <class T>
T __ldg(const T* address) {
    return *address;
}
template <class T>
T __ldcg(const T* address) {
    return *address;
}

template <class T>
void __stcg(T* address, T value) {
    *address = value;
}

template <class T>
T __reduce_max_sync(unsigned mask, T value, int line = __builtin_LINE()) {
    for (int flip = warpSize / 2; flip > 0; flip /= 2) value = max(value, __shfl_xor_sync(mask, value, flip, warpSize, line));
    return value;
}

template <class T>
T __reduce_add_sync(unsigned mask, T value, int line = __builtin_LINE()) {
    for (int flip = warpSize / 2; flip > 0; flip /= 2) value += __shfl_xor_sync(mask, value, flip, warpSize, line);
    return value;
}

inline unsigned __float2uint_rn(float x) { return static_cast<unsigned>(llrintf(x)); }
inline float __expf(float x) { return expf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline int __ffs(unsigned bits) { return __builtin_ffs(bits); }

inline void __nanosleep(unsigned, int line = __builtin_LINE()) { cpu_cuda::sleep(line); }

// Messages between blocks: to the shared memory of a cluster's others, and through L2 to blocks of any cluster. Needs sm_90.
//
// Through L2 travel units of sixteen bytes, each a single access. The lowest bit of a unit's first word is a tag that says in
// which round it was written, so that a unit needs no flag and no fence: a reader that sees the tag sees the unit. (PTX ISA:
// st.async; ld and st of .b128, which is one access.)
#pragma once
#include "device/bulk_copies.cuh"

// A barrier of some warps of a block, `threads` threads in all, that call it at the same place. `id` names it; 0 is
// __syncthreads.
__device__ inline void bar_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Waits for that value of a flag; the writes before the flag can then be read, also by the copy engine.
__device__ inline void wait_for_flag(const int* flag, int value) {
    int seen;
    do {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
    } while (seen != value);
    asm volatile("fence.proxy.async;" ::: "memory");
}

// The difference between an address in the block of that rank and the same address in this block.
__device__ inline unsigned peer_at(int rank, const void* anything_shared) {
    const unsigned own = shared_address(anything_shared);
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(rank));
    return there - own;
}

// Sends 4, 8 or 16 bytes to that peer, where `place` and `barrier` lie in this block.
__device__ inline void send(unsigned peer, void* place, Barrier& barrier, unsigned bytes) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                     shared_address(place) + peer),
                 "r"(bytes), "r"(shared_address(&barrier) + peer)
                 : "memory");
}
__device__ inline void send(unsigned peer, void* place, Barrier& barrier, uint2 bytes) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(
                     shared_address(place) + peer),
                 "r"(bytes.x), "r"(bytes.y), "r"(shared_address(&barrier) + peer)
                 : "memory");
}
__device__ inline void send(unsigned peer, void* place, Barrier& barrier, uint4 bytes) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                     shared_address(place) + peer),
                 "r"(bytes.x), "r"(bytes.y), "r"(bytes.z), "r"(bytes.w), "r"(shared_address(&barrier) + peer)
                 : "memory");
}

// Writes a unit for blocks of any cluster. The lowest bit of its first word is the tag already.
__device__ inline void post(uint4* to, uint4 unit) {
    asm volatile(
        "{\n.reg .b128 whole;\n.reg .b64 low, high;\nmov.b64 low, {%1, %2};\nmov.b64 high, {%3, %4};\n"
        "mov.b128 whole, {low, high};\nst.relaxed.gpu.global.b128 [%0], whole;\n}" ::"l"(to),
        "r"(unit.x), "r"(unit.y), "r"(unit.z), "r"(unit.w)
        : "memory");
}

// Reads a unit if `wanted`; else it stays as it is.
__device__ inline void read_unit(uint4& unit, const uint4* from, bool wanted) {
    asm volatile(
        "{\n.reg .b128 whole;\n.reg .b64 low, high;\n.reg .pred reads;\nsetp.ne.u32 reads, %5, 0;\n"
        "mov.b64 low, {%0, %1};\nmov.b64 high, {%2, %3};\nmov.b128 whole, {low, high};\n"
        "@reads ld.relaxed.gpu.global.b128 whole, [%4];\n"
        "mov.b128 {low, high}, whole;\nmov.b64 {%0, %1}, low;\nmov.b64 {%2, %3}, high;\n}"
        : "+r"(unit.x), "+r"(unit.y), "+r"(unit.z), "+r"(unit.w)
        : "l"(from), "r"(static_cast<unsigned>(wanted))
        : "memory");
}

// Begins to read units `apart` from each other whose tag is this one.
template <int COUNT>
__device__ void request(uint4 (&units)[COUNT], const uint4* from, int apart, unsigned tag) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        units[i] = make_uint4(tag ^ 1, 0, 0, 0);
        read_unit(units[i], from + i * apart, true);
    }
}

// Waits for the units requested; returns them with a tag of 0.
template <int COUNT>
__device__ void await(uint4 (&units)[COUNT], const uint4* from, int apart, unsigned tag) {
    while (true) {
        bool all = true;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) all &= (units[i].x & 1) == tag;
        if (all) break;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) read_unit(units[i], from + i * apart, (units[i].x & 1) != tag);
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i) units[i].x &= ~1u;
}

template <int COUNT>
__device__ void receive(uint4 (&units)[COUNT], const uint4* from, int apart, unsigned tag) {
    request(units, from, apart, tag);
    await(units, from, apart, tag);
}

// The same for units of eight bytes.
__device__ inline void post(uint2* to, uint2 unit) {
    asm volatile("{\n.reg .b64 whole;\nmov.b64 whole, {%1, %2};\nst.relaxed.gpu.global.b64 [%0], whole;\n}" ::"l"(to),
                 "r"(unit.x), "r"(unit.y)
                 : "memory");
}
__device__ inline void read_unit(uint2& unit, const uint2* from, bool wanted) {
    asm volatile(
        "{\n.reg .b64 whole;\n.reg .pred reads;\nsetp.ne.u32 reads, %3, 0;\nmov.b64 whole, {%0, %1};\n"
        "@reads ld.relaxed.gpu.global.b64 whole, [%2];\nmov.b64 {%0, %1}, whole;\n}"
        : "+r"(unit.x), "+r"(unit.y)
        : "l"(from), "r"(static_cast<unsigned>(wanted))
        : "memory");
}

// Waits for those of the units that have not this tag yet, each at place(i); returns them with a tag of 0. Whole warps call
// it, and leave it together: what they do behind it would else be split.
template <class Unit, int COUNT, class Place>
__device__ void complete(Unit (&units)[COUNT], unsigned tag, Place place) {
    bool all;
    do {
        all = true;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) read_unit(units[i], place(i), (units[i].x & 1) != tag);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) all &= (units[i].x & 1) == tag;
    } while (!__all_sync(~0u, all));
#pragma unroll
    for (int i = 0; i < COUNT; ++i) units[i].x &= ~1u;
}

// Hides from the compiler how the numbers came about.
__device__ inline void opaque(int& number) { asm volatile("" : "+r"(number)); }
__device__ inline void opaque(float (&numbers)[4]) {
    asm volatile("" : "+f"(numbers[0]), "+f"(numbers[1]), "+f"(numbers[2]), "+f"(numbers[3])::"memory");
}

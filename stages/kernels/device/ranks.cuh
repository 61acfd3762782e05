// Accesses to memory that another GPU writes or reads meanwhile. Needs sm_70. (PTX ISA: relaxed, of system scope; each element
// of a vector is an access by itself.)
#pragma once

constexpr long long PATIENCE = 40000000000ll;  // cycles, some 20 s: the other GPU has stopped

__device__ inline void post(uint4* to, uint4 messages) {
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(messages.x), "r"(messages.y),
                 "r"(messages.z), "r"(messages.w)
                 : "memory");
}

__device__ inline uint4 peek(const uint4* from) {
    uint4 seen;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(seen.x), "=r"(seen.y), "=r"(seen.z), "=r"(seen.w)
                 : "l"(from)
                 : "memory");
    return seen;
}

// Waits for the messages of that tag in `count` units, at most COUNT, `apart` from each other.
template <int COUNT>
__device__ void receive(uint4 (&units)[COUNT], const uint4* from, int apart, int count, unsigned tag) {
    long long begin = 0;
    while (true) {
        unsigned wrong = 0;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            if (i >= count) break;
            units[i] = peek(from + static_cast<long long>(i) * apart);
            wrong |= (units[i].x ^ tag) | (units[i].y ^ tag) | (units[i].z ^ tag) | (units[i].w ^ tag);
        }
        if ((wrong & 1) == 0) return;
        if (begin == 0) begin = clock64();
        if (clock64() - begin > PATIENCE) __trap();
    }
}

// Counts of those who have left something in memory for others.
#pragma once

#include <stdint.h>

// A count: what was stored before it was written is seen after it.
__device__ inline uint32_t load_acquire(const uint32_t* at) {
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

// Adds one to a count, and returns how many came before. What this thread block has read and stored so far, before a barrier that all its threads passed, lies before what
// the last one does after it.
__device__ inline uint32_t arrive(uint32_t* at) {
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(at) : "memory");
    return before;
}

// Counts of those who have left something in memory for others.
#pragma once

#include <stdint.h>

// A count: what was stored before it was written is seen after it.
__device__ inline uint32_t load_acquire(const uint32_t* at) {
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

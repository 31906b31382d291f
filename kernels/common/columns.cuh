// Groups of eight columns of two bytes each, of rows that ranks exchange.
#pragma once

#include "numbers.cuh"

// Numbers `at[0..left]`, at most eight.
__device__ inline Eight load_columns(const uint16_t* at, int left) {
    // Rows begin at multiples of 16 bytes and are as long: all of an aligned group is there.
    if (size_t(at) % 16 == 0) return load_eight(at);
    Eight v;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint32_t low = 2 * j < left ? at[2 * j] : 0, high = 2 * j + 1 < left ? at[2 * j + 1] : 0;
        v.pair[j] = low | high << 16;
    }
    return v;
}

__device__ inline void store_columns(uint16_t* at, int left, const Eight& v) {
    if (size_t(at) % 16 == 0 && left >= 8) return store_eight(at, v);
#pragma unroll
    for (int j = 0; j < 8; j++) {
        if (j < left) at[j] = uint16_t(v.pair[j / 2] >> (j % 2 * 16));
    }
}

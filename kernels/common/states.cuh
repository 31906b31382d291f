// Recurrent states of sequences, and which of them a batch names.
#pragma once

#include <stdint.h>

constexpr uint32_t NO_STATE = 0xffffffffu;  // as in src/compute/batch.rs

// The row of a token. Decode, where row and token are one, costs one load.
__device__ inline int row_of(const uint32_t* row_starts, int rows, int token) {
    if (token < rows && int(row_starts[token]) == token) return token;
    int low = 0, high = rows;  // row_starts[low] <= token < row_starts[high]
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        (int(row_starts[middle]) <= token ? low : high) = middle;
    }
    return low;
}

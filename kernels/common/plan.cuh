// What the plan of a pass says of its rows. Plan: src/backend/cuda/plan.rs.
#pragma once

#include <stdint.h>

// A row with one new token. The line of tiles knows it as `tiles_before * kv_heads ..`.
struct DecodeRow {
    uint32_t token;         // its index in the batch
    uint32_t row;           // its block table
    uint32_t context_len;   // tokens
    uint32_t window_start;  // first position that the token attends to
    uint32_t tiles_before;  // tiles of one KV head of all rows before
};

// Queries that one thread block takes, all of one row.
struct PrefillTile {
    uint32_t token;     // index of the first in the batch
    uint32_t row;       // block table
    uint32_t tokens;    // at most as many as a tile of the kernel has
    uint32_t position;  // of the first
};

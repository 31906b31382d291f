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

// Where a CTA, or a worker of one, begins on the line, and how far it goes.
struct DecodeCta {
    uint32_t entry;    // index into `rows`
    uint32_t kv_head;
    uint32_t tile;     // of that row, counted from its position 0
    uint32_t tiles;
    uint32_t token;    // from here on, that row
    uint32_t row;
    uint32_t context_len;
    uint32_t window_start;
    uint32_t tiles_before;
};

// Queries that one thread block takes, all of one row.
struct PrefillTile {
    uint32_t token;     // index of the first in the batch
    uint32_t row;       // block table
    uint32_t tokens;    // at most as many as a tile of the kernel has
    uint32_t position;  // of the first
};

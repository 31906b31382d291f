// What the plan of a pass says of its rows. Plan: src/compute/cuda/attention/partition.rs.
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

// A place on the line of tiles.
struct TileCursor {
    uint32_t entry, kv_head, tile, left;
    DecodeRow at;
    uint32_t first_tile, end_tile;  // of the row at hand

    __device__ void set_row(const DecodeRow& row, int tile_tokens) {
        at = row;
        first_tile = row.window_start / tile_tokens;
        end_tile = (row.context_len + tile_tokens - 1) / tile_tokens;
    }

    // To the first tile of the next KV head, or of the next row.
    __device__ void next_head(const DecodeRow* rows, int kv_heads, int tile_tokens) {
        if (++kv_head == kv_heads) {
            kv_head = 0;
            entry++;
            if (left > 0) set_row(rows[entry], tile_tokens);
        }
        tile = first_tile;
    }
};

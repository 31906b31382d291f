// What the kernels of the gated delta rule are given: token by token (gated_delta.cu) and in chunks (gated_delta_chunks.cu).
#pragma once

#include <stdint.h>

template <class T>
struct GatedDeltaParams {
    T* out;                     // [tokens, out_stride]
    const T* qkv;               // [tokens, qkv_stride]
    const T* gates;             // [tokens, gates_stride], from the first column of the gates: b, then a
    const float* decays;        // [2, value_heads]: exp(A_log), dt_bias
    float* states;              // [slots, slot_numbers], from the region of this layer
    const uint32_t* row_starts; // [rows + 1]
    const uint32_t* sources;    // [rows]
    const uint32_t* slots;      // [rows]
    const uint32_t* saves;      // [tokens]
    int64_t slot_numbers;
    int out_stride;
    int qkv_stride;
    int gates_stride;
    int key_heads;
    int value_heads;
    int value_dim;
    int is_tiled;               // value head h has key head h % key_heads
    int tokens_max;             // rows of up to that are computed one by one, longer ones in chunks
};

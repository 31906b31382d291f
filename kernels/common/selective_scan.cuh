// What the kernels of the selective scan are given: token by token (selective_scan.cu) and in chunks (selective_scan_chunks.cu).
#pragma once

#include <stdint.h>

template <class T>
struct SelectiveScanParams {
    T* out;                     // [tokens, out_stride]
    const T* xbc;               // [tokens, xbc_stride]
    const T* steps;             // [tokens, steps_stride], from the first step
    const float* rates;         // [3, heads]: exp(A_log), dt_bias, D
    float* states;              // [slots, slot_numbers], from the region of this layer
    const uint32_t* row_starts; // [rows + 1]
    const uint32_t* sources;    // [rows]
    const uint32_t* slots;      // [rows]
    const uint32_t* saves;      // [tokens]
    int64_t slot_numbers;
    int out_stride;
    int xbc_stride;
    int steps_stride;
    int heads;
    int groups;
    int head_dim;
    float step_scale;
    int tokens_max;             // rows of up to that are computed one by one, longer ones in chunks
};

// The step of a token: softplus of what the projection gave, scaled, and the bias.
__device__ inline float softplus_step(float v, float scale, float bias) {
    const float raw = fmaf(v, scale, bias);
    return raw > 20.0f ? raw : log1pf(__expf(raw));
}

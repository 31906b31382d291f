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

// The sum over the lanes that share a column.
template <int SPLIT>
__device__ inline float column_sum(float v) {
#pragma unroll
    for (int lanes = 32 / SPLIT; lanes < 32; lanes *= 2) v += __shfl_xor_sync(0xffffffffu, v, lanes);
    return v;
}

// Lets a token change a lane's part of some columns of the state, and reads these. `b` and `c` are those of the part, `written` is step * x.
template <int SPLIT, int ROWS, int COLS>
__device__ inline void apply(float (&state)[ROWS][COLS], const float4* b, const float4* c, float decay, const float (&written)[COLS], float (&sum)[COLS]) {
    float read[COLS][4] = {};
#pragma unroll
    for (int i = 0; i < ROWS / 4; i++) {
        const float4 of_b = b[i], of_c = c[i];
#pragma unroll
        for (int col = 0; col < COLS; col++) {
            state[4 * i][col] = fmaf(of_b.x, written[col], state[4 * i][col] * decay);
            state[4 * i + 1][col] = fmaf(of_b.y, written[col], state[4 * i + 1][col] * decay);
            state[4 * i + 2][col] = fmaf(of_b.z, written[col], state[4 * i + 2][col] * decay);
            state[4 * i + 3][col] = fmaf(of_b.w, written[col], state[4 * i + 3][col] * decay);
            read[col][0] = fmaf(of_c.x, state[4 * i][col], read[col][0]);
            read[col][1] = fmaf(of_c.y, state[4 * i + 1][col], read[col][1]);
            read[col][2] = fmaf(of_c.z, state[4 * i + 2][col], read[col][2]);
            read[col][3] = fmaf(of_c.w, state[4 * i + 3][col], read[col][3]);
        }
    }
#pragma unroll
    for (int col = 0; col < COLS; col++) sum[col] = column_sum<SPLIT>((read[col][0] + read[col][1]) + (read[col][2] + read[col][3]));
}

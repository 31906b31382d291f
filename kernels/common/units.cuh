// A unit of batch-invariant attention: 64 keys that begin at a multiple of 64, with a maximum, a sum and an output of its own, for a warp whose
// scores are transposed. Kernels for rows that bring one token share this, so that their results have the same bits.
#pragma once

#include "softmax.cuh"
#include "tensor_core.cuh"

constexpr int UNIT = 64, SLICES = UNIT / 16;

// score[16 keys, 8 heads each] += K Q^T, of keys in shared memory.
template <class T, int D, int NT>
__device__ inline void add_scores(float (&score)[NT][4], uint32_t keys, const uint32_t (&query)[D / 16][NT][2]) {
    const int lane = threadIdx.x % 32, matrix = lane / 8;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t key[4];
        load_matrices(key, keys + Tile<D>::at((matrix & 1) * 8 + lane % 8, 2 * k + (matrix >> 1)) * 16);
#pragma unroll
        for (int n = 0; n < NT; n++) mma<T>(score[n], key, query[k][n][0], query[k][n][1]);
    }
}

// out[D, 8 heads each] += V^T P^T, of 16 values in shared memory.
template <class T, int D, int NT>
__device__ inline void add_values(float (&out)[D / 16][NT][4], uint32_t values, const uint32_t (&weight)[NT][2]) {
    const int lane = threadIdx.x % 32, matrix = lane / 8;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t value[4];
        load_matrices_transposed(value, values + Tile<D>::at((matrix >> 1) * 8 + lane % 8, 2 * k + (matrix & 1)) * 16);
#pragma unroll
        for (int n = 0; n < NT; n++) mma<T>(out[k][n], value, weight[n][0], weight[n][1]);
    }
}

// Maximum and sum of a unit, of which the keys from `before` to `valid` are attended to, and its weights as an operand.
template <class T, int NT>
struct UnitWeights {
    float top[NT][2], sum[NT][2];
    uint32_t weight[SLICES][NT][2];

    __device__ void make(float (&score)[SLICES][NT][4], int before, int valid, float scale_log2, float tanh_scale) {
        const int lane = threadIdx.x % 32;
        if (tanh_scale != 0.0f) {
#pragma unroll
            for (int j = 0; j < SLICES; j++) {
#pragma unroll
                for (int n = 0; n < NT; n++) {
#pragma unroll
                    for (int i = 0; i < 4; i++) score[j][n][i] = tanh_of(score[j][n][i] * tanh_scale);
                }
            }
        }
        if (valid < UNIT || before > 0) {
#pragma unroll
            for (int j = 0; j < SLICES; j++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int key = 16 * j + i / 2 * 8 + lane / 4;
#pragma unroll
                    for (int n = 0; n < NT; n++) {
                        if (key >= valid || key < before) score[j][n][i] = -INFINITY;
                    }
                }
            }
        }
#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float high = fmaxf(score[0][n][h], score[0][n][h + 2]);
#pragma unroll
                for (int j = 1; j < SLICES; j++) high = fmaxf(high, fmaxf(score[j][n][h], score[j][n][h + 2]));
#pragma unroll
                for (int lanes = 4; lanes < 32; lanes *= 2) high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, lanes));
                // A unit that is computed has a key that is attended to.
                top[n][h] = __fmul_rn(high, scale_log2);
                // The keys of a lane are every eighth of the unit: eight sums, which are added in pairs.
                float lane_sum = 0.0f;
#pragma unroll
                for (int j = 0; j < SLICES; j++) {
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        float& s = score[j][n][h + 2 * half];
                        s = power_of_two(fmaf(s, scale_log2, -top[n][h]));
                        lane_sum += s;
                    }
                }
#pragma unroll
                for (int lanes = 4; lanes < 32; lanes *= 2) lane_sum += __shfl_xor_sync(0xffffffffu, lane_sum, lanes);
                sum[n][h] = lane_sum;
            }
#pragma unroll
            for (int j = 0; j < SLICES; j++) {
                weight[j][n][0] = transpose_matrix(narrow2<T>(score[j][n][0], score[j][n][1]));
                weight[j][n][1] = transpose_matrix(narrow2<T>(score[j][n][2], score[j][n][3]));
            }
        }
    }
};

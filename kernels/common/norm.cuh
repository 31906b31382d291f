// What the two norms share.
#pragma once

#include "numbers.cuh"

// The weights of a thread's first eight numbers, loaded before the kernels before have ended: in decode they come from memory, and
// there is nothing else to wait for.
struct FirstWeights {
    float2 pair[4];

    __device__ FirstWeights(const float* weight, int hidden) {
        const int i = threadIdx.x * 8;
#pragma unroll
        for (int j = 0; j < 4; j++) pair[j] = i < hidden ? *reinterpret_cast<const float2*>(weight + i + 2 * j) : make_float2(0.0f, 0.0f);
    }
};

// What `norm`, `add_norm` and `reduce_add_norm` share: a row of a thread block in registers, and its normalization.
//
// Every normalization is `(v - mean) * factor * weight`, where an RMS norm has a mean of zero, which costs nothing. A row is kept as
// it is stored, in groups of Eight, or in f32, in groups of WideEight.
#pragma once

#include "numbers.cuh"

// Which normalization a kernel is compiled for. None: the kernel has no such norm.
enum class Norm { None, Rms, Layer, LayerBiased };

// Groups of eight numbers that a thread keeps at most: rows of up to 64 numbers a thread.
constexpr int KEPT = 8;

// Eight numbers in f32, for sums that are not rounded.
struct WideEight {
    float2 pair[4];
};

// A pair in f32, however it is kept.
template <class T>
__device__ inline float2 in_f32(uint32_t pair) {
    return widen2<T>(pair);
}
template <class T>
__device__ inline float2 in_f32(float2 pair) {
    return pair;
}

// Where the thread's group `k` of eight numbers begins in a row.
__device__ inline int group_start(int k) {
    return (k * blockDim.x + threadIdx.x) * 8;
}

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

// What a row is normalized with.
struct Moments {
    float mean;    // 0 in an RMS norm
    float factor;  // 1 / sqrt(mean square + eps), or 1 / sqrt(variance + eps)
};

// What a thread sums while it reads its row: squares for an RMS norm, the numbers themselves for a layer norm.
template <Norm KIND>
__device__ inline float first_sum(float sum, float2 v) {
    if constexpr (KIND == Norm::Rms) sum += v.x * v.x + v.y * v.y;
    if constexpr (KIND == Norm::Layer || KIND == Norm::LayerBiased) sum += v.x + v.y;
    return sum;
}

// The moments of the row that the thread block keeps, of whose numbers this thread has the first sum. A layer norm goes over the
// registers a second time, because a variance that is computed from squares loses its digits where the mean is large. Uses the
// calls FIRST_CALL and FIRST_CALL + 1 of block_sum.
template <class T, Norm KIND, int FIRST_CALL, class Group, int GROUPS>
__device__ inline Moments moments(float sum, const Group (&kept)[GROUPS], int hidden, float eps) {
    const float mean = block_sum<FIRST_CALL>(sum) / hidden;
    if constexpr (KIND == Norm::Rms) return {0.0f, rsqrtf(mean + eps)};
    float squares = 0.0f;
#pragma unroll
    for (int k = 0; k < GROUPS; k++) {
        if (group_start(k) >= hidden) break;
        for (int j = 0; j < 4; j++) {
            const float2 v = in_f32<T>(kept[k].pair[j]);
            squares += (v.x - mean) * (v.x - mean) + (v.y - mean) * (v.y - mean);
        }
    }
    return {mean, rsqrtf(block_sum<FIRST_CALL + 1>(squares) / hidden + eps)};
}

// Pair `j` of group `k`, normalized.
template <class T, class Pair>
__device__ inline float2 normalized(Pair pair, const Moments& m, const FirstWeights& first, const float* weight, int k, int j) {
    const float2 v = in_f32<T>(pair);
    const float2 w = k == 0 ? first.pair[j] : *reinterpret_cast<const float2*>(weight + group_start(k) + 2 * j);
    return make_float2((v.x - m.mean) * m.factor * w.x, (v.y - m.mean) * m.factor * w.y);
}

// Writes the kept row, normalized. The biases of a norm that has some stand behind its weights.
template <class T, Norm KIND, int GROUPS>
__device__ inline void store_normalized(T* out, Eight (&kept)[GROUPS], const Moments& m, const FirstWeights& first, const float* weight,
                                        int hidden) {
#pragma unroll
    for (int k = 0; k < GROUPS; k++) {
        const int i = group_start(k);
        if (i >= hidden) break;
        for (int j = 0; j < 4; j++) {
            float2 v = normalized<T>(kept[k].pair[j], m, first, weight, k, j);
            if constexpr (KIND == Norm::LayerBiased) {
                const float2 bias = *reinterpret_cast<const float2*>(weight + hidden + i + 2 * j);
                v = make_float2(v.x + bias.x, v.y + bias.y);
            }
            kept[k].pair[j] = narrow2<T>(v.x, v.y);
        }
        store_eight(out + i, kept[k]);
    }
}

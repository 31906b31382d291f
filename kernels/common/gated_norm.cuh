// What a gated norm is given, and how a thread block computes a head.
#pragma once

#include "numbers.cuh"

template <class T>
struct GatedNormParams {
    T* x;                 // [tokens, x_stride]
    const T* gate;        // [tokens, gate_stride], from the first column of the gates
    const float* weight;  // [weight_len]
    int x_stride;
    int gate_stride;
    int heads;
    int head_dim;
    int weight_len;       // of one head or of all
    int is_gate_first;    // whether the gate comes before the norm
    float eps;
    float gate_scale;
};

__device__ inline float silu(float v) { return v / (1.0f + __expf(-v)); }

// What the squares are of.
template <class T>
__device__ inline float squared(const GatedNormParams<T>& p, float x, float gate) {
    return p.is_gate_first ? x * silu(p.gate_scale * gate) : x;
}

template <class T>
__device__ inline float result(const GatedNormParams<T>& p, float x, float gate, float scale, float weight) {
    return x * scale * weight * silu(p.gate_scale * gate);
}

// A head for a thread block, eight numbers per thread at once. One warp adds the squares, in the order in which it adds those of a head of its own.
template <class T>
struct WideHead {
    const GatedNormParams<T>& p;
    T* const x;
    const T* const gate;
    const float* const weight;
    float weights[8];

    __device__ WideHead(const GatedNormParams<T>& p, int token, int head)
        : p(p),
          x(p.x + size_t(token) * p.x_stride + head * p.head_dim),
          gate(p.gate + size_t(token) * p.gate_stride + head * p.head_dim),
          weight(p.weight + (p.weight_len == p.head_dim ? 0 : head * p.head_dim)) {}

    // Of eight numbers from `i`. Those of a thread's first numbers are loaded by the caller, who may have time to do so.
    __device__ void load_weights(int i) {
        if (i >= p.head_dim) return;
#pragma unroll
        for (int j = 0; j < 8; j += 4) {
            const float4 v = *reinterpret_cast<const float4*>(weight + i + j);
            weights[j] = v.x, weights[j + 1] = v.y, weights[j + 2] = v.z, weights[j + 3] = v.w;
        }
    }

    // `values` has head_dim numbers of shared memory.
    __device__ void normalize(float* values) {
        __shared__ float scale_of_all;
        const int start = threadIdx.x * 8, stride = blockDim.x * 8;
        for (int i = start; i < p.head_dim; i += stride) {
            const Eight of_x = load_eight(x + i), of_gate = load_eight(gate + i);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float2 v = widen2<T>(of_x.pair[j]), g = widen2<T>(of_gate.pair[j]);
                *reinterpret_cast<float2*>(values + i + 2 * j) = make_float2(squared(p, v.x, g.x), squared(p, v.y, g.y));
            }
        }
        __syncthreads();
        if (threadIdx.x < 32) {
            float squares = 0.0f;
#pragma unroll 8
            for (int i = threadIdx.x; i < p.head_dim; i += 32) squares = fmaf(values[i], values[i], squares);
            const float scale = rsqrtf(warp_sum(squares) / p.head_dim + p.eps);
            if (threadIdx.x == 0) scale_of_all = scale;
        }
        __syncthreads();
        const float scale = scale_of_all;
        for (int i = start; i < p.head_dim; i += stride) {
            if (i != start) load_weights(i);
            Eight of_x = load_eight(x + i);
            const Eight of_gate = load_eight(gate + i);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float2 v = widen2<T>(of_x.pair[j]), g = widen2<T>(of_gate.pair[j]);
                of_x.pair[j] = narrow2<T>(result(p, v.x, g.x, scale, weights[2 * j]), result(p, v.y, g.y, scale, weights[2 * j + 1]));
            }
            store_eight(x + i, of_x);
        }
    }
};

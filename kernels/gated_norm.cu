// An RMS norm of each head, then a gate. Contract: src/compute/ops/gated_norm.rs. Reference: src/compute/cpu/gated_norm.rs.
//
// Memory-bound: reads x and gate, writes x. A warp per head, or a thread block where a head has many numbers. Both add squares in one order, so that they give the same bits.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"

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

// Grid [tokens, heads / 4 rounded up], block [128].
template <class T>
__device__ void gated_norm(const GatedNormParams<T>& p) {
    launch_dependents();
    grid_dependency_wait();
    const int head = blockIdx.y * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (head >= p.heads) return;
    T* const x = p.x + size_t(blockIdx.x) * p.x_stride + head * p.head_dim;
    const T* const gate = p.gate + size_t(blockIdx.x) * p.gate_stride + head * p.head_dim;
    const float* const weight = p.weight + (p.weight_len == p.head_dim ? 0 : head * p.head_dim);
    float squares = 0.0f;
    for (int i = lane; i < p.head_dim; i += 32) {
        const float v = squared(p, widen(x[i]), widen(gate[i]));
        squares = fmaf(v, v, squares);
    }
    const float scale = rsqrtf(warp_sum(squares) / p.head_dim + p.eps);
    for (int i = lane; i < p.head_dim; i += 32) {
        x[i] = narrow<T>(result(p, widen(x[i]), widen(gate[i]), scale, weight[i]));
    }
}

// Eight numbers per thread at once. One warp adds the squares.
//
// Grid [tokens, heads], block [head_dim / 8 rounded up to 32, at most WIDE_THREADS], shared [head_dim floats]
constexpr int WIDE_THREADS = 512;

template <class T>
__device__ void gated_norm_wide(const GatedNormParams<T>& p) {
    extern __shared__ __align__(16) float values[];
    __shared__ float scale_of_all;
    launch_dependents();
    const int head = blockIdx.y, lane = threadIdx.x % 32, start = threadIdx.x * 8, stride = blockDim.x * 8;
    const float* const weight = p.weight + (p.weight_len == p.head_dim ? 0 : head * p.head_dim);
    const auto load_weights = [&](float (&to)[8], int i) {
#pragma unroll
        for (int j = 0; j < 8; j += 4) {
            const float4 v = *reinterpret_cast<const float4*>(weight + i + j);
            to[j] = v.x, to[j + 1] = v.y, to[j + 2] = v.z, to[j + 3] = v.w;
        }
    };
    float weights[8];
    if (start < p.head_dim) load_weights(weights, start);
    grid_dependency_wait();
    T* const x = p.x + size_t(blockIdx.x) * p.x_stride + head * p.head_dim;
    const T* const gate = p.gate + size_t(blockIdx.x) * p.gate_stride + head * p.head_dim;
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
        for (int i = lane; i < p.head_dim; i += 32) squares = fmaf(values[i], values[i], squares);
        const float scale = rsqrtf(warp_sum(squares) / p.head_dim + p.eps);
        if (lane == 0) scale_of_all = scale;
    }
    __syncthreads();
    const float scale = scale_of_all;
    for (int i = start; i < p.head_dim; i += stride) {
        if (i != start) load_weights(weights, i);
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

extern "C" __global__ void nvllm_k_gated_norm_bf16(const __grid_constant__ GatedNormParams<bf16> p) { gated_norm(p); }
extern "C" __global__ void nvllm_k_gated_norm_f16(const __grid_constant__ GatedNormParams<f16> p) { gated_norm(p); }
extern "C" __global__ void __launch_bounds__(WIDE_THREADS) nvllm_k_gated_norm_wide_bf16(const __grid_constant__ GatedNormParams<bf16> p) {
    gated_norm_wide(p);
}
extern "C" __global__ void __launch_bounds__(WIDE_THREADS) nvllm_k_gated_norm_wide_f16(const __grid_constant__ GatedNormParams<f16> p) {
    gated_norm_wide(p);
}

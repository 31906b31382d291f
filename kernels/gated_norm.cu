// An RMS norm of each head, then a gate. Contract: src/compute/ops/gated_norm.rs. Reference: src/compute/cpu/gated_norm.rs.
//
// Memory-bound: reads x and gate, writes x. A warp per head, or a thread block where a head has many numbers. Both add squares in one order, so that they give the same bits.
#include "common/dependent_launch.cuh"
#include "common/gated_norm.cuh"

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

// Grid [tokens, heads], block [head_dim / 8 rounded up to 32, at most WIDE_THREADS], shared [head_dim floats]
constexpr int WIDE_THREADS = 512;

template <class T>
__device__ void gated_norm_wide(const GatedNormParams<T>& p) {
    extern __shared__ __align__(16) float values[];
    launch_dependents();
    WideHead<T> head(p, blockIdx.x, blockIdx.y);
    head.load_weights(threadIdx.x * 8);
    grid_dependency_wait();
    head.normalize(values);
}

extern "C" __global__ void nvllm_k_gated_norm_bf16(const __grid_constant__ GatedNormParams<bf16> p) { gated_norm(p); }
extern "C" __global__ void nvllm_k_gated_norm_f16(const __grid_constant__ GatedNormParams<f16> p) { gated_norm(p); }
extern "C" __global__ void __launch_bounds__(WIDE_THREADS) nvllm_k_gated_norm_wide_bf16(const __grid_constant__ GatedNormParams<bf16> p) {
    gated_norm_wide(p);
}
extern "C" __global__ void __launch_bounds__(WIDE_THREADS) nvllm_k_gated_norm_wide_f16(const __grid_constant__ GatedNormParams<f16> p) {
    gated_norm_wide(p);
}

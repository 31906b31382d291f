// An RMS norm of each head, then a gate. Contract: src/compute/ops/gated_norm.rs. Reference: src/compute/cpu/gated_norm.rs.
//
// Memory-bound: reads x and gate, writes x. A warp a head.
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
        const float v = p.is_gate_first ? widen(x[i]) * silu(p.gate_scale * widen(gate[i])) : widen(x[i]);
        squares = fmaf(v, v, squares);
    }
    const float scale = rsqrtf(warp_sum(squares) / p.head_dim + p.eps);
    for (int i = lane; i < p.head_dim; i += 32) {
        x[i] = narrow<T>(widen(x[i]) * scale * weight[i] * silu(p.gate_scale * widen(gate[i])));
    }
}

extern "C" __global__ void nvllm_k_gated_norm_bf16(const __grid_constant__ GatedNormParams<bf16> p) { gated_norm(p); }
extern "C" __global__ void nvllm_k_gated_norm_f16(const __grid_constant__ GatedNormParams<f16> p) { gated_norm(p); }

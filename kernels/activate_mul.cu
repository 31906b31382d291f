// The gate of a gated MLP. Contract: src/compute/ops/activate_mul.rs. Reference: src/compute/cpu/activate_mul.rs.
//
// Memory-bound: reads gate and up once, writes out once. Eight numbers a thread.
#include "common/activation.cuh"
#include "common/dependent_launch.cuh"

template <class T>
struct ActivateMulParams {
    T* out;            // [tokens, width]
    const T* gate_up;  // [tokens, 2 * width]
    int width;         // a multiple of 8
    int activation;    // `Activation`
};

// Grid [tokens, width / 2048 rounded up], block [256]: only the first dimension has room for 65,536 and more.
template <class T>
__device__ void activate_mul(const ActivateMulParams<T>& p) {
    launch_dependents();
    grid_dependency_wait();
    const int i = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (i >= p.width) return;
    const T* row = p.gate_up + size_t(blockIdx.x) * 2 * p.width;
    const Eight gate = load_eight(row + i), up = load_eight(row + p.width + i);
    Eight out;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float2 g = widen2<T>(gate.pair[j]), u = widen2<T>(up.pair[j]);
        out.pair[j] = narrow2<T>(gated(p.activation, g.x, u.x), gated(p.activation, g.y, u.y));
    }
    store_eight(p.out + size_t(blockIdx.x) * p.width + i, out);
}

extern "C" __global__ void nvllm_k_activate_mul_bf16(const __grid_constant__ ActivateMulParams<bf16> p) { activate_mul(p); }
extern "C" __global__ void nvllm_k_activate_mul_f16(const __grid_constant__ ActivateMulParams<f16> p) { activate_mul(p); }

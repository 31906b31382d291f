// The gate of SwiGLU. Contract: src/ops/silu_mul.rs. Reference: src/backend/cpu/silu_mul.rs.
//
// Memory-bound: reads gate and up once, writes out once. Eight numbers a thread.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"

template <class T>
struct SiluMulParams {
    T* out;            // [tokens, width]
    const T* gate_up;  // [tokens, 2 * width]
    int width;         // a multiple of 8
};

__device__ inline float silu(float v) {
    return v / (1.0f + __expf(-v));
}

// Grid [width / 2048 rounded up, tokens], block [256].
template <class T>
__device__ void silu_mul(const SiluMulParams<T>& p) {
    launch_dependents();
    grid_dependency_wait();
    const int i = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (i >= p.width) return;
    const T* row = p.gate_up + size_t(blockIdx.y) * 2 * p.width;
    const Eight gate = load_eight(row + i), up = load_eight(row + p.width + i);
    Eight out;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float2 g = widen2<T>(gate.pair[j]), u = widen2<T>(up.pair[j]);
        out.pair[j] = narrow2<T>(silu(g.x) * u.x, silu(g.y) * u.y);
    }
    store_eight(p.out + size_t(blockIdx.y) * p.width + i, out);
}

extern "C" __global__ void nvllm_k_silu_mul_bf16(const __grid_constant__ SiluMulParams<bf16> p) {
    silu_mul(p);
}
extern "C" __global__ void nvllm_k_silu_mul_f16(const __grid_constant__ SiluMulParams<f16> p) {
    silu_mul(p);
}

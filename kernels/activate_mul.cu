// The gate of a gated MLP. Contract: src/ops/activate_mul.rs. Reference: src/backend/cpu/activate_mul.rs.
//
// Memory-bound: reads gate and up once, writes out once. Eight numbers a thread.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"

template <class T>
struct ActivateMulParams {
    T* out;            // [tokens, width]
    const T* gate_up;  // [tokens, 2 * width]
    int width;         // a multiple of 8
};

struct Silu {
    __device__ static float activate(float v) { return v / (1.0f + __expf(-v)); }
};

// (1 + tanh(u)) / 2 is 1 / (1 + exp(-2 u)), which keeps the digits of negative numbers. 1.5957691 is 2 sqrt(2 / pi), 0.07135481 that
// times 0.044715.
struct GeluTanh {
    __device__ static float activate(float v) { return v / (1.0f + __expf(-v * (1.5957691f + 0.07135481f * v * v))); }
};

// Grid [tokens, width / 2048 rounded up], block [256]: only the first dimension has room for 65,536 and more.
template <class T, class ACTIVATION>
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
        out.pair[j] = narrow2<T>(ACTIVATION::activate(g.x) * u.x, ACTIVATION::activate(g.y) * u.y);
    }
    store_eight(p.out + size_t(blockIdx.x) * p.width + i, out);
}

#define KERNELS(ACTIVATION, NAME)                                                                           \
    extern "C" __global__ void nvllm_k_##NAME##_bf16(const __grid_constant__ ActivateMulParams<bf16> p) {   \
        activate_mul<bf16, ACTIVATION>(p);                                                                  \
    }                                                                                                       \
    extern "C" __global__ void nvllm_k_##NAME##_f16(const __grid_constant__ ActivateMulParams<f16> p) {     \
        activate_mul<f16, ACTIVATION>(p);                                                                   \
    }

KERNELS(Silu, silu_mul)
KERNELS(GeluTanh, gelu_tanh_mul)

// The gate of a gated MLP. Contract: src/compute/ops/activate_mul.rs. Reference: src/compute/cpu/activate_mul.rs.
//
// Memory-bound: reads gate and up once, writes out once. Eight numbers a thread.
#include "common/activation.cuh"
#include "common/dependent_launch.cuh"

// Two gates and their ups.
template <class CURVE>
struct Gates {
    template <class T>
    __device__ static uint32_t of(uint32_t gate, uint32_t up) {
        return activate_mul2<T>(gate, up, CURVE::exponent);
    }
};
struct ClampedSwiglu {
    template <class T>
    __device__ static uint32_t of(uint32_t gate, uint32_t up) {
        const float2 g = widen2<T>(gate), u = widen2<T>(up);
        return narrow2<T>(clamped_swiglu(g.x, u.x), clamped_swiglu(g.y, u.y));
    }
};

template <class T>
struct ActivateMulParams {
    T* out;            // [tokens, width]
    const T* gate_up;  // [tokens, 2 * width]
    int width;         // a multiple of 8
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
    for (int j = 0; j < 4; j++) out.pair[j] = ACTIVATION::template of<T>(gate.pair[j], up.pair[j]);
    store_eight(p.out + size_t(blockIdx.x) * p.width + i, out);
}

#define KERNELS(ACTIVATION, NAME)                                                                           \
    extern "C" __global__ void nvllm_k_##NAME##_bf16(const __grid_constant__ ActivateMulParams<bf16> p) {   \
        activate_mul<bf16, ACTIVATION>(p);                                                                  \
    }                                                                                                       \
    extern "C" __global__ void nvllm_k_##NAME##_f16(const __grid_constant__ ActivateMulParams<f16> p) {     \
        activate_mul<f16, ACTIVATION>(p);                                                                   \
    }

KERNELS(Gates<Silu>, silu_mul)
KERNELS(Gates<GeluTanh>, gelu_tanh_mul)
KERNELS(ClampedSwiglu, clamped_swiglu)

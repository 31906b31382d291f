// An activation of columns, times other columns. Contract: src/compute/ops/activate.rs. Reference: src/compute/cpu/activate.rs.
//
// Memory-bound: reads both once, writes out once. Eight numbers a thread.
#include "common/activation.cuh"
#include "common/dependent_launch.cuh"

template <class T>
struct ActivateParams {
    T* out;            // [tokens, out_stride]
    const T* of;       // [tokens, of_stride], from the first column
    const T* times;    // [tokens, times_stride], from the first column; null: ones
    int width;
    int out_stride;    // numbers from row to row, a multiple of 8 each
    int of_stride;
    int times_stride;
    float scale;
    int curve;
};

// As `number_of` of src/compute/cuda/activate.rs numbers them.
enum Curve { SILU = 0, GELU_TANH = 1, RELU_SQUARED = 2, GELU = 3, TANH = 4 };

__device__ inline float curved(int curve, float v) {
    switch (curve) {
        case SILU: return v / (1.0f + __expf(Silu::exponent(v)));
        case GELU_TANH: return v / (1.0f + __expf(GeluTanh::exponent(v)));
        case RELU_SQUARED: return fmaxf(v, 0.0f) * fmaxf(v, 0.0f);
        case GELU: return 0.5f * v * erfcf(-0.70710678f * v);
        default: return tanhf(v);
    }
}

// Grid [tokens, width / 2048 rounded up], block [256]: only the first dimension has room for 65,536 and more. What pads a row of out is
// written too.
template <class T>
__device__ void activate(const ActivateParams<T>& p) {
    launch_dependents();
    grid_dependency_wait();
    const int i = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (i >= p.width) return;
    const size_t row = blockIdx.x;
    Eight v = load_eight(p.of + row * p.of_stride + i);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float2 pair = widen2<T>(v.pair[j]);
        float2 result = make_float2(curved(p.curve, p.scale * pair.x), curved(p.curve, p.scale * pair.y));
        if (p.times) {
            const float2 times = widen2<T>(load_eight(p.times + row * p.times_stride + i).pair[j]);
            result = make_float2(result.x * times.x, result.y * times.y);
        }
        v.pair[j] = narrow2<T>(result.x, result.y);
    }
    store_eight(p.out + row * p.out_stride + i, v);
}

extern "C" __global__ void nvllm_k_activate_bf16(const __grid_constant__ ActivateParams<bf16> p) { activate(p); }
extern "C" __global__ void nvllm_k_activate_f16(const __grid_constant__ ActivateParams<f16> p) { activate(p); }

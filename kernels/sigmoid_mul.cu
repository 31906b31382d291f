// The gate of what attention computed. Contract: src/compute/ops/sigmoid_mul.rs. Reference: src/compute/cpu/sigmoid_mul.rs.
//
// Memory-bound: reads x and gate once, writes x once. Eight numbers a thread.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"

template <class T>
struct SigmoidMulParams {
    T* x;           // [tokens, stride]
    const T* gate;  // [tokens, gate_stride]
    int width;
    int stride;     // numbers from row to row of x, a multiple of 8
    int gate_stride;
    int span;       // numbers per gate: 1, or a multiple of 8
};

// An exponential that overflows gives 0.
__device__ inline float sigmoid_mul(float x, float gate) { return x / (1.0f + __expf(-gate)); }

// Grid [tokens, width / 2048 rounded up], block [256]: only the first dimension has room for 65,536 and more. What pads a row is
// gated too.
template <class T>
__device__ void sigmoid_mul(const SigmoidMulParams<T>& p) {
    launch_dependents();
    grid_dependency_wait();
    const int i = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (i >= p.width) return;
    const size_t at = size_t(blockIdx.x) * p.stride + i;
    const T* const gates = p.gate + size_t(blockIdx.x) * p.gate_stride;
    Eight x = load_eight(p.x + at);
    if (p.span != 1) {
        const float gate = widen(gates[i / p.span]);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float2 v = widen2<T>(x.pair[j]);
            x.pair[j] = narrow2<T>(sigmoid_mul(v.x, gate), sigmoid_mul(v.y, gate));
        }
        store_eight(p.x + at, x);
        return;
    }
    const Eight gate = load_eight(gates + i);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float2 v = widen2<T>(x.pair[j]), g = widen2<T>(gate.pair[j]);
        x.pair[j] = narrow2<T>(sigmoid_mul(v.x, g.x), sigmoid_mul(v.y, g.y));
    }
    store_eight(p.x + at, x);
}

extern "C" __global__ void nvllm_k_sigmoid_mul_bf16(const __grid_constant__ SigmoidMulParams<bf16> p) { sigmoid_mul(p); }
extern "C" __global__ void nvllm_k_sigmoid_mul_f16(const __grid_constant__ SigmoidMulParams<f16> p) { sigmoid_mul(p); }

// Normalization of each row. Contract: src/compute/ops/norm.rs. Reference: src/compute/cpu/norm.rs.
//
// Memory-bound in prefill: reads x once into registers, writes out once. At the launch floor in decode. One thread block per token.
#include "common/dependent_launch.cuh"
#include "common/norm.cuh"

template <class T>
struct NormParams {
    T* out;               // [tokens, stride]   may be x
    const T* x;           // [tokens, stride]
    const float* weight;  // [hidden], or with biases [2 * hidden]
    int hidden;           // a multiple of 8, at most 64 a thread
    int stride;           // numbers from row to row of out and x
    float eps;
};

// Grid [tokens], block [whole warps that take up to 64 numbers a thread].
template <class T, Norm KIND>
__device__ void norm(const NormParams<T>& p) {
    launch_dependents();
    const FirstWeights first(p.weight, p.hidden);
    grid_dependency_wait();
    const size_t row = size_t(blockIdx.x) * p.stride;

    Eight kept[KEPT];
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int i = group_start(k);
        if (i >= p.hidden) break;
        kept[k] = load_eight(p.x + row + i);
        for (int j = 0; j < 4; j++) sum = first_sum<KIND>(sum, widen2<T>(kept[k].pair[j]));
    }
    const Moments m = moments<T, KIND, 0>(sum, kept, p.hidden, p.eps);
    store_normalized<T, KIND>(p.out + row, kept, m, first, p.weight, p.hidden);
}

#define KERNELS(KIND, NAME)                                                                            \
    extern "C" __global__ void nvllm_k_##NAME##_bf16(const __grid_constant__ NormParams<bf16> p) {     \
        norm<bf16, Norm::KIND>(p);                                                                     \
    }                                                                                                  \
    extern "C" __global__ void nvllm_k_##NAME##_f16(const __grid_constant__ NormParams<f16> p) {       \
        norm<f16, Norm::KIND>(p);                                                                      \
    }

KERNELS(Rms, rms_norm)
KERNELS(Layer, layer_norm)
KERNELS(LayerBiased, layer_norm_biased)

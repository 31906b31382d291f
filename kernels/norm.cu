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
    Norm kind;
};

// Grid [tokens], block [whole warps that take up to 64 numbers a thread].
template <class T>
__device__ void norm(const NormParams<T>& p) {
    launch_dependents();
    const FirstWeights first(p.kind, p.weight, p.hidden);
    grid_dependency_wait();
    const size_t row = size_t(blockIdx.x) * p.stride;

    Eight kept[KEPT];
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int i = group_start(k);
        if (i >= p.hidden) break;
        kept[k] = load_eight(p.x + row + i);
        for (int j = 0; j < 4; j++) sum = first_sum(p.kind, sum, widen2<T>(kept[k].pair[j]));
    }
    const Moments m = moments<T, 0>(p.kind, sum, kept, p.hidden, p.eps);
    store_normalized(p.kind, p.out + row, kept, m, first, p.weight, p.hidden);
}

#define KERNEL(TYPE) \
    extern "C" __global__ void __launch_bounds__(1024) nvllm_k_norm_##TYPE(const __grid_constant__ NormParams<TYPE> p) { norm<TYPE>(p); }

KERNEL(bf16)
KERNEL(f16)

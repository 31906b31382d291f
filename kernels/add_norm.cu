// Adds to the residual stream and normalizes it. Contract: src/compute/ops/add_norm.rs. Reference: src/compute/cpu/add_norm.rs.
//
// Memory-bound in prefill: reads residual and delta once, writes residual and out once. At the launch floor in decode. One
// thread block per token. A norm of the delta is computed in f32 and not rounded before the sum; the sum is normalized as it was
// rounded for the residual stream.
#include "common/add_norm.cuh"
#include "common/dependent_launch.cuh"

template <class T>
struct AddNormParams {
    T* out;                    // [tokens, stride]   may be delta; only with a next norm
    T* residual;               // [tokens, stride]
    const T* delta;            // [tokens, stride]
    const float* weight;       // [hidden] of the next norm, or with biases [2 * hidden]
    const float* post_weight;  // [hidden] of the norm of delta
    int hidden;                // a multiple of 8, at most 64 a thread
    int stride;                // numbers from row to row of out, residual and delta
    float eps;                 // of the next norm
    float post_eps;            // of the norm of delta
    float scale;               // factor of what is added
    float stream_scale;        // factor of the sum
    Norm post;                 // of delta
    Norm next;                 // of the sum
};

// Grid [tokens], block [whole warps that take up to 64 numbers a thread].
template <class T>
__device__ void add_norm(const AddNormParams<T>& p) {
    launch_dependents();
    const FirstWeights first(p.next, p.weight, p.hidden);
    const FirstWeights post_first(p.post, p.post_weight, p.hidden);
    grid_dependency_wait();
    const size_t row = size_t(blockIdx.x) * p.stride;
    add_norm_row<T, KEPT>(p, row, first, post_first, [&](int, int i) { return load_eight(p.delta + row + i); });
}

#define KERNEL(TYPE)                                                                                                   \
    extern "C" __global__ void __launch_bounds__(1024, 1) nvllm_k_add_norm_##TYPE(const __grid_constant__ AddNormParams<TYPE> p) { \
        add_norm<TYPE>(p);                                                                                             \
    }

KERNEL(bf16)
KERNEL(f16)

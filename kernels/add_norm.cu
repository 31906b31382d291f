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
};

// Grid [tokens], block [whole warps that take up to 64 numbers a thread]. POST normalizes delta, NEXT the sum.
template <class T, Norm POST, Norm NEXT>
__device__ void add_norm(const AddNormParams<T>& p) {
    launch_dependents();
    const FirstWeights first(p.weight, NEXT == Norm::None ? 0 : p.hidden);
    const FirstWeights post_first(p.post_weight, POST == Norm::None ? 0 : p.hidden);
    grid_dependency_wait();
    const size_t row = size_t(blockIdx.x) * p.stride;
    add_norm_row<T, POST, NEXT, KEPT>(p, row, first, post_first, [&](int, int i) { return load_eight(p.delta + row + i); });
}

#define KERNELS(BOUNDS, POST, NEXT, NAME)                                                                             \
    extern "C" __global__ void BOUNDS nvllm_k_##NAME##_bf16(const __grid_constant__ AddNormParams<bf16> p) {          \
        add_norm<bf16, Norm::POST, Norm::NEXT>(p);                                                                    \
    }                                                                                                                 \
    extern "C" __global__ void BOUNDS nvllm_k_##NAME##_f16(const __grid_constant__ AddNormParams<f16> p) {            \
        add_norm<f16, Norm::POST, Norm::NEXT>(p);                                                                     \
    }

KERNELS(, None, None, add)
KERNELS(, None, Rms, add_rms_norm)
KERNELS(, None, Layer, add_layer_norm)
KERNELS(, None, LayerBiased, add_layer_norm_biased)

// With two norms the compiler would take more registers than 1024 threads have.
#define TWO_NORMS __launch_bounds__(1024)
KERNELS(TWO_NORMS, Rms, None, rms_norm_add)
KERNELS(TWO_NORMS, Rms, Rms, rms_norm_add_rms_norm)
KERNELS(TWO_NORMS, Rms, Layer, rms_norm_add_layer_norm)
KERNELS(TWO_NORMS, Layer, None, layer_norm_add)
KERNELS(TWO_NORMS, Layer, Rms, layer_norm_add_rms_norm)
KERNELS(TWO_NORMS, Layer, Layer, layer_norm_add_layer_norm)

// A linear layer of 9 to 128 tokens over quantized weights that shared memory holds all at once, on compute capability 9.0. Contract:
// src/compute/ops/linear.rs, src/compute/ops/gated_linear.rs where GATED, and src/compute/ops/linear_add_norm.rs where ADDED. Reference: src/compute/cpu/linear.
//
// Bound by latency. The tile of linear_hopper.cu, with the same results: the warps that multiply turn units of quantized weights (common/coded.cuh)
// into the numbers of their ring, while the kernels before are at work. After the wait, a layer takes as long as one of plain numbers. Which codes they are
// is known at run time, since none are read after the wait.
#include "common/hopper_tile.cuh"

template <class T>
struct HopperQuantizedParams {
    HopperParams<T> layer;  // without `weight`
    CodedWeights units;     // of n columns; of gated results those of n gates, then of n ups
    int form;               // an index into `Form::NAMES` of src/compute/cuda/coded.rs
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define BODY(...) __VA_ARGS__;
#else
#define BODY(...)
#endif
#define KERNEL(tokens, depth, name, results, dtype)                                                                              \
    extern "C" __global__ void __launch_bounds__(32 * (CONSUMERS + 2))                                                           \
        nvllm_k_linear_hopper_quantized_##name##t##tokens##_##dtype(const __grid_constant__ HopperQuantizedParams<dtype> p) {    \
        BODY(linear_hopper<dtype, tokens, depth, Parts::ONE, Results::results>(p.layer, QuantizedWeights{p.units, p.form}))      \
    }
// In f16, a row that is not yet divided could be out of range.
#define KERNELS(tokens, depth)                      \
    KERNEL(tokens, depth, , SUMS, bf16)             \
    KERNEL(tokens, depth, , SUMS, f16)              \
    KERNEL(tokens, depth, gated_, GATED, bf16)      \
    KERNEL(tokens, depth, gated_, GATED, f16)       \
    KERNEL(tokens, depth, added_, ADDED, bf16)

KERNELS(16, 2)
KERNELS(32, 2)
KERNELS(64, 2)
KERNELS(96, 1)
KERNELS(128, 1)

// A linear layer for any number of tokens. Contract: src/compute/ops/linear.rs. Reference: src/compute/cpu/linear.
//
// Compute-bound from about 200 tokens on: 2 m n k operations. It serves where cuBLASLt is missing, and where results must not depend on
// the batch and `gemm_swap_ab.cu` does not compute them: all kernels of this file give the same bits. Weights are older than the step and begin
// to come before the kernels before this one have ended.
#include "common/gemm_tiled.cuh"

#define KERNEL(tokens, columns, mt, nt, wm, wn, stages, blocks, dtype)                                                      \
    extern "C" __global__ void __launch_bounds__(32 * wm * wn, blocks)                                                      \
        nvllm_k_gemm_tiled_t##tokens##_c##columns##_##dtype(const __grid_constant__ LinearParams<dtype> p) {             \
        static_assert(tokens == 16 * mt * wm && columns == 16 * nt * wn, "the name says what it computes");                 \
        gemm_tiled<dtype, mt, nt, wm, wn, stages>(p);                                                                     \
    }
#define KERNELS(tokens, columns, mt, nt, wm, wn, stages, blocks)  \
    KERNEL(tokens, columns, mt, nt, wm, wn, stages, blocks, bf16) \
    KERNEL(tokens, columns, mt, nt, wm, wn, stages, blocks, f16)

KERNELS(16, 32, 1, 1, 1, 2, 8, 4)
KERNELS(64, 64, 2, 1, 2, 4, 4, 3)
KERNELS(128, 128, 4, 2, 2, 4, 3, 2)

// A linear layer for each head. Contract: src/compute/ops/head_linear.rs. Reference: src/compute/cpu/head_linear.rs.
//
// Memory-bound for few tokens: reads the weights of all heads once for each tile of tokens, 2 * heads * n * k bytes. A result is one chain of products in the
// order of k, so that it depends on its row alone, and both kernels give the same bits.
#include "common/gemm_tiled.cuh"

template <class T>
struct HeadLinearParams {
    T* out;           // [tokens, out_stride], at the first column of the first head
    const T* x;       // [tokens, x_stride], likewise
    const T* weight;  // [heads, n, k]
    int tokens;
    int n;            // columns of a head
    int k;            // a multiple of 8
    int out_stride;
    int x_stride;     // a multiple of 8
    int out_step;     // columns from one head to the next
    int x_step;       // likewise, a multiple of 8
};

// Grid [tokens / tokens of a tile rounded up, n / columns rounded up, heads].
template <class T, int MT, int NT, int WM, int WN, int STAGES>
__device__ void head_linear(const HeadLinearParams<T>& p) {
    const size_t head = blockIdx.z;
    const LinearParams<T> of_head = {
        p.out + head * p.out_step,
        p.x + head * p.x_step,
        p.weight + head * p.n * p.k,
        nullptr,
        p.tokens,
        p.n,
        p.k,
        p.out_stride,
        p.x_stride,
    };
    gemm_tiled<T, MT, NT, WM, WN, STAGES>(of_head);
}

#define KERNEL(tokens, columns, mt, nt, wm, wn, stages, blocks, dtype)                                     \
    extern "C" __global__ void __launch_bounds__(32 * wm * wn, blocks)                                     \
        nvllm_k_head_linear_t##tokens##_##dtype(const __grid_constant__ HeadLinearParams<dtype> p) {       \
        static_assert(tokens == 16 * mt * wm && columns == 16 * nt * wn, "as the launch has it");          \
        head_linear<dtype, mt, nt, wm, wn, stages>(p);                                                     \
    }

KERNEL(16, 32, 1, 1, 1, 2, 4, 4, bf16)
KERNEL(16, 32, 1, 1, 1, 2, 4, 4, f16)
KERNEL(64, 64, 2, 1, 2, 4, 3, 3, bf16)
KERNEL(64, 64, 2, 1, 2, 4, 3, 3, f16)

// Adds a sum over ranks to the residual stream and normalizes it. Contract: src/compute/ops/reduce_add_norm.rs. Reference:
// src/compute/cpu/reduce_add_norm.rs.
//
// Bound by the latency of the link in decode and by its throughput in prefill. Every rank sends its share of all rows to every other one
// and sums all shares itself, in the order of ranks: all ranks get the same bits. One thread block per row, as long as the grid fits the
// device; beyond that a thread block has several, and pushes each before it takes it: while it waits, other thread blocks push. Pushing
// further ahead is slower: one H200 of two, 8192 rows of 4096 numbers, 199 us with no row ahead, 210 with 2, 294 with all. For many rows on
// more than two GPUs reduce_add_norm_two_shot.cu sends fewer bytes.
#include "common/reduce_add_norm.cuh"

// Grid [at most rows], block [whole warps that take up to 8 * GROUPS numbers a thread]. POST normalizes the sum of the shares, NEXT the
// stream.
template <class T, Norm POST, Norm NEXT, int GROUPS>
__device__ void reduce_add_norm(const ReduceAddNormParams<T>& p) {
    launch_dependents();
    const Exchange& e = p.exchange;
    const uint32_t parity = parity_of(e);
    const FirstWeights first(p.weight, NEXT == Norm::None ? 0 : p.hidden);
    const FirstWeights post_first(p.post_weight, POST == Norm::None ? 0 : p.hidden);
    grid_dependency_wait();

    const auto push_row = [&](int row) {
#pragma unroll
        for (int k = 0; k < GROUPS; k++) {
            const int i = group_start(k);
            if (i >= p.hidden) break;
            const Eight v = not_empty(load_eight(p.share + size_t(row) * p.stride + i));
            const size_t at = (size_t(row) * p.hidden + i) * sizeof(T);
#pragma unroll 1
            for (int to = 0; to < e.ranks; to++) {
                if (to != e.rank) push(slot_of(e, parity, to, e.rank) + at, v);
            }
        }
    };
    Wait wait;
    for (int row = blockIdx.x; row < p.rows; row += gridDim.x) {
        push_row(row);
        const auto sum = [&](int, int i) {
            const Eight own = load_eight(p.share + size_t(row) * p.stride + i);
            const size_t at = (size_t(row) * p.hidden + i) * sizeof(T);
            return sum_of_shares<T>(e, parity, own, at, wait);
        };
        add_norm_row<T, POST, NEXT, GROUPS>(p, size_t(row) * p.stride, first, post_first, sum);
        // The sums over the thread block have one place each.
        if (row + int(gridDim.x) < p.rows) __syncthreads();
    }
}

#define KERNEL(POST, NEXT, NAME, GROUPS, TYPE)                                                 \
    extern "C" __global__ void __launch_bounds__(1024)                                         \
        nvllm_k_##NAME##_g##GROUPS##_##TYPE(const __grid_constant__ ReduceAddNormParams<TYPE> p) { \
        reduce_add_norm<TYPE, Norm::POST, Norm::NEXT, GROUPS>(p);                              \
    }
// One group per thread serves rows of up to 8192 numbers, eight those of up to 65536.
#define KERNELS(POST, NEXT, NAME)   \
    KERNEL(POST, NEXT, NAME, 1, bf16) \
    KERNEL(POST, NEXT, NAME, 1, f16)  \
    KERNEL(POST, NEXT, NAME, 8, bf16) \
    KERNEL(POST, NEXT, NAME, 8, f16)

KERNELS(None, None, reduce_add)
KERNELS(None, Rms, reduce_add_rms_norm)
KERNELS(None, Layer, reduce_add_layer_norm)
KERNELS(Rms, None, rms_norm_reduce_add)
KERNELS(Rms, Rms, rms_norm_reduce_add_rms_norm)
KERNELS(Rms, Layer, rms_norm_reduce_add_layer_norm)
KERNELS(Layer, None, layer_norm_reduce_add)
KERNELS(Layer, Rms, layer_norm_reduce_add_rms_norm)
KERNELS(Layer, Layer, layer_norm_reduce_add_layer_norm)

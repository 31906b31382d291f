// As reduce_add_norm.cu, in two steps: each row has an owner among the ranks, who sums the shares of all of them, and sends the others the
// row of the stream. Contract: src/compute/ops/reduce_add_norm.rs. Reference: src/compute/cpu/reduce_add_norm.rs.
//
// Bound by the throughput of the link. Of B bytes, each of n ranks sends 2 (n - 1) / n B instead of (n - 1) B, and a row takes two trips over
// the link instead of one. The stream is what travels, as it is rounded: every rank normalizes it itself, by the same threads. So all ranks
// get the same bits, and those of reduce_add_norm.cu.
//
// A share goes to the owner of its row and the row of the stream comes from there, so that each place of a slot has one sender and one use
// in an exchange.
#include "common/reduce_add_norm.cuh"

// Grid [at most rows], block [whole warps that take up to 8 * GROUPS numbers a thread]. POST normalizes the sum of the shares, NEXT the
// stream.
template <class T, Norm POST, Norm NEXT, int GROUPS>
__device__ void reduce_add_norm_two_shot(const ReduceAddNormParams<T>& p) {
    launch_dependents();
    const Exchange& e = p.exchange;
    const uint32_t parity = parity_of(e);
    const FirstWeights first(p.weight, NEXT == Norm::None ? 0 : p.hidden);
    const FirstWeights post_first(p.post_weight, POST == Norm::None ? 0 : p.hidden);
    grid_dependency_wait();

    Wait wait;
    for (int row = blockIdx.x; row < p.rows; row += gridDim.x) {
        // Neighbours have different owners: all ranks sum at the same time.
        const int owner = row % e.ranks;
        const size_t start = size_t(row) * p.stride;
        const auto place = [&](int i) { return (size_t(row) * p.hidden + i) * sizeof(T); };
        if (owner == e.rank) {
            const auto sum = [&](int, int i) { return sum_of_shares<T>(e, parity, load_eight(p.share + start + i), place(i), wait); };
            // A pair of rounded numbers is never EMPTY.
            const auto push_to_all = [&](int i, const Eight& v) {
#pragma unroll 1
                for (int to = 0; to < e.ranks; to++) {
                    if (to != e.rank) push(slot_of(e, parity, to, e.rank) + place(i), v);
                }
            };
            add_norm_row<T, POST, NEXT, GROUPS>(p, start, first, post_first, sum, push_to_all);
        } else {
#pragma unroll
            for (int k = 0; k < GROUPS; k++) {
                const int i = group_start(k);
                if (i >= p.hidden) break;
                push(slot_of(e, parity, owner, e.rank) + place(i), not_empty(load_eight(p.share + start + i)));
            }
            norm_row<T, NEXT, GROUPS>(p, start, first, [&](int i) { return take(slot_of(e, parity, e.rank, owner) + place(i), e, wait); });
        }
        // The sums over the thread block have one place each.
        if (row + int(gridDim.x) < p.rows) __syncthreads();
    }
}

#define KERNEL(POST, NEXT, NAME, GROUPS, TYPE)                                                           \
    extern "C" __global__ void __launch_bounds__(1024)                                                   \
        nvllm_k_##NAME##_two_shot_g##GROUPS##_##TYPE(const __grid_constant__ ReduceAddNormParams<TYPE> p) { \
        reduce_add_norm_two_shot<TYPE, Norm::POST, Norm::NEXT, GROUPS>(p);                               \
    }
// As in reduce_add_norm.cu.
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

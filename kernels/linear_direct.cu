// A linear layer for few tokens. Contract: src/ops/linear.rs. Reference: src/backend/cpu/linear.
//
// Memory-bound: reads each weight once, 2 n k bytes. A thread block computes 16 MT columns for all tokens; its warps share out k in runs of
// 32 UNROLL numbers and add up through shared memory, in the order of the warps. Weights go straight from memory to tensor-core
// registers: a dot product does not care for the order of k, so the four lanes of a row take 16 contiguous bytes each and call
// them two fragments, and x is read by the same rule.
#include "common/chain.cuh"
#include "common/linear.cuh"
#include "common/tensor_core.cuh"

// When a warp loads its next run of weights.
enum class Ahead {
    NO,   // after the product: half the registers, so twice the warps, whose loads overlap anyway
    YES,  // before it: wins where products take long, from 16 tokens on
};

// Grid [n / (16 MT) rounded up], block [32 * warps], shared [warps * 16 MT * 8 NT * 4 bytes].
template <class T, int NT, int MT, int UNROLL, Ahead AHEAD>
__device__ void linear_direct(const LinearParams<T>& p) {
    extern __shared__ __align__(16) float parts[];  // [warps, 8 NT tokens, 16 MT columns]
    constexpr int RUN = 32 * UNROLL;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int row = lane / 4, offset = lane % 4 * 8;
    const int first = blockIdx.x * 16 * MT;

    Eight weight[UNROLL][MT][2];
    const T* rows[MT][2];
#pragma unroll
    for (int i = 0; i < MT; i++) {
#pragma unroll
        for (int h = 0; h < 2; h++) rows[i][h] = p.weight + size_t(min(first + i * 16 + h * 8 + row, p.n - 1)) * p.k + offset;
    }
    auto load_weights = [&](int k) {
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
#pragma unroll
            for (int i = 0; i < MT; i++) {
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    weight[u][i][h] = k + u * 32 + offset < p.k ? load_eight_once(rows[i][h] + k + u * 32) : Eight{};
                }
            }
        }
    };
    // Weights belong to no step, so that they may be under way before the kernel before this one has ended.
    int k = warp * RUN;
    load_weights(k);
    wait_for_previous();
    let_next_begin();

    float sum[MT][NT][4] = {};
    while (k < p.k) {
        Eight now[UNROLL][MT][2];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
#pragma unroll
            for (int i = 0; i < MT; i++) now[u][i][0] = weight[u][i][0], now[u][i][1] = weight[u][i][1];
        }
        const int next = k + warps * RUN;
        if (AHEAD == Ahead::YES && next < p.k) load_weights(next);
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
#pragma unroll
            for (int n = 0; n < NT; n++) {
                const int token = n * 8 + row;
                const bool is_there = token < p.m && k + u * 32 + offset < p.k;
                const Eight x = is_there ? load_eight(p.x + size_t(token) * p.x_stride + k + u * 32 + offset) : Eight{};
#pragma unroll
                for (int i = 0; i < MT; i++) {
                    const Eight &a = now[u][i][0], &b = now[u][i][1];
                    const uint32_t low[4] = {a.pair[0], b.pair[0], a.pair[1], b.pair[1]};
                    const uint32_t high[4] = {a.pair[2], b.pair[2], a.pair[3], b.pair[3]};
                    mma<T>(sum[i][n], low, x.pair[0], x.pair[1]);
                    mma<T>(sum[i][n], high, x.pair[2], x.pair[3]);
                }
            }
        }
        if (AHEAD == Ahead::NO && next < p.k) load_weights(next);
        k = next;
    }

    constexpr int COLUMNS = 16 * MT, TOKENS = 8 * NT;
    float* part = parts + warp * TOKENS * COLUMNS;
#pragma unroll
    for (int i = 0; i < MT; i++) {
#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int token = n * 8 + lane % 4 * 2 + (e & 1), column = i * 16 + (e >> 1) * 8 + row;
                part[token * COLUMNS + column] = sum[i][n][e];
            }
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < min(TOKENS, p.m) * COLUMNS; i += blockDim.x) {
        float total = 0.0f;
        for (int w = 0; w < warps; w++) total += parts[w * TOKENS * COLUMNS + i];
        store_output(p, i / COLUMNS, first + i % COLUMNS, total);
    }
}

#define KERNEL(tokens, threads, nt, mt, unroll, ahead, dtype)                                      \
    extern "C" __global__ void __launch_bounds__(threads)                                          \
        nvllm_k_linear_direct_m##tokens##_##dtype(const __grid_constant__ LinearParams<dtype> p) { \
        linear_direct<dtype, nt, mt, unroll, Ahead::ahead>(p);                                     \
    }
#define KERNELS(tokens, threads, nt, mt, unroll, ahead)  \
    KERNEL(tokens, threads, nt, mt, unroll, ahead, bf16) \
    KERNEL(tokens, threads, nt, mt, unroll, ahead, f16)

KERNELS(8, 512, 1, 1, 4, NO)
KERNELS(16, 512, 2, 1, 4, YES)
KERNELS(32, 256, 4, 2, 2, NO)
KERNELS(64, 256, 8, 2, 2, NO)

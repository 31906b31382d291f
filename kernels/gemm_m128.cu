// A linear layer of 104 to 128 or of 208 to 256 tokens on compute capability 9.0. Contract: src/compute/ops/linear.rs, src/compute/ops/gated_linear.rs. Reference:
// src/compute/cpu/linear.
//
// As gemm_swap_ab.cu, and with its bits: one chain of tensor-core products in the order of k for each result. Here tokens are the operand of 64 rows, and columns
// are N, so that two warpgroups share a tile of 128 tokens, and a thread has a gate and its up. With 96 rows of weights in a tile, a layer of 6144 such
// rows and two tiles of tokens runs at once. Bound by what the multiprocessors read from the second-level cache.
#include "common/dependent_launch.cuh"
#include "common/gemm_swap_ab.cuh"

constexpr int TOKENS = 128, CONSUMERS = 8, MULTIPLYING = 32 * CONSUMERS;  // of a tile; warps that multiply, and their threads

__device__ inline void store_matrices(uint32_t at, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// Of a thread's column `column` and the next.
template <class T>
__device__ inline float2 bias_of(const GemmSwapAbParams<T>& p, int column, int half) {
    if (!p.bias) return make_float2(0.0f, 0.0f);
    const float* at = p.bias + half * p.n + column;
    return make_float2(column < p.n ? at[0] : 0.0f, column + 1 < p.n ? at[1] : 0.0f);
}

// Grid [tiles of tokens, tiles of columns], block [320], shared [BARRIER_BYTES + stages * (128 + COLUMNS) * 128 bytes]. COLUMNS: rows of weights of a tile.
template <class T, int COLUMNS, Results RESULTS>
__device__ void gemm_m128(const GemmSwapAbParams<T>& p) {
    constexpr int STAGE = (TOKENS + COLUMNS) * 128, X_BYTES = TOKENS * 128;
    constexpr bool IS_GATED = RESULTS == Results::GATED;
    constexpr int OUT = IS_GATED ? COLUMNS / 2 : COLUMNS;  // columns of `out`
    constexpr int PITCH = OUT * 2 + 16;                    // from token to token of results in shared memory
    extern __shared__ __align__(1024) uint8_t shared[];
    const uint32_t first_bytes = shared_address(shared);
    const uint32_t full = first_bytes, empty = full + 8 * STAGES_MAX, ring = first_bytes + BARRIER_BYTES;
    float* const factors = reinterpret_cast<float*>(shared + FACTORS_AT);
    const int lane = threadIdx.x % 32, warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    launch_dependents();
    if (threadIdx.x == 0) {
        for (int i = 0; i < p.stages; i++) {
            barrier_init(full + 8 * i, 1);
            barrier_init(empty + 8 * i, CONSUMERS);
        }
        fence_barrier_init();
    }
    __syncthreads();
    const int steps = p.k / 64, tile_tokens = tokens_of_tile(p.m, gridDim.x);
    const int first_token = blockIdx.x * tile_tokens, first_column = blockIdx.y * OUT;

    if (warp == CONSUMERS) {
        if (elect_lane()) {
            const auto copy_weights = [&](int slot, int step) {
                barrier_expect(full + 8 * slot, (COLUMNS + tile_tokens) * 128);
                if constexpr (IS_GATED) {
                    copy_box_of_halves(ring + slot * STAGE + X_BYTES, &p.weight, first_column / 8, step, full + 8 * slot, EVICT_FIRST);
                } else {
                    copy_box(ring + slot * STAGE + X_BYTES, &p.weight, first_column, step, full + 8 * slot, EVICT_FIRST);
                }
            };
            const auto copy_x = [&](int slot, int step) { copy_box(ring + slot * STAGE, &p.x, first_token, step, full + 8 * slot, EVICT_NORMAL); };
            fill_ring(&p.x, steps, p.stages, empty, copy_weights, copy_x);
        }
    } else if (warp == CONSUMERS + 1) {
        if (p.norms.squares) {
            grid_dependency_wait();
            load_factors<TOKENS>(p.norms, p.m, p.k, factors, first_token, tile_tokens);
            factors_ready<MULTIPLYING + 32>();
        }
    } else {
        float sum[COLUMNS / 2];
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) sum[i] = 0.0f;
        const uint64_t first_a = __shfl_sync(0xffffffffu, matrix_descriptor(ring + warp / 4 * (64 * 128)), 0);
        const uint64_t first_b = __shfl_sync(0xffffffffu, matrix_descriptor(ring + X_BYTES), 0);
        int slot = 0, last = -1;
        uint32_t parity = 0;
        for (int step = 0; step < steps; step++) {
            barrier_wait(full + 8 * slot, parity);
            const uint64_t a = first_a + uint64_t(slot * (STAGE >> 4)), b = first_b + uint64_t(slot * (STAGE >> 4));
            warpgroup_fence();
#pragma unroll
            for (int i = 0; i < 4; i++) warpgroup_mma<T, COLUMNS>(sum, a + 2 * i, b + 2 * i);
            warpgroup_commit();
            warpgroup_wait<1>();
            if (last >= 0 && lane == 0) barrier_arrive(empty + 8 * last);
            last = slot;
            if (++slot == p.stages) slot = 0, parity ^= 1;
        }
        warpgroup_wait<0>();
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) asm volatile("" : "+f"(sum[i])::"memory");
        grid_dependency_wait();
        // From here on the ring holds results: all copies to it have been waited for, and all warps have multiplied them.
        consumers_sync<MULTIPLYING>();
        float2 factor = make_float2(1.0f, 1.0f);  // of the two tokens that this thread has sums of
        if (p.norms.squares) {
            factors_wait<MULTIPLYING + 32>();
            factor = make_float2(factors[warp * 16 + lane / 4], factors[warp * 16 + lane / 4 + 8]);
        }
        // Two columns of both tokens, of eight `eight` of the tile.
        const auto pairs_of = [&](int eight, int column, int half) {
            const float* s = sum + 4 * eight;
            const float2 bias = bias_of(p, first_column + column + lane % 4 * 2, half);
            return make_uint2(narrow2<T>(fmaf(s[0], factor.x, bias.x), fmaf(s[1], factor.x, bias.y)),
                              narrow2<T>(fmaf(s[2], factor.y, bias.x), fmaf(s[3], factor.y, bias.y)));
        };
        const auto results_of = [&](int eight) {
            if constexpr (IS_GATED) {
                const uint2 gate = pairs_of(2 * eight, 8 * eight, 0), up = pairs_of(2 * eight + 1, 8 * eight, 1);
                return make_uint2(gated2<T>(p.is_gelu_tanh, gate.x, up.x), gated2<T>(p.is_gelu_tanh, gate.y, up.y));
            } else {
                return pairs_of(eight, 8 * eight, 0);
            }
        };
        // By tokens, 16 of each warp.
        const uint32_t own = BARRIER_BYTES + warp * 16 * PITCH;
#pragma unroll
        for (int j = 0; j < OUT / 16; j++) {
            const uint2 low = results_of(2 * j), high = results_of(2 * j + 1);
            store_matrices(first_bytes + own + lane % 16 * PITCH + (2 * j + lane / 16) * 16, low.x, low.y, high.x, high.y);
        }
        __syncwarp();
        const bool is_whole = p.out_stride % 8 == 0 && reinterpret_cast<uintptr_t>(p.out) % 16 == 0;
#pragma unroll
        for (int i = lane; i < 16 * OUT / 8; i += 32) {
            const int row = i / (OUT / 8), eight = i % (OUT / 8), token = warp * 16 + row, column = first_column + eight * 8;
            if (token >= tile_tokens || first_token + token >= p.m) continue;
            const Eight results = *reinterpret_cast<const Eight*>(shared + own + row * PITCH + eight * 16);
            T* to = p.out + size_t(first_token + token) * p.out_stride + column;
            if (is_whole && column + 8 <= p.n) {
                store_eight(to, results);
            } else {
                const T* numbers = reinterpret_cast<const T*>(&results);
#pragma unroll
                for (int e = 0; e < 8; e++) {
                    if (column + e < p.n) to[e] = numbers[e];
                }
            }
        }
    }
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define BODY(...) __VA_ARGS__;
#else
#define BODY(...)
#endif
#define KERNEL(name, columns, results, dtype)                                                                         \
    extern "C" __global__ void __launch_bounds__(32 * (CONSUMERS + 2), 1)                                             \
        nvllm_k_gemm_m128_##name##_##dtype(const __grid_constant__ GemmSwapAbParams<dtype> p) {                          \
        BODY(gemm_m128<dtype, columns, results>(p))                                                                  \
    }
#define KERNELS(dtype)                            \
    KERNEL(c64, 64, Results::SUMS, dtype)         \
    KERNEL(gated_c64, 64, Results::GATED, dtype)  \
    KERNEL(gated_c96, 96, Results::GATED, dtype)

KERNELS(bf16)
KERNELS(f16)

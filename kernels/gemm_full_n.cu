// A linear layer of up to 256 tokens whose weights are many, on compute capability 9.0. Contract: src/compute/ops/linear.rs, src/compute/ops/gated_linear.rs,
// src/compute/ops/linear_add_norm.rs. Reference: src/compute/cpu/linear.
//
// As gemm_swap_ab.cu, with one tile of tokens, so that weights are read once, and with up to three warpgroups of 64 rows of weights each, so that x is read by fewer thread
// blocks: with many tokens these layers are bound by what multiprocessors read from the second-level cache. A thread block takes a multiprocessor.
//
// `split` thread blocks of a cluster divide k. Each leaves its sums in its shared memory; after a barrier each reads those of its tokens from all, adds
// them in the order of k, and stores them.
#include "common/cluster.cuh"
#include "common/dependent_launch.cuh"
#include "common/gemm_swap_ab.cuh"

constexpr int COPY_WARPS = 4;                     // one copies, the others find the factors of rows
constexpr int FACTOR_THREADS = 32 * (COPY_WARPS - 1);
constexpr int TALL_BARRIER_BYTES = 2048;          // of shared memory: barriers, then a factor for each token
constexpr int TALL_FACTORS_AT = 1024;
constexpr int SPLIT_MAX = 2;
// Of a thread that copies, and of one that multiplies. A thread block begins with 240, 168 or 128 for each, and hands them over: there must be enough.
constexpr int COPY_REGISTERS = 32;
template <int GROUPS>
constexpr int MULTIPLY_REGISTERS = GROUPS == 1 ? 240 : GROUPS == 2 ? 232 : 160;

// The threads of one of several warpgroups.
__device__ inline void group_sync(int group) {
    asm volatile("bar.sync %0, 128;" ::"r"(4 + group) : "memory");
}

// What the rows of x are to be multiplied by. `thread`: one of FACTOR_THREADS, which have few registers.
template <class Params>
__device__ inline void find_factors(const Params& p, float* factors, int thread) {
    const int stride = square_stride(p.norms.square_parts);
    for (int token = thread; token < p.m; token += FACTOR_THREADS) {
        const float4* squares = reinterpret_cast<const float4*>(p.norms.squares + size_t(token) * stride);
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
        for (int there = p.norms.square_parts; there > 0; there -= 4, squares++) {
            const float4 v = __ldcg(squares);
            sum.x += v.x;
            if (there > 1) sum.y += v.y;
            if (there > 2) sum.z += v.z;
            if (there > 3) sum.w += v.w;
        }
        factors[token] = rsqrtf(((sum.x + sum.y) + (sum.z + sum.w)) / p.k + p.norms.eps);
    }
}

// d += a b^T. 512 threads may have 128 registers each when they begin, which is what one product of 256 columns would take for its sums alone.
template <class T, int GROUPS, int TOKENS>
__device__ inline void multiply(float (&sum)[TOKENS / 2], uint64_t a, uint64_t b) {
    if constexpr (GROUPS == 3 && TOKENS == 256) {
        constexpr uint64_t HALF = 128 * 128 >> 4;
        warpgroup_mma<T, 128>(*reinterpret_cast<float(*)[64]>(&sum[0]), a, b);
        warpgroup_mma<T, 128>(*reinterpret_cast<float(*)[64]>(&sum[64]), a, b + HALF);
    } else {
        warpgroup_mma<T, TOKENS>(sum, a, b);
    }
}

// Grid [split, tiles of columns], cluster [split], block [128 (GROUPS + 1)], shared [TALL_BARRIER_BYTES + at least stages * STAGE bytes, and room for the sums
// and results].
template <class T, int GROUPS, int TOKENS, Results RESULTS>
__device__ void gemm_full_n(const GemmSwapAbParams<T>& p) {
    constexpr int ROWS = 64 * GROUPS, STAGE = (ROWS + TOKENS) * 128, MULTIPLYING = 128 * GROUPS;
    constexpr bool IS_GATED = RESULTS == Results::GATED, IS_ADDED = RESULTS == Results::ADDED;
    constexpr int COLUMNS = IS_GATED ? 32 : 64;  // of `out`, of a warpgroup
    extern __shared__ __align__(1024) uint8_t shared[];
    const uint32_t first_bytes = shared_address(shared);
    const uint32_t full = first_bytes, empty = full + 8 * STAGES_MAX, ring = first_bytes + TALL_BARRIER_BYTES;
    float* const factors = reinterpret_cast<float*>(shared + TALL_FACTORS_AT);
    const int lane = threadIdx.x % 32, warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    const int log_split = 31 - __clz(p.split), part = cluster_rank();
    launch_dependents();
    if (threadIdx.x == 0) {
        for (int i = 0; i < p.stages; i++) {
            barrier_init(full + 8 * i, 1);
            barrier_init(empty + 8 * i, 4 * GROUPS);
        }
        fence_barrier_init();
    }
    __syncthreads();
    // k is divided in units of 128, as in gemm_swap_ab.cu.
    const int pairs = (p.k / 64 + 1) / 2;
    const int first_step = (pairs * part >> log_split) * 2, steps = min((pairs * (part + 1) >> log_split) * 2, p.k / 64) - first_step;
    const int box_tokens = tokens_of_tile(p.m, 1);
    const int first_column = blockIdx.y * (GROUPS * COLUMNS);

    if (warp >= 4 * GROUPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COPY_REGISTERS));
        if (warp > 4 * GROUPS) {
            if (!IS_ADDED && p.norms.squares) {
                grid_dependency_wait();
                find_factors(p, factors, threadIdx.x - 32 * (4 * GROUPS + 1));
                factors_ready<MULTIPLYING + FACTOR_THREADS>();
            }
        } else if (elect_lane()) {
            const auto copy_weights = [&](int slot, int step) {
                barrier_expect(full + 8 * slot, (ROWS + box_tokens) * 128);
                if constexpr (IS_GATED) {
                    copy_box_of_halves(ring + slot * STAGE, &p.weight, first_column / 8, first_step + step, full + 8 * slot, EVICT_FIRST);
                } else {
                    copy_box(ring + slot * STAGE, &p.weight, first_column, first_step + step, full + 8 * slot, EVICT_FIRST);
                }
            };
            const auto copy_x = [&](int slot, int step) {
                copy_box(ring + slot * STAGE + ROWS * 128, &p.x, 0, first_step + step, full + 8 * slot, EVICT_NORMAL);
            };
            fill_ring(&p.x, steps, p.stages, empty, copy_weights, copy_x);
        }
        __syncwarp();
        if (p.split > 1) {
            cluster_arrive();
            cluster_wait();
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(MULTIPLY_REGISTERS<GROUPS>));
        const int group = warp / 4, thread = threadIdx.x % 128;
        float sum[TOKENS / 2];
#pragma unroll
        for (int i = 0; i < TOKENS / 2; i++) sum[i] = 0.0f;
        const uint64_t first_a = __shfl_sync(0xffffffffu, matrix_descriptor(ring + group * (64 * 128)), 0);
        const uint64_t first_b = __shfl_sync(0xffffffffu, matrix_descriptor(ring + ROWS * 128), 0);
        // A ring of few stages is filled again at once, and tensor cores idle meanwhile: with 256 tokens, where other warpgroups multiply, or k is divided.
        const bool is_eager = TOKENS == 256 && (GROUPS == 3 || p.split > 1);
        int slot = 0, last = -1;
        uint32_t parity = 0;
        for (int step = 0; step < steps; step++) {
            barrier_wait(full + 8 * slot, parity);
            const uint64_t a = first_a + uint64_t(slot * (STAGE >> 4)), b = first_b + uint64_t(slot * (STAGE >> 4));
            warpgroup_fence();
#pragma unroll
            for (int i = 0; i < 4; i++) multiply<T, GROUPS, TOKENS>(sum, a + 2 * i, b + 2 * i);
            warpgroup_commit();
            if (is_eager) {
                warpgroup_wait<0>();
                if (lane == 0) barrier_arrive(empty + 8 * slot);
            } else {
                warpgroup_wait<1>();
                if (last >= 0 && lane == 0) barrier_arrive(empty + 8 * last);
                last = slot;
            }
            if (++slot == p.stages) slot = 0, parity ^= 1;
        }
        warpgroup_wait<0>();
#pragma unroll
        for (int i = 0; i < TOKENS / 2; i++) asm volatile("" : "+f"(sum[i])::"memory");
        grid_dependency_wait();

        // From here on the ring holds sums and results: all copies to it have been waited for, and all warps have multiplied them.
        consumers_sync<MULTIPLYING>();
        if (!IS_ADDED && p.norms.squares) factors_wait<MULTIPLYING + FACTOR_THREADS>();
        const int group_column = first_column + group * COLUMNS;
        // Of weights: the two rows that this thread has sums of.
        const int row = group_column + warp % 4 * (IS_GATED ? 8 : 16) + lane / 4, high = row + (IS_GATED ? p.n : 8);
        const float bias_low = p.bias && row < p.n ? p.bias[row] : 0.0f;
        const float bias_high = p.bias && (IS_GATED ? row : high) < p.n ? p.bias[high] : 0.0f;
        // 16 tokens, of sums that begin at token `16 * sixteen`, to row `to` and the next of the results.
        const auto store_sixteen = [&](uint32_t results, int sixteen, int to, const float4& a, const float4& b) {
            float2 f = make_float2(1.0f, 1.0f), g = f;
            if (!IS_ADDED && p.norms.squares) {
                const float* at = factors + 16 * sixteen + lane % 4 * 2;
                f = *reinterpret_cast<const float2*>(at), g = *reinterpret_cast<const float2*>(at + 8);
            }
            const int at = to + (lane / 16) * 8 + lane % 8, chunk = 2 * (warp % 4) + (lane / 8) % 2;
            store_matrices_transposed(first_bytes + results + at * 128 + (chunk ^ at % 8) * 16,
                                      narrow2<T>(fmaf(a.x, f.x, bias_low), fmaf(a.y, f.y, bias_low)), narrow2<T>(fmaf(a.z, f.x, bias_high), fmaf(a.w, f.y, bias_high)),
                                      narrow2<T>(fmaf(b.x, g.x, bias_low), fmaf(b.y, g.y, bias_low)), narrow2<T>(fmaf(b.z, g.x, bias_high), fmaf(b.w, g.y, bias_high)));
        };
        // Results lie in shared memory by tokens: of each warpgroup 64 rows of weights. This thread block stores those of tokens `first_token` to `end`.
        const int first = TOKENS / 16 * part >> log_split, first_token = 16 * first;
        const int end = 16 * (TOKENS / 16 * (part + 1) >> log_split);
        const uint32_t results = TALL_BARRIER_BYTES + (p.split > 1 ? GROUPS * TOKENS * 256 : 0) + group * ((end - first_token) * 128);
        // Of added results: the eights that this thread stores, one in each round, all of the same columns.
        constexpr int ROUNDS = IS_ADDED ? TOKENS / 16 : 1;
        const int eight_column = group_column + thread % 8 * 8;
        const auto token_of_round = [&](int round) { return first_token + round * 16 + thread / 8; };
        const auto is_in_round = [&](int round) { return token_of_round(round) < min(end, p.m) && eight_column < p.n; };
        Eight before[ROUNDS] = {};
        float4 norm[2] = {};
        if constexpr (IS_ADDED) {
            if (eight_column < p.n) {
                norm[0] = *reinterpret_cast<const float4*>(p.norms.norm + eight_column);
                norm[1] = *reinterpret_cast<const float4*>(p.norms.norm + eight_column + 4);
            }
#pragma unroll
            for (int round = 0; round < ROUNDS; round++) {
                if (is_in_round(round)) before[round] = load_eight(p.norms.residual + size_t(token_of_round(round)) * p.out_stride + eight_column);
            }
        }
        if (p.split == 1) {
#pragma unroll
            for (int j = 0; j < TOKENS / 16; j++) {
                const float* s = sum + 8 * j;
                store_sixteen(results, j, 16 * j, make_float4(s[0], s[1], s[2], s[3]), make_float4(s[4], s[5], s[6], s[7]));
            }
        } else {
            float4* const own = reinterpret_cast<float4*>(shared + TALL_BARRIER_BYTES) + group * (TOKENS / 8 * 128) + thread;
#pragma unroll
            for (int j = 0; j < TOKENS / 8; j++) own[j * 128] = make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]);
            cluster_arrive_after_stores();
            cluster_wait();
            const float4* const parts[SPLIT_MAX] = {in_cluster(own, 0), in_cluster(own, 1)};
#pragma unroll 4
            for (int j = first; 16 * j < end; j++) {
                float4 total[2] = {};
#pragma unroll
                for (int s = 0; s < SPLIT_MAX; s++) {
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        const float4 v = parts[s][(2 * j + h) * 128];
                        total[h].x += v.x, total[h].y += v.y, total[h].z += v.z, total[h].w += v.w;
                    }
                }
                store_sixteen(results, j, 16 * (j - first), total[0], total[1]);
            }
        }
        group_sync(group);
        if constexpr (IS_ADDED) {
#pragma unroll
            for (int round = 0; round < ROUNDS; round++) {
                if (first_token + round * 16 >= end) break;
                const int at = round * 16 + thread / 8, eight = thread % 8;
                const Eight delta = *reinterpret_cast<const Eight*>(shared + results + at * 128 + (eight ^ at % 8) * 16);
                add_eight(p.norms, p.out, p.out_stride, before[round], delta, norm, is_in_round(round), token_of_round(round), eight_column, 8, blockIdx.y * GROUPS + group);
            }
        } else {
            const bool is_whole = p.out_stride % 8 == 0 && reinterpret_cast<uintptr_t>(p.out) % 16 == 0;
            const int tokens = min(end, p.m) - first_token;
            for (int i = thread; i < tokens * (COLUMNS / 8); i += 128) {
                const int at = i / (COLUMNS / 8), eight = i % (COLUMNS / 8), column = group_column + eight * 8;
                const auto chunk = [&](int chunk) { return *reinterpret_cast<const Eight*>(shared + results + at * 128 + (chunk ^ at % 8) * 16); };
                const Eight eights = IS_GATED ? gated_eight<T>(p.is_gelu_tanh, chunk(2 * eight), chunk(2 * eight + 1)) : chunk(eight);
                T* to = p.out + size_t(first_token + at) * p.out_stride + column;
                if (is_whole && column + 8 <= p.n) {
                    store_eight(to, eights);
                } else {
                    const T* numbers = reinterpret_cast<const T*>(&eights);
#pragma unroll
                    for (int e = 0; e < 8; e++) {
                        if (column + e < p.n) to[e] = numbers[e];
                    }
                }
            }
        }
        __syncwarp();
    }
    // A thread block ends when the other of its cluster has read its sums.
    if (p.split > 1) {
        cluster_arrive();
        cluster_wait();
    }
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define BODY(...) __VA_ARGS__;
#else
#define BODY(...)
#endif
#define KERNEL(name, groups, tokens, results, dtype)                                                                  \
    extern "C" __global__ void __launch_bounds__(128 * (groups + 1), 1)                                               \
        nvllm_k_gemm_full_n_##name##g##groups##_t##tokens##_##dtype(const __grid_constant__ GemmSwapAbParams<dtype> p) { \
        BODY(gemm_full_n<dtype, groups, tokens, results>(p))                                                   \
    }
#define KERNELS_OF(groups, tokens, dtype)                       \
    KERNEL(, groups, tokens, Results::SUMS, dtype)              \
    KERNEL(gated_, groups, tokens, Results::GATED, dtype)
#define KERNELS(tokens)                                         \
    KERNELS_OF(1, tokens, bf16)                                 \
    KERNELS_OF(2, tokens, bf16)                                 \
    KERNELS_OF(3, tokens, bf16)                                 \
    KERNELS_OF(1, tokens, f16)                                  \
    KERNELS_OF(2, tokens, f16)                                  \
    KERNELS_OF(3, tokens, f16)
// In f16, a row that is not yet divided could be out of range.
#define ADDED_KERNEL(tokens) KERNEL(added_, 1, tokens, Results::ADDED, bf16)

KERNELS(64)
KERNELS(128)
KERNELS(192)
KERNELS(256)
ADDED_KERNEL(64)
ADDED_KERNEL(128)

// A linear layer on compute capability 9.0. Contract: src/compute/ops/linear.rs. Reference: src/compute/cpu/linear.
//
// The product is bound by memory below about 200 tokens. Weights are the operand of 64 rows of a tensor-core product, tokens are
// its N columns, so that few tokens waste nothing. One warp copies boxes of weights and of x into a ring in shared memory, one
// warpgroup multiplies, and one warp finds the factors of rows, if they have any. The ring is full of weights before the previous kernels have ended: weights do not depend on the pass.
//
// `split` thread blocks of a cluster divide k. Each adds up its part in the order of k, sends to each other thread block the
// sums that this one stores, and adds what it receives in the order of k. A result therefore depends on its row, on k and on `split` only.
//
// Batch-invariant results are the sums of `parts` parts of k, a number that depends on k alone, added in the order of k. Where a cluster
// is slower, one thread block computes the parts in turn (`Parts::IN_TURN`), with the same bits: a part is one chain of
// tensor-core products in the order of k, whose bits depend neither on the tile nor on the instruction. So is it in the kernels
// for many tokens at the end of this file, which large layers take from 129 tokens on: their thread blocks compute one tile of 128 columns
// after another, by two warpgroups.
//
// Kernels for `Results::GATED` activate gates and multiply by up before they store (contract: src/compute/ops/gated_linear.rs). Their weights are
// gate over up; the rows of a tile are 8 of gate, then the same 8 of up, in turn, so that a thread holds a gate and its up.
//
// Kernels for `Results::ADDED` add their sums to the residual stream (contract: src/compute/ops/linear_add_norm.rs). They store the stream, the
// stream times the weights of the next norm, and sums of squares of the stream. The layer that reads its rows from there multiplies its own sums
// by what a row is divided by in the norm: a factor of a row is a factor of each of its dot products.
#include "common/hopper_tile.cuh"

// The threads of one of several warpgroups.
__device__ inline void group_sync(int group) {
    asm volatile("bar.sync %0, 128;" ::"r"(2 + group) : "memory");
}

// For many tokens: tiles of 128 columns, 64 for each of two warpgroups, that a grid of one thread block per multiprocessor computes in turn.
constexpr int LARGE_COLUMNS = 128, LARGE_GROUPS = 2, LARGE_PIECE = 64;
constexpr int LARGE_COPY_REGISTERS = 24, LARGE_MULTIPLY_REGISTERS = 240;

// Grid [thread blocks], block [384], shared [BARRIER_BYTES + stages * (128 + TOKENS) * 128 + 2 * LARGE_PIECE * 128 bytes].
template <class T, int TOKENS, Parts PARTS>
__device__ void linear_hopper_large(const HopperParams<T>& p) {
    constexpr int STAGE = (LARGE_COLUMNS + TOKENS) * 128;
    extern __shared__ __align__(1024) uint8_t shared[];
    const uint32_t first_bytes = shared_address(shared);
    const uint32_t full = first_bytes, empty = full + 8 * STAGES_MAX, ring = first_bytes + BARRIER_BYTES;
    const int lane = threadIdx.x % 32, warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    const int columns = (p.n + LARGE_COLUMNS - 1) / LARGE_COLUMNS, tiles = columns * ((p.m + TOKENS - 1) / TOKENS);
    const int steps = p.k / 64, pairs = (steps + 1) / 2;
    // Of x. What lies behind it in the ring is multiplied, too, and not stored.
    const int box_tokens = p.m <= TOKENS ? tokens_of_tile(p.m, 1) : TOKENS;
    launch_dependents();
    if (threadIdx.x == 0) {
        for (int i = 0; i < p.stages; i++) {
            barrier_init(full + 8 * i, 1);
            barrier_init(empty + 8 * i, 4 * LARGE_GROUPS);
        }
        fence_barrier_init();
    }
    __syncthreads();
    grid_dependency_wait();

    if (warp >= 4 * LARGE_GROUPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(LARGE_COPY_REGISTERS));
        if (warp > 4 * LARGE_GROUPS) return;
        if (elect_lane()) {
            fence_async_global();
            int slot = 0;
            uint32_t parity = 1;
            for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
                const int first_column = tile % columns * LARGE_COLUMNS, first_token = tile / columns * TOKENS;
                for (int step = 0; step < steps; step++) {
                    barrier_wait(empty + 8 * slot, parity);
                    barrier_expect(full + 8 * slot, (LARGE_COLUMNS + box_tokens) * 128);
                    copy_box(ring + slot * STAGE, &p.weight, first_column, step, full + 8 * slot, EVICT_NORMAL);
                    copy_box(ring + slot * STAGE + LARGE_COLUMNS * 128, &p.x, first_token, step, full + 8 * slot, EVICT_NORMAL);
                    if (++slot == p.stages) slot = 0, parity ^= 1;
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(LARGE_MULTIPLY_REGISTERS));
        const int group = warp / 4, thread = threadIdx.x % 128;
        const bool is_whole = p.out_stride % 8 == 0 && reinterpret_cast<uintptr_t>(p.out) % 16 == 0;
        const uint64_t first_a = __shfl_sync(0xffffffffu, matrix_descriptor(ring + group * (64 * 128)), 0);
        const uint64_t first_b = __shfl_sync(0xffffffffu, matrix_descriptor(ring + LARGE_COLUMNS * 128), 0);
        const uint32_t piece = BARRIER_BYTES + p.stages * STAGE + group * (LARGE_PIECE * 128);  // in `shared`
        const int log_parts = 31 - __clz(p.parts);
        int slot = 0;
        uint32_t parity = 0;
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            const int first_column = tile % columns * LARGE_COLUMNS + group * 64, first_token = tile / columns * TOKENS;
            const int row = first_column + warp % 4 * 16 + lane / 4;
            const float bias_low = p.bias && row < p.n ? p.bias[row] : 0.0f;
            const float bias_high = p.bias && row + 8 < p.n ? p.bias[row + 8] : 0.0f;
            float sum[TOKENS / 2], total[PARTS == Parts::IN_TURN ? TOKENS / 2 : 1] = {};
#pragma unroll
            for (int i = 0; i < TOKENS / 2; i++) sum[i] = 0.0f;
            int end_of_part = pairs >> log_parts << 1, parts_done = 0, last = -1;
            for (int step = 0; step < steps; step++) {
                if constexpr (PARTS == Parts::IN_TURN) {
                    if (step == end_of_part) {
                        warpgroup_wait<0>();
                        add_part<TOKENS>(total, sum);
                        parts_done++;
                        end_of_part = (pairs * (parts_done + 1) >> log_parts) * 2;
                    }
                }
                barrier_wait(full + 8 * slot, parity);
                const uint64_t a = first_a + uint64_t(slot * (STAGE >> 4)), b = first_b + uint64_t(slot * (STAGE >> 4));
                warpgroup_fence();
#pragma unroll
                for (int i = 0; i < 4; i++) warpgroup_mma<T, TOKENS>(sum, a + 2 * i, b + 2 * i);
                warpgroup_commit();
                warpgroup_wait<1>();
                if (last >= 0 && lane == 0) barrier_arrive(empty + 8 * last);
                last = slot;
                if (++slot == p.stages) slot = 0, parity ^= 1;
            }
            warpgroup_wait<0>();
            if (lane == 0) barrier_arrive(empty + 8 * last);
#pragma unroll
            for (int i = 0; i < TOKENS / 2; i++) asm volatile("" : "+f"(sum[i])::"memory");
            if constexpr (PARTS == Parts::IN_TURN) {
#pragma unroll
                for (int i = 0; i < TOKENS / 2; i++) sum[i] = total[i] + sum[i];
            }
            // The results lie in shared memory by tokens, so that a warp stores 64 columns of four tokens.
#pragma unroll
            for (int first = 0; first < TOKENS; first += LARGE_PIECE) {
                if (first_token + first >= p.m) break;
#pragma unroll
                for (int j = 0; j < LARGE_PIECE / 16; j++) {
                    const float* s = sum + first / 2 + 8 * j;
                    const int token = 16 * j + (lane / 16) * 8 + lane % 8, chunk = 2 * (warp % 4) + (lane / 8) % 2;
                    store_matrices_transposed(first_bytes + piece + token * 128 + (chunk ^ token % 8) * 16,
                                              narrow2<T>(s[0] + bias_low, s[1] + bias_low), narrow2<T>(s[2] + bias_high, s[3] + bias_high),
                                              narrow2<T>(s[4] + bias_low, s[5] + bias_low), narrow2<T>(s[6] + bias_high, s[7] + bias_high));
                }
                group_sync(group);
#pragma unroll
                for (int i = 0; i < LARGE_PIECE * 8 / 128; i++) {
                    const int token = (i * 128 + thread) / 8, chunk = thread % 8, column = first_column + chunk * 8;
                    if (first_token + first + token < p.m) {
                        const Eight* from = reinterpret_cast<const Eight*>(shared + piece + token * 128 + (chunk ^ token % 8) * 16);
                        T* to = p.out + size_t(first_token + first + token) * p.out_stride + column;
                        if (is_whole && column + 8 <= p.n) {
                            *reinterpret_cast<Eight*>(to) = *from;
                        } else {
                            const T* numbers = reinterpret_cast<const T*>(from);
                            for (int e = 0; e < 8 && column + e < p.n; e++) to[e] = numbers[e];
                        }
                    }
                }
                group_sync(group);
            }
        }
    }
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define BODY(...) __VA_ARGS__;
#else
#define BODY(...)
#endif
#define KERNEL(tokens, depth, dtype)                                                                                  \
    extern "C" __global__ void __launch_bounds__(32 * (CONSUMERS + 2))                                                \
        nvllm_k_linear_hopper_t##tokens##_##dtype(const __grid_constant__ HopperParams<dtype> p) {                    \
        BODY(linear_hopper<dtype, tokens, depth, Parts::ONE, Results::SUMS>(p, PlainWeights{}))                                       \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(32 * (CONSUMERS + 2))                                                \
        nvllm_k_linear_hopper_gated_t##tokens##_##dtype(const __grid_constant__ HopperParams<dtype> p) {              \
        BODY(linear_hopper<dtype, tokens, depth, Parts::ONE, Results::GATED>(p, PlainWeights{}))                                      \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(32 * (CONSUMERS + 2))                                                \
        nvllm_k_linear_hopper_in_turn_t##tokens##_##dtype(const __grid_constant__ HopperParams<dtype> p) {            \
        BODY(linear_hopper<dtype, tokens, depth, Parts::IN_TURN, Results::SUMS>(p, PlainWeights{}))                                   \
    }
// In f16, a row that is not yet divided could be out of range.
#define ADDED_KERNEL(tokens, depth)                                                                                   \
    extern "C" __global__ void __launch_bounds__(32 * (CONSUMERS + 2))                                                \
        nvllm_k_linear_hopper_added_t##tokens##_bf16(const __grid_constant__ HopperParams<bf16> p) {                  \
        BODY(linear_hopper<bf16, tokens, depth, Parts::ONE, Results::ADDED>(p, PlainWeights{}))                                       \
    }
#define KERNELS(tokens, depth)   \
    KERNEL(tokens, depth, bf16)  \
    KERNEL(tokens, depth, f16)   \
    ADDED_KERNEL(tokens, depth)
#define LARGE_KERNEL(tokens, parts, name, dtype)                                                                      \
    extern "C" __global__ void __launch_bounds__(128 * (LARGE_GROUPS + 1), 1)                                         \
        nvllm_k_linear_hopper_##name##_##dtype(const __grid_constant__ HopperParams<dtype> p) {                       \
        BODY(linear_hopper_large<dtype, tokens, parts>(p))                                                            \
    }
#define LARGE_KERNELS(tokens, parts, name)   \
    LARGE_KERNEL(tokens, parts, name, bf16)  \
    LARGE_KERNEL(tokens, parts, name, f16)

KERNELS(16, 2)
KERNELS(32, 2)
KERNELS(64, 2)
KERNELS(96, 1)
KERNELS(128, 1)
LARGE_KERNELS(256, Parts::ONE, large_t256)
LARGE_KERNELS(192, Parts::IN_TURN, large_in_turn_t192)

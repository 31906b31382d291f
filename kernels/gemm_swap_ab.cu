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
// gate over up; the rows of a tile are 8 of gate, then the same 8 of up, and so on, so that a thread holds a gate and its up.
//
// Kernels for `Results::ADDED` add their sums to the residual stream (contract: src/compute/ops/linear_add_norm.rs). They store the stream, the
// stream times the weights of the next norm, and sums of squares of the stream. The layer that reads its rows from there multiplies its own sums
// by what a row is divided by in the norm: a factor of a row is a factor of each of its dot products.
#include "common/cluster.cuh"
#include "common/dependent_launch.cuh"
#include "common/gemm_swap_ab.cuh"

// How a thread block adds up its share of k.
enum class Parts {
    ONE,      // in one chain
    IN_TURN,  // in chains of `parts` parts, added in order
};

constexpr int ROWS = 64, SPLIT_MAX = 8;
constexpr int CONSUMERS = 4, MULTIPLYING = 32 * CONSUMERS;  // warps of the warpgroup that multiplies, and its threads

// The threads of one of several warpgroups.
__device__ inline void group_sync(int group) {
    asm volatile("bar.sync %0, 128;" ::"r"(2 + group) : "memory");
}

// Ends a part of k: no product into `sum` is under way.
template <int TOKENS>
__device__ inline void add_part(float (&total)[TOKENS / 2], float (&sum)[TOKENS / 2]) {
#pragma unroll
    for (int i = 0; i < TOKENS / 2; i++) {
        asm volatile("" : "+f"(sum[i])::"memory");
        total[i] += sum[i];
        sum[i] = 0.0f;
    }
}

// Large token tiles, and all with sequential split-K, have equal numbers of tokens, and the boxes of x have as many rows: a box with many rows
// beyond the last token is slow.
//
// Grid [tiles of tokens * split, tiles of columns], cluster [split], block [192], shared [BARRIER_BYTES + stages * STAGE
// + (split - 1) / split * ROWS * TOKENS * 4 bytes]. The ring holds at least ROWS * TOKENS * 4 bytes.
template <class T, int TOKENS, int DEPTH, Parts PARTS, Results RESULTS>
__device__ void gemm_swap_ab(const GemmSwapAbParams<T>& p) {
    constexpr int STAGE = DEPTH * (ROWS + TOKENS) * 128;
    constexpr int UNITS = TOKENS / 8 * CONSUMERS;  // of 16 rows x 8 tokens, which a warp holds in four registers
    constexpr bool IS_GATED = RESULTS == Results::GATED, IS_ADDED = RESULTS == Results::ADDED;
    constexpr int ROUNDS = TOKENS * 8 / (32 * CONSUMERS);  // in which the threads that multiply store eights of the tile
    constexpr int COLUMNS = IS_GATED ? ROWS / 2 : ROWS;  // of `out`
    extern __shared__ __align__(1024) uint8_t shared[];
    const uint32_t first_bytes = shared_address(shared);
    const uint32_t full = first_bytes, empty = full + 8 * STAGES_MAX, received = empty + 8 * STAGES_MAX;
    const uint32_t ring = first_bytes + BARRIER_BYTES, inbox = ring + p.stages * STAGE;
    float* const factors = reinterpret_cast<float*>(shared + FACTORS_AT);
    const int lane = threadIdx.x % 32, warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    const int log_split = 31 - __clz(p.split), part = cluster_rank();
    launch_dependents();

    if (threadIdx.x == 0) {
        for (int i = 0; i < p.stages; i++) {
            barrier_init(full + 8 * i, 1);
            barrier_init(empty + 8 * i, CONSUMERS);
        }
        barrier_init(received, 1);
        fence_barrier_init();
        if (p.split > 1) barrier_expect(received, ROWS * TOKENS * 4 - (ROWS * TOKENS * 4 >> log_split));
    }
    __syncthreads();
    if (p.split > 1) cluster_arrive();

    // k is divided in units of 128 for all kernels of this file, so that their results have the same bits.
    const int pairs = (p.k / 64 + 1) / 2;
    const int first_step = (pairs * part >> log_split) * (2 / DEPTH), steps = (pairs * (part + 1) >> log_split) * (2 / DEPTH) - first_step;
    constexpr bool IS_FITTED = DEPTH == 1 || PARTS == Parts::IN_TURN;
    const int tile_tokens = IS_FITTED ? tokens_of_tile(p.m, gridDim.x >> log_split) : TOKENS;
    const int first_token = (blockIdx.x >> log_split) * tile_tokens, first_column = blockIdx.y * COLUMNS;

    if (warp == CONSUMERS) {
        if (elect_lane()) {
            const auto copy_weights = [&](int slot, int step) {
                barrier_expect(full + 8 * slot, DEPTH * (ROWS + tile_tokens) * 128);
                const int chunk = (first_step + step) * DEPTH;
                if constexpr (IS_GATED) {
                    copy_box_of_halves(ring + slot * STAGE, &p.weight, first_column / 8, chunk, full + 8 * slot, EVICT_FIRST);
                } else {
                    copy_box(ring + slot * STAGE, &p.weight, first_column, chunk, full + 8 * slot, EVICT_FIRST);
                }
            };
            const auto copy_x = [&](int slot, int step) {
                copy_box(ring + slot * STAGE + DEPTH * ROWS * 128, &p.x, first_token, (first_step + step) * DEPTH, full + 8 * slot, EVICT_NORMAL);
            };
            fill_ring(&p.x, steps, p.stages, empty, copy_weights, copy_x);
        }
        __syncwarp();
        if (p.split > 1) cluster_wait();
    } else if (warp == CONSUMERS + 1) {
        if (!IS_ADDED && p.norms.squares) {
            grid_dependency_wait();
            load_factors<TOKENS>(p.norms, p.m, p.k, factors, first_token, tile_tokens);
            factors_ready<MULTIPLYING + 32>();
        }
        if (p.split > 1) cluster_wait();
    } else {
        // Of weights: the two rows that this thread has sums of.
        const int row = first_column + warp * (IS_GATED ? 8 : 16) + lane / 4, high = row + (IS_GATED ? p.n : 8);
        const float bias_low = p.bias && row < p.n ? p.bias[row] : 0.0f;
        const float bias_high = p.bias && (IS_GATED ? row : high) < p.n ? p.bias[high] : 0.0f;
        // Of added results: the eights of the tile that this thread stores, one in each round, all of the same columns.
        const int per_part = UNITS >> log_split, first_unit = part * per_part;
        const int eights = min(8, 2 * per_part), eight_column = first_column + first_unit % CONSUMERS * 16 + threadIdx.x % eights * 8;
        const auto token_of_round = [&](int round) { return first_unit / CONSUMERS * 8 + (round * 32 * CONSUMERS + threadIdx.x) / eights; };
        const auto is_in_round = [&](int round) {
            const int token = token_of_round(round);
            return round * 32 * CONSUMERS + threadIdx.x < per_part * 16 && token < tile_tokens && first_token + token < p.m && eight_column < p.n;
        };
        Eight before[IS_ADDED ? ROUNDS : 1] = {};
        float4 norm[2] = {};
        if constexpr (IS_ADDED) {
            if (eight_column < p.n) {
                norm[0] = *reinterpret_cast<const float4*>(p.norms.norm + eight_column);
                norm[1] = *reinterpret_cast<const float4*>(p.norms.norm + eight_column + 4);
            }
            grid_dependency_wait();
#pragma unroll
            for (int round = 0; round < ROUNDS; round++) {
                if (is_in_round(round)) before[round] = load_eight(p.norms.residual + size_t(first_token + token_of_round(round)) * p.out_stride + eight_column);
            }
        }
        float sum[TOKENS / 2];
#pragma unroll
        for (int i = 0; i < TOKENS / 2; i++) sum[i] = 0.0f;
        // Computed once: otherwise the compiler derives them from the rank in the cluster in each step, which takes longer than the products.
        const uint64_t first_a = __shfl_sync(0xffffffffu, matrix_descriptor(ring), 0);
        const uint64_t first_b = __shfl_sync(0xffffffffu, matrix_descriptor(ring + DEPTH * ROWS * 128), 0);
        const uint64_t next_b = (IS_FITTED ? tile_tokens : TOKENS) * 8;  // from a box of x to the next of a step
        uint32_t full_of_warp = full;
        asm volatile("" : "+r"(full_of_warp));
        float total[PARTS == Parts::IN_TURN ? TOKENS / 2 : 1] = {};
        const int log_parts = 31 - __clz(p.parts);
        int end_of_part = (pairs >> log_parts) * (2 / DEPTH), parts_done = 0;
        int slot = 0, last = -1;
        uint32_t parity = 0;
        for (int step = 0; step < steps; step++) {
            if constexpr (PARTS == Parts::IN_TURN) {
                if (step == end_of_part) {
                    warpgroup_wait<0>();
                    add_part<TOKENS>(total, sum);
                    parts_done++;
                    end_of_part = (pairs * (parts_done + 1) >> log_parts) * (2 / DEPTH);
                }
            }
            barrier_wait(full_of_warp + 8 * slot, parity);
            const uint64_t a = first_a + uint64_t(slot * (STAGE >> 4)), b = first_b + uint64_t(slot * (STAGE >> 4));
            warpgroup_fence();
#pragma unroll
            for (int d = 0; d < DEPTH; d++) {
#pragma unroll
                for (int i = 0; i < 4; i++) warpgroup_mma<T, TOKENS>(sum, a + d * (ROWS * 8) + 2 * i, b + d * next_b + 2 * i);
            }
            warpgroup_commit();
            warpgroup_wait<1>();
            if (last >= 0 && lane == 0) barrier_arrive(full_of_warp + (empty - full) + 8 * last);
            last = slot;
            if (++slot == p.stages) slot = 0, parity ^= 1;
        }
        warpgroup_wait<0>();
#pragma unroll
        for (int i = 0; i < TOKENS / 2; i++) asm volatile("" : "+f"(sum[i])::"memory");
        if constexpr (PARTS == Parts::IN_TURN) {
#pragma unroll
            for (int i = 0; i < TOKENS / 2; i++) sum[i] = total[i] + sum[i];
        }
        grid_dependency_wait();

        const bool is_whole = p.out_stride % 8 == 0 && reinterpret_cast<uintptr_t>(p.out) % 16 == 0;
        // From here on the ring holds results: all copies to it have been waited for, and all warps have multiplied them.
        consumers_sync<MULTIPLYING>();
        if (!IS_ADDED && p.norms.squares) factors_wait<MULTIPLYING + 32>();
        // Of the two tokens of eight `eight` of the tile that this thread has sums of.
        const auto factors_of = [&](int eight) {
            if (IS_ADDED || !p.norms.squares) return make_float2(1.0f, 1.0f);
            return *reinterpret_cast<const float2*>(factors + 8 * eight + lane % 4 * 2);
        };
        if (p.split == 1) {
            // The tile lies in shared memory by tokens, so that a warp stores 64 columns of four tokens, or 32 gated ones of eight.
#pragma unroll
            for (int j = 0; j < TOKENS / 16; j++) {
                const float* s = sum + 8 * j;
                const float2 f = factors_of(2 * j), g = factors_of(2 * j + 1);
                const int token = 16 * j + (lane / 16) * 8 + lane % 8, chunk = 2 * warp + (lane / 8) % 2;
                store_matrices_transposed(
                    ring + token * 128 + (chunk ^ token % 8) * 16,
                    narrow2<T>(fmaf(s[0], f.x, bias_low), fmaf(s[1], f.y, bias_low)), narrow2<T>(fmaf(s[2], f.x, bias_high), fmaf(s[3], f.y, bias_high)),
                    narrow2<T>(fmaf(s[4], g.x, bias_low), fmaf(s[5], g.y, bias_low)), narrow2<T>(fmaf(s[6], g.x, bias_high), fmaf(s[7], g.y, bias_high)));
            }
            consumers_sync<MULTIPLYING>();
            if constexpr (IS_ADDED) {
#pragma unroll
                for (int round = 0; round < ROUNDS; round++) {
                    const int token = token_of_round(round), eight = threadIdx.x % 8;
                    const Eight delta = *reinterpret_cast<const Eight*>(shared + BARRIER_BYTES + token * 128 + (eight ^ token % 8) * 16);
                    add_eight(p.norms, p.out, p.out_stride, before[round], delta, norm, is_in_round(round), first_token + token, eight_column, 8, blockIdx.y);
                }
            }
            for (int i = threadIdx.x; !IS_ADDED && i < TOKENS * (COLUMNS / 8); i += 32 * CONSUMERS) {
                const int token = i / (COLUMNS / 8), eight = i % (COLUMNS / 8), column = first_column + eight * 8;
                if (token >= tile_tokens || first_token + token >= p.m) break;
                const auto chunk = [&](int chunk) {
                    return *reinterpret_cast<const Eight*>(shared + BARRIER_BYTES + token * 128 + (chunk ^ token % 8) * 16);
                };
                const Eight results = IS_GATED ? gated_eight<T>(p.is_gelu_tanh, chunk(2 * eight), chunk(2 * eight + 1)) : chunk(eight);
                T* to = p.out + size_t(first_token + token) * p.out_stride + column;
                if (is_whole && column + 8 <= p.n) {
                    *reinterpret_cast<Eight*>(to) = results;
                } else {
                    const T* numbers = reinterpret_cast<const T*>(&results);
#pragma unroll
                    for (int e = 0; e < 8; e++) {
                        if (column + e < p.n) to[e] = numbers[e];
                    }
                }
            }
        } else {
            const int part_bytes = per_part * 512;
            float4* const own = reinterpret_cast<float4*>(shared + BARRIER_BYTES);
#pragma unroll
            for (int j = 0; j < TOKENS / 8; j++) {
                own[(j * CONSUMERS + warp) * 32 + lane] = make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]);
            }
            fence_async_shared();
            consumers_sync<MULTIPLYING>();
            cluster_wait();  // the barriers of the others are initialized
            for (int to = warp; to < p.split; to += CONSUMERS) {
                if (to != part && elect_lane()) {
                    copy_to_rank(to, inbox + (part - (part > to)) * part_bytes, ring + to * part_bytes, part_bytes, received);
                }
            }
            barrier_wait(received, 0);
            const float4* others = reinterpret_cast<const float4*>(shared + (inbox - first_bytes));
            for (int unit = first_unit + (warp + CONSUMERS - first_unit % CONSUMERS) % CONSUMERS; unit < first_unit + per_part; unit += CONSUMERS) {
                float4 parts[SPLIT_MAX], total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
                for (int s = 0; s < SPLIT_MAX; s++) {
                    const float4* from = s == part ? own + unit * 32 : others + ((s - (s > part)) * per_part + unit - first_unit) * 32;
                    if (s < p.split) parts[s] = from[lane];
                }
#pragma unroll
                for (int s = 0; s < SPLIT_MAX; s++) {
                    if (s < p.split) total.x += parts[s].x, total.y += parts[s].y, total.z += parts[s].z, total.w += parts[s].w;
                }
                const float2 f = factors_of(unit / CONSUMERS);
                const uint32_t sums_low = narrow2<T>(fmaf(total.x, f.x, bias_low), fmaf(total.y, f.y, bias_low));
                const uint32_t sums_high = narrow2<T>(fmaf(total.z, f.x, bias_high), fmaf(total.w, f.y, bias_high));
                // Eight columns of eight tokens each.
                uint32_t pairs[COLUMNS / 32];
                if constexpr (IS_GATED) {
                    pairs[0] = transpose_matrix(gated2<T>(p.is_gelu_tanh, sums_low, sums_high));
                } else {
                    pairs[0] = transpose_matrix(sums_low);
                    pairs[1] = transpose_matrix(sums_high);
                }
                if constexpr (IS_ADDED) {
                    // By tokens, where the sums lay that this warp has just read: two eights of each.
                    uint32_t* to = reinterpret_cast<uint32_t*>(own + unit * 32) + lane / 4 * 8 + lane % 4;
                    __syncwarp();
                    to[0] = pairs[0];
                    to[4] = pairs[1];
                    continue;
                }
                if (unit / CONSUMERS * 8 >= tile_tokens) break;
                const int token = first_token + unit / CONSUMERS * 8 + lane / 4;
                const int column = first_column + warp * (COLUMNS / CONSUMERS) + lane % 4 * 2;
                if (token < p.m) {
                    T* to = p.out + size_t(token) * p.out_stride + column;
                    if (is_whole && column + 8 * (COLUMNS / 32 - 1) + 2 <= p.n) {
#pragma unroll
                        for (int i = 0; i < COLUMNS / 32; i++) *reinterpret_cast<uint32_t*>(to + 8 * i) = pairs[i];
                    } else {
#pragma unroll
                        for (int i = 0; i < COLUMNS / 32; i++) {
                            const T* numbers = reinterpret_cast<const T*>(&pairs[i]);
                            for (int e = 0; e < 2; e++) {
                                if (column + 8 * i + e < p.n) to[8 * i + e] = numbers[e];
                            }
                        }
                    }
                }
            }
            if constexpr (IS_ADDED) {
                consumers_sync<MULTIPLYING>();
#pragma unroll
                for (int round = 0; round < (ROUNDS + 1) / 2; round++) {
                    const int token = token_of_round(round), eight = threadIdx.x % eights;
                    const int unit = token / 8 * CONSUMERS + first_unit % CONSUMERS + eight / 2;
                    const bool is_there = is_in_round(round);
                    const Eight delta = is_there ? reinterpret_cast<const Eight*>(own + unit * 32)[token % 8 * 2 + eight % 2] : Eight{};
                    add_eight(p.norms, p.out, p.out_stride, before[round], delta, norm, is_there, first_token + token, eight_column, eights,
                              (blockIdx.y * CONSUMERS + first_unit % CONSUMERS) * 2 / eights);
                }
            }
        }
        __syncwarp();
    }
    // A thread block ends when all of the cluster have received: until then the copies may read its memory.
    if (p.split > 1) {
        cluster_arrive();
        cluster_wait();
    }
}

// For many tokens: tiles of 128 columns, 64 for each of two warpgroups, that a grid of one thread block per multiprocessor computes in turn.
constexpr int LARGE_COLUMNS = 128, LARGE_GROUPS = 2, LARGE_PIECE = 64;
constexpr int LARGE_COPY_REGISTERS = 24, LARGE_MULTIPLY_REGISTERS = 240;

// Grid [thread blocks], block [384], shared [BARRIER_BYTES + stages * (128 + TOKENS) * 128 + 2 * LARGE_PIECE * 128 bytes].
template <class T, int TOKENS, Parts PARTS>
__device__ void gemm_swap_ab_large(const GemmSwapAbParams<T>& p) {
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
        nvllm_k_gemm_swap_ab_t##tokens##_##dtype(const __grid_constant__ GemmSwapAbParams<dtype> p) {                    \
        BODY(gemm_swap_ab<dtype, tokens, depth, Parts::ONE, Results::SUMS>(p))                                       \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(32 * (CONSUMERS + 2))                                                \
        nvllm_k_gemm_swap_ab_gated_t##tokens##_##dtype(const __grid_constant__ GemmSwapAbParams<dtype> p) {              \
        BODY(gemm_swap_ab<dtype, tokens, depth, Parts::ONE, Results::GATED>(p))                                      \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(32 * (CONSUMERS + 2))                                                \
        nvllm_k_gemm_swap_ab_in_turn_t##tokens##_##dtype(const __grid_constant__ GemmSwapAbParams<dtype> p) {            \
        BODY(gemm_swap_ab<dtype, tokens, depth, Parts::IN_TURN, Results::SUMS>(p))                                   \
    }
// In f16, a row that is not yet divided could be out of range.
#define ADDED_KERNEL(tokens, depth)                                                                                   \
    extern "C" __global__ void __launch_bounds__(32 * (CONSUMERS + 2))                                                \
        nvllm_k_gemm_swap_ab_added_t##tokens##_bf16(const __grid_constant__ GemmSwapAbParams<bf16> p) {                  \
        BODY(gemm_swap_ab<bf16, tokens, depth, Parts::ONE, Results::ADDED>(p))                                       \
    }
#define KERNELS(tokens, depth)   \
    KERNEL(tokens, depth, bf16)  \
    KERNEL(tokens, depth, f16)   \
    ADDED_KERNEL(tokens, depth)
#define LARGE_KERNEL(tokens, parts, name, dtype)                                                                      \
    extern "C" __global__ void __launch_bounds__(128 * (LARGE_GROUPS + 1), 1)                                         \
        nvllm_k_gemm_swap_ab_##name##_##dtype(const __grid_constant__ GemmSwapAbParams<dtype> p) {                       \
        BODY(gemm_swap_ab_large<dtype, tokens, parts>(p))                                                            \
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

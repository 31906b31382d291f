// Attention of rows that bring several new tokens on compute capability 9.0. Contract: src/compute/ops/attention.rs. Reference:
// src/compute/cpu/attention. Plan: src/compute/cuda/attention/partition.rs. Launch: src/compute/cuda/attention/hopper.rs.
//
// Bound by the tensor cores; the powers of two of the softmax take half as long as the products with heads of 128, and as long with heads of
// 64. A thread block takes 128 queries of one head. Each of two warpgroups holds 64 of them, and they take turns: while one makes
// weights of its scores, the products of the other are under way. The output of heads of 512 does not fit the registers of a warpgroup: both take the same
// 64 queries and compute their scores, and each has half the numbers of a value. One warp copies boxes of the paged cache into rings in shared memory, where
// the products read them; the weights stay in registers. A thread block computes one tile after another, so that the first copies for the
// next overlap with the end of this one.
//
// What a query gets depends on it and the keys before it alone: keys come in tiles that begin at fixed positions, and a masked key
// changes no bit. For batch-invariant results half a tile is a unit as in `attention_units.cu`, which computes the same numbers for rows that
// bring one token: a unit has a maximum, a sum and an output of its own, and units are merged in the order of their positions.
#include "common/dependent_launch.cuh"
#include "common/plan.cuh"
#include "common/softmax.cuh"
#include "common/warpgroup.cuh"

template <class T>
struct AttentionHopperParams {
    TensorMap qkv;                 // [tokens, (heads + 2 * kv_heads) * head_dim], boxes of 64 tokens by head_dim
    TensorMap cache;               // one layer: [block][kv_head][K|V][block_size][head_dim], boxes of min(block_size, keys of a tile) tokens by 64
    T* out;                        // [tokens, heads * head_dim]
    const PrefillTile* tiles;      // [tiles], the longest contexts first
    const uint32_t* counts;        // [3], the last is table_width
    const uint32_t* block_tables;  // [batch rows, table_width]
    int tiles_len;
    int kv_heads;
    int group;            // query heads of a KV head
    int block_size_log2;  // at least 4
    int window;           // positions that a query attends to, its own included; INT_MAX without a sliding window
    float scale_log2;     // of the scores, or with a softcap of their tanh: scale * log2(e), or softcap * log2(e)
    float tanh_scale;     // scale / softcap; 0 without a softcap
    const float* sinks;   // [heads], or null
};

constexpr int GROUPS = 2;        // warpgroups that multiply, of 64 queries each
constexpr int BARRIER_BYTES = 1024;

// What fits in shared memory of heads of D numbers, as src/compute/cuda/attention/hopper.rs has it.
template <int D>
struct Sizes {
    static constexpr bool IS_SPLIT = D > 256;                      // whether both warpgroups take the same queries, and half the numbers of a value each
    static constexpr int KEYS = D <= 128 ? 128 : D == 256 ? 64 : 32;  // of a tile
    static constexpr int STAGES = D <= 128 ? 256 / D : 2;            // tiles of keys, and of values
    static constexpr int QUERY_STAGES = D <= 128 ? 2 : 1;            // tiles of queries: the one that is computed, and where there is room the next
    static constexpr int QUERY_GROUPS = IS_SPLIT ? 1 : GROUPS;       // of 64 queries, of a tile
};

// How the keys of a query are added up.
enum class Keys {
    RUNNING,   // each tile onto the sum of those before
    IN_UNITS,  // each half of a tile by itself
};
// Registers of a thread of the warpgroup that copies, and of those that multiply; together what a multiprocessor has.
constexpr int COPY_REGISTERS = 24, MULTIPLY_REGISTERS = 240;

__device__ inline void threads_sync(int barrier, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ inline void threads_arrive(int barrier, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
// Registers of the threads of a warpgroup from here on.
template <int COUNT>
__device__ inline void release_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ inline void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
__device__ inline void store_matrices(uint32_t at, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// What this thread block computes in its round `round`, as tile * heads + head. Each round goes the other way than the one before, so that no
// thread block gets the longest tile of every round.
__device__ inline int work_of(int round) {
    return round * gridDim.x + (round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

// Grid [thread blocks], block [128 * (GROUPS + 1)], shared [BARRIER_BYTES + (QUERY_STAGES * QUERY_GROUPS * 64 + 2 * STAGES * KEYS) * D * 2 bytes].
template <class T, int D, Keys KEYS_ARE>
__device__ void attention_hopper(const AttentionHopperParams<T>& p) {
    constexpr bool IS_SPLIT = Sizes<D>::IS_SPLIT;
    constexpr int KEYS = Sizes<D>::KEYS, STAGES = Sizes<D>::STAGES, QUERY_STAGES = Sizes<D>::QUERY_STAGES, QUERY_GROUPS = Sizes<D>::QUERY_GROUPS;
    static_assert(KEYS_ARE == Keys::RUNNING || D <= 128);
    constexpr int OUT = IS_SPLIT ? D / 2 : D;  // numbers of a value that a warpgroup has
    constexpr int HALVES = D / 64;             // a box has 64 numbers of a head
    constexpr int QUERY_BYTES = 64 * D * 2;    // of 64 queries
    constexpr int QUERIES_BYTES = QUERY_GROUPS * QUERY_BYTES;
    constexpr int TILE_BYTES = KEYS * D * 2;  // of keys, or of values
    extern __shared__ __align__(1024) uint8_t shared[];
    const uint32_t barriers = shared_address(shared);
    const uint32_t query_full = barriers, query_empty = query_full + 8 * QUERY_STAGES;
    const uint32_t key_full = query_empty + 8 * QUERY_STAGES, key_empty = key_full + 8 * STAGES;
    const uint32_t value_full = key_empty + 8 * STAGES, value_empty = value_full + 8 * STAGES, copied = value_empty + 8 * STAGES;
    const uint32_t queries = barriers + BARRIER_BYTES, keys = queries + QUERY_STAGES * QUERIES_BYTES, values = keys + STAGES * TILE_BYTES;
    const int lane = threadIdx.x % 32, warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    const int heads = p.kv_heads * p.group, works = p.tiles_len * heads;
    launch_dependents();

    if (threadIdx.x == 0) {
        for (int i = 0; i < QUERY_STAGES; i++) {
            barrier_init(query_full + 8 * i, 1);
            barrier_init(query_empty + 8 * i, 4 * GROUPS);
        }
        for (int i = 0; i < STAGES; i++) {
            barrier_init(key_full + 8 * i, 1);
            barrier_init(key_empty + 8 * i, 4 * GROUPS);
            barrier_init(value_full + 8 * i, 1);
            barrier_init(value_empty + 8 * i, 4 * GROUPS);
        }
        barrier_init(copied, 1);
        fence_barrier_init();
    }
    __syncthreads();
    grid_dependency_wait();

    if (warp >= 4 * GROUPS) {
        release_registers<COPY_REGISTERS>();
        if (warp > 4 * GROUPS) return;
        fence_async_global();
        const int table_width = p.counts[2];
        const uint32_t block_mask = (1u << p.block_size_log2) - 1;
        // Tokens of a box.
        const int piece_log2 = min(p.block_size_log2, 31 - __clz(KEYS));
        int slot = 0, query_slot = 0;
        uint32_t parity = 0, query_parity = 0, copied_parity = 0;
        for (int round = 0; work_of(round) < works; round++) {
            const PrefillTile tile = p.tiles[work_of(round) / heads];
            const int head = work_of(round) % heads, kv_head = head / p.group;
            const int context = tile.position + tile.tokens, window_start = max(0, int(tile.position) + 1 - p.window);
            const uint32_t* table = p.block_tables + size_t(tile.row) * table_width;
            barrier_wait(query_empty + 8 * query_slot, query_parity ^ 1);
            if (elect_lane()) {
                barrier_expect(query_full + 8 * query_slot, QUERIES_BYTES);
                for (int i = 0; i < QUERY_GROUPS; i++) {
                    copy_box(queries + query_slot * QUERIES_BYTES + i * QUERY_BYTES, &p.qkv, tile.token + 64 * i, head * HALVES,
                             query_full + 8 * query_slot, EVICT_FIRST);
                }
            }
            __syncwarp();
            if (++query_slot == QUERY_STAGES) query_slot = 0, query_parity ^= 1;
            for (int first = window_start / KEYS * KEYS; first < context; first += KEYS) {
                // The box of this lane.
                const int piece = lane / HALVES, half = lane % HALVES;
                const int token = first + (piece << piece_log2);
                const bool is_copied = piece < KEYS >> piece_log2 && token < context && token + (1 << piece_log2) > window_start;
                int row = 0;
                if (is_copied) {
                    row = ((int(table[token >> p.block_size_log2]) * p.kv_heads + kv_head) * 2 << p.block_size_log2) + (token & block_mask);
                }
                const uint32_t to = slot * TILE_BYTES + half * (KEYS * 128) + (piece << piece_log2) * 128;
                const uint32_t bytes = __popc(__ballot_sync(0xffffffffu, is_copied)) << (piece_log2 + 7);
                barrier_wait(key_empty + 8 * slot, parity ^ 1);
                if (lane == 0) barrier_expect(key_full + 8 * slot, bytes);
                __syncwarp();
                if (is_copied) copy_box(keys + to, &p.cache, row, half, key_full + 8 * slot, EVICT_NORMAL);
                // Values that no query attends to may be NaN, which a weight of 0 does not make 0: these rows are cleared.
                const bool is_whole = first >= window_start && first + KEYS <= context;
                barrier_wait(value_empty + 8 * slot, parity ^ 1);
                const uint32_t barrier = is_whole ? value_full + 8 * slot : copied;
                if (lane == 0) barrier_expect(barrier, bytes);
                __syncwarp();
                if (is_copied) copy_box(values + to, &p.cache, row + (1 << p.block_size_log2), half, barrier, EVICT_NORMAL);
                if (!is_whole) {
                    barrier_wait(copied, copied_parity);
                    copied_parity ^= 1;
                    uint8_t* const tile_values = shared + (values - barriers) + slot * TILE_BYTES;
                    for (int i = lane; i < KEYS * HALVES * 8; i += 32) {
                        const int position = first + i / 8 % KEYS;
                        if (position < window_start || position >= context) *reinterpret_cast<uint4*>(tile_values + i * 16) = make_uint4(0, 0, 0, 0);
                    }
                    fence_async_shared();
                    __syncwarp();
                    if (lane == 0) barrier_arrive(value_full + 8 * slot);
                }
                if (++slot == STAGES) slot = 0, parity ^= 1;
            }
        }
    } else {
        take_registers<MULTIPLY_REGISTERS>();
        const int own_group = warp / 4, next_group = own_group + 1 == GROUPS ? 0 : own_group + 1;
        const int query_group = IS_SPLIT ? 0 : own_group, first_out = IS_SPLIT ? own_group * OUT : 0;
        const int own_row = query_group * 64 + warp % 4 * 16;  // of the tile: the first of this warp
        float score[KEYS / 2], out[OUT / 2], highest[2], sum[2], keep[2];
        uint32_t weight[KEYS / 16][4];
        int key_slot = 0, value_slot = 0, query_slot = 0;
        uint32_t key_parity = 0, value_parity = 0, query_parity = 0;
        const uint64_t query_descriptor = __shfl_sync(0xffffffffu, matrix_descriptor(queries + query_group * QUERY_BYTES), 0);
        const uint64_t key_descriptor = __shfl_sync(0xffffffffu, matrix_descriptor(keys), 0);
        const uint64_t value_descriptor = __shfl_sync(0xffffffffu, transposed_descriptor(values + first_out / 64 * (KEYS * 128), KEYS * 128), 0);
        if (KEYS_ARE == Keys::RUNNING && own_group == GROUPS - 1) threads_arrive(1, 256);

        const auto multiply_queries = [&]() {
            const uint64_t a = query_descriptor + uint64_t(query_slot * (QUERIES_BYTES >> 4));
            const uint64_t b = key_descriptor + uint64_t(key_slot * (TILE_BYTES >> 4));
#pragma unroll
            for (int i = 0; i < D / 16; i++) {
                const uint64_t a_step = a + i / 4 * (64 * 8) + i % 4 * 2, b_step = b + i / 4 * (KEYS * 8) + i % 4 * 2;
                if (i == 0) {
                    warpgroup_mma_first<T, KEYS>(score, a_step, b_step);
                } else {
                    warpgroup_mma<T, KEYS>(score, a_step, b_step);
                }
            }
            warpgroup_commit();
        };
        const auto multiply_weights = [&]() {
            const uint64_t b = value_descriptor + uint64_t(value_slot * (TILE_BYTES >> 4));
#pragma unroll
            for (int i = 0; i < KEYS / 16; i++) warpgroup_mma_registers<T, OUT>(out, weight[i], b + i * 128);
            warpgroup_commit();
        };
        const auto release_keys = [&]() {
            if (lane == 0) barrier_arrive(key_empty + 8 * key_slot);
            if (++key_slot == STAGES) key_slot = 0, key_parity ^= 1;
        };
        const auto release_values = [&]() {
            if (lane == 0) barrier_arrive(value_empty + 8 * value_slot);
            if (++value_slot == STAGES) value_slot = 0, value_parity ^= 1;
        };
        const auto scores_are_there = [&]() {
#pragma unroll
            for (int i = 0; i < KEYS / 2; i++) asm volatile("" : "+f"(score[i])::"memory");
        };
        const auto sums_are_there = [&]() {
#pragma unroll
            for (int i = 0; i < OUT / 2; i++) asm volatile("" : "+f"(out[i])::"memory");
        };
        // Caps the scores of the tile that begins at `first`, and masks them; `position`: that of the first query of this warp.
        const auto mask = [&](int first, int position) {
            if (p.tanh_scale != 0.0f) {
#pragma unroll
                for (int i = 0; i < KEYS / 2; i++) score[i] = tanh_of(score[i] * p.tanh_scale);
            }
            const int own = position + lane / 4 - first, column = lane % 4 * 2;
            if (first + KEYS - 1 > position) {
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        if (n * 8 + column + e % 2 > own + e / 2 * 8) score[4 * n + e] = -INFINITY;
                    }
                }
            }
            if (first <= position + 15 - p.window) {
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        if (n * 8 + column + e % 2 <= own + e / 2 * 8 - p.window) score[4 * n + e] = -INFINITY;
                    }
                }
            }
        };
        // Makes weights of the scores of a tile.
        const auto soften = [&](int first, int position) {
            mask(first, position);
            float base[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float top = score[2 * h], other = score[2 * h + 1];
#pragma unroll
                for (int n = 1; n < KEYS / 8; n++) top = fmaxf(top, score[4 * n + 2 * h]), other = fmaxf(other, score[4 * n + 2 * h + 1]);
                top = fmaxf(top, other);
                top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
                top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
                top = fmaxf(highest[h], top * p.scale_log2);
                // Before its window a query has no finite score yet, and the difference of infinities is NaN.
                base[h] = top == -INFINITY ? 0.0f : top;
                keep[h] = power_of_two(highest[h] - base[h]);
                highest[h] = top;
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float added[2] = {};
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        float& s = score[4 * n + 2 * h + e];
                        s = power_of_two(fmaf(s, p.scale_log2, -base[h]));
                        added[e] += s;
                    }
                }
                sum[h] = fmaf(sum[h], keep[h], added[0] + added[1]);
            }
        };
        const auto narrow_weights = [&]() {
#pragma unroll
            for (int i = 0; i < KEYS / 16; i++) {
#pragma unroll
                for (int e = 0; e < 4; e++) weight[i][e] = narrow2<T>(score[8 * i + 2 * e], score[8 * i + 2 * e + 1]);
            }
        };

        for (int round = 0; work_of(round) < works; round++) {
            const PrefillTile tile = p.tiles[work_of(round) / heads];
            const int head = work_of(round) % heads;
            const int context = tile.position + tile.tokens, window_start = max(0, int(tile.position) + 1 - p.window);
            const int position = tile.position + own_row;
            int first = window_start / KEYS * KEYS;
            highest[0] = highest[1] = -INFINITY;
            sum[0] = sum[1] = 0.0f;
#pragma unroll
            for (int i = 0; i < OUT / 2; i++) out[i] = 0.0f;

            barrier_wait(query_full + 8 * query_slot, query_parity);
            float share[2];
            if constexpr (KEYS_ARE == Keys::IN_UNITS) {
                for (; first < context; first += KEYS) {
                    barrier_wait(key_full + 8 * key_slot, key_parity);
                    warpgroup_fence();
                    multiply_queries();
                    warpgroup_wait<0>();
                    scores_are_there();
                    release_keys();
                    mask(first, position);
                    Shares shares[2][2];  // [unit][query of this lane]
#pragma unroll
                    for (int unit = 0; unit < 2; unit++) {
                        float* const s = score + unit * (KEYS / 4);
#pragma unroll
                        for (int h = 0; h < 2; h++) {
                            float top = fmaxf(s[2 * h], s[2 * h + 1]);
#pragma unroll
                            for (int n = 1; n < KEYS / 16; n++) top = fmaxf(top, fmaxf(s[4 * n + 2 * h], s[4 * n + 2 * h + 1]));
                            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
                            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
                            top = __fmul_rn(top, p.scale_log2);
                            const float base = top == -INFINITY ? 0.0f : top;
                            float added[2] = {};
#pragma unroll
                            for (int n = 0; n < KEYS / 16; n++) {
#pragma unroll
                                for (int e = 0; e < 2; e++) {
                                    float& weight_of = s[4 * n + 2 * h + e];
                                    weight_of = power_of_two(fmaf(weight_of, p.scale_log2, -base));
                                    added[e] += weight_of;
                                }
                            }
                            float of_unit = added[0] + added[1];
                            of_unit += __shfl_xor_sync(0xffffffffu, of_unit, 1);
                            of_unit += __shfl_xor_sync(0xffffffffu, of_unit, 2);
                            shares[unit][h] = join_maximum(highest[h], top);
                            sum[h] = joined(sum[h], of_unit, shares[unit][h]);
                        }
                    }
                    narrow_weights();
                    barrier_wait(value_full + 8 * value_slot, value_parity);
#pragma unroll
                    for (int unit = 0; unit < 2; unit++) {
                        float of_unit[D / 2];
#pragma unroll
                        for (int i = 0; i < D / 2; i++) of_unit[i] = 0.0f;
                        const uint64_t b = value_descriptor + uint64_t(value_slot * (TILE_BYTES >> 4));
                        warpgroup_fence();
#pragma unroll
                        for (int i = unit * (KEYS / 32); i < (unit + 1) * (KEYS / 32); i++) {
                            warpgroup_mma_registers<T, D>(of_unit, weight[i], b + i * 128);
                        }
                        warpgroup_commit();
                        warpgroup_wait<0>();
#pragma unroll
                        for (int i = 0; i < D / 2; i++) {
                            asm volatile("" : "+f"(of_unit[i])::"memory");
                            out[i] = joined(out[i], of_unit[i], shares[unit][i / 2 % 2]);
                        }
                    }
                    release_values();
                }
#pragma unroll
                for (int h = 0; h < 2; h++) share[h] = 1.0f / with_sink(sum[h], highest[h], p.sinks, head);
            } else {
                barrier_wait(key_full + 8 * key_slot, key_parity);
                warpgroup_fence();
                multiply_queries();
                warpgroup_wait<0>();
                scores_are_there();
                release_keys();
                soften(first, position);
                narrow_weights();
                for (first += KEYS; first < context; first += KEYS) {
                    barrier_wait(key_full + 8 * key_slot, key_parity);
                    threads_sync(1 + own_group, 256);
                    warpgroup_fence();
                    multiply_queries();
                    barrier_wait(value_full + 8 * value_slot, value_parity);
                    multiply_weights();
                    threads_arrive(1 + next_group, 256);
                    warpgroup_wait<1>();
                    scores_are_there();
                    release_keys();
                    soften(first, position);
                    warpgroup_wait<0>();
                    sums_are_there();
                    release_values();
                    narrow_weights();
#pragma unroll
                    for (int i = 0; i < OUT / 2; i++) out[i] *= keep[i / 2 % 2];
                }
                barrier_wait(value_full + 8 * value_slot, value_parity);
                warpgroup_fence();
                multiply_weights();
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    float total = sum[h];
                    total += __shfl_xor_sync(0xffffffffu, total, 1);
                    total += __shfl_xor_sync(0xffffffffu, total, 2);
                    share[h] = 1.0f / with_sink(total, highest[h], p.sinks, head);
                }
                warpgroup_wait<0>();
                sums_are_there();
                release_values();
            }

            // The results lie where the queries of this warpgroup lay, so that a row is stored whole.
            const uint32_t results = queries + query_slot * QUERIES_BYTES + query_group * QUERY_BYTES + first_out * 128;
            if constexpr (IS_SPLIT) {
                threads_sync(4, 256);
            } else {
                threads_sync(4 + own_group, 128);
            }
#pragma unroll
            for (int j = 0; j < OUT / 16; j++) {
                const int row = warp % 4 * 16 + lane % 16, chunk = 2 * j + lane / 16;
                const float* o = out + 8 * j;
                store_matrices(results + chunk / 8 * (64 * 128) + row * 128 + (chunk % 8 ^ row % 8) * 16, narrow2<T>(o[0] * share[0], o[1] * share[0]),
                               narrow2<T>(o[2] * share[1], o[3] * share[1]), narrow2<T>(o[4] * share[0], o[5] * share[0]),
                               narrow2<T>(o[6] * share[1], o[7] * share[1]));
            }
            // A warp stores the rows that it has computed.
            __syncwarp();
            const int rows = int(tile.tokens) - own_row;
            T* const to = p.out + (size_t(tile.token) + own_row) * heads * D + head * D + first_out;
#pragma unroll
            for (int i = lane; i < 16 * (OUT / 8); i += 32) {
                const int row = i / (OUT / 8), chunk = i % (OUT / 8), at = warp % 4 * 16 + row;
                const uint8_t* from = shared + (results - barriers) + chunk / 8 * (64 * 128) + at * 128 + (chunk % 8 ^ at % 8) * 16;
                if (row < rows) store_eight(to + size_t(row) * heads * D + chunk * 8, *reinterpret_cast<const Eight*>(from));
            }
            fence_async_shared();
            __syncwarp();
            if (lane == 0) barrier_arrive(query_empty + 8 * query_slot);
            if (++query_slot == QUERY_STAGES) query_slot = 0, query_parity ^= 1;
        }
    }
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define BODY(dtype, dim, keys) attention_hopper<dtype, dim, keys>(p);
#else
#define BODY(dtype, dim, keys)
#endif
#define KERNEL(dim, dtype, name, keys)                                                                      \
    extern "C" __global__ void __launch_bounds__(128 * (GROUPS + 1), 1)                                     \
        nvllm_k_attention_##name##_d##dim##_##dtype(const __grid_constant__ AttentionHopperParams<dtype> p) { \
        BODY(dtype, dim, keys)                                                                              \
    }
#define KERNELS(dim)                         \
    KERNEL(dim, bf16, hopper, Keys::RUNNING) \
    KERNEL(dim, f16, hopper, Keys::RUNNING)
#define KERNELS_IN_UNITS(dim)                       \
    KERNEL(dim, bf16, hopper_units, Keys::IN_UNITS) \
    KERNEL(dim, f16, hopper_units, Keys::IN_UNITS)

KERNELS(64)
KERNELS(128)
KERNELS(256)
KERNELS(512)
KERNELS_IN_UNITS(64)
KERNELS_IN_UNITS(128)

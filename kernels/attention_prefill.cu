// Attention of rows that bring several new tokens. Contract: src/compute/ops/attention.rs. Reference: src/compute/cpu/attention.
// Plan: src/compute/cuda/attention/partition.rs.
//
// Compute-bound: 4 * head_dim operations for each pair of query and key. One thread block takes a tile of queries of one head; each of
// four warps holds 16 * MT queries, so that a key or value fragment serves MT products. Keys and values come from the
// paged cache, after the new ones were written to it: prefix hits and chunks are the same code.
//
// The output of heads of more than 256 numbers does not fit the registers of a warp: two warps take the same queries, and each half of the
// numbers of a value. Both compute the scores.
//
// What a query gets depends on it and the keys before it alone: they come in tiles that begin at fixed positions, from the tile on
// that the window of the first query begins in, and a masked key changes no bit. So for batch-invariant results rows with one new token
// take this way too where `attention_units.cu` does not compute them, with the query heads of a KV head in place of queries of several
// tokens.
//
// Keys and values in int8 arrive as bytes, and are widened once per thread block to a tile of numbers, exactly: what follows is the same
// for both, but that the scale of a key multiplies its scores, and that of a value its weights, after they were summed.
#include "common/dependent_launch.cuh"
#include "common/kv_int8.cuh"
#include "common/plan.cuh"
#include "common/softmax.cuh"
#include "common/tensor_core.cuh"

template <class T>
struct AttentionPrefillParams {
    T* out;                        // [tokens, heads * head_dim]
    const T* qkv;                  // [tokens, qkv_stride]
    const T* cache;                // one layer: [block][kv_head][K|V][block_size][head_dim], or the bytes of an int8 cache
    const PrefillTile* tiles;      // [tiles], the longest contexts first
    const DecodeRow* rows;         // [rows with one new token]
    const uint32_t* counts;        // [3], of which the second is how many rows these are, and the last is table_width
    const uint32_t* block_tables;  // [batch rows, table_width]
    const uint32_t* row_starts;    // [batch rows + 1], null where queries attend to keys up to their own alone
    int qkv_stride;
    int kv_heads;
    int group;            // query heads of a KV head
    int block_size_log2;  // at least 4
    int window;           // positions that a query attends to, its own included; INT_MAX without a sliding window
    int ahead;            // positions behind its own that a query attends to at most, where it attends to any; else 0
    float scale_log2;     // of the scores, or with a softcap of their tanh: scale * log2(e), or softcap * log2(e)
    float tanh_scale;     // scale / softcap; 0 without a softcap
    const float* sinks;   // [heads], or null
    int head_dim;         // read by kernels for a class of heads alone: a multiple of 16
    int blocks_of_tile;   // thread blocks that share the queries of one of `tiles`
};

// What the queries of a thread block are.
enum class Queries {
    TOKENS,  // of one head
    HEADS,   // that share a KV head, of one token
};

// Warps that take the same queries, each a part of the numbers of a head.
__host__ __device__ constexpr int parts_of(int head_dim) {
    return head_dim > 256 ? 2 : 1;
}

// Grid [tiles * blocks_of_tile * heads] or [rows * KV heads], block [32 * WARPS], shared [(QUERIES + 4 * KV) rows], or with int8
// [(QUERIES + 2 * KV) rows + 2 * KV * (head_dim + 6) bytes].
// IS_CLASS: heads have p.head_dim numbers, up to D; what lies beyond is neither copied nor multiplied.
template <class T, int D, Queries OF, int WARPS, int MT, int KV, Kv FORMAT, bool IS_CLASS = false>
__device__ void attention_prefill(const AttentionPrefillParams<T>& p) {
    using Rows = Tile<D>;
    constexpr int THREADS = 32 * WARPS;
    constexpr int PARTS = parts_of(D), QUERY_WARPS = WARPS / PARTS;
    constexpr int QUERIES = 16 * QUERY_WARPS * MT;
    constexpr int STEPS = D / 16, OUT_STEPS = STEPS / PARTS;
    constexpr int SLICE = KV * Rows::STRIDE * 8;  // numbers of a tile of keys, or of values
    constexpr bool IS_INT8 = FORMAT == Kv::INT8, LOOKS_AHEAD = OF == Queries::TOKENS && !IS_INT8;
    const int dim = IS_CLASS ? p.head_dim : D, steps = dim / 16;
    const auto is_beyond = [&](int step) { return IS_CLASS && step >= steps; };
    // Of 16 bytes of a key or value, of which `i` counts STEPS for each.
    const auto sixteen = [&](int i) { return IS_CLASS ? i / STEPS * steps + i % STEPS : i; };
    static_assert(!IS_CLASS || PARTS == 1);
    extern __shared__ __align__(128) uint8_t shared[];

    launch_dependents();
    grid_dependency_wait();
    // In one dimension, because a grid has at most 65,535 thread blocks in the others.
    const uint32_t heads = OF == Queries::TOKENS ? p.kv_heads * p.group : p.kv_heads, index = blockIdx.x / heads;
    PrefillTile tile;
    if (OF == Queries::TOKENS) {
        tile = p.tiles[index / p.blocks_of_tile];
        const int before = index % p.blocks_of_tile * QUERIES;
        if (before >= int(tile.tokens)) return;
        tile = PrefillTile{tile.token + before, tile.row, min(tile.tokens - before, QUERIES), tile.position + before};
    } else {
        // Rows that only pad a batch are not in the plan.
        if (index >= p.counts[1]) return;
        const DecodeRow row = p.rows[index];
        tile = PrefillTile{row.token, row.row, 1, row.context_len - 1};
    }
    const int count = OF == Queries::TOKENS ? tile.tokens : p.group;  // of queries
    const int head = blockIdx.x % heads * (OF == Queries::TOKENS ? 1 : p.group), kv_head = head / p.group;
    // Query `row` is that of this token and head.
    const auto token_of = [&](int row) { return size_t(tile.token) + (OF == Queries::TOKENS ? row : 0); };
    const auto head_of = [&](int row) { return head + (OF == Queries::TOKENS ? 0 : row); };
    // Of the queries, and of the numbers of a head.
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % QUERY_WARPS, part = threadIdx.x / 32 / QUERY_WARPS, matrix = lane / 8;
    T* queries = reinterpret_cast<T*>(shared);
    T* ring = queries + QUERIES * Rows::STRIDE * 8;  // [2 stages][K|V], with int8 one stage, and then
    uint8_t* bytes = reinterpret_cast<uint8_t*>(ring + 2 * SLICE);           // [K|V][KV][D], the next tile
    bf16* stored_scales = reinterpret_cast<bf16*>(bytes + 2 * KV * dim);       // [K|V][KV], the next tile's
    float* scales = reinterpret_cast<float*>(stored_scales + 2 * KV);        // [K|V][KV]
    const uint32_t block_mask = (1u << p.block_size_log2) - 1;
    const int end = tile.position + tile.tokens;
    const bool is_both_ways = LOOKS_AHEAD && p.row_starts;
    int context = end;
    if (is_both_ways) context = min(int(p.row_starts[tile.row + 1] - p.row_starts[tile.row]), end + p.ahead);
    // First positions that the first and the last query attend to.
    const int window_start = max(0, int(tile.position) + 1 - p.window), last_window_start = max(0, end - p.window);
    const uint32_t* table = p.block_tables + size_t(tile.row) * p.counts[2];

    // Copies the bytes of a tile.
    auto issue_bytes = [&](int first) {
        const uint8_t* cache = reinterpret_cast<const uint8_t*>(p.cache);
        const size_t head_bytes = int8_head_bytes(p.block_size_log2, dim);
        const auto of_head = [&](int token) { return (size_t(table[token >> p.block_size_log2]) * p.kv_heads + kv_head) * head_bytes; };
        const auto is_attended = [&](int token) { return token >= window_start && token < context; };
#pragma unroll
        for (int i = threadIdx.x; i < KV * STEPS; i += THREADS) {
            const int row = i / STEPS, chunk = i % STEPS;
            if (is_beyond(chunk)) continue;
            const uint32_t to = shared_address(bytes) + sixteen(i) * 16;
            const int token = first + row, size = is_attended(token) ? 16 : 0;
            const uint8_t* key = cache + (size ? of_head(token) + (token & block_mask) * dim + chunk * 16 : 0);
            copy_async(to, key, size);
            copy_async(to + KV * dim, key + (size ? size_t(dim) << p.block_size_log2 : 0), size);
        }
        // Eight scales lie together. Those of tokens that are not attended to come along with those of others.
        for (int i = threadIdx.x; i < KV / 8; i += THREADS) {
            const int token = first + i * 8;
            const int size = token < context && token + 8 > window_start ? 16 : 0;
            const uint8_t* key = cache + (size ? of_head(token) + (size_t(2 * dim) << p.block_size_log2) + (token & block_mask) * 2 : 0);
            copy_async(shared_address(stored_scales) + i * 16, key, size);
            copy_async(shared_address(stored_scales) + KV * 2 + i * 16, key + (size ? size_t(2) << p.block_size_log2 : 0), size);
        }
        commit_copies();
    };
    // Makes numbers of the bytes of the tile that begins at `first`.
    auto widen_tile = [&](int first) {
#pragma unroll
        for (int i = threadIdx.x; i < 2 * KV * STEPS; i += THREADS) {
            const int row = i / STEPS, chunk = i % STEPS;  // rows of values follow those of keys
            if (is_beyond(chunk)) continue;
            Eight numbers[2];
            widen_sixteen<T>(reinterpret_cast<const uint4*>(bytes)[sixteen(i)], numbers[0], numbers[1]);
            T* to = ring + row / KV * SLICE;
#pragma unroll
            for (int half = 0; half < 2; half++) store_eight(to + Rows::at(row % KV, 2 * chunk + half) * 8, numbers[half]);
        }
        for (int i = threadIdx.x; i < 2 * KV; i += THREADS) {
            const int token = first + i % KV;
            // The weight of a token that nobody attends to is 0, its scale any number or none.
            scales[i] = token >= window_start && token < context ? widen(stored_scales[i]) : 0.0f;
        }
    };

    auto issue = [&](int first, int stage) {
        if constexpr (IS_INT8) {
            issue_bytes(first);
            return;
        }
        const uint32_t to = shared_address(ring + stage * 2 * SLICE);
#pragma unroll
        for (int i = threadIdx.x; i < KV * Rows::CHUNKS; i += THREADS) {
            const int row = i / Rows::CHUNKS, chunk = i % Rows::CHUNKS;
            if (is_beyond(chunk / 2)) continue;
            const int token = first + row;
            const bool is_attended = token >= window_start && token < context;
            const int bytes = is_attended ? 16 : 0;
            const size_t place = is_attended ? size_t(table[token >> p.block_size_log2]) * p.kv_heads + kv_head : 0;
            const T* key = p.cache + (((place * 2) << p.block_size_log2) + (token & block_mask)) * dim + chunk * 8;
            const uint32_t at = to + Rows::at(row, chunk) * 16;
            copy_async(at, key, bytes);
            copy_async(at + SLICE * sizeof(T), key + (size_t(dim) << p.block_size_log2), bytes);
        }
        commit_copies();
    };

    for (int i = threadIdx.x; i < QUERIES * Rows::CHUNKS; i += THREADS) {
        const int row = i / Rows::CHUNKS, chunk = i % Rows::CHUNKS;
        if (is_beyond(chunk / 2)) continue;
        const bool is_there = row < count;
        const T* from = p.qkv + token_of(is_there ? row : 0) * p.qkv_stride + head_of(is_there ? row : 0) * dim + chunk * 8;
        copy_async(shared_address(queries) + Rows::at(row, chunk) * 16, from, is_there ? 16 : 0);
    }
    const int begin = window_start / KV * KV;
    issue(begin, 0);

    float out[MT][OUT_STEPS * 2][4] = {};
    float highest[MT][2], sum[MT][2] = {};
#pragma unroll
    for (int m = 0; m < MT; m++) highest[m][0] = highest[m][1] = -INFINITY;

    int stage = 0;
    for (int first = begin; first < context; first += KV, stage ^= 1) {
        wait_for_copies<0>();
        __syncthreads();
        if constexpr (IS_INT8) {
            widen_tile(first);
            __syncthreads();
        }
        if (first + KV < context) issue(first + KV, stage ^ 1);
        const uint32_t keys = shared_address(ring + (IS_INT8 ? 0 : stage * 2 * SLICE));
        const uint32_t values = keys + SLICE * sizeof(T);

        float score[MT][KV / 8][4] = {};
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            if (is_beyond(k)) break;
            uint32_t query[MT][4];
#pragma unroll
            for (int m = 0; m < MT; m++) {
                const int row = (warp * MT + m) * 16 + (matrix & 1) * 8 + lane % 8;
                load_matrices(query[m], shared_address(queries) + Rows::at(row, 2 * k + (matrix >> 1)) * 16);
            }
#pragma unroll
            for (int n = 0; n < KV / 16; n++) {
                uint32_t key[4];
                load_matrices(key, keys + Rows::at(n * 16 + (matrix >> 1) * 8 + lane % 8, 2 * k + (matrix & 1)) * 16);
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    mma<T>(score[m][2 * n], query[m], key[0], key[1]);
                    mma<T>(score[m][2 * n + 1], query[m], key[2], key[3]);
                }
            }
        }

        if constexpr (IS_INT8) {
#pragma unroll
            for (int n = 0; n < KV / 8; n++) {
                const float2 scale = *reinterpret_cast<const float2*>(scales + n * 8 + lane % 4 * 2);
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    score[m][n][0] *= scale.x;
                    score[m][n][1] *= scale.y;
                    score[m][n][2] *= scale.x;
                    score[m][n][3] *= scale.y;
                }
            }
        }
        const bool is_masked = first + KV > (LOOKS_AHEAD ? min(int(tile.position) + p.ahead, context) : int(tile.position));
        const bool is_masked_before = first < last_window_start;
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                // The query's own place in this tile of keys.
                const int own = int(tile.position) + (OF == Queries::TOKENS ? (warp * MT + m) * 16 + h * 8 + lane / 4 : 0) - first;
                // In this loop, because before it the kernel for heads of 128 runs out of registers.
                if (p.tanh_scale != 0.0f) {
#pragma unroll
                    for (int n = 0; n < KV / 8; n++) {
                        score[m][n][2 * h] = tanh_of(score[m][n][2 * h] * p.tanh_scale);
                        score[m][n][2 * h + 1] = tanh_of(score[m][n][2 * h + 1] * p.tanh_scale);
                    }
                }
                if (is_masked) {
                    const int last = LOOKS_AHEAD ? min(own + p.ahead, context - 1 - first) : own;
#pragma unroll
                    for (int n = 0; n < KV / 8; n++) {
                        if (n * 8 + lane % 4 * 2 > last) score[m][n][2 * h] = -INFINITY;
                        if (n * 8 + lane % 4 * 2 + 1 > last) score[m][n][2 * h + 1] = -INFINITY;
                    }
                }
                if (is_masked_before) {
#pragma unroll
                    for (int n = 0; n < KV / 8; n++) {
                        if (n * 8 + lane % 4 * 2 <= own - p.window) score[m][n][2 * h] = -INFINITY;
                        if (n * 8 + lane % 4 * 2 + 1 <= own - p.window) score[m][n][2 * h + 1] = -INFINITY;
                    }
                }
                float top = score[m][0][2 * h];
#pragma unroll
                for (int n = 0; n < KV / 8; n++) top = fmaxf(top, fmaxf(score[m][n][2 * h], score[m][n][2 * h + 1]));
                top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
                top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
                top = fmaxf(highest[m][h], top * p.scale_log2);
                // Before its window a query has no finite score yet, and infinity less infinity is no number.
                const float base = top == -INFINITY ? 0.0f : top;
                const float keep = power_of_two(highest[m][h] - base);
                highest[m][h] = top;
                float added = 0.0f;
#pragma unroll
                for (int n = 0; n < KV / 8; n++) {
                    score[m][n][2 * h] = power_of_two(fmaf(score[m][n][2 * h], p.scale_log2, -base));
                    score[m][n][2 * h + 1] = power_of_two(fmaf(score[m][n][2 * h + 1], p.scale_log2, -base));
                    added += score[m][n][2 * h] + score[m][n][2 * h + 1];
                }
                sum[m][h] = fmaf(sum[m][h], keep, added);
#pragma unroll
                for (int n = 0; n < OUT_STEPS * 2; n++) {
                    out[m][n][2 * h] *= keep;
                    out[m][n][2 * h + 1] *= keep;
                }
            }
        }

        if constexpr (IS_INT8) {
#pragma unroll
            for (int n = 0; n < KV / 8; n++) {
                const float2 scale = *reinterpret_cast<const float2*>(scales + KV + n * 8 + lane % 4 * 2);
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    score[m][n][0] *= scale.x;
                    score[m][n][1] *= scale.y;
                    score[m][n][2] *= scale.x;
                    score[m][n][3] *= scale.y;
                }
            }
        }
#pragma unroll
        for (int k = 0; k < KV / 16; k++) {
            uint32_t weight[MT][4];
#pragma unroll
            for (int m = 0; m < MT; m++) {
                weight[m][0] = narrow2<T>(score[m][2 * k][0], score[m][2 * k][1]);
                weight[m][1] = narrow2<T>(score[m][2 * k][2], score[m][2 * k][3]);
                weight[m][2] = narrow2<T>(score[m][2 * k + 1][0], score[m][2 * k + 1][1]);
                weight[m][3] = narrow2<T>(score[m][2 * k + 1][2], score[m][2 * k + 1][3]);
            }
#pragma unroll
            for (int n = 0; n < OUT_STEPS; n++) {
                if (is_beyond(n)) break;
                uint32_t value[4];
                const int chunk = 2 * (part * OUT_STEPS + n) + (matrix >> 1);
                load_matrices_transposed(value, values + Rows::at(k * 16 + (matrix & 1) * 8 + lane % 8, chunk) * 16);
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    mma<T>(out[m][2 * n], weight[m], value[0], value[1]);
                    mma<T>(out[m][2 * n + 1], weight[m], value[2], value[3]);
                }
            }
        }
    }

#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = (warp * MT + m) * 16 + h * 8 + lane / 4;
            float total = sum[m][h];
            total += __shfl_xor_sync(0xffffffffu, total, 1);
            total += __shfl_xor_sync(0xffffffffu, total, 2);
            if (row >= count) continue;
            const float share = 1.0f / with_sink(total, highest[m][h], p.sinks, head_of(row));
            T* to = p.out + (token_of(row) * (p.kv_heads * p.group) + head_of(row)) * dim + part * OUT_STEPS * 16 + lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < OUT_STEPS * 2; n++) {
                if (is_beyond(n / 2)) break;
                *reinterpret_cast<uint32_t*>(to + n * 8) = narrow2<T>(out[m][n][2 * h] * share, out[m][n][2 * h + 1] * share);
            }
        }
    }
}

#define KERNEL(name, dim, is_class, queries, keys, dtype, suffix, format)                                        \
    extern "C" __global__ void __launch_bounds__(128, 2)                                                         \
        nvllm_k_attention_prefill_##name##dim##_##suffix(const __grid_constant__ AttentionPrefillParams<dtype> p) { \
        attention_prefill<dtype, dim, Queries::TOKENS, 4, queries, keys, format, is_class>(p);                   \
    }                                                                                                            \
    extern "C" __global__ void __launch_bounds__(32 * parts_of(dim))                                             \
        nvllm_k_attention_invariant_##name##dim##_##suffix(const __grid_constant__ AttentionPrefillParams<dtype> p) { \
        attention_prefill<dtype, dim, Queries::HEADS, parts_of(dim), 1, keys, format, is_class>(p);              \
    }
#define KERNELS(name, dim, is_class, queries, keys)                             \
    KERNEL(name, dim, is_class, queries, keys, bf16, bf16, Kv::PLAIN)           \
    KERNEL(name, dim, is_class, queries, keys, f16, f16, Kv::PLAIN)             \
    KERNEL(name, dim, is_class, queries, keys, bf16, bf16_int8, Kv::INT8)       \
    KERNEL(name, dim, is_class, queries, keys, f16, f16_int8, Kv::INT8)

KERNELS(d, 64, false, 2, 64)
KERNELS(d, 128, false, 2, 64)
KERNELS(d, 256, false, 1, 32)
KERNELS(d, 512, false, 1, 16)
// Of up to as many numbers: a multiple of 16.
KERNELS(to, 128, true, 2, 64)
KERNELS(to, 256, true, 1, 32)

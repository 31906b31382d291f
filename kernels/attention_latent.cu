// Attention over keys that end with their values and that all query heads share. Contract: src/compute/ops/attention.rs. Reference: src/compute/cpu/attention.
// Plan: src/compute/cuda/attention/latent.rs.
//
// A thread block takes M queries, which are heads of one token or of some tokens of a row, and a part of the keys. Keys come in tiles of 32 through two stages
// of copies. Each 16 queries have four warps: a warp computes the scores of 8 keys, and then a quarter of the columns of the output from the weights of all 32.
// Values are the last columns of the keys, so that a key is copied once for both.
//
// Memory-bound in decode: reads key numbers per token once for each M heads, where the second-level cache keeps them for the other heads. Compute-bound in
// prefill: 2 * heads * (key + value) operations for each pair of a token and a key.
//
// Tiles begin at multiples of 32 tokens, and a query's sums go from tile to tile in one chain. A tile that a query does not attend to changes no bit of it. So
// with one part a query has the same bits in every tile of queries. With several, `attention_latent_merge` adds their sums in their order.
#include "common/dependent_launch.cuh"
#include "common/plan.cuh"
#include "common/softmax.cuh"
#include "common/tensor_core.cuh"

template <class T>
struct AttentionLatentParams {
    T* out;                        // [tokens, out_stride]
    const T* qkv;                  // [tokens, qkv_stride]
    const T* cache;                // one layer: [block][block_size][key]
    float* partials;               // [parts, rows, heads, value]; this and the next with several parts alone
    float2* partial_sums;          // [parts, rows, heads]: maximum and sum of the softmax
    const PrefillTile* tiles;      // null: rows with one new token
    const DecodeRow* rows;         // of those
    const uint32_t* counts;        // [3]: unused, rows with one new token, table_width
    const uint32_t* block_tables;  // [batch rows, table_width]
    int out_stride;
    int qkv_stride;
    int heads;
    int key;              // numbers of a key, a multiple of 8
    int value;            // its last numbers, a multiple of 8, at most 512
    int block_size_log2;  // at least 4
    int parts;            // of the keys of a row
    int row_count;        // rows of the partial results
    int query_tiles;      // tiles of M queries for each row with one new token, or for each of `tiles`
    float scale_log2;     // of the scores: scale * log2(e)
};

constexpr int KEYS = 32;           // of a tile
constexpr int PAIRS = 512 / 64;    // of 8 columns of the output, that a warp has at most
constexpr int WEIGHT_STRIDE = 5;   // chunks of 16 bytes from one query's weights to those of the next

// Waits for the four warps of 16 queries.
__device__ inline void wait_for_group(int group) {
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

// Grid [rows * query_tiles, parts], block [8 * M], shared [(M + 2 * KEYS) * stride + M * WEIGHT_STRIDE chunks, 4 * M floats].
template <class T, int M>
__device__ void attention_latent(const AttentionLatentParams<T>& p) {
    constexpr int WARPS = M / 4;
    extern __shared__ __align__(128) uint8_t shared[];
    launch_dependents();
    grid_dependency_wait();
    const int index = blockIdx.x / p.query_tiles, first = blockIdx.x % p.query_tiles * M;
    PrefillTile tile;
    if (p.tiles) {
        tile = p.tiles[index];
    } else {
        // Rows that only pad a batch are not in the plan.
        if (index >= p.counts[1]) return;
        const DecodeRow row = p.rows[index];
        tile = PrefillTile{row.token, row.row, 1, row.context_len - 1};
    }
    const int queries = tile.tokens * p.heads;
    if (first >= queries) return;

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = warp / 4, quarter = warp % 4;
    // A row of numbers in shared memory: whole steps of 16, and an odd number of chunks, so that eight rows of one chunk lie in eight bank groups.
    const int steps = (p.key + 15) / 16, stride = 2 * steps + 1;
    const uint32_t of_queries = shared_address(shared), ring = of_queries + M * stride * 16;
    const uint32_t of_weights = ring + 2 * KEYS * stride * 16;
    uint8_t* weights = shared + (M + 2 * KEYS) * stride * 16;
    float* exchange = reinterpret_cast<float*>(weights + M * WEIGHT_STRIDE * 16);  // [M, 4]

    for (int row = warp; row < M; row += WARPS) {
        const int query = first + row, at = min(query, queries - 1);
        const T* from = p.qkv + size_t(tile.token + at / p.heads) * p.qkv_stride + at % p.heads * p.key;
        for (int chunk = lane; chunk < 2 * steps; chunk += 32) {
            const bool is_there = query < queries && chunk * 8 < p.key;
            copy_async(of_queries + (row * stride + chunk) * 16, from + (is_there ? chunk * 8 : 0), is_there ? 16 : 0);
        }
    }
    const int context = tile.position + (min(first + M, queries) - 1) / p.heads + 1;
    const int tiles = (context + KEYS - 1) / KEYS, of_part = (tiles + p.parts - 1) / p.parts;
    const int begin = min(tiles, int(blockIdx.y) * of_part), end = min(tiles, begin + of_part);
    const uint32_t* table = p.block_tables + size_t(tile.row) * p.counts[2];
    const uint32_t block_mask = (1u << p.block_size_log2) - 1;
    const auto issue = [&](int of_tile) {
        const uint32_t to = ring + (of_tile & 1) * KEYS * stride * 16;
        for (int row = warp; row < KEYS; row += WARPS) {
            const int token = of_tile * KEYS + row;
            const bool is_attended = token < context;
            const size_t slot = is_attended ? (size_t(table[token >> p.block_size_log2]) << p.block_size_log2) + (token & block_mask) : 0;
            const T* from = p.cache + slot * p.key;
            for (int chunk = lane; chunk < 2 * steps; chunk += 32) {
                const bool is_there = is_attended && chunk * 8 < p.key;
                copy_async(to + (row * stride + chunk) * 16, from + (is_there ? chunk * 8 : 0), is_there ? 16 : 0);
            }
        }
        commit_copies();
    };
    if (begin < end) issue(begin);

    // Of the queries `lane / 4` and `lane / 4 + 8` of this group.
    int limit[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int query = first + group * 16 + lane / 4 + 8 * half;
        limit[half] = query < queries ? int(tile.position) + query / p.heads + 1 : 0;
    }
    float out[PAIRS][2][4] = {};
    float highest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    const int first_value = (p.key - p.value) / 8;  // chunk
    for (int at = begin; at < end; at++) {
        // The tile is there, and all warps are done with the one before.
        wait_for_copies<0>();
        __syncthreads();
        if (at + 1 < end) issue(at + 1);
        const uint32_t keys = ring + (at & 1) * KEYS * stride * 16;

        float score[4] = {};
#pragma unroll 4
        for (int k = 0; k < steps; k += 2) {
            uint32_t a[4], b[4];
            load_matrices(b, keys + ((quarter * 8 + lane % 8) * stride + 2 * k + lane / 8) * 16);
            load_matrices(a, of_queries + ((group * 16 + lane % 16) * stride + 2 * k + lane / 16) * 16);
            mma<T>(score, a, b[0], b[1]);
            if (k + 1 < steps) {
                load_matrices(a, of_queries + ((group * 16 + lane % 16) * stride + 2 * k + 2 + lane / 16) * 16);
                mma<T>(score, a, b[2], b[3]);
            }
        }
        float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int token = at * KEYS + quarter * 8 + lane % 4 * 2 + (i & 1);
            score[i] = token < limit[i / 2] ? score[i] * p.scale_log2 : -INFINITY;
            top[i / 2] = fmaxf(top[i / 2], score[i]);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            top[half] = fmaxf(top[half], __shfl_xor_sync(0xffffffffu, top[half], 1));
            top[half] = fmaxf(top[half], __shfl_xor_sync(0xffffffffu, top[half], 2));
            if (lane % 4 == 0) exchange[(group * 16 + lane / 4 + 8 * half) * 4 + quarter] = top[half];
        }
        wait_for_group(group);
        float keep[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float4 tops = *reinterpret_cast<const float4*>(exchange + (group * 16 + lane / 4 + 8 * half) * 4);
            const float higher = fmaxf(highest[half], fmaxf(fmaxf(tops.x, tops.y), fmaxf(tops.z, tops.w)));
            // All scores may be minus infinity, whose difference to itself is no number.
            const float base = higher == -INFINITY ? 0.0f : higher;
            keep[half] = power_of_two(highest[half] - base);
            highest[half] = higher;
            const float left = power_of_two(score[2 * half] - base), right = power_of_two(score[2 * half + 1] - base);
            sum[half] = sum[half] * keep[half] + left + right;
            const int row = group * 16 + lane / 4 + 8 * half;
            *reinterpret_cast<uint32_t*>(weights + (row * WEIGHT_STRIDE + quarter) * 16 + lane % 4 * 4) = narrow2<T>(left, right);
        }
        wait_for_group(group);

#pragma unroll
        for (int pair = 0; pair < PAIRS; pair++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                out[pair][0][i] *= keep[i / 2];
                out[pair][1][i] *= keep[i / 2];
            }
        }
#pragma unroll
        for (int k = 0; k < KEYS / 16; k++) {
            uint32_t a[4];
            load_matrices(a, of_weights + ((group * 16 + lane % 16) * WEIGHT_STRIDE + 2 * k + lane / 16) * 16);
#pragma unroll
            for (int pair = 0; pair < PAIRS; pair++) {
                const int column = (pair * 4 + quarter) * 16;
                if (column < p.value) {
                    uint32_t b[4];
                    load_matrices_transposed(b, keys + ((k * 16 + lane % 16) * stride + first_value + column / 8 + lane / 16) * 16);
                    mma<T>(out[pair][0], a, b[0], b[1]);
                    mma<T>(out[pair][1], a, b[2], b[3]);
                }
            }
        }
    }

    // Of a query that has no keys in this part, nothing is added.
    wait_for_copies<0>();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 1);
        sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 2);
    }
    // All have read the maxima of the last tile behind the barrier after them.
    if (lane % 4 == 0) {
        exchange[(group * 16 + lane / 4) * 4 + quarter] = sum[0];
        exchange[(group * 16 + lane / 4 + 8) * 4 + quarter] = sum[1];
    }
    wait_for_group(group);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = group * 16 + lane / 4 + 8 * half, query = first + row;
        if (query >= queries) continue;
        const float4 sums = *reinterpret_cast<const float4*>(exchange + row * 4);
        const float total = sums.x + sums.y + sums.z + sums.w;
        const size_t place = (size_t(blockIdx.y) * p.row_count + index) * p.heads + query;
        if (p.parts > 1 && lane % 4 == 0 && quarter == 0) p.partial_sums[place] = make_float2(highest[half], total);
        T* to = p.out + size_t(tile.token + query / p.heads) * p.out_stride + query % p.heads * p.value;
        const float inverse = 1.0f / total;
#pragma unroll
        for (int pair = 0; pair < PAIRS; pair++) {
#pragma unroll
            for (int side = 0; side < 2; side++) {
                const int column = (pair * 4 + quarter) * 16 + side * 8 + lane % 4 * 2;
                if (column >= p.value) continue;
                const float left = out[pair][side][2 * half], right = out[pair][side][2 * half + 1];
                if (p.parts > 1) {
                    *reinterpret_cast<float2*>(p.partials + place * p.value + column) = make_float2(left, right);
                } else {
                    *reinterpret_cast<uint32_t*>(to + column) = narrow2<T>(left * inverse, right * inverse);
                }
            }
        }
    }
}

// Adds up the parts of rows with one new token. Grid [rows * heads], block [128].
template <class T>
__device__ void attention_latent_merge(const AttentionLatentParams<T>& p) {
    launch_dependents();
    grid_dependency_wait();
    const int index = blockIdx.x / p.heads, head = blockIdx.x % p.heads;
    if (index >= p.counts[1]) return;
    T* to = p.out + size_t(p.rows[index].token) * p.out_stride + head * p.value;
    for (int column = threadIdx.x * 4; column < p.value; column += blockDim.x * 4) {
        float top = -INFINITY, total = 0.0f;
        float4 all{};
#pragma unroll 4
        for (int part = 0; part < p.parts; part++) {
            const size_t place = (size_t(part) * p.row_count + index) * p.heads + head;
            const float2 sums = p.partial_sums[place];
            const float4 value = *reinterpret_cast<const float4*>(p.partials + place * p.value + column);
            const float higher = fmaxf(top, sums.x);
            // The first part has keys. One without any has the maximum minus infinity and the share 0.
            const float keep = power_of_two(top - higher), share = power_of_two(sums.x - higher);
            top = higher;
            total = total * keep + sums.y * share;
            all.x = all.x * keep + value.x * share;
            all.y = all.y * keep + value.y * share;
            all.z = all.z * keep + value.z * share;
            all.w = all.w * keep + value.w * share;
        }
        const float inverse = 1.0f / total;
        *reinterpret_cast<uint2*>(to + column) =
            make_uint2(narrow2<T>(all.x * inverse, all.y * inverse), narrow2<T>(all.z * inverse, all.w * inverse));
    }
}

#define KERNEL(queries, dtype)                                                                                       \
    extern "C" __global__ void __launch_bounds__(8 * queries)                                                        \
        nvllm_k_attention_latent_q##queries##_##dtype(const __grid_constant__ AttentionLatentParams<dtype> p) {      \
        attention_latent<dtype, queries>(p);                                                                         \
    }
#define KERNELS(dtype)                                                                                        \
    KERNEL(16, dtype)                                                                                         \
    KERNEL(32, dtype)                                                                                         \
    KERNEL(64, dtype)                                                                                         \
    extern "C" __global__ void nvllm_k_attention_latent_merge_##dtype(                                        \
        const __grid_constant__ AttentionLatentParams<dtype> p) {                                             \
        attention_latent_merge<dtype>(p);                                                                     \
    }

KERNELS(bf16)
KERNELS(f16)

// Attention of rows with one new token to the keys that several of them share. Contract: src/compute/ops/attention.rs. Reference:
// src/compute/cpu/attention. Plan: src/compute/cuda/attention/shared_partition.rs.
//
// Rows whose block tables begin alike have the same keys there. A thread block takes some of these keys and up to 64 queries of one KV
// head: its query heads of as many rows as go into them. So a key is read once for these rows, and serves as many products. What it
// leaves is a partial result for each row: the maximum and the sum of the softmax, and the values that it weighs. `attention_decode.cu`,
// launched behind it, attends to the other keys of each row and adds up all parts, in the order of their positions.
//
// The shared keys are those of whole blocks before the last token of each row, so they are older than the kernels of this pass.
//
// Four warps take 16 queries each: scores [16 queries, 64 keys] = Q K^T with the queries in registers, then out [16 queries, head_dim] +=
// P V. Keys and values in int8 arrive as bytes and are widened once per thread block to a tile of numbers, as in attention_prefill.cu.
#include "common/dependent_launch.cuh"
#include "common/kv_int8.cuh"
#include "common/softmax.cuh"
#include "common/tensor_core.cuh"

// Keys that a thread block takes for some rows.
struct SharedUnit {
    uint32_t first;  // of its rows in `rows`
    uint32_t rows;   // at most 64 / group
    uint32_t table;  // the block table of one of them
    uint32_t begin;  // positions of keys, multiples of the block size
    uint32_t end;
};

// A row of a unit.
struct SharedRow {
    uint32_t token;  // its index in the batch
    uint32_t part;   // index of its partial result of this unit
};

template <class T>
struct AttentionSharedParams {
    float* partials;               // [parts, kv_heads, group, head_dim]
    float2* partial_sums;          // [parts, kv_heads, group]: maximum and sum of the softmax
    const T* qkv;                  // [tokens, qkv_stride]
    const T* cache;                // one layer: [block][kv_head][K|V][block_size][head_dim], or the bytes of an int8 cache
    const SharedUnit* units;       // [units]
    const SharedRow* rows;         // those of all units
    const uint32_t* block_tables;  // [batch rows, table_width]
    int table_width;
    int qkv_stride;
    int kv_heads;
    int group;            // query heads of a KV head
    int block_size_log2;  // at least 4
    int stages;           // copies of a tile in shared memory, 2 or 3
    float scale_log2;     // of the scores, or with a softcap of their tanh: scale * log2(e), or softcap * log2(e)
    float tanh_scale;     // scale / softcap; 0 without a softcap
};

constexpr int QUERIES = 64, KEYS = 64, THREADS = 128;

// Grid [units * kv_heads], block [128], shared [(64 + 128 * stages) rows], or with int8 [(64 + 128) rows + 512 bytes + stages * 128 *
// (head_dim + 2) bytes].
template <class T, int D, Kv FORMAT>
__device__ void attention_shared(const AttentionSharedParams<T>& p) {
    using Rows = Tile<D>;
    constexpr int STEPS = D / 16;
    constexpr int SLICE = KEYS * Rows::STRIDE * 8;  // numbers of a tile of keys, or of values
    constexpr bool IS_INT8 = FORMAT == Kv::INT8;
    constexpr int STAGE_BYTES = IS_INT8 ? 2 * KEYS * (D + 2) : 2 * SLICE * int(sizeof(T));
    extern __shared__ __align__(128) uint8_t shared[];

    launch_dependents();
    const SharedUnit unit = p.units[blockIdx.x / p.kv_heads];
    const int kv_head = blockIdx.x % p.kv_heads;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, matrix = lane / 8;
    const int begin = unit.begin, end = unit.end;
    T* queries = reinterpret_cast<T*>(shared);
    T* numbers = queries + QUERIES * Rows::STRIDE * 8;  // [stages][K|V], with int8 [K|V], and then
    float* scales = reinterpret_cast<float*>(numbers + 2 * SLICE);  // [K|V][KEYS]
    // With int8 [stages]: [K|V][KEYS][D] integers and [K|V][KEYS] scales.
    uint8_t* ring = IS_INT8 ? reinterpret_cast<uint8_t*>(scales + 2 * KEYS) : reinterpret_cast<uint8_t*>(numbers);
    const uint32_t block_mask = (1u << p.block_size_log2) - 1;
    const uint32_t* table = p.block_tables + size_t(unit.table) * p.table_width;

    // Begins the copy of the tile of keys that begins at `first`; a commit is made even where there is none. Zeros take the place of keys
    // behind the end.
    auto issue = [&](int first, int stage) {
        const uint32_t to = shared_address(ring) + stage * STAGE_BYTES;
        if (first >= end) {
            commit_copies();
            return;
        }
        if constexpr (IS_INT8) {
            const uint8_t* cache = reinterpret_cast<const uint8_t*>(p.cache);
            const size_t head_bytes = int8_head_bytes(p.block_size_log2, D);
            const auto of_head = [&](int token) { return (size_t(table[token >> p.block_size_log2]) * p.kv_heads + kv_head) * head_bytes; };
#pragma unroll
            for (int i = threadIdx.x; i < KEYS * (D / 16); i += THREADS) {
                const int token = first + i / (D / 16), size = token < end ? 16 : 0;
                const uint8_t* key = cache + (size ? of_head(token) + (token & block_mask) * D + i % (D / 16) * 16 : 0);
                copy_async(to + i * 16, key, size);
                copy_async(to + KEYS * D + i * 16, key + (size ? size_t(D) << p.block_size_log2 : 0), size);
            }
            // Eight scales lie together.
            for (int i = threadIdx.x; i < KEYS / 8; i += THREADS) {
                const int token = first + i * 8, size = token < end ? 16 : 0;
                const uint8_t* key = cache + (size ? of_head(token) + (size_t(2 * D) << p.block_size_log2) + (token & block_mask) * 2 : 0);
                copy_async(to + 2 * KEYS * D + i * 16, key, size);
                copy_async(to + 2 * KEYS * D + 2 * KEYS + i * 16, key + (size ? size_t(2) << p.block_size_log2 : 0), size);
            }
        } else {
#pragma unroll
            for (int i = threadIdx.x; i < KEYS * Rows::CHUNKS; i += THREADS) {
                const int row = i / Rows::CHUNKS, chunk = i % Rows::CHUNKS;
                const int token = first + row, size = token < end ? 16 : 0;
                const size_t place = size ? size_t(table[token >> p.block_size_log2]) * p.kv_heads + kv_head : 0;
                const T* key = p.cache + (((place * 2) << p.block_size_log2) + (token & block_mask)) * D + chunk * 8;
                const uint32_t at = to + Rows::at(row, chunk) * 16;
                copy_async(at, key, size);
                copy_async(at + SLICE * sizeof(T), key + (size_t(D) << p.block_size_log2), size);
            }
        }
        commit_copies();
    };
    for (int stage = 0; stage < p.stages - 1; stage++) issue(begin + stage * KEYS, stage);

    // Queries come from this pass, and partial results are read by the kernels before.
    grid_dependency_wait();
    const int count = unit.rows * p.group;
    const auto row_of = [&](int query) { return p.rows[unit.first + query / p.group]; };
    for (int i = threadIdx.x; i < QUERIES * Rows::CHUNKS; i += THREADS) {
        const int query = i / Rows::CHUNKS, chunk = i % Rows::CHUNKS;
        const bool is_there = query < count;
        const int head = kv_head * p.group + query % p.group;
        const T* from = p.qkv + (is_there ? size_t(row_of(query).token) * p.qkv_stride + head * D + chunk * 8 : 0);
        copy_async(shared_address(queries) + Rows::at(query, chunk) * 16, from, is_there ? 16 : 0);
    }
    commit_copies();
    wait_for_copies<0>();
    __syncthreads();
    uint32_t query[STEPS][4];
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        const int row = warp * 16 + (matrix & 1) * 8 + lane % 8;
        load_matrices(query[k], shared_address(queries) + Rows::at(row, 2 * k + (matrix >> 1)) * 16);
    }

    float out[STEPS * 2][4] = {};
    float highest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    int stage = 0;
    for (int first = begin; first < end; first += KEYS) {
        if (p.stages == 2) {
            wait_for_copies<0>();
        } else {
            wait_for_copies<1>();
        }
        __syncthreads();
        if constexpr (IS_INT8) {
            const uint8_t* bytes = ring + stage * STAGE_BYTES;
            const bf16* stored_scales = reinterpret_cast<const bf16*>(bytes + 2 * KEYS * D);
#pragma unroll
            for (int i = threadIdx.x; i < 2 * KEYS * (D / 16); i += THREADS) {
                const int row = i / (D / 16), chunk = i % (D / 16);  // rows of values follow those of keys
                Eight wide[2];
                widen_sixteen<T>(reinterpret_cast<const uint4*>(bytes)[i], wide[0], wide[1]);
                T* to = numbers + row / KEYS * SLICE;
#pragma unroll
                for (int half = 0; half < 2; half++) store_eight(to + Rows::at(row % KEYS, 2 * chunk + half) * 8, wide[half]);
            }
            for (int i = threadIdx.x; i < 2 * KEYS; i += THREADS) scales[i] = widen(stored_scales[i]);
            __syncthreads();
        }
        issue(first + (p.stages - 1) * KEYS, stage == 0 ? p.stages - 1 : stage - 1);
        const uint32_t keys = shared_address(numbers) + (IS_INT8 ? 0 : stage * STAGE_BYTES);
        const uint32_t values = keys + SLICE * sizeof(T);
        stage = stage + 1 == p.stages ? 0 : stage + 1;

        float score[KEYS / 8][4] = {};
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
#pragma unroll
            for (int n = 0; n < KEYS / 16; n++) {
                uint32_t key[4];
                load_matrices(key, keys + Rows::at(n * 16 + (matrix >> 1) * 8 + lane % 8, 2 * k + (matrix & 1)) * 16);
                mma<T>(score[2 * n], query[k], key[0], key[1]);
                mma<T>(score[2 * n + 1], query[k], key[2], key[3]);
            }
        }
        if constexpr (IS_INT8) {
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
                const float2 scale = *reinterpret_cast<const float2*>(scales + n * 8 + lane % 4 * 2);
#pragma unroll
                for (int i = 0; i < 4; i++) score[n][i] *= i % 2 == 0 ? scale.x : scale.y;
            }
        }
        if (p.tanh_scale != 0.0f) {
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) score[n][i] = tanh_of(score[n][i] * p.tanh_scale);
            }
        }
        if (first + KEYS > end) {
            // At least a block of 16 keys is there: the maximum is finite.
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
                if (first + n * 8 >= end) score[n][0] = score[n][1] = score[n][2] = score[n][3] = -INFINITY;
            }
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float top = score[0][2 * h];
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) top = fmaxf(top, fmaxf(score[n][2 * h], score[n][2 * h + 1]));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
            top = fmaxf(highest[h], top * p.scale_log2);
            const float keep = power_of_two(highest[h] - top);
            highest[h] = top;
            float added = 0.0f;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
                score[n][2 * h] = power_of_two(fmaf(score[n][2 * h], p.scale_log2, -top));
                score[n][2 * h + 1] = power_of_two(fmaf(score[n][2 * h + 1], p.scale_log2, -top));
                added += score[n][2 * h] + score[n][2 * h + 1];
            }
            sum[h] = fmaf(sum[h], keep, added);
#pragma unroll
            for (int n = 0; n < STEPS * 2; n++) {
                out[n][2 * h] *= keep;
                out[n][2 * h + 1] *= keep;
            }
        }
        if constexpr (IS_INT8) {
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
                const float2 scale = *reinterpret_cast<const float2*>(scales + KEYS + n * 8 + lane % 4 * 2);
#pragma unroll
                for (int i = 0; i < 4; i++) score[n][i] *= i % 2 == 0 ? scale.x : scale.y;
            }
        }
#pragma unroll
        for (int k = 0; k < KEYS / 16; k++) {
            const uint32_t weight[4] = {narrow2<T>(score[2 * k][0], score[2 * k][1]), narrow2<T>(score[2 * k][2], score[2 * k][3]),
                                        narrow2<T>(score[2 * k + 1][0], score[2 * k + 1][1]),
                                        narrow2<T>(score[2 * k + 1][2], score[2 * k + 1][3])};
#pragma unroll
            for (int n = 0; n < STEPS; n++) {
                uint32_t value[4];
                load_matrices_transposed(value, values + Rows::at(k * 16 + (matrix & 1) * 8 + lane % 8, 2 * n + (matrix >> 1)) * 16);
                mma<T>(out[2 * n], weight, value[0], value[1]);
                mma<T>(out[2 * n + 1], weight, value[2], value[3]);
            }
        }
    }

#pragma unroll
    for (int h = 0; h < 2; h++) {
        float total = sum[h];
        total += __shfl_xor_sync(0xffffffffu, total, 1);
        total += __shfl_xor_sync(0xffffffffu, total, 2);
        const int index = warp * 16 + h * 8 + lane / 4;
        if (index >= count) continue;
        const size_t place = (size_t(row_of(index).part) * p.kv_heads + kv_head) * p.group + index % p.group;
        float* to = p.partials + place * D + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < STEPS * 2; n++) {
            __stcg(reinterpret_cast<float2*>(to + n * 8), make_float2(out[n][2 * h], out[n][2 * h + 1]));
        }
        if (lane % 4 == 0) __stcg(p.partial_sums + place, make_float2(highest[h], total));
    }
}

#define KERNELS(dim, dtype)                                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS, 2)                                                       \
        nvllm_k_attention_shared_d##dim##_##dtype(const __grid_constant__ AttentionSharedParams<dtype> p) {        \
        attention_shared<dtype, dim, Kv::PLAIN>(p);                                                                \
    }                                                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS, 2)                                                       \
        nvllm_k_attention_shared_d##dim##_##dtype##_int8(const __grid_constant__ AttentionSharedParams<dtype> p) { \
        attention_shared<dtype, dim, Kv::INT8>(p);                                                                 \
    }

KERNELS(64, bf16)
KERNELS(64, f16)
KERNELS(128, bf16)
KERNELS(128, f16)

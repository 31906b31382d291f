// Attention of up to 8 rows that bring one new token each, with what prepares it. Contract: src/compute/ops/rope_and_attention.rs. Reference:
// rope_and_cache and attention one by one, of which the first has the same bits.
//
// Latency-bound: a row of a small batch attends to less than the multiprocessors read in a microsecond. A cluster of thread blocks
// takes a (row, KV head): its warps take the units of 16 tokens of the context in turn, through the tensor cores as in attention_decode.cu.
// Each thread block adds up a slice of the results, for which the others store their parts into its shared memory, in the order of their
// ranks. So there is no counter of arrivals, nothing is read back from memory, and how a row is cut depends on the row and the size of the
// cluster alone.
//
// All keys but the row's last one are older than the pass, and are asked for before the wait. The last key and its value come from qkv:
// the thread block that has the last unit normalizes and rotates the key, writes both to the cache, and takes them from shared memory
// itself. Every thread block of the cluster prepares the queries for itself.
#include "common/cluster.cuh"
#include "common/dependent_launch.cuh"
#include "common/plan.cuh"
#include "common/rope.cuh"
#include "common/softmax.cuh"
#include "common/tensor_core.cuh"

template <class T>
struct AttentionFewParams {
    T* out;                         // [tokens, heads * head_dim]
    const T* qkv;                   // [tokens, qkv_stride]: queries, keys, values, as the projections made them
    T* cache;                       // one layer: [block][kv_head][K|V][block_size][head_dim]
    const float* query_norm;        // [head_dim], null where heads are not normalized
    const float* key_norm;          // [head_dim], likewise
    const float* rope;              // [positions, head_dim]: cosines, then sines
    const uint32_t* positions;      // [tokens]
    const uint32_t* slots;          // [tokens]; UINT32_MAX stores nothing
    const DecodeRow* rows;          // [rows]
    const uint32_t* counts;         // [3]: not read, rows, table_width
    const uint32_t* block_tables;   // [batch rows, table_width]
    int qkv_stride;
    int heads;
    int kv_heads;
    int group;           // query heads of a KV head, at most 8
    int block_size_log2; // at least 4
    int stages;          // copies of a unit in shared memory, 2 to 4
    float eps;
    float scale_log2;    // of the scores: scale * log2(e)
    const float* sinks;  // [heads], or null
};

constexpr int WARPS = 4;

// The share of a part with the maximum `highest` in a sum with the maximum `top`. Parts without a token have none.
__device__ inline float share_of(float highest, float top) {
    return highest == -INFINITY ? 0.0f : power_of_two(highest - top);
}

// Grid [rows * kv_heads * cluster], clusters of neighbours, block [32 * WARPS]. Shared: the rings, [WARPS, stages, STAGE] numbers; queries, key
// and value, [group + 2, D]; of the parts of the warps [WARPS, group] pairs; those of a slice of the results that the thread blocks store here,
// [cluster, group * D / cluster] and [cluster, group]. The parts themselves, [group, D] in f32, lie in the ring of each warp when it is not read any more.
template <class T, int D>
__device__ void attention_few(const AttentionFewParams<T>& p) {
    using Rows = Tile<D>;
    constexpr int SLICE = 16 * Rows::STRIDE * 8;  // numbers of 16 keys, or 16 values
    constexpr int STAGE = 2 * SLICE, STEPS = D / 16, HALF = D / 2;
    extern __shared__ __align__(128) uint8_t shared[];
    launch_dependents();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, matrix = lane / 8;
    const uint32_t rank = cluster_rank(), ranks = cluster_size();
    const uint32_t pair = blockIdx.x / ranks, kv_head = pair % p.kv_heads;
    if (pair / p.kv_heads >= p.counts[1]) {
        grid_dependency_wait();
        return;
    }
    // Each thread block runs before another stores into its shared memory: awaited below.
    cluster_arrive();
    const uint32_t table_width = p.counts[2];
    const DecodeRow at = p.rows[pair / p.kv_heads];
    T* ring = reinterpret_cast<T*>(shared) + warp * p.stages * STAGE;
    T* prepared = reinterpret_cast<T*>(shared) + WARPS * p.stages * STAGE;
    const auto merge_of = [&](int warp) { return reinterpret_cast<float*>(reinterpret_cast<T*>(shared) + warp * p.stages * STAGE); };
    float2* merge_sums = reinterpret_cast<float2*>(prepared + (p.group + 2) * D);
    float* parts = reinterpret_cast<float*>(merge_sums + WARPS * p.group);
    float2* part_sums = reinterpret_cast<float2*>(parts + p.group * D);
    const int slice = p.group * D / int(ranks);

    // Units of this warp: `first`, `first + takers`, ..
    const int takers = ranks * WARPS, last_token = at.context_len - 1;
    const int first = at.window_start / 16 + rank * WARPS + warp, last = last_token / 16;
    const int units = first > last ? 0 : (last - first) / takers + 1;
    const auto token_of = [&](int unit) { return (first + unit * takers) * 16; };
    const bool has_last = (last - int(at.window_start / 16)) % takers / WARPS == int(rank);
    const int block_mask = (1 << p.block_size_log2) - 1;

    // Lane l knows the block of unit l of the 32 at hand.
    uint32_t blocks = 0;
    const auto load_blocks = [&](int unit) {
        const uint32_t* table = p.block_tables + size_t(at.row) * table_width;
        blocks = unit + lane < units ? table[token_of(unit + lane) >> p.block_size_log2] : 0;
    };
    load_blocks(0);
    int loaded = 0;
    // Begins the copy of this warp's next unit; a commit is made even where there is nothing to copy.
    const auto issue = [&](int stage) {
        if (loaded < units) {
            if (loaded > 0 && loaded % 32 == 0) load_blocks(loaded);
            const uint32_t block = __shfl_sync(0xffffffffu, blocks, loaded % 32);
            const int token = token_of(loaded), before = int(at.window_start) - token, valid = last_token - token;
            const size_t head = (size_t(block) * p.kv_heads + kv_head) * 2;
            const T* keys = p.cache + ((head << p.block_size_log2) + (token & block_mask)) * D;
            const T* values = keys + (size_t(D) << p.block_size_log2);
            const uint32_t to = shared_address(ring + stage * STAGE);
#pragma unroll
            for (int i = lane; i < 16 * Rows::CHUNKS; i += 32) {
                const int row = i / Rows::CHUNKS, chunk = i % Rows::CHUNKS;
                const bool is_read = row >= before && row < valid;
                const int bytes = is_read ? 16 : 0, from = is_read ? row * D + chunk * 8 : 0;
                const uint32_t there = to + Rows::at(row, chunk) * 16;
                copy_async(there, keys + from, bytes);
                copy_async(there + SLICE * sizeof(T), values + from, bytes);
            }
            loaded++;
        }
        commit_copies();
    };
    for (int stage = 0; stage < p.stages - 1; stage++) issue(stage);

    // A lane has two numbers of each half of a head.
    const int i = lane * 2;
    const bool has_numbers = i < HALF;
    const uint32_t slot = p.slots[at.token];
    TwoPairs of_queries{}, of_key{};
    if (has_numbers) {
        of_queries.load_rope(p.rope + size_t(p.positions[at.token]) * D, HALF, i);
        of_key = of_queries;
        if (p.query_norm) {
            of_queries.load_norm(p.query_norm, HALF, i);
            of_key.load_norm(p.key_norm, HALF, i);
        }
    }
    // The keys of a unit are the operand of 16 rows. Those of the first pass to registers before the wait.
    uint32_t key[STEPS][4];
    const auto load_keys = [&](int stage) {
        const uint32_t keys = shared_address(ring + stage * STAGE);
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            load_matrices(key[k], keys + Rows::at((matrix & 1) * 8 + lane % 8, 2 * k + (matrix >> 1)) * 16);
        }
    };
    wait_for_oldest_copy(p.stages);
    __syncwarp();
    load_keys(0);
    grid_dependency_wait();

    // Queries, then the key and the value, as rope_and_cache.cu makes them.
    for (int task = warp; task < p.group + (has_last ? 2 : 0); task += WARPS) {
        const bool is_query = task < p.group, is_value = task == p.group + 1;
        const int head = is_query ? kv_head * p.group + task : p.heads + (is_value ? p.kv_heads : 0) + kv_head;
        const T* from = p.qkv + size_t(at.token) * p.qkv_stride + head * D;
        uint32_t low = 0, high = 0;
        if (has_numbers) {
            low = __ldcg(reinterpret_cast<const uint32_t*>(from + i));
            high = __ldcg(reinterpret_cast<const uint32_t*>(from + HALF + i));
        }
        if (!is_value) {
            float scale = 1.0f;
            if (p.query_norm) scale = rsqrtf(warp_sum(squares_of(widen2<T>(low), widen2<T>(high))) / D + p.eps);
            const TwoPairs pairs = is_query ? of_queries : of_key;
            pairs.apply<T>(low, high, p.query_norm != nullptr, scale);
        }
        if (has_numbers) {
            *reinterpret_cast<uint32_t*>(prepared + task * D + i) = low;
            *reinterpret_cast<uint32_t*>(prepared + task * D + HALF + i) = high;
            if (!is_query && slot != UINT32_MAX) {
                const size_t place = (size_t(slot >> p.block_size_log2) * p.kv_heads + kv_head) * 2 + (is_value ? 1 : 0);
                T* to = p.cache + ((place << p.block_size_log2) + (slot & block_mask)) * D;
                *reinterpret_cast<uint32_t*>(to + i) = low;
                *reinterpret_cast<uint32_t*>(to + HALF + i) = high;
            }
        }
    }
    __syncthreads();

    uint32_t query[STEPS][2];
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        const T* q = prepared + lane / 4 * D + k * 16 + lane % 4 * 2;
        query[k][0] = lane / 4 < p.group ? *reinterpret_cast<const uint32_t*>(q) : 0;
        query[k][1] = lane / 4 < p.group ? *reinterpret_cast<const uint32_t*>(q + 8) : 0;
    }
    float out[STEPS][4] = {};
    float highest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    int stage = 0;
    for (int unit = 0; unit < units; unit++) {
        wait_for_oldest_copy(p.stages);
        __syncwarp();
        issue(stage == 0 ? p.stages - 1 : stage - 1);
        T* key_rows = ring + stage * STAGE;
        const int token = token_of(unit);
        // Of the 16 keys, those from `before` to `valid` are attended to.
        const int before = int(at.window_start) - token, valid = int(at.context_len) - token;
        if (valid <= 16) {
            const Eight* from = reinterpret_cast<const Eight*>(prepared + p.group * D);
            Eight* to = reinterpret_cast<Eight*>(key_rows);
            for (int chunk = lane; chunk < Rows::CHUNKS; chunk += 32) {
                to[Rows::at(valid - 1, chunk)] = from[chunk];
                to[SLICE / 8 + Rows::at(valid - 1, chunk)] = from[Rows::CHUNKS + chunk];
            }
            __syncwarp();
        }
        if (unit > 0 || valid <= 16) load_keys(stage);
        const uint32_t values = shared_address(key_rows) + SLICE * sizeof(T);
        float score[4] = {};
#pragma unroll
        for (int k = 0; k < STEPS; k++) mma<T>(score, key[k], query[k][0], query[k][1]);
        if (lane / 4 >= valid || lane / 4 < before) score[0] = score[1] = -INFINITY;
        if (lane / 4 + 8 >= valid || lane / 4 + 8 < before) score[2] = score[3] = -INFINITY;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float top = fmaxf(score[h], score[h + 2]);
#pragma unroll
            for (int lanes = 4; lanes < 32; lanes *= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, lanes));
            top = fmaxf(highest[h], top * p.scale_log2);
            const float keep = power_of_two(highest[h] - top);
            highest[h] = top;
            score[h] = power_of_two(score[h] * p.scale_log2 - top);
            score[h + 2] = power_of_two(score[h + 2] * p.scale_log2 - top);
            sum[h] = sum[h] * keep + score[h] + score[h + 2];
#pragma unroll
            for (int k = 0; k < STEPS; k++) {
                out[k][h] *= keep;
                out[k][h + 2] *= keep;
            }
        }
        const uint32_t weight[2] = {transpose_matrix(narrow2<T>(score[0], score[1])), transpose_matrix(narrow2<T>(score[2], score[3]))};
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            uint32_t value[4];
            load_matrices_transposed(value, values + Rows::at((matrix >> 1) * 8 + lane % 8, 2 * k + (matrix & 1)) * 16);
            mma<T>(out[k], value, weight[0], weight[1]);
        }
        stage = stage + 1 == p.stages ? 0 : stage + 1;
    }

    // The parts of the warps, then those of the thread blocks.
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int head = lane % 4 * 2 + h;
#pragma unroll
        for (int lanes = 4; lanes < 32; lanes *= 2) sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], lanes);
        if (head >= p.group) continue;
        float* to = merge_of(warp) + head * D + lane / 4;
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            to[k * 16] = out[k][h];
            to[k * 16 + 8] = out[k][h + 2];
        }
        if (lane < 4) merge_sums[warp * p.group + head] = make_float2(highest[h], sum[h]);
    }
    __syncthreads();
    cluster_wait();
    for (int n = threadIdx.x * 4; n < p.group * D; n += WARPS * 128) {
        const int head = n / D;
        float top = -INFINITY, total = 0.0f;
        float4 value{};
#pragma unroll
        for (int w = 0; w < WARPS; w++) top = fmaxf(top, merge_sums[w * p.group + head].x);
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            const float2 of_warp = merge_sums[w * p.group + head];
            const float share = share_of(of_warp.x, top);
            total += of_warp.y * share;
            add_share(value, *reinterpret_cast<const float4*>(merge_of(w) + n), share);
        }
        *reinterpret_cast<float4*>(in_cluster(parts, n / slice) + rank * slice + n % slice) = value;
        // The lanes of a head each tell some of the thread blocks.
        for (uint32_t to = n % D / 4; to < ranks; to += D / 4) in_cluster(part_sums, to)[rank * p.group + head] = make_float2(top, total);
    }
    cluster_sync();
    T* row_out = p.out + (size_t(at.token) * p.kv_heads + kv_head) * p.group * D + rank * slice;
    for (int n = threadIdx.x * 4; n < slice; n += WARPS * 128) {
        const int head = (int(rank) * slice + n) / D;
        float top = -INFINITY, total = 0.0f;
        float4 value{};
#pragma unroll 8
        for (uint32_t r = 0; r < ranks; r++) top = fmaxf(top, part_sums[r * p.group + head].x);
#pragma unroll 8
        for (uint32_t r = 0; r < ranks; r++) {
            const float2 of_block = part_sums[r * p.group + head];
            const float share = share_of(of_block.x, top);
            total += of_block.y * share;
            add_share(value, *reinterpret_cast<const float4*>(parts + r * slice + n), share);
        }
        total = with_sink(total, top, p.sinks, kv_head * p.group + head);
        *reinterpret_cast<uint2*>(row_out + n) =
            make_uint2(narrow2<T>(value.x / total, value.y / total), narrow2<T>(value.z / total, value.w / total));
    }
}

#define KERNEL(dim, dtype)                                                                            \
    extern "C" __global__ void __launch_bounds__(32 * WARPS)                                          \
        nvllm_k_attention_few_d##dim##_##dtype(const __grid_constant__ AttentionFewParams<dtype> p) { \
        attention_few<dtype, dim>(p);                                                                 \
    }
#define KERNELS(dim)  \
    KERNEL(dim, bf16) \
    KERNEL(dim, f16)

KERNELS(64)
KERNELS(128)

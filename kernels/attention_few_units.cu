// Batch-invariant attention of few rows that bring one new token each, with what prepares it, on compute capability 9.0. Contract:
// src/compute/ops/rope_and_attention.rs. Reference: rope_and_cache and attention one by one, which have the same bits.
//
// Latency-bound, as attention_few.cu. A cluster of thread blocks takes a (row, KV head), and its warps take units of 64 keys in turn: with the
// numbers of attention_units.cu, which are merged in the order of their positions. So it works in rounds, of as many units as the cluster has
// warps. Each thread block merges the numbers of some dimensions of all heads, which the warps store into its shared memory. There are two
// buffers in turn: units are merged after those of the next round were computed, and what is stored meanwhile goes to the other buffer.
//
// A warp has room for a unit of heads of 128 numbers, which it asks for before the wait. It prepares the queries in its registers, and the one
// that has a row's last key stores it and its value in the cache and puts them among those that it copied.
#include "common/cluster.cuh"
#include "common/dependent_launch.cuh"
#include "common/plan.cuh"
#include "common/raw_heads.cuh"
#include "common/units.cuh"

template <class T>
struct AttentionFewUnitsParams {
    T* out;                        // [tokens, heads * head_dim]
    const T* qkv;                  // [tokens, qkv_stride]: queries, keys, values, as the projections made them
    T* cache;                      // one layer: [block][kv_head][K|V][block_size][head_dim]
    const float* query_norm;       // [head_dim], null where heads are not normalized
    const float* key_norm;         // [head_dim], likewise
    const float* rope;             // [positions, head_dim]: cosines, then sines
    const uint32_t* slots;         // [tokens]; UINT32_MAX stores nothing
    const DecodeRow* rows;         // [rows]
    const uint32_t* counts;        // [3]: not read, rows, table_width
    const uint32_t* block_tables;  // [batch rows, table_width]
    int qkv_stride;
    int kv_heads;
    int group;            // query heads of a KV head, at most 8
    int block_size_log2;  // at least 4
    float eps;
    float scale_log2;     // of the scores: scale * log2(e)
    const float* sinks;   // [kv_heads * group], or null
};

constexpr int WARPS = 3;
// Slices of 16 keys, or of 16 values, in a piece of the ring.
constexpr int PIECE_SLICES = 2, UNIT_PIECES = 2 * SLICES / PIECE_SLICES;
// Copies that are under way or waited for, per warp.
constexpr int RING_BYTES = 32 * 1024;

// Two numbers of the result, to which units are joined in their order.
struct RunningPair {
    float highest, sum;
    float2 value;

    __device__ void join(float2 of_unit, float2 there) {
        const Shares shares = join_maximum(highest, of_unit.x);
        sum = joined(sum, of_unit.y, shares);
        value = make_float2(joined(value.x, there.x, shares), joined(value.y, there.y, shares));
    }
};

// Grid [rows * kv_heads * cluster], clusters of neighbours of 2, 4 or 8, block [32 * WARPS]. Shared: the rings, [WARPS, RING_BYTES]; the units of
// two rounds, of the dimensions that this thread block merges, [2, WARPS * cluster, group, head_dim / cluster] in f32; their maxima and sums,
// [2, WARPS * cluster, group] pairs.
template <class T, int D>
__device__ void attention_few_units(const AttentionFewUnitsParams<T>& p) {
    using Rows = Tile<D>;
    constexpr int SLICE = 16 * D, PIECE = PIECE_SLICES * SLICE;  // numbers
    constexpr int PIECES = RING_BYTES / (PIECE * 2), STEPS = D / 16;
    extern __shared__ __align__(128) uint8_t shared[];
    launch_dependents();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
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
    T* const ring = reinterpret_cast<T*>(shared) + warp * (RING_BYTES / 2);
    const int takers = int(ranks) * WARPS, width = D / int(ranks), width_log2 = 31 - __clz(width);
    float* const parts = reinterpret_cast<float*>(shared + WARPS * RING_BYTES);
    float2* const part_sums = reinterpret_cast<float2*>(parts + 2 * WARPS * p.group * D);

    // Units of this warp: `first_unit + taker`, `first_unit + taker + takers`, ..
    const int first_unit = at.window_start / UNIT, all = int((at.context_len + UNIT - 1) / UNIT) - first_unit;
    const int taker = warp * int(ranks) + int(rank);
    const int units = taker < all ? (all - taker - 1) / takers + 1 : 0, rounds = (all + takers - 1) / takers;
    const auto unit_of = [&](int round) { return first_unit + round * takers + taker; };
    const uint32_t block_mask = (1u << p.block_size_log2) - 1;
    const auto is_read = [&](uint32_t token) { return token < at.context_len && token + 16 > at.window_start; };

    // Lane l knows the block of slice l % 4 of unit l / 4 of the 8 at hand.
    uint32_t blocks = 0;
    const auto load_blocks = [&](int round) {
        const uint32_t token = unit_of(round + lane / SLICES) * UNIT + lane % SLICES * 16;
        const bool is_there = round + lane / SLICES < units && is_read(token);
        blocks = is_there ? p.block_tables[size_t(at.row) * table_width + (token >> p.block_size_log2)] : 0;
    };
    load_blocks(0);
    int loaded = 0, load_piece = 0;  // units, and pieces of the next one: keys, then values
    // Begins the copy of the next piece; a commit is made even where there is nothing to copy.
    const auto issue = [&](int slot) {
        if (loaded < units) {
            if (load_piece == 0 && loaded > 0 && loaded % (32 / SLICES) == 0) load_blocks(loaded);
#pragma unroll
            for (int i = 0; i < PIECE_SLICES; i++) {
                const int slice = load_piece * PIECE_SLICES % SLICES + i;
                const uint32_t block = __shfl_sync(0xffffffffu, blocks, loaded * SLICES % 32 + slice);
                const uint32_t token = unit_of(loaded) * UNIT + slice * 16;
                if (is_read(token)) {
                    const int before = int(at.window_start) - int(token), valid = int(at.context_len) - 1 - int(token);
                    const size_t plane = (size_t(block) * p.kv_heads + kv_head) * 2 + load_piece / (UNIT_PIECES / 2);
                    const T* numbers = p.cache + ((plane << p.block_size_log2) + (token & block_mask)) * D;
                    const uint32_t to = shared_address(ring + slot * PIECE + i * SLICE);
#pragma unroll
                    for (int j = lane; j < 16 * Rows::CHUNKS; j += 32) {
                        const int row = j / Rows::CHUNKS, chunk = j % Rows::CHUNKS;
                        const bool is_attended = row >= before && row < valid;
                        copy_async(to + Rows::at(row, chunk) * 16, numbers + (is_attended ? row * D + chunk * 8 : 0), is_attended ? 16 : 0);
                    }
                }
            }
            if (++load_piece == UNIT_PIECES) {
                load_piece = 0;
                loaded++;
            }
        }
        commit_copies();
    };
    for (int slot = 0; slot < PIECES; slot++) issue(slot);

    RawQueries<T, D> raw_queries{};
    RawToken<T, D> last_token{};
    const bool has_last = (all - 1) % takers == taker;
    const float* rope = p.rope + size_t(at.context_len - 1) * D;
    raw_queries.load_rope(rope);
    last_token.load_rope(rope);
    if (p.query_norm) {
        raw_queries.load_norm(p.query_norm);
        last_token.load_norm(p.key_norm);
    }
    const uint32_t slot_of_token = p.slots[at.token];
    grid_dependency_wait();

    uint32_t query[STEPS][1][2] = {};
    if (units > 0) {
        const T* row = p.qkv + size_t(at.token) * p.qkv_stride;
        const T* q = row + (kv_head * p.group + lane / 4) * D + lane % 4 * 2;
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            query[k][0][0] = lane / 4 < p.group ? *reinterpret_cast<const uint32_t*>(q + k * 16) : 0;
            query[k][0][1] = lane / 4 < p.group ? *reinterpret_cast<const uint32_t*>(q + k * 16 + 8) : 0;
        }
        if (has_last) last_token.load(row + (p.kv_heads * p.group + kv_head) * D, p.kv_heads * D);
        raw_queries.prepare(query, p.query_norm, p.eps);
        if (has_last) {
            last_token.prepare(p.key_norm, p.eps);
            const size_t plane = (size_t(slot_of_token >> p.block_size_log2) * p.kv_heads + kv_head) * 2;
            T* key = p.cache + ((plane << p.block_size_log2) + (slot_of_token & block_mask)) * D;
            if (slot_of_token != UINT32_MAX) last_token.store(key, key + (size_t(D) << p.block_size_log2));
        }
    }

    int slot = 0;
    bool is_first_piece = true;
    // The oldest piece, once it has come; begins the copy of another one in the place of the piece before.
    const auto next_piece = [&]() -> T* {
        if (!is_first_piece) {
            __syncwarp();
            issue(slot == 0 ? PIECES - 1 : slot - 1);
        }
        is_first_piece = false;
        wait_for_copies<PIECES - 1>();
        __syncwarp();
        T* const there = ring + slot * PIECE;
        slot = slot + 1 == PIECES ? 0 : slot + 1;
        return there;
    };

    // What this thread merges: every `32 * WARPS`th pair of neighbours of [group, width].
    constexpr int PAIRS = (8 * D / 2 / 2 + 32 * WARPS - 1) / (32 * WARPS);
    RunningPair merged[PAIRS];
#pragma unroll
    for (int i = 0; i < PAIRS; i++) merged[i] = {-INFINITY, 0.0f, {}};
    const auto merge = [&](int round) {
        const int count = min(takers, all - round * takers);
        const float* values = parts + round % 2 * takers * p.group * width;
        const float2* sums = part_sums + round % 2 * takers * p.group;
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            const int n = (threadIdx.x + i * 32 * WARPS) * 2;
            if (n < p.group * width) {
                const int head = n >> width_log2;
#pragma unroll 8
                for (int unit = 0; unit < count; unit++) {
                    merged[i].join(sums[unit * p.group + head], *reinterpret_cast<const float2*>(values + unit * p.group * width + n));
                }
            }
        }
    };

    for (int round = 0; round < rounds; round++) {
        UnitWeights<T, 1> weights;
        float of_unit[STEPS][1][4] = {};
        if (round < units) {
            // Of the keys of the unit, those from `before` to `valid` are attended to.
            const int first_key = unit_of(round) * UNIT, before = int(at.window_start) - first_key, valid = int(at.context_len) - first_key;
            const auto is_attended = [&](int slice) { return 16 * slice < valid && 16 * slice + 16 > before; };
            const auto has_last_key = [&](int slice) { return valid > 16 * slice && valid <= 16 * slice + 16; };
            T* piece = nullptr;
            float score[SLICES][1][4] = {};
#pragma unroll
            for (int j = 0; j < SLICES; j++) {
                if (j % PIECE_SLICES == 0) piece = next_piece();
                T* const keys = piece + j % PIECE_SLICES * SLICE;
                if (has_last_key(j)) last_token.put_key(keys, valid - 1 - 16 * j);
                if (is_attended(j)) add_scores<T, D, 1>(score[j], shared_address(keys), query);
            }
            weights.make(score, before, valid, p.scale_log2, 0.0f);
#pragma unroll
            for (int j = 0; j < SLICES; j++) {
                if (j % PIECE_SLICES == 0) piece = next_piece();
                T* const values = piece + j % PIECE_SLICES * SLICE;
                if (has_last_key(j)) last_token.put_value(values, valid - 1 - 16 * j);
                if (is_attended(j)) add_values<T, D, 1>(of_unit, shared_address(values), weights.weight[j]);
            }
        }
        // Who has passed this has merged the units of two rounds before, whose places are overwritten now.
        __syncwarp();
        cluster_wait();
        if (round > 0) merge(round - 1);
        if (round < units) {
            float* const values = parts + (round % 2 * takers + taker) * p.group * width;
            float2* const sums = part_sums + (round % 2 * takers + taker) * p.group;
#pragma unroll
            for (int k = 0; k < STEPS; k++) {
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int dim = k * 16 + half * 8;
                    float* to = in_cluster(values, dim >> width_log2) + (dim & (width - 1)) + lane / 4;
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        const int head = lane % 4 * 2 + h;
                        if (head < p.group) to[head * width] = of_unit[k][0][h + 2 * half];
                    }
                }
            }
            // The lanes of a head each tell one of the thread blocks.
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int head = lane % 4 * 2 + h;
                if (lane / 4 < int(ranks) && head < p.group) {
                    in_cluster(sums, lane / 4)[head] = make_float2(weights.top[0][h], weights.sum[0][h]);
                }
            }
        }
        __syncwarp();
        cluster_arrive_after_stores();
    }
    cluster_wait();
    merge(rounds - 1);
    T* const row_out = p.out + (size_t(at.token) * p.kv_heads + kv_head) * p.group * D + rank * width;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        const int n = (threadIdx.x + i * 32 * WARPS) * 2;
        if (n < p.group * width) {
            const int head = kv_head * p.group + (n >> width_log2);
            const float share = 1.0f / with_sink(merged[i].sum, merged[i].highest, p.sinks, head);
            T* to = row_out + (n >> width_log2) * D + (n & (width - 1));
            *reinterpret_cast<uint32_t*>(to) = narrow2<T>(merged[i].value.x * share, merged[i].value.y * share);
        }
    }
}

#define KERNEL(dim, dtype)                                                                                        \
    extern "C" __global__ void __launch_bounds__(32 * WARPS)                                                      \
        nvllm_k_attention_few_units_d##dim##_##dtype(const __grid_constant__ AttentionFewUnitsParams<dtype> p) { \
        attention_few_units<dtype, dim>(p);                                                                       \
    }
#define KERNELS(dim)  \
    KERNEL(dim, bf16) \
    KERNEL(dim, f16)

KERNELS(64)
KERNELS(128)

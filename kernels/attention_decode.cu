// Attention of rows that bring one new token. Contract: src/compute/ops/attention.rs. Reference: src/compute/cpu/attention.
// Plan: src/compute/cuda/attention/partition.rs.
//
// Memory-bound: reads each key and value that a row attends to once, 2 * kv_heads * head_dim * min(context, window) numbers per
// row. So the bytes in flight decide: two CTAs per SM, each warp with its own ring of copies under way, no barrier in the main loop.
//
// Stream-K: the work is a line of tiles, row after row, KV head after KV head, `16 * WARPS` tokens per tile, from the tile that the
// row's window begins in. The plan gives each CTA an equal part of the line. Each warp takes 16 tokens of every tile through the
// tensor cores, transposed: scores [16 tokens, 8 heads] = K Q^T, then out [head_dim, 8 heads] += V^T P^T, so that a group of up to
// 8 query heads fills one fragment. Heads of more than 128 numbers have a warp for each 128 of them: these warps add up their shares of the scores
// through shared memory, and each has its numbers of the output. Where a (row, KV head) is split over several CTAs, each leaves a partial result, and the CTA
// that comes last adds them up in the order of the CTAs: the sum does not depend on which one that is. A CTA that ends in a (row, KV head) of
// which the next one has the rest looks for it before its own last tile. It is there nearly always, since each CTA begins with what is left
// of the one before, and then neither stores, counts nor waits.
//
// Where several rows share keys, `attention_shared.cu` has attended to them for all of these rows. In the plan such a row begins behind
// them, and whoever writes its result adds its parts of them, in their order, and then its own. These kernels are SHARED; the others know
// nothing of it.
//
// RAW kernels serve passes whose rows all bring one token: q/k norm and RoPE are fused. Each warp then normalizes and rotates the queries
// in its registers. The warp that attends to a row's last key and value does so with the key, stores both in the cache, and puts them among
// those that it copied from there: of these, none is younger than the pass.
//
// While the rest of a layer is computed, memory has little to do. So a CTA that is done asks the second-level cache for what the same CTA reads
// first in the next layer. Where that has another window, it is asked for in vain.
//
// Keys and values in int8 are half the bytes. A fragment is loaded as bytes and widened in registers, exactly. The numbers of a head
// stand in the order in which the bytes come: lane l has four consecutive numbers of a key, and queries are loaded to match; of a value
// it has an even and an odd one, so that rows l / 4 and l / 4 + 8 of the output are neighbours. The scale of a key multiplies its scores,
// that of a value its weights, after they were summed.
#include "common/arrivals.cuh"
#include "common/dependent_launch.cuh"
#include "common/kv_int8.cuh"
#include "common/left_parts.cuh"
#include "common/plan.cuh"
#include "common/raw_heads.cuh"
#include "common/tensor_core.cuh"

#include <type_traits>

// The partial results that a row has of keys that it shares.
struct SharedParts {
    uint32_t first;
    uint32_t count;
};

template <class T>
struct AttentionDecodeParams {
    T* out;                         // [tokens, heads * head_dim]
    const T* qkv;                   // [tokens, qkv_stride]
    T* cache;                       // one layer: [block][kv_head][K|V][block_size][head_dim], or the bytes of an int8 cache
    float* partials;                // [CTAs, 2, group, head_dim]
    float2* partial_sums;           // [CTAs, 2, group]: maximum and sum of the softmax
    uint32_t* arrived;              // [CTAs], zero between launches: of the split that begins in that CTA
    const DecodeRow* rows;          // [rows + 1], the last one an end mark
    const DecodeCta* ctas;          // [CTAs]
    const uint32_t* counts;         // [3]: CTAs in use, rows, table_width
    const uint32_t* block_tables;   // [batch rows, table_width]
    int qkv_stride;
    int kv_heads;
    int group;           // query heads of a KV head, at most 8 * NT
    int block_size_log2; // at least 4
    int stages;          // copies of a tile in shared memory, 2 to 6
    float scale_log2;    // of the scores, or with a softcap of their tanh: scale * log2(e), or softcap * log2(e)
    float tanh_scale;    // scale / softcap; 0 without a softcap
    const SharedParts* shared_parts;  // [rows]; this and what follows where rows share keys
    const float* shared_partials;     // [parts, kv_heads, group, head_dim]
    const float2* shared_sums;        // [parts, kv_heads, group]: maximum and sum of the softmax
    long long to_next_layer;          // bytes from a number of this layer to that of the next; 0 in the last one
    const float* query_norm;          // [head_dim], null where heads are not normalized; this and what follows for raw heads
    const float* key_norm;            // [head_dim], likewise
    const float* rope;                // [positions, head_dim]: cosines, then sines
    const uint32_t* slots;            // [tokens]; UINT32_MAX stores nothing
    float eps;
    const float* sinks;  // [kv_heads * group], or null
    int head_dim;        // read by kernels for a class of heads alone: a multiple of 16
};

// Tiles that a CTA asks for ahead, if it has as many as the second number says: else the products lose more than attention gains.
constexpr int TILES_AHEAD = 2, AHEAD_FROM = 6;

// How queries come, and the last key and value of a row.
enum class Heads {
    PREPARED,  // normalized and rotated, keys and values in the cache
    RAW,       // as the projections made them
};

// Warps that share the numbers of a head.
__host__ __device__ constexpr int parts_of(int head_dim) {
    return head_dim > 128 ? head_dim / 128 : 1;
}

// Each of WARPS groups of PARTS warps has its own tokens of a tile. Grid [CTAs], block [32 * WARPS * PARTS]. Shared memory has stages * WARPS * PARTS *
// STAGE numbers. Behind them lies the larger of WARPS * group * (head_dim + 2) * 4 bytes and WARPS * 2 * PARTS * NT * 512.
// IS_CLASS: heads have p.head_dim numbers, up to D; what lies beyond is neither copied nor multiplied.
template <class T, int D, int NT, int WARPS, Kv KV, bool IS_CLASS = false, bool SHARED = false, Heads HEADS = Heads::PREPARED>
__device__ void attention_decode(const AttentionDecodeParams<T>& p) {
    constexpr bool IS_INT8 = KV == Kv::INT8, IS_RAW = HEADS == Heads::RAW;
    static_assert(!IS_RAW || (NT == 1 && !IS_INT8 && !SHARED));
    static_assert(!IS_CLASS || (!IS_RAW && !SHARED));
    constexpr int PARTS = parts_of(D), PART = D / PARTS, THREADS = 32 * WARPS * PARTS;
    static_assert(PARTS == 1 || (!IS_RAW && !SHARED));
    using Rows = Tile<PART, IS_INT8 ? 1 : 2>;
    using Number = std::conditional_t<IS_INT8, int8_t, T>;
    constexpr int CHUNK = 16 / sizeof(Number);     // numbers
    constexpr int SLICE = 16 * Rows::STRIDE * CHUNK;  // numbers of 16 keys, or 16 values
    // Numbers of keys and values, and the scales of both.
    constexpr int STAGE = 2 * SLICE + (IS_INT8 ? 2 * 16 * 2 : 0);
    constexpr int TILE_TOKENS = 16 * WARPS;
    constexpr int STEPS = PART / 16;
    const int dim = IS_CLASS ? p.head_dim : D;
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ bool is_last;
    __shared__ const char* first_keys[WARPS][TILES_AHEAD];  // of a warp's first slices

    // The plan and all keys but those of a row's last token are older than the kernels of this pass: their loads need not wait.
    launch_dependents();
    const uint32_t used = p.counts[0], table_width = p.counts[2];
    const unsigned long long all = (unsigned long long)p.rows[p.counts[1]].tiles_before * p.kv_heads;  // tiles on the line
    const DecodeCta work = p.ctas[blockIdx.x];
    if (blockIdx.x >= used) {
        if (used == 0) grid_dependency_wait();  // else those at work wait
        return;
    }
    // Of the next CTA: it may have the rest of the last (row, KV head) of this one.
    constexpr bool TAKES_OVER = !SHARED && !IS_INT8 && NT == 1;
    const uint32_t next_tiles = TAKES_OVER && blockIdx.x + 1 < used ? p.ctas[blockIdx.x + 1].tiles : 0;
    const size_t from_next = size_t(blockIdx.x + 1) * 2 * p.group;

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 / PARTS, own_part = threadIdx.x / 32 % PARTS;
    const int matrix = lane / 8;
    // Numbers of a head before those of this warp, and these.
    const int before_part = own_part * PART, own = IS_CLASS ? min(dim - before_part, PART) : PART, steps = own / 16;
    Number* ring = reinterpret_cast<Number*>(shared) + threadIdx.x / 32 * p.stages * STAGE;
    float* merge = reinterpret_cast<float*>(shared + size_t(WARPS) * PARTS * p.stages * STAGE * sizeof(Number));  // [WARPS, group, dim]
    // Before the merge, the shares of scores: [WARPS, 2 turns, PARTS, NT, lanes].
    float4* const shares = reinterpret_cast<float4*>(merge) + warp * 2 * PARTS * NT * 32;
    const auto wait_for_parts = [&] {
        if constexpr (PARTS > 1) asm volatile("bar.sync %0, %1;" ::"r"(warp + 1), "n"(32 * PARTS) : "memory");
    };
    float2* merge_sums = reinterpret_cast<float2*>(merge + WARPS * p.group * dim);                            // [WARPS, group]

    TileCursor load{work.entry, work.kv_head, work.tile, work.tiles};
    load.set_row({work.token, work.row, work.context_len, work.window_start, work.tiles_before}, TILE_TOKENS);
    TileCursor cursor = load;
    const uint32_t block_mask = (1u << p.block_size_log2) - 1;

    auto block_of = [&](const TileCursor& c) -> uint32_t {
        const uint32_t token = c.tile * TILE_TOKENS + warp * 16;
        if (c.left == 0 || token >= c.at.context_len || token + 16 <= c.at.window_start) return 0;
        return p.block_tables[size_t(c.at.row) * table_width + (token >> p.block_size_log2)];
    };
    uint32_t block = block_of(load);
    bool is_waiting = true;
    const bool asks_ahead = p.to_next_layer != 0 && work.tiles >= AHEAD_FROM;
    int unknown = asks_ahead ? TILES_AHEAD : 0;  // of `first_keys`
    // Keys and values of a layer may be several times the second-level cache, where activations are between two kernels.
    const uint64_t policy = evict_first_policy();

    // Begins the copy of this warp's slice of the next tile; a commit is made even where there is nothing to copy.
    auto issue = [&](int stage) {
        if (load.left > 0) {
            const Number* keys = nullptr;
            const uint32_t token = load.tile * TILE_TOKENS + warp * 16;
            if (token < load.at.context_len && token + 16 > load.at.window_start) {
                const int valid = min(16u, load.at.context_len - (IS_RAW ? 1 : 0) - token);
                const int before = int(load.at.window_start) - int(token);
                if (!IS_RAW && is_waiting && token + 16 >= load.at.context_len) {
                    grid_dependency_wait();
                    is_waiting = false;
                }
                const size_t head = size_t(block) * p.kv_heads + load.kv_head;
                const Number* of_head = reinterpret_cast<const Number*>(p.cache);
                if constexpr (IS_INT8) {
                    of_head += head * int8_head_bytes(p.block_size_log2, dim);
                    keys = of_head + (token & block_mask) * dim;
                } else {
                    keys = of_head + (((head * 2) << p.block_size_log2) + (token & block_mask)) * dim;
                }
                const Number* values = keys + (size_t(dim) << p.block_size_log2);
                const uint32_t to = shared_address(ring + stage * STAGE);
#pragma unroll
                for (int i = lane; i < 16 * Rows::CHUNKS; i += 32) {
                    const int row = i / Rows::CHUNKS, chunk = i % Rows::CHUNKS;
                    if (IS_CLASS && chunk * CHUNK >= own) continue;
                    const bool is_read = row >= before && row < valid;
                    const int bytes = is_read ? 16 : 0;
                    const int from = is_read ? row * dim + before_part + chunk * CHUNK : 0;
                    const uint32_t at = to + Rows::at(row, chunk) * 16;
                    copy_async(at, keys + from, bytes, policy);
                    copy_async(at + SLICE * sizeof(Number), values + from, bytes, policy);
                }
                // Those of tokens that are not attended to come along, and are masked.
                if (IS_INT8 && lane < 4) {
                    const Number* scales = of_head + (size_t(2 * dim) << p.block_size_log2) + (token & block_mask) * 2;
                    const Number* from = scales + (lane >= 2 ? size_t(2) << p.block_size_log2 : 0) + lane % 2 * 16;
                    copy_async(to + 2 * SLICE + lane * 16, from);
                }
            }
            if (unknown > 0) {
                unknown--;
                if (lane == 0 && own_part == 0) first_keys[warp][unknown] = reinterpret_cast<const char*>(keys);
            }
            load.left--;
            if (++load.tile == load.end_tile) load.next_head(p.rows, p.kv_heads, TILE_TOKENS);
            block = block_of(load);
        }
        commit_copies();
    };
    for (int stage = 0; stage < p.stages - 1; stage++) issue(stage);
    // With the norms, and the rope of the row at hand.
    RawQueries<T, IS_RAW ? D : 16> raw_queries{};
    RawToken<T, IS_RAW ? D : 16> last{};
    const auto load_rope = [&] {
        const float* rope = p.rope + size_t(cursor.at.context_len - 1) * D;
        raw_queries.load_rope(rope);
        last.load_rope(rope);
    };
    if constexpr (IS_RAW) {
        load_rope();
        if (p.query_norm) {
            raw_queries.load_norm(p.query_norm);
            last.load_norm(p.key_norm);
        }
    }
    if (is_waiting) grid_dependency_wait();
    is_waiting = false;

    // Sums the warps' shares of the scores of a tile, in one order. Shares of the next tile lie elsewhere, so that one barrier is enough.
    int turn = 0;
    const auto add_shares = [&](float (&score)[NT][4]) {
        if constexpr (PARTS > 1) {
            float4* const of_turn = shares + turn * PARTS * NT * 32 + lane;
#pragma unroll
            for (int n = 0; n < NT; n++) of_turn[(own_part * NT + n) * 32] = make_float4(score[n][0], score[n][1], score[n][2], score[n][3]);
            wait_for_parts();
#pragma unroll
            for (int n = 0; n < NT; n++) {
                float4 sum = of_turn[n * 32];
#pragma unroll
                for (int other = 1; other < PARTS; other++) {
                    const float4 share = of_turn[(other * NT + n) * 32];
                    sum = make_float4(sum.x + share.x, sum.y + share.y, sum.z + share.z, sum.w + share.w);
                }
                score[n][0] = sum.x, score[n][1] = sum.y, score[n][2] = sum.z, score[n][3] = sum.w;
            }
            turn ^= 1;
        }
    };

    int stage = 0;
    bool is_first_segment = true;
    Split<T> ended{}, begun{};  // what ends in this CTA, and what begins in it
    while (cursor.left > 0) {
        // One (row, KV head), or the part of it that is this CTA's.
        const uint32_t first_tile = cursor.tile;
        const uint32_t last_tile = min(cursor.end_tile, first_tile + cursor.left);
        uint32_t query[STEPS][NT][2];
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const int head = n * 8 + lane / 4;
            const T* q = p.qkv + size_t(cursor.at.token) * p.qkv_stride + (cursor.kv_head * p.group + head) * dim +
                         before_part + lane % 4 * (IS_INT8 ? 4 : 2);
            constexpr int SECOND = IS_INT8 ? 2 : 8;
#pragma unroll
            for (int k = 0; k < STEPS; k++) {
                const bool is_there = head < p.group && k < steps;
                query[k][n][0] = is_there ? *reinterpret_cast<const uint32_t*>(q + k * 16) : 0;
                query[k][n][1] = is_there ? *reinterpret_cast<const uint32_t*>(q + k * 16 + SECOND) : 0;
            }
        }
        if constexpr (IS_RAW) {
            const uint32_t slot = p.slots[cursor.at.token], last_token = cursor.at.context_len - 1;
            const bool has_last = last_tile == cursor.end_tile && last_token % TILE_TOKENS / 16 == warp;
            if (has_last) {
                last.load(p.qkv + size_t(cursor.at.token) * p.qkv_stride + (p.kv_heads * p.group + cursor.kv_head) * D, p.kv_heads * D);
            }
            if (!is_first_segment && cursor.kv_head == 0) load_rope();
            raw_queries.prepare(query, p.query_norm, p.eps);
            if (has_last) {
                last.prepare(p.key_norm, p.eps);
                const size_t head = (size_t(slot >> p.block_size_log2) * p.kv_heads + cursor.kv_head) * 2;
                T* key = p.cache + ((head << p.block_size_log2) + (slot & block_mask)) * D;
                if (slot != UINT32_MAX) last.store(key, key + (size_t(D) << p.block_size_log2));
            }
        }
        // Parts of shared keys, for the first numbers that this thread will write. Int8 leaves no registers for them.
        constexpr uint32_t AHEAD = SHARED && !IS_INT8 && NT == 1 ? 4 : 0;
        LeftPart ahead[AHEAD + 1];
        SharedParts parts{};
        if constexpr (SHARED) {
            parts = p.shared_parts[cursor.entry];
#pragma unroll
            for (uint32_t part = 0; part < AHEAD; part++) {
                if (part < parts.count && threadIdx.x * 4 < p.group * D) {
                    const size_t from = (size_t(parts.first + part) * p.kv_heads + cursor.kv_head) * p.group;
                    ahead[part].load(p.shared_partials + from * D + threadIdx.x * 4, p.shared_sums + from + threadIdx.x * 4 / D);
                }
            }
        }
        float out[STEPS][NT][4] = {};
        float highest[NT][2], sum[NT][2] = {};
#pragma unroll
        for (int n = 0; n < NT; n++) highest[n][0] = highest[n][1] = -INFINITY;

        // The rest of this (row, KV head), if the next CTA has all of it and has left it by now. Where nothing is left the difference wraps.
        const bool has_rest = first_tile == cursor.first_tile && cursor.end_tile - last_tile - 1 < next_tiles;
        bool is_left = false;
        LeftPart rest;
        for (uint32_t tile = first_tile; tile < last_tile; tile++) {
            if (TAKES_OVER && has_rest && tile + 1 == last_tile) {
                random_delay();
                is_left = load_acquire(p.arrived + blockIdx.x) == 1;
                const int i = threadIdx.x * 4;
                if (is_left && i < p.group * dim) rest.load(p.partials + from_next * dim + i, p.partial_sums + from_next + i / dim);
            }
            wait_for_oldest_copy(p.stages);
            __syncwarp();
            issue(stage == 0 ? p.stages - 1 : stage - 1);
            const int token = tile * TILE_TOKENS + warp * 16;
            // Of the 16 keys of this warp, those from `before` to `valid` are attended to.
            const int before = int(cursor.at.window_start) - token, valid = int(cursor.at.context_len) - token;
            if (valid > 0 && before < 16) {
                if constexpr (IS_RAW) {
                    if (valid <= 16) last.store_shared(ring + stage * STAGE, ring + stage * STAGE + SLICE, valid - 1);
                }
                const uint32_t keys = shared_address(ring + stage * STAGE);
                const uint32_t values = keys + SLICE * sizeof(Number);
                float score[NT][4] = {};
                // Of the values of rows lane / 4 and lane / 4 + 8.
                float value_scale[2];
                if constexpr (IS_INT8) {
#pragma unroll
                    for (int pair = 0; pair < STEPS; pair += 2) {
                        if (pair >= steps) break;
                        uint32_t bytes[4];  // [step of the pair][half of the tokens]
                        const int chunk = min(pair + (matrix >> 1), steps - 1);
                        load_matrices(bytes, keys + Rows::at((matrix & 1) * 8 + lane % 8, chunk) * 16);
#pragma unroll
                        for (int step = 0; step < 2; step++) {
                            if (pair + step >= steps) break;
                            const uint32_t first = bytes[2 * step], second = bytes[2 * step + 1];
                            const uint32_t key[4] = {widen_bytes<T, 0, 1>(first), widen_bytes<T, 0, 1>(second),
                                                     widen_bytes<T, 2, 3>(first), widen_bytes<T, 2, 3>(second)};
#pragma unroll
                            for (int n = 0; n < NT; n++) {
                                mma<T>(score[n], key, query[pair + step][n][0], query[pair + step][n][1]);
                            }
                        }
                    }
                    add_shares(score);
                    const bf16* scales = reinterpret_cast<const bf16*>(ring + stage * STAGE + 2 * SLICE);  // [K|V][16]
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        const int row = lane / 4 + 8 * h;
                        const float key_scale = widen(scales[row]);
                        // The weight of a token that is not attended to is 0, its scale any number or none.
                        value_scale[h] = row < valid && row >= before ? widen(scales[16 + row]) : 0.0f;
#pragma unroll
                        for (int n = 0; n < NT; n++) {
                            score[n][2 * h] *= key_scale;
                            score[n][2 * h + 1] *= key_scale;
                        }
                    }
                } else {
#pragma unroll
                    for (int k = 0; k < STEPS; k++) {
                        if (k >= steps) break;
                        uint32_t key[4];
                        load_matrices(key, keys + Rows::at((matrix & 1) * 8 + lane % 8, 2 * k + (matrix >> 1)) * 16);
#pragma unroll
                        for (int n = 0; n < NT; n++) mma<T>(score[n], key, query[k][n][0], query[k][n][1]);
                    }
                    add_shares(score);
                }
                if (p.tanh_scale != 0.0f) {
#pragma unroll
                    for (int n = 0; n < NT; n++) {
#pragma unroll
                        for (int i = 0; i < 4; i++) score[n][i] = tanh_of(score[n][i] * p.tanh_scale);
                    }
                }
                uint32_t weight[NT][2];
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    if (lane / 4 >= valid || lane / 4 < before) score[n][0] = score[n][1] = -INFINITY;
                    if (lane / 4 + 8 >= valid || lane / 4 + 8 < before) score[n][2] = score[n][3] = -INFINITY;
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        float top = fmaxf(score[n][h], score[n][h + 2]);
#pragma unroll
                        for (int lanes = 4; lanes < 32; lanes *= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, lanes));
                        top = fmaxf(highest[n][h], top * p.scale_log2);
                        const float keep = power_of_two(highest[n][h] - top);
                        highest[n][h] = top;
                        score[n][h] = power_of_two(score[n][h] * p.scale_log2 - top);
                        score[n][h + 2] = power_of_two(score[n][h + 2] * p.scale_log2 - top);
                        sum[n][h] = sum[n][h] * keep + score[n][h] + score[n][h + 2];
#pragma unroll
                        for (int k = 0; k < STEPS; k++) {
                            out[k][n][h] *= keep;
                            out[k][n][h + 2] *= keep;
                        }
                    }
                    if constexpr (IS_INT8) {
#pragma unroll
                        for (int i = 0; i < 4; i++) score[n][i] *= value_scale[i / 2];
                    }
                    weight[n][0] = transpose_matrix(narrow2<T>(score[n][0], score[n][1]));
                    weight[n][1] = transpose_matrix(narrow2<T>(score[n][2], score[n][3]));
                }
                if constexpr (IS_INT8) {
#pragma unroll
                    for (int pair = 0; pair < STEPS; pair += 2) {
                        if (pair >= steps) break;
                        uint32_t bytes[4];  // [step of the pair][half of the tokens]: an even and an odd number of two tokens
                        const int chunk = min(pair + (matrix >> 1), steps - 1);
                        load_matrices_transposed(bytes, values + Rows::at((matrix & 1) * 8 + lane % 8, chunk) * 16);
#pragma unroll
                        for (int step = 0; step < 2; step++) {
                            if (pair + step >= steps) break;
                            const uint32_t first = bytes[2 * step], second = bytes[2 * step + 1];
                            const uint32_t value[4] = {widen_bytes<T, 0, 2>(first), widen_bytes<T, 1, 3>(first),
                                                       widen_bytes<T, 0, 2>(second), widen_bytes<T, 1, 3>(second)};
#pragma unroll
                            for (int n = 0; n < NT; n++) mma<T>(out[pair + step][n], value, weight[n][0], weight[n][1]);
                        }
                    }
                } else {
#pragma unroll
                    for (int k = 0; k < STEPS; k++) {
                        if (k >= steps) break;
                        uint32_t value[4];
                        load_matrices_transposed(value, values + Rows::at((matrix >> 1) * 8 + lane % 8, 2 * k + (matrix & 1)) * 16);
#pragma unroll
                        for (int n = 0; n < NT; n++) mma<T>(out[k][n], value, weight[n][0], weight[n][1]);
                    }
                }
            }
            stage = stage + 1 == p.stages ? 0 : stage + 1;
        }

        // The warps' parts, through shared memory, where shares of scores of all of them were.
        if (PARTS > 1) __syncthreads();
#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int head = n * 8 + lane % 4 * 2 + h;
#pragma unroll
                for (int lanes = 4; lanes < 32; lanes *= 2) sum[n][h] += __shfl_xor_sync(0xffffffffu, sum[n][h], lanes);
                if (head >= p.group) continue;
                float* to = merge + (warp * p.group + head) * dim + before_part + lane / 4 * (IS_INT8 ? 2 : 1);
                constexpr int SECOND = IS_INT8 ? 1 : 8;
#pragma unroll
                for (int k = 0; k < STEPS; k++) {
                    if (k >= steps) break;
                    to[k * 16] = out[k][n][h];
                    to[k * 16 + SECOND] = out[k][n][h + 2];
                }
                if (lane < 4 && own_part == 0) merge_sums[warp * p.group + head] = make_float2(highest[n][h], sum[n][h]);
            }
        }
        const bool takes_over = __syncthreads_and(is_left);
        const bool is_whole = first_tile == cursor.first_tile && last_tile == cursor.end_tile;
        T* row_out = p.out + (size_t(cursor.at.token) * p.kv_heads + cursor.kv_head) * p.group * dim;
        const int first_head = cursor.kv_head * p.group;
        const size_t place = (size_t(blockIdx.x) * 2 + (is_first_segment ? 0 : 1)) * p.group;
        for (int i = threadIdx.x * 4; i < p.group * dim; i += 4 * THREADS) {
            const int head = i / dim;
            float top = -INFINITY;
#pragma unroll
            for (int w = 0; w < WARPS; w++) top = fmaxf(top, merge_sums[w * p.group + head].x);
            float total = 0.0f;
            float4 value{};
#pragma unroll
            for (int w = 0; w < WARPS; w++) {
                const float2 part = merge_sums[w * p.group + head];
                const float share = power_of_two(part.x - top);
                total += part.y * share;
                add_share(value, *reinterpret_cast<const float4*>(merge + w * p.group * dim + i), share);
            }
            if (SHARED && is_whole) {
                RunningSum all{-INFINITY, 0.0f, {}};
                uint32_t first = 0;
                if (i < 4 * THREADS) {
                    first = AHEAD;
#pragma unroll
                    for (uint32_t part = 0; part < AHEAD; part++) {
                        if (part < parts.count) all.add(ahead[part].sum, ahead[part].value);
                    }
                }
#pragma unroll 4
                for (uint32_t part = first; part < parts.count; part++) {
                    const size_t from = (size_t(parts.first + part) * p.kv_heads + cursor.kv_head) * p.group;
                    all.add(__ldcg(p.shared_sums + from + head), __ldcg(reinterpret_cast<const float4*>(p.shared_partials + from * D + i)));
                }
                all.add(make_float2(top, total), value);
                store_shares(row_out + i, all.value, with_sink(all.total, all.top, p.sinks, first_head + head));
            } else if (takes_over) {
                // As `finish` adds them up.
                if (i >= 4 * THREADS) rest.load(p.partials + from_next * dim + i, p.partial_sums + from_next + head);
                RunningSum all{top, total, value};
                all.add(rest.sum, rest.value);
                store_shares(row_out + i, all.value, with_sink(all.total, all.top, p.sinks, first_head + head));
            } else if (is_whole) {
                store_shares(row_out + i, value, with_sink(total, top, p.sinks, first_head + head));
            } else {
                __stcg(reinterpret_cast<float4*>(p.partials + place * dim + i), value);
                if (i % dim == 0) __stcg(p.partial_sums + place + head, make_float2(top, total));
            }
        }
        __syncthreads();
        if (takes_over) {
            if (threadIdx.x == 0) p.arrived[blockIdx.x] = 0;
        } else if (!is_whole) {
            // CTA c begins at tile c * all / used of the line.
            const uint32_t tiles = cursor.end_tile - cursor.first_tile;
            const unsigned long long begin =
                (unsigned long long)cursor.at.tiles_before * p.kv_heads + (unsigned long long)cursor.kv_head * tiles;
            const uint32_t first = ((begin + 1) * used - 1) / all;
            const uint32_t last = ((begin + tiles) * used - 1) / all;
            Split<T> split{row_out, begin, first, last, 0, cursor.entry, cursor.kv_head, true};
            if (threadIdx.x == 0) {
                // The other warps go on meanwhile; whether this was the last arrival is asked at the end.
                random_delay();
                __threadfence();
                split.arrived_before = atomicAdd(p.arrived + first, 1);
            }
            if (is_first_segment) {
                ended = split;
            } else {
                begun = split;
            }
        }

        cursor.left -= last_tile - first_tile;
        is_first_segment = false;
        cursor.next_head(p.rows, p.kv_heads, TILE_TOKENS);
    }
    if (asks_ahead && own_part == 0 && lane < 2 * TILES_AHEAD) {
        const char* keys = first_keys[warp][lane / 2];
        const size_t of_values = lane % 2 ? sizeof(Number) * dim << p.block_size_log2 : 0;
        if (keys) ask_ahead(keys + p.to_next_layer + of_values, 16 * dim * sizeof(Number));
    }

    // Of all that begins in one CTA, only what reaches beyond it is split: one count per CTA is enough.
    auto finish = [&](const Split<T>& split) {
        if (!split.exists) return;
        if (threadIdx.x == 0) {
            is_last = split.arrived_before == split.last - split.first;
            if (is_last) {
                // Behind the count that was read, and before the other threads read what it counts.
                __threadfence();
                p.arrived[split.first] = 0;
            }
        }
        __syncthreads();
        if (is_last) {
            const bool first_is_second_segment = split.first * all / used < split.begin;
            for (int i = threadIdx.x * 4; i < p.group * dim; i += 4 * THREADS) {
                const int head = i / dim;
                float top = -INFINITY, total = 0.0f;
                float4 value{};
                if constexpr (SHARED) {
                    const SharedParts parts = p.shared_parts[split.entry];
                    RunningSum all{top, total, value};
#pragma unroll 4
                    for (uint32_t part = 0; part < parts.count; part++) {
                        const size_t from = (size_t(parts.first + part) * p.kv_heads + split.kv_head) * p.group;
                        all.add(__ldcg(p.shared_sums + from + head), __ldcg(reinterpret_cast<const float4*>(p.shared_partials + from * D + i)));
                    }
                    top = all.top;
                    total = all.total;
                    value = all.value;
                }
#pragma unroll 8
                for (uint32_t c = split.first; c <= split.last; c++) {
                    const size_t from = (size_t(c) * 2 + (c == split.first && first_is_second_segment ? 1 : 0)) * p.group;
                    const float2 part = __ldcg(p.partial_sums + from + head);
                    const float4 there = __ldcg(reinterpret_cast<const float4*>(p.partials + from * dim + i));
                    const float higher = fmaxf(top, part.x);
                    const float keep = power_of_two(top - higher), share = power_of_two(part.x - higher);
                    top = higher;
                    total = total * keep + part.y * share;
                    value = make_float4(value.x * keep, value.y * keep, value.z * keep, value.w * keep);
                    add_share(value, there, share);
                }
                store_shares(split.out + i, value, with_sink(total, top, p.sinks, split.kv_head * p.group + head));
            }
        }
        __syncthreads();
    };
    finish(ended);
    finish(begun);
}

// An int8 cache asks for more warps on a multiprocessor, because its numbers are widened between loads that wait for each other.
#define KERNEL(name, dim, is_class, is_shared, group, tiles, warps, int8_ctas, dtype)                                \
    extern "C" __global__ void __launch_bounds__(32 * warps * parts_of(dim))                                                         \
        nvllm_k_attention_decode_##name##dim##_g##group##_##dtype(const __grid_constant__ AttentionDecodeParams<dtype> p) { \
        attention_decode<dtype, dim, tiles, warps, Kv::PLAIN, is_class, is_shared>(p);                               \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(32 * warps * parts_of(dim), int8_ctas)                                              \
        nvllm_k_attention_decode_##name##dim##_g##group##_##dtype##_int8(                                            \
            const __grid_constant__ AttentionDecodeParams<dtype> p) {                                                \
        attention_decode<dtype, dim, tiles, warps, Kv::INT8, is_class, is_shared>(p);                                \
    }
#define KERNELS(name, dim, is_class, is_shared, warps)            \
    KERNEL(name, dim, is_class, is_shared, 8, 1, warps, 4, bf16)  \
    KERNEL(name, dim, is_class, is_shared, 8, 1, warps, 4, f16)   \
    KERNEL(name, dim, is_class, is_shared, 16, 2, warps, 2, bf16) \
    KERNEL(name, dim, is_class, is_shared, 16, 2, warps, 2, f16)

KERNELS(d, 64, false, false, 4)
KERNELS(d, 128, false, false, 4)
KERNELS(d, 256, false, false, 2)
KERNELS(d, 512, false, false, 1)
// Of up to as many numbers: a multiple of 16.
KERNELS(to, 128, true, false, 4)
KERNELS(to, 256, true, false, 2)
// The head dimensions of attention_shared.cu.
KERNELS(shared_d, 64, false, true, 4)
KERNELS(shared_d, 128, false, true, 4)

#define RAW_KERNEL(dim, dtype)                                                                                             \
    extern "C" __global__ void __launch_bounds__(128)                                                                      \
        nvllm_k_attention_decode_raw_d##dim##_##dtype(const __grid_constant__ AttentionDecodeParams<dtype> p) {            \
        attention_decode<dtype, dim, 1, 4, Kv::PLAIN, false, false, Heads::RAW>(p);                                               \
    }

RAW_KERNEL(64, bf16)
RAW_KERNEL(64, f16)
RAW_KERNEL(128, bf16)
RAW_KERNEL(128, f16)

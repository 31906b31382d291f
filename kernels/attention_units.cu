// Batch-invariant attention of rows that bring one new token, on compute capability 9.0. Contract: src/ops/attention.rs. Reference:
// src/backend/cpu/attention. Plan: src/backend/cuda/plan.rs. Launch: src/backend/cuda/attention_units.rs.
//
// Keys come in units of 64 that begin at multiples of 64. A unit has a maximum, a sum and an output of its own, and the units that a query
// attends to are merged in the order of their positions: what a query gets depends on it and on the keys before it alone.
// `attention_hopper.cu` computes the same numbers for rows that bring several tokens, and `attention_few_units.cu` for few rows. A product of tensor
// cores has the same bits in all: a chain of products of 16 in the order of k, into which a weight of 0 adds nothing.
//
// Memory-bound: reads each key and value once. Each warp is a worker of its own: the plan gives it an equal part of the line of units, row
// after row, KV head after KV head. Keys, or values, of some tokens are a piece of a ring that the warp keeps full. A (row, KV head)
// that is split over several workers leaves its units in memory, those of the first worker merged, and the worker that ends last merges
// them. Where the line is longer than that memory, nothing is split: a worker takes the (row, KV head)s that begin in its part.
//
// Scores are transposed, [16 tokens, 8 heads] = K Q^T, and so is the output, [head_dim, 8 heads] += V^T P^T.
#include "common/dependent_launch.cuh"
#include "common/plan.cuh"
#include "common/units.cuh"

template <class T>
struct AttentionUnitsParams {
    T* out;                        // [tokens, heads * head_dim]
    const T* qkv;                  // [tokens, qkv_stride]
    const T* cache;                // one layer: [block][kv_head][K|V][block_size][head_dim]
    float* outputs;                // [units of the line, group, head_dim], of those that are split
    float2* sums;                  // [units of the line, group]: maximum and sum of the softmax
    uint32_t* arrived;             // [workers], zero between launches: of the split that begins in that worker
    const DecodeRow* rows;         // [rows + 1], the last one an end mark
    const DecodeCta* workers;      // [workers]
    const uint32_t* counts;        // [3]: workers in use, rows, table_width
    const uint32_t* block_tables;  // [batch rows, table_width]
    int qkv_stride;
    int kv_heads;
    int group;            // query heads of a KV head, at most 8 * NT
    int block_size_log2;  // at least 4
    float scale_log2;     // of the scores, or with a softcap of their tanh: scale * log2(e), or softcap * log2(e)
    float tanh_scale;     // scale / softcap; 0 without a softcap
    int capacity;         // units times query heads that `outputs` and `sums` hold
};

constexpr int WARPS = 4;
// Slices of 16 keys, or of 16 values, in a piece of the ring.
constexpr int PIECE_SLICES = 2;
// Copies that are under way or waited for, per warp: two thread blocks share a multiprocessor.
constexpr int RING_BYTES = 28 * 1024;

// A place on the line of units.
struct Cursor {
    uint32_t entry, kv_head, unit, left;
    DecodeRow at;
    uint32_t first_unit, end_unit;  // of the row at hand

    __device__ void set_row(const DecodeRow& row) {
        at = row;
        first_unit = row.window_start / UNIT;
        end_unit = (row.context_len + UNIT - 1) / UNIT;
    }

    // To the first unit of the next KV head, or of the next row.
    __device__ void next_head(const DecodeRow* rows, int kv_heads) {
        if (++kv_head == kv_heads) {
            kv_head = 0;
            entry++;
            if (left > 0) set_row(rows[entry]);
        }
        unit = first_unit;
    }

    // From the first (row, KV head) on that begins in this part, to the end of the last one.
    __device__ void take_whole_heads(const DecodeRow* rows, int kv_heads) {
        if (unit != first_unit) {
            left -= min(left, end_unit - unit);
            next_head(rows, kv_heads);
        }
        Cursor after = *this;
        uint32_t whole = 0;
        while (after.left > 0) {
            const uint32_t units = after.end_unit - after.first_unit;
            whole += units;
            after.left -= min(after.left, units);
            after.next_head(rows, kv_heads);
        }
        left = whole;
    }
};

// A (row, KV head) that is split over several workers.
template <class T>
struct Split {
    T* out;
    unsigned long long begin;  // its first unit on the line
    uint32_t units;
    uint32_t first, last;      // workers
    uint32_t arrived_before;   // of them; lane 0 knows
    bool exists;
};

// Grid [workers / WARPS], block [32 * WARPS], shared [WARPS * RING_BYTES].
template <class T, int D, int NT>
__device__ void attention_units(const AttentionUnitsParams<T>& p) {
    using Rows = Tile<D>;
    constexpr int SLICE = 16 * D, PIECE = PIECE_SLICES * SLICE;  // numbers
    constexpr int UNIT_PIECES = 2 * SLICES / PIECE_SLICES;
    constexpr int PIECES = RING_BYTES / (PIECE * 2);
    constexpr int STEPS = D / 16;
    extern __shared__ __align__(128) uint8_t shared[];

    // The plan and all keys but those of a row's last token are older than the kernels of this pass: their loads need not wait.
    launch_dependents();
    const uint32_t used = p.counts[0], table_width = p.counts[2];
    const unsigned long long all = (unsigned long long)p.rows[p.counts[1]].tiles_before * p.kv_heads;  // units on the line
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // Neighbours on the line are on different multiprocessors, so that few workers have as many of them as they can.
    const uint32_t worker = warp * gridDim.x + blockIdx.x;
    if (worker >= used) {
        if (used == 0) grid_dependency_wait();  // else those at work wait
        return;
    }
    const DecodeCta work = p.workers[worker];
    T* const ring = reinterpret_cast<T*>(shared) + warp * (RING_BYTES / 2);

    Cursor load{work.entry, work.kv_head, work.tile, work.tiles};
    load.set_row({work.token, work.row, work.context_len, work.window_start, work.tiles_before});
    if (all * p.group > (unsigned long long)p.capacity) load.take_whole_heads(p.rows, p.kv_heads);
    Cursor cursor = load;
    const uint32_t block_mask = (1u << p.block_size_log2) - 1;
    int load_piece = 0;  // of the unit: keys, then values
    bool is_waiting = true;

    uint32_t blocks[PIECE_SLICES];  // of the next piece
    const auto find_blocks = [&]() {
#pragma unroll
        for (int i = 0; i < PIECE_SLICES; i++) {
            const uint32_t token = load.unit * UNIT + (load_piece * PIECE_SLICES % SLICES + i) * 16;
            const bool is_there = load.left > 0 && token < load.at.context_len && token + 16 > load.at.window_start;
            blocks[i] = is_there ? p.block_tables[size_t(load.at.row) * table_width + (token >> p.block_size_log2)] : 0;
        }
    };
    find_blocks();
    // Begins the copy of the next piece; a commit is made even where there is nothing to copy.
    const auto issue = [&](int slot) {
        if (load.left > 0) {
#pragma unroll
            for (int i = 0; i < PIECE_SLICES; i++) {
                const uint32_t token = load.unit * UNIT + (load_piece * PIECE_SLICES % SLICES + i) * 16;
                if (token < load.at.context_len && token + 16 > load.at.window_start) {
                    const int valid = min(16u, load.at.context_len - token);
                    const int before = int(load.at.window_start) - int(token);
                    if (is_waiting && token + 16 >= load.at.context_len) {
                        grid_dependency_wait();
                        is_waiting = false;
                    }
                    const size_t plane = (size_t(blocks[i]) * p.kv_heads + load.kv_head) * 2 + load_piece / (UNIT_PIECES / 2);
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
                load.left--;
                if (++load.unit == load.end_unit) load.next_head(p.rows, p.kv_heads);
            }
            find_blocks();
        }
        commit_copies();
    };
    for (int slot = 0; slot < PIECES - 1; slot++) issue(slot);
    if (is_waiting) grid_dependency_wait();
    is_waiting = false;

    int slot = 0;
    // The shared address of the oldest piece, once it has come; begins the copy of another one.
    const auto next_piece = [&]() -> uint32_t {
        wait_for_copies<PIECES - 2>();
        __syncwarp();
        issue(slot == 0 ? PIECES - 1 : slot - 1);
        const uint32_t at = shared_address(ring + slot * PIECE);
        slot = slot + 1 == PIECES ? 0 : slot + 1;
        return at;
    };

    bool is_first_segment = true;
    Split<T> ended{}, begun{};  // what ends in this worker, and what begins in it
    while (cursor.left > 0) {
        // One (row, KV head), or the part of it that is this worker's.
        const uint32_t first = cursor.unit, last = min(cursor.end_unit, first + cursor.left), units = cursor.end_unit - cursor.first_unit;
        const bool is_begin = first == cursor.first_unit, is_whole = is_begin && last == cursor.end_unit;
        const unsigned long long begin = (unsigned long long)cursor.at.tiles_before * p.kv_heads + (unsigned long long)cursor.kv_head * units;
        T* const row_out = p.out + (size_t(cursor.at.token) * p.kv_heads + cursor.kv_head) * p.group * D;
        uint32_t query[STEPS][NT][2];
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const int head = n * 8 + lane / 4;
            const T* q = p.qkv + size_t(cursor.at.token) * p.qkv_stride + (cursor.kv_head * p.group + head) * D + lane % 4 * 2;
#pragma unroll
            for (int k = 0; k < STEPS; k++) {
                query[k][n][0] = head < p.group ? *reinterpret_cast<const uint32_t*>(q + k * 16) : 0;
                query[k][n][1] = head < p.group ? *reinterpret_cast<const uint32_t*>(q + k * 16 + 8) : 0;
            }
        }
        // Leaves in memory what was merged up to here, or a unit by itself.
        const auto leave = [&](unsigned long long at, const float(&output)[STEPS][NT][4], const float(&top)[NT][2], const float(&total)[NT][2]) {
#pragma unroll
            for (int n = 0; n < NT; n++) {
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int head = n * 8 + lane % 4 * 2 + h;
                    if (head >= p.group) continue;
                    const size_t place = at * p.group + head;
                    float* to = p.outputs + place * D + lane / 4;
#pragma unroll
                    for (int k = 0; k < STEPS; k++) {
                        __stcg(to + k * 16, output[k][n][h]);
                        __stcg(to + k * 16 + 8, output[k][n][h + 2]);
                    }
                    if (lane < 4) __stcg(p.sums + place, make_float2(top[n][h], total[n][h]));
                }
            }
        };
        float out[STEPS][NT][4] = {}, highest[NT][2], sum[NT][2] = {};
#pragma unroll
        for (int n = 0; n < NT; n++) highest[n][0] = highest[n][1] = -INFINITY;

        for (uint32_t unit = first; unit < last; unit++) {
            // Of the keys of the unit, those from `before` to `valid` are attended to.
            const int before = int(cursor.at.window_start) - int(unit * UNIT), valid = int(cursor.at.context_len) - int(unit * UNIT);
            const auto is_attended = [&](int slice) { return 16 * slice < valid && 16 * slice + 16 > before; };
            uint32_t piece = 0;
            float score[SLICES][NT][4] = {};
#pragma unroll
            for (int j = 0; j < SLICES; j++) {
                if (j % PIECE_SLICES == 0) piece = next_piece();
                const uint32_t keys = piece + j % PIECE_SLICES * (SLICE * sizeof(T));
                if (is_attended(j)) add_scores<T, D, NT>(score[j], keys, query);
            }
            UnitWeights<T, NT> weights;
            weights.make(score, before, valid, p.scale_log2, p.tanh_scale);
            float of_unit[STEPS][NT][4] = {};
#pragma unroll
            for (int j = 0; j < SLICES; j++) {
                if (j % PIECE_SLICES == 0) piece = next_piece();
                const uint32_t values = piece + j % PIECE_SLICES * (SLICE * sizeof(T));
                if (is_attended(j)) add_values<T, D, NT>(of_unit, values, weights.weight[j]);
            }
            if (is_begin) {
#pragma unroll
                for (int n = 0; n < NT; n++) {
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        const Shares shares = join_maximum(highest[n][h], weights.top[n][h]);
                        sum[n][h] = joined(sum[n][h], weights.sum[n][h], shares);
#pragma unroll
                        for (int k = 0; k < STEPS; k++) {
                            out[k][n][h] = joined(out[k][n][h], of_unit[k][n][h], shares);
                            out[k][n][h + 2] = joined(out[k][n][h + 2], of_unit[k][n][h + 2], shares);
                        }
                    }
                }
            } else {
                leave(begin + unit - cursor.first_unit, of_unit, weights.top, weights.sum);
            }
        }

        if (is_whole) {
#pragma unroll
            for (int n = 0; n < NT; n++) {
                const float shares[2] = {1.0f / sum[n][0], 1.0f / sum[n][1]};
                const int head = n * 8 + lane / 4;
#pragma unroll
                for (int k = 0; k < STEPS; k++) {
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const float* o = out[k][n] + 2 * half;
                        const uint32_t pair = transpose_matrix(narrow2<T>(o[0] * shares[0], o[1] * shares[1]));
                        if (head < p.group) *reinterpret_cast<uint32_t*>(row_out + head * D + k * 16 + half * 8 + lane % 4 * 2) = pair;
                    }
                }
            }
        } else {
            if (is_begin) leave(begin, out, highest, sum);
            // Worker w begins at unit w * all / used of the line.
            const uint32_t first_worker = ((begin + 1) * used - 1) / all, last_worker = ((begin + units) * used - 1) / all;
            Split<T> split{row_out, begin, units, first_worker, last_worker, 0, true};
            __threadfence();
            __syncwarp();
            // Whether this was the last arrival is asked at the end.
            if (lane == 0) split.arrived_before = atomicAdd(p.arrived + first_worker, 1);
            if (is_first_segment) {
                ended = split;
            } else {
                begun = split;
            }
        }
        cursor.left -= last - first;
        is_first_segment = false;
        cursor.next_head(p.rows, p.kv_heads);
    }

    // Of all that begins in one worker, only what reaches beyond it is split: one count per worker is enough.
    const auto finish = [&](const Split<T>& split) {
        if (!split.exists) return;
        const bool is_last = __shfl_sync(0xffffffffu, split.arrived_before, 0) == split.last - split.first;
        if (!is_last) return;
        // Behind the count that was read, and before the other lanes read what it counts.
        __threadfence();
        __syncwarp();
        if (lane == 0) p.arrived[split.first] = 0;
        const float* outputs = p.outputs + split.begin * p.group * D;
        const float2* sums = p.sums + split.begin * p.group;
        const uint32_t second = (split.first + 1ull) * all / used - split.begin;
        for (int i = lane * 4; i < p.group * D; i += 128) {
            const int head = i / D;
            // The first worker has merged its units.
            const float2 merged = __ldcg(sums + head);
            float highest = merged.x, sum = merged.y;
            float4 out = __ldcg(reinterpret_cast<const float4*>(outputs + i));
#pragma unroll 8
            for (uint32_t unit = second; unit < split.units; unit++) {
                const float2 of_unit = __ldcg(sums + unit * p.group + head);
                const float4 there = __ldcg(reinterpret_cast<const float4*>(outputs + size_t(unit) * p.group * D + i));
                const Shares shares = join_maximum(highest, of_unit.x);
                sum = joined(sum, of_unit.y, shares);
                out = make_float4(joined(out.x, there.x, shares), joined(out.y, there.y, shares), joined(out.z, there.z, shares),
                                  joined(out.w, there.w, shares));
            }
            const float share = 1.0f / sum;
            *reinterpret_cast<uint2*>(split.out + i) =
                make_uint2(narrow2<T>(out.x * share, out.y * share), narrow2<T>(out.z * share, out.w * share));
        }
    };
    finish(ended);
    finish(begun);
}

#define KERNEL(dim, group, tiles, dtype)                                                                            \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)                                                     \
        nvllm_k_attention_units_d##dim##_g##group##_##dtype(const __grid_constant__ AttentionUnitsParams<dtype> p) { \
        attention_units<dtype, dim, tiles>(p);                                                                      \
    }
#define KERNELS(dim)          \
    KERNEL(dim, 8, 1, bf16)   \
    KERNEL(dim, 8, 1, f16)    \
    KERNEL(dim, 16, 2, bf16)  \
    KERNEL(dim, 16, 2, f16)

KERNELS(64)
KERNELS(128)

// Batch-invariant attention of rows that bring one new token, on compute capability 9.0. Contract: src/compute/ops/attention.rs. Reference:
// src/compute/cpu/attention. Plan: src/compute/cuda/attention/partition.rs. Launch: src/compute/cuda/attention/units.rs.
//
// Keys come in units of 64 that begin at multiples of 64. A unit has a maximum, a sum and an output of its own, and the units that a query
// attends to are merged in the order of their positions: what a query gets depends on it and on the keys before it alone.
// `attention_hopper.cu` computes the same numbers for rows that bring several tokens, and `attention_few_units.cu` for few rows. A product of tensor
// cores has the same bits in all: a chain of products of 16 in the order of k, into which a weight of 0 adds nothing.
//
// Memory-bound: reads each key and value once. Warp-level stream-K: the plan gives each warp, a worker, a range of the units, row
// after row, KV head after KV head. Keys, or values, of some tokens are a piece of a ring that the warp keeps full.
//
// A (row, KV head) that two workers share is a chain: the first merges its units and hands over, and the second merges its own behind them. So that
// none waits, a worker begins with what it hands over, and ends with what is handed over to it. Where more than two workers share one, or the
// second has too little to do before, the units are left in memory, those of the first worker merged, and the worker that ends last merges
// them. Where the line is longer than that memory, such a (row, KV head) is taken whole by the worker in whose part it begins. A thread block waits
// for earlier ones, the first alone for the last: two that run at once are enough, since the hardware starts them in the order of their index. Of each
// engine on a device, one may have to wait so.
//
// Scores are transposed, [16 tokens, 8 heads] = K Q^T, and so is the output, [head_dim, 8 heads] += V^T P^T.
#include "common/arrivals.cuh"
#include "common/dependent_launch.cuh"
#include "common/plan.cuh"
#include "common/units.cuh"

template <class T>
struct AttentionUnitsParams {
    T* out;                        // [tokens, heads * head_dim]
    const T* qkv;                  // [tokens, qkv_stride]
    const T* cache;                // one layer: [block][kv_head][K|V][block_size][head_dim]
    float4* outputs;               // [capacity + workers * pairs, head_dim / 16, 8]: see `Merged`; units of the line, then what a worker hands over
    float4* sums;                  // [capacity + workers * pairs]: maximum and sum of the softmax, of two heads
    uint32_t* arrived;             // [workers], zero between launches: workers that are done with what is split and begins in that worker
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
    int capacity;         // units times pairs of query heads that `outputs` and `sums` hold besides
    const float* sinks;   // [kv_heads * group], or null
};

constexpr int WARPS = 4;
// Slices of 16 keys, or of 16 values, in a piece of the ring.
constexpr int PIECE_SLICES = 2;
// Copies that are under way or waited for, per warp: two thread blocks share a multiprocessor.
constexpr int RING_BYTES = 24 * 1024;

// A worker's part of the line, in runs: what the next worker waits for comes first, and what waits for the worker before comes last.
struct Part {
    const DecodeCta* places;  // where it begins, and where the next worker does
    const DecodeRow* rows;
    int kv_heads;
    // Units: of its last (row, KV head), if another worker ends that; what is between; of the one that it begins within. If nothing is handed
    // over, all is between.
    uint32_t begun, between, rest;
    bool skips;  // the one that it begins within, before what is between
};

// A position in the sequence of all units.
struct Cursor {
    uint32_t entry, kv_head, unit, left;  // units left of the run
    int run;
    DecodeRow at;
    uint32_t first_unit, end_unit;  // of the row at hand

    __device__ void set_row(const DecodeRow& row) {
        at = row;
        first_unit = row.window_start / UNIT;
        end_unit = (row.context_len + UNIT - 1) / UNIT;
    }

    __device__ void set(const DecodeCta& place) {
        entry = place.entry;
        kv_head = place.kv_head;
        unit = place.tile;
        set_row({place.token, place.row, place.context_len, place.window_start, place.tiles_before});
    }

    // The first unit of this (row, KV head) on the line.
    __device__ unsigned long long line_begin(int kv_heads) const {
        return (unsigned long long)at.tiles_before * kv_heads + (unsigned long long)kv_head * (end_unit - first_unit);
    }

    // To the first unit of the next KV head, or of the next row.
    __device__ void next_head(const Part& part) {
        if (++kv_head == part.kv_heads) {
            kv_head = 0;
            set_row(part.rows[++entry]);
        }
        unit = first_unit;
    }

    // To the next run that has units, where this one has none left.
    __device__ void next_run(const Part& part) {
        while (left == 0 && ++run < 3) {
            left = run == 0 ? part.begun : run == 1 ? part.between : part.rest;
            if (left == 0) continue;
            set(part.places[run == 0 ? 1 : 0]);
            if (run == 0) unit = first_unit;
            if (run == 1 && part.skips) next_head(part);
        }
    }

    // Behind `units` of a (row, KV head).
    __device__ void skip(uint32_t units, const Part& part) {
        left -= units;
        unit += units;
        if (left == 0) {
            next_run(part);
        } else if (unit == end_unit) {
            next_head(part);
        }
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

// Units that were merged, or one of them: of two heads each in a lane, in the order of the tensor cores.
template <class T, int D, int NT>
struct Merged {
    float out[D / 16][NT][4], highest[NT][2], sum[NT][2];

    __device__ void clear() {
#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                highest[n][h] = -INFINITY;
                sum[n][h] = 0.0f;
            }
#pragma unroll
            for (int k = 0; k < D / 16; k++) out[k][n][0] = out[k][n][1] = out[k][n][2] = out[k][n][3] = 0.0f;
        }
    }

    // Joins the unit behind.
    __device__ void join(const float (&of_unit)[D / 16][NT][4], const float (&top)[NT][2], const float (&total)[NT][2]) {
#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const Shares shares = join_maximum(highest[n][h], top[n][h]);
                sum[n][h] = joined(sum[n][h], total[n][h], shares);
#pragma unroll
                for (int k = 0; k < D / 16; k++) {
                    out[k][n][h] = joined(out[k][n][h], of_unit[k][n][h], shares);
                    out[k][n][h + 2] = joined(out[k][n][h + 2], of_unit[k][n][h + 2], shares);
                }
            }
        }
    }

    // Where it is left for another warp, 16 bytes of a lane at a time.
    __device__ static void leave(const AttentionUnitsParams<T>& p, size_t place, const float (&out)[D / 16][NT][4], const float (&highest)[NT][2],
                                 const float (&sum)[NT][2]) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const int pair = n * 4 + lane % 4;
            if (2 * pair >= p.group) continue;
            float4* to = p.outputs + (place + pair) * (D / 2) + lane / 4;
#pragma unroll
            for (int k = 0; k < D / 16; k++) __stcg(to + k * 8, make_float4(out[k][n][0], out[k][n][1], out[k][n][2], out[k][n][3]));
            if (lane < 4) __stcg(p.sums + place + pair, make_float4(highest[n][0], sum[n][0], highest[n][1], sum[n][1]));
        }
    }

    __device__ void fetch(const AttentionUnitsParams<T>& p, size_t place) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const int pair = n * 4 + lane % 4;
            // Lanes without heads read those of the first pair.
            const size_t at = place + (2 * pair < p.group ? pair : 0);
            const float4* from = p.outputs + at * (D / 2) + lane / 4;
#pragma unroll
            for (int k = 0; k < D / 16; k++) {
                const float4 there = __ldcg(from + k * 8);
                out[k][n][0] = there.x, out[k][n][1] = there.y, out[k][n][2] = there.z, out[k][n][3] = there.w;
            }
            const float4 sums = __ldcg(p.sums + at);
            highest[n][0] = sums.x, sum[n][0] = sums.y, highest[n][1] = sums.z, sum[n][1] = sums.w;
        }
    }

    // `row_out`: of the query heads of a KV head.
    __device__ void store(const AttentionUnitsParams<T>& p, T* row_out) const {
        const int lane = threadIdx.x % 32, group = p.group;
        const int first_head = p.sinks ? int((row_out - p.out) / D % (p.kv_heads * group)) : 0;
#pragma unroll
        for (int n = 0; n < NT; n++) {
            float shares[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                // Lanes without a head read that of the last one.
                const int head = first_head + min(n * 8 + lane % 4 * 2 + h, group - 1);
                shares[h] = 1.0f / with_sink(sum[n][h], highest[n][h], p.sinks, head);
            }
            const int head = n * 8 + lane / 4;
#pragma unroll
            for (int k = 0; k < D / 16; k++) {
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const float* o = out[k][n] + 2 * half;
                    const uint32_t pair = transpose_matrix(narrow2<T>(o[0] * shares[0], o[1] * shares[1]));
                    if (head < group) *reinterpret_cast<uint32_t*>(row_out + head * D + k * 16 + half * 8 + lane % 4 * 2) = pair;
                }
            }
        }
    }
};

// Which workers have units of a (row, KV head).
struct Workers {
    uint32_t first = 0, last = 0;
    bool is_chain = false;  // two, of which the second goes on where the first ended

    __device__ Workers() {}

    // Worker w of `used` begins at unit w * all / used of the line.
    __device__ Workers(unsigned long long begin, uint32_t units, uint32_t used, unsigned long long all) {
        first = ((begin + 1) * used - 1) / all;
        last = ((begin + units) * used - 1) / all;
        // The second must have enough to do before, or it would wait.
        is_chain = last == first + 1 && units <= (last + 1ull) * all / used - last * all / used;
    }
};

// The runs of a worker with `mine` units, from `begin` on; the next one begins at `end`. Where the line is too long, only what is handed over
// is split.
__device__ inline void set_runs(Part& part, const Cursor& begin, const Cursor& end, uint32_t mine, bool is_too_long, uint32_t used,
                                unsigned long long all) {
    const uint32_t units = begin.end_unit - begin.first_unit, end_units = end.end_unit - end.first_unit, to_end = begin.end_unit - begin.unit;
    const bool is_within = begin.unit != begin.first_unit, is_one = mine < to_end || (is_within && mine == to_end);
    uint32_t rest = is_one ? mine : is_within ? to_end : 0, begun = is_one ? 0 : end.unit - end.first_unit;
    // No worker has more than one unit more than this one.
    const auto is_chain = [&](const Cursor& at, uint32_t units) {
        return units <= mine + 1 && Workers(at.line_begin(part.kv_heads), units, used, all).is_chain;
    };
    const bool is_rest_chain = rest > 0 && is_chain(begin, units), is_begun_chain = begun > 0 && is_chain(end, end_units);
    part.skips = is_within;
    part.between = mine - rest - begun;
    if (is_too_long) {
        if (rest > 0 && !is_rest_chain) rest = is_within ? 0 : units;
        if (begun > 0 && !is_begun_chain) begun = end_units;
    } else if (!is_rest_chain && !is_begun_chain) {
        // In the order of the line.
        part.between = mine;
        part.skips = false;
        rest = begun = 0;
    }
    part.rest = rest;
    part.begun = begun;
}

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
    const int pairs = (p.group + 1) / 2;
    const uint32_t used = p.counts[0], table_width = p.counts[2];
    const unsigned long long all = (unsigned long long)p.rows[p.counts[1]].tiles_before * p.kv_heads;  // units on the line
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // Neighbours on the line are on different multiprocessors, so that few workers have as many of them as they can. Of the two thread blocks of
    // a multiprocessor, the second begins with other warps, which other schedulers issue.
    const uint32_t worker = (warp + 2 * blockIdx.x / gridDim.x * (WARPS / 2)) % WARPS * gridDim.x + blockIdx.x;
    if (worker >= used) {
        if (used == 0) grid_dependency_wait();  // else those at work wait
        return;
    }
    T* const ring = reinterpret_cast<T*>(shared) + warp * (RING_BYTES / 2);

    const bool is_too_long = all * pairs > (unsigned long long)p.capacity;
    Part part{p.workers + worker, p.rows, p.kv_heads};
    Cursor load{}, end{};
    const DecodeCta here = p.workers[worker], there = p.workers[min(worker + 1, used - 1)];
    load.set(here);
    end.set(there);
    if (worker + 1 == used) end.unit = end.first_unit;  // the line ends with a (row, KV head)
    set_runs(part, load, end, here.tiles, is_too_long, used, all);
    load.run = -1;
    load.left = 0;
    load.next_run(part);
    Cursor cursor = load;
    const uint32_t block_mask = (1u << p.block_size_log2) - 1;
    int load_piece = 0;  // of the unit: keys, then values
    bool is_waiting = true;
    const uint64_t policy = evict_first_policy();

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
                        copy_async(to + Rows::at(row, chunk) * 16, numbers + (is_attended ? row * D + chunk * 8 : 0), is_attended ? 16 : 0, policy);
                    }
                }
            }
            if (++load_piece == UNIT_PIECES) {
                load_piece = 0;
                load.skip(1, part);
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

    Split<T> ended{}, begun{};  // what ends in this worker, and what begins in it
    while (cursor.left > 0) {
        // One (row, KV head), or the part of it that is this worker's.
        const uint32_t first = cursor.unit, last = min(cursor.end_unit, first + cursor.left), units = cursor.end_unit - cursor.first_unit;
        const bool is_begin = first == cursor.first_unit, is_whole = is_begin && last == cursor.end_unit;
        const unsigned long long begin = cursor.line_begin(p.kv_heads);
        const Workers workers = is_whole ? Workers() : Workers(begin, units, used, all);
        const bool is_second = !is_begin && workers.is_chain;
        // Where the first of two workers leaves what it merged.
        const size_t handed_over = p.capacity + size_t(workers.first) * pairs;
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
        Merged<T, D, NT> merged;
        merged.clear();
        if (is_second) {
            random_delay();
            if (lane == 0) {
                while (load_acquire(p.arrived + workers.first) == 0) {
                }
                p.arrived[workers.first] = 0;
            }
            __syncwarp();
            merged.fetch(p, handed_over);
        }

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
            if (is_begin || is_second) {
                merged.join(of_unit, weights.top, weights.sum);
            } else {
                merged.leave(p, (begin + unit - cursor.first_unit) * pairs, of_unit, weights.top, weights.sum);
            }
        }

        if (is_whole || is_second) {
            merged.store(p, row_out);
        } else {
            if (is_begin) merged.leave(p, workers.is_chain ? handed_over : begin * pairs, merged.out, merged.highest, merged.sum);
            __threadfence();
            __syncwarp();
            if (workers.is_chain) {
                if (lane == 0) __stcg(p.arrived + workers.first, 1u);
            } else {
                Split<T> split{row_out, begin, units, workers.first, workers.last, 0, true};
                // Whether this was the last arrival is asked at the end.
                if (lane == 0) split.arrived_before = atomicAdd(p.arrived + workers.first, 1);
                if (is_begin) {
                    begun = split;
                } else {
                    ended = split;
                }
            }
        }
        cursor.skip(last - first, part);
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
        const uint32_t second = (split.first + 1ull) * all / used - split.begin;
        // The first worker has merged its units.
        Merged<T, D, NT> merged;
        merged.fetch(p, split.begin * pairs);
        constexpr int AT_ONCE = NT == 1 ? 4 : 1;  // units whose loads do not wait for each other
        for (uint32_t unit = second; unit < split.units; unit += AT_ONCE) {
            Merged<T, D, NT> units[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) units[i].fetch(p, (split.begin + min(unit + i, split.units - 1)) * pairs);
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                if (unit + i < split.units) merged.join(units[i].out, units[i].highest, units[i].sum);
            }
        }
        merged.store(p, split.out);
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

// The selective scan of prompts, in chunks of 64 tokens (Dao and Gu, "Transformers are SSMs", 2024, section 6). Contract:
// src/compute/ops/selective_scan.rs. Reference: src/compute/cpu/selective_scan.rs. Rows of few tokens are those of selective_scan.cu.
//
// With g the sum of the logarithms of the decays of a chunk up to a token, and S the state before the chunk:
//
//   out = exp(g) C S + P X + D X, P[i][j] = exp(g[i] - g[j]) step[j] C[i] B[j]^T for j <= i
//   S = exp(g[last]) S + sum over i of exp(g[last] - g[i]) step[i] B[i]^T X[i]
//
// Exponents are differences that are not positive. Products are those of tensor cores over numbers of type T; sums, factors and the state are f32. So
// results round as a prompt is cut into chunks, which batch-invariant passes do without.
//
// Bound by the chain from chunk to chunk: a thread block computes 64 columns of a head of a row, and their state stays in its registers. The next chunk is
// loaded while a chunk is computed.
#include "common/dependent_launch.cuh"
#include "common/fragments.cuh"
#include "common/selective_scan.cuh"
#include "common/states.cuh"

constexpr int CHUNK = 64, COLS = 64, THREADS = 256, WARPS = THREADS / 32;
// Below it, a decay is 0 in f32. Sums of longer logarithms would lose the digits of those behind them.
constexpr float LEAST_LOGARITHM = -100.0f;

using Narrow = Tile<COLS>;  // rows of 64 numbers

// What lies in shared memory.
template <class T, int STATE_DIM>
struct Shared {
    T b[2][CHUNK * STATE_DIM];  // of this chunk and of the next one
    T c[CHUNK * STATE_DIM];
    T x[CHUNK * COLS];
    T scaled[CHUNK * COLS];     // exp(g[last] - g) step X
    T state[STATE_DIM * COLS];
    T scores[CHUNK * CHUNK];    // P
    float g[CHUNK], step[CHUNK];
    float scale[CHUNK];         // exp(g[last] - g) step, 0 behind the chunk
    int count;                  // tokens of the chunk
    uint32_t saved;             // which slot gets the state behind it, too
};

// Of a chunk with rows of DIM numbers, what a thread loads: groups of eight numbers.
template <int DIM>
constexpr int GROUPS = CHUNK * DIM / 8 / THREADS;

// Where the thread's group `i` lies in the chunk.
template <int DIM>
struct Place {
    int row, chunk;
    __device__ Place(int i) : row((i * THREADS + threadIdx.x) / (DIM / 8)), chunk((i * THREADS + threadIdx.x) % (DIM / 8)) {}
};

// Calls `act(i, place, address)` for each group of a thread, of tokens from `start`. Behind `end` the last token is read again.
template <int DIM, class T, class Act>
__device__ inline void each_group(const T* from, int stride, int start, int end, Act&& act) {
#pragma unroll
    for (int i = 0; i < GROUPS<DIM>; i++) {
        const Place<DIM> place(i);
        act(i, place, from + size_t(min(start + place.row, end - 1)) * stride + place.chunk * 8);
    }
}

template <int DIM, class T>
__device__ inline void load_groups(Eight (&to)[GROUPS<DIM>], const T* from, int stride, int start, int end) {
    each_group<DIM>(from, stride, start, end, [&](int i, const Place<DIM>&, const T* at) { to[i] = load_eight(at); });
}

// The same, to shared memory.
template <int DIM, class T>
__device__ inline void copy_groups(T* to, const T* from, int stride, int start, int end) {
    each_group<DIM>(from, stride, start, end, [&](int, const Place<DIM>& place, const T* of) {
        copy_async(at<Tile<DIM>>(to, place.row, place.chunk), of);
    });
    commit_copies();
}

template <int DIM, class T>
__device__ inline void share_groups(T* to, const Eight (&groups)[GROUPS<DIM>]) {
#pragma unroll
    for (int i = 0; i < GROUPS<DIM>; i++) {
        const Place<DIM> place(i);
        reinterpret_cast<Eight*>(to)[Tile<DIM>::at(place.row, place.chunk)] = groups[i];
    }
}

__device__ inline float sum_up_to_lane(float v) {
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes <<= 1) {
        const float before = __shfl_up_sync(0xffffffffu, v, lanes);
        if (threadIdx.x % 32 >= lanes) v += before;
    }
    return v;
}

// Grid [heads * head_dim / COLS, rows], block [THREADS], shared [Shared].
template <class T, int STATE_DIM>
__device__ void selective_scan_chunks(const SelectiveScanParams<T>& p) {
    using Long = Tile<STATE_DIM>;
    // A warp has tiles of 16 rows of the state, each with some tiles of 8 columns.
    constexpr int ROW_TILES = STATE_DIM < 16 * WARPS ? 1 : STATE_DIM / (16 * WARPS);
    constexpr int WARPS_OF_COLUMN = STATE_DIM / (16 * ROW_TILES), COL_TILES = COLS / 8 * WARPS_OF_COLUMN / WARPS;
    extern __shared__ __align__(128) uint8_t raw[];
    Shared<T, STATE_DIM>& shared = *reinterpret_cast<Shared<T, STATE_DIM>*>(raw);
    launch_dependents();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = blockIdx.y;
    const int parts = p.head_dim / COLS, head = blockIdx.x / parts, first_column = blockIdx.x % parts * COLS;
    const int group = head / (p.heads / p.groups);
    const float rate = p.rates[head], bias = p.rates[p.heads + head], skip = p.rates[2 * p.heads + head];
    grid_dependency_wait();
    const int first = p.row_starts[row], end = p.row_starts[row + 1];
    const uint32_t slot = p.slots[row], source = p.sources[row];
    // A row without a slot pads the batch.
    if (slot == NO_STATE || end - first <= p.tokens_max) return;

    const int width = p.heads * p.head_dim, own = head * p.head_dim + first_column;
    const T* const x = p.xbc + own;
    const T* const b = p.xbc + width + group * STATE_DIM;
    const T* const c = p.xbc + width + (p.groups + group) * STATE_DIM;

    // Rows 16 r + lane / 4 and 8 more of the state, columns 8 n + 2 (lane % 4) and one more: the fragments of products.
    float state[ROW_TILES][COL_TILES][4];
    const int state_column = warp / WARPS_OF_COLUMN * (COL_TILES * 8);
    const auto state_row = [&](int r) { return (warp % WARPS_OF_COLUMN + r * WARPS_OF_COLUMN) * 16; };
    const auto each_pair = [&](auto&& act) {
#pragma unroll
        for (int r = 0; r < ROW_TILES; r++) {
#pragma unroll
            for (int n = 0; n < COL_TILES; n++) {
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    act(state_row(r) + lane / 4 + h * 8, state_column + n * 8 + lane % 4 * 2, state[r][n][2 * h], state[r][n][2 * h + 1]);
                }
            }
        }
    };
    const auto state_at = [&](uint32_t of, int row, int column) {
        return p.states + of * p.slot_numbers + (size_t(head) * STATE_DIM + row) * p.head_dim + first_column + column;
    };
    const auto store_state = [&](uint32_t to) {
        each_pair([&](int row, int column, float v, float w) { *reinterpret_cast<float2*>(state_at(to, row, column)) = make_float2(v, w); });
    };
    const auto share_state = [&] {
        each_pair([&](int row, int column, float v, float w) { store_pair<Narrow>(shared.state, row, column, narrow2<T>(v, w)); });
    };
    each_pair([&](int row, int column, float& v, float& w) {
        const float2 pair = source == NO_STATE ? make_float2(0.0f, 0.0f) : *reinterpret_cast<const float2*>(state_at(source, row, column));
        v = pair.x, w = pair.y;
    });
    share_state();

    // X of the next chunk. B has a second buffer, and C is copied as soon as nobody reads that of this chunk.
    Eight loaded_x[GROUPS<COLS>];
    // Of the tokens `lane` and `lane + 32`, in the first warp.
    T of_step[2];
    uint32_t saved[2];
    const auto load = [&](int start, T* to) {
        copy_groups<STATE_DIM>(to, b, p.xbc_stride, start, end);
        load_groups<COLS>(loaded_x, x, p.xbc_stride, start, end);
        if (warp > 0) return;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int token = min(start + lane + 32 * h, end - 1);
            of_step[h] = p.steps[size_t(token) * p.steps_stride + head];
            saved[h] = p.saves[token];
        }
    };
    const auto copy_c = [&](int start) { copy_groups<STATE_DIM>(shared.c, c, p.xbc_stride, start, end); };
    load(first, shared.b[0]);
    copy_c(first);

    for (int start = first, turn = 0; start < end; turn ^= 1) {
        T* const now_b = shared.b[turn];
        share_groups<COLS>(shared.x, loaded_x);
        if (warp == 0) {
            // The chunk ends where the row does, or behind a token after which the state is kept.
            int count = min(CHUNK, end - start);
            float g[2], step[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int of = lane + 32 * h;
                step[h] = softplus_step(widen(of_step[h]), p.step_scale, bias);
                g[h] = sum_up_to_lane(fmaxf(-rate * step[h], LEAST_LOGARITHM));
                if (start + of < end && saved[h] != NO_STATE) count = min(count, of + 1);
            }
            g[1] += __shfl_sync(0xffffffffu, g[0], 31);
            count = __reduce_min_sync(0xffffffffu, count);
            const int last = count - 1;
            const float of_last = __shfl_sync(0xffffffffu, last < 32 ? g[0] : g[1], last % 32);
            const uint32_t saved_last = __shfl_sync(0xffffffffu, last < 32 ? saved[0] : saved[1], last % 32);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int of = lane + 32 * h;
                shared.g[of] = g[h];
                shared.step[of] = step[h];
                shared.scale[of] = of < count ? __expf(fminf(of_last - g[h], 0.0f)) * step[h] : 0.0f;
            }
            if (lane == 0) shared.count = count, shared.saved = saved_last;
        }
        wait_for_copies<0>();
        __syncthreads();
        const int count = shared.count, next = start + count;
#pragma unroll
        for (int i = 0; i < GROUPS<COLS>; i++) {
            const Place<COLS> place(i);
            const float scale = shared.scale[place.row];
            Eight scaled;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float2 pair = widen2<T>(loaded_x[i].pair[j]);
                scaled.pair[j] = narrow2<T>(pair.x * scale, pair.y * scale);
            }
            reinterpret_cast<Eight*>(shared.scaled)[Narrow::at(place.row, place.chunk)] = scaled;
        }
        if (next < end) load(next, shared.b[turn ^ 1]);

        // A warp has 16 tokens: 32 columns of P and of C S.
        const int of_row = warp % 4 * 16, of_column = warp / 4 * 32;
        float out[4][4] = {};
        {
            float cb[4][4] = {};
            const bool is_below = of_column <= of_row + 15;
#pragma unroll 2
            for (int step = 0; step < STATE_DIM / 16; step++) {
                uint32_t a[4];
                load_a<Long>(a, shared.c, of_row, step);
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    uint32_t v[4];
                    load_b_of_rows<Narrow>(v, shared.state, step, of_column + n * 16);
                    mma<T>(out[2 * n], a, v[0], v[1]);
                    mma<T>(out[2 * n + 1], a, v[2], v[3]);
                }
                if (!is_below) continue;
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    uint32_t v[4];
                    load_b<Long>(v, now_b, of_column + n * 16, step);
                    mma<T>(cb[2 * n], a, v[0], v[1]);
                    mma<T>(cb[2 * n + 1], a, v[2], v[3]);
                }
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int i = of_row + lane / 4 + h * 8;
                const float g = shared.g[i], decay = __expf(g);
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    const int column = of_column + n * 8 + lane % 4 * 2;
                    float score[2];
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        const int j = column + e;
                        score[e] = j <= i ? __expf(fminf(g - shared.g[j], 0.0f)) * shared.step[j] * cb[n][2 * h + e] : 0.0f;
                        out[n][2 * h + e] *= decay;
                    }
                    store_pair<Narrow>(shared.scores, i, column, narrow2<T>(score[0], score[1]));
                }
            }
        }
        __syncthreads();

        if (next < end) copy_c(next);
        const float decay = __expf(shared.g[count - 1]);
        each_pair([&](int, int, float& v, float& w) { v *= decay, w *= decay; });
#pragma unroll
        for (int step = 0; step < CHUNK / 16; step++) {
            uint32_t of_b[ROW_TILES][4];
#pragma unroll
            for (int r = 0; r < ROW_TILES; r++) load_a_of_columns<Long>(of_b[r], now_b, state_row(r), step);
#pragma unroll
            for (int n = 0; n < COL_TILES / 2; n++) {
                uint32_t v[4];
                load_b_of_rows<Narrow>(v, shared.scaled, step, state_column + n * 16);
#pragma unroll
                for (int r = 0; r < ROW_TILES; r++) {
                    mma<T>(state[r][2 * n], of_b[r], v[0], v[1]);
                    mma<T>(state[r][2 * n + 1], of_b[r], v[2], v[3]);
                }
            }
            if (step * 16 > of_row) continue;
            uint32_t a[4];
            load_a<Narrow>(a, shared.scores, of_row, step);
#pragma unroll
            for (int n = 0; n < 2; n++) {
                uint32_t v[4];
                load_b_of_rows<Narrow>(v, shared.x, step, of_column + n * 16);
                mma<T>(out[2 * n], a, v[0], v[1]);
                mma<T>(out[2 * n + 1], a, v[2], v[3]);
            }
        }
        share_state();
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int i = of_row + lane / 4 + h * 8;
            if (i >= count) continue;
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const int column = of_column + n * 8 + lane % 4 * 2;
                const float2 pair = widen2<T>(pair_at<Narrow>(shared.x, i, column));
                const uint32_t result = narrow2<T>(fmaf(skip, pair.x, out[n][2 * h]), fmaf(skip, pair.y, out[n][2 * h + 1]));
                *reinterpret_cast<uint32_t*>(p.out + size_t(start + i) * p.out_stride + own + column) = result;
            }
        }
        if (shared.saved != NO_STATE) store_state(shared.saved);
        start = next;
        __syncthreads();
    }
    store_state(slot);
}

#define SELECTIVE_SCAN_CHUNKS(T, state_dim, shared_bytes)                                                    \
    static_assert(sizeof(Shared<T, state_dim>) == shared_bytes, "as src/compute/cuda/selective_scan.rs has it"); \
    extern "C" __global__ void __launch_bounds__(THREADS, state_dim > 128 ? 1 : 2)                           \
        nvllm_k_selective_scan_chunks_##state_dim##_##T(const __grid_constant__ SelectiveScanParams<T> p) {  \
        selective_scan_chunks<T, state_dim>(p);                                                              \
    }

SELECTIVE_SCAN_CHUNKS(bf16, 64, 58120)
SELECTIVE_SCAN_CHUNKS(bf16, 128, 90888)
SELECTIVE_SCAN_CHUNKS(bf16, 256, 156424)
SELECTIVE_SCAN_CHUNKS(f16, 64, 58120)
SELECTIVE_SCAN_CHUNKS(f16, 128, 90888)
SELECTIVE_SCAN_CHUNKS(f16, 256, 156424)

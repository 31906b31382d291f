// Linear layers of experts. Contract: src/compute/ops/expert_linear.rs, and src/compute/ops/gated_expert_linear.rs where GATED. Reference:
// src/compute/cpu/expert_linear.rs.
//
// A slot is a token and one of its experts, and its row is the slot's number. Grids are as large as any choice of experts needs, which the host does
// not know; thread blocks without work leave at once. So do those of experts whose weights another rank has.
//
// `expert_linear_few` for up to 8 tokens, memory-bound: common/expert_few.cuh. `expert_linear_tiled` for more, in tiles of slots that have one expert,
// which `sort_routes` found: a result is one chain of tensor-core products in the order of k, whatever the tile around it.
#include "common/expert_few.cuh"

template <class T>
struct ExpertLinearParams {
    T* out;                 // [slots, out_stride]
    const T* x;             // [slots / slots_of_row, x_stride]
    const T* weight;        // [experts, n, k]; of gated results [experts, 2 n, k], gates over ups
    const float* bias;      // [experts * n], or null; of gated results [experts * 2 n]
    const int* experts_of;  // [slots]
    const int* order;       // [slots], grouped by expert
    const int* tiles;       // [tiles, 4]: expert, first of `order`, how many, nothing
    const int* tile_count;
    int n;                  // columns of `out`
    int k;                  // a multiple of 8
    int out_stride;
    int x_stride;           // a multiple of 8
    int slots_of_row;       // slots that read one row of x
    int activation;         // of gated results: `Activation`; else -1
    int first_expert;       // number of the first expert whose weights are here
    int experts;            // whose weights are here: slots with others are left alone
    int is_chosen;          // of few tokens: whether `experts_of` is older than the kernel before, which was `expert_linear_few` or came after it
};

// The 16 rows of weights of a thread block for few tokens, which lie in shared memory first: so more of them are under way than registers hold.
template <class T>
struct PlainRows {
    static constexpr int STAGES = 4, PIECE_BYTES = FEW_ROWS * 128, RING_BYTES = STAGES * PIECE_BYTES;
    static constexpr bool ASKS_EARLY = true;
    const T* from[4];  // the rows that this lane copies, from its chunk on
    int left;          // numbers of k from there on
    uint8_t* ring;

    __device__ PlainRows(const ExpertLinearParams<T>& p, uint8_t* shared, FewShared&, int expert, int first, bool is_gated) {
        const int warp = threadIdx.x / 32, begin = warp * 64 + threadIdx.x % 8 * 8;
        ring = shared + warp * RING_BYTES;
        left = p.k - begin;
        const T* const weight = p.weight + size_t(expert) * (is_gated ? 2 : 1) * p.n * p.k;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = i * 4 + threadIdx.x % 32 / 8;
            const int column = is_gated ? row / 8 * p.n + min(first + row % 8, p.n - 1) : min(first + row, p.n - 1);
            from[i] = weight + size_t(column) * p.k + begin;
        }
    }

    __device__ static bool knows_choice(const ExpertLinearParams<T>& p) { return p.is_chosen; }

    // Of two rows that are read together, one has its halves exchanged.
    __device__ static int place(int row, int chunk) { return (row * 8 + (chunk ^ (row & 1) << 2)) * 16; }

    // Begins the copy of piece `s` from `from` on; a commit is made even where there is none.
    __device__ void load(int stage, int s, bool is_there) {
        __syncwarp();
        if (is_there) {
            const uint32_t to = shared_address(ring + stage * PIECE_BYTES);
            const bool is_full = left > s * FEW_WARPS * 64;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                copy_async(to + place(i * 4 + threadIdx.x % 32 / 8, threadIdx.x % 8), is_full ? from[i] + s * FEW_WARPS * 64 : from[0] - 8, is_full ? 16 : 0);
            }
        }
        commit_copies();
    }

    __device__ void advance() {
#pragma unroll
        for (int i = 0; i < 4; i++) from[i] += STAGES * FEW_WARPS * 64;
        left -= STAGES * FEW_WARPS * 64;
    }

    __device__ void multiply(float (&sum)[4], int stage, const Eight (&x)[2]) const {
        wait_for_copies<STAGES - 1>();
        __syncwarp();
        const int row = threadIdx.x % 32 / 4, chunk = threadIdx.x % 4;
        const uint8_t* const piece = ring + stage * PIECE_BYTES;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const Eight upper = *reinterpret_cast<const Eight*>(piece + place(row, half * 4 + chunk));
            const Eight lower = *reinterpret_cast<const Eight*>(piece + place(row + 8, half * 4 + chunk));
            multiply_rows<T>(sum, upper, lower, x[half]);
        }
    }
};

// As `gemm_tiled`, whose rows of x and of `out` are those of the slots of a tile, and whose weights are those of the tile's expert. Of gated results a
// tile has eight gates, then their ups, so that a lane has both.
//
// Grid [tiles at most, rows of weights of an expert / columns rounded up], block [32 * WM * WN], shared [STAGES * (tokens + columns) rows of 64 numbers].
template <class T, int MT, int NT, int WM, int WN, int STAGES>
__device__ void expert_linear_tiled(const ExpertLinearParams<T>& p) {
    using Rows = Tile<64>;
    constexpr int TOKENS = 16 * MT * WM, COLUMNS = 16 * NT * WN, DEPTH = 64, THREADS = 32 * WM * WN;
    constexpr int X_SLICE = TOKENS * Rows::STRIDE * 8, SLICES = X_SLICE + COLUMNS * Rows::STRIDE * 8;  // numbers of a stage
    static_assert(TOKENS * Rows::CHUNKS % THREADS == 0 && COLUMNS * Rows::CHUNKS % THREADS == 0, "whole rounds of copies");
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ int slots[TOKENS];
    launch_dependents();
    grid_dependency_wait();
    if (blockIdx.x >= *p.tile_count) return;
    const int4 tile = reinterpret_cast<const int4*>(p.tiles)[blockIdx.x];
    const int expert = tile.x - p.first_expert, count = tile.z;
    if (unsigned(expert) >= unsigned(p.experts)) return;
    for (int i = threadIdx.x; i < TOKENS; i += THREADS) slots[i] = p.order[tile.y + min(i, count - 1)];
    __syncthreads();

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, matrix = lane / 8;
    const bool is_gated = p.activation >= 0;
    const int steps = (p.k + DEPTH - 1) / DEPTH;
    const T* const weight = p.weight + size_t(expert) * (is_gated ? 2 : 1) * p.n * p.k;
    // The column of results that a column of the tile belongs to.
    const auto column_of = [&](int c) { return is_gated ? (blockIdx.y * COLUMNS / 16 + c / 16) * 8 + c % 8 : blockIdx.y * COLUMNS + c; };
    T* ring = reinterpret_cast<T*>(shared);
    const auto issue = [&](int step) {
        if (step >= steps) return;
#pragma unroll
        for (int j = 0; j < COLUMNS * Rows::CHUNKS / THREADS; j++) {
            const int i = j * THREADS + threadIdx.x;
            const int row = i / Rows::CHUNKS, chunk = i % Rows::CHUNKS;
            const int k = step * DEPTH + chunk * 8;
            const int column = column_of(row), from = is_gated && row & 8 ? p.n + column : column;
            const bool is_there = column < p.n && k < p.k;
            const uint32_t to = shared_address(ring + step % STAGES * SLICES + X_SLICE) + Rows::at(row, chunk) * 16;
            copy_async(to, is_there ? weight + size_t(from) * p.k + k : weight, is_there ? 16 : 0);
        }
#pragma unroll
        for (int j = 0; j < TOKENS * Rows::CHUNKS / THREADS; j++) {
            const int i = j * THREADS + threadIdx.x;
            const int row = i / Rows::CHUNKS, chunk = i % Rows::CHUNKS;
            const int k = step * DEPTH + chunk * 8;
            const bool is_there = row < count && k < p.k;
            const uint32_t to = shared_address(ring + step % STAGES * SLICES) + Rows::at(row, chunk) * 16;
            copy_async(to, is_there ? p.x + size_t(slots[row] / p.slots_of_row) * p.x_stride + k : p.x, is_there ? 16 : 0);
        }
    };
    for (int step = 0; step < STAGES - 1; step++) {
        issue(step);
        commit_copies();
    }

    const int warp_token = warp % WM * 16 * MT, warp_column = warp / WM * 16 * NT;
    float sum[MT][2 * NT][4] = {};
    for (int step = 0; step < steps; step++) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();
        issue(step + STAGES - 1);
        commit_copies();
        const uint32_t x = shared_address(ring + step % STAGES * SLICES), weights = x + X_SLICE * sizeof(T);
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++) {
            uint32_t a[MT][4], b[NT][4];
#pragma unroll
            for (int i = 0; i < MT; i++) {
                load_matrices(a[i], x + Rows::at(warp_token + i * 16 + (matrix & 1) * 8 + lane % 8, 2 * k + (matrix >> 1)) * 16);
            }
#pragma unroll
            for (int j = 0; j < NT; j++) {
                load_matrices(b[j], weights + Rows::at(warp_column + j * 16 + (matrix >> 1) * 8 + lane % 8, 2 * k + (matrix & 1)) * 16);
            }
#pragma unroll
            for (int i = 0; i < MT; i++) {
#pragma unroll
                for (int j = 0; j < 2 * NT; j++) mma<T>(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
            }
        }
    }

    const float* const bias = p.bias ? p.bias + size_t(expert) * (is_gated ? 2 : 1) * p.n : nullptr;
    const auto biased = [&](float sum, int row) { return bias ? sum + bias[row] : sum; };
#pragma unroll
    for (int i = 0; i < MT; i++) {
#pragma unroll
        for (int j = 0; j < 2 * NT; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int row = warp_token + i * 16 + (e >> 1) * 8 + lane / 4;
                const int column = column_of(warp_column + j * 8 + lane % 4 * 2 + (e & 1));
                if (row >= count || column >= p.n || is_gated && j % 2 == 1) continue;
                float v = biased(sum[i][j][e], column);
                if (is_gated) {
                    const float up = biased(sum[i][j | 1][e], p.n + column);
                    v = gated(p.activation, widen<T>(narrow<T>(v)), widen<T>(narrow<T>(up)));
                }
                p.out[size_t(slots[row]) * p.out_stride + column] = narrow<T>(v);
            }
        }
    }
}

#define FEW(dtype)                                                                                \
    extern "C" __global__ void __launch_bounds__(32 * FEW_WARPS, FEW_BLOCKS)                      \
        nvllm_k_expert_linear_few_##dtype(const __grid_constant__ ExpertLinearParams<dtype> p) {  \
        __shared__ FewShared fixed;                                                               \
        expert_linear_few<dtype, PlainRows<dtype>>(p, fixed);                                     \
    }
FEW(bf16)
FEW(f16)

#define KERNEL(tokens, columns, mt, nt, wm, wn, stages, blocks, dtype)                                                          \
    extern "C" __global__ void __launch_bounds__(32 * wm * wn, blocks)                                                          \
        nvllm_k_expert_linear_t##tokens##_c##columns##_##dtype(const __grid_constant__ ExpertLinearParams<dtype> p) {           \
        static_assert(tokens == 16 * mt * wm && columns == 16 * nt * wn, "the name says what it computes");                     \
        expert_linear_tiled<dtype, mt, nt, wm, wn, stages>(p);                                                                  \
    }
#define KERNELS(tokens, columns, mt, nt, wm, wn, stages, blocks)  \
    KERNEL(tokens, columns, mt, nt, wm, wn, stages, blocks, bf16) \
    KERNEL(tokens, columns, mt, nt, wm, wn, stages, blocks, f16)

KERNELS(16, 64, 1, 1, 1, 4, 5, 4)
KERNELS(64, 64, 2, 1, 2, 4, 4, 3)
KERNELS(128, 128, 4, 2, 2, 4, 3, 2)

// Linear layers of experts. Contract: src/compute/ops/expert_linear.rs, and src/compute/ops/gated_expert_linear.rs where GATED. Reference:
// src/compute/cpu/expert_linear.rs.
//
// A slot is a token and one of its experts, and its row is the slot's number. Grids are as large as any choice of experts needs, which the host does
// not know; thread blocks without work leave at once.
//
// `expert_linear_few` for up to 8 tokens, memory-bound: each warp reads a few rows of the weights of one slot's expert. Slots with the same
// expert read them from the second-level cache. `expert_linear_tiled` for more, in tiles of slots that have one expert, which `sort_routes` found: a
// result is one chain of tensor-core products in the order of k, whatever the tile around it.
#include "common/activation.cuh"
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"
#include "common/tensor_core.cuh"

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
    int activation;         // of gated results: `Activation`
};

// Adds eight products.
template <class T>
__device__ inline float add_products(float sum, const Eight& a, const Eight& b) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 v = widen2<T>(a.pair[i]), w = widen2<T>(b.pair[i]);
        sum = fmaf(v.y, w.y, fmaf(v.x, w.x, sum));
    }
    return sum;
}

constexpr int FEW_WARPS = 4, FEW_ROWS = 4;

// Grid [n / (FEW_WARPS * outputs of a warp) rounded up, slots], block [32 * FEW_WARPS]. A warp has FEW_ROWS rows of weights, half of them gates where
// GATED. Lanes share out k in groups of eight numbers.
template <class T, bool GATED>
__device__ void expert_linear_few(const ExpertLinearParams<T>& p) {
    constexpr int OUTPUTS = GATED ? FEW_ROWS / 2 : FEW_ROWS, STEP = 256;
    const int lane = threadIdx.x % 32, slot = blockIdx.y;
    const int first = (blockIdx.x * FEW_WARPS + threadIdx.x / 32) * OUTPUTS;
    launch_dependents();
    grid_dependency_wait();
    if (first >= p.n) return;
    const int expert = p.experts_of[slot], rows = GATED ? 2 * p.n : p.n;
    const auto row_of = [&](int r) { return min(first + r % OUTPUTS, p.n - 1) + (GATED && r >= OUTPUTS ? p.n : 0); };
    const T* const weight = p.weight + size_t(expert) * rows * p.k;
    const T* const x = p.x + size_t(slot / p.slots_of_row) * p.x_stride;
    float sum[FEW_ROWS] = {};
    for (int at = lane * 8; at < p.k; at += 2 * STEP) {
        Eight w[2][FEW_ROWS], numbers[2];
#pragma unroll
        for (int u = 0; u < 2; u++) {
            const int k = at + u * STEP;
            numbers[u] = k < p.k ? load_eight(x + k) : Eight{};
#pragma unroll
            for (int r = 0; r < FEW_ROWS; r++) w[u][r] = k < p.k ? load_eight_once(weight + size_t(row_of(r)) * p.k + k) : Eight{};
        }
#pragma unroll
        for (int u = 0; u < 2; u++) {
#pragma unroll
            for (int r = 0; r < FEW_ROWS; r++) sum[r] = add_products<T>(sum[r], w[u][r], numbers[u]);
        }
    }
#pragma unroll
    for (int r = 0; r < FEW_ROWS; r++) {
        sum[r] = warp_sum(sum[r]);
        if (p.bias) sum[r] += p.bias[size_t(expert) * rows + row_of(r)];
    }
#pragma unroll
    for (int r = 0; r < OUTPUTS; r++) {
        if (lane != r || first + r >= p.n) continue;
        T* const to = p.out + size_t(slot) * p.out_stride + first + r;
        if constexpr (GATED) {
            const float gate = widen<T>(narrow<T>(sum[r])), up = widen<T>(narrow<T>(sum[OUTPUTS + r]));
            *to = narrow<T>(gated(p.activation, gate, up));
        } else {
            *to = narrow<T>(sum[r]);
        }
    }
}

// As `gemm_tiled`, whose rows of x and of `out` are those of the slots of a tile, and whose weights are those of the tile's expert.
//
// Grid [tiles at most, n / columns rounded up], block [32 * WM * WN], shared [STAGES * (tokens + columns) rows of 64 numbers].
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
    const int expert = tile.x, count = tile.z;
    for (int i = threadIdx.x; i < TOKENS; i += THREADS) slots[i] = p.order[tile.y + min(i, count - 1)];
    __syncthreads();

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, matrix = lane / 8;
    const int first_column = blockIdx.y * COLUMNS;
    const int steps = (p.k + DEPTH - 1) / DEPTH;
    const T* const weight = p.weight + size_t(expert) * p.n * p.k;
    T* ring = reinterpret_cast<T*>(shared);
    const auto issue = [&](int step) {
        if (step >= steps) return;
#pragma unroll
        for (int j = 0; j < COLUMNS * Rows::CHUNKS / THREADS; j++) {
            const int i = j * THREADS + threadIdx.x;
            const int row = i / Rows::CHUNKS, chunk = i % Rows::CHUNKS;
            const int k = step * DEPTH + chunk * 8;
            const bool is_there = first_column + row < p.n && k < p.k;
            const uint32_t to = shared_address(ring + step % STAGES * SLICES + X_SLICE) + Rows::at(row, chunk) * 16;
            copy_async(to, is_there ? weight + size_t(first_column + row) * p.k + k : weight, is_there ? 16 : 0);
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

#pragma unroll
    for (int i = 0; i < MT; i++) {
#pragma unroll
        for (int j = 0; j < 2 * NT; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int row = warp_token + i * 16 + (e >> 1) * 8 + lane / 4;
                const int column = first_column + warp_column + j * 8 + lane % 4 * 2 + (e & 1);
                if (row >= count || column >= p.n) continue;
                const float bias = p.bias ? p.bias[size_t(expert) * p.n + column] : 0.0f;
                p.out[size_t(slots[row]) * p.out_stride + column] = narrow<T>(sum[i][j][e] + bias);
            }
        }
    }
}

#define FEW(name, is_gated, dtype)                                                                \
    extern "C" __global__ void __launch_bounds__(32 * FEW_WARPS)                                  \
        nvllm_k_##name##_##dtype(const __grid_constant__ ExpertLinearParams<dtype> p) {           \
        expert_linear_few<dtype, is_gated>(p);                                                    \
    }
FEW(expert_linear_few, false, bf16)
FEW(expert_linear_few, false, f16)
FEW(gated_expert_linear_few, true, bf16)
FEW(gated_expert_linear_few, true, f16)

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

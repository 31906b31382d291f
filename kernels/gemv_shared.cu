// A linear layer of up to 8 tokens whose weights fit into shared memory all at once. Contract: src/compute/ops/linear.rs, and src/compute/ops/gated_linear.rs
// where GATED. Reference: src/compute/cpu/linear.
//
// Bound by latency. Each thread block issues all its bulk copies of weights, one per row, before griddepcontrol.wait: when the kernels before
// have ended, nothing but x is missing. Which thread blocks share a multiprocessor: src/compute/cuda/gemm/gemv_shared.rs.
// Rows of weights are the operand of 16 rows of the tensor cores, tokens that of 8 columns, so that up to eight tokens have the same bits.
//
// Sums may be added to the stream, and rows of x may be those of the stream that are still to be divided: common/row_factors.cuh.
//
// Results have the bits of gemv_stream.cu: warps share out k in steps of 64 numbers, each adds up its steps in one chain, and the sums
// of the warps are added in their order.
#include "common/activation.cuh"
#include "common/dependent_launch.cuh"
#include "common/linear.cuh"
#include "common/warpgroup.cuh"

// PAD: numbers behind a row of weights in shared memory, so that the eight lanes that read two rows find eight bank groups.
constexpr int DEPTH = 64, PAD = 32, BARRIER_BYTES = 128, FACTORS_AT = 64;

// A thread block has TILES tiles of HALVES times 8 rows of weights; GATED: the first half of a tile are gates, the second their ups.
// STEPS: of 64 numbers of k, for each warp, at most. EARLY: of the halves of the steps, those whose weights pass to registers before the
// wait. Two thread blocks share the registers of a multiprocessor: 64 for each of 512 threads, 128 for each of 256. DIRECT: the last tile, for which
// shared memory has no room, goes to registers straight away, and the sums take the place of the weights.
//
// Grid [at least n / COLUMNS rounded up], block [32 * warps], shared [BARRIER_BYTES + ROWS * (k + PAD) * 2 + warps * m * PART * 4 bytes]. Where DIRECT,
// shared memory has the barrier and the larger of [(ROWS - 16) * (k + PAD) * 2] and the sums.
template <class T, int TILES, int HALVES, int STEPS, int EARLY, bool GATED, bool DIRECT = false>
__device__ void gemv_shared(const FewTokensParams<T>& p) {
    static_assert(!DIRECT || HALVES == 2);
    constexpr int HELD = TILES - DIRECT, HELD_ROWS = 8 * HALVES * HELD;  // in shared memory
    constexpr int ROWS = 8 * HALVES * TILES, COLUMNS = GATED ? ROWS / 2 : ROWS, PART = ROWS + 2, SQUARES = ROWS == 8 ? 1 : 2;
    extern __shared__ __align__(128) uint8_t shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int first = blockIdx.x * COLUMNS, row_numbers = p.k + PAD;
    const uint32_t full = shared_address(shared);
    T* weights = reinterpret_cast<T*>(shared + BARRIER_BYTES);                               // [HELD_ROWS, row_numbers]
    float* parts = reinterpret_cast<float*>(weights + (DIRECT ? 0 : ROWS * row_numbers));  // [warps, m, PART]
    float* factors = reinterpret_cast<float*>(shared + FACTORS_AT);           // [8]
    const bool is_divided = !has_factors(p.norms), is_added = !GATED && p.norms.residual;
    launch_dependents();
    // One of those that only keep a multiprocessor.
    if (first >= p.n) {
        grid_dependency_wait();
        return;
    }

    const auto row_at = [&](int r) {
        const int column = min(GATED ? first + r / 16 * 8 + r % 8 : first + r, p.n - 1);
        return p.weight + size_t(GATED && r % 16 >= 8 ? p.n + column : column) * p.k;
    };
    if (warp == 0) {
        if (lane == 0) {
            barrier_init(full, 1);
            fence_barrier_init();
            barrier_expect(full, HELD_ROWS * p.k * sizeof(T));
        }
        __syncwarp();
        for (int r = lane; r < HELD_ROWS; r += 32) {
            copy_row(shared_address(weights + r * row_numbers), row_at(r), p.k * sizeof(T), full);
        }
    }
    // Where this lane's eight numbers of a step and a half of it begin.
    const auto place = [&](int step, int half) { return (step * warps + warp) * DEPTH + half * 32 + lane % 4 * 8; };
    Eight direct[DIRECT ? 2 * STEPS : 1][HALVES];
    if constexpr (DIRECT) {
#pragma unroll
        for (int i = 0; i < 2 * STEPS; i++) {
            const int k = place(i / 2, i % 2);
#pragma unroll
            for (int h = 0; h < HALVES; h++) direct[i][h] = k < p.k ? load_eight_once(row_at(HELD_ROWS + h * 8 + lane / 4) + k) : Eight{};
        }
    }
    __syncthreads();
    // The rows of weights that a lane multiplies by its numbers `half` of `step`: of each tile, of each eight of it.
    const auto load_weights = [&](Eight (&to)[HELD][HALVES], int step, int half) {
        const int k = place(step, half);
#pragma unroll
        for (int i = 0; i < HELD * HALVES; i++) {
            to[i / HALVES][i % HALVES] = k < p.k ? load_eight(weights + (i * 8 + lane / 4) * row_numbers + k) : Eight{};
        }
    };
    Eight early[EARLY][HELD][HALVES];
    barrier_wait(full, 0);
#pragma unroll
    for (int i = 0; i < EARLY; i++) load_weights(early[i], i / 2, i % 2);
    grid_dependency_wait();
    const int token = lane / 4;
    Eight x[STEPS][2];
#pragma unroll
    for (int i = 0; i < 2 * STEPS; i++) {
        const int k = place(i / 2, i % 2);
        x[i / 2][i % 2] = token < p.m && k < p.k ? load_eight_of_pass(p.x + size_t(token) * p.x_stride + k) : Eight{};
    }
    SquaresOfLane<SQUARES> squares;
    if (!is_divided && warp < p.m) squares = load_squares<SQUARES>(p.norms, warp);
    // Of the number `i` that this thread block stores.
    const auto before_of = [&](int i) {
        const int column = first + i % COLUMNS;
        return load_before(p.norms, size_t(i / COLUMNS) * p.out_stride + column, column, i < p.m * COLUMNS && column < p.n);
    };
    Before before{};
    if (is_added) before = before_of(threadIdx.x);
    // Nothing is waited for, but no product is computed before all of x is on its way.
    barrier_wait(full, 0);
    float sum[TILES][4] = {};
#pragma unroll
    for (int i = 0; i < 2 * STEPS; i++) {
        Eight late[HELD][HALVES];
        if (i >= EARLY) load_weights(late, i / 2, i % 2);
        const auto& rows = i < EARLY ? early[i < EARLY ? i : 0] : late;
        const Eight& numbers = x[i / 2][i % 2];
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            const auto& tile = t < HELD ? rows[t < HELD ? t : 0] : direct[DIRECT ? i : 0];
            const Eight a = tile[0], b = HALVES == 2 ? tile[HALVES - 1] : Eight{};
            const uint32_t low[4] = {a.pair[0], b.pair[0], a.pair[1], b.pair[1]};
            const uint32_t high[4] = {a.pair[2], b.pair[2], a.pair[3], b.pair[3]};
            mma<T>(sum[t], low, numbers.pair[0], numbers.pair[1]);
            mma<T>(sum[t], high, numbers.pair[2], numbers.pair[3]);
        }
    }

    if (DIRECT) __syncthreads();
    float* part = parts + warp * p.m * PART;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const int of_token = lane % 4 * 2 + e;
        if (of_token < p.m) {
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                float* to = part + of_token * PART + t * 8 * HALVES + lane / 4;
                to[0] = sum[t][e];
                if (HALVES == 2) to[8] = sum[t][2 + e];
            }
        }
    }
    if (!is_divided) store_factors(p.norms, factors, p.m, p.k, squares);
    __syncthreads();
    const auto total = [&](int of_token, int row, int column) {
        const float* from = parts + of_token * PART + row;
        float sum_of_warps = 0.0f;
#pragma unroll 8
        for (int w = 0; w < warps; w++) sum_of_warps += from[w * p.m * PART];
        return narrow<T>(fmaf(sum_of_warps, is_divided ? 1.0f : factors[of_token], p.bias ? p.bias[column] : 0.0f));
    };
    // Eight lanes have an eight of one token: all of a warp go on.
    for (int i = threadIdx.x; is_added && i / 32 * 32 < p.m * COLUMNS; i += blockDim.x) {
        const int of_token = i / COLUMNS, column = first + i % COLUMNS;
        const bool is_there = i < p.m * COLUMNS && column < p.n;
        if (i >= blockDim.x) before = before_of(i);
        const T delta = is_there ? total(of_token, i % COLUMNS, column) : T{};
        add_number(p.norms, p.out, size_t(of_token) * p.out_stride + column, of_token, column, is_there, before, delta);
    }
    for (int i = threadIdx.x; !is_added && i < p.m * COLUMNS; i += blockDim.x) {
        const int of_token = i / COLUMNS, c = i % COLUMNS, column = first + c;
        if (column >= p.n) continue;
        T* to = p.out + size_t(of_token) * p.out_stride + column;
        if constexpr (GATED) {
            const int row = c / 8 * 16 + c % 8;
            const float gate = widen<T>(total(of_token, row, column)), up = widen<T>(total(of_token, row + 8, p.n + column));
            *to = narrow<T>(activate_mul(gate, p.is_gelu_tanh ? GeluTanh::exponent(gate) : Silu::exponent(gate), up));
        } else {
            *to = total(of_token, c, column);
        }
    }
}

#define KERNEL(name, rows, tiles, halves, steps, early, is_gated, dtype)                                            \
    extern "C" __global__ void __launch_bounds__(rows == 8 ? 512 : 256, 2)                                     \
        nvllm_k_gemv_shared_##name##r##rows##_s##steps##_##dtype(const __grid_constant__ FewTokensParams<dtype> p) { \
        gemv_shared<dtype, tiles, halves, steps, early, is_gated, rows == 64>(p);                                    \
    }
#define KERNELS(name, rows, tiles, halves, steps, early, is_gated)  \
    KERNEL(name, rows, tiles, halves, steps, early, is_gated, bf16) \
    KERNEL(name, rows, tiles, halves, steps, early, is_gated, f16)

KERNELS(, 8, 1, 1, 2, 2, false)
KERNELS(, 8, 1, 1, 4, 2, false)
KERNELS(, 16, 1, 2, 2, 3, false)
KERNELS(, 16, 1, 2, 4, 3, false)
KERNELS(, 32, 2, 2, 2, 3, false)
KERNELS(, 32, 2, 2, 4, 3, false)
KERNELS(, 48, 3, 2, 2, 3, false)
KERNELS(, 64, 4, 2, 2, 1, false)
KERNELS(gated_, 16, 1, 2, 2, 3, true)
KERNELS(gated_, 16, 1, 2, 4, 3, true)
KERNELS(gated_, 32, 2, 2, 2, 3, true)
KERNELS(gated_, 32, 2, 2, 4, 3, true)
KERNELS(gated_, 48, 3, 2, 2, 3, true)
KERNELS(gated_, 64, 4, 2, 2, 1, true)

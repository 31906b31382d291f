// A linear layer for up to 64 tokens. Contract: src/compute/ops/linear.rs, and src/compute/ops/gated_linear.rs where GATED. Reference:
// src/compute/cpu/linear.
//
// Memory-bound: reads each weight once, 2 n k bytes. One thread block a multiprocessor walks over tiles of 8 CT columns. Its warps share
// out k in steps of 64 numbers and add up through shared memory, in the order of the warps. Each warp has a ring of copies
// under way that knows no border between tiles and begins before the kernels before this one have ended: weights belong to no step.
// A thread block takes less than half of a multiprocessor where it can, so that the next linear layer's fills its ring while this one
// ends. Large layers take nearly all of it: what the ring holds when x is ready was read while memory would have been idle
// (src/compute/cuda/gemm/gemv_stream.rs says which). x comes by the same ring, from the second-level cache, m / (8 CT) times as many bytes as weights. Eight
// warps with tiles of 16 columns beat four with 32 at any m up to 32: one H200, 12288 x 4096 with 1 token 25.1 against 29.0 us, with 16 tokens 30.3
// against 35.2.
//
// Weights leave the second-level cache first: nothing reads them again in this pass, and what does not leave is the parameters and the code of the
// kernels to come.
//
// A dot product does not care for the order of k: the four lanes of a row take 16 contiguous bytes each and call them two
// fragments, of weights and of x alike.
//
// A tile of a gated layer is 8 rows of gates and the 8 of their ups, so that a thread block activates what it has added up.
#include "common/activation.cuh"
#include "common/dependent_launch.cuh"
#include "common/linear.cuh"
#include "common/tensor_core.cuh"

// Grid [thread blocks, at most one a tile], block [32 * warps], shared [32 + warps * (STAGES * (8 CT + m) * 128 + SETS * m * 8 CT * 4) bytes].
template <class T, int TOKENS, int CT, int STAGES, int SETS, bool GATED>
__device__ void gemv_stream(const FewTokensParams<T>& p) {
    static_assert(!GATED || CT == 2);
    constexpr int DEPTH = 64, COLUMNS = 8 * CT, OUTPUTS = GATED ? 8 : COLUMNS;  // of weights, and of `out`
    constexpr int FOURS = (TOKENS + 3) / 4, EIGHTS = (TOKENS + 7) / 8, TILES = (EIGHTS + 1) / 2;  // of 4, 8 and 16 tokens
    extern __shared__ __align__(128) uint8_t shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int stage_numbers = (COLUMNS + p.m) * DEPTH;
    T* ring = reinterpret_cast<T*>(shared) + warp * STAGES * stage_numbers;                               // [STAGES, COLUMNS + m, DEPTH]
    float* parts = reinterpret_cast<float*>(shared + size_t(warps) * STAGES * stage_numbers * sizeof(T));  // [SETS, warps, m, COLUMNS]
    float* factors = parts + SETS * warps * p.m * COLUMNS;                                                   // [8]
    constexpr bool IS_FEW = TOKENS <= 8;
    const bool is_divided = !IS_FEW || !has_factors(p.norms), is_added = IS_FEW && !GATED && p.norms.residual;
    const int steps = (p.k + DEPTH * warps - 1) / (DEPTH * warps), tiles = (p.n + OUTPUTS - 1) / OUTPUTS;
    launch_dependents();

    // Odd rows lie with their halves exchanged, so that eight lanes that read two rows find eight bank groups.
    const auto place = [](int row, int chunk) { return row * 8 + (chunk ^ (row & 1) << 2); };
    const int copied_row = lane / 8, copied_chunk = lane % 8;  // of four rows at a time

    const uint64_t policy = evict_first_policy();
    const auto issue_weights = [&](int stage, int tile, int step) {
        const int k = (step * warps + warp) * DEPTH + copied_chunk * 8;
        const uint32_t to = shared_address(ring + stage * stage_numbers) + place(copied_row, copied_chunk) * 16;
#pragma unroll
        for (int j = 0; j < 2 * CT; j++) {
            const int column = min(tile * OUTPUTS + 4 * (GATED ? j % 2 : j) + copied_row, p.n - 1);
            const int row = GATED && j >= CT ? p.n + column : column;
            copy_async(to + j * 512, k < p.k ? p.weight + size_t(row) * p.k + k : p.weight, k < p.k ? 16 : 0, policy);
        }
    };
    // Rows of x from m on stay as they are: they take part in no result that is stored.
    const auto issue_x = [&](int stage, int step) {
        const int k = (step * warps + warp) * DEPTH + copied_chunk * 8;
        const uint32_t to = shared_address(ring + stage * stage_numbers) + (COLUMNS * 8 + place(copied_row, copied_chunk)) * 16;
#pragma unroll
        for (int j = 0; j < FOURS; j++) {
            const int token = 4 * j + copied_row;
            if (token < p.m) copy_async(to + j * 512, k < p.k ? p.x + size_t(token) * p.x_stride + k : p.x, k < p.k ? 16 : 0);
        }
    };
    int load_tile = blockIdx.x, load_step = 0;
    const auto advance = [&] {
        if (++load_step == steps) {
            load_step = 0;
            load_tile += gridDim.x;
        }
    };
    // Copies complete in the order of their commits. The first x of few tokens is loaded and stored by the warp, so that it does not wait for all
    // the weights that were asked for before it.
    for (int stage = 0; stage < STAGES - 1; stage++) {
        if (load_tile < tiles) issue_weights(stage, load_tile, load_step);
        if (IS_FEW) commit_copies();
        advance();
    }
    grid_dependency_wait();
    if constexpr (IS_FEW) {
        SquaresOfLane<4> squares;
        if (!is_divided && warp < p.m) squares = load_squares<4>(p.norms, warp);
        Eight first[STAGES - 1][FOURS];
#pragma unroll
        for (int i = 0; i < (STAGES - 1) * FOURS; i++) {
            const int token = i % FOURS * 4 + copied_row, k = (i / FOURS % steps * warps + warp) * DEPTH + copied_chunk * 8;
            uint4 numbers{};
            if (token < p.m && k < p.k) numbers = __ldcg(reinterpret_cast<const uint4*>(p.x + size_t(token) * p.x_stride + k));
            first[i / FOURS][i % FOURS] = {numbers.x, numbers.y, numbers.z, numbers.w};
        }
#pragma unroll
        for (int i = 0; i < (STAGES - 1) * FOURS; i++) {
            const int token = i % FOURS * 4 + copied_row;
            Eight* x = reinterpret_cast<Eight*>(ring + i / FOURS * stage_numbers) + COLUMNS * 8;
            if (token < p.m) x[place(token, copied_chunk)] = first[i / FOURS][i % FOURS];
        }
        // The barrier of the first tile follows.
        if (!is_divided) store_factors(p.norms, factors, p.m, p.k, squares);
    } else {
        for (int stage = 0; stage < STAGES - 1; stage++) {
            issue_x(stage, stage % steps);
            commit_copies();
        }
    }

    int stage = 0, set = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        float sum[TILES][CT][4] = {};
        // Of the number `i` of the tile.
        const auto before_of = [&](int i) {
            const int column = tile * OUTPUTS + i % COLUMNS;
            return load_before(p.norms, size_t(i / COLUMNS) * p.out_stride + column, column, i < p.m * COLUMNS && column < p.n);
        };
        Before before{};
        if (is_added) before = before_of(threadIdx.x);
        for (int step = 0; step < steps; step++) {
            wait_for_copies<STAGES - 2>();
            __syncwarp();
            if (load_tile < tiles) {
                const int free = stage == 0 ? STAGES - 1 : stage - 1;
                issue_weights(free, load_tile, load_step);
                issue_x(free, load_step);
                advance();
            }
            commit_copies();
            const Eight* weights = reinterpret_cast<const Eight*>(ring + stage * stage_numbers);
#pragma unroll
            for (int u = 0; u < DEPTH / 32; u++) {
                Eight x[2 * TILES];
#pragma unroll
                for (int e = 0; e < 2 * TILES; e++) {
                    const int token = e * 8 + lane / 4;
                    x[e] = e < EIGHTS && token < p.m ? weights[COLUMNS * 8 + place(token, u * 4 + lane % 4)] : Eight{};
                }
#pragma unroll
                for (int c = 0; c < CT; c++) {
                    const Eight w = weights[place(c * 8 + lane / 4, u * 4 + lane % 4)];
#pragma unroll
                    for (int t = 0; t < TILES; t++) {
                        const Eight &a = x[2 * t], &b = x[2 * t + 1];
                        const uint32_t low[4] = {a.pair[0], b.pair[0], a.pair[1], b.pair[1]};
                        const uint32_t high[4] = {a.pair[2], b.pair[2], a.pair[3], b.pair[3]};
                        mma<T>(sum[t][c], low, w.pair[0], w.pair[1]);
                        mma<T>(sum[t][c], high, w.pair[2], w.pair[3]);
                    }
                }
            }
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }

        float* part = parts + (set * warps + warp) * p.m * COLUMNS;
#pragma unroll
        for (int e = 0; e < EIGHTS; e++) {
            const int token = e * 8 + lane / 4;
            if (token >= p.m) break;
#pragma unroll
            for (int c = 0; c < CT; c++) {
                float* to = part + token * COLUMNS + c * 8 + lane % 4 * 2;
                *reinterpret_cast<float2*>(to) = make_float2(sum[e / 2][c][e % 2 * 2], sum[e / 2][c][e % 2 * 2 + 1]);
            }
        }
        __syncthreads();
        // A thread adds up a row of weights. Of gated results, a gate and its up are eight lanes apart; of added ones, eight lanes have an eight.
        const int together = GATED || is_added ? 32 : 1;
        for (int i = threadIdx.x; i / together * together < p.m * COLUMNS; i += blockDim.x) {
            const float* from = parts + set * warps * p.m * COLUMNS + i;
            float total = 0.0f;
            if (i < p.m * COLUMNS) {
#pragma unroll 4
                for (int w = 0; w < warps; w++) total += from[w * p.m * COLUMNS];
            }
            const int token = i / COLUMNS, column = tile * OUTPUTS + i % OUTPUTS;
            const float factor = is_divided || token >= p.m ? 1.0f : factors[token];
            if constexpr (GATED) {
                const bool is_up = i % COLUMNS >= OUTPUTS;
                const float bias = p.bias && column < p.n ? p.bias[is_up ? p.n + column : column] : 0.0f;
                const float gate = widen<T>(narrow<T>(fmaf(total, factor, bias))), up = __shfl_down_sync(0xffffffffu, gate, OUTPUTS);
                if (is_up || token >= p.m || column >= p.n) continue;
                const float exponent = p.is_gelu_tanh ? GeluTanh::exponent(gate) : Silu::exponent(gate);
                p.out[size_t(token) * p.out_stride + column] = narrow<T>(activate_mul(gate, exponent, up));
            } else if (is_added) {
                const bool is_there = token < p.m && column < p.n;
                if (i >= blockDim.x) before = before_of(i);
                const T delta = narrow<T>(total + (p.bias && is_there ? p.bias[column] : 0.0f));
                add_number(p.norms, p.out, size_t(token) * p.out_stride + column, token, column, is_there, before, delta);
            } else {
                store_output(p, token, column, total, factor);
            }
        }
        // Two sets of parts take turns, so that one barrier a tile is enough.
        if (SETS == 1) __syncthreads();
        if (SETS == 2) set ^= 1;
    }
}

// DEEP: those that take nearly all of a multiprocessor.
#define KERNEL(name, tokens, columns, warps, stages, sets, deep, is_gated, dtype)                                             \
    extern "C" __global__ void __launch_bounds__(32 * warps)                                                                 \
        nvllm_k_gemv_stream_##name##m##tokens##_c##columns##deep##_##dtype(const __grid_constant__ FewTokensParams<dtype> p) { \
        gemv_stream<dtype, tokens, columns / 8, stages, sets, is_gated>(p);                                                \
    }
#define KERNELS(tokens, columns, warps, stages, sets, deep)                             \
    KERNEL(, tokens, columns, warps, stages, sets, deep, false, bf16)    \
    KERNEL(, tokens, columns, warps, stages, sets, deep, false, f16)
#define GATED_KERNELS(tokens, columns, warps, stages, sets, deep)                                \
    KERNEL(gated_, tokens, columns, warps, stages, sets, deep, true, bf16)    \
    KERNEL(gated_, tokens, columns, warps, stages, sets, deep, true, f16)

KERNELS(4, 8, 16, 4, 2, )
KERNELS(4, 16, 8, 5, 2, )
KERNELS(8, 8, 16, 3, 2, )
KERNELS(8, 16, 8, 4, 2, )
KERNELS(16, 8, 16, 3, 1, )
KERNELS(16, 16, 8, 3, 2, )
KERNELS(32, 8, 8, 4, 1, )
KERNELS(32, 16, 8, 3, 1, )
KERNELS(64, 8, 4, 4, 1, )
KERNELS(64, 32, 4, 3, 1, )
KERNELS(4, 16, 8, 11, 2, _deep)
KERNELS(8, 16, 8, 9, 2, _deep)
GATED_KERNELS(4, 16, 8, 5, 2, )
GATED_KERNELS(8, 16, 8, 4, 2, )
GATED_KERNELS(4, 16, 8, 11, 2, _deep)
GATED_KERNELS(8, 16, 8, 9, 2, _deep)

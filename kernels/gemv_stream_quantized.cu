// A linear layer for up to 32 tokens over quantized weights. Contract: src/compute/ops/linear.rs. Reference: src/compute/cpu/linear.
//
// Memory-bound up to about 16 tokens: reads each code once. gemv_stream.cu with units of codes (common/quantized.cuh) in the ring, which become
// fragments in registers. Result by result the order of the sums is that of gemv_stream.cu with as many warps, so that both give the same bits.
// The headers of a stage are decoded once per column by one lane and handed to the others through shared memory.
#include "common/quantized.cuh"
#include "common/dependent_launch.cuh"
#include "common/tensor_core.cuh"

template <class T>
struct GemvStreamQuantizedParams {
    T* out;              // [m, out_stride], at the first column
    const T* x;          // [m, x_stride]
    const float* bias;   // [n - skip], at the first column, or null
    QuantizedWeights weight;
    int m;               // tokens
    int n;               // columns from the octet's begin on
    int skip;            // columns at the beginning of the first unit that are not computed, at most 7
    int k;               // a multiple of 32
    int out_stride;
    int x_stride;        // a multiple of 8
};

// Grid [thread blocks, at most one a tile], block [32 * warps],
// shared [warps * (STAGES * (CT * unit + m * 128) + CT * 128 + SETS * m * 8 CT * 4) bytes].
template <class T, int EIGHTS, int CT, int STAGES, int SETS>
__device__ void gemv_stream_quantized(const GemvStreamQuantizedParams<T>& p) {
    constexpr int DEPTH = 64, COLUMNS = 8 * CT;
    constexpr int TILES = (EIGHTS + 1) / 2;                                      // of 16 tokens
    constexpr int ROUNDS = (CT * (512 + 64) / 16 + 31) / 32;  // of copies of 16 bytes by each lane, at most
    extern __shared__ __align__(128) uint8_t shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int unit_bytes = p.weight.code_bytes + 8 * p.weight.header_bytes, stage_bytes = CT * unit_bytes + p.m * DEPTH * sizeof(T);
    uint8_t* ring = shared + warp * STAGES * stage_bytes;                                                  // [STAGES, CT units and m rows of x]
    float4* scales = reinterpret_cast<float4*>(shared + warps * STAGES * stage_bytes) + warp * COLUMNS;    // [COLUMNS]
    float* parts = reinterpret_cast<float*>(shared + warps * (STAGES * stage_bytes + COLUMNS * sizeof(float4)));  // [SETS, warps, m, COLUMNS]
    const int units = p.weight.units_of_row, octets = (p.n + 7) / 8;
    const int steps = (units + warps - 1) / warps, tiles = (octets + CT - 1) / CT;
    const size_t octet_bytes = size_t(units) * unit_bytes;
    launch_dependents();

    // As in gemv_stream.cu.
    const auto place = [](int row, int chunk) { return row * 8 + (chunk ^ (row & 1) << 2); };
    const int copied_row = lane / 8, copied_chunk = lane % 8;

    // Which octet of a tile each copy is of, and where it begins.
    const int chunks = unit_bytes / 16;
    int copied_octet[ROUNDS];
    const uint8_t* copied_from[ROUNDS];
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        const int i = r * 32 + lane;
        copied_octet[r] = i / chunks;
        copied_from[r] = p.weight.units + copied_octet[r] * octet_bytes + i % chunks * 16;
    }
    const auto issue_weights = [&](int stage, int tile, int step) {
        const int unit = step * warps + warp;
        const size_t from = size_t(tile) * CT * octet_bytes + size_t(unit) * unit_bytes;
        const uint32_t to = shared_address(ring + stage * stage_bytes) + lane * 16;
#pragma unroll
        for (int r = 0; r < ROUNDS; r++) {
            const bool is_there = unit < units && tile * CT + copied_octet[r] < octets;
            if (copied_octet[r] < CT) copy_async(to + r * 512, is_there ? copied_from[r] + from : p.weight.units, is_there ? 16 : 0);
        }
    };
    // Rows of x from m on stay as they are: they take part in no result that is stored.
    const auto issue_x = [&](int stage, int step) {
        const int k = (step * warps + warp) * DEPTH + copied_chunk * 8;
        const uint32_t to = shared_address(ring + stage * stage_bytes + CT * unit_bytes) + place(copied_row, copied_chunk) * 16;
#pragma unroll
        for (int j = 0; j < 2 * EIGHTS; j++) {
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
    for (int stage = 0; stage < STAGES - 1; stage++) {
        if (load_tile < tiles) issue_weights(stage, load_tile, load_step);
        advance();
    }
    grid_dependency_wait();
    for (int stage = 0; stage < STAGES - 1; stage++) {
        issue_x(stage, stage % steps);
        commit_copies();
    }

    int stage = 0, set = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        float sum[TILES][CT][4] = {};
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
            const uint8_t* at = ring + stage * stage_bytes;
            if (COLUMNS >= 32 || lane < COLUMNS) {
                scales[lane] = scales_of_column(p.weight, at + lane / 8 * unit_bytes + p.weight.code_bytes + lane % 8 * p.weight.header_bytes);
            }
            const Eight* rows = reinterpret_cast<const Eight*>(at + CT * unit_bytes);
            Eight x[2][2 * TILES];
#pragma unroll
            for (int u = 0; u < 2; u++) {
#pragma unroll
                for (int e = 0; e < 2 * TILES; e++) {
                    const int token = e * 8 + lane / 4;
                    x[u][e] = e < EIGHTS && token < p.m ? rows[place(token, u * 4 + lane % 4)] : Eight{};
                }
            }
            __syncwarp();
#pragma unroll
            for (int c = 0; c < CT; c++) {
                const uint4 codes = AnyBits::load(p.weight, at + c * unit_bytes, lane);
                Eight numbers[2];
                AnyBits::numbers<T>(p.weight, codes, scales[c * 8 + lane / 4], lane, numbers);
#pragma unroll
                for (int u = 0; u < 2; u++) {
                    const Eight& w = numbers[u];
#pragma unroll
                    for (int t = 0; t < TILES; t++) {
                        const Eight &a = x[u][2 * t], &b = x[u][2 * t + 1];
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
        for (int i = threadIdx.x; i < p.m * COLUMNS; i += blockDim.x) {
            const float* from = parts + set * warps * p.m * COLUMNS + i;
            float total = 0.0f;
#pragma unroll 4
            for (int w = 0; w < warps; w++) total += from[w * p.m * COLUMNS];
            const int token = i / COLUMNS, column = tile * COLUMNS + i % COLUMNS;
            if (column < p.skip || column >= p.n) continue;
            const int at = column - p.skip;
            p.out[size_t(token) * p.out_stride + at] = narrow<T>(total + (p.bias ? p.bias[at] : 0.0f));
        }
        // Two sets of parts take turns, so that one barrier a tile is enough.
        if (SETS == 1) __syncthreads();
        if (SETS == 2) set ^= 1;
    }
}

#define KERNEL(tokens, columns, warps, stages, sets, dtype)                                                               \
    extern "C" __global__ void __launch_bounds__(32 * warps)                                                              \
        nvllm_k_gemv_stream_quantized_m##tokens##_c##columns##_##dtype(const __grid_constant__ GemvStreamQuantizedParams<dtype> p) { \
        gemv_stream_quantized<dtype, tokens / 8, columns / 8, stages, sets>(p);                                           \
    }
#define KERNELS(dtype)               \
    KERNEL(8, 8, 16, 3, 2, dtype)    \
    KERNEL(8, 16, 16, 4, 2, dtype)   \
    KERNEL(8, 32, 16, 4, 2, dtype)   \
    KERNEL(16, 8, 16, 3, 1, dtype)   \
    KERNEL(16, 32, 16, 3, 1, dtype)  \
    KERNEL(32, 8, 8, 4, 1, dtype)    \
    KERNEL(32, 32, 8, 3, 1, dtype)

KERNELS(bf16)
KERNELS(f16)

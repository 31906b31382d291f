// Linear layers of experts over quantized weights. Contracts: src/compute/ops/expert_linear.rs, and src/compute/ops/gated_expert_linear.rs where GATED.
// Reference: src/compute/cpu/expert_linear.rs. Formats: common/quantized.cuh.
//
// Slots, tiles and grids are those of expert_linear.cu. The warps of a thread block share out the units of a row, and their sums are added in the order
// of the warps: a result does not depend on the tile around it.
//
// `expert_linear_quantized_few` for up to 8 tokens, memory-bound: a thread block reads an octet of the weights of one slot's expert. Where there are more,
// `expert_linear_quantized_tiled` decodes an octet once for the slots of a tile, as fragments of the tensor cores.
#include "common/activation.cuh"
#include "common/quantized.cuh"
#include "common/dependent_launch.cuh"
#include "common/tensor_core.cuh"

template <class T>
struct ExpertCodedParams {
    T* out;                 // [slots, out_stride]
    const T* x;             // [slots / slots_of_row, x_stride]
    const float* bias;      // [experts * n], or null; of gated results [experts * 2 n]
    const int* experts_of;  // [slots]
    const int* order;       // [slots], grouped by expert
    const int* tiles;       // [tiles, 4]: expert, first of `order`, how many, nothing
    const int* tile_count;
    QuantizedWeights weight;    // [experts, n, k]; of gated results [experts, 2 n, k], gates over ups
    int n;                  // columns of `out`, a multiple of 8
    int k;                  // a multiple of 32
    int out_stride;
    int x_stride;           // a multiple of 8
    int slots_of_row;       // slots that read one row of x
    int activation;         // of gated results: `Activation`
};

constexpr int WARPS = 4;

template <class T>
__device__ inline float add_products(float sum, const Eight& a, const Eight& b) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 v = widen2<T>(a.pair[i]), w = widen2<T>(b.pair[i]);
        sum = fmaf(v.y, w.y, fmaf(v.x, w.x, sum));
    }
    return sum;
}

// The eight numbers of a row that a lane multiplies with its codes of the first or second half of a unit.
template <class T>
__device__ inline Eight load_x(const ExpertCodedParams<T>& p, const T* row, int unit, int half, int lane) {
    const int k = unit * 64 + half * 32 + lane % 4 * 8;
    return k < p.k ? load_eight(row + k) : Eight{};
}

// Grid [n / 8, slots], block [32 * WARPS].
template <class T, class Codes, bool GATED>
__device__ void expert_linear_quantized_few(const ExpertCodedParams<T>& p) {
    constexpr int PARTS = GATED ? 2 : 1;  // an octet of gates, and that of their ups
    __shared__ float sums[WARPS][PARTS][8];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, octet = blockIdx.x, slot = blockIdx.y;
    launch_dependents();
    grid_dependency_wait();
    const int expert = p.experts_of[slot], octets = p.n / 8, units = p.weight.units_of_row;
    const size_t unit_bytes = Codes::BYTES + 8 * p.weight.header_bytes;
    const T* const x = p.x + size_t(slot / p.slots_of_row) * p.x_stride;
    const uint8_t* at[PARTS];
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        at[part] = p.weight.units + ((size_t(expert) * PARTS + part) * octets + octet) * units * unit_bytes;
    }
    float sum[PARTS] = {};
#pragma unroll 2
    for (int unit = warp; unit < units; unit += WARPS) {
        const Eight first = load_x(p, x, unit, 0, lane), second = load_x(p, x, unit, 1, lane);
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            const uint8_t* const from = at[part] + unit * unit_bytes;
            const typename Codes::Lane codes = Codes::load(from, lane);
            const float4 s = scales_of_column(p.weight, from + Codes::BYTES + lane / 4 * p.weight.header_bytes);
            sum[part] = add_products<T>(sum[part], Codes::template numbers<T>(p.weight, codes, s, lane, 0), first);
            sum[part] = add_products<T>(sum[part], Codes::template numbers<T>(p.weight, codes, s, lane, 1), second);
        }
    }
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        sum[part] += __shfl_xor_sync(0xffffffffu, sum[part], 1);
        sum[part] += __shfl_xor_sync(0xffffffffu, sum[part], 2);
        if (lane % 4 == 0) sums[warp][part][lane / 4] = sum[part];
    }
    __syncthreads();
    if (threadIdx.x >= 8) return;
    const int column = octet * 8 + threadIdx.x;
    float total[PARTS] = {};
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
#pragma unroll
        for (int w = 0; w < WARPS; w++) total[part] += sums[w][part][threadIdx.x];
        if (p.bias) total[part] += p.bias[(size_t(expert) * PARTS + part) * p.n + column];
    }
    T* const to = p.out + size_t(slot) * p.out_stride + column;
    if constexpr (GATED) {
        const float gate = widen<T>(narrow<T>(total[0])), up = widen<T>(narrow<T>(total[1]));
        *to = narrow<T>(gated(p.activation, gate, up));
    } else {
        *to = narrow<T>(total[0]);
    }
}

// A thread block has 16 RT slots of a tile, and CT octets of columns.
//
// Grid [tiles at most, n / (8 CT) rounded up, slots of the largest tile / (16 RT)], block [32 * WARPS].
template <class T, int RT, int CT>
__device__ void expert_linear_quantized_tiled(const ExpertCodedParams<T>& p) {
    constexpr int SLOTS = 16 * RT, COLUMNS = 8 * CT;
    __shared__ float sums[WARPS][SLOTS][COLUMNS + 4];
    __shared__ int slots[SLOTS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    launch_dependents();
    grid_dependency_wait();
    if (blockIdx.x >= *p.tile_count) return;
    const int4 tile = reinterpret_cast<const int4*>(p.tiles)[blockIdx.x];
    const int expert = tile.x, first = blockIdx.z * SLOTS, count = min(tile.z - first, SLOTS);
    if (count <= 0) return;
    const int octets = p.n / 8, units = p.weight.units_of_row;
    // Rows beyond the last one are computed as the last one, and not stored.
    for (int i = threadIdx.x; i < SLOTS; i += blockDim.x) slots[i] = p.order[tile.y + first + min(i, count - 1)];
    __syncthreads();
    const size_t unit_bytes = p.weight.code_bytes + 8 * p.weight.header_bytes;
    const uint8_t* at[CT];
#pragma unroll
    for (int c = 0; c < CT; c++) {
        const int octet = min(int(blockIdx.y) * CT + c, octets - 1);
        at[c] = p.weight.units + (size_t(expert) * octets + octet) * units * unit_bytes;
    }
    const T* rows[2 * RT];
#pragma unroll
    for (int r = 0; r < 2 * RT; r++) rows[r] = p.x + size_t(slots[r * 8 + lane / 4] / p.slots_of_row) * p.x_stride;
    float sum[RT][CT][4] = {};
    for (int unit = warp; unit < units; unit += WARPS) {
        uint4 codes[CT];
        float4 s[CT];
#pragma unroll
        for (int c = 0; c < CT; c++) {
            const uint8_t* const from = at[c] + unit * unit_bytes;
            codes[c] = AnyBits::load(p.weight, from, lane);
            s[c] = scales_of_column(p.weight, from + p.weight.code_bytes + lane / 4 * p.weight.header_bytes);
        }
        Eight w[CT][2];
#pragma unroll
        for (int c = 0; c < CT; c++) AnyBits::numbers<T>(p.weight, codes[c], s[c], lane, w[c]);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            Eight x[2 * RT];
#pragma unroll
            for (int r = 0; r < 2 * RT; r++) x[r] = load_x(p, rows[r], unit, half, lane);
#pragma unroll
            for (int c = 0; c < CT; c++) {
#pragma unroll
                for (int t = 0; t < RT; t++) {
                    const Eight &a = x[2 * t], &b = x[2 * t + 1];
                    const uint32_t low[4] = {a.pair[0], b.pair[0], a.pair[1], b.pair[1]};
                    const uint32_t high[4] = {a.pair[2], b.pair[2], a.pair[3], b.pair[3]};
                    mma<T>(sum[t][c], low, w[c][half].pair[0], w[c][half].pair[1]);
                    mma<T>(sum[t][c], high, w[c][half].pair[2], w[c][half].pair[3]);
                }
            }
        }
    }
#pragma unroll
    for (int t = 0; t < RT; t++) {
#pragma unroll
        for (int c = 0; c < CT; c++) {
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float* const to = &sums[warp][t * 16 + e * 8 + lane / 4][c * 8 + lane % 4 * 2];
                *reinterpret_cast<float2*>(to) = make_float2(sum[t][c][2 * e], sum[t][c][2 * e + 1]);
            }
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < SLOTS * COLUMNS; i += blockDim.x) {
        const int row = i / COLUMNS, column = blockIdx.y * COLUMNS + i % COLUMNS;
        if (row >= count || column >= p.n) continue;
        float total = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) total += sums[w][row][i % COLUMNS];
        if (p.bias) total += p.bias[size_t(expert) * p.n + column];
        p.out[size_t(slots[row]) * p.out_stride + column] = narrow<T>(total);
    }
}

#define KERNEL(entry, function, dtype)                                                                                        \
    extern "C" __global__ void __launch_bounds__(32 * WARPS) entry##_##dtype(const __grid_constant__ ExpertCodedParams<dtype> p) { \
        function(p);                                                                                                          \
    }
#define FEW(name, codes, dtype)                                                                                           \
    KERNEL(nvllm_k_expert_linear_quantized_##name##_few, (expert_linear_quantized_few<dtype, codes, false>), dtype)       \
    KERNEL(nvllm_k_gated_expert_linear_quantized_##name##_few, (expert_linear_quantized_few<dtype, codes, true>), dtype)
#define KERNELS(dtype)                                                                                 \
    FEW(four, FourBits, dtype)                                                                         \
    FEW(table, TableBits, dtype)                                                                       \
    FEW(five, FiveBits, dtype)                                                                         \
    FEW(six, SixBits, dtype)                                                                           \
    FEW(eight, EightBits, dtype)                                                                       \
    FEW(float8, Float8, dtype)                                                                         \
    KERNEL(nvllm_k_expert_linear_quantized_t16, (expert_linear_quantized_tiled<dtype, 1, 4>), dtype)   \
    KERNEL(nvllm_k_expert_linear_quantized_t64, (expert_linear_quantized_tiled<dtype, 4, 2>), dtype)

KERNELS(bf16)
KERNELS(f16)

// Linear layers of experts over quantized weights. Contracts: src/compute/ops/expert_linear.rs, and src/compute/ops/gated_expert_linear.rs of gated
// results. Reference: src/compute/cpu/expert_linear.rs. Formats: common/quantized.cuh.
//
// Slots and tiles are those of expert_linear.cu. `expert_linear_quantized_few` for up to 8 tokens, memory-bound: common/expert_few.cuh.
//
// `expert_linear_quantized_tiled` for more. The lanes of a warp dequantize units as fragments of the tensor cores, so that weights never lie in shared
// memory as numbers. A warp has 32 columns, or 16 gates and their ups, and all slots of a tile: each weight is dequantized once in a tile. A result is
// one chain of tensor-core products in the order of k, whatever the tile around it.
#include "common/expert_few.cuh"
#include "common/quantized.cuh"

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
    int activation;         // of gated results: `Activation`; else -1
    int first_expert;       // number of the first expert whose weights are here
    int experts;            // whose weights are here: slots with others are left alone
};

// Where the units of an octet of columns of an expert begin. Columns beyond the last octet are computed as it is, and not stored.
template <class T>
__device__ inline const uint8_t* octet_at(const ExpertCodedParams<T>& p, int expert, int octet, bool is_up, size_t unit_bytes) {
    const int octets = p.n / 8, parts = p.activation >= 0 ? 2 : 1;
    return p.weight.units + ((size_t(expert) * parts + is_up) * octets + min(octet, octets - 1)) * p.weight.units_of_row * unit_bytes;
}

// The two octets of a thread block for few tokens.
template <class T, class Codes>
struct QuantizedRows {
    static constexpr int AHEAD = Codes::BYTES <= 256 ? 4 : Codes::BYTES <= 384 ? 3 : 2;
    // What is loaded: no branch stands between the loads of several pieces.
    struct Piece {
        typename Codes::Lane codes[2];
        uint2 headers[2];
    };
    struct Ready {
        typename Codes::Lane codes[2];
        float4 scales[2];
    };
    const QuantizedWeights& weight;
    const uint8_t* at[2];
    size_t unit_bytes;

    __device__ QuantizedRows(const ExpertCodedParams<T>& p, int expert, int first, bool is_gated) : weight(p.weight) {
        unit_bytes = Codes::BYTES + 8 * weight.header_bytes;
        at[0] = octet_at(p, expert, first / 8, false, unit_bytes);
        at[1] = octet_at(p, expert, is_gated ? first / 8 : first / 8 + 1, is_gated, unit_bytes);
    }

    __device__ Piece load(int piece) const {
        const int lane = threadIdx.x % 32;
        Piece loaded;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint8_t* const unit = at[i] + piece * unit_bytes;
            const uint8_t* const header = unit + Codes::BYTES + lane / 4 * weight.header_bytes;
            loaded.codes[i] = Codes::load(unit, lane);
            // The last four bytes are the first ones where a header has no more.
            loaded.headers[i].x = *reinterpret_cast<const uint32_t*>(header);
            loaded.headers[i].y = *reinterpret_cast<const uint32_t*>(header + weight.header_bytes - 4);
        }
        return loaded;
    }

    __device__ Ready prepare(const Piece& loaded) const {
        Ready ready;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            ready.codes[i] = loaded.codes[i];
            ready.scales[i] = scales_of_column(weight, reinterpret_cast<const uint8_t*>(&loaded.headers[i]));
        }
        return ready;
    }

    __device__ Eight rows(const Ready& ready, int row, int half) const {
        return Codes::template numbers<T>(weight, ready.codes[row], ready.scales[row], threadIdx.x % 32, half);
    }
};

constexpr int WARPS = 4, OCTETS = 4;  // of a warp

// Slots of a tile: 16 MT. Grid [columns / 128 or gated columns / 64, rounded up, tiles at most], block [32 * WARPS], shared [a stage has the slots' rows
// of 64 numbers, and the units of each warp].
template <class T, class Codes, int MT, int STAGES>
__device__ void expert_linear_quantized_tiled(const ExpertCodedParams<T>& p) {
    constexpr int SLOTS = 16 * MT, X_BYTES = SLOTS * 128, UNIT_MAX = Codes::BYTES + 64;
    constexpr int STAGE = X_BYTES + WARPS * OCTETS * UNIT_MAX, COPIES = (OCTETS * UNIT_MAX / 16 + 31) / 32;
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ int slots[SLOTS];
    launch_dependents();
    grid_dependency_wait();
    if (blockIdx.y >= *p.tile_count) return;
    const int4 tile = reinterpret_cast<const int4*>(p.tiles)[blockIdx.y];
    const int expert = tile.x - p.first_expert, count = tile.z;
    if (unsigned(expert) >= unsigned(p.experts)) return;
    for (int i = threadIdx.x; i < SLOTS; i += blockDim.x) slots[i] = p.order[tile.y + min(i, count - 1)];
    __syncthreads();

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const bool is_gated = p.activation >= 0;
    const int octets_of_warp = is_gated ? OCTETS / 2 : OCTETS, first_octet = (blockIdx.x * WARPS + warp) * octets_of_warp;
    const size_t unit_bytes = Codes::BYTES + 8 * p.weight.header_bytes;
    const int unit_chunks = int(unit_bytes) / 16, steps = p.weight.units_of_row;
    // Copies of 16 bytes: the units of a warp lie one behind the other.
    const uint8_t* from[COPIES];
#pragma unroll
    for (int j = 0; j < COPIES; j++) {
        const int i = min(lane + 32 * j, OCTETS * unit_chunks - 1), c = i / unit_chunks;
        const bool is_up = c >= octets_of_warp;
        from[j] = octet_at(p, expert, first_octet + (is_up ? c - octets_of_warp : c), is_up, unit_bytes) + i % unit_chunks * 16;
    }
    const T* rows[MT];
#pragma unroll
    for (int j = 0; j < MT; j++) rows[j] = p.x + size_t(slots[threadIdx.x / 8 + 16 * j] / p.slots_of_row) * p.x_stride;
    // A lane reads chunk `4 half + lane % 4` of row `lane / 4`: of two rows that are read together, one has its halves exchanged.
    const auto x_at = [](int row, int chunk) { return (row * 8 + (chunk ^ (row & 1) << 2)) * 16; };
    const auto issue = [&](int step) {
        if (step >= steps) return;
        uint8_t* const x = shared + step % STAGES * STAGE;
        uint8_t* const units = x + X_BYTES + warp * OCTETS * UNIT_MAX;
#pragma unroll
        for (int j = 0; j < COPIES; j++) {
            if (lane + 32 * j < OCTETS * unit_chunks) copy_async(shared_address(units + (lane + 32 * j) * 16), from[j] + step * unit_bytes);
        }
        const int chunk = threadIdx.x % 8, k = step * 64 + chunk * 8;
#pragma unroll
        for (int j = 0; j < MT; j++) {
            copy_async(shared_address(x + x_at(threadIdx.x / 8 + 16 * j, chunk)), k < p.k ? rows[j] + k : p.x, k < p.k ? 16 : 0);
        }
    };
    for (int step = 0; step < STAGES - 1; step++) {
        issue(step);
        commit_copies();
    }

    float sum[MT][OCTETS][4] = {};
    for (int step = 0; step < steps; step++) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();
        issue(step + STAGES - 1);
        commit_copies();
        const uint8_t* const x = shared + step % STAGES * STAGE;
        const uint8_t* const units = x + X_BYTES + warp * OCTETS * UNIT_MAX;
        typename Codes::Lane codes[OCTETS];
        float4 scales[OCTETS];
#pragma unroll
        for (int c = 0; c < OCTETS; c++) {
            const uint8_t* const unit = units + c * unit_bytes;
            codes[c] = Codes::load(unit, lane);
            scales[c] = scales_of_column(p.weight, unit + Codes::BYTES + lane / 4 * p.weight.header_bytes);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            Eight w[OCTETS];
#pragma unroll
            for (int c = 0; c < OCTETS; c++) w[c] = Codes::template numbers<T>(p.weight, codes[c], scales[c], lane, half);
#pragma unroll
            for (int t = 0; t < MT; t++) {
                const Eight a = *reinterpret_cast<const Eight*>(x + x_at(t * 16 + lane / 4, half * 4 + lane % 4));
                const Eight b = *reinterpret_cast<const Eight*>(x + x_at(t * 16 + 8 + lane / 4, half * 4 + lane % 4));
                const uint32_t low[4] = {a.pair[0], b.pair[0], a.pair[1], b.pair[1]};
                const uint32_t high[4] = {a.pair[2], b.pair[2], a.pair[3], b.pair[3]};
#pragma unroll
                for (int c = 0; c < OCTETS; c++) mma<T>(sum[t][c], low, w[c].pair[0], w[c].pair[1]);
#pragma unroll
                for (int c = 0; c < OCTETS; c++) mma<T>(sum[t][c], high, w[c].pair[2], w[c].pair[3]);
            }
        }
    }

    const float* const bias = p.bias ? p.bias + size_t(expert) * (is_gated ? 2 : 1) * p.n : nullptr;
    const auto biased = [&](float sum, int column) { return bias ? sum + bias[column] : sum; };
#pragma unroll
    for (int t = 0; t < MT; t++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = t * 16 + h * 8 + lane / 4;
            if (row >= count) continue;
            T* const out = p.out + size_t(slots[row]) * p.out_stride;
#pragma unroll
            for (int c = 0; c < OCTETS; c++) {
                const int column = (first_octet + c) * 8 + lane % 4 * 2;
                if (c >= octets_of_warp || column >= p.n) continue;
                float v[2];
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    v[e] = biased(sum[t][c][2 * h + e], column + e);
                    if (is_gated && c < OCTETS / 2) {
                        const float up = widen<T>(narrow<T>(biased(sum[t][c % (OCTETS / 2) + OCTETS / 2][2 * h + e], p.n + column + e)));
                        v[e] = gated(p.activation, widen<T>(narrow<T>(v[e])), up);
                    }
                }
                *reinterpret_cast<uint32_t*>(out + column) = narrow2<T>(v[0], v[1]);
            }
        }
    }
}

#define KERNEL(entry, function, blocks, dtype)                                                    \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, blocks)                              \
        nvllm_k_expert_linear_quantized_##entry##_##dtype(const __grid_constant__ ExpertCodedParams<dtype> p) { \
        function(p);                                                                              \
    }
#define VARIANTS(name, codes, dtype)                                                                        \
    KERNEL(name##_few, (expert_linear_few<dtype, QuantizedRows<dtype, codes>>), FEW_BLOCKS, dtype)          \
    KERNEL(name##_t16, (expert_linear_quantized_tiled<dtype, codes, 1, 5>), 4, dtype)                          \
    KERNEL(name##_t64, (expert_linear_quantized_tiled<dtype, codes, 4, 4>), 3, dtype)                          \
    KERNEL(name##_t128, (expert_linear_quantized_tiled<dtype, codes, 8, 3>), 2, dtype)
#define KERNELS(name, codes)     \
    VARIANTS(name, codes, bf16)  \
    VARIANTS(name, codes, f16)

KERNELS(four, FourBits)
KERNELS(table, TableBits)
KERNELS(five, FiveBits)
KERNELS(six, SixBits)
KERNELS(eight, EightBits)
KERNELS(float8, Float8)

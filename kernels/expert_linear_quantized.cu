// Linear layers of experts over quantized weights. Contracts: src/compute/ops/expert_linear.rs, and src/compute/ops/gated_expert_linear.rs of gated
// results. Reference: src/compute/cpu/expert_linear.rs. Formats: common/quantized.cuh.
//
// Slots and tiles are those of expert_linear.cu. `expert_linear_quantized_few` for up to 8 tokens, bound by instructions: common/expert_few.cuh. Codes become
// 16-bit numbers that are neither scaled nor freed of their zero, as in gemv_quantized.cu; docs/decisions/0134-experts-of-few-tokens-are-bound-by-instructions.md.
//
// `expert_linear_quantized_tiled` for more. The lanes of a warp dequantize units as fragments of the tensor cores, so that weights never lie in shared
// memory as numbers. A warp has 32 columns, or 16 gates and their ups, and all slots of a tile: each weight is dequantized once in a tile. Two octets of
// columns are the rows of a product, and slots its columns: what a lane reads of x is an operand as it is. A result is
// one chain of tensor-core products in the order of k, whatever the tile around it.
#include "common/expert_few.cuh"
#include "common/quantized_pairs.cuh"

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

// What is not read of a table, whose codes are dequantized.
struct TableScaled : TableBits {
    template <class T>
    static constexpr float over = 0.0f;
    template <class T>
    static constexpr float factor = 1.0f;
    template <class T>
    struct Held {};
    static constexpr bool CROSSED = false;
};
// Codes as pairs of numbers of T: those of common/quantized_pairs.cuh.
TableScaled scaled(TableBits);
FourScaled scaled(FourBits);
FiveScaled scaled(FiveBits);
SixScaled scaled(SixBits);
EightScaled scaled(EightBits);
Float8Scaled scaled(Float8);

// As FEW_BLOCKS; codes of more than four bits have more registers.
template <class Codes>
constexpr int few_blocks = Codes::BYTES == 256 ? FEW_BLOCKS : FEW_BLOCKS - 1;

// A header whose kind is known at run time.
constexpr int ANY_HEADER = -1;

// The two octets of a thread block for few tokens, in registers. What is the same for the numbers of a column, one lane decodes for all.
template <class T, class Codes, int HEADER, int HEADER_BYTES>
struct QuantizedRows {
    using Scaled = decltype(scaled(Codes{}));
    static constexpr bool HAS_TABLE = std::is_same_v<Codes, TableBits>, HAS_SIXTEENTHS = std::is_same_v<Codes, SixBits>;
    static constexpr int UNIT = Codes::BYTES + 8 * HEADER_BYTES, STEP = FEW_WARPS * UNIT;
    static constexpr int STAGES = Codes::BYTES <= 384 ? 4 : 2, RING_BYTES = 0;
    static constexpr bool ASKS_EARLY = false;
    struct Piece {
        typename Codes::Lane codes[2];
        // Of column `lane`; of sixteenths, those of columns `lane / 4` and 8 more.
        uint2 headers[HAS_SIXTEENTHS ? 2 : 1];
    };
    const QuantizedWeights& weight;
    const uint8_t* octets[2];  // from this warp's unit on
    const uint8_t* header;     // of column `lane % 16` there
    float4 (&scales)[2][FEW_ROWS];  // of the columns of a piece: scale and offset of the first 32 k, and of the second
    Piece ring[STAGES];

    __device__ QuantizedRows(const ExpertCodedParams<T>& p, uint8_t*, FewShared& fixed, int expert, int first, bool is_gated)
        : weight(p.weight), scales(fixed.scales[threadIdx.x / 32]) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        octets[0] = octet_at(p, expert, first / 8, false, UNIT) + warp * UNIT;
        octets[1] = octet_at(p, expert, is_gated ? first / 8 : first / 8 + 1, is_gated, UNIT) + warp * UNIT;
        header = (lane & 8 ? octets[1] : octets[0]) + Codes::BYTES + lane % 8 * HEADER_BYTES;
    }

    __device__ static bool knows_choice(const ExpertCodedParams<T>&) { return false; }

    __device__ static uint2 load_header(const uint8_t* at) {
        if constexpr (HEADER_BYTES == 8) return *reinterpret_cast<const uint2*>(at);
        const uint32_t word = *reinterpret_cast<const uint32_t*>(at);
        return make_uint2(word, word);
    }

    __device__ void load(int stage, int s, bool is_there) {
        if (!is_there) return;
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            ring[stage].codes[i] = Codes::load(octets[i] + s * STEP, lane);
            if constexpr (HAS_SIXTEENTHS) ring[stage].headers[i] = load_header(octets[i] + s * STEP + Codes::BYTES + lane / 4 * 8);
        }
        if constexpr (!HAS_SIXTEENTHS) ring[stage].headers[0] = load_header(header + s * STEP);
    }

    __device__ void advance() {
        octets[0] += STAGES * STEP;
        octets[1] += STAGES * STEP;
        header += STAGES * STEP;
    }

    __device__ float4 scales_of(uint2 header) const {
        if constexpr (HEADER == ANY_HEADER) return scales_of_column(weight, reinterpret_cast<const uint8_t*>(&header));
        else return scales_of_words<HEADER>(weight, header.x, header.y);
    }

    // Codes are multiplied as they are where 32 numbers of k have one scale, which multiplies their sum: `over` and the zero times the sum of x are taken
    // from it. Two buffers of scales take turns, so that one barrier of the warp is enough.
    __device__ void multiply(float (&sum)[4], int stage, const Eight (&x)[2]) const {
        const int lane = threadIdx.x % 32;
        const auto& codes = ring[stage].codes;
        float4 of_columns[2];
        WeightsOfColumn<T, SixScaled, SIXTEENTHS, 8> sixteenths[2];
        if constexpr (HAS_SIXTEENTHS) {
#pragma unroll
            for (int i = 0; i < 2; i++) sixteenths[i].load(reinterpret_cast<const uint8_t*>(&ring[stage].headers[i]), lane, false);
        } else {
            if (lane < FEW_ROWS) {
                const float4 s = scales_of(ring[stage].headers[0]);
                constexpr float FACTOR = 1.0f / (TWO_TO_24 * Scaled::template factor<T>), OVER_CODES = Scaled::template over<T>;
                float4& to = scales[stage % 2][lane];
                if (HAS_TABLE) to = s;
                else to = make_float4(s.x * FACTOR, fmaf(-OVER_CODES * FACTOR, s.x, s.y), s.z * FACTOR, fmaf(-OVER_CODES * FACTOR, s.z, s.w));
            }
            __syncwarp();
            of_columns[0] = scales[stage % 2][lane / 4];
            of_columns[1] = scales[stage % 2][lane / 4 + 8];
        }
        const typename Scaled::template Held<T> held{};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            Eight rows[2], v = x[half];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                if constexpr (HEADER == BF16S) {
                    rows[i] = e2m1_numbers<T>(half == 0 ? codes[i].x : codes[i].y, scale_of(of_columns[i], half) * (2.0f / TWO_TO_24));
                } else if constexpr (HAS_TABLE) {
                    rows[i] = Codes::template numbers<T>(weight, codes[i], of_columns[i], lane, half);
                } else {
                    Scaled::template pairs<T>(held, codes[i], half, rows[i].pair);
                }
                if constexpr (HAS_SIXTEENTHS) {
#pragma unroll
                    for (int j = 0; j < 4; j++) rows[i].pair[j] = sixteenths[i].weights(rows[i].pair[j], half);
                }
            }
            if constexpr (HAS_TABLE || HAS_SIXTEENTHS) {
                multiply_rows<T>(sum, rows[0], rows[1], v);
            } else {
                if (Scaled::CROSSED) v = crossed(v);
                // Of the tokens of a lane; each row of `x_sums` is the same.
                constexpr uint32_t ONE = IS_BF16<T> ? 0x3f803f80u : 0x3c003c00u;
                constexpr Eight ONES = {{ONE, ONE, ONE, ONE}};
                float products[4] = {}, x_sums[4] = {};
                multiply_rows<T>(products, rows[0], rows[1], v);
                multiply_rows<T>(x_sums, ONES, ONES, v);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float4& of = of_columns[i / 2];
                    sum[i] = fmaf(scale_of(of, half), products[i], fmaf(offset_of(of, half), x_sums[i % 2], sum[i]));
                }
            }
        }
    }
};

// The header that most files of a kind have is known when it is compiled.
template <class T, class Codes>
__device__ void expert_linear_quantized_few(const ExpertCodedParams<T>& p) {
    constexpr int COMMON = Codes::BYTES == SixBits::BYTES           ? SIXTEENTHS
                           : std::is_same_v<Codes, EightBits>       ? HALVES
                           : std::is_same_v<Codes, Float8>          ? FLOATS
                           : std::is_same_v<Codes, TableBits>       ? BF16S
                                                                    : K_BLOCKS;
    __shared__ FewShared fixed;
    constexpr int BYTES = COMMON == HALVES || COMMON == BF16S ? 4 : 8;
    if (COMMON == SIXTEENTHS || p.weight.header == COMMON) {
        expert_linear_few<T, QuantizedRows<T, Codes, COMMON, BYTES>>(p, fixed);
    } else if (p.weight.header_bytes == 4) {
        expert_linear_few<T, QuantizedRows<T, Codes, ANY_HEADER, 4>>(p, fixed);
    } else {
        expert_linear_few<T, QuantizedRows<T, Codes, ANY_HEADER, 8>>(p, fixed);
    }
}

constexpr int WARPS = 4, OCTETS = 4;  // of a warp

// What the lanes of a column multiply their codes with.
template <class T, class Codes>
struct TiledCodes {
    using Scaled = decltype(scaled(Codes{}));
    static constexpr bool HAS_SIXTEENTHS = std::is_same_v<Codes, SixBits>, HAS_OFFSET = !HAS_SIXTEENTHS && Scaled::ZERO != 0;
    static constexpr float OVER_ZERO = Scaled::template over<T> + Scaled::ZERO;
    // Two equal numbers each: scale and offset of the first 32 k and of the second, or four scales.
    using Column = uint4;
    typename Scaled::template Held<T> held{};

    static __device__ inline Column column(const float4& s) {
        constexpr float UNIT = 1.0f / TWO_TO_24, FACTOR = UNIT / Scaled::template factor<T>;
        if (HAS_SIXTEENTHS) return make_uint4(twice<T>(s.x * FACTOR), twice<T>(s.y * FACTOR), twice<T>(s.z * FACTOR), twice<T>(s.w * FACTOR));
        return make_uint4(twice<T>(s.x * FACTOR), twice<T>(fmaf(s.x, Scaled::ZERO * UNIT, s.y)), twice<T>(s.z * FACTOR), twice<T>(fmaf(s.z, Scaled::ZERO * UNIT, s.w)));
    }

    __device__ inline Eight numbers(const QuantizedWeights&, const typename Codes::Lane& codes, const Column& c, int lane, int half) const {
        Eight w;
        Scaled::template pairs<T>(held, codes, half, w.pair);
        const uint32_t first = half == 0 ? c.x : c.z, second = half == 0 ? c.y : c.w, scale = HAS_SIXTEENTHS && (lane & 2) ? second : first;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t centred = OVER_ZERO == 0 ? w.pair[i] : add_pair<T>(w.pair[i], twice<T>(-OVER_ZERO));
            w.pair[i] = HAS_OFFSET ? fma_pair<T>(centred, scale, second) : mul_pair<T>(centred, scale);
        }
        return Scaled::CROSSED ? crossed(w) : w;
    }
};
// Numbers of a table are scaled in f32.
template <class T>
struct TiledCodes<T, TableBits> {
    using Column = float4;
    static __device__ inline Column column(const float4& s) { return s; }
    __device__ inline Eight numbers(const QuantizedWeights& w, const uint2& codes, const Column& c, int lane, int half) const {
        return TableBits::numbers<T>(w, codes, c, lane, half);
    }
};

// Slots of a tile: 16 MT. Grid [columns / 128 or gated columns / 64, rounded up, tiles at most], block [32 * WARPS], shared [a stage has the slots' rows
// of 64 numbers, and the units of each warp].
template <class T, class Codes, int MT, int STAGES>
__device__ void expert_linear_quantized_tiled(const ExpertCodedParams<T>& p) {
    constexpr int SLOTS = 16 * MT, X_BYTES = SLOTS * 128, UNIT_MAX = Codes::BYTES + 64;
    constexpr int STAGE = X_BYTES + WARPS * OCTETS * UNIT_MAX, COPIES = (OCTETS * UNIT_MAX / 16 + 31) / 32;
    using Tiled = TiledCodes<T, Codes>;
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ int slots[SLOTS];
    __shared__ typename Tiled::Column columns[WARPS][8 * OCTETS];
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
    // Copies of 16 bytes: the units of a warp lie one behind the other, each octet of gates before that of their ups.
    const uint8_t* from[COPIES];
#pragma unroll
    for (int j = 0; j < COPIES; j++) {
        const int i = min(lane + 32 * j, OCTETS * unit_chunks - 1), c = i / unit_chunks;
        from[j] = octet_at(p, expert, first_octet + (is_gated ? c / 2 : c), is_gated && c % 2 == 1, unit_bytes) + i % unit_chunks * 16;
    }
    // In eights of numbers.
    uint32_t rows[MT];
#pragma unroll
    for (int j = 0; j < MT; j++) rows[j] = slots[threadIdx.x / 8 + 16 * j] / p.slots_of_row * (p.x_stride / 8);
    // A lane reads chunk `4 half + lane % 4` of row `lane / 4`: of two rows that are read together, one has its halves exchanged.
    const auto x_at = [](int row, int chunk) { return (row * 8 + (chunk ^ (row & 1) << 2)) * 16; };
    const uint32_t to_units = shared_address(shared) + X_BYTES + warp * OCTETS * UNIT_MAX + lane * 16;
    const uint32_t to_x = shared_address(shared) + x_at(threadIdx.x / 8, threadIdx.x % 8);
    int left = steps, eight = threadIdx.x % 8;
    const auto issue = [&](int at) {
        if (left-- <= 0) return;
#pragma unroll
        for (int j = 0; j < COPIES; j++) {
            if (lane + 32 * j < OCTETS * unit_chunks) copy_async(to_units + at + 512 * j, from[j]);
            from[j] += unit_bytes;
        }
#pragma unroll
        for (int j = 0; j < MT; j++) {
            const bool is_there = eight * 8 < p.k;
            copy_async(to_x + at + 2048 * j, p.x + (is_there ? size_t(rows[j] + eight) * 8 : 0), is_there ? 16 : 0);
        }
        eight += 8;
    };
    for (int step = 0; step < STAGES - 1; step++) {
        issue(step * STAGE);
        commit_copies();
    }

    const Tiled tiled;
    // A lane decodes the header of one of the warp's columns for all.
    const int header_of_lane = lane / 8 * int(unit_bytes) + Codes::BYTES + lane % 8 * p.weight.header_bytes;
    float sum[2 * MT][OCTETS / 2][4] = {};
    int at = 0, free_at = (STAGES - 1) * STAGE;
    for (int step = 0; step < steps; step++) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();
        issue(free_at);
        commit_copies();
        const uint8_t* const x = shared + at;
        const uint8_t* const units = x + X_BYTES + warp * OCTETS * UNIT_MAX;
        free_at = at;
        at = at == (STAGES - 1) * STAGE ? 0 : at + STAGE;
        columns[warp][lane] = Tiled::column(scales_of_column(p.weight, units + header_of_lane));
        __syncwarp();
        typename Codes::Lane codes[OCTETS];
        typename Tiled::Column scales[OCTETS];
#pragma unroll
        for (int c = 0; c < OCTETS; c++) {
            codes[c] = Codes::load(units + c * unit_bytes, lane);
            scales[c] = columns[warp][c * 8 + lane / 4];
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            Eight w[OCTETS];
#pragma unroll
            for (int c = 0; c < OCTETS; c++) w[c] = tiled.numbers(p.weight, codes[c], scales[c], lane, half);
#pragma unroll
            for (int t = 0; t < 2 * MT; t++) {
                const Eight v = *reinterpret_cast<const Eight*>(x + x_at(t * 8 + lane / 4, half * 4 + lane % 4));
#pragma unroll
                for (int c = 0; c < OCTETS / 2; c++) multiply_rows<T>(sum[t][c], w[2 * c], w[2 * c + 1], v);
            }
        }
    }

    // A lane has two slots of a column of each octet, and stores two columns of a slot.
    const float* const bias = p.bias ? p.bias + size_t(expert) * (is_gated ? 2 : 1) * p.n : nullptr;
#pragma unroll
    for (int c = 0; c < OCTETS / 2; c++) {
        const int octet = first_octet + (is_gated ? c : 2 * c), column = octet * 8 + lane / 4, second = is_gated ? p.n + column : column + 8;
        const float of_first = bias && column < p.n ? bias[column] : 0.0f;
        const float of_second = bias && (is_gated ? column : second) < p.n ? bias[second] : 0.0f;
#pragma unroll
        for (int t = 0; t < 2 * MT; t++) {
            const float (&v)[4] = sum[t][c];
            uint32_t low = narrow2<T>(v[0] + of_first, v[1] + of_first), high = narrow2<T>(v[2] + of_second, v[3] + of_second);
            if (is_gated) {
                const float2 gate = widen2<T>(low), up = widen2<T>(high);
                low = narrow2<T>(gated(p.activation, gate.x, up.x), gated(p.activation, gate.y, up.y));
            }
            low = transpose_matrix(low), high = transpose_matrix(high);
            const int row = t * 8 + lane / 4, first = octet * 8 + lane % 4 * 2;
            if (row >= count) continue;
            T* const to = p.out + size_t(slots[row]) * p.out_stride + first;
            if (first < p.n) *reinterpret_cast<uint32_t*>(to) = low;
            if (!is_gated && first + 8 < p.n) *reinterpret_cast<uint32_t*>(to + 8) = high;
        }
    }
}

#define KERNEL(entry, function, blocks, dtype)                                                    \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, blocks)                              \
        nvllm_k_expert_linear_quantized_##entry##_##dtype(const __grid_constant__ ExpertCodedParams<dtype> p) { \
        function(p);                                                                              \
    }
#define VARIANTS(name, codes, dtype)                                                                        \
    KERNEL(name##_few, (expert_linear_quantized_few<dtype, codes>), few_blocks<codes>, dtype)          \
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

// A linear layer for up to 16 tokens over quantized weights, with the scales on the sums. Contract: src/compute/ops/linear.rs, and
// src/compute/ops/gated_linear.rs where the results are gated. Reference: src/compute/cpu/linear.
//
// Memory-bound for 8 bits and one token; otherwise instructions are the limit. Codes become 16-bit numbers in less than one instruction per
// number, because they are neither scaled nor freed of their zero first: the bits of a code in those of 128 (bf16) or 1024 (f16) are the number
// `over + code`. For each 32 numbers of k, `over + zero` times the sum of x is where the tensor cores begin to add, and the scale of a column
// multiplies the sum. So weights are not rounded to T, and results differ from those of gemv_stream_quantized.cu in the last bits. Codes of 6 bits, with a
// scale for each 16 numbers, are the exception: they become weights in T.
//
// Thread blocks walk over tiles of 16 columns (two octets of units, common/quantized.cuh), which are the rows of the tensor cores' products; warps share
// out a slice of k in steps of NU units, each with a ring of copies under way. x is kept as fragments in shared memory, each warp its part. The
// parts of some tiles are added up together, in the order of the warps; where k has several slices, the last thread block of a tile adds these up in
// their order. All orders depend on the shape alone, and are the same for 1 to 8 tokens.
//
// A tile of a gated layer is an octet of gates and that of their ups, so that a thread block activates what it has added up.
#include "common/activation.cuh"
#include "common/quantized_pairs.cuh"
#include "common/dependent_launch.cuh"
#include "common/row_factors.cuh"
#include "common/tensor_core.cuh"

template <class T>
struct GemvQuantizedParams {
    T* out;                // [m, out_stride], at the first column
    const T* x;            // [m, x_stride]
    const float* bias;     // [n], or null; of gated results [2 n]
    const uint8_t* units;  // of n columns; of gated results those of n gates, then of n ups
    float* partial;        // [slices, m, n], if k has several slices
    int* arrived;          // [thread blocks of a slice], zero before and after
    RowNorms<T> norms;     // of up to 8 tokens
    float zero;            // of codes whose header has none
    int units_of_row;      // k / 64, rounded up: a multiple of NU
    int slices;
    int batch;             // tiles whose parts are added up together
    int m;                 // tokens
    int n;                 // columns of `out`: a multiple of 16, of gated results of 8
    int k;
    int out_stride;
    int x_stride;          // a multiple of 8
    int is_gated;          // k has one slice then
    int is_gelu_tanh;      // the activation of gated results, else SiLU
    int is_bf16;           // the type of a scale in WORDS
};

// c + a * b. Unlike `mma` it may be moved among other instructions.
template <class T>
__device__ inline void mma_onto(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, float c0, float c1, float c2, float c3);
template <>
__device__ inline void mma_onto<bf16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, float c0, float c1, float c2, float c3) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c0), "f"(c1), "f"(c2), "f"(c3));
}
template <>
__device__ inline void mma_onto<f16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, float c0, float c1, float c2, float c3) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c0), "f"(c1), "f"(c2), "f"(c3));
}

// Of a column's first and second 32 numbers: the scale, and what is added for each number of k.
template <int HEADER>
__device__ inline float4 scales_and_offsets(const uint8_t* header, [[maybe_unused]] bool is_bf16) {
    const uint32_t first = *reinterpret_cast<const uint32_t*>(header);
    if constexpr (HEADER == HALVES) {
        const float2 d = widen2<f16>(first);
        return make_float4(d.x, 0.0f, d.y, 0.0f);
    } else if constexpr (HEADER == K_BLOCKS) {
        const uint32_t second = *reinterpret_cast<const uint32_t*>(header + 4);
        const float2 d = widen2<f16>(first), s = widen2<f16>(__byte_perm(second, 0, 0x4240)), m = widen2<f16>(__byte_perm(second, 0, 0x4341));
        const float scale = d.x * TWO_TO_24, minimum = d.y * -TWO_TO_24;
        return make_float4(scale * s.x, minimum * m.x, scale * s.y, minimum * m.y);
    } else if constexpr (HEADER == WORDS) {
        const float scale = scale_of_word(first, is_bf16);
        const float offset = -scale * static_cast<float>(first >> 16 & 255);
        return make_float4(scale, offset, scale, offset);
    } else if constexpr (HEADER == SIXTEENTHS) {
        return make_float4(1.0f, 0.0f, 1.0f, 0.0f);
    } else {
        const float2 s = *reinterpret_cast<const float2*>(header);
        return make_float4(s.x, 0.0f, s.y, 0.0f);
    }
}

// Stores a sum, whose row of x is to be multiplied by `factor`. Of added results, all lanes of a warp call it.
template <class T>
__device__ inline void store_sum(const GemvQuantizedParams<T>& p, int token, int column, bool is_there, float sum, float factor, bool is_added,
                                 const Before& before) {
    const size_t at = size_t(token) * p.out_stride + column;
    const T result = narrow<T>(fmaf(sum, factor, p.bias && is_there ? p.bias[column] : 0.0f));
    if (is_added) add_number(p.norms, p.out, at, token, column, is_there, before, result);
    else if (is_there) p.out[at] = result;
}

// Whether a lane decodes the header of one column of a step for all that read it: K_BLOCKS takes 14 instructions. Kernels for more tokens have no room.
template <int HEADER, int NU, int TOKENS>
constexpr bool DECODES_ONCE = HEADER == K_BLOCKS && NU == 2 && TOKENS <= 8;

// Grid [slices * thread blocks], block [32 * warps], shared [warps * (STAGES * 2 NU units + columns + steps * 2 NU * EIGHTS * (x + sums) +
// 2 * batch * m * 64) bytes], with columns of 512 bytes if DECODES_ONCE, x of 512 bytes, or 64 for one token, and sums of 64 bytes with offsets and 32
// without.
template <class T, class Codes, int HEADER, int HEADER_BYTES, bool OFFSET, int TOKENS, int NU, int STAGES>
__device__ void gemv_quantized(const GemvQuantizedParams<T>& p) {
    constexpr int EIGHTS = (TOKENS + 7) / 8, X_LANES = TOKENS == 1 ? 4 : 32, SUM_FLOATS = OFFSET ? 4 : 2;
    constexpr int UNIT = Codes::BYTES + 8 * HEADER_BYTES, OCTET_STEP = NU * UNIT, STAGE = 2 * OCTET_STEP;
    constexpr int CHUNKS = OCTET_STEP / 16, ROUNDS = (2 * CHUNKS + 31) / 32;
    constexpr int FRAGMENTS = 2 * NU * EIGHTS;  // of x in a step
    extern __shared__ __align__(128) uint8_t shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int all_steps = p.units_of_row / NU, of_slice = (all_steps + p.slices - 1) / p.slices;
    const int slice = blockIdx.x % p.slices, place = blockIdx.x / p.slices, places = gridDim.x / p.slices;
    const int first_step = slice * of_slice, end_step = min(first_step + of_slice, all_steps);
    const int most = (of_slice + warps - 1) / warps;
    int steps = max(0, (end_step - first_step - warp + warps - 1) / warps);  // of this warp
    const int of_tile_octets = p.is_gated ? 1 : 2, tiles = p.n / (8 * of_tile_octets);
    const uint8_t* ring = shared + warp * STAGES * STAGE;
    uint8_t* at = shared + warps * STAGES * STAGE;
    float4* const of_columns = reinterpret_cast<float4*>(at) + warp * 32;  // of the units of a step
    if (DECODES_ONCE<HEADER, NU, TOKENS>) at += warps * 512;
    uint4* x_fragments = reinterpret_cast<uint4*>(at) + warp * most * FRAGMENTS * X_LANES;
    at += warps * most * FRAGMENTS * X_LANES * 16;
    float* sums = reinterpret_cast<float*>(at) + warp * most * FRAGMENTS * 4 * SUM_FLOATS;
    at += warps * most * FRAGMENTS * 4 * SUM_FLOATS * 4;
    float* parts = reinterpret_cast<float*>(at);  // [2, batch, warps, m, 16]
    __shared__ float factors[TOKENS];
    constexpr bool IS_FEW = TOKENS <= 8;
    const bool is_divided = !IS_FEW || !has_factors(p.norms), is_added = IS_FEW && p.norms.residual;
    launch_dependents();

    // The copies of a step: its units of one octet, then those of the next, or of the ups.
    const size_t octet_bytes = size_t(p.units_of_row) * UNIT, tile_bytes = of_tile_octets * octet_bytes;
    const uint32_t to_second = static_cast<uint32_t>(p.is_gated ? p.n / 8 * octet_bytes : octet_bytes);
    uint32_t copied_from[ROUNDS], ring_at = shared_address(ring) + lane * 16;
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        const int i = r * 32 + lane;
        copied_from[r] = i < CHUNKS ? i * 16 : to_second + (i - CHUNKS) * 16;
        keep(copied_from[r]);
    }
    int load_tile = place, load_left = steps, to_next_step = warps * OCTET_STEP;
    long long to_next_tile = static_cast<long long>(places * tile_bytes) - static_cast<long long>(steps) * to_next_step;
    const uint8_t* load_from = p.units + place * tile_bytes + size_t(first_step + warp) * OCTET_STEP;
    keep(ring_at), keep(to_next_step), keep(to_next_tile), keep(steps);
    const auto issue = [&](int offset) {
#pragma unroll
        for (int r = 0; r < ROUNDS; r++) {
            if (r * 32 + lane < 2 * CHUNKS) copy_async(ring_at + offset + r * 512, load_from + copied_from[r]);
        }
        load_from += to_next_step;
        if (--load_left == 0) {
            load_left = steps;
            load_tile += places;
            load_from += to_next_tile;
        }
    };
    for (int stage = 0; stage < STAGES - 1; stage++) {
        if (steps > 0 && load_tile < tiles) issue(stage * STAGE);
        commit_copies();
    }
    grid_dependency_wait();
    SquaresOfLane<4> squares;
    if (!is_divided && warp < p.m) squares = load_squares<4>(p.norms, warp);

    // x as fragments, and its sums over 32 numbers times what codes have too much.
    constexpr int AT_ONCE = NU < 4 ? 4 / NU : 1;
    const float too_much = HEADER == SIXTEENTHS ? 0.0f : OFFSET ? -Codes::template over<T> : -(Codes::template over<T> + p.zero);
    for (int first = 0; first < steps; first += AT_ONCE) {
        Eight x[AT_ONCE][2 * NU][EIGHTS];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
#pragma unroll
            for (int f = 0; f < FRAGMENTS; f++) {
                const int k = ((first_step + (first + j) * warps + warp) * NU * 2 + f / EIGHTS) * 32 + lane % 4 * 8;
                const int token = f % EIGHTS * 8 + lane / 4;
                const bool is_there = first + j < steps && token < p.m && k < p.k;
                x[j][f / EIGHTS][f % EIGHTS] = is_there ? load_eight(p.x + size_t(token) * p.x_stride + k) : Eight{};
            }
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            if (first + j >= steps) break;
#pragma unroll
            for (int f = 0; f < FRAGMENTS; f++) {
                const Eight v = x[j][f / EIGHTS][f % EIGHTS];
                float sum = 0.0f;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float2 two = widen2<T>(v.pair[i]);
                    sum += two.x + two.y;
                }
                sum += __shfl_xor_sync(0xffffffffu, sum, 1);
                sum += __shfl_xor_sync(0xffffffffu, sum, 2);
                const int fragment = (first + j) * FRAGMENTS + f;
                if (lane % 4 == 0) {
                    float* to = sums + (fragment * 4 + lane / 8) * SUM_FLOATS + lane / 4 % 2;
                    to[0] = too_much * sum * Codes::template factor<T>;
                    if (OFFSET) to[2] = sum;
                }
                const Eight pairs = Codes::CROSSED ? crossed(v) : v;
                if (lane < X_LANES) x_fragments[fragment * X_LANES + lane] = make_uint4(pairs.pair[0], pairs.pair[1], pairs.pair[2], pairs.pair[3]);
            }
        }
    }

    // The barrier of the first tiles follows.
    if (!is_divided) store_factors(p.norms, factors, p.m, p.k, squares);
    const typename Codes::template Held<T> held{};
    // With one token, all columns of the product are that token, and the first is stored.
    const auto place_of = [&](const void* at) { return static_cast<uint32_t>(static_cast<const uint8_t*>(at) - shared); };
    uint32_t ring_of_warp = place_of(ring), x_of_lane = place_of(x_fragments + lane % X_LANES), sums_of_lane = place_of(sums + lane % 4 * SUM_FLOATS);
    keep(ring_of_warp), keep(x_of_lane), keep(sums_of_lane);
    int set = 0, filled = 0, stage_at = 0, free_at = (STAGES - 1) * STAGE;
    for (int tile = place; tile < tiles; tile += places) {
        float total[EIGHTS][4] = {};
        uint32_t x_at = x_of_lane, sums_at = sums_of_lane;
        for (int step = 0; step < steps; step++) {
            wait_for_copies<STAGES - 2>();
            __syncwarp();
            if (load_tile < tiles) issue(free_at);
            commit_copies();
            const uint8_t *low = shared + ring_of_warp + stage_at, *high = low + OCTET_STEP;
            if constexpr (DECODES_ONCE<HEADER, NU, TOKENS>) {
                const uint8_t* const unit = (lane & 8 ? high : low) + lane / 16 * UNIT;
                of_columns[lane] = scales_and_offsets<HEADER>(unit + Codes::BYTES + lane % 8 * HEADER_BYTES, p.is_bf16);
                __syncwarp();
            }
#pragma unroll
            for (int u = 0; u < NU; u++) {
                const typename Codes::Lane codes[2] = {Codes::load(low + u * UNIT, lane), Codes::load(high + u * UNIT, lane)};
                const int header = u * UNIT + Codes::BYTES + lane / 4 * HEADER_BYTES;
                const auto of_octet = [&](const uint8_t* octet, int index) {
                    if constexpr (DECODES_ONCE<HEADER, NU, TOKENS>) return of_columns[u * 16 + index * 8 + lane / 4];
                    else return scales_and_offsets<HEADER>(octet + header, p.is_bf16);
                };
                const float4 first = of_octet(low, 0), second = of_octet(high, 1);
                uint32_t w[2][2][4];
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    Codes::template pairs<T>(held, codes[0], half, w[half][0]);
                    Codes::template pairs<T>(held, codes[1], half, w[half][1]);
                }
                // A product sums numbers of both 16: their scales cannot be applied to its sums.
                if constexpr (HEADER == SIXTEENTHS) {
#pragma unroll
                    for (int octet = 0; octet < 2; octet++) {
                        WeightsOfColumn<T, Codes, HEADER, HEADER_BYTES> column;
                        column.load((octet == 0 ? low : high) + header, lane, p.is_bf16);
#pragma unroll
                        for (int i = 0; i < 8; i++) w[i / 4][octet][i % 4] = column.weights(w[i / 4][octet][i % 4], i / 4);
                    }
                }
#pragma unroll
                for (int e = 0; e < EIGHTS; e++) {
                    float s[2][4], x_sums[2][2];
                    uint4 x[2];
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const int fragment = (u * 2 + half) * EIGHTS + e;
                        x[half] = *reinterpret_cast<const uint4*>(shared + x_at + fragment * X_LANES * 16);
                        const float* from = reinterpret_cast<const float*>(shared + sums_at) + fragment * 4 * SUM_FLOATS;
                        const float2 begin = *reinterpret_cast<const float2*>(from);
                        if (OFFSET) {
                            const float2 v = *reinterpret_cast<const float2*>(from + 2);
                            x_sums[half][0] = v.x, x_sums[half][1] = v.y;
                        }
                        const uint32_t a[4] = {w[half][0][0], w[half][1][0], w[half][0][1], w[half][1][1]};
                        mma_onto<T>(s[half], a, x[half].x, x[half].y, begin.x, begin.y, begin.x, begin.y);
                    }
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const uint32_t a[4] = {w[half][0][2], w[half][1][2], w[half][0][3], w[half][1][3]};
                        const float c[4] = {s[half][0], s[half][1], s[half][2], s[half][3]};
                        mma_onto<T>(s[half], a, x[half].z, x[half].w, c[0], c[1], c[2], c[3]);
                    }
#pragma unroll
                    for (int half = 0; half < 2; half++) {
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            const float4& of = i < 2 ? first : second;
                            const float scale = half == 0 ? of.x : of.z, offset = half == 0 ? of.y : of.w;
                            total[e][i] = fmaf(scale, s[half][i], total[e][i]);
                            if (OFFSET) total[e][i] = fmaf(offset, x_sums[half][i % 2], total[e][i]);
                        }
                    }
                }
            }
            x_at += FRAGMENTS * X_LANES * 16;
            sums_at += FRAGMENTS * 4 * SUM_FLOATS * 4;
            free_at = stage_at;
            stage_at = stage_at == (STAGES - 1) * STAGE ? 0 : stage_at + STAGE;
        }

        float* part = parts + ((set * p.batch + filled) * warps + warp) * p.m * 16;
#pragma unroll
        for (int e = 0; e < EIGHTS; e++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int token = e * 8 + lane % 4 * 2 + i % 2;
                if (token < p.m) part[token * 16 + lane / 4 + i / 2 * 8] = total[e][i] * (1.0f / Codes::template factor<T>);
            }
        }
        if (++filled < p.batch && tile + places < tiles) continue;
        const int of_tile = p.m * 16;
        // Of the number `i` of the tiles whose parts are added up: where it is.
        const auto column_of = [&](int i) { return (tile - (filled - 1 - i / of_tile) * places) * 16 + i % 16; };
        const auto before_of = [&](int i) {
            const int column = column_of(i);
            return load_before(p.norms, size_t(i % of_tile / 16) * p.out_stride + column, column, i < filled * of_tile);
        };
        Before before{};
        if (is_added && p.slices == 1) before = before_of(threadIdx.x);
        __syncthreads();
        const auto sum_of_warps = [&](int tile_of_batch, int at) {
            const float* from = parts + (set * p.batch + tile_of_batch) * warps * of_tile + at;
            float sum = 0.0f;
#pragma unroll 8
            for (int w = 0; w < warps; w++) sum += from[w * of_tile];
            return sum;
        };
        if (p.is_gated) {
            for (int i = threadIdx.x; i < filled * p.m * 8; i += blockDim.x) {
                const int j = i / 8 / p.m, token = i / 8 % p.m, column = (tile - (filled - 1 - j) * places) * 8 + i % 8;
                const auto total = [&](int side) {
                    const float sum = sum_of_warps(j, token * 16 + side * 8 + i % 8);
                    return widen<T>(narrow<T>(fmaf(sum, is_divided ? 1.0f : factors[token], p.bias ? p.bias[side * p.n + column] : 0.0f)));
                };
                const float gate = total(0), exponent = p.is_gelu_tanh ? GeluTanh::exponent(gate) : Silu::exponent(gate);
                p.out[size_t(token) * p.out_stride + column] = narrow<T>(activate_mul(gate, exponent, total(1)));
            }
        }
        // All of a warp go on: eight lanes have an eight of one token.
        for (int i = threadIdx.x; !p.is_gated && i / 32 * 32 < filled * of_tile; i += blockDim.x) {
            const bool is_there = i < filled * of_tile;
            const float sum = is_there ? sum_of_warps(i / of_tile, i % of_tile) : 0.0f;
            const int token = i % of_tile / 16, column = column_of(i);
            if (p.slices > 1) {
                if (is_there) p.partial[(size_t(slice) * p.m + token) * p.n + column] = sum;
            } else {
                if (is_added && i >= blockDim.x) before = before_of(i);
                store_sum(p, token, column, is_there, sum, is_divided ? 1.0f : factors[token], is_added, before);
            }
        }
        // Two sets of parts take turns, so that one barrier is enough.
        set ^= 1;
        filled = 0;
    }
    if (p.slices == 1) return;

    // All thread blocks of a place have the same tiles. The last one adds up the slices.
    __shared__ int count;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) count = atomicAdd(p.arrived + place, 1);
    __syncthreads();
    if (count != p.slices - 1) return;
    __threadfence();
    const int columns = (tiles - place + places - 1) / places * 16;
    for (int i = threadIdx.x; i / 32 * 32 < p.m * columns; i += blockDim.x) {
        const int token = i / columns, c = i % columns, column = (place + c / 16 * places) * 16 + c % 16;
        const bool is_there = i < p.m * columns;
        Before before{};
        if (is_added) before = load_before(p.norms, size_t(token) * p.out_stride + column, column, is_there);
        float sum = 0.0f;
        for (int s = 0; s < p.slices && is_there; s++) sum += __ldcg(p.partial + (size_t(s) * p.m + token) * p.n + column);
        store_sum(p, token, column, is_there, sum, is_divided || !is_there ? 1.0f : factors[token], is_added, before);
    }
    if (threadIdx.x == 0) p.arrived[place] = 0;
}

#define KERNEL(name, codes, header, bytes, offset, tokens, nu, stages, dtype)                                                     \
    extern "C" __global__ void __launch_bounds__(512)                                                                             \
        nvllm_k_gemv_quantized_##name##_m##tokens##_##dtype(const __grid_constant__ GemvQuantizedParams<dtype> p) {                 \
        gemv_quantized<dtype, codes, header, bytes, offset, tokens, nu, stages>(p);                                                \
    }
#define KERNELS(name, codes, header, bytes, offset, nu, stages)       \
    KERNEL(name, codes, header, bytes, offset, 1, nu, stages, bf16)   \
    KERNEL(name, codes, header, bytes, offset, 1, nu, stages, f16)    \
    KERNEL(name, codes, header, bytes, offset, 8, nu, stages, bf16)   \
    KERNEL(name, codes, header, bytes, offset, 8, nu, stages, f16)    \
    KERNEL(name, codes, header, bytes, offset, 16, nu, stages, bf16)  \
    KERNEL(name, codes, header, bytes, offset, 16, nu, stages, f16)

KERNELS(four_halves, FourScaled, HALVES, 4, false, 4, 3)
KERNELS(four_k_blocks, FourScaled, K_BLOCKS, 8, true, 2, 4)
KERNELS(four_words, FourScaled, WORDS, 4, true, 2, 3)
KERNELS(five_k_blocks, FiveScaled, K_BLOCKS, 8, true, 2, 3)
KERNELS(six_sixteenths, SixScaled, SIXTEENTHS, 8, false, 2, 3)
KERNELS(eight_halves, EightScaled, HALVES, 4, false, 2, 3)
KERNELS(eight_words, EightScaled, WORDS, 4, true, 2, 3)
KERNELS(float8_words, Float8Scaled, WORDS, 4, false, 2, 3)
KERNELS(float8_floats, Float8Scaled, FLOATS, 8, false, 2, 3)

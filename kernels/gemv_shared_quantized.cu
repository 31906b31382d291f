// A linear layer of up to 8 tokens over quantized weights that shared memory holds all at once. Contract: src/compute/ops/linear.rs, and
// src/compute/ops/gated_linear.rs where the results are gated. Reference: src/compute/cpu/linear.
//
// Bound by latency. gemv_shared.cu with units of quantized weights (common/quantized.cuh) in shared memory: the copies begin with the thread block, and most
// weights are fragments in registers before the kernels that compute x have ended. A weight is that of dequantize_weights.cu: scale, zero and minimum in
// f32, rounded once to T. The sums of the warps are added in their order, which is the same for 1 to 8 tokens.
#include "common/activation.cuh"
#include "common/quantized.cuh"
#include "common/dependent_launch.cuh"
#include "common/linear.cuh"
#include "common/warpgroup.cuh"

template <class T>
struct GemvSharedQuantizedParams {
    T* out;              // [m, out_stride], at the first column
    const T* x;          // [m, x_stride]
    const float* bias;   // [n], or null; of gated results [2 n]
    QuantizedWeights weight;  // of n columns; of gated results those of n gates, then of n ups
    RowNorms<T> norms;
    int m;               // tokens, at most 8
    int n;               // columns of `out`; of gated results a multiple of 8
    int k;               // a multiple of 8
    int out_stride;
    int x_stride;        // a multiple of 8
    int is_gated;
    int is_gelu_tanh;    // the activation of gated results, else SiLU
};

constexpr int DEPTH = 64, BARRIER_BYTES = 128, FACTORS_AT = 64;

// A thread block has OCTETS times 8 columns of weights; of gated results, the second half are the ups of the first half. STEPS: units of k of each
// warp, at most. A tile is two octets of a unit; EARLY: how many of a warp's become fragments before the wait. Two thread blocks share the registers of a
// multiprocessor.
//
// Grid [at least the thread blocks that have columns], block [32 * warps],
// shared [BARRIER_BYTES + OCTETS * units of a row * unit + warps * m * (8 OCTETS + 2) * 4 bytes].
template <class T, class Codes, int HEADER, int HEADER_BYTES, int OCTETS, int STEPS, int EARLY>
__device__ void gemv_shared_quantized(const GemvSharedQuantizedParams<T>& p) {
    constexpr int PAIRS = (OCTETS + 1) / 2, PART = OCTETS * 8 + 2;
    // Where registers are short, what the norms need is loaded when the products are there.
    constexpr bool IS_LATE = STEPS == 4;
    extern __shared__ __align__(128) uint8_t shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    constexpr int UNIT = Codes::BYTES + 8 * HEADER_BYTES;
    const int units = p.weight.units_of_row, octet_bytes = units * UNIT;
    const int of_block = p.is_gated ? OCTETS / 2 : OCTETS, octets = (p.n + 7) / 8, first = blockIdx.x * of_block;
    const uint32_t full = shared_address(shared);
    uint8_t* weights = shared + BARRIER_BYTES;                                   // [OCTETS, units, UNIT]
    float* parts = reinterpret_cast<float*>(weights + OCTETS * octet_bytes);  // [warps, m, PART]
    float* factors = reinterpret_cast<float*>(shared + FACTORS_AT);              // [8]
    const bool is_divided = !has_factors(p.norms), is_added = p.norms.residual;
    launch_dependents();
    // One of those that only keep a multiprocessor.
    if (first >= octets) {
        grid_dependency_wait();
        return;
    }

    const int there = min(of_block, octets - first);
    if (warp == 0) {
        if (lane == 0) {
            barrier_init(full, 1);
            fence_barrier_init();
            barrier_expect(full, (p.is_gated ? 2 : 1) * there * octet_bytes);
        }
        __syncwarp();
        const int half = lane / of_block, octet = lane % of_block;
        if (octet < there && half <= p.is_gated) {
            copy_row(shared_address(weights) + (half * of_block + octet) * octet_bytes,
                       p.weight.units + size_t(half * octets + first + octet) * octet_bytes, octet_bytes, full);
        }
    }
    __syncthreads();
    // The octets of a pair of tiles: a gate beside its up, or two that follow each other.
    const auto octet_of = [&](int pair, int side) { return p.is_gated ? side * of_block + pair : 2 * pair + side; };
    const auto load_unit = [&](Eight (&to)[2], int octet, int step) {
        const int unit = step * warps + warp;
        if (octet >= OCTETS || unit >= units) {
            to[0] = to[1] = Eight{};
            return;
        }
        const uint8_t* at = weights + octet * octet_bytes + unit * UNIT;
        const uint32_t* header = reinterpret_cast<const uint32_t*>(at + Codes::BYTES + lane / 4 * HEADER_BYTES);
        const float4 scales = scales_of_words<HEADER>(p.weight, header[0], header[HEADER_BYTES / 4 - 1]);
        const typename Codes::Lane codes = Codes::load(at, lane);
        to[0] = Codes::template numbers<T>(p.weight, codes, scales, lane, 0);
        to[1] = Codes::template numbers<T>(p.weight, codes, scales, lane, 1);
    };
    Eight early[EARLY][2][2];
    barrier_wait(full, 0);
#pragma unroll
    for (int i = 0; i < EARLY * 2; i++) load_unit(early[i / 2][i % 2], octet_of(i / 2 % PAIRS, i % 2), i / 2 / PAIRS);
    grid_dependency_wait();
    const int token = lane / 4;
    Eight x[STEPS][2];
#pragma unroll
    for (int i = 0; i < 2 * STEPS; i++) {
        const int k = (i / 2 * warps + warp) * DEPTH + i % 2 * 32 + lane % 4 * 8;
        x[i / 2][i % 2] = token < p.m && k < p.k ? load_eight_of_pass(p.x + size_t(token) * p.x_stride + k) : Eight{};
    }
    SquaresOfLane<1> squares;
    if (!IS_LATE && !is_divided && warp < p.m) squares = load_squares<1>(p.norms, warp);
    // Of the number `i` that this thread block stores.
    const int columns = of_block * 8;
    const auto before_of = [&](int i) {
        const int column = first * 8 + i % columns;
        return load_before(p.norms, size_t(i / columns) * p.out_stride + column, column, i < p.m * columns && column < p.n);
    };
    Before before{};
    if (!IS_LATE && is_added) before = before_of(threadIdx.x);
    float sum[PAIRS][4] = {};
#pragma unroll
    for (int i = 0; i < STEPS * PAIRS; i++) {
        const int step = i / PAIRS, t = i % PAIRS;
        Eight late[2][2];
        if (i >= EARLY) {
#pragma unroll
            for (int side = 0; side < 2; side++) load_unit(late[side], octet_of(t, side), step);
        }
        const auto& rows = i < EARLY ? early[i < EARLY ? i : 0] : late;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const Eight &a = rows[0][half], &b = rows[1][half], &numbers = x[step][half];
            const uint32_t low[4] = {a.pair[0], b.pair[0], a.pair[1], b.pair[1]};
            const uint32_t high[4] = {a.pair[2], b.pair[2], a.pair[3], b.pair[3]};
            mma<T>(sum[t], low, numbers.pair[0], numbers.pair[1]);
            mma<T>(sum[t], high, numbers.pair[2], numbers.pair[3]);
        }
    }

    if (IS_LATE && is_added) before = before_of(threadIdx.x);
    float* part = parts + warp * p.m * PART;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const int of_token = lane % 4 * 2 + e;
        if (of_token < p.m) {
#pragma unroll
            for (int t = 0; t < PAIRS; t++) {
#pragma unroll
                for (int side = 0; side < 2; side++) {
                    const int octet = octet_of(t, side);
                    if (octet < OCTETS) part[of_token * PART + octet * 8 + lane / 4] = sum[t][2 * side + e];
                }
            }
        }
    }
    if (IS_LATE && !is_divided && warp < p.m) squares = load_squares<1>(p.norms, warp);
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
    for (int i = threadIdx.x; is_added && i / 32 * 32 < p.m * columns; i += blockDim.x) {
        const int of_token = i / columns, column = first * 8 + i % columns;
        const bool is_there = i < p.m * columns && column < p.n;
        if (i >= blockDim.x) before = before_of(i);
        const T delta = is_there ? total(of_token, i % columns, column) : T{};
        add_number(p.norms, p.out, size_t(of_token) * p.out_stride + column, of_token, column, is_there, before, delta);
    }
    for (int i = threadIdx.x; !is_added && i < p.m * columns; i += blockDim.x) {
        const int of_token = i / columns, c = i % columns, column = first * 8 + c;
        if (column >= p.n) continue;
        T* to = p.out + size_t(of_token) * p.out_stride + column;
        if (p.is_gated) {
            const float gate = widen<T>(total(of_token, c, column)), up = widen<T>(total(of_token, columns + c, p.n + column));
            *to = narrow<T>(activate_mul(gate, p.is_gelu_tanh ? GeluTanh::exponent(gate) : Silu::exponent(gate), up));
        } else {
            *to = total(of_token, c, column);
        }
    }
}

#define KERNEL(name, codes, header, bytes, octets, steps, early, dtype)                                                              \
    extern "C" __global__ void __launch_bounds__(512, 2)                                                                             \
        nvllm_k_gemv_shared_quantized_##name##_o##octets##_s##steps##_##dtype(const __grid_constant__ GemvSharedQuantizedParams<dtype> p) { \
        gemv_shared_quantized<dtype, codes, header, bytes, octets, steps, early>(p);                                                  \
    }
#define VARIANTS(name, codes, header, bytes, dtype)      \
    KERNEL(name, codes, header, bytes, 1, 4, 2, dtype)   \
    KERNEL(name, codes, header, bytes, 2, 2, 1, dtype)   \
    KERNEL(name, codes, header, bytes, 4, 1, 2, dtype)   \
    KERNEL(name, codes, header, bytes, 4, 2, 2, dtype)   \
    KERNEL(name, codes, header, bytes, 6, 1, 2, dtype)
#define KERNELS(name, codes, header, bytes)      \
    VARIANTS(name, codes, header, bytes, bf16)   \
    VARIANTS(name, codes, header, bytes, f16)

KERNELS(four_halves, FourBits, HALVES, 4)
KERNELS(four_k_blocks, FourBits, K_BLOCKS, 8)
KERNELS(four_words, FourBits, WORDS, 4)
KERNELS(five_k_blocks, FiveBits, K_BLOCKS, 8)
KERNELS(six_sixteenths, SixBits, SIXTEENTHS, 8)
KERNELS(eight_halves, EightBits, HALVES, 4)
KERNELS(eight_words, EightBits, WORDS, 4)
KERNELS(float8_words, Float8, WORDS, 4)
KERNELS(float8_floats, Float8, FLOATS, 8)

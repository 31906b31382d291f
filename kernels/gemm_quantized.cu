// A linear layer over quantized weights on compute capability 9.0, for 9 and more tokens, and for fewer where gemv_quantized.cu does not serve k. Contract: src/compute/ops/linear.rs, and
// src/compute/ops/gated_linear.rs where the results are gated. Reference: src/compute/cpu/linear.
//
// Bound by memory for 8 bits and 16 tokens, by instructions up to about 64 tokens, then by the tensor cores and shared memory. As in
// gemm_swap_ab.cu, weights are the 64 rows of a warpgroup's product and tokens are its N columns. Here the weights come from registers: each warp
// decodes the units of its 16 columns (common/quantized.cuh), whose lanes hold what a fragment holds, while the tensor cores multiply those before.
//
// A weight is `(code - zero) * scale` or `(code - zero) * scale + offset` in 16-bit arithmetic: `code - zero` is exact, scale and offset are
// rounded to T, and the result is rounded once. A lane of a unit has eight numbers in sequence, a lane of a fragment four pairs that lie eight
// apart: rows of x are therefore rearranged in shared memory, 32 numbers at a time, by warps that do nothing else. With more than 256 tokens that would
// take the throughput of shared memory that the tensor cores need: x is rearranged once in global memory then.
//
// A warp of a gated layer has 8 gates and their ups, whose sums lie in the same lane.
//
// `split` thread blocks of a cluster divide k as in gemm_swap_ab.cu. A result depends on its row, on k and on `split` only.
#include "common/activation.cuh"
#include "common/cluster.cuh"
#include "common/quantized_pairs.cuh"
#include "common/dependent_launch.cuh"
#include "common/warpgroup.cuh"

template <class T>
struct GemmQuantizedParams {
    TensorMap codes;    // [octets, units of a row * unit / 8] of 8 bytes: boxes of `columns` / 8 octets, of gated results half of them, by UNITS units
    TensorMap x;        // boxes of TOKENS by UNITS * 64 k
    T* out;             // [m, out_stride], at the first column
    const float* bias;  // [n], or null; of gated results [2 n]
    int m;              // tokens
    int n;              // columns of `out`; of gated results a multiple of 8, and weights are n gates over n ups
    int units_of_row;   // k / 64, rounded up
    int out_stride;
    int stages;         // of the ring, at most STAGES_MAX
    int split;          // at most SPLIT_MAX
    int is_gated;
    int is_gelu_tanh;   // the activation of gated results, else SiLU
    int is_arranged;    // rows of x are those of arrange_rows
    int is_bf16;        // the type of a scale in WORDS
};

template <class T>
struct ArrangeRowsParams {
    T* out;       // [m, k]
    const T* x;   // [m, x_stride]
    int m;        // tokens
    int k;        // a multiple of 32
    int x_stride;  // a multiple of 8
    int is_crossed;
};

// Of 32 numbers of a row in four times eight, chunk i becomes the i-th pair of each. A pair of `is_crossed` codes is (0, 2), (1, 3), (4, 6) or (5, 7).
__device__ inline void arrange(Eight (&x)[4], bool is_crossed) {
#pragma unroll
    for (int c = 0; c < 4; c++) {
        const Eight v = x[c];
        if (is_crossed) x[c] = crossed(v);
    }
    const Eight v[4] = {x[0], x[1], x[2], x[3]};
#pragma unroll
    for (int c = 0; c < 4; c++) x[c] = Eight{{v[0].pair[c], v[1].pair[c], v[2].pair[c], v[3].pair[c]}};
}

// Grid [m * k / 32 / 256 rounded up], block [256]: 32 numbers a thread.
template <class T>
__device__ void arrange_rows(const ArrangeRowsParams<T>& p) {
    launch_dependents();
    grid_dependency_wait();
    const int groups = p.k / 32;
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x, row = i / groups;
    if (row >= size_t(p.m)) return;
    const size_t group = i % groups;
    const T* from = p.x + row * p.x_stride + group * 32;
    T* to = p.out + row * p.k + group * 32;
    Eight x[4];
#pragma unroll
    for (int c = 0; c < 4; c++) x[c] = load_eight(from + c * 8);
    arrange(x, p.is_crossed);
#pragma unroll
    for (int c = 0; c < 4; c++) store_eight(to + c * 8, x[c]);
}

constexpr int STAGES_MAX = 16, SPLIT_MAX = 8;
constexpr int HELPERS = 3;  // warps that rearrange x; with the one that copies they are a warpgroup
constexpr int BARRIER_BYTES = 1024;

// Grid [places * split], cluster [split], block [32 * (columns / 16 + 1 + HELPERS)], shared [BARRIER_BYTES + stages * stage], with a stage of
// columns / 8 * UNITS units, rounded up to 1,024 bytes, and UNITS * TOKENS * 128 bytes. Thread blocks walk over tiles. If k is split, there is a place for
// each tile, the ring has room for columns * TOKENS * 4 bytes, and (split - 1) * ceil(columns / 16 * TOKENS / 8 / split) * 512 bytes follow it.
// Of more than one step the ring holds at least two.
template <class T, class Codes, int HEADER, int HEADER_BYTES, int TOKENS, int UNITS, int GROUP>
__device__ void gemm_quantized(const GemmQuantizedParams<T>& p) {
    constexpr int UNIT = Codes::BYTES + 8 * HEADER_BYTES, X_BYTES = UNITS * TOKENS * 128;
    constexpr bool IS_ARRANGED = TOKENS == 256;  // all rows of x are
    extern __shared__ __align__(1024) uint8_t shared[];
    const int lane = threadIdx.x % 32, warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    const int consumers = blockDim.x / 32 - 1 - HELPERS, columns = consumers * 16;
    const int codes_bytes = (columns / 8 * UNITS * UNIT + 1023) / 1024 * 1024, stage_bytes = codes_bytes + X_BYTES;
    const uint32_t first_bytes = shared_address(shared);
    const uint32_t full = first_bytes, x_full = full + 8 * STAGES_MAX, x_ready = x_full + 8 * STAGES_MAX, empty = x_ready + 8 * STAGES_MAX;
    const uint32_t received = empty + 8 * STAGES_MAX, ring = first_bytes + BARRIER_BYTES, inbox = ring + max(p.stages * stage_bytes, columns * TOKENS * 4);
    const int split = p.split, part = cluster_rank(), place = blockIdx.x / split, places = gridDim.x / split;
    const int token_tiles = (p.m + TOKENS - 1) / TOKENS, outputs = p.is_gated ? columns / 2 : columns;
    const int tiles = (p.n + outputs - 1) / outputs * token_tiles;
    // Of 16 columns by 8 tokens, which a warp holds in four registers; those that this thread block stores.
    const int fragments = TOKENS / 8 * consumers, first_fragment = fragments * part / split, end_fragment = fragments * (part + 1) / split;
    launch_dependents();

    if (threadIdx.x == 0) {
        for (int i = 0; i < p.stages; i++) {
            barrier_init(full + 8 * i, 1);
            barrier_init(x_full + 8 * i, 1);
            barrier_init(x_ready + 8 * i, HELPERS);
            barrier_init(empty + 8 * i, consumers);
        }
        barrier_init(received, 1);
        fence_barrier_init();
        if (split > 1) barrier_expect(received, (end_fragment - first_fragment) * 512 * (split - 1));
    }
    __syncthreads();
    if (split > 1) cluster_arrive();

    // k is divided in units of 128 for all kernels of this file, so that their results have the same bits.
    const int pairs = (p.units_of_row + 1) / 2;
    const int first_step = pairs * part / split * (2 / UNITS), steps = pairs * (part + 1) / split * (2 / UNITS) - first_step;
    const int all_steps = (tiles - place + places - 1) / places * steps;

    // Sums of 256 tokens take 128 registers of each thread that multiplies.
    if (warp >= consumers) {
        if constexpr (IS_ARRANGED) decrease_registers<40>();
        if (warp == consumers) {
            if (elect_lane()) {
                int codes_step = 0, codes_octet = place / token_tiles * (outputs / 8), codes_tile = place;
                const auto copy_codes = [&](int slot) {
                    const int from = (first_step + codes_step) * UNITS * UNIT / 8;
                    const uint32_t to = ring + slot * stage_bytes;
                    barrier_expect(full + 8 * slot, columns / 8 * UNITS * UNIT);
                    copy_flat_box(to, &p.codes, from, codes_octet, full + 8 * slot, EVICT_FIRST);
                    // The last box of gates may have ups behind it, which are not multiplied to anything that is stored.
                    if (p.is_gated) copy_flat_box(to + outputs / 8 * UNITS * UNIT, &p.codes, from, p.n / 8 + codes_octet, full + 8 * slot, EVICT_FIRST);
                    if (++codes_step == steps) {
                        codes_step = 0;
                        codes_tile += places;
                        codes_octet = codes_tile / token_tiles * (outputs / 8);
                    }
                };
                int x_step = 0, x_tile = place;
                const auto copy_x = [&](int slot) {
                    barrier_expect(x_full + 8 * slot, X_BYTES);
                    copy_box(ring + slot * stage_bytes + codes_bytes, &p.x, x_tile % token_tiles * TOKENS, (first_step + x_step) * UNITS,
                             x_full + 8 * slot, EVICT_NORMAL);
                    if (++x_step == steps) {
                        x_step = 0;
                        x_tile += places;
                    }
                };
                const int early = min(all_steps, p.stages);
                for (int step = 0; step < early; step++) copy_codes(step);
                prefetch_map(&p.x);
                grid_dependency_wait();
                fence_async_global();
                for (int step = 0; step < early; step++) copy_x(step);
                int slot = 0;
                uint32_t parity = 0;
                for (int step = early; step < all_steps; step++) {
                    barrier_wait(empty + 8 * slot, parity);
                    copy_codes(slot);
                    copy_x(slot);
                    if (++slot == p.stages) slot = 0, parity ^= 1;
                }
            }
        } else {
            int slot = 0;
            uint32_t parity = 0;
            for (int step = 0; step < (IS_ARRANGED || p.is_arranged ? 0 : all_steps); step++) {
                barrier_wait(x_full + 8 * slot, parity);
                uint8_t* at = shared + BARRIER_BYTES + slot * stage_bytes + codes_bytes;
#pragma unroll 2
                for (int i = (warp - consumers - 1) * 32 + lane; i < UNITS * 2 * TOKENS; i += HELPERS * 32) {
                    const int row = i % TOKENS, group = i / TOKENS;
                    uint4* to[4];
                    Eight x[4];
#pragma unroll
                    for (int c = 0; c < 4; c++) {
                        to[c] = reinterpret_cast<uint4*>(at + group / 2 * (TOKENS * 128) + row * 128 + ((group % 2 * 4 + c) ^ row % 8) * 16);
                        x[c] = *reinterpret_cast<const Eight*>(to[c]);
                    }
                    arrange(x, Codes::CROSSED);
#pragma unroll
                    for (int c = 0; c < 4; c++) *to[c] = make_uint4(x[c].pair[0], x[c].pair[1], x[c].pair[2], x[c].pair[3]);
                }
                fence_async_shared();
                __syncwarp();
                if (lane == 0) barrier_arrive(x_ready + 8 * slot);
                if (++slot == p.stages) slot = 0, parity ^= 1;
            }
        }
        __syncwarp();
        if (split > 1) cluster_wait();
    } else {
        if constexpr (IS_ARRANGED) increase_registers<232>();
        const typename Codes::template Held<T> held{};
        const uint64_t first_b = __shfl_sync(0xffffffffu, matrix_descriptor(ring + codes_bytes), 0);
        // The octets of a warp: two that follow each other, or one of gates and that of their ups.
        const uint8_t* codes_of_warp = shared + BARRIER_BYTES + warp * (p.is_gated ? 1 : 2) * (UNITS * UNIT);
        const int second_octet = (p.is_gated ? consumers : 1) * (UNITS * UNIT);
        const int header_of_lane = Codes::BYTES + lane / 4 * HEADER_BYTES;
        // From the barrier of codes to that of x.
        const uint32_t to_x = (p.is_arranged ? x_full : x_ready) - full;
        uint32_t full_of_warp = full;
        asm volatile("" : "+r"(full_of_warp));
        int slot = 0, last = -1;
        uint32_t parity = 0;
        for (int tile = place; tile < tiles; tile += places) {
            const int first_token = tile % token_tiles * TOKENS, first_column = tile / token_tiles * outputs;
            float sum[TOKENS / 2];
#pragma unroll
            for (int i = 0; i < TOKENS / 2; i++) sum[i] = 0.0f;
            for (int step = 0; step < steps; step++) {
                const uint8_t* at = codes_of_warp + slot * stage_bytes;
                const uint64_t b = first_b + uint64_t(slot * (stage_bytes >> 4));
                barrier_wait(full_of_warp + 8 * slot, parity);
                typename Codes::Lane codes[2];
                WeightsOfColumn<T, Codes, HEADER, HEADER_BYTES> header[2];
                // A group of products at a time: its registers are written again when the products of the next group are the only ones under way.
#pragma unroll
                for (int first = 0; first < UNITS * 4; first += GROUP) {
                    uint32_t w[GROUP][4];
#pragma unroll
                    for (int octet = 0; octet < 2; octet++) {
                        if (first % 4 == 0) {
                            const uint8_t* unit = at + octet * second_octet + first / 4 * UNIT;
                            codes[octet] = Codes::load(unit, lane);
                            header[octet].load(unit + header_of_lane, lane, p.is_bf16);
                        }
#pragma unroll
                        for (int i = 0; i < GROUP; i += 2) {
                            const int half = (first + i) / 2 % 2;
                            uint32_t pairs[4];
                            Codes::template pairs<T>(held, codes[octet], half, pairs);
#pragma unroll
                            for (int j = 0; j < 4; j++) w[i + j / 2][j % 2 * 2 + octet] = header[octet].weights(pairs[j], half);
                        }
                    }
                    if (first == 0) barrier_wait(full_of_warp + to_x + 8 * slot, parity);
                    warpgroup_fence();
#pragma unroll
                    for (int i = 0; i < GROUP; i++) warpgroup_mma<T, TOKENS>(sum, w[i], b + (first + i) / 4 * (TOKENS * 8) + (first + i) % 4 * 2);
                    warpgroup_commit();
                    warpgroup_wait<1>();
                    if (first == 0 && last >= 0 && lane == 0) barrier_arrive(full_of_warp + (empty - full) + 8 * last);
                }
                last = slot;
                if (++slot == p.stages) slot = 0, parity ^= 1;
            }
            warpgroup_wait<0>();
#pragma unroll
            for (int i = 0; i < TOKENS / 2; i++) asm volatile("" : "+f"(sum[i])::"memory");
            grid_dependency_wait();

            const auto store = [&](int w, int j, float4 v) {
                if (p.is_gated) {
                    const int column = first_column + w * 8 + lane / 4, token = first_token + j * 8 + lane / 4;
                    const bool has_bias = p.bias && column < p.n;
                    const float of_gate = has_bias ? p.bias[column] : 0.0f, of_up = has_bias ? p.bias[p.n + column] : 0.0f;
                    const uint32_t gate = narrow2<T>(v.x + of_gate, v.y + of_gate), up = narrow2<T>(v.z + of_up, v.w + of_up);
                    const uint32_t result = transpose_matrix(p.is_gelu_tanh ? activate_mul2<T>(gate, up, GeluTanh::exponent)
                                                                            : activate_mul2<T>(gate, up, Silu::exponent));
                    const int first = first_column + w * 8 + lane % 4 * 2;
                    // Of eight columns all are there or none.
                    if (token < p.m && first < p.n) *reinterpret_cast<uint32_t*>(p.out + size_t(token) * p.out_stride + first) = result;
                    return;
                }
                const int row = first_column + w * 16 + lane / 4;
                const float bias_low = p.bias && row < p.n ? p.bias[row] : 0.0f, bias_high = p.bias && row + 8 < p.n ? p.bias[row + 8] : 0.0f;
                const uint32_t low = transpose_matrix(narrow2<T>(v.x + bias_low, v.y + bias_low));
                const uint32_t high = transpose_matrix(narrow2<T>(v.z + bias_high, v.w + bias_high));
                const int token = first_token + j * 8 + lane / 4, column = first_column + w * 16 + lane % 4 * 2;
                if (token >= p.m) return;
                T* to = p.out + size_t(token) * p.out_stride + column;
                if (p.out_stride % 2 == 0 && reinterpret_cast<uintptr_t>(p.out) % 4 == 0 && column + 10 <= p.n) {
                    *reinterpret_cast<uint32_t*>(to) = low;
                    *reinterpret_cast<uint32_t*>(to + 8) = high;
                } else {
                    const T* l = reinterpret_cast<const T*>(&low);
                    const T* h = reinterpret_cast<const T*>(&high);
                    for (int e = 0; e < 2; e++) {
                        if (column + e < p.n) to[e] = l[e];
                        if (column + 8 + e < p.n) to[8 + e] = h[e];
                    }
                }
            };
            if (split == 1) {
#pragma unroll
                for (int j = 0; j < TOKENS / 8; j++) store(warp, j, make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]));
                continue;
            }
            // From here on the ring holds results: all copies to it have been waited for, and all warps have multiplied them.
            asm volatile("bar.sync 1, %0;" ::"r"(consumers * 32) : "memory");
            float4* const own = reinterpret_cast<float4*>(shared + BARRIER_BYTES);
#pragma unroll
            for (int j = 0; j < TOKENS / 8; j++) {
                own[(j * consumers + warp) * 32 + lane] = make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]);
            }
            fence_async_shared();
            asm volatile("bar.sync 1, %0;" ::"r"(consumers * 32) : "memory");
            cluster_wait();  // the barriers of the others are initialized
            for (int to = warp; to < split; to += consumers) {
                if (to != part && elect_lane()) {
                    const int begin = fragments * to / split, count = fragments * (to + 1) / split - begin;
                    copy_to_rank(to, inbox + (part - (part > to)) * count * 512, ring + begin * 512, count * 512, received);
                }
            }
            barrier_wait(received, 0);
            const float4* others = reinterpret_cast<const float4*>(shared + (inbox - first_bytes));
            const int count = end_fragment - first_fragment;
            for (int f = first_fragment + warp; f < end_fragment; f += consumers) {
                float4 parts[SPLIT_MAX], total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
                for (int s = 0; s < SPLIT_MAX; s++) {
                    const float4* from = s == part ? own + f * 32 : others + ((s - (s > part)) * count + f - first_fragment) * 32;
                    if (s < split) parts[s] = from[lane];
                }
#pragma unroll
                for (int s = 0; s < SPLIT_MAX; s++) {
                    if (s < split) total.x += parts[s].x, total.y += parts[s].y, total.z += parts[s].z, total.w += parts[s].w;
                }
                store(f % consumers, f / consumers, total);
            }
        }
        __syncwarp();
    }
    // A thread block ends when all of the cluster have received: until then the copies may read its memory.
    if (split > 1) {
        cluster_arrive();
        cluster_wait();
    }
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define BODY(...) gemm_quantized<__VA_ARGS__>(p);
#else
#define BODY(...)
#endif
#define KERNEL(name, codes, header, bytes, tokens, columns, units, group, blocks, dtype)                                          \
    extern "C" __global__ void __launch_bounds__(columns * 2 + 128, blocks)                                                       \
        nvllm_k_gemm_quantized_##name##_t##tokens##_c##columns##_##dtype(const __grid_constant__ GemmQuantizedParams<dtype> p) { \
        BODY(dtype, codes, header, bytes, tokens, units, group)                                                                   \
    }
#define VARIANTS(name, codes, header, bytes, dtype)                    \
    KERNEL(name, codes, header, bytes, 16, 128, 2, 2, 2, dtype)        \
    KERNEL(name, codes, header, bytes, 16, 192, 2, 4, 1, dtype)        \
    KERNEL(name, codes, header, bytes, 32, 128, 2, 2, 2, dtype)        \
    KERNEL(name, codes, header, bytes, 32, 192, 2, 4, 1, dtype)        \
    KERNEL(name, codes, header, bytes, 64, 192, 2, 4, 1, dtype)        \
    KERNEL(name, codes, header, bytes, 128, 192, 1, 2, 1, dtype)       \
    KERNEL(name, codes, header, bytes, 256, 128, 1, 2, 1, dtype)
#define KERNELS(name, codes, header, bytes)     \
    VARIANTS(name, codes, header, bytes, bf16)  \
    VARIANTS(name, codes, header, bytes, f16)

extern "C" __global__ void __launch_bounds__(256) nvllm_k_arrange_rows_bf16(const __grid_constant__ ArrangeRowsParams<bf16> p) { arrange_rows<bf16>(p); }
extern "C" __global__ void __launch_bounds__(256) nvllm_k_arrange_rows_f16(const __grid_constant__ ArrangeRowsParams<f16> p) { arrange_rows<f16>(p); }

KERNELS(four_halves, FourScaled, HALVES, 4)
KERNELS(four_k_blocks, FourScaled, K_BLOCKS, 8)
KERNELS(four_words, FourScaled, WORDS, 4)
KERNELS(five_k_blocks, FiveScaled, K_BLOCKS, 8)
KERNELS(six_sixteenths, SixScaled, SIXTEENTHS, 8)
KERNELS(eight_words, EightScaled, WORDS, 4)
KERNELS(float8_words, Float8Scaled, WORDS, 4)
KERNELS(eight_halves, EightScaled, HALVES, 4)
KERNELS(float8_floats, Float8Scaled, FLOATS, 8)

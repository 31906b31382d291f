// Gates and up of many tokens on compute capability 9.0, with the activation. Contract: src/compute/ops/gated_linear.rs. Reference:
// src/compute/unfused.rs.
//
// Bound by the tensor cores, and by power: the clock falls when a device reaches its power limit, and then every instruction and every
// byte costs time. Tokens are the operand of 64 rows of a tensor-core product, one such operand for each of two warpgroups. ROWS rows of
// weights are its columns: 8 of gate, then the same 8 of up, and so on, so that a thread holds a gate and its up. One warp copies boxes of x
// and of weights into a ring in shared memory.
//
// A grid of one thread block per multiprocessor computes one tile after another. When the products of a tile have ended, a thread rounds
// its sums into half as many registers and begins the products of the next tile. While the tensor cores compute these, it activates gates,
// part by part, and writes the results to shared memory, from where bulk copies store them. A sum is one chain of tensor-core products in
// the order of k.
#include "common/activation.cuh"
#include "common/dependent_launch.cuh"
#include "common/warpgroup.cuh"

struct GemmGatedParams {
    TensorMap weight;   // of halves, boxes of ROWS by 64 k
    TensorMap x;        // boxes of TOKENS by 64 k
    TensorMap out;      // [m, n], boxes of 64 tokens by BOX columns
    const float* bias;  // [2 n], or null
    int m;              // tokens
    int n;              // columns of `out`, a multiple of 8
    int k;              // a multiple of 64, at least 512
};

constexpr int GROUPS = 2, GROUP_TOKENS = 64, TOKENS = GROUPS * GROUP_TOKENS;
// Of a warpgroup that multiplies 168 would be too few.
constexpr int COPY_REGISTERS = 24, MULTIPLY_REGISTERS = 240;
constexpr int BARRIER_BYTES = 1024;
// Tiles of tokens beside each other before the next rows of weights: what is read of both stays in the second-level cache.
constexpr int TILES_ABREAST = 16;

template <int ROWS>
struct Shape {
    static constexpr int COLUMNS = ROWS / 2;  // of `out`
    static constexpr int STAGES = ROWS == 256 ? 4 : 5, STAGE = (TOKENS + ROWS) * 128;
    static constexpr int BOX = COLUMNS % 64 == 0 ? 64 : 32, BOX_BYTES = GROUP_TOKENS * BOX * 2;
    static constexpr int RESULTS = GROUP_TOKENS * COLUMNS * 2;  // bytes, of a warpgroup
    static constexpr int PARTS = COLUMNS / 16;                  // in which results are computed, during one step each
};

// Where a tile of ROWS rows of weights lies.
template <int ROWS>
struct Place {
    int column, token;  // of `out`

    __device__ Place(const GemmGatedParams& p, int tile) {
        const int columns = (p.n + Shape<ROWS>::COLUMNS - 1) / Shape<ROWS>::COLUMNS, tokens = (p.m + TOKENS - 1) / TOKENS;
        const int band = tile / (TILES_ABREAST * columns), in_band = tile - band * (TILES_ABREAST * columns);
        const int abreast = min(TILES_ABREAST, tokens - band * TILES_ABREAST);
        column = in_band / abreast * Shape<ROWS>::COLUMNS;
        token = (band * TILES_ABREAST + in_band % abreast) * TOKENS;
    }

    __device__ static int count(const GemmGatedParams& p) {
        return (p.n + Shape<ROWS>::COLUMNS - 1) / Shape<ROWS>::COLUMNS * ((p.m + TOKENS - 1) / TOKENS);
    }
};

__device__ inline void group_sync(int group) {
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
}
__device__ inline void store_matrices(uint32_t at, const Eight& m) {
    const uint32_t(&pair)[4] = m.pair;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(pair[0]), "r"(pair[1]), "r"(pair[2]), "r"(pair[3])
                 : "memory");
}

// The warp that copies: boxes of all tiles, in the order in which they are multiplied.
template <int ROWS>
__device__ void copy_tiles(const GemmGatedParams& p, uint32_t full, uint32_t empty, uint32_t ring) {
    constexpr int STAGES = Shape<ROWS>::STAGES, STAGE = Shape<ROWS>::STAGE;
    const int steps = p.k / 64, tiles = Place<ROWS>::count(p);
    const auto copy_x = [&](int slot, const Place<ROWS>& place, int step) {
        copy_box(ring + slot * STAGE, &p.x, place.token, step, full + 8 * slot, EVICT_NORMAL);
    };
    const auto copy_weights = [&](int slot, const Place<ROWS>& place, int step) {
        barrier_expect(full + 8 * slot, STAGE);
        copy_box_of_halves(ring + slot * STAGE + TOKENS * 128, &p.weight, place.column / 8, step, full + 8 * slot, EVICT_NORMAL);
    };
    // Weights do not depend on the kernels before. There are more steps than stages.
    const Place<ROWS> first(p, blockIdx.x);
    for (int step = 0; step < STAGES; step++) copy_weights(step, first, step);
    prefetch_map(&p.x);
    grid_dependency_wait();
    fence_async_global();
    for (int step = 0; step < STAGES; step++) copy_x(step, first, step);
    int slot = 0, copied = STAGES;
    uint32_t parity = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const Place<ROWS> place(p, tile);
        for (int step = copied; step < steps; step++) {
            barrier_wait(empty + 8 * slot, parity);
            copy_weights(slot, place, step);
            copy_x(slot, place, step);
            if (++slot == STAGES) slot = 0, parity ^= 1;
        }
        copied = 0;
    }
}

// Adds the bias to the sums of a thread.
template <int ROWS>
__device__ inline void add_bias(const GemmGatedParams& p, float (&sum)[ROWS / 2], int first_column) {
#pragma unroll
    for (int i = 0; i < ROWS / 2; i += 4) {
        const int column = first_column + i / 8 * 8 + threadIdx.x % 4 * 2;
        if (column >= p.n) break;
        const float2 bias = *reinterpret_cast<const float2*>(p.bias + column + (i / 4 % 2 ? p.n : 0));
        sum[i] += bias.x, sum[i + 1] += bias.y, sum[i + 2] += bias.x, sum[i + 3] += bias.y;
    }
}

// A warpgroup that multiplies 64 tokens of each tile.
template <class T, class ACTIVATION, int ROWS>
__device__ void multiply_tiles(const GemmGatedParams& p, int group, uint32_t full, uint32_t empty, uint32_t ring) {
    constexpr int STAGES = Shape<ROWS>::STAGES, STAGE = Shape<ROWS>::STAGE, BOX = Shape<ROWS>::BOX, BOX_BYTES = Shape<ROWS>::BOX_BYTES;
    constexpr int PARTS = Shape<ROWS>::PARTS, COLUMNS = Shape<ROWS>::COLUMNS;
    const int steps = p.k / 64, tiles = Place<ROWS>::count(p);
    const int lane = threadIdx.x % 32, warp = __shfl_sync(0xffffffffu, threadIdx.x / 32 % 4, 0);
    const uint64_t first_a = __shfl_sync(0xffffffffu, matrix_descriptor(ring + group * (GROUP_TOKENS * 128)), 0);
    const uint64_t first_b = __shfl_sync(0xffffffffu, matrix_descriptor(ring + TOKENS * 128), 0);
    // The row of results to which this lane points when its warp stores four matrices: of 16 tokens by 16 columns. Swizzled as the copies expect it.
    const uint32_t results = ring + STAGES * STAGE + group * Shape<ROWS>::RESULTS;
    const int row = warp * 16 + lane % 16, swizzle = BOX == 64 ? row % 8 : row / 2 % 4;
    const auto results_at = [&](int part) {
        const int eight = 2 * part % (BOX / 8) + lane / 16;
        return results + 2 * part / (BOX / 8) * BOX_BYTES + row * (BOX * 2) + (eight ^ swizzle) * 16;
    };
    float sum[ROWS / 2];
    uint32_t rounded[ROWS / 4];  // sums of the tile before, in pairs: of each 16 rows of weights gates of two tokens, then their ups
#pragma unroll
    for (int i = 0; i < ROWS / 4; i++) rounded[i] = 0;
    int before = -1;  // which tile that is
    const auto finish = [&](int part) {
        if (before < 0) return;
        if (part == 0) {
            if (warp == 0) stores_wait_read();
            group_sync(group);
        }
        const uint32_t* r = rounded + 8 * part;
        const Eight activated = activate_mul8<T, ACTIVATION>({r[0], r[1], r[4], r[5]}, {r[2], r[3], r[6], r[7]});
        __syncwarp();
        store_matrices(results_at(part), activated);
        if (part == PARTS - 1) {
            fence_async_shared();
            group_sync(group);
            if (warp == 0 && elect_lane()) {
                const Place<ROWS> place(p, before);
#pragma unroll
                for (int box = 0; box < COLUMNS / BOX; box++) {
                    store_box(&p.out, place.column + box * BOX, place.token + group * GROUP_TOKENS, results + box * BOX_BYTES);
                }
                stores_commit();
            }
            __syncwarp();
        }
    };

    int slot = 0, last = 0;
    uint32_t parity = 0;
    const auto release_last = [&] {
        if (lane == 0) barrier_arrive(empty + 8 * last);
    };
    const auto multiply = [&](bool is_first) {
        barrier_wait(full + 8 * slot, parity);
        const uint64_t a = first_a + uint64_t(slot * (STAGE >> 4)), b = first_b + uint64_t(slot * (STAGE >> 4));
        warpgroup_fence();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (is_first && i == 0) {
                warpgroup_mma_first<T, ROWS>(sum, a, b);
            } else {
                warpgroup_mma<T, ROWS>(sum, a + 2 * i, b + 2 * i);
            }
        }
        warpgroup_commit();
        warpgroup_wait<1>();
        if (!is_first) release_last();
        last = slot;
        if (++slot == STAGES) slot = 0, parity ^= 1;
    };
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
#pragma unroll
        for (int step = 0; step < PARTS; step++) {
            multiply(step == 0);
            finish(step);
        }
        for (int step = PARTS; step < steps; step++) multiply(false);
        warpgroup_wait<0>();
        release_last();
#pragma unroll
        for (int i = 0; i < ROWS / 2; i++) asm volatile("" : "+f"(sum[i])::"memory");
        if (p.bias) add_bias<ROWS>(p, sum, Place<ROWS>(p, tile).column);
#pragma unroll
        for (int i = 0; i < ROWS / 4; i++) rounded[i] = narrow2<T>(sum[2 * i], sum[2 * i + 1]);
        before = tile;
    }
#pragma unroll
    for (int part = 0; part < PARTS; part++) finish(part);
    if (warp == 0) stores_wait();
}

// Grid [thread blocks, at most as many as tiles], block [384], shared [BARRIER_BYTES + STAGES * STAGE + GROUPS * RESULTS bytes].
template <class T, class ACTIVATION, int ROWS>
__device__ void gemm_gated(const GemmGatedParams& p) {
    extern __shared__ __align__(1024) uint8_t shared[];
    const uint32_t full = shared_address(shared), empty = full + 8 * Shape<ROWS>::STAGES, ring = full + BARRIER_BYTES;
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    launch_dependents();
    if (threadIdx.x == 0) {
        for (int i = 0; i < Shape<ROWS>::STAGES; i++) {
            barrier_init(full + 8 * i, 1);
            barrier_init(empty + 8 * i, 4 * GROUPS);
        }
        fence_barrier_init();
    }
    __syncthreads();
    if (group == GROUPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COPY_REGISTERS));
        if (threadIdx.x / 32 == 4 * GROUPS && elect_lane()) copy_tiles<ROWS>(p, full, empty, ring);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(MULTIPLY_REGISTERS));
        grid_dependency_wait();
        multiply_tiles<T, ACTIVATION, ROWS>(p, group, full, empty, ring);
    }
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define BODY(...) __VA_ARGS__;
#else
#define BODY(...)
#endif
#define KERNEL(rows, name, activation, dtype)                                                                                            \
    extern "C" __global__ void __launch_bounds__(128 * (GROUPS + 1), 1)                                                                  \
        nvllm_k_gemm_gated_##name##_r##rows##_##dtype(const __grid_constant__ GemmGatedParams p) {                            \
        BODY(gemm_gated<dtype, activation, rows>(p))                                                                            \
    }
#define KERNELS(rows)                         \
    KERNEL(rows, silu, Silu, bf16)            \
    KERNEL(rows, silu, Silu, f16)             \
    KERNEL(rows, gelu_tanh, GeluTanh, bf16)   \
    KERNEL(rows, gelu_tanh, GeluTanh, f16)

KERNELS(256)
KERNELS(192)

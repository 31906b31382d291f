// What the kernels of gemm_swap_ab.cu, gemm_m128.cu and gemm_full_n.cu share.
#pragma once

#include "activation.cuh"
#include "dependent_launch.cuh"
#include "row_factors.cuh"
#include "warpgroup.cuh"

template <class T>
struct GemmSwapAbParams {
    TensorMap weight;   // boxes of ROWS by DEPTH * 64 k; of gated results with dimensions for halves and for eights of rows
    TensorMap x;        // boxes of TOKENS by DEPTH * 64 k
    T* out;             // [m, out_stride], at the first column
    const float* bias;  // [n], or null; of gated results [2 n]
    int m;              // tokens
    int n;              // columns of `out`
    int k;              // a multiple of 64
    int out_stride;
    int stages;         // of the ring, at most STAGES_MAX
    int split;          // thread blocks that divide k: a power of two, at most SPLIT_MAX
    int parts;          // of k, a power of two: `split` where that is more than 1, else those that one thread block adds up in turn
    int is_gelu_tanh;   // the activation of gated results, else SiLU
    RowNorms<T> norms;
};

// What becomes of the sums.
enum class Results {
    SUMS,   // columns of `out`
    GATED,  // of a gate and its up, both rounded to T, one number of `out`
    ADDED,  // rounded to T, then added to the stream
};

constexpr int STAGES_MAX = 16;
constexpr int BARRIER_BYTES = 1024, FACTORS_AT = 512;  // of shared memory: barriers, then a factor for each token of a tile

// Tokens of each of `tiles` tiles, the last of which may have fewer: a multiple of the 8 rows after which the swizzle repeats.
__device__ inline int tokens_of_tile(int tokens, int tiles) {
    return ((tokens + tiles - 1) / tiles + 7) & ~7;
}

// Gated results of gates and their up.
template <class T>
__device__ inline uint32_t gated2(bool is_gelu_tanh, uint32_t gate, uint32_t up) {
    return activate_mul2<T>(gate, up, [=](float v) { return is_gelu_tanh ? GeluTanh::exponent(v) : Silu::exponent(v); });
}
template <class T>
__device__ inline Eight gated_eight(bool is_gelu_tanh, const Eight& gate, const Eight& up) {
    Eight results;
#pragma unroll
    for (int i = 0; i < 4; i++) results.pair[i] = gated2<T>(is_gelu_tanh, gate.pair[i], up.pair[i]);
    return results;
}

// Named barriers. 1: the threads that multiply. 3: those and the threads that find factors of rows, which are stored then.
template <int MULTIPLYING>
__device__ inline void consumers_sync() {
    asm volatile("bar.sync 1, %0;" ::"n"(MULTIPLYING) : "memory");
}
template <int BOTH>
__device__ inline void factors_ready() {
    asm volatile("bar.arrive 3, %0;" ::"n"(BOTH) : "memory");
}
template <int BOTH>
__device__ inline void factors_wait() {
    asm volatile("bar.sync 3, %0;" ::"n"(BOTH) : "memory");
}

// One lane: begins the copies of all steps into a ring. `copy_weights` and `copy_x` get a slot and a step; weights do not depend on the kernels before, and
// are asked for before they have ended. `empty`: the barriers at which a slot is given back.
template <class CopyWeights, class CopyX>
__device__ inline void fill_ring(const TensorMap* x, int steps, int stages, uint32_t empty, const CopyWeights& copy_weights, const CopyX& copy_x) {
    const int early = min(steps, stages);
    for (int step = 0; step < early; step++) copy_weights(step, step);
    prefetch_map(x);
    grid_dependency_wait();
    fence_async_global();
    for (int step = 0; step < early; step++) copy_x(step, step);
    int slot = 0;
    uint32_t parity = 0;
    for (int step = early; step < steps; step++) {
        barrier_wait(empty + 8 * slot, parity);
        copy_weights(slot, step);
        copy_x(slot, step);
        if (++slot == stages) slot = 0, parity ^= 1;
    }
}

// Of four matrices of 8 by 8 in the registers of a warp, the transposed rows, to where the lanes point.
__device__ inline void store_matrices_transposed(uint32_t at, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

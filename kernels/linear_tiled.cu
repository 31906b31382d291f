// A linear layer for any number of tokens. Contract: src/ops/linear.rs. Reference: src/backend/cpu/linear.
//
// Compute-bound from about 200 tokens on: 2 m n k operations. It serves where cuBLASLt is missing. A thread block computes 128 tokens by 128
// columns from a ring of three tiles of 64 k; eight warps hold 64 by 32 results each.
#include "common/chain.cuh"
#include "common/linear.cuh"
#include "common/tensor_core.cuh"

// Grid [m / 128 rounded up, n / 128 rounded up], block [256], shared [3 * 256 rows of 64 numbers].
template <class T>
__device__ void linear_tiled(const LinearParams<T>& p) {
    using Rows = Tile<64>;
    constexpr int SIDE = 128, DEPTH = 64, STAGES = 3, THREADS = 256;
    constexpr int SLICE = SIDE * Rows::STRIDE * 8;  // numbers of a tile of x, or of weights
    extern __shared__ __align__(128) uint8_t shared[];
    let_next_begin();
    wait_for_previous();

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, matrix = lane / 8;
    const int first_token = blockIdx.x * SIDE, first_column = blockIdx.y * SIDE;
    const int steps = (p.k + DEPTH - 1) / DEPTH;
    T* ring = reinterpret_cast<T*>(shared);

    auto issue = [&](int step) {
        if (step < steps) {
            const uint32_t to = shared_address(ring + step % STAGES * 2 * SLICE);
#pragma unroll
            for (int j = 0; j < SIDE * Rows::CHUNKS / THREADS; j++) {
                const int i = j * THREADS + threadIdx.x;
                const int row = i / Rows::CHUNKS, chunk = i % Rows::CHUNKS;
                const int k = step * DEPTH + chunk * 8;
                const uint32_t at = to + Rows::at(row, chunk) * 16;
                const bool has_x = first_token + row < p.m && k < p.k, has_weight = first_column + row < p.n && k < p.k;
                copy_async(at, has_x ? p.x + size_t(first_token + row) * p.x_stride + k : p.x, has_x ? 16 : 0);
                copy_async(at + SLICE * sizeof(T), has_weight ? p.weight + size_t(first_column + row) * p.k + k : p.weight, has_weight ? 16 : 0);
            }
        }
        commit_copies();
    };
    for (int step = 0; step < STAGES - 1; step++) issue(step);

    const int warp_token = warp % 2 * 64, warp_column = warp / 2 * 32;
    float sum[4][4][4] = {};
    for (int step = 0; step < steps; step++) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();
        issue(step + STAGES - 1);
        const uint32_t x = shared_address(ring + step % STAGES * 2 * SLICE), weights = x + SLICE * sizeof(T);
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++) {
            uint32_t a[4][4], b[2][4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                load_matrices(a[i], x + Rows::at(warp_token + i * 16 + (matrix & 1) * 8 + lane % 8, 2 * k + (matrix >> 1)) * 16);
            }
#pragma unroll
            for (int j = 0; j < 2; j++) {
                load_matrices(b[j], weights + Rows::at(warp_column + j * 16 + (matrix >> 1) * 8 + lane % 8, 2 * k + (matrix & 1)) * 16);
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
#pragma unroll
                for (int j = 0; j < 4; j++) mma<T>(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
            }
        }
    }

#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                store_output(p, first_token + warp_token + i * 16 + (e >> 1) * 8 + lane / 4,
                             first_column + warp_column + j * 8 + lane % 4 * 2 + (e & 1), sum[i][j][e]);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 2) nvllm_k_linear_tiled_bf16(const __grid_constant__ LinearParams<bf16> p) {
    linear_tiled(p);
}
extern "C" __global__ void __launch_bounds__(256, 2) nvllm_k_linear_tiled_f16(const __grid_constant__ LinearParams<f16> p) {
    linear_tiled(p);
}

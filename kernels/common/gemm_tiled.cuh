// A product of rows and weights in tiles, for `gemm_tiled.cu` and `head_linear.cu`: a result is one chain of tensor-core products in the order of k,
// whatever the tile around it. A thread block computes a tile from a ring of copies of 64 k; a warp holds 16 MT by 16 NT results.
#pragma once

#include "dependent_launch.cuh"
#include "linear.cuh"
#include "tensor_core.cuh"

// Grid [m / tokens rounded up, n / columns rounded up], block [32 * WM * WN], shared [STAGES * (tokens + columns) rows of 64 numbers].
template <class T, int MT, int NT, int WM, int WN, int STAGES>
__device__ void gemm_tiled(const LinearParams<T>& p) {
    using Rows = Tile<64>;
    constexpr int TOKENS = 16 * MT * WM, COLUMNS = 16 * NT * WN, DEPTH = 64, THREADS = 32 * WM * WN;
    constexpr int X_SLICE = TOKENS * Rows::STRIDE * 8, SLICES = X_SLICE + COLUMNS * Rows::STRIDE * 8;  // numbers of a stage
    static_assert(TOKENS * Rows::CHUNKS % THREADS == 0 && COLUMNS * Rows::CHUNKS % THREADS == 0, "whole rounds of copies");
    extern __shared__ __align__(128) uint8_t shared[];
    launch_dependents();

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, matrix = lane / 8;
    const int first_token = blockIdx.x * TOKENS, first_column = blockIdx.y * COLUMNS;
    const int steps = (p.k + DEPTH - 1) / DEPTH;
    T* ring = reinterpret_cast<T*>(shared);

    const auto issue_x = [&](int step) {
        if (step >= steps) return;
#pragma unroll
        for (int j = 0; j < TOKENS * Rows::CHUNKS / THREADS; j++) {
            const int i = j * THREADS + threadIdx.x;
            const int row = i / Rows::CHUNKS, chunk = i % Rows::CHUNKS;
            const int k = step * DEPTH + chunk * 8;
            const bool is_there = first_token + row < p.m && k < p.k;
            const uint32_t to = shared_address(ring + step % STAGES * SLICES) + Rows::at(row, chunk) * 16;
            copy_async(to, is_there ? p.x + size_t(first_token + row) * p.x_stride + k : p.x, is_there ? 16 : 0);
        }
    };
    const auto issue_weights = [&](int step) {
        if (step >= steps) return;
#pragma unroll
        for (int j = 0; j < COLUMNS * Rows::CHUNKS / THREADS; j++) {
            const int i = j * THREADS + threadIdx.x;
            const int row = i / Rows::CHUNKS, chunk = i % Rows::CHUNKS;
            const int k = step * DEPTH + chunk * 8;
            const bool is_there = first_column + row < p.n && k < p.k;
            const uint32_t to = shared_address(ring + step % STAGES * SLICES + X_SLICE) + Rows::at(row, chunk) * 16;
            copy_async(to, is_there ? p.weight + size_t(first_column + row) * p.k + k : p.weight, is_there ? 16 : 0);
        }
    };
    for (int step = 0; step < STAGES - 1; step++) issue_weights(step);
    grid_dependency_wait();
    for (int step = 0; step < STAGES - 1; step++) {
        issue_x(step);
        commit_copies();
    }

    const int warp_token = warp % WM * 16 * MT, warp_column = warp / WM * 16 * NT;
    float sum[MT][2 * NT][4] = {};
    for (int step = 0; step < steps; step++) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();
        issue_weights(step + STAGES - 1);
        issue_x(step + STAGES - 1);
        commit_copies();
        const uint32_t x = shared_address(ring + step % STAGES * SLICES), weights = x + X_SLICE * sizeof(T);
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++) {
            uint32_t a[MT][4], b[NT][4];
#pragma unroll
            for (int i = 0; i < MT; i++) {
                load_matrices(a[i], x + Rows::at(warp_token + i * 16 + (matrix & 1) * 8 + lane % 8, 2 * k + (matrix >> 1)) * 16);
            }
#pragma unroll
            for (int j = 0; j < NT; j++) {
                load_matrices(b[j], weights + Rows::at(warp_column + j * 16 + (matrix >> 1) * 8 + lane % 8, 2 * k + (matrix & 1)) * 16);
            }
#pragma unroll
            for (int i = 0; i < MT; i++) {
#pragma unroll
                for (int j = 0; j < 2 * NT; j++) mma<T>(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
            }
        }
    }

#pragma unroll
    for (int i = 0; i < MT; i++) {
#pragma unroll
        for (int j = 0; j < 2 * NT; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                store_output(p, first_token + warp_token + i * 16 + (e >> 1) * 8 + lane / 4,
                             first_column + warp_column + j * 8 + lane % 4 * 2 + (e & 1), sum[i][j][e]);
            }
        }
    }
}

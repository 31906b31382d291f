// Fragments of tensor-core products, between registers and matrices in shared memory whose rows are those of a Tile, `Rows`.
#pragma once

#include "tensor_core.cuh"

// The shared address of 16 bytes.
template <class Rows, class T>
__device__ inline uint32_t at(const T* base, int row, int chunk) {
    return shared_address(base) + Rows::at(row, chunk) * 16;
}

// A pair of numbers at an even column.
template <class Rows, class T>
__device__ inline void store_pair(T* base, int row, int column, uint32_t pair) {
    *reinterpret_cast<uint32_t*>(reinterpret_cast<uint8_t*>(base) + Rows::at(row, column / 8) * 16 + column % 8 * 2) = pair;
}

template <class Rows, class T>
__device__ inline uint32_t pair_at(const T* base, int row, int column) {
    return *reinterpret_cast<const uint32_t*>(reinterpret_cast<const uint8_t*>(base) + Rows::at(row, column / 8) * 16 + column % 8 * 2);
}

// Rows 16 of A at `row`, 16 k from chunk `2 step`.
template <class Rows, class T>
__device__ inline void load_a(uint32_t (&a)[4], const T* base, int row, int step) {
    const int lane = threadIdx.x % 32, matrix = lane / 8;
    load_matrices(a, at<Rows>(base, row + (matrix & 1) * 8 + lane % 8, 2 * step + (matrix >> 1)));
}

// Two tiles of B, from columns that are rows of `base`.
template <class Rows, class T>
__device__ inline void load_b(uint32_t (&b)[4], const T* base, int column, int step) {
    const int lane = threadIdx.x % 32, matrix = lane / 8;
    load_matrices(b, at<Rows>(base, column + (matrix >> 1) * 8 + lane % 8, 2 * step + (matrix & 1)));
}

// Two tiles of B, from k that are rows of `base`.
template <class Rows, class T>
__device__ inline void load_b_of_rows(uint32_t (&b)[4], const T* base, int step, int column) {
    const int lane = threadIdx.x % 32, matrix = lane / 8;
    load_matrices_transposed(b, at<Rows>(base, step * 16 + (matrix & 1) * 8 + lane % 8, column / 8 + (matrix >> 1)));
}

// Rows 16 of A, which are columns of `base`, 16 k that are its rows.
template <class Rows, class T>
__device__ inline void load_a_of_columns(uint32_t (&a)[4], const T* base, int row, int step) {
    const int lane = threadIdx.x % 32, matrix = lane / 8;
    load_matrices_transposed(a, at<Rows>(base, step * 16 + (matrix >> 1) * 8 + lane % 8, row / 8 + (matrix & 1)));
}

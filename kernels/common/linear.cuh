// What all kernels of a linear layer are given, and how they store a result.
#pragma once

#include "numbers.cuh"

template <class T>
struct LinearParams {
    T* out;             // [m, out_stride], at the first column
    const T* x;         // [m, x_stride]
    const T* weight;    // [n, k], at the first column's row
    const float* bias;  // [n], or null
    int m;              // tokens
    int n;              // columns
    int k;              // a multiple of 8
    int out_stride;
    int x_stride;       // a multiple of 8
};

template <class T>
__device__ inline void store_output(const LinearParams<T>& p, int token, int column, float value) {
    if (token >= p.m || column >= p.n) return;
    p.out[size_t(token) * p.out_stride + column] = narrow<T>(value + (p.bias ? p.bias[column] : 0.0f));
}

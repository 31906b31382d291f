// What all kernels of a linear layer are given, and how they store a result.
#pragma once

#include "row_factors.cuh"

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

// What kernels for few tokens are given.
template <class T>
struct FewTokensParams {
    T* out;             // [m, out_stride], at the first column
    const T* x;         // [m, x_stride]
    const T* weight;    // [n, k]; of gated results [2 n, k], gates over ups
    const float* bias;  // [n], or null; of gated results [2 n]
    RowNorms<T> norms;  // of up to 8 tokens
    int m;              // tokens
    int n;              // columns of `out`; of added results a multiple of 8
    int k;              // a multiple of 8
    int out_stride;
    int x_stride;       // a multiple of 8
    int is_gelu_tanh;   // the activation of gated results, else SiLU
};

// `factor`: of the row of x.
template <class Params>
__device__ inline void store_output(const Params& p, int token, int column, float sum, float factor = 1.0f) {
    if (token >= p.m || column >= p.n) return;
    using T = std::remove_pointer_t<decltype(p.out)>;
    p.out[size_t(token) * p.out_stride + column] = narrow<T>(fmaf(sum, factor, p.bias ? p.bias[column] : 0.0f));
}

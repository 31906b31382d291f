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

// What kernels are given that apply gates in the product of few tokens, and those of sums beside them.
template <class T>
struct FewTokensParams {
    T* out;             // [m, out_stride], at the first column
    const T* x;         // [m, x_stride]
    const T* weight;    // [n, k]; of gated results [2 n, k], gates over ups
    const float* bias;  // [n], or null; of gated results [2 n]
    int m;              // tokens, at most 8
    int n;              // columns of `out`
    int k;              // a multiple of 8
    int out_stride;
    int x_stride;       // a multiple of 8
    int is_gelu_tanh;   // the activation of gated results, else SiLU
};

// From the second-level cache: the kernel before has just stored it.
template <class T>
__device__ inline Eight load_eight_of_pass(const T* at) {
    Eight v;
    asm volatile("ld.global.cg.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.pair[0]), "=r"(v.pair[1]), "=r"(v.pair[2]), "=r"(v.pair[3])
                 : "l"(at)
                 : "memory");
    return v;
}

template <class T>
__device__ inline void store_output(const LinearParams<T>& p, int token, int column, float value) {
    if (token >= p.m || column >= p.n) return;
    p.out[size_t(token) * p.out_stride + column] = narrow<T>(value + (p.bias ? p.bias[column] : 0.0f));
}

// The activations of a gated MLP. Contract: src/ops/activate_mul.rs.
#pragma once

#include "numbers.cuh"

// Both are v / (1 + exp(e)), with e of these functions.
struct Silu {
    __device__ static float exponent(float v) { return -v; }
};

// (1 + tanh(u)) / 2 is 1 / (1 + exp(-2 u)), which keeps the digits of negative numbers. 1.5957691 is 2 sqrt(2 / pi), 0.07135481 that
// times 0.044715.
struct GeluTanh {
    __device__ static float exponent(float v) { return -v * (1.5957691f + 0.07135481f * v * v); }
};

// A gate that is activated, times its up.
__device__ inline float activate_mul(float gate, float exponent, float up) { return gate / (1.0f + __expf(exponent)) * up; }

// Two of each. EXPONENT: of a gate.
template <class T, class EXPONENT>
__device__ inline uint32_t activate_mul2(uint32_t gate, uint32_t up, EXPONENT exponent) {
    const float2 g = widen2<T>(gate), u = widen2<T>(up);
    return narrow2<T>(activate_mul(g.x, exponent(g.x), u.x), activate_mul(g.y, exponent(g.y), u.y));
}

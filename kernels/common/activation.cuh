// The activations of a gated MLP. Contract: src/compute/ops/activate_mul.rs.
#pragma once

#include "numbers.cuh"

// Both are v / (1 + exp(e)), with e of these functions. Above ORDINARY_ABOVE, exp(e) is less than 2^100.
struct Silu {
    static constexpr float ORDINARY_ABOVE = -64.0f;
    __device__ static float exponent(float v) { return -v; }
};

// (1 + tanh(u)) / 2 is 1 / (1 + exp(-2 u)), which keeps the digits of negative numbers. 1.5957691 is 2 sqrt(2 / pi), 0.07135481 that
// times 0.044715.
struct GeluTanh {
    static constexpr float ORDINARY_ABOVE = -8.0f;
    __device__ static float exponent(float v) { return -v * (1.5957691f + 0.07135481f * v * v); }
};

// A gate that is activated, times its up.
__device__ inline float activate_mul(float gate, float exponent, float up) { return gate / (1.0f + __expf(exponent)) * up; }

// `Activation` in Rust, as kernels that choose one at run time are given it.
enum class Activation : int { SILU = 0, GELU_TANH = 1, CLAMPED_SWIGLU = 2 };

// The gate and the up of gpt-oss. A number that is none stays none.
__device__ inline float clamped_swiglu(float gate, float up) {
    const float g = gate > 7.0f ? 7.0f : gate, u = up > 7.0f ? 7.0f : up < -7.0f ? -7.0f : up;
    return activate_mul(g, -1.702f * g, u + 1.0f);
}

// A gate and its up, by an activation that is chosen at run time.
__device__ inline float gated(int activation, float gate, float up) {
    if (activation == int(Activation::CLAMPED_SWIGLU)) return clamped_swiglu(gate, up);
    return activate_mul(gate, activation == int(Activation::GELU_TANH) ? GeluTanh::exponent(gate) : Silu::exponent(gate), up);
}

// Two of each. EXPONENT: of a gate.
template <class T, class EXPONENT>
__device__ inline uint32_t activate_mul2(uint32_t gate, uint32_t up, EXPONENT exponent) {
    const float2 g = widen2<T>(gate), u = widen2<T>(up);
    return narrow2<T>(activate_mul(g.x, exponent(g.x), u.x), activate_mul(g.y, exponent(g.y), u.y));
}

// An activated gate that is ordinary: above ACTIVATION::ORDINARY_ABOVE, and not infinite. A reciprocal and a correction give all gates of
// 16 bits the bits of the division, in half the instructions.
template <class ACTIVATION>
__device__ inline float activate_ordinary(float gate) {
    float power, reciprocal;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(ACTIVATION::exponent(gate) * 1.4426950408889634f));
    const float divisor = 1.0f + power;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(divisor));
    const float quotient = gate * reciprocal, too_much = fmaf(quotient, divisor, -gate);
    return fmaf(-too_much, reciprocal, quotient);
}

__device__ inline __nv_bfloat162 two_of(float v, bf16) { return __float2bfloat162_rn(v); }
__device__ inline __half2 two_of(float v, f16) { return __float2half2_rn(v); }

// The results of four pairs of gates, each with its ups.
template <class T, class ACTIVATION>
__device__ inline Eight activate_mul8(Eight gates, Eight ups) {
    using Pair = decltype(two_of(0.0f, T()));
    const auto pair = [&](int i) { return *reinterpret_cast<const Pair*>(&gates.pair[i]); };
    const Pair least = __hmin2(__hmin2(pair(0), pair(1)), __hmin2(pair(2), pair(3)));
    const Pair most = __hmax2(__hmax2(pair(0), pair(1)), __hmax2(pair(2), pair(3)));
    if (__hbgt2(least, two_of(ACTIVATION::ORDINARY_ABOVE, T())) && __hblt2(most, two_of(INFINITY, T()))) {
        Eight results;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 g = widen2<T>(gates.pair[i]), u = widen2<T>(ups.pair[i]);
            results.pair[i] = narrow2<T>(activate_ordinary<ACTIVATION>(g.x) * u.x, activate_ordinary<ACTIVATION>(g.y) * u.y);
        }
        return results;
    }
    // Rare: registers move on, so that the divisions are there once.
#pragma unroll 1
    for (int i = 0; i < 4; i++) {
        const uint32_t result = activate_mul2<T>(gates.pair[0], ups.pair[0], ACTIVATION::exponent);
        gates = {gates.pair[1], gates.pair[2], gates.pair[3], result};
        ups = {ups.pair[1], ups.pair[2], ups.pair[3], 0};
    }
    return gates;
}

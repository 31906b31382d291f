// Powers of two for running softmaxes, which keep their maxima in units of log2, how their parts are added up, and the tanh of a softcap.
#pragma once

__device__ inline float power_of_two(float v) {
    float p;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(p) : "f"(v));
    return p;
}

// `1 - 2 / (1 + e^2v)`, within 3e-7: the tanh.approx of the hardware is within 5e-4, which a softcap of 50 makes 0.025 of a score.
__device__ inline float tanh_of(float v) {
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + power_of_two(v * 2.885390082f)));
    return fmaf(-2.0f, inverse, 1.0f);
}

// By what a sum and a unit's are multiplied where the unit's maximum joins that of the units before.
struct Shares {
    float keep, share;
};
// `highest`: of the units before. Kernels that merge units share this, so that their results have the same bits.
__device__ inline Shares join_maximum(float& highest, float top) {
    const float higher = fmaxf(highest, top);
    // Before its window a query has no finite score yet, and the difference of infinities is NaN.
    const float base = higher == -INFINITY ? 0.0f : higher;
    const Shares shares{power_of_two(highest - base), power_of_two(top - base)};
    highest = higher;
    return shares;
}
__device__ inline float joined(float before, float unit, Shares shares) {
    return fmaf(before, shares.keep, __fmul_rn(unit, shares.share));
}

// A softmax's sum, whose maximum is `top`, with the sink of head `head` in it, where there are sinks. Kernels share this, so that their results have the
// same bits.
__device__ inline float with_sink(float total, float top, const float* sinks, int head) {
    return sinks ? __fadd_rn(total, power_of_two(fmaf(sinks[head], 1.442695041f, -top))) : total;
}

// Adds a part of four sums.
__device__ inline void add_share(float4& sum, const float4& part, float share) {
    sum.x += part.x * share;
    sum.y += part.y * share;
    sum.z += part.z * share;
    sum.w += part.w * share;
}

// A result to which parts are added one after the other.
struct RunningSum {
    float top, total;
    float4 value;

    __device__ void add(const float2& part, const float4& there) {
        const float higher = fmaxf(top, part.x);
        const float keep = power_of_two(top - higher), share = power_of_two(part.x - higher);
        top = higher;
        total = total * keep + part.y * share;
        value = make_float4(value.x * keep, value.y * keep, value.z * keep, value.w * keep);
        add_share(value, there, share);
    }
};

// Random numbers and elementary functions of sampling, to the bit those of src/compute/cpu/sample.
//
// Every f32 operation is rounded by itself, in the order written: the intrinsics keep the compiler from fusing them.
#pragma once

#include <stdint.h>

// Both halves of a product. From a product of 64-bit numbers the compiler makes an addition of 0 to the upper half besides.
__device__ inline uint64_t wide_product(uint32_t a, uint32_t b) {
    uint64_t product;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
    return product;
}

// Philox4x32-10.
__device__ inline uint4 philox(uint4 counter, uint32_t key0, uint32_t key1) {
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint64_t a = wide_product(counter.x, 0xd2511f53u), b = wide_product(counter.z, 0xcd9e8d57u);
        counter = make_uint4(uint32_t(b >> 32) ^ counter.y ^ key0, uint32_t(b), uint32_t(a >> 32) ^ counter.w ^ key1, uint32_t(a));
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
    return counter;
}

// The natural logarithm of a positive normal number.
__device__ inline float exact_ln(float x) {
    const uint32_t bits = __float_as_uint(x) - 0x3f3504f3u;
    const float k = __int2float_rn(int(bits) >> 23);
    const float f = __fadd_rn(__uint_as_float((bits & 0x007fffffu) + 0x3f3504f3u), -1.0f);
    const float coefficients[8] = {0.3333333f,   -0.25000823f, 0.20001227f, -0.16623357f,
                                   0.14201762f, -0.13160194f, 0.1276155f,  -0.0763443f};
    float q = coefficients[7];
#pragma unroll
    for (int i = 6; i >= 0; i--) q = __fadd_rn(__fmul_rn(q, f), coefficients[i]);
    const float square = __fmul_rn(f, f);
    const float small = __fadd_rn(__fmul_rn(__fmul_rn(square, f), q), __fmul_rn(k, -2.1219444e-4f));
    return __fadd_rn(__fmul_rn(k, 0.6933594f), __fadd_rn(f, -__fadd_rn(__fmul_rn(0.5f, square), -small)));
}

// A number of the standard Gumbel distribution.
__device__ inline float gumbel(uint32_t x) {
    constexpr float STEP = 1.0f / 4294967296.0f;
    const float v = __fadd_rn(__fmul_rn(__uint2float_rn(x), STEP), 0.5f * STEP);
    const float y = fmaxf(__fadd_rn(1.0f, -v), 0.5f / 16777216.0f);
    const float lost = __fadd_rn(__fadd_rn(1.0f, -y), -v);
    const float e = -__fadd_rn(exact_ln(y), __fdiv_rn(lost, y));
    return -exact_ln(e);
}

// Not less than `gumbel(x)`, but cheap: -ln(v) for the uniform v, as -ln(1 - v) >= v.
__device__ inline float gumbel_bound(uint32_t x) {
    return 0.6931472f * (32.0f - __log2f(__uint2float_rn(x) + 0.5f)) + 1e-3f;
}

// Less than `gumbel(x)`, but cheap: ln(1 - v) - ln(v) for the uniform v, as -ln(1 - v) <= v / (1 - v).
__device__ inline float gumbel_least(uint32_t x) {
    const float v = (__uint2float_rn(x) + 0.5f) * (1.0f / 4294967296.0f);
    return 0.6931472f * (__log2f(fmaxf(1.0f - v, 1e-8f)) - __log2f(v)) - 2e-3f;
}

// e^x for x <= 0 in fractions of 2^40, rounded down.
__device__ inline uint64_t exact_weight(float x) {
    const float inside = fmaxf(x, -28.0f);
    constexpr float MAGIC = 12582912.0f;
    const float n = __fadd_rn(__fadd_rn(__fmul_rn(inside, 1.44269504f), MAGIC), -MAGIC);
    const float r = __fadd_rn(__fadd_rn(inside, -__fmul_rn(n, 0.6933594f)), -__fmul_rn(n, -2.1219444e-4f));
    float p = 0.0013814596f;
    p = __fadd_rn(__fmul_rn(p, r), 0.0083687175f);
    p = __fadd_rn(__fmul_rn(p, r), 0.04166839f);
    p = __fadd_rn(__fmul_rn(p, r), 0.16666521f);
    p = __fadd_rn(__fmul_rn(p, r), 0.49999994f);
    const float e_r = __fadd_rn(1.0f, __fadd_rn(r, __fmul_rn(__fmul_rn(r, r), p)));
    const float e = __fmul_rn(e_r, __uint_as_float(uint32_t(int(n) + 127) << 23));
    return uint64_t(__float2ll_rz(__fmul_rn(e, 1099511627776.0f)));
}

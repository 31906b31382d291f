// Keys and values in int8, and the scales behind them. Layout and formula: KvFormat::Int8 in src/compute/kv_shape.rs.
#pragma once

#include "numbers.cuh"

template <class T>
constexpr bool IS_BF16 = false;
template <>
constexpr bool IS_BF16<bf16> = true;

// How a kernel finds keys and values in the cache.
enum class Kv {
    PLAIN,  // numbers of type T
    INT8,   // integers and scales
};

// Bytes of a KV head of a block: integers [K|V][block_size][head_dim], scales [K|V][block_size].
__device__ inline size_t int8_head_bytes(int block_size_log2, int head_dim) {
    return size_t(2 * (head_dim + 2)) << block_size_log2;
}

// 128 and 256 have the bits 0x4300 and 0x4380 in bf16, and between them a unit is the last bit. So the lower seven bits of a byte are
// the number 128 + m, its sign is 128 or 256, and their difference is the integer.
template <int A, int B>
__device__ inline uint32_t widen_bytes_bf16(uint32_t word) {
    const uint32_t both = __byte_perm(word, 0x43434343u, A | 4 << 4 | B << 8 | 4 << 12);
    const uint32_t above = both & 0xff7fff7fu, base = both & 0xff80ff80u;
    const __nv_bfloat162 pair =
        __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&above), *reinterpret_cast<const __nv_bfloat162*>(&base));
    return *reinterpret_cast<const uint32_t*>(&pair);
}

// 1024 has the bits 0x6400 in f16, and up to 2048 a unit is the last bit.
template <int A, int B>
__device__ inline uint32_t widen_bytes_f16(uint32_t word) {
    const uint32_t above = __byte_perm(word ^ 0x80808080u, 0x64646464u, A | 4 << 4 | B << 8 | 4 << 12), base = 0x64806480u;
    const __half2 pair = __hsub2(*reinterpret_cast<const __half2*>(&above), *reinterpret_cast<const __half2*>(&base));
    return *reinterpret_cast<const uint32_t*>(&pair);
}

// The signed bytes A and B of a word as two numbers, exactly.
template <class T, int A, int B>
__device__ inline uint32_t widen_bytes(uint32_t word) {
    if constexpr (IS_BF16<T>) {
        return widen_bytes_bf16<A, B>(word);
    } else {
        return widen_bytes_f16<A, B>(word);
    }
}

// Sixteen integers as numbers.
template <class T>
__device__ inline void widen_sixteen(const uint4& bytes, Eight& first, Eight& second) {
    first.pair[0] = widen_bytes<T, 0, 1>(bytes.x);
    first.pair[1] = widen_bytes<T, 2, 3>(bytes.x);
    first.pair[2] = widen_bytes<T, 0, 1>(bytes.y);
    first.pair[3] = widen_bytes<T, 2, 3>(bytes.y);
    second.pair[0] = widen_bytes<T, 0, 1>(bytes.z);
    second.pair[1] = widen_bytes<T, 2, 3>(bytes.z);
    second.pair[2] = widen_bytes<T, 0, 1>(bytes.w);
    second.pair[3] = widen_bytes<T, 2, 3>(bytes.w);
}

// The scale of numbers whose greatest absolute value has the bits `greatest`. Without their sign, floating-point numbers are ordered
// as their bits are, and NaN is above all others.
__device__ inline bf16 int8_scale(uint32_t greatest) {
    const bf16 scale = __float2bfloat16_rn(__fdiv_rn(__uint_as_float(greatest), 127.0f));
    return __bfloat162float(scale) < 1.17549435e-38f ? __float2bfloat16_rn(0.0f) : scale;
}

// What numbers are multiplied by before they are rounded.
__device__ inline float int8_inverse(bf16 scale) {
    const float wide = __bfloat162float(scale);
    return wide == 0.0f ? 0.0f : __frcp_rn(wide);
}

__device__ inline char2 int8_pair(float2 v, float inverse) {
    return make_char2(static_cast<signed char>(__float2int_rn(__fmul_rn(v.x, inverse))),
                      static_cast<signed char>(__float2int_rn(__fmul_rn(v.y, inverse))));
}

// The two number types of activations, weights and KV caches, and how they move.
//
// Arithmetic is in f32 everywhere: numbers are widened after a load and rounded to nearest even before a store.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

using bf16 = __nv_bfloat16;
using f16 = __half;

template <class T>
__device__ inline float widen(T v);
template <>
__device__ inline float widen(bf16 v) {
    return __bfloat162float(v);
}
template <>
__device__ inline float widen(f16 v) {
    return __half2float(v);
}

template <class T>
__device__ inline T narrow(float v);
template <>
__device__ inline bf16 narrow(float v) {
    return __float2bfloat16_rn(v);
}
template <>
__device__ inline f16 narrow(float v) {
    return __float2half_rn(v);
}

// Two numbers in one register, the first in the lower half.
template <class T>
__device__ inline float2 widen2(uint32_t pair);
template <>
__device__ inline float2 widen2<bf16>(uint32_t pair) {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}
template <>
__device__ inline float2 widen2<f16>(uint32_t pair) {
    return __half22float2(*reinterpret_cast<__half2*>(&pair));
}

template <class T>
__device__ inline uint32_t narrow2(float lo, float hi);
template <>
__device__ inline uint32_t narrow2<bf16>(float lo, float hi) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(lo, hi);
    return *reinterpret_cast<uint32_t*>(&pair);
}
template <>
__device__ inline uint32_t narrow2<f16>(float lo, float hi) {
    __half2 pair = __floats2half2_rn(lo, hi);
    return *reinterpret_cast<uint32_t*>(&pair);
}

// Eight numbers: one 16-byte access.
struct alignas(16) Eight {
    uint32_t pair[4];
};

template <class T>
__device__ inline Eight load_eight(const T* at) {
    return *reinterpret_cast<const Eight*>(at);
}

// Weights are read once a step: they pass by the first-level cache.
template <class T>
__device__ inline Eight load_eight_once(const T* at) {
    Eight v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.pair[0]), "=r"(v.pair[1]), "=r"(v.pair[2]), "=r"(v.pair[3])
                 : "l"(at));
    return v;
}

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

// The same of one number.
template <class T>
__device__ inline T load_of_pass(const T* at) {
    static_assert(sizeof(T) == 2);
    unsigned short bits;
    asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(bits) : "l"(at) : "memory");
    return *reinterpret_cast<const T*>(&bits);
}

template <class T>
__device__ inline void store_eight(T* at, const Eight& v) {
    *reinterpret_cast<Eight*>(at) = v;
}

__device__ inline float warp_sum(float v) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes >>= 1) v += __shfl_xor_sync(0xffffffffu, v, lanes);
    return v;
}

// The sum over a thread block of whole warps, known to all its threads. Each CALL has shared memory of its own, because no barrier
// follows its reads: each number is used once in a kernel.
template <int CALL = 0>
__device__ inline float block_sum(float v) {
    __shared__ float of_warp[32];
    v = warp_sum(v);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
    __syncthreads();
    return warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? of_warp[threadIdx.x % 32] : 0.0f);
}

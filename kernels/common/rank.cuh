// A value and its token as one number that orders them: greatest value first, then the lowest token.
#pragma once

#include <stdint.h>

// Never 0. Zeros of both signs are equal.
__device__ inline uint64_t rank_of(float value, uint32_t token) {
    const uint32_t bits = __float_as_uint(value + 0.0f);
    const uint32_t ordered = bits ^ (int(bits) < 0 ? 0xffffffffu : 0x80000000u);
    return uint64_t(ordered) << 32 | uint32_t(~token);
}
__device__ inline uint32_t token_of(uint64_t rank) {
    return ~uint32_t(rank);
}
__device__ inline float value_of(uint64_t rank) {
    const uint32_t ordered = uint32_t(rank >> 32);
    return __uint_as_float(ordered ^ (int(ordered) < 0 ? 0x80000000u : 0xffffffffu));
}

// The greatest over the warp. All its threads call it.
__device__ inline uint64_t warp_max(uint64_t rank) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) rank = max(rank, (uint64_t)__shfl_xor_sync(0xffffffffu, (unsigned long long)rank, lanes));
    return rank;
}
__device__ inline float warp_max(float v) {
    const uint32_t bits = __float_as_uint(v);
    const uint32_t ordered = __reduce_max_sync(0xffffffffu, bits ^ (int(bits) < 0 ? 0xffffffffu : 0x80000000u));
    return __uint_as_float(ordered ^ (int(ordered) < 0 ? 0x80000000u : 0xffffffffu));
}

// The greatest over the thread block, in thread 0.
__device__ inline uint64_t block_max(uint64_t rank) {
    __shared__ uint64_t of_warp[32];
    rank = warp_max(rank);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = rank;
    __syncthreads();
    if (threadIdx.x < 32) rank = warp_max(threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : 0);
    __syncthreads();
    return rank;
}

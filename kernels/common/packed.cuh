// Some consecutive numbers as they are stored, loaded at once: fewer registers than what they widen to.
#pragma once

#include "numbers.cuh"

template <class T, int N>
struct Packed {
    static_assert(N == 2 || N == 4 || N == 8, "whole words, 16 bytes at most");
    uint32_t pairs[N / 2];

    // `at` is aligned to N numbers.
    __device__ static Packed load(const T* at) {
        Packed v;
        if constexpr (N == 2) {
            v.pairs[0] = *reinterpret_cast<const uint32_t*>(at);
        } else if constexpr (N == 4) {
            const uint2 words = *reinterpret_cast<const uint2*>(at);
            v.pairs[0] = words.x, v.pairs[1] = words.y;
        } else {
            const uint4 words = *reinterpret_cast<const uint4*>(at);
            v.pairs[0] = words.x, v.pairs[1] = words.y, v.pairs[2] = words.z, v.pairs[3] = words.w;
        }
        return v;
    }

    __device__ void widen_to(float (&to)[N]) const {
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            const float2 pair = widen2<T>(pairs[i]);
            to[2 * i] = pair.x, to[2 * i + 1] = pair.y;
        }
    }
};

template <class T>
struct Packed<T, 1> {
    T number;

    __device__ static Packed load(const T* at) { return {*at}; }
    __device__ void widen_to(float (&to)[1]) const { to[0] = widen(number); }
};

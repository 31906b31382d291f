// How a head is rotated, and normalized before, as most models do it: whole, in halves. A pair has one number of each half.
#pragma once

#include "numbers.cuh"

// Turns two pairs, whose first numbers are `a` and whose second ones are `b`.
__device__ inline void turn(float2& a, float2& b, float2 cosine, float2 sine) {
    const float2 first = a;
    a = make_float2(a.x * cosine.x - b.x * sine.x, a.y * cosine.y - b.y * sine.y);
    b = make_float2(b.x * cosine.x + first.x * sine.x, b.y * cosine.y + first.y * sine.y);
}

// The squares of two pairs, as rope_and_cache.cu adds them up: what it makes of a head has one result everywhere.
__device__ inline float squares_of(float2 a, float2 b) { return a.x * a.x + a.y * a.y + b.x * b.x + b.y * b.y; }

// By what two pairs are rotated and normalized.
struct TwoPairs {
    float2 cosine, sine, low_norm, high_norm;

    // `at`: of the first pair. A row of `rope` has `half` cosines, then as many sines.
    __device__ void load_rope(const float* rope, int half, int at) {
        cosine = *reinterpret_cast<const float2*>(rope + at);
        sine = *reinterpret_cast<const float2*>(rope + half + at);
    }
    __device__ void load_norm(const float* norm, int half, int at) {
        low_norm = *reinterpret_cast<const float2*>(norm + at);
        high_norm = *reinterpret_cast<const float2*>(norm + half + at);
    }

    // `low` has the first numbers of both pairs, `high` the second ones. `scale`: of the head, if `has_norm`.
    template <class T>
    __device__ void apply(uint32_t& low, uint32_t& high, bool has_norm, float scale) const {
        float2 a = widen2<T>(low), b = widen2<T>(high);
        if (has_norm) {
            a = make_float2(a.x * scale * low_norm.x, a.y * scale * low_norm.y);
            b = make_float2(b.x * scale * high_norm.x, b.y * scale * high_norm.y);
        }
        turn(a, b, cosine, sine);
        low = narrow2<T>(a.x, a.y);
        high = narrow2<T>(b.x, b.y);
    }
};

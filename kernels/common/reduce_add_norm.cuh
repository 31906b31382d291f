// What `reduce_add_norm` and `reduce_add_norm_two_shot` share: their parameters, and the sum over ranks.
#pragma once

#include "add_norm.cuh"
#include "dependent_launch.cuh"
#include "exchange.cuh"

template <class T>
struct ReduceAddNormParams {
    Exchange exchange;
    T* out;                    // [rows, stride]   only with a next norm
    T* residual;               // [rows, stride]
    const T* share;            // [rows, stride]   may be out
    const float* weight;       // [hidden] of the next norm
    const float* post_weight;  // [hidden] of the norm of the sum
    int rows;                  // that fit sender_bytes
    int hidden;                // a multiple of 8
    int stride;                // numbers from row to row of out, residual and share
    float eps;                 // of the next norm
    float post_eps;            // of the norm of the sum
    float scale;               // factor of what is added
    float stream_scale;        // factor of the stream with it
};

// Eight numbers of the sum over all shares, in f32 and in the order of ranks: `own` is this rank's, the others come to the same place `at`
// of each sender's slot.
template <class T>
__device__ inline WideEight sum_of_shares(const Exchange& e, uint32_t parity, const Eight& own, size_t at, Wait& wait) {
    uint8_t* const slots = slot_of(e, parity, e.rank, 0) + at;
    const auto first_look = [&](int from) { return from == e.rank ? own : look(slots + from * e.sender_bytes); };
    WideEight sum;
    if (e.ranks == 2) {
        const int other = 1 - e.rank;
        const Eight v = take(slots + other * e.sender_bytes, e, wait), &a = e.rank == 0 ? own : v, &b = e.rank == 0 ? v : own;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float2 x = widen2<T>(a.pair[j]), y = widen2<T>(b.pair[j]);
            sum.pair[j] = make_float2(x.x + y.x, x.y + y.y);
        }
        return sum;
    }
    // The next rank is looked at before this one is waited for: a look is a trip to the second-level cache.
    Eight ahead = first_look(0);
#pragma unroll 1
    for (int from = 0; from < e.ranks; from++) {
        Eight v = ahead;
        if (from + 1 < e.ranks) ahead = first_look(from + 1);
        if (from != e.rank) v = take(slots + from * e.sender_bytes, v, e, wait);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float2 a = widen2<T>(v.pair[j]);
            sum.pair[j] = from == 0 ? a : make_float2(sum.pair[j].x + a.x, sum.pair[j].y + a.y);
        }
    }
    return sum;
}

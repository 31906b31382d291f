// What `add_norm` and `reduce_add_norm` do with a row: they add it to the residual stream and normalize the sum.
#pragma once

#include "norm.cuh"

template <bool FIRST, class A, class B>
__device__ inline auto& choose(A& a, B& b) {
    if constexpr (FIRST) return a;
    else return b;
}

// One row of a thread block, of up to GROUPS groups of eight numbers per thread. `p` has the fields of AddNormParams. `delta(k, i)`
// gives the thread's group `k` of what is added, which begins at `i`; it is called once for each. POST normalizes the delta, NEXT the sum.
// `note(i, v)` gets each group of the sum, as it is rounded for the stream.
template <class T, Norm POST, Norm NEXT, int GROUPS, class Params, class Delta, class Note>
__device__ inline void add_norm_row(const Params& p, size_t row, const FirstWeights& first, const FirstWeights& post_first,
                                    const Delta& delta, const Note& note) {
    constexpr bool IS_WIDE = sizeof(delta(0, 0)) > sizeof(Eight);
    // With a norm of delta: delta first, then the sum. Without one: the sum at once.
    Eight kept[GROUPS], first_residual{};
    WideEight wide[IS_WIDE ? GROUPS : 1];
    // What is added, in the registers of the sum where they can hold it.
    auto& added = choose<IS_WIDE>(wide, kept);
    Moments post{0.0f, 1.0f};
    if constexpr (POST != Norm::None) {
        if (group_start(0) < p.hidden) first_residual = load_eight(p.residual + row + group_start(0));
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < GROUPS; k++) {
            const int i = group_start(k);
            if (i >= p.hidden) break;
            added[k] = delta(k, i);
            for (int j = 0; j < 4; j++) sum = first_sum<POST>(sum, in_f32<T>(added[k].pair[j]));
        }
        post = moments<T, POST, 0>(sum, added, p.hidden, p.post_eps);
    }
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < GROUPS; k++) {
        const int i = group_start(k);
        if (i >= p.hidden) break;
        const Eight residual = POST != Norm::None && k == 0 ? first_residual : load_eight(p.residual + row + i);
        if constexpr (POST == Norm::None) added[k] = delta(k, i);
        for (int j = 0; j < 4; j++) {
            const float2 r = widen2<T>(residual.pair[j]);
            float2 a = in_f32<T>(added[k].pair[j]);
            if constexpr (POST != Norm::None) a = normalized<T>(added[k].pair[j], post, post_first, p.post_weight, k, j);
            // With factors of 1 this is the sum, to the bit.
            kept[k].pair[j] = narrow2<T>(p.stream_scale * fmaf(p.scale, a.x, r.x), p.stream_scale * fmaf(p.scale, a.y, r.y));
            sum = first_sum<NEXT>(sum, widen2<T>(kept[k].pair[j]));
        }
        note(i, kept[k]);
        store_eight(p.residual + row + i, kept[k]);
    }
    if constexpr (NEXT != Norm::None) {
        const Moments m = moments<T, NEXT, 2>(sum, kept, p.hidden, p.eps);
        store_normalized<T, NEXT>(p.out + row, kept, m, first, p.weight, p.hidden);
    }
}

template <class T, Norm POST, Norm NEXT, int GROUPS, class Params, class Delta>
__device__ inline void add_norm_row(const Params& p, size_t row, const FirstWeights& first, const FirstWeights& post_first,
                                    const Delta& delta) {
    add_norm_row<T, POST, NEXT, GROUPS>(p, row, first, post_first, delta, [](int, const Eight&) {});
}

// The same for a row that was added elsewhere: `taken(i)` gives the group of the sum that begins at `i`. Where the sum has the same bits,
// so has the norm.
template <class T, Norm NEXT, int GROUPS, class Params, class Taken>
__device__ inline void norm_row(const Params& p, size_t row, const FirstWeights& first, const Taken& taken) {
    Eight kept[GROUPS];
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < GROUPS; k++) {
        const int i = group_start(k);
        if (i >= p.hidden) break;
        kept[k] = taken(i);
        for (int j = 0; j < 4; j++) sum = first_sum<NEXT>(sum, widen2<T>(kept[k].pair[j]));
        store_eight(p.residual + row + i, kept[k]);
    }
    if constexpr (NEXT != Norm::None) {
        const Moments m = moments<T, NEXT, 2>(sum, kept, p.hidden, p.eps);
        store_normalized<T, NEXT>(p.out + row, kept, m, first, p.weight, p.hidden);
    }
}

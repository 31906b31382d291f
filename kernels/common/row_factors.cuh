// Rows of the residual stream that are divided in the product that reads them: docs/decisions/0061-norms-are-divided-in-the-next-product.md.
//
// A product that adds to the stream stores the sums of squares of each row in parts. The next one finds the factor of each row from them. `p` has the fields of
// GemmSwapAbParams in gemm_swap_ab.cu.
#pragma once

#include "numbers.cuh"

// Numbers from the parts of a row to those of the next one.
__device__ inline int square_stride(int parts) {
    return (parts + 3) & ~3;
}

// What the rows of a tile of x are to be multiplied by. One warp, whose loads are all under way at once where rows have few parts.
template <int TOKENS, class Params>
__device__ inline void load_factors(const Params& p, float* factors, int first_token, int tokens) {
    constexpr int ROUNDS = (TOKENS + 31) / 32;
    const int stride = square_stride(p.square_parts);
    const float* squares[ROUNDS];
    float4 sum[ROUNDS];
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        // Of rows that are not there, another one's.
        const int token = min(first_token + min(int(threadIdx.x % 32) + 32 * r, tokens - 1), p.m - 1);
        squares[r] = p.squares + size_t(token) * stride;
        sum[r] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    constexpr int AT_ONCE = TOKENS <= 32 ? 8 : 4;
    for (int first = 0; first < p.square_parts; first += 4 * AT_ONCE) {
        float4 four[AT_ONCE][ROUNDS];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
#pragma unroll
            for (int r = 0; r < ROUNDS; r++) {
                if (first + 4 * i < p.square_parts) four[i][r] = __ldcg(reinterpret_cast<const float4*>(squares[r] + first + 4 * i));
            }
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int there = p.square_parts - first - 4 * i;
#pragma unroll
            for (int r = 0; r < ROUNDS; r++) {
                const float4 v = four[i][r];
                if (there > 0) sum[r].x += v.x;
                if (there > 1) sum[r].y += v.y;
                if (there > 2) sum[r].z += v.z;
                if (there > 3) sum[r].w += v.w;
            }
        }
    }
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        const int token = threadIdx.x % 32 + 32 * r;
        if (token < TOKENS) factors[token] = rsqrtf(((sum[r].x + sum[r].y) + (sum[r].z + sum[r].w)) / p.k + p.eps);
    }
}

// Eight numbers of the stream, to which `delta` is added, in a thread block that has EIGHTS eights of each of its tokens, in neighbouring lanes.
// All lanes of a warp call it.
template <class T, class Params>
__device__ inline void add_eight(const Params& p, const Eight& before, const Eight& delta, const float4 (&norm)[2], bool is_there,
                                 int token, int column, int eights, int square_part) {
    Eight stream, scaled;
    float squares = 0.0f;
    const float* weight = reinterpret_cast<const float*>(norm);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float2 r = widen2<T>(before.pair[j]), d = widen2<T>(delta.pair[j]);
        stream.pair[j] = narrow2<T>(fmaf(p.scale, d.x, r.x), fmaf(p.scale, d.y, r.y));
        const float2 v = widen2<T>(stream.pair[j]);
        squares += v.x * v.x + v.y * v.y;
        scaled.pair[j] = narrow2<T>(v.x * weight[2 * j], v.y * weight[2 * j + 1]);
    }
    if (!is_there) squares = 0.0f;
    for (int lanes = 1; lanes < eights; lanes *= 2) squares += __shfl_xor_sync(0xffffffffu, squares, lanes);
    if (!is_there) return;
    const size_t at = size_t(token) * p.out_stride + column;
    store_eight(p.residual + at, stream);
    store_eight(p.out + at, scaled);
    if (threadIdx.x % eights == 0) p.squares[size_t(token) * square_stride(p.square_parts) + square_part] = squares;
}

// Rows of the residual stream that are divided in the product that reads them: docs/decisions/0061-norms-are-divided-in-the-next-product.md.
//
// A product that adds to the stream stores the sums of squares of each row in parts. The next one finds the factor of each row from them.
#pragma once

#include "numbers.cuh"

// The norms before and after a product: its rows of x are those of the stream that are still to be divided, or its sums are added to the stream.
template <class T>
struct RowNorms {
    float* squares;     // of rows of x, or of added results; null: of neither. [m, square_stride(square_parts)]
    T* residual;        // of added results, [m, out_stride]; else null. `out` gets the rows of the stream times `norm`, and is not rounded otherwise
    const float* norm;  // of added results, [n]: the weights of the norm
    int square_parts;   // numbers whose sum the squares of a row are
    float eps;          // of rows of x, which are to be multiplied by 1 / sqrt(sum / k + eps)
    float scale;        // of what is added
    int reserved;
};

// Numbers from the parts of a row to those of the next one.
__device__ inline int square_stride(int parts) {
    return (parts + 3) & ~3;
}

// What the rows of a tile of x are to be multiplied by. One warp, whose loads are all under way at once where rows have few parts.
template <int TOKENS, class T>
__device__ inline void load_factors(const RowNorms<T>& p, int m, int k, float* factors, int first_token, int tokens) {
    constexpr int ROUNDS = (TOKENS + 31) / 32;
    const int stride = square_stride(p.square_parts);
    const float* squares[ROUNDS];
    float4 sum[ROUNDS];
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        // Of rows that are not there, another one's.
        const int token = min(first_token + min(int(threadIdx.x % 32) + 32 * r, tokens - 1), m - 1);
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
        if (token < TOKENS) factors[token] = rsqrtf(((sum[r].x + sum[r].y) + (sum[r].z + sum[r].w)) / k + p.eps);
    }
}

// Eight numbers of the stream, to which `delta` is added, in a thread block that has EIGHTS eights of each of its tokens, in neighbouring lanes.
// All lanes of a warp call it.
template <class T>
__device__ inline void add_eight(const RowNorms<T>& p, T* out, int out_stride, const Eight& before, const Eight& delta, const float4 (&norm)[2], bool is_there,
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
    const size_t at = size_t(token) * out_stride + column;
    store_eight(p.residual + at, stream);
    store_eight(out + at, scaled);
    if (threadIdx.x % eights == 0) p.squares[size_t(token) * square_stride(p.square_parts) + square_part] = squares;
}

template <class T>
__device__ inline bool has_factors(const RowNorms<T>& p) {
    return p.squares && !p.residual;
}

// The parts of a row that a lane has, from the first `N * 128` on: of each 128, four.
template <int N>
struct SquaresOfLane {
    float4 four[N];
};
template <int N, class T>
__device__ inline SquaresOfLane<N> load_squares(const RowNorms<T>& p, int row, int first = 0) {
    SquaresOfLane<N> s;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int part = first + 128 * i + threadIdx.x % 32 * 4;
        s.four[i] = part < p.square_parts ? __ldcg(reinterpret_cast<const float4*>(p.squares + size_t(row) * square_stride(p.square_parts) + part))
                                          : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    return s;
}

// What rows of x are to be multiplied by. All warps of a thread block call it, each with what it has loaded of row `warp`, if there is one. A barrier
// follows. The order of a sum depends on the number of parts alone.
template <int N, class T>
__device__ inline void store_factors(const RowNorms<T>& p, float* factors, int m, int k, SquaresOfLane<N> s) {
    const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (int row = warp; row < m; row += warps) {
        float sum = 0.0f;
        for (int first = 0; first < p.square_parts; first += 128 * N) {
            if (row != warp || first > 0) s = load_squares<N>(p, row, first);
#pragma unroll
            for (int i = 0; i < N; i++) sum += (s.four[i].x + s.four[i].y) + (s.four[i].z + s.four[i].w);
        }
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) factors[row] = rsqrtf(sum / k + p.eps);
    }
}

// What is there of a number of the stream, and its weight of the norm.
struct Before {
    float stream, norm;
};
template <class T>
__device__ inline Before load_before(const RowNorms<T>& p, size_t at, int column, bool is_there) {
    if (!is_there) return Before{};
    return Before{widen<T>(load_of_pass(p.residual + at)), p.norm[column]};
}

// Adds `delta` to a number of the stream. Squares have a part for each eight columns. Eight lanes in sequence have the columns of an eight of one token; all lanes of the warp call it.
template <class T>
__device__ inline void add_number(const RowNorms<T>& p, T* out, size_t at, int token, int column, bool is_there, const Before& before, T delta) {
    const T stream = narrow<T>(fmaf(p.scale, widen<T>(delta), before.stream));
    const float v = widen<T>(stream);
    float squares = v * v;
#pragma unroll
    for (int lanes = 1; lanes < 8; lanes *= 2) squares += __shfl_xor_sync(0xffffffffu, squares, lanes);
    if (!is_there) return;
    p.residual[at] = stream;
    out[at] = narrow<T>(v * before.norm);
    if (column % 8 == 0) p.squares[size_t(token) * square_stride(p.square_parts) + column / 8] = squares;
}

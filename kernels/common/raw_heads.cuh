// Heads as the projections made them, in the registers of kernels that attend to them. What is done to them has the bits of
// rope_and_cache.cu.
#pragma once

#include "rope.cuh"
#include "tensor_core.cuh"

// Queries of 8 heads as an operand: lane l has numbers 8 j + l % 4 * 2 and the next one of head l / 4, and the same of the other half.
template <class T, int D>
struct RawQueries {
    TwoPairs pairs[D / 16];

    __device__ static int at(int j) { return 8 * j + threadIdx.x % 4 * 2; }

    __device__ void load_rope(const float* rope) {
#pragma unroll
        for (int j = 0; j < D / 16; j++) pairs[j].load_rope(rope, D / 2, at(j));
    }
    __device__ void load_norm(const float* norm) {
#pragma unroll
        for (int j = 0; j < D / 16; j++) pairs[j].load_norm(norm, D / 2, at(j));
    }

    __device__ void prepare(uint32_t (&query)[D / 16][1][2], bool has_norm, float eps) const {
        float scale = 1.0f;
        if (has_norm) {
            // In the order of `warp_sum` over lanes that have two pairs each.
            float squares[D / 16];
#pragma unroll
            for (int j = 0; j < D / 16; j++) {
                squares[j] = squares_of(widen2<T>(query[j / 2][0][j % 2]), widen2<T>(query[j / 2 + D / 32][0][j % 2]));
            }
#pragma unroll
            for (int apart = D / 32; apart > 0; apart /= 2) {
#pragma unroll
                for (int j = 0; j < apart; j++) squares[j] += squares[j + apart];
            }
            squares[0] += __shfl_xor_sync(0xffffffffu, squares[0], 2);
            squares[0] += __shfl_xor_sync(0xffffffffu, squares[0], 1);
            scale = rsqrtf(squares[0] / D + eps);
        }
#pragma unroll
        for (int j = 0; j < D / 16; j++) {
            pairs[j].template apply<T>(query[j / 2][0][j % 2], query[j / 2 + D / 32][0][j % 2], has_norm, scale);
        }
    }
};

// The last key and value of a row, in a warp whose lanes have two numbers of either half of each.
template <class T, int D>
struct RawToken {
    static constexpr int HALF = D / 2;
    TwoPairs pairs;
    uint32_t key[2], value[2];

    static __device__ int at() { return threadIdx.x % 32 * 2; }
    static __device__ bool has_numbers() { return at() < HALF; }

    __device__ void load_rope(const float* rope) {
        if (has_numbers()) pairs.load_rope(rope, HALF, at());
    }
    __device__ void load_norm(const float* norm) {
        if (has_numbers()) pairs.load_norm(norm, HALF, at());
    }
    // Of a KV head, from qkv.
    __device__ void load(const T* of_key, int to_value) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const T* from = of_key + half * HALF + at();
            key[half] = has_numbers() ? *reinterpret_cast<const uint32_t*>(from) : 0;
            value[half] = has_numbers() ? *reinterpret_cast<const uint32_t*>(from + to_value) : 0;
        }
    }
    __device__ void prepare(bool has_norm, float eps) {
        float scale = 1.0f;
        if (has_norm) scale = rsqrtf(warp_sum(squares_of(widen2<T>(key[0]), widen2<T>(key[1]))) / D + eps);
        pairs.template apply<T>(key[0], key[1], has_norm, scale);
    }
    __device__ void store(T* keys, T* values) const {
        if (!has_numbers()) return;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            *reinterpret_cast<uint32_t*>(keys + half * HALF + at()) = key[half];
            *reinterpret_cast<uint32_t*>(values + half * HALF + at()) = value[half];
        }
    }
    // To row `row` of a warp's slices of keys and values.
    __device__ void store_shared(T* keys, T* values, int row) const {
        put(keys, key, row);
        put(values, value, row);
        __syncwarp();
    }
    // To row `row` of a slice of either.
    __device__ void put_key(T* keys, int row) const {
        put(keys, key, row);
        __syncwarp();
    }
    __device__ void put_value(T* values, int row) const {
        put(values, value, row);
        __syncwarp();
    }

  private:
    static __device__ void put(T* slice, const uint32_t (&numbers)[2], int row) {
        if (!has_numbers()) return;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int i = half * HALF + at();
            *reinterpret_cast<uint32_t*>(slice + Tile<D>::at(row, i / 8) * 8 + i % 8) = numbers[half];
        }
    }
};

// Normalizes and rotates queries and keys, stores keys and values. Contract: src/ops/rope_and_cache.rs. Reference:
// src/backend/cpu/rope_and_cache.rs.
//
// Memory-bound in prefill: reads qkv once, writes queries, keys and values once. At the launch floor in decode.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"

template <class T>
struct RopeAndCacheParams {
    T* qkv;                     // [tokens, stride]: heads queries, kv_heads keys, kv_heads values
    T* cache;                   // [block][kv_head][K|V][block_size][head_dim]
    const float* query_norm;    // [head_dim], null where heads are not normalized
    const float* key_norm;      // [head_dim], likewise
    const float* rope;          // [positions, head_dim]: cosines, then sines
    const uint32_t* positions;  // [tokens]
    const uint32_t* slots;      // [tokens]; UINT32_MAX stores nothing
    int heads;
    int kv_heads;
    int head_dim;    // even, at most 256
    int block_size;  // tokens, a power of two
    int stride;      // numbers from row to row of qkv
    float eps;
};

// One head a warp finds more warps for few tokens; four share the load of the rope and keep more loads under way.
// Grid [tokens, splits], block [32 * warps], where splits * warps * HEADS is at least heads + 2 kv_heads.
template <class T, int HEADS>
__device__ void rope_and_cache(const RopeAndCacheParams<T>& p) {
    constexpr int PAIRS = 2;  // a lane holds up to 2 x 2 numbers of each half of a head
    launch_dependents();
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    const int first = blockIdx.y * warps + threadIdx.x / 32, stride = gridDim.y * warps;
    const int half = p.head_dim / 2;
    const size_t token = blockIdx.x;

    const uint32_t slot = p.slots[token];
    const float* rope = p.rope + size_t(p.positions[token]) * p.head_dim;
    float2 cosine[PAIRS], sine[PAIRS], low_norm[PAIRS], high_norm[PAIRS];
    const auto load_rope = [&] {
#pragma unroll
        for (int k = 0; k < PAIRS; k++) {
            const int i = k * 64 + lane * 2;
            if (i >= half) break;
            cosine[k] = *reinterpret_cast<const float2*>(rope + i);
            sine[k] = *reinterpret_cast<const float2*>(rope + half + i);
        }
    };
    const auto norm_of = [&](int head) { return head < p.heads ? p.query_norm : head < p.heads + p.kv_heads ? p.key_norm : nullptr; };
    const auto load_norm = [&](const float* norm) {
#pragma unroll
        for (int k = 0; k < PAIRS; k++) {
            const int i = k * 64 + lane * 2;
            if (!norm || i >= half) break;
            low_norm[k] = *reinterpret_cast<const float2*>(norm + i);
            high_norm[k] = *reinterpret_cast<const float2*>(norm + half + i);
        }
    };
    // Few tokens wait for the kernel before them, and load meanwhile what the plan and the weights have for them. Many tokens wait for
    // memory: there the numbers of all heads come first.
    if (HEADS == 1) {
        load_rope();
        load_norm(norm_of(first));
    }
    grid_dependency_wait();

    T* row = p.qkv + token * p.stride;
    uint32_t low_pair[HEADS][PAIRS], high_pair[HEADS][PAIRS];
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        const int head = first + h * stride;
#pragma unroll
        for (int k = 0; k < PAIRS; k++) {
            const int i = k * 64 + lane * 2;
            if (i >= half || head >= p.heads + 2 * p.kv_heads) break;
            low_pair[h][k] = *reinterpret_cast<const uint32_t*>(row + head * p.head_dim + i);
            high_pair[h][k] = *reinterpret_cast<const uint32_t*>(row + head * p.head_dim + half + i);
        }
    }
    if (HEADS > 1) load_rope();
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        const int head = first + h * stride;
        if (head >= p.heads + 2 * p.kv_heads) return;
        const bool is_query = head < p.heads, is_value = head >= p.heads + p.kv_heads;
        if (!is_query && slot == UINT32_MAX) return;
        if (!is_value) {
            const float* norm = norm_of(head);
            if (HEADS > 1) load_norm(norm);
            float squares = 0.0f;
#pragma unroll
            for (int k = 0; k < PAIRS; k++) {
                if (k * 64 + lane * 2 >= half) break;
                const float2 a = widen2<T>(low_pair[h][k]), b = widen2<T>(high_pair[h][k]);
                squares += a.x * a.x + a.y * a.y + b.x * b.x + b.y * b.y;
            }
            const float scale = norm ? rsqrtf(warp_sum(squares) / p.head_dim + p.eps) : 1.0f;
#pragma unroll
            for (int k = 0; k < PAIRS; k++) {
                if (k * 64 + lane * 2 >= half) break;
                float2 a = widen2<T>(low_pair[h][k]), b = widen2<T>(high_pair[h][k]);
                if (norm) {
                    a = make_float2(a.x * scale * low_norm[k].x, a.y * scale * low_norm[k].y);
                    b = make_float2(b.x * scale * high_norm[k].x, b.y * scale * high_norm[k].y);
                }
                low_pair[h][k] = narrow2<T>(a.x * cosine[k].x - b.x * sine[k].x, a.y * cosine[k].y - b.y * sine[k].y);
                high_pair[h][k] = narrow2<T>(b.x * cosine[k].x + a.x * sine[k].x, b.y * cosine[k].y + a.y * sine[k].y);
            }
        }

        T* to = row + head * p.head_dim;
        if (!is_query) {
            const int kv_head = is_value ? head - p.heads - p.kv_heads : head - p.heads;
            const size_t place = (size_t(slot / p.block_size) * p.kv_heads + kv_head) * 2 + (is_value ? 1 : 0);
            to = p.cache + (place * p.block_size + slot % p.block_size) * p.head_dim;
        }
#pragma unroll
        for (int k = 0; k < PAIRS; k++) {
            const int i = k * 64 + lane * 2;
            if (i >= half) break;
            *reinterpret_cast<uint32_t*>(to + i) = low_pair[h][k];
            *reinterpret_cast<uint32_t*>(to + half + i) = high_pair[h][k];
        }
    }
}

#define KERNEL(heads, dtype)                                                                  \
    extern "C" __global__ void __launch_bounds__(1024)                                        \
        nvllm_k_rope_and_cache_h##heads##_##dtype(const __grid_constant__ RopeAndCacheParams<dtype> p) { \
        rope_and_cache<dtype, heads>(p);                                                      \
    }

KERNEL(1, bf16)
KERNEL(1, f16)
KERNEL(4, bf16)
KERNEL(4, f16)

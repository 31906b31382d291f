// Normalizes and rotates queries and keys, stores keys and values. Contract: src/ops/rope_and_cache.rs. Reference:
// src/backend/cpu/rope_and_cache.rs.
//
// Memory-bound in prefill: reads qkv once, writes queries, keys and values once. At the launch floor in decode. One warp per
// head of a token.
#include "common/chain.cuh"
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

// Grid [tokens, (heads + 2 kv_heads) / 8 rounded up], block [256].
template <class T>
__device__ void rope_and_cache(const RopeAndCacheParams<T>& p) {
    constexpr int PAIRS = 2;  // a lane holds up to 2 x 2 numbers of each half of a head
    wait_for_previous();
    let_next_begin();
    const int lane = threadIdx.x % 32;
    const int head = blockIdx.y * 8 + threadIdx.x / 32;
    if (head >= p.heads + 2 * p.kv_heads) return;
    const int half = p.head_dim / 2;
    const size_t token = blockIdx.x;
    T* row = p.qkv + token * p.stride + size_t(head) * p.head_dim;

    float2 low[PAIRS], high[PAIRS];
    float squares = 0.0f;
#pragma unroll
    for (int k = 0; k < PAIRS; k++) {
        const int i = k * 64 + lane * 2;
        if (i >= half) break;
        low[k] = widen2<T>(*reinterpret_cast<const uint32_t*>(row + i));
        high[k] = widen2<T>(*reinterpret_cast<const uint32_t*>(row + half + i));
        squares += low[k].x * low[k].x + low[k].y * low[k].y + high[k].x * high[k].x + high[k].y * high[k].y;
    }

    const bool is_value = head >= p.heads + p.kv_heads;
    const bool is_query = head < p.heads;
    if (!is_value) {
        const float* norm = is_query ? p.query_norm : p.key_norm;
        const float scale = norm ? rsqrtf(warp_sum(squares) / p.head_dim + p.eps) : 1.0f;
        const float* rope = p.rope + size_t(p.positions[token]) * p.head_dim;
#pragma unroll
        for (int k = 0; k < PAIRS; k++) {
            const int i = k * 64 + lane * 2;
            if (i >= half) break;
            float2 a = low[k], b = high[k];
            if (norm) {
                const float2 wa = *reinterpret_cast<const float2*>(norm + i);
                const float2 wb = *reinterpret_cast<const float2*>(norm + half + i);
                a = make_float2(a.x * scale * wa.x, a.y * scale * wa.y);
                b = make_float2(b.x * scale * wb.x, b.y * scale * wb.y);
            }
            const float2 cosine = *reinterpret_cast<const float2*>(rope + i);
            const float2 sine = *reinterpret_cast<const float2*>(rope + half + i);
            low[k] = make_float2(a.x * cosine.x - b.x * sine.x, a.y * cosine.y - b.y * sine.y);
            high[k] = make_float2(b.x * cosine.x + a.x * sine.x, b.y * cosine.y + a.y * sine.y);
        }
    }

    T* to = row;
    if (!is_query) {
        const uint32_t slot = p.slots[token];
        if (slot == UINT32_MAX) return;
        const int kv_head = is_value ? head - p.heads - p.kv_heads : head - p.heads;
        const size_t place = (size_t(slot / p.block_size) * p.kv_heads + kv_head) * 2 + (is_value ? 1 : 0);
        to = p.cache + (place * p.block_size + slot % p.block_size) * p.head_dim;
    }
#pragma unroll
    for (int k = 0; k < PAIRS; k++) {
        const int i = k * 64 + lane * 2;
        if (i >= half) break;
        *reinterpret_cast<uint32_t*>(to + i) = narrow2<T>(low[k].x, low[k].y);
        *reinterpret_cast<uint32_t*>(to + half + i) = narrow2<T>(high[k].x, high[k].y);
    }
}

extern "C" __global__ void nvllm_k_rope_and_cache_bf16(const __grid_constant__ RopeAndCacheParams<bf16> p) {
    rope_and_cache(p);
}
extern "C" __global__ void nvllm_k_rope_and_cache_f16(const __grid_constant__ RopeAndCacheParams<f16> p) {
    rope_and_cache(p);
}

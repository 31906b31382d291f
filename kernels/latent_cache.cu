// Rotates queries and the key that all heads share, and stores that key, which ends with its value. Contract: src/compute/ops/rope_and_cache.rs. Reference:
// src/compute/cpu/rope_and_cache.rs.
//
// At the launch floor in decode, memory-bound in prefill. Nothing is normalized. Queries may grow with their position. One thread block per token.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"

template <class T>
struct LatentCacheParams {
    T* qkv;                     // [tokens, stride]: heads queries, and one key
    T* cache;                   // [block][block_size][head_dim]
    const float* rope;          // [positions, rotary]: cosines, then sines
    const float* temperature;   // [positions], null where queries do not grow
    const uint32_t* positions;  // [tokens]
    const uint32_t* slots;      // [tokens]; UINT32_MAX stores nothing
    int heads;
    int head_dim;               // a multiple of 8
    int rotary;                 // numbers that turn: the first of a head, a multiple of 8
    int neighbours;             // 1: pairs (2i, 2i + 1); 0: pairs (i, i + rotary / 2)
    int stride;                 // numbers from row to row of qkv, a multiple of 8
};

// Grid [tokens], block [256].
template <class T>
__device__ void latent_cache(const LatentCacheParams<T>& p) {
    launch_dependents();
    const size_t token = blockIdx.x;
    const uint32_t slot = p.slots[token];
    const int pairs = p.rotary / 2;
    const uint32_t position = p.positions[token];
    const float* rope = p.rope + size_t(position) * p.rotary;
    const float temperature = p.temperature ? p.temperature[position] : 1.0f;
    grid_dependency_wait();
    T* row = p.qkv + token * p.stride;
    // A slot is block * block_size + offset, and there is one KV head.
    T* stored = slot == UINT32_MAX ? nullptr : p.cache + size_t(slot) * p.head_dim;
    for (int i = threadIdx.x; i < (p.heads + 1) * pairs; i += blockDim.x) {
        const int head = i / pairs, pair = i % pairs;
        const int first = p.neighbours ? 2 * pair : pair, second = p.neighbours ? first + 1 : pair + pairs;
        T* from = row + size_t(head) * p.head_dim;
        const float cosine = rope[pair], sine = rope[pairs + pair];
        const float a = widen(from[first]), b = widen(from[second]);
        const bool is_query = head < p.heads;
        T* to = is_query ? from : stored;
        if (to == nullptr) continue;
        const float scale = is_query ? temperature : 1.0f;
        to[first] = narrow<T>((a * cosine - b * sine) * scale);
        to[second] = narrow<T>((b * cosine + a * sine) * scale);
    }
    // Behind what turns, in the positions at which queries have grown.
    if (temperature != 1.0f) {
        const int eights = (p.head_dim - p.rotary) / 8;
        for (int i = threadIdx.x; i < p.heads * eights; i += blockDim.x) {
            T* const at = row + size_t(i / eights) * p.head_dim + p.rotary + i % eights * 8;
            Eight numbers = load_eight(at);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float2 v = widen2<T>(numbers.pair[j]);
                numbers.pair[j] = narrow2<T>(v.x * temperature, v.y * temperature);
            }
            store_eight(at, numbers);
        }
    }
    if (stored == nullptr) return;
    const T* key = row + size_t(p.heads) * p.head_dim;
    for (int i = p.rotary + threadIdx.x * 8; i < p.head_dim; i += blockDim.x * 8) store_eight(stored + i, load_eight(key + i));
}

extern "C" __global__ void nvllm_k_latent_cache_bf16(const __grid_constant__ LatentCacheParams<bf16> p) { latent_cache(p); }
extern "C" __global__ void nvllm_k_latent_cache_f16(const __grid_constant__ LatentCacheParams<f16> p) { latent_cache(p); }

// Rotates queries and the key that all heads share, and stores that key, which ends with its value. Contract: src/compute/ops/rope_and_cache.rs. Reference:
// src/compute/cpu/rope_and_cache.rs.
//
// At the launch floor in decode, memory-bound in prefill. Nothing is normalized. One thread block per token.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"

template <class T>
struct LatentCacheParams {
    T* qkv;                     // [tokens, stride]: heads queries, and one key
    T* cache;                   // [block][block_size][head_dim]
    const float* rope;          // [positions, rotary]: cosines, then sines
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
    const float* rope = p.rope + size_t(p.positions[token]) * p.rotary;
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
        T* to = head < p.heads ? from : stored;
        if (to == nullptr) continue;
        to[first] = narrow<T>(a * cosine - b * sine);
        to[second] = narrow<T>(b * cosine + a * sine);
    }
    if (stored == nullptr) return;
    const T* key = row + size_t(p.heads) * p.head_dim;
    for (int i = p.rotary + threadIdx.x * 8; i < p.head_dim; i += blockDim.x * 8) store_eight(stored + i, load_eight(key + i));
}

extern "C" __global__ void nvllm_k_latent_cache_bf16(const __grid_constant__ LatentCacheParams<bf16> p) { latent_cache(p); }
extern "C" __global__ void nvllm_k_latent_cache_f16(const __grid_constant__ LatentCacheParams<f16> p) { latent_cache(p); }

// Looks up the row of each token, which the host may know only as a sample of the pass before. Contract: src/ops/embedding.rs. Reference: src/backend/cpu/embedding.rs.
//
// Memory-bound: reads one row and writes one row per token. One thread block per token.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"

template <class T>
struct EmbeddingParams {
    T* out;                     // [tokens, stride]
    const T* table;             // [vocab, hidden]
    const uint32_t* token_ids;  // [tokens]; with the highest bit set, the rest is an index into sampled
    const uint32_t* sampled;    // [samples] of the pass before
    int hidden;                 // a multiple of 8
    int stride;                 // numbers from row to row of out
    float scale;                // factor of each number
};

// Grid [tokens], block [128].
template <class T>
__device__ void embedding(const EmbeddingParams<T>& p) {
    grid_dependency_wait();
    launch_dependents();
    uint32_t token = p.token_ids[blockIdx.x];
    if (token >> 31) token = p.sampled[token & 0x7fffffffu];
    const T* from = p.table + size_t(token) * p.hidden;
    T* to = p.out + size_t(blockIdx.x) * p.stride;
    for (int i = threadIdx.x * 8; i < p.hidden; i += blockDim.x * 8) {
        Eight numbers = load_eight(from + i);
        if (p.scale != 1.0f) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float2 v = widen2<T>(numbers.pair[j]);
                numbers.pair[j] = narrow2<T>(v.x * p.scale, v.y * p.scale);
            }
        }
        store_eight(to + i, numbers);
    }
}

extern "C" __global__ void nvllm_k_embedding_bf16(const __grid_constant__ EmbeddingParams<bf16> p) {
    embedding(p);
}
extern "C" __global__ void nvllm_k_embedding_f16(const __grid_constant__ EmbeddingParams<f16> p) {
    embedding(p);
}

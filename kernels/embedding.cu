// Looks up the row of each token, which the host may know only as a sample of the step before. Contract: src/ops/embedding.rs. Reference: src/backend/cpu/embedding.rs.
//
// Memory-bound: reads one row and writes one row a token. One thread block per token.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"

template <class T>
struct EmbeddingParams {
    T* out;                     // [tokens, stride]
    const T* table;             // [vocab, hidden]
    const uint32_t* token_ids;  // [tokens]; with the highest bit set, the rest is an index into sampled
    const uint32_t* sampled;    // [samples] of the step before
    int hidden;                 // a multiple of 8
    int stride;                 // numbers from row to row of out
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
    for (int i = threadIdx.x * 8; i < p.hidden; i += blockDim.x * 8) store_eight(to + i, load_eight(from + i));
}

extern "C" __global__ void nvllm_k_embedding_bf16(const __grid_constant__ EmbeddingParams<bf16> p) {
    embedding(p);
}
extern "C" __global__ void nvllm_k_embedding_f16(const __grid_constant__ EmbeddingParams<f16> p) {
    embedding(p);
}

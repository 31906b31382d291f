// Adds the row of a table that the position or the type of each token names. Contract: src/compute/ops/add_embedding.rs. Reference:
// src/compute/cpu/embedding.rs.
//
// Memory-bound: reads two rows and writes one row per token. One thread block per token.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"

template <class T>
struct AddEmbeddingParams {
    T* out;                // [tokens, stride]
    const T* table;        // [rows, hidden]
    const uint32_t* rows;  // [tokens]; null: zeros
    int first;             // added to each of them
    int hidden;            // a multiple of 8
    int stride;            // numbers from row to row of out
};

// Grid [tokens], block [128].
template <class T>
__device__ void add_embedding(const AddEmbeddingParams<T>& p) {
    launch_dependents();
    grid_dependency_wait();
    const uint32_t row = (p.rows ? p.rows[blockIdx.x] : 0) + p.first;
    const T* from = p.table + size_t(row) * p.hidden;
    T* to = p.out + size_t(blockIdx.x) * p.stride;
    for (int i = threadIdx.x * 8; i < p.hidden; i += blockDim.x * 8) {
        Eight sum = load_eight(to + i);
        const Eight added = load_eight(from + i);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float2 v = widen2<T>(sum.pair[j]), w = widen2<T>(added.pair[j]);
            sum.pair[j] = narrow2<T>(v.x + w.x, v.y + w.y);
        }
        store_eight(to + i, sum);
    }
}

extern "C" __global__ void nvllm_k_add_embedding_bf16(const __grid_constant__ AddEmbeddingParams<bf16> p) {
    add_embedding(p);
}
extern "C" __global__ void nvllm_k_add_embedding_f16(const __grid_constant__ AddEmbeddingParams<f16> p) {
    add_embedding(p);
}

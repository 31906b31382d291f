// Looks up the row of each token, which the host may know only as a sample of the pass before. Contract: src/compute/ops/embedding.rs. Reference: src/compute/cpu/embedding.rs.
//
// Memory-bound: reads one row and writes one row per token. One thread block per token.
#include "common/quantized.cuh"
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

// The same over a coded table.
template <class T>
struct CodedEmbeddingParams {
    T* out;                     // [tokens, stride]
    QuantizedWeights table;         // [vocab, hidden]
    const uint32_t* token_ids;  // as EmbeddingParams
    const uint32_t* sampled;    // as EmbeddingParams
    int hidden;                 // a multiple of 32
    int stride;                 // numbers from row to row of out
    float scale;                // factor of each number
};

template <class Params>
__device__ uint32_t token_of(const Params& p) {
    const uint32_t token = p.token_ids[blockIdx.x];
    return token >> 31 ? p.sampled[token & 0x7fffffffu] : token;
}

template <class T>
__device__ void store_scaled(T* to, Eight numbers, float scale) {
    if (scale != 1.0f) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float2 v = widen2<T>(numbers.pair[j]);
            numbers.pair[j] = narrow2<T>(v.x * scale, v.y * scale);
        }
    }
    store_eight(to, numbers);
}

// Grid [tokens], block [128].
template <class T>
__device__ void embedding(const EmbeddingParams<T>& p) {
    grid_dependency_wait();
    launch_dependents();
    const T* from = p.table + size_t(token_of(p)) * p.hidden;
    T* to = p.out + size_t(blockIdx.x) * p.stride;
    for (int i = threadIdx.x * 8; i < p.hidden; i += blockDim.x * 8) store_scaled(to + i, load_eight(from + i), p.scale);
}

// Grid [tokens], block [128]. Four threads have the numbers of a row in a unit.
template <class T>
__device__ void embedding_coded(const CodedEmbeddingParams<T>& p) {
    grid_dependency_wait();
    launch_dependents();
    const uint32_t token = token_of(p);
    const int column = token % 8, lane = column * 4 + threadIdx.x % 4;
    const int unit_bytes = p.table.code_bytes + 8 * p.table.header_bytes;
    const uint8_t* octet = p.table.units + size_t(token / 8) * p.table.units_of_row * unit_bytes;
    T* to = p.out + size_t(blockIdx.x) * p.stride + threadIdx.x % 4 * 8;
    for (int unit = threadIdx.x / 4; unit < p.table.units_of_row; unit += blockDim.x / 4) {
        const uint8_t* at = octet + size_t(unit) * unit_bytes;
        const uint4 codes = AnyBits::load(p.table, at, lane);
        const float4 scales = scales_of_column(p.table, at + p.table.code_bytes + column * p.table.header_bytes);
        Eight numbers[2];
        AnyBits::numbers<T>(p.table, codes, scales, lane, numbers);
        store_scaled(to + unit * 64, numbers[0], p.scale);
        if (unit * 64 + 32 < p.hidden) store_scaled(to + unit * 64 + 32, numbers[1], p.scale);
    }
}

#define KERNELS(dtype)                                                                                                    \
    extern "C" __global__ void nvllm_k_embedding_##dtype(const __grid_constant__ EmbeddingParams<dtype> p) { embedding(p); } \
    extern "C" __global__ void nvllm_k_embedding_coded_##dtype(const __grid_constant__ CodedEmbeddingParams<dtype> p) {   \
        embedding_coded(p);                                                                                               \
    }

KERNELS(bf16)
KERNELS(f16)

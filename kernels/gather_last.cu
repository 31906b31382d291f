// Picks the last new token of each sampled row. Contract: src/ops/gather_last.rs. Reference: src/backend/cpu/gather_last.rs.
//
// Memory-bound: reads and writes one row a sample. One thread block per sample.
#include "common/chain.cuh"
#include "common/numbers.cuh"

template <class T>
struct GatherLastParams {
    T* out;                        // [samples, stride]
    const T* x;                    // [tokens, stride]
    const uint32_t* sampled_rows;  // [samples]
    const uint32_t* row_starts;    // [rows + 1]
    int cols;                      // a multiple of 8
    int stride;                    // numbers from row to row of out and x
};

// Grid [samples], block [128].
template <class T>
__device__ void gather_last(const GatherLastParams<T>& p) {
    let_next_begin();
    wait_for_previous();
    const uint32_t token = p.row_starts[p.sampled_rows[blockIdx.x] + 1] - 1;
    const T* from = p.x + size_t(token) * p.stride;
    T* to = p.out + size_t(blockIdx.x) * p.stride;
    for (int i = threadIdx.x * 8; i < p.cols; i += blockDim.x * 8) store_eight(to + i, load_eight(from + i));
}

extern "C" __global__ void nvllm_k_gather_last_bf16(const __grid_constant__ GatherLastParams<bf16> p) {
    gather_last(p);
}
extern "C" __global__ void nvllm_k_gather_last_f16(const __grid_constant__ GatherLastParams<f16> p) {
    gather_last(p);
}

// Picks the new tokens that something is asked of. Contract: src/compute/ops/gather.rs. Reference: src/compute/cpu/gather.rs.
//
// Memory-bound: reads and writes one row per token. One thread block per token.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"

template <class T>
struct GatherParams {
    T* out;                  // [gathered, stride]
    const T* x;              // [tokens, stride]
    const uint32_t* tokens;  // [gathered]
    int cols;                // a multiple of 8
    int stride;              // numbers from row to row of out and x
};

// Grid [gathered], block [128].
template <class T>
__device__ void gather(const GatherParams<T>& p) {
    launch_dependents();
    grid_dependency_wait();
    const T* from = p.x + size_t(p.tokens[blockIdx.x]) * p.stride;
    T* to = p.out + size_t(blockIdx.x) * p.stride;
    for (int i = threadIdx.x * 8; i < p.cols; i += blockDim.x * 8) store_eight(to + i, load_eight(from + i));
}

extern "C" __global__ void nvllm_k_gather_bf16(const __grid_constant__ GatherParams<bf16> p) {
    gather(p);
}
extern "C" __global__ void nvllm_k_gather_f16(const __grid_constant__ GatherParams<f16> p) {
    gather(p);
}

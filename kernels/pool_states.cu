// The mean of the states of some tokens. Contract: src/compute/ops/pool_states.rs. Reference: src/compute/cpu/pool_states.rs.
//
// Memory-bound: reads each row once. A thread has eight columns of a range.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"

template <class T>
struct PoolStatesParams {
    T* out;               // [ranges, stride]
    const T* x;           // [tokens, stride]
    const uint2* ranges;  // [ranges], first token and one past the last
    int cols;             // a multiple of 8
    int stride;           // numbers from row to row of out and x
};

// Grid [ranges, cols / 512 rounded up], block [64].
template <class T>
__device__ void pool(const PoolStatesParams<T>& p) {
    launch_dependents();
    grid_dependency_wait();
    const int i = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (i >= p.cols) return;
    const uint2 range = p.ranges[blockIdx.x];
    float2 sums[4] = {};
    for (uint32_t token = range.x; token < range.y; token++) {
        const Eight v = load_eight(p.x + size_t(token) * p.stride + i);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float2 pair = widen2<T>(v.pair[j]);
            sums[j] = make_float2(sums[j].x + pair.x, sums[j].y + pair.y);
        }
    }
    const float count = range.y - range.x;
    Eight mean;
#pragma unroll
    for (int j = 0; j < 4; j++) mean.pair[j] = narrow2<T>(sums[j].x / count, sums[j].y / count);
    store_eight(p.out + size_t(blockIdx.x) * p.stride + i, mean);
}

extern "C" __global__ void nvllm_k_pool_states_bf16(const __grid_constant__ PoolStatesParams<bf16> p) {
    pool(p);
}
extern "C" __global__ void nvllm_k_pool_states_f16(const __grid_constant__ PoolStatesParams<f16> p) {
    pool(p);
}

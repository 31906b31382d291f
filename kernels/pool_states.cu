// One state of those of some tokens. Contract: src/compute/ops/pool_states.rs. Reference: src/compute/cpu/pool_states.rs.
//
// Memory-bound: reads each row once. A thread has eight columns of a range.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"

// PooledRange of src/compute/batch.rs.
struct PooledRange {
    uint32_t first;  // the first token
    uint32_t end;    // one past the last
    uint32_t kind;   // PoolKind
};

enum PoolKind : uint32_t { MEAN = 0, MEAN_SQRT_LEN = 1, WEIGHTED_MEAN = 2, MAX = 3 };

template <class T>
struct PoolStatesParams {
    T* out;                     // [ranges, stride]
    const T* x;                 // [tokens, stride]
    const PooledRange* ranges;  // [ranges]
    int cols;                   // a multiple of 8
    int stride;                 // numbers from row to row of out and x
};

// Grid [ranges, cols / 512 rounded up], block [64].
template <class T>
__device__ void pool(const PoolStatesParams<T>& p) {
    launch_dependents();
    grid_dependency_wait();
    const int i = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (i >= p.cols) return;
    const PooledRange range = p.ranges[blockIdx.x];
    const bool is_max = range.kind == MAX;
    const float begin = is_max ? -INFINITY : 0.0f;
    float2 sums[4];
#pragma unroll
    for (int j = 0; j < 4; j++) sums[j] = make_float2(begin, begin);
    float weight = 1.0f;
    for (uint32_t token = range.first; token < range.end; token++) {
        const Eight v = load_eight(p.x + size_t(token) * p.stride + i);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float2 pair = widen2<T>(v.pair[j]);
            sums[j] = is_max ? make_float2(fmaxf(sums[j].x, pair.x), fmaxf(sums[j].y, pair.y))
                             : make_float2(sums[j].x + weight * pair.x, sums[j].y + weight * pair.y);
        }
        if (range.kind == WEIGHTED_MEAN) weight += 1.0f;
    }
    const float count = range.end - range.first;
    float divisor = count;
    if (range.kind == MEAN_SQRT_LEN) divisor = sqrtf(count);
    if (range.kind == WEIGHTED_MEAN) divisor = count * (count + 1.0f) / 2.0f;
    if (is_max) divisor = 1.0f;
    Eight pooled;
#pragma unroll
    for (int j = 0; j < 4; j++) pooled.pair[j] = narrow2<T>(sums[j].x / divisor, sums[j].y / divisor);
    store_eight(p.out + size_t(blockIdx.x) * p.stride + i, pooled);
}

extern "C" __global__ void nvllm_k_pool_states_bf16(const __grid_constant__ PoolStatesParams<bf16> p) {
    pool(p);
}
extern "C" __global__ void nvllm_k_pool_states_f16(const __grid_constant__ PoolStatesParams<f16> p) {
    pool(p);
}

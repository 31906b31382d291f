// Adds to the residual stream and normalizes it. Contract: src/ops/add_rms_norm.rs. Reference: src/backend/cpu/add_rms_norm.rs.
//
// Memory-bound in prefill: reads residual and x once, writes residual and out once. At the launch floor in decode. One
// thread block per token. The sum is normalized as it was rounded for the residual stream.
#include "common/dependent_launch.cuh"
#include "common/norm.cuh"

template <class T>
struct AddRmsNormParams {
    T* out;               // [tokens, stride]   may be x
    T* residual;          // [tokens, stride]
    const T* x;           // [tokens, stride]
    const float* weight;  // [hidden]
    int hidden;           // a multiple of 8, at most 64 a thread
    int stride;           // numbers from row to row of all three
    float eps;
};

// Grid [tokens], block [whole warps that take up to 64 numbers a thread].
template <class T>
__device__ void add_rms_norm(const AddRmsNormParams<T>& p) {
    constexpr int KEPT = 8;
    launch_dependents();
    const FirstWeights first(p.weight, p.hidden);
    grid_dependency_wait();
    const size_t row = size_t(blockIdx.x) * p.stride;

    Eight kept[KEPT];
    float squares = 0.0f;
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int i = (k * blockDim.x + threadIdx.x) * 8;
        if (i >= p.hidden) break;
        kept[k] = load_eight(p.residual + row + i);
        const Eight x = load_eight(p.x + row + i);
        for (int j = 0; j < 4; j++) {
            const float2 r = widen2<T>(kept[k].pair[j]), a = widen2<T>(x.pair[j]);
            kept[k].pair[j] = narrow2<T>(r.x + a.x, r.y + a.y);
            const float2 v = widen2<T>(kept[k].pair[j]);
            squares += v.x * v.x + v.y * v.y;
        }
        store_eight(p.residual + row + i, kept[k]);
    }
    const float scale = rsqrtf(block_sum(squares) / p.hidden + p.eps);
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int i = (k * blockDim.x + threadIdx.x) * 8;
        if (i >= p.hidden) break;
        for (int j = 0; j < 4; j++) {
            const float2 v = widen2<T>(kept[k].pair[j]);
            const float2 w = k == 0 ? first.pair[j] : *reinterpret_cast<const float2*>(p.weight + i + 2 * j);
            kept[k].pair[j] = narrow2<T>(v.x * scale * w.x, v.y * scale * w.y);
        }
        store_eight(p.out + row + i, kept[k]);
    }
}

extern "C" __global__ void nvllm_k_add_rms_norm_bf16(const __grid_constant__ AddRmsNormParams<bf16> p) {
    add_rms_norm(p);
}
extern "C" __global__ void nvllm_k_add_rms_norm_f16(const __grid_constant__ AddRmsNormParams<f16> p) {
    add_rms_norm(p);
}

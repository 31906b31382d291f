// Scales logits and caps them. Contract: src/compute/ops/scale_logits.rs. Reference: src/compute/cpu/scale_logits.rs.
//
// Memory-bound: reads and writes each logit once. Eight logits a thread.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"

template <class T>
struct ScaleLogitsParams {
    T* logits;      // [samples, stride]
    int vocab;
    int stride;     // numbers from row to row of logits, a multiple of 8
    float scale;
    float softcap;  // 0: logits are not capped
};

// Grid [samples, vocab / 2048 rounded up], block [256]. What pads a row is scaled too.
template <class T>
__device__ void scale_logits(const ScaleLogitsParams<T>& p) {
    launch_dependents();
    grid_dependency_wait();
    const int i = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (i >= p.vocab) return;
    T* at = p.logits + size_t(blockIdx.x) * p.stride + i;
    Eight logits = load_eight(at);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float2 v = widen2<T>(logits.pair[j]);
        v = make_float2(v.x * p.scale, v.y * p.scale);
        if (p.softcap > 0.0f) v = make_float2(p.softcap * tanhf(v.x / p.softcap), p.softcap * tanhf(v.y / p.softcap));
        logits.pair[j] = narrow2<T>(v.x, v.y);
    }
    store_eight(at, logits);
}

extern "C" __global__ void nvllm_k_scale_logits_bf16(const __grid_constant__ ScaleLogitsParams<bf16> p) {
    scale_logits(p);
}
extern "C" __global__ void nvllm_k_scale_logits_f16(const __grid_constant__ ScaleLogitsParams<f16> p) {
    scale_logits(p);
}

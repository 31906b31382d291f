// Penalties and logit bias. Contract: src/compute/ops/process_logits.rs. Formula: `LogitBias` in src/compute/batch.rs. Reference: src/compute/cpu/process_logits.rs,
// of which this gives the same bits, rounded to the type of the logits.
//
// Bound by latency: a few thousand scattered numbers. One thread block per sample. The token that a sample awaits lies on the device, where the
// pass before left it; it may be one of those listed or not.
#include "common/dependent_launch.cuh"
#include "common/logits.cuh"

template <class T>
struct ProcessLogitsParams {
    T* logits;                      // [samples, stride]
    const Sampling* sampling;       // [samples]
    const LogitBias* adjustments;  // each sample names its range
    const uint32_t* previous;       // [samples] of the pass before
    T* raw;                         // [adjustments]: what was there before
    uint32_t* awaited;              // [samples]: the token that was adjusted without being listed, or NO_TOKEN
    T* awaited_raw;                 // [samples]: what was there before
    int stride;                     // numbers from row to row of logits
};

constexpr uint32_t UNUSED = UINT32_MAX;

// Every operation is rounded by itself, in the order of the formula.
__device__ inline float adjusted(float logit, const LogitBias& it, const Sampling& s) {
    if (it.bias == -INFINITY) return NAN;
    if (it.uses != UNUSED) {
        logit = logit > 0.0f ? __fdiv_rn(logit, s.repetition_penalty) : __fmul_rn(logit, s.repetition_penalty);
        if (it.uses > 0) logit = __fadd_rn(logit, -s.presence_penalty);
        logit = __fadd_rn(logit, -__fmul_rn(s.frequency_penalty, __uint2float_rn(it.uses)));
    }
    return __fadd_rn(logit, it.bias);
}

// Grid [samples], block [256].
template <class T>
__device__ void process_logits(const ProcessLogitsParams<T>& p) {
    launch_dependents();
    grid_dependency_wait();
    const int sample = blockIdx.x;
    const Sampling s = p.sampling[sample];
    const uint32_t awaited = s.awaited == NO_TOKEN ? NO_TOKEN : p.previous[s.awaited & 0x7fffffffu];
    T* logits = p.logits + size_t(sample) * p.stride;
    bool is_listed = awaited == NO_TOKEN;
    for (uint32_t i = s.adjusted_start + threadIdx.x; i < s.adjusted_end; i += blockDim.x) {
        LogitBias it = p.adjustments[i];
        if (it.token == awaited) {
            it.uses = it.uses == UNUSED ? 1 : it.uses + 1;
            is_listed = true;
        }
        p.raw[i] = logits[it.token];
        logits[it.token] = narrow<T>(adjusted(widen(logits[it.token]), it, s));
    }
    is_listed = __syncthreads_or(is_listed);
    if (threadIdx.x == 0) {
        p.awaited[sample] = is_listed ? NO_TOKEN : awaited;
        if (!is_listed) {
            p.awaited_raw[sample] = logits[awaited];
            logits[awaited] = narrow<T>(adjusted(widen(logits[awaited]), LogitBias{awaited, 1, 0.0f}, s));
        }
    }
}

extern "C" __global__ void nvllm_k_process_logits_bf16(const __grid_constant__ ProcessLogitsParams<bf16> p) {
    process_logits(p);
}
extern "C" __global__ void nvllm_k_process_logits_f16(const __grid_constant__ ProcessLogitsParams<f16> p) {
    process_logits(p);
}

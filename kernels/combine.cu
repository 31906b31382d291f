// The sum of what the experts of a token computed. Contract: src/compute/ops/combine.rs. Reference: src/compute/cpu/combine.rs.
//
// Memory-bound: reads each slot's row once. Eight numbers a thread, in f32 from the best expert on.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"

template <class T>
struct CombineParams {
    T* out;                // [tokens, out_stride]
    const T* x;            // [tokens, chosen, x_stride]
    const float* weights;  // [tokens, chosen]
    const int* experts_of; // [tokens, chosen], or null: all slots are added
    const T* shared;       // [tokens, shared_stride], or null
    const T* gates;        // [tokens, gate_stride], of which the first column, or null
    int chosen;
    int cols;
    int out_stride;
    int x_stride;
    int shared_stride;
    int gate_stride;
    int first_expert;      // with `experts_of`: the first expert whose slots are added
    int experts;           // and how many these are
};

template <class T>
__device__ inline void add_row(float (&sum)[8], float weight, const T* row) {
    const Eight v = load_eight(row);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 pair = widen2<T>(v.pair[i]);
        sum[2 * i] = fmaf(weight, pair.x, sum[2 * i]);
        sum[2 * i + 1] = fmaf(weight, pair.y, sum[2 * i + 1]);
    }
}

// Grid [tokens, cols / 2048 rounded up], block [256]. Rows begin at multiples of 16 bytes: the last eight numbers may be padding.
template <class T>
__device__ void combine(const CombineParams<T>& p) {
    launch_dependents();
    grid_dependency_wait();
    const int i = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    const size_t token = blockIdx.x;
    if (i >= p.cols) return;
    float sum[8] = {};
    if (p.experts_of) {
        for (int s = 0; s < p.chosen; s++) {
            const size_t slot = token * p.chosen + s;
            if (unsigned(p.experts_of[slot] - p.first_expert) >= unsigned(p.experts)) continue;
            add_row(sum, p.weights[slot], p.x + slot * p.x_stride + i);
        }
    } else {
#pragma unroll 8
        for (int s = 0; s < p.chosen; s++) {
            const size_t slot = token * p.chosen + s;
            add_row(sum, p.weights[slot], p.x + slot * p.x_stride + i);
        }
    }
    if (p.shared) {
        const float gate = p.gates ? 1.0f / (1.0f + expf(-widen(p.gates[token * p.gate_stride]))) : 1.0f;
        add_row(sum, gate, p.shared + token * p.shared_stride + i);
    }
    Eight out;
#pragma unroll
    for (int j = 0; j < 4; j++) out.pair[j] = narrow2<T>(sum[2 * j], sum[2 * j + 1]);
    store_eight(p.out + token * p.out_stride + i, out);
}

extern "C" __global__ void nvllm_k_combine_bf16(const __grid_constant__ CombineParams<bf16> p) { combine(p); }
extern "C" __global__ void nvllm_k_combine_f16(const __grid_constant__ CombineParams<f16> p) { combine(p); }

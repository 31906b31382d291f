// A short causal convolution with state. Contract: src/compute/ops/causal_conv.rs. Reference: src/compute/cpu/causal_conv.rs.
//
// Memory-bound: reads x once from memory and taps times from the second-level cache, writes out once. Four columns a thread. The thread of the
// first token of a row also computes the tokens that need the old state, and writes the state of the row: nobody else may read it then.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"
#include "common/states.cuh"

template <class T>
struct CausalConvParams {
    T* out;                     // [tokens, out_stride]
    const T* x;                 // [tokens, x_stride]
    const float* weight;        // [taps, cols], then the biases
    float* states;              // [slots, slot_numbers], from the region of this layer
    const uint32_t* row_starts; // [rows + 1]
    const uint32_t* sources;    // [rows]
    const uint32_t* slots;      // [rows]
    const uint32_t* saves;      // [tokens]
    int64_t slot_numbers;
    int rows;
    int cols;                   // a multiple of 4
    int out_stride;
    int x_stride;
    int form;                   // 0: x. 1: x, then SiLU. 2: b * x, then c *, with b, x and c in the columns of x
    int has_bias;
};

template <class T>
__device__ inline float4 load_four(const T* at) {
    const uint2 pairs = *reinterpret_cast<const uint2*>(at);
    const float2 a = widen2<T>(pairs.x), b = widen2<T>(pairs.y);
    return make_float4(a.x, a.y, b.x, b.y);
}

__device__ inline float4 product(const float4& a, const float4& b) {
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

// What the convolution reads of a token.
template <class T>
__device__ inline float4 load_input(const CausalConvParams<T>& p, int token, int column) {
    const T* const at = p.x + size_t(token) * p.x_stride + column;
    return p.form == 2 ? product(load_four(at), load_four(at + p.cols)) : load_four(at);
}

__device__ inline float silu(float v) { return v / (1.0f + __expf(-v)); }

__device__ inline void add_product(float4& sum, const float4& a, const float4& b) {
    sum.x = fmaf(a.x, b.x, sum.x);
    sum.y = fmaf(a.y, b.y, sum.y);
    sum.z = fmaf(a.z, b.z, sum.z);
    sum.w = fmaf(a.w, b.w, sum.w);
}

// Grid [tokens, cols / 512 rounded up], block [128].
template <class T, int TAPS>
__device__ void causal_conv(const CausalConvParams<T>& p) {
    constexpr int HISTORY = TAPS - 1;
    launch_dependents();
    grid_dependency_wait();
    const int token = blockIdx.x, column = (blockIdx.y * blockDim.x + threadIdx.x) * 4;
    if (column >= p.cols) return;
    const int row = row_of(p.row_starts, p.rows, token);
    const int first = p.row_starts[row], end = p.row_starts[row + 1];
    const uint32_t slot = p.slots[row], source = p.sources[row];
    const bool is_first = token == first;
    // A row without a slot pads the batch.
    if (slot == NO_STATE || (!is_first && token - first < HISTORY)) return;

    float4 weight[TAPS], inputs[TAPS], bias = make_float4(0, 0, 0, 0);
    if (p.has_bias) bias = *reinterpret_cast<const float4*>(p.weight + size_t(TAPS) * p.cols + column);
#pragma unroll
    for (int j = 0; j < TAPS; j++) weight[j] = *reinterpret_cast<const float4*>(p.weight + size_t(j) * p.cols + column);
#pragma unroll
    for (int j = 0; j < HISTORY; j++) {
        if (!is_first) {
            inputs[j] = load_input(p, token - HISTORY + j, column);
        } else if (source != NO_STATE) {
            inputs[j] = *reinterpret_cast<const float4*>(p.states + source * p.slot_numbers + size_t(j) * p.cols + column);
        } else {
            inputs[j] = make_float4(0, 0, 0, 0);
        }
    }
    const int last = is_first ? min(end, first + HISTORY) : token + 1;
    for (int t = token; t < last; t++) {
        inputs[HISTORY] = load_input(p, t, column);
        float4 sum = bias;
#pragma unroll
        for (int j = 0; j < TAPS; j++) add_product(sum, weight[j], inputs[j]);
        if (p.form == 1) sum = make_float4(silu(sum.x), silu(sum.y), silu(sum.z), silu(sum.w));
        if (p.form == 2) sum = product(sum, load_four(p.x + size_t(t) * p.x_stride + 2 * p.cols + column));
        const uint2 pairs = make_uint2(narrow2<T>(sum.x, sum.y), narrow2<T>(sum.z, sum.w));
        *reinterpret_cast<uint2*>(p.out + size_t(t) * p.out_stride + column) = pairs;
#pragma unroll
        for (int j = 0; j < HISTORY; j++) inputs[j] = inputs[j + 1];
        const uint32_t saved = p.saves[t];
        if (saved != NO_STATE) {
#pragma unroll
            for (int j = 0; j < HISTORY; j++) {
                *reinterpret_cast<float4*>(p.states + saved * p.slot_numbers + size_t(j) * p.cols + column) = inputs[j];
            }
        }
    }
    if (!is_first) return;
#pragma unroll
    for (int j = 0; j < HISTORY; j++) {
        // Of a row that is longer than what was computed here, the last inputs.
        if (last < end) {
            const int t = end - HISTORY + j;
            inputs[j] = load_input(p, t, column);
        }
        *reinterpret_cast<float4*>(p.states + slot * p.slot_numbers + size_t(j) * p.cols + column) = inputs[j];
    }
}

#define CAUSAL_CONV(T, taps) \
    extern "C" __global__ void nvllm_k_causal_conv_##taps##_##T(const __grid_constant__ CausalConvParams<T> p) { \
        causal_conv<T, taps>(p);                                                                                 \
    }

CAUSAL_CONV(bf16, 2)
CAUSAL_CONV(bf16, 3)
CAUSAL_CONV(bf16, 4)
CAUSAL_CONV(bf16, 7)
CAUSAL_CONV(f16, 2)
CAUSAL_CONV(f16, 3)
CAUSAL_CONV(f16, 4)
CAUSAL_CONV(f16, 7)

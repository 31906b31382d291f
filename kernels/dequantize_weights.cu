// Writes the numbers of quantized weights, for products of many tokens. Formats: common/quantized.cuh.
//
// Memory-bound: reads each code once, writes 2 bytes per number into a buffer that the second-level cache can hold. One warp per unit.
#include "common/quantized.cuh"
#include "common/dependent_launch.cuh"

template <class T>
struct DequantizeParams {
    T* out;  // [n - skip, k]
    QuantizedWeights weight;
    int n;     // columns from the octet's begin on
    int skip;  // columns at the beginning of the first unit that are not written, at most 7
    int k;     // a multiple of 32
};

// Grid [units of a row / 8 rounded up, octets], block [256].
template <class T>
__device__ void dequantize_weights(const DequantizeParams<T>& p) {
    const int lane = threadIdx.x % 32, unit = blockIdx.x * 8 + threadIdx.x / 32, column = blockIdx.y * 8 + lane / 4;
    launch_dependents();
    if (unit < p.weight.units_of_row) {
        const uint8_t* at = p.weight.units + (size_t(blockIdx.y) * p.weight.units_of_row + unit) * (p.weight.code_bytes + 8 * p.weight.header_bytes);
        const uint4 codes = AnyBits::load(p.weight, at, lane);
        const float4 scales = scales_of_column(p.weight, at + p.weight.code_bytes + lane / 4 * p.weight.header_bytes);
        grid_dependency_wait();
        if (column < p.skip || column >= p.n) return;
        T* to = p.out + size_t(column - p.skip) * p.k + unit * 64 + lane % 4 * 8;
        Eight numbers[2];
        AnyBits::numbers<T>(p.weight, codes, scales, lane, numbers);
        store_eight(to, numbers[0]);
        if (unit * 64 + 32 < p.k) store_eight(to + 32, numbers[1]);
    }
}

#define KERNEL(dtype)                                                                                               \
    extern "C" __global__ void nvllm_k_dequantize_weights_##dtype(const __grid_constant__ DequantizeParams<dtype> p) { \
        dequantize_weights<dtype>(p);                                                                               \
    }

KERNEL(bf16)
KERNEL(f16)

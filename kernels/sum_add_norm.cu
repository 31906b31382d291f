// Adds a sum over ranks to the residual stream and normalizes it, where NCCL has gathered the shares of all ranks. Contract:
// src/compute/ops/reduce_add_norm.rs. Reference: src/compute/cpu/reduce_add_norm.rs.
//
// Memory-bound: reads the shares and the residual once, writes residual and out once. The arithmetic is that of reduce_add_norm.cu, by as
// many threads: the results have the same bits. One thread block per row.
#include "common/add_norm.cuh"
#include "common/dependent_launch.cuh"

template <class T>
struct SumAddNormParams {
    T* out;                    // [rows, stride]   only with a next norm
    T* residual;               // [rows, stride]
    const T* shares;           // [ranks][rows, stride]
    const float* weight;       // [hidden] of the next norm
    const float* post_weight;  // [hidden] of the norm of the sum
    uint32_t* ended;           // exchanges that have ended, in host memory
    int rows;
    int ranks;
    int hidden;                // a multiple of 8
    int stride;                // numbers from row to row of out, residual and shares
    float eps;                 // of the next norm
    float post_eps;            // of the norm of the sum
    float scale;               // factor of what is added
    float stream_scale;        // factor of the stream with it
};

// Grid [rows], block [whole warps that take up to 64 numbers a thread]. POST normalizes the sum of the shares, NEXT the stream.
template <class T, Norm POST, Norm NEXT>
__device__ void sum_add_norm(const SumAddNormParams<T>& p) {
    const FirstWeights first(p.weight, NEXT == Norm::None ? 0 : p.hidden);
    const FirstWeights post_first(p.post_weight, POST == Norm::None ? 0 : p.hidden);
    grid_dependency_wait();
    if (blockIdx.x == 0 && threadIdx.x == 0) *reinterpret_cast<volatile uint32_t*>(p.ended) += 1;
    const size_t row = size_t(blockIdx.x) * p.stride;
    const auto sum_of_shares = [&](int, int i) {
        WideEight sum;
        for (int from = 0; from < p.ranks; from++) {
            const Eight v = load_eight(p.shares + size_t(from) * p.rows * p.stride + row + i);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float2 a = widen2<T>(v.pair[j]);
                sum.pair[j] = from == 0 ? a : make_float2(sum.pair[j].x + a.x, sum.pair[j].y + a.y);
            }
        }
        return sum;
    };
    add_norm_row<T, POST, NEXT, KEPT>(p, row, first, post_first, sum_of_shares);
}

#define KERNEL(POST, NEXT, NAME, TYPE)                                                                                               \
    extern "C" __global__ void __launch_bounds__(1024) nvllm_k_##NAME##_##TYPE(const __grid_constant__ SumAddNormParams<TYPE> p) { \
        sum_add_norm<TYPE, Norm::POST, Norm::NEXT>(p);                                                                               \
    }
#define KERNELS(POST, NEXT, NAME)  \
    KERNEL(POST, NEXT, NAME, bf16) \
    KERNEL(POST, NEXT, NAME, f16)

KERNELS(None, None, sum_add)
KERNELS(None, Rms, sum_add_rms_norm)
KERNELS(None, Layer, sum_add_layer_norm)
KERNELS(Rms, None, rms_norm_sum_add)
KERNELS(Rms, Rms, rms_norm_sum_add_rms_norm)
KERNELS(Rms, Layer, rms_norm_sum_add_layer_norm)
KERNELS(Layer, None, layer_norm_sum_add)
KERNELS(Layer, Rms, layer_norm_sum_add_rms_norm)
KERNELS(Layer, Layer, layer_norm_sum_add_layer_norm)

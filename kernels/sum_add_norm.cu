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
    Norm post;                 // of the sum of the shares
    Norm next;                 // of the stream
};

// Grid [rows], block [whole warps that take up to 64 numbers a thread].
template <class T>
__device__ void sum_add_norm(const SumAddNormParams<T>& p) {
    const FirstWeights first(p.next, p.weight, p.hidden);
    const FirstWeights post_first(p.post, p.post_weight, p.hidden);
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
    add_norm_row<T, KEPT>(p, row, first, post_first, sum_of_shares);
}

#define KERNEL(TYPE)                                                                                                          \
    extern "C" __global__ void __launch_bounds__(1024, 1) nvllm_k_sum_add_norm_##TYPE(const __grid_constant__ SumAddNormParams<TYPE> p) { \
        sum_add_norm<TYPE>(p);                                                                                                \
    }

KERNEL(bf16)
KERNEL(f16)

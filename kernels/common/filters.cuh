// Top-n-sigma and XTC, without sorting: as src/compute/cpu/sample, to the bit.
//
// Both read the row anew, and are called by all threads of a cluster at once. Sums are of whole numbers, the same in any order; the rest is one
// operation after another, each rounded by itself.
#pragma once

#include "cluster.cuh"
#include "histogram.cuh"
#include "logits.cuh"
#include "noise.cuh"

// The sum over the threads of a cluster.
__device__ inline unsigned long long cluster_sum(unsigned long long own) {
    __shared__ unsigned long long of_block;
    if (threadIdx.x == 0) of_block = 0;
    __syncthreads();
    own = warp_sum(own);
    if (threadIdx.x % 32 == 0) atomicAdd(&of_block, own);
    cluster_sync();
    unsigned long long all = 0;
    for (uint32_t rank = 0; rank < cluster_size(); rank++) all += *in_cluster(&of_block, rank);
    // The others may still be reading this thread block's sum.
    cluster_sync();
    return all;
}

// The greatest number of the threads of a cluster.
__device__ inline uint32_t cluster_max(uint32_t own) {
    __shared__ uint32_t of_block;
    if (threadIdx.x == 0) of_block = 0;
    __syncthreads();
    own = __reduce_max_sync(0xffffffffu, own);
    if (threadIdx.x % 32 == 0) atomicMax(&of_block, own);
    cluster_sync();
    uint32_t all = 0;
    for (uint32_t rank = 0; rank < cluster_size(); rank++) all = max(all, *in_cluster(&of_block, rank));
    cluster_sync();
    return all;
}

// Calls `take(logit)` for the logits of a row that are above minus infinity, each in one thread of the cluster.
template <class T, class F>
__device__ void each_logit(const Row<T>& row, F take) {
    row.each_eight(cluster_rank() * blockDim.x + threadIdx.x, cluster_size() * blockDim.x, [&](uint32_t, const Eight& eight) {
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const float2 pair = widen2<T>(eight.pair[j / 2]);
            const float logit = j % 2 ? pair.y : pair.x;
            if (logit > -INFINITY) take(logit);
        }
    });
}

// The key of the top-n-sigma threshold, n standard deviations of the logits below the greatest one: src/compute/cpu/sample/spread.rs.
template <class T>
__device__ uint32_t cut_at_sigma(const Row<T>& row, const Sampling& s, float greatest) {
    constexpr float STEPS = 4096.0f, MOST = 2097151.0f;
    unsigned long long tokens = 0, sum = 0, squares = 0;
    each_logit(row, [&](float logit) {
        const unsigned long long steps = __float2uint_rz(fminf(__fmul_rn(__fadd_rn(greatest, -logit), STEPS), MOST));
        tokens++;
        sum += steps;
        squares += steps * steps;
    });
    const double n = __ull2double_rn(cluster_sum(tokens));
    const double mean = __ddiv_rn(__ull2double_rn(cluster_sum(sum)), n);
    const double variance = __dadd_rn(__ddiv_rn(__ull2double_rn(cluster_sum(squares)), n), -__dmul_rn(mean, mean));
    const double sigma = __ddiv_rn(__dsqrt_rn(fmax(variance, 0.0)), double(STEPS));
    const float reach = __double2float_rn(__dmul_rn(double(s.top_n_sigma), sigma));
    return min(__float_as_uint(__fdiv_rn(reach, s.temperature)), KEEP_ALL);
}

// The key of the least probable token that has the share `xtc_threshold` of all probability down to `limit`; 0 if none has.
template <class T>
__device__ uint32_t cut_at_threshold(const Row<T>& row, const Sampling& s, float greatest, uint32_t limit) {
    const auto each_weight = [&](auto take) {
        each_logit(row, [&](float logit) {
            const float score = __fdiv_rn(__fadd_rn(logit, -greatest), s.temperature);
            const uint32_t key = __float_as_uint(score) & 0x7fffffffu;
            // Below, weights are 0.
            if (score >= -28.0f && key <= limit) take(key, exact_weight(score));
        });
    };
    unsigned long long own = 0;
    each_weight([&](uint32_t, uint64_t weight) { own += weight; });
    const auto wanted = (unsigned long long)ceil(double(s.xtc_threshold) * double(cluster_sum(own)));
    uint32_t least = 0;
    each_weight([&](uint32_t key, uint64_t weight) {
        if (weight >= wanted) least = max(least, key);
    });
    return cluster_max(least);
}

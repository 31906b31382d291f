// Chooses the next token of each sample. Contract: src/compute/ops/sample.rs. Rule: `Sampling` in src/compute/batch.rs. Reference:
// src/compute/cpu/sample, of which this gives the same tokens to the same logits.
//
// Bound by arithmetic on [samples, vocab]: Philox costs 15 instructions per token. Two kernels, because scores are relative to
// the greatest logit. Each row is shared out to several thread blocks, which meet in an atomic maximum of (score, lowest token
// first). Top-k and top-p are found by the first cluster of a row's thread blocks, which then chooses alone. Top-n-sigma and XTC have a kernel of
// their own, so that the others keep their registers: the same with these filters, for batches in which a sample has one.
#include "common/dependent_launch.cuh"
#include "common/cluster.cuh"
#include "common/logits.cuh"
#include "common/noise.cuh"
#include "common/rank.cuh"
#include "common/filters.cuh"
#include "common/histogram.cuh"

constexpr float NEVER = -INFINITY;

// Finds the greatest logit of each row. Grid [samples * splits], block [256].
template <class T>
__device__ void sample_argmax(const SampleParams<T>& p) {
    launch_dependents();
    grid_dependency_wait();
    const int sample = blockIdx.x / p.splits, split = blockIdx.x % p.splits;
    const Sampling s = p.sampling[sample];
    if (s.forced != NO_TOKEN) return;
    const Row<T> row(p, s, sample);
    uint64_t best = 0;
    float best_logit = NEVER;
    row.each_eight(split * blockDim.x + threadIdx.x, p.splits * blockDim.x, [&](uint32_t first, const Eight& eight) {
        float logit[8], greatest = NAN;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float2 pair = widen2<T>(eight.pair[j]);
            logit[2 * j] = pair.x, logit[2 * j + 1] = pair.y;
            greatest = fmaxf(greatest, fmaxf(pair.x, pair.y));
        }
        // What another thread of the warp found before has a lower token, so that equals lose to it.
        const float found = warp_max(best_logit);
        if (greatest <= found && found > NEVER) return;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const uint64_t rank = rank_of(logit[j], first + j);
            if (isnan(logit[j]) || rank <= best) continue;
            best = rank;
            best_logit = logit[j];
        }
    });
    best = block_max(best);
    if (threadIdx.x == 0 && best > 0) atomicMax(reinterpret_cast<unsigned long long*>(p.argmax + sample), best);
}

// The noise of one token.
__device__ inline float noise_of(const Sampling& s, uint32_t token) {
    const uint4 words = philox(make_uint4(token / 4, s.position, uint32_t(s.stream), uint32_t(s.stream >> 32)), uint32_t(s.seed), uint32_t(s.seed >> 32));
    const uint32_t lane = token % 4;
    return gumbel(lane == 0 ? words.x : lane == 1 ? words.y : lane == 2 ? words.z : words.w);
}

// The token with the greatest noisy score among those whose score's absolute value has bits up to `limit` and, if `CAPPED`, from `first_key` on.
template <bool CAPPED, class T>
__device__ uint64_t gumbel_argmax(const Row<T>& row, const Sampling& s, float greatest, float bound, uint32_t first_key, uint32_t limit, int thread, int threads) {
    const float inverse = fminf(1.0f / s.temperature, 3.4e38f);
    const float least = -__uint_as_float(limit), most = -__uint_as_float(first_key);
    // The margins cover the rounding of `inverse`.
    const float surely_below = least * 1.0001f - 1e-3f, surely_above = least * 0.9999f + 1e-3f;
    const float surely_kept = most * 1.0001f - 1e-3f;
    uint64_t best = 0;
    const int lane = thread % 32 * 8;
    Eight next = row.eight(thread / 32 * 256 + lane);
    // The threads of a warp share their bound, so they take the same number of turns.
    for (int run = thread / 32 * 256; run < row.vocab; run += threads * 8) {
        const int first = run + lane;
        const Eight eight = next;
        next = row.eight(first + threads * 8);
        float score[2][4];
        uint32_t word[2][4];
        bool is_open[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float2 low = widen2<T>(eight.pair[2 * half]), high = widen2<T>(eight.pair[2 * half + 1]);
            score[half][0] = (low.x - greatest) * inverse, score[half][1] = (low.y - greatest) * inverse;
            score[half][2] = (high.x - greatest) * inverse, score[half][3] = (high.y - greatest) * inverse;
            const float top = fmaxf(fmaxf(score[half][0], score[half][1]), fmaxf(score[half][2], score[half][3]));
            // No noise lifts the others above the bound or the filters' limit.
            is_open[half] = top + 22.95f >= bound && top >= surely_below;
            if (!is_open[half]) continue;
            const uint4 words = philox(make_uint4(first / 4 + half, s.position, uint32_t(s.stream), uint32_t(s.stream >> 32)), uint32_t(s.seed), uint32_t(s.seed >> 32));
            word[half][0] = words.x, word[half][1] = words.y, word[half][2] = words.z, word[half][3] = words.w;
            const uint32_t noisy = min(min(words.x, words.y), min(words.z, words.w));
            is_open[half] = top + gumbel_bound(noisy) >= bound;
            // The bound is raised by what costs little, before anything is computed as the rule says.
            const float of_noisy = noisy == words.x ? score[half][0] : noisy == words.y ? score[half][1] : noisy == words.z ? score[half][2] : score[half][3];
            const bool is_capped = CAPPED && first_key > 0 && of_noisy > surely_kept;
            if (is_open[half] && of_noisy >= surely_above && !is_capped) bound = fmaxf(bound, of_noisy + gumbel_least(noisy));
        }
        bound = warp_max(bound);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            if (!is_open[half]) continue;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                // Almost no token passes this; a NaN never does.
                if (score[half][j] + gumbel_bound(word[half][j]) < bound || isnan(score[half][j])) continue;
                const uint32_t token = first + 4 * half + j;
                const float2 pair = widen2<T>(eight.pair[2 * half + j / 2]);
                const float exact = __fdiv_rn(__fadd_rn(j % 2 ? pair.y : pair.x, -greatest), s.temperature);
                const uint32_t key = __float_as_uint(exact) & 0x7fffffffu;
                if (key > limit || (CAPPED && key < first_key)) continue;
                const float noisy = __fadd_rn(exact, gumbel(word[half][j]));
                best = max(best, rank_of(noisy, token));
                bound = fmaxf(bound, noisy);
            }
        }
    }
    return best;
}

// Chooses each token from the greatest logits. Grid [samples * splits] in clusters of splits, block [1024], shared [17 / 4 window bytes]. Where no
// sample has top-k or top-p: grid [samples * splits], block [512], no dynamic shared memory. `FILTERED`: samples may have top-n-sigma and XTC.
template <bool FILTERED, class T>
__device__ void sample_choose(const SampleParams<T>& p) {
    extern __shared__ __align__(16) uint8_t shared[];
    launch_dependents();
    const int sample = blockIdx.x / p.splits, split = blockIdx.x % p.splits;
    const Sampling s = p.sampling[sample];
    const Row<T> row(p, s, sample);
    const bool has_top_k = s.top_k > 0 && s.top_k < p.vocab, has_top_p = s.top_p < 1.0f;
    // Those who find a cut choose alone: the others do not know it.
    const bool has_sigma = FILTERED && s.top_n_sigma > 0.0f, has_xtc = FILTERED && s.xtc_threshold > 0.0f;
    const bool is_cut = s.temperature > 0.0f && s.forced == NO_TOKEN && (has_top_k || has_top_p || has_sigma || has_xtc);
    const int chosen_by = is_cut ? cluster_size() : p.splits;
    if (is_cut && split < chosen_by) Histogram<T>::empty(shared, p.window);
    grid_dependency_wait();
    const uint64_t argmax = __ldcg(reinterpret_cast<const unsigned long long*>(p.argmax + sample));
    const float greatest = argmax ? value_of(argmax) : NEVER;
    const bool is_greedy = s.temperature == 0.0f || isinf(greatest);  // a forced token has no argmax
    uint64_t best = 0;
    if (!is_greedy && split < chosen_by) {
        uint32_t limit = KEEP_ALL, first_key = 0;
        if (has_sigma) limit = cut_at_sigma(row, s, greatest);
        if (is_cut) {
            Histogram<T> histogram(row, s, greatest, shared, p.window);
            if (has_top_k) limit = histogram.template cut<Cut::COUNT>(limit);
            if (has_top_p) limit = histogram.template cut<Cut::SHARE>(limit);
        }
        if (s.min_p > 0.0f) limit = min(limit, __float_as_uint(exact_ln(s.min_p)) & 0x7fffffffu);
        if (has_xtc) first_key = cut_at_threshold(row, s, greatest, limit);
        const float bound = first_key > 0 ? NEVER : noise_of(s, token_of(argmax));
        best = gumbel_argmax<FILTERED>(row, s, greatest, bound, first_key, limit, split * blockDim.x + threadIdx.x, chosen_by * blockDim.x);
        best = block_max(best);
    }
    if (threadIdx.x == 0) {
        if (!is_greedy && best > 0) atomicMax(reinterpret_cast<unsigned long long*>(p.gumbel_argmax + sample), best);
        __threadfence();
        if (atomicAdd(p.arrived + sample, 1) == p.splits - 1) {
            __threadfence();
            const uint64_t noisy = __ldcg(reinterpret_cast<const unsigned long long*>(p.gumbel_argmax + sample));
            const uint64_t chosen = is_greedy || noisy == 0 ? argmax : noisy;
            const uint32_t token = s.forced != NO_TOKEN ? s.forced : chosen ? token_of(chosen) : 0;
            p.tokens[sample] = token;
            p.host_tokens[sample] = token;
            p.argmax[sample] = p.gumbel_argmax[sample] = 0;
            p.arrived[sample] = 0;
        }
    }
}

#define KERNELS(dtype)                                                                                           \
    extern "C" __global__ void __launch_bounds__(256)                                                            \
        nvllm_k_sample_argmax_##dtype(const __grid_constant__ SampleParams<dtype> p) {                           \
        sample_argmax(p);                                                                                        \
    }                                                                                                            \
    extern "C" __global__ void __launch_bounds__(1024, 1)                                                         \
        nvllm_k_sample_choose_##dtype(const __grid_constant__ SampleParams<dtype> p) {                           \
        sample_choose<false>(p);                                                                                 \
    }                                                                                                            \
    extern "C" __global__ void __launch_bounds__(1024, 1)                                                         \
        nvllm_k_sample_choose_filtered_##dtype(const __grid_constant__ SampleParams<dtype> p) {                  \
        sample_choose<true>(p);                                                                                  \
    }

KERNELS(bf16)
KERNELS(f16)

// Chooses the next token of each sample. Contract: src/ops/sample.rs. Rule: `Sampling` in src/batch.rs. Reference:
// src/backend/cpu/sample, of which this gives the same tokens to the same logits.
//
// Bound by arithmetic on [samples, vocab]: Philox costs 15 instructions a token. Two kernels, because scores are relative to
// the greatest logit. Each row is shared out to several thread blocks, which meet in an atomic maximum of (score, lowest token
// first). Rows with filters are chosen by one thread block each.
#include "common/chain.cuh"
#include "common/noise.cuh"
#include "common/numbers.cuh"

// As in src/batch.rs.
struct Sampling {
    float temperature;
    float top_p;
    float min_p;
    uint32_t top_k;
    uint64_t seed;
    uint64_t stream;
    uint32_t position;
    uint32_t banned_start;
    uint32_t banned_end;
};

template <class T>
struct SampleParams {
    uint32_t* tokens;          // [samples]
    const T* logits;           // [samples, stride]
    const Sampling* sampling;  // [samples]
    const uint32_t* banned;    // each sample names its range
    uint64_t* likeliest;       // [samples], zero between launches
    uint64_t* noisiest;        // [samples], likewise
    uint32_t* arrived;         // [samples], likewise
    int vocab;
    int stride;  // numbers from row to row of logits, a multiple of 8
};

constexpr float NEVER = -INFINITY;

// A value and its token as one number that orders them: greatest value first, then the lowest token. Never 0.
__device__ inline uint64_t rank_of(float value, uint32_t token) {
    const uint32_t bits = __float_as_uint(value + 0.0f);  // one zero
    const uint32_t ordered = bits ^ (int(bits) < 0 ? 0xffffffffu : 0x80000000u);
    return uint64_t(ordered) << 32 | uint32_t(~token);
}
__device__ inline uint32_t token_of(uint64_t rank) {
    return ~uint32_t(rank);
}
__device__ inline float value_of(uint64_t rank) {
    const uint32_t ordered = uint32_t(rank >> 32);
    return __uint_as_float(ordered ^ (int(ordered) < 0 ? 0x80000000u : 0xffffffffu));
}

// The greatest over the thread block, in thread 0.
__device__ inline uint64_t block_max(uint64_t rank) {
    __shared__ uint64_t of_warp[32];
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) rank = max(rank, (uint64_t)__shfl_xor_sync(0xffffffffu, (unsigned long long)rank, lanes));
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = rank;
    __syncthreads();
    if (threadIdx.x < 32) {
        rank = threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : 0;
#pragma unroll
        for (int lanes = 16; lanes > 0; lanes /= 2) rank = max(rank, (uint64_t)__shfl_xor_sync(0xffffffffu, (unsigned long long)rank, lanes));
    }
    __syncthreads();
    return rank;
}

template <class T>
struct Row {
    const SampleParams<T>& p;
    const T* logits;
    const uint32_t* banned;
    int bans;

    __device__ Row(const SampleParams<T>& p, const Sampling& s, int sample)
        : p(p), logits(p.logits + size_t(sample) * p.stride), banned(p.banned + s.banned_start), bans(s.banned_end - s.banned_start) {}

    __device__ bool is_banned(uint32_t token) const {
        for (int i = 0; i < bans; i++) {
            if (banned[i] == token) return true;
        }
        return false;
    }

    // Calls `take(token, logit)` for every number that is no NaN, eight by eight; thread `thread` of `threads`.
    template <class F>
    __device__ void each(int thread, int threads, F take) const {
        for (int first = thread * 8; first < p.vocab; first += threads * 8) {
            const Eight eight = load_eight(logits + first);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float2 pair = widen2<T>(eight.pair[j]);
                if (first + 2 * j < p.vocab && !isnan(pair.x)) take(uint32_t(first + 2 * j), pair.x);
                if (first + 2 * j + 1 < p.vocab && !isnan(pair.y)) take(uint32_t(first + 2 * j + 1), pair.y);
            }
        }
    }
};

// Finds the greatest logit of each row. Grid [splits, samples], block [256].
template <class T>
__device__ void sample_likeliest(const SampleParams<T>& p) {
    wait_for_previous();
    let_next_begin();
    const int sample = blockIdx.y;
    const Row<T> row(p, p.sampling[sample], sample);
    uint64_t best = 0;
    row.each(blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x, [&](uint32_t token, float logit) {
        const uint64_t rank = rank_of(logit, token);
        if (rank > best && !row.is_banned(token)) best = rank;
    });
    best = block_max(best);
    if (threadIdx.x == 0 && best > 0) atomicMax(reinterpret_cast<unsigned long long*>(p.likeliest + sample), best);
}

// The noise of one token.
__device__ inline float noise_of(const Sampling& s, uint32_t token) {
    const uint4 words = philox(make_uint4(token / 4, s.position, uint32_t(s.stream), uint32_t(s.stream >> 32)), uint32_t(s.seed), uint32_t(s.seed >> 32));
    const uint32_t lane = token % 4;
    return gumbel(lane == 0 ? words.x : lane == 1 ? words.y : lane == 2 ? words.z : words.w);
}

// The token with the greatest noisy score among those whose score's absolute value has bits up to `limit`.
// The greatest over the warp. All its threads call it.
__device__ inline float warp_max(float v) {
    const uint32_t bits = __float_as_uint(v);
    const uint32_t ordered = __reduce_max_sync(0xffffffffu, bits ^ (int(bits) < 0 ? 0xffffffffu : 0x80000000u));
    return __uint_as_float(ordered ^ (int(ordered) < 0 ? 0x80000000u : 0xffffffffu));
}

template <class T>
__device__ uint64_t noisiest(const Row<T>& row, const Sampling& s, float greatest, float bound, uint32_t limit, int thread, int threads) {
    const float inverse = fminf(1.0f / s.temperature, 3.4e38f);
    const float least = -__uint_as_float(limit);
    uint64_t best = 0;
    // The threads of a warp share their bound, so they take the same number of turns.
    for (int run = thread / 32 * 256; run < row.p.vocab; run += threads * 8) {
        const int first = run + thread % 32 * 8;
        bound = warp_max(bound);
        const Eight eight = first < row.p.vocab ? load_eight(row.logits + first) : Eight{};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float2 low = widen2<T>(eight.pair[2 * half]), high = widen2<T>(eight.pair[2 * half + 1]);
            const float logit[4] = {low.x, low.y, high.x, high.y};
            const float top = fmaxf(fmaxf(low.x, low.y), fmaxf(high.x, high.y));
            // No noise lifts these four above the bound or the filters' limit; the margin covers the rounding of `inverse`.
            const float top_score = (top - greatest) * inverse;
            if (top_score + 22.95f < bound || top_score < least * 1.0001f - 1e-3f) continue;
            const uint4 words = philox(make_uint4(first / 4 + half, s.position, uint32_t(s.stream), uint32_t(s.stream >> 32)), uint32_t(s.seed), uint32_t(s.seed >> 32));
            const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                // Almost no token passes this; a NaN never does. What passes is computed as the rule says.
                if ((logit[j] - greatest) * inverse + gumbel_bound(word[j]) >= bound) {
                    const uint32_t token = first + 4 * half + j;
                    const float score = __fdiv_rn(__fadd_rn(logit[j], -greatest), s.temperature);
                    if (token < row.p.vocab && (__float_as_uint(score) & 0x7fffffffu) <= limit && !row.is_banned(token)) {
                        const float noisy = __fadd_rn(score, gumbel(word[j]));
                        best = max(best, rank_of(noisy, token));
                        bound = fmaxf(bound, noisy);
                    }
                }
            }
        }
    }
    return best;
}

constexpr int BINS = 2048;
constexpr uint32_t KEEP_ALL = 0x7f7fffffu;

// The least key at which the weights from key 0 on reach the target; see cut.rs of the CPU. All threads of the block.
template <bool IS_COUNT, class T>
__device__ uint32_t cut(const Row<T>& row, const Sampling& s, float greatest, uint32_t limit) {
    __shared__ uint32_t low_bins[BINS], high_bins[BINS];
    __shared__ unsigned long long of_warp[32];
    __shared__ unsigned long long wanted;
    __shared__ uint32_t found;
    const int warps = blockDim.x / 32, each = BINS / blockDim.x;
    const float least = greatest - __uint_as_float(limit) * s.temperature * 1.0001f - 1e-3f - fabsf(greatest) * 1e-6f;
    uint32_t high = 0;
    for (int digit = 0; digit < 3; digit++) {
        for (int i = threadIdx.x; i < BINS; i += blockDim.x) low_bins[i] = high_bins[i] = 0;
        if (threadIdx.x == 0) found = digit == 0 ? BINS - 1 : 1023;
        __syncthreads();
        row.each(threadIdx.x, blockDim.x, [&](uint32_t token, float logit) {
            if (logit < least) return;  // surely beyond the limit
            const float score = __fdiv_rn(__fadd_rn(logit, -greatest), s.temperature);
            const uint32_t key = __float_as_uint(score) & 0x7fffffffu;
            if (key > limit) return;
            const bool is_here = digit == 0 || (digit == 1 ? key >> 20 == high : key >> 10 == high);
            if (!is_here) return;
            const uint64_t weight = IS_COUNT ? 1 : exact_weight(score);
            if (weight == 0 || row.is_banned(token)) return;
            // Two sums of 32 bits with a carry: shared memory adds those in one instruction.
            const uint32_t bin = digit == 0 ? key >> 20 : digit == 1 ? key >> 10 & 1023 : key & 1023;
            const uint32_t before = atomicAdd(low_bins + bin, uint32_t(weight));
            const uint32_t rest = uint32_t(weight >> 32) + (before + uint32_t(weight) < before);
            if (!IS_COUNT && rest > 0) atomicAdd(high_bins + bin, rest);
        });
        __syncthreads();
        // The running sum: each thread owns a few bins, each warp a run of them.
        const auto bin_sum = [&](int bin) { return (unsigned long long)high_bins[bin] << 32 | low_bins[bin]; };
        unsigned long long own = 0;
        for (int i = 0; i < each; i++) own += bin_sum(threadIdx.x * each + i);
        unsigned long long before = own;
#pragma unroll
        for (int lanes = 1; lanes < 32; lanes *= 2) {
            const unsigned long long other = __shfl_up_sync(0xffffffffu, before, lanes);
            if (threadIdx.x % 32 >= lanes) before += other;
        }
        if (threadIdx.x % 32 == 31) of_warp[threadIdx.x / 32] = before;
        __syncthreads();
        unsigned long long all = 0;
        before -= own;
        for (int w = 0; w < warps; w++) {
            if (w < threadIdx.x / 32) before += of_warp[w];
            all += of_warp[w];
        }
        if (digit == 0 && threadIdx.x == 0) {
            wanted = IS_COUNT ? (unsigned long long)s.top_k : (unsigned long long)ceil(double(s.top_p) * double(all));
        }
        __syncthreads();
        const unsigned long long target = wanted;
        __syncthreads();
        for (int i = 0; i < each; i++) {
            const unsigned long long weight = bin_sum(threadIdx.x * each + i);
            if (before < target && before + weight >= target) {
                found = threadIdx.x * each + i;
                wanted = target - before;
            }
            before += weight;
        }
        __syncthreads();
        if (all < target && threadIdx.x == 0) wanted = target - all;
        high = digit == 0 ? found : high << 10 | found;
        __syncthreads();
    }
    return high;
}

// A key that the k-th likeliest token does not exceed, for k up to the threads of the block: each thread's greatest logit is a
// token's, so the k-th of those bounds the k-th of all, and the search for it counts few tokens instead of all.
template <class T>
__device__ uint32_t bound_of_count(const Row<T>& row, const Sampling& s, float greatest) {
    __shared__ uint32_t count;
    float own = NEVER;
    row.each(threadIdx.x, blockDim.x, [&](uint32_t token, float logit) {
        if (logit > own && !row.is_banned(token)) own = logit;
    });
    const uint32_t key = __float_as_uint(__fdiv_rn(__fadd_rn(own, -greatest), s.temperature)) & 0x7fffffffu;
    uint32_t bound = 0;
    // The least bound such that k threads have keys up to it, bit by bit.
    for (int bit = 30; bit >= 0; bit--) {
        const uint32_t tried = bound | ((1u << bit) - 1);
        if (threadIdx.x == 0) count = 0;
        __syncthreads();
        const uint32_t votes = __popc(__ballot_sync(0xffffffffu, key <= tried));
        if (threadIdx.x % 32 == 0) atomicAdd(&count, votes);
        __syncthreads();
        if (count < s.top_k) bound |= 1u << bit;
        __syncthreads();
    }
    return min(bound, KEEP_ALL);
}

// Chooses each token from the greatest logits. Grid [splits, samples], block [1024].
template <class T>
__device__ void sample_choose(const SampleParams<T>& p) {
    wait_for_previous();
    let_next_begin();
    const int sample = blockIdx.y;
    const Sampling s = p.sampling[sample];
    const Row<T> row(p, s, sample);
    const uint64_t likeliest = __ldcg(reinterpret_cast<const unsigned long long*>(p.likeliest + sample));
    const float greatest = likeliest ? value_of(likeliest) : NEVER;
    const bool is_greedy = s.temperature == 0.0f || isinf(greatest);
    const bool is_filtered = (s.top_k > 0 && s.top_k < p.vocab) || s.top_p < 1.0f || s.min_p > 0.0f;
    uint64_t best = likeliest;
    if (!is_greedy) {
        const float bound = noise_of(s, token_of(likeliest));
        if (!is_filtered) {
            best = noisiest(row, s, greatest, bound, KEEP_ALL, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
        } else if (blockIdx.x == 0) {
            uint32_t limit = KEEP_ALL;
            if (s.top_k > 0 && s.top_k < p.vocab) {
                if (s.top_k <= blockDim.x) limit = bound_of_count(row, s, greatest);
                limit = min(limit, cut<true>(row, s, greatest, limit));
            }
            if (s.top_p < 1.0f) limit = min(limit, cut<false>(row, s, greatest, limit));
            if (s.min_p > 0.0f) limit = min(limit, __float_as_uint(exact_ln(s.min_p)) & 0x7fffffffu);
            best = noisiest(row, s, greatest, bound, limit, threadIdx.x, blockDim.x);
        } else {
            best = 0;
        }
        best = block_max(best);
    }
    if (threadIdx.x == 0) {
        if (!is_greedy && best > 0) atomicMax(reinterpret_cast<unsigned long long*>(p.noisiest + sample), best);
        __threadfence();
        if (atomicAdd(p.arrived + sample, 1) == gridDim.x - 1) {
            __threadfence();
            const uint64_t noisiest = __ldcg(reinterpret_cast<const unsigned long long*>(p.noisiest + sample));
            const uint64_t chosen = is_greedy || noisiest == 0 ? likeliest : noisiest;
            const uint32_t token = chosen ? token_of(chosen) : 0;
            p.tokens[sample] = token;
            p.likeliest[sample] = p.noisiest[sample] = 0;
            p.arrived[sample] = 0;
        }
    }
}

#define KERNELS(dtype)                                                                                           \
    extern "C" __global__ void __launch_bounds__(256)                                                            \
        nvllm_k_sample_likeliest_##dtype(const __grid_constant__ SampleParams<dtype> p) {                        \
        sample_likeliest(p);                                                                                     \
    }                                                                                                            \
    extern "C" __global__ void __launch_bounds__(1024, 1)                                                         \
        nvllm_k_sample_choose_##dtype(const __grid_constant__ SampleParams<dtype> p) {                           \
        sample_choose(p);                                                                                        \
    }

KERNELS(bf16)
KERNELS(f16)

// Chooses the next token of each sample where none has top-k, top-p or min-p, on compute capability 9.0. Contract: src/compute/ops/sample.rs. Rule: `Sampling`
// in src/compute/batch.rs. Reference: src/compute/cpu/sample, of which this gives the same tokens to the same logits, as sample.cu does.
//
// Bound by arithmetic on [samples, vocab]: Philox costs 9 instructions per token. Reads logits once: scores are relative to the greatest logit of the row
// by the rule, but which tokens may win can be told without it, with a margin for what is rounded. The thread blocks of a row's cluster keep these few
// tokens in shared memory, and compute their scores as the rule says when they have met and know the greatest logit.
#include "common/cluster.cuh"
#include "common/dependent_launch.cuh"
#include "common/histogram.cuh"
#include "common/logits.cuh"
#include "common/noise.cuh"
#include "common/rank.cuh"
#include "common/tensor_core.cuh"

constexpr int AHEAD = 3;              // eights of a thread that are being copied
constexpr int SLOTS = AHEAD + 1;      // and the one that it reads
constexpr int CANDIDATES_MAX = 1024;  // of a thread block

__device__ inline void copy_eight(uint32_t to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ inline Eight load_shared_eight(uint32_t at) {
    Eight v;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.pair[0]), "=r"(v.pair[1]), "=r"(v.pair[2]), "=r"(v.pair[3])
                 : "r"(at)
                 : "memory");
    return v;
}
__device__ inline int load_shared(uint32_t at) {
    int v;
    asm volatile("ld.volatile.shared.b32 %0, [%1];" : "=r"(v) : "r"(at));
    return v;
}

// The greatest of eight numbers. NaNs are passed over; a NaN if all are.
__device__ inline float greatest_of(const Eight& v, bf16) {
    const auto* two = reinterpret_cast<const __nv_bfloat162*>(v.pair);
    const __nv_bfloat162 top = __hmax2(__hmax2(two[0], two[1]), __hmax2(two[2], two[3]));
    return fmaxf(__low2float(top), __high2float(top));
}
__device__ inline float greatest_of(const Eight& v, f16) {
    const auto* two = reinterpret_cast<const __half2*>(v.pair);
    const __half2 top = __hmax2(__hmax2(two[0], two[1]), __hmax2(two[2], two[3]));
    return fmaxf(__low2float(top), __high2float(top));
}
// Number j of eight, where j is not known when the loop is unrolled.
template <class T>
__device__ inline float one_of(const Eight& v, uint32_t j) {
    const float2 pair = widen2<T>(j < 4 ? j < 2 ? v.pair[0] : v.pair[1] : j < 6 ? v.pair[2] : v.pair[3]);
    return j % 2 ? pair.y : pair.x;
}
__device__ inline uint32_t one_of(const uint4& words, uint32_t lane) {
    return lane < 2 ? lane == 0 ? words.x : words.y : lane == 2 ? words.z : words.w;
}
__device__ inline uint32_t one_of(const uint4& low, const uint4& high, uint32_t j) {
    return j < 4 ? one_of(low, j) : one_of(high, j - 4);
}
__device__ inline uint32_t least_of(const uint4& words) {
    return min(min(words.x, words.y), min(words.z, words.w));
}
__device__ inline uint4 words_of(const Sampling& s, uint32_t four) {
    return philox(make_uint4(four, s.position, uint32_t(s.stream), uint32_t(s.stream >> 32)), uint32_t(s.seed), uint32_t(s.seed >> 32));
}

// How small a token's random word has to be for logit / temperature + noise to reach a bound: at most `2^32 e^(logit / temperature - bound)`, since noise is
// less than -ln(v) of the uniform v. Bounds are kept as that exponent of base 2 for a logit of 0, as whole numbers in the order of the floats. The margin covers
// what is rounded, here and by the rule.
struct Reach {
    static constexpr float LOG2_E = 1.442695f, OF_NOTHING = 1e30f;

    static __device__ int ordered(float exponent) {
        const int bits = __float_as_int(exponent);
        return bits ^ (bits >> 31 & 0x7fffffff);
    }
    static __device__ int of_bound(float bound) {
        bound = fminf(bound, 1e30f);
        return ordered(fmaf(bound, -LOG2_E, 32.0f) + fmaf(fabsf(bound), 1e-6f, 3e-3f));
    }
    // `scale`: LOG2_E over the temperature.
    static __device__ float of_logit(int of_bound, float logit, float scale) {
        float word;
        const float exponent = __int_as_float(of_bound ^ (of_bound >> 31 & 0x7fffffff));
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(word) : "f"(fmaf(logit, scale, exponent)));
        return word;
    }
};

// A token that may win.
struct Candidate {
    uint32_t token, word;
};

// What a thread block has found of its share of a row.
struct Found {
    unsigned long long argmax;  // greatest logit and its token
    int reach;                  // for the greatest bound
    uint32_t candidates;        // how many; more than CANDIDATES_MAX if not all were kept
};

// A thread's share of a row: eights of tokens, `stride` tokens apart.
struct Share {
    uint32_t at;  // its first slot in shared memory, of SLOTS
    int first;    // its first token
    int stride;
};

// The greatest logit and its token; candidates if `is_random`. All threads of a thread block call it.
//
// Hardly a token is looked at by itself: eight are passed over if none of their words is small enough for the greatest of their logits.
template <class T>
__device__ uint64_t scan(const Row<T>& row, const Sampling& s, const Share& share, bool is_random, Found& found, Candidate* candidates) {
    const uint32_t slot_bytes = blockDim.x * sizeof(Eight);
    const float inverse = 1.0f / s.temperature, scale = inverse * Reach::LOG2_E;
    // Otherwise the compiler derives the address from the rank in the cluster in each turn.
    uint32_t reach_at = shared_address(&found.reach), at = share.at;
    asm volatile("" : "+r"(reach_at));
    const auto raise = [&](float bound) { atomicMin(&found.reach, Reach::of_bound(bound)); };
    int token = share.first, ahead = share.first;
    for (int i = 0; i < AHEAD; i++, ahead += share.stride) {
        if (ahead < row.vocab) copy_eight(at + i * slot_bytes, row.logits + ahead);
        commit_copies();
    }
    float best = NAN;
    uint32_t at_best = 0;
    bool is_first = true;
    uint32_t to = at + AHEAD * slot_bytes;
    int slot = 0;
    // The threads of a warp take the same number of turns, at least one.
    for (int run = token - int(threadIdx.x % 32 * 8); is_first || run < row.vocab; run += share.stride) {
        wait_for_copies<AHEAD - 1>();
        Eight eight = load_shared_eight(at);
        const int first = token;
        // To the slot that was read in the turn before.
        if (ahead < row.vocab) copy_eight(to, row.logits + ahead);
        commit_copies();
        to = at;
        at += slot_bytes;
        if (++slot == SLOTS) slot = 0, at = share.at;
        token += share.stride, ahead += share.stride;
        if (!row.is_whole(first)) row.drop(eight, first);
        const float top = greatest_of(eight, T()), greatest = fmaxf(best, top);
        if (greatest != best) at_best = first;
        best = greatest;
        const float reach = Reach::of_logit(load_shared(reach_at), top, scale);
        // No noise lifts the others to the bound. NaNs do not pass.
        const bool is_open = reach >= 0.5f && is_random;
        if (!is_open && !is_first) continue;
        const uint4 low = words_of(s, uint32_t(first) / 4), high = words_of(s, uint32_t(first) / 4 + 1);
        const uint32_t noisiest = min(least_of(low), least_of(high));
        if (!is_first && noisiest > __float2uint_rz(reach)) continue;
        const uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        float logits[8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const float2 pair = widen2<T>(eight.pair[j / 2]);
            logits[j] = j % 2 ? pair.y : pair.x;
        }
        if (is_first) {
            // The bound is raised by what costs little before anything becomes a candidate.
            is_first = false;
            float logit = -INFINITY;
            uint32_t word = UINT32_MAX;  // of the greatest logit
#pragma unroll
            for (int j = 0; j < 8; j++) {
                logit = words[j] == noisiest ? logits[j] : logit;
                word = logits[j] == top ? words[j] : word;
            }
            float bound = is_open ? fmaf(top, inverse, gumbel_least(word)) : -INFINITY;
            if (is_open && logit > -INFINITY) bound = fmaxf(bound, fmaf(logit, inverse, gumbel_least(noisiest)));
            bound = warp_max(bound);
            if (threadIdx.x % 32 == 0 && bound > -INFINITY) raise(bound);
            __syncthreads();
        }
        if (!is_open) continue;
        int of_bound = load_shared(reach_at);
        uint32_t open = 0;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const float of_logit = Reach::of_logit(of_bound, logits[j], scale);
            open |= uint32_t(of_logit >= 0.5f && words[j] <= __float2uint_rz(of_logit)) << j;
        }
        if (open == 0) continue;
        float bound = -INFINITY;
        for (uint32_t rest = open; rest > 0; rest &= rest - 1) {
            const uint32_t j = __ffs(rest) - 1;
            bound = fmaxf(bound, fmaf(one_of<T>(eight, j), inverse, gumbel_least(one_of(low, high, j))));
        }
        raise(bound);
        of_bound = load_shared(reach_at);
        for (; open > 0; open &= open - 1) {
            const uint32_t j = __ffs(open) - 1, word = one_of(low, high, j);
            if (word > __float2uint_rz(Reach::of_logit(of_bound, one_of<T>(eight, j), scale))) continue;
            const uint32_t index = atomicAdd(&found.candidates, 1u);
            if (index < CANDIDATES_MAX) candidates[index] = Candidate{uint32_t(first) + j, word};
        }
    }
    if (isnan(best)) return 0;
    const Eight eight = row.eight(at_best);
    uint64_t rank = 0;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const float2 pair = widen2<T>(eight.pair[j / 2]);
        if ((j % 2 ? pair.y : pair.x) == best) rank = max(rank, rank_of(best, at_best + j));
    }
    return rank;
}

// The noisy score of a token as the rule says, and the token; 0 if it cannot be chosen.
__device__ inline uint64_t noisy_rank(const Sampling& s, float greatest, uint32_t token, float logit, uint32_t word) {
    const float exact = __fdiv_rn(__fadd_rn(logit, -greatest), s.temperature);
    if ((__float_as_uint(exact) & 0x7fffffffu) > KEEP_ALL) return 0;  // as is a NaN
    return rank_of(__fadd_rn(exact, gumbel(word)), token);
}

// The greatest noisy score of all tokens of the share, for rows whose candidates are too many.
template <class T>
__device__ uint64_t best_of_all(const Row<T>& row, const Sampling& s, const Share& share, float greatest) {
    uint64_t best = 0;
    for (int token = share.first; token < row.vocab; token += share.stride) {
        const Eight eight = row.eight(token);
        const uint4 low = words_of(s, uint32_t(token) / 4), high = words_of(s, uint32_t(token) / 4 + 1);
#pragma unroll 1
        for (uint32_t j = 0; j < 8; j++) best = max(best, noisy_rank(s, greatest, token + j, one_of<T>(eight, j), one_of(low, high, j)));
    }
    return best;
}

// Grid [samples * cluster], cluster of any size up to 8, block of whole warps, shared [SLOTS * threads * 16 bytes].
template <class T>
__device__ void sample_once(const SampleParams<T>& p) {
    extern __shared__ __align__(16) uint8_t shared[];
    __shared__ Found found;
    __shared__ unsigned long long best_of_block;
    __shared__ Candidate candidates[CANDIDATES_MAX];
    launch_dependents();
    const int size = cluster_size(), sample = blockIdx.x / size, rank = cluster_rank();
    const Sampling s = p.sampling[sample];
    const Row<T> row(p, s, sample);
    Share share{shared_address(shared) + threadIdx.x * uint32_t(sizeof(Eight)), int(rank * blockDim.x + threadIdx.x) * 8, size * int(blockDim.x) * 8};
    asm volatile("" : "+r"(share.at));
    if (threadIdx.x == 0) found = Found{0, Reach::ordered(Reach::OF_NOTHING), 0};
    __syncthreads();
    grid_dependency_wait();
    if (s.forced != NO_TOKEN) {
        if (rank == 0 && threadIdx.x == 0) p.tokens[sample] = p.host_tokens[sample] = s.forced;
        return;
    }
    uint64_t argmax = block_max(scan(row, s, share, s.temperature > 0.0f, found, candidates));
    if (threadIdx.x == 0) found.argmax = argmax;
    cluster_sync();
    const Found of_other = *in_cluster(&found, threadIdx.x % size);
    argmax = warp_max(uint64_t(of_other.argmax));
    const bool has_all = __all_sync(0xffffffffu, of_other.candidates <= CANDIDATES_MAX) && __any_sync(0xffffffffu, of_other.candidates > 0);
    uint64_t best = 0;
    if (s.temperature > 0.0f && argmax > 0 && !isinf(value_of(argmax))) {
        const float greatest = value_of(argmax);
        if (has_all) {
            for (uint32_t i = threadIdx.x; i < found.candidates; i += blockDim.x) {
                const Candidate c = candidates[i];
                best = max(best, noisy_rank(s, greatest, c.token, widen(row.logits[c.token]), c.word));
            }
        } else {
            best = best_of_all(row, s, share, greatest);
        }
        best = block_max(best);
    }
    if (threadIdx.x == 0) best_of_block = best;
    cluster_sync();
    if (rank == 0 && threadIdx.x < 32) {
        best = warp_max(uint64_t(*in_cluster(&best_of_block, threadIdx.x % size)));
        const uint64_t chosen = best == 0 ? argmax : best;
        if (threadIdx.x == 0) p.tokens[sample] = p.host_tokens[sample] = chosen ? token_of(chosen) : 0;
    }
    // Until then the first thread block may read the others' shared memory.
    cluster_arrive();
    cluster_wait();
}

#define KERNELS(dtype)                                                                                                \
    extern "C" __global__ void __launch_bounds__(1024)                                                                \
        nvllm_k_sample_once_##dtype(const __grid_constant__ SampleParams<dtype> p) {                                  \
        sample_once(p);                                                                                               \
    }

KERNELS(bf16)
KERNELS(f16)

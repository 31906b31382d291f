// Log-probabilities of the chosen and of the most probable tokens. Contract: src/compute/ops/logprobs.rs. Reference: src/compute/cpu/logprobs.rs, of which this
// gives the same bits.
//
// Bound by arithmetic on one multiprocessor, 20 instructions per token for the sum, and by the latency of a round for each of the most probable tokens.
// One thread block per sample that asks. Each thread knows the greatest rank of its share of the row; a round takes the greatest of all, and
// the warp that had it looks through that thread's share for the next one below, a lane for each eight tokens.
#include "common/dependent_launch.cuh"
#include "common/logits.cuh"
#include "common/noise.cuh"
#include "common/rank.cuh"

template <class T>
struct LogprobsParams {
    T* logits;                   // [samples, stride]; what `process_logits` changed is put back in rows that ask
    const Sampling* sampling;    // [samples]
    const uint32_t* tokens;      // [samples]
    const uint32_t* adjusted;    // three numbers for each adjustment, of which the first is the token; each sample names its range
    const T* raw;                // [adjustments]: what was there before
    const uint32_t* awaited;     // [samples]: a token that was adjusted without being listed, or NO_TOKEN; null if nothing was adjusted
    const T* awaited_raw;        // [samples]
    float* logprobs;             // [samples], of the chosen tokens
    uint32_t* top_tokens;        // [samples, MAX_LOGPROBS]
    float* top_logprobs;         // [samples, MAX_LOGPROBS]
    int vocab;
    int stride;  // numbers from row to row of logits, a multiple of 8
};

constexpr int MAX_LOGPROBS = 64;

// Grid [samples], block [1024].
template <class T>
__device__ void logprobs(const LogprobsParams<T>& p) {
    __shared__ uint64_t of_warp[32];
    __shared__ unsigned long long sum;
    launch_dependents();
    grid_dependency_wait();
    const int sample = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Sampling s = p.sampling[sample];
    if (s.logprobs == 0) return;
    T* logits = p.logits + size_t(sample) * p.stride;
    if (p.awaited != nullptr) {
        for (uint32_t i = s.adjusted_start + threadIdx.x; i < s.adjusted_end; i += blockDim.x) logits[p.adjusted[3 * i]] = p.raw[i];
        if (threadIdx.x == 0 && p.awaited[sample] != NO_TOKEN) logits[p.awaited[sample]] = p.awaited_raw[sample];
    }
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();

    const Row<T> row(logits, p.vocab);
    // The greatest rank of lane `owner`'s share below `bound`; 0 if there is none with a probability. Its eights are those that
    // `each_eight` gives it.
    const auto next_of = [&](int owner, uint64_t bound) {
        uint64_t best = 0;
        for (int token = (warp * 32 + owner) * 8 + lane * int(blockDim.x) * 8; token < p.vocab; token += 32 * int(blockDim.x) * 8) {
            const Eight eight = row.eight(token);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const float2 pair = widen2<T>(eight.pair[j / 2]);
                const float logit = j % 2 ? pair.y : pair.x;
                const uint64_t rank = rank_of(logit, token + j);
                if (logit > -INFINITY && rank < bound) best = max(best, rank);
            }
        }
        return warp_max(best);
    };
    const auto publish = [&](uint64_t rank) {
        rank = warp_max(rank);
        if (lane == 0) of_warp[warp] = rank;
    };
    float own_logit = -INFINITY;
    uint32_t own_token = NO_TOKEN;
    row.each_eight(threadIdx.x, blockDim.x, [&](uint32_t first, const Eight& eight) {
        float logit[8], greatest = NAN;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float2 pair = widen2<T>(eight.pair[j]);
            logit[2 * j] = pair.x, logit[2 * j + 1] = pair.y;
            greatest = fmaxf(greatest, fmaxf(pair.x, pair.y));
        }
        // A thread sees its tokens in their order: among equals the first one stays.
        if (!(greatest > own_logit)) return;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            if (logit[j] > own_logit) own_logit = logit[j], own_token = first + j;
        }
    });
    uint64_t own = own_logit > -INFINITY ? rank_of(own_logit, own_token) : 0;
    publish(own);
    __syncthreads();
    const uint64_t first = warp_max(lane < blockDim.x / 32 ? of_warp[lane] : 0);
    const float most = first ? value_of(first) : -INFINITY;

    unsigned long long weight = 0;
    if (first) {
        row.each_eight(threadIdx.x, blockDim.x, [&](uint32_t, const Eight& eight) {
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const float2 pair = widen2<T>(eight.pair[j / 2]);
                const float logit = j % 2 ? pair.y : pair.x;
                const float score = logit == most ? 0.0f : __fadd_rn(logit, -most);
                // NaNs and infinite distances fail this.
                if (score >= -28.0f) weight += exact_weight(score);
            }
        });
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) weight += __shfl_xor_sync(0xffffffffu, weight, lanes);
    if (lane == 0) atomicAdd(&sum, weight);
    __syncthreads();
    const float log_sum = first ? exact_ln(__fmul_rn(__ull2float_rn(sum), 1.0f / 1099511627776.0f)) : INFINITY;
    const auto logprob_of = [&](float logit) {
        const float logprob = __fadd_rn(logit == most ? 0.0f : __fadd_rn(logit, -most), -log_sum);
        return isnan(logprob) ? -INFINITY : logprob;
    };

    if (threadIdx.x == 0) p.logprobs[sample] = logprob_of(widen(logits[p.tokens[sample]]));
    const size_t place = size_t(sample) * MAX_LOGPROBS;
    for (uint32_t i = 0; i + 1 < s.logprobs; i++) {
        const uint64_t top = warp_max(lane < blockDim.x / 32 ? of_warp[lane] : 0);
        if (threadIdx.x == 0) {
            p.top_tokens[place + i] = top ? token_of(top) : NO_TOKEN;
            p.top_logprobs[place + i] = top ? logprob_of(value_of(top)) : -INFINITY;
        }
        __syncthreads();  // everybody has read
        const uint32_t owner = __ballot_sync(0xffffffffu, top != 0 && own == top);
        if (owner != 0) {
            const uint64_t next = next_of(__ffs(owner) - 1, top);
            if (lane == __ffs(owner) - 1) own = next;
            publish(own);
        }
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(1024) nvllm_k_logprobs_bf16(const __grid_constant__ LogprobsParams<bf16> p) {
    logprobs(p);
}
extern "C" __global__ void __launch_bounds__(1024) nvllm_k_logprobs_f16(const __grid_constant__ LogprobsParams<f16> p) {
    logprobs(p);
}

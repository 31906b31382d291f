// A row of logits, and how its token is to be chosen.
#pragma once

#include "batch.cuh"
#include "numbers.cuh"

constexpr uint32_t NO_TOKEN = UINT32_MAX, NO_MASK = UINT32_MAX;

template <class T>
struct SampleParams {
    uint32_t* tokens;           // [samples]
    uint32_t* host_tokens;      // [samples], in memory of the host
    const T* logits;            // [samples, stride]
    const Sampling* sampling;   // [samples]
    const uint32_t* masks;      // bit sets; each sample names where its own begins
    uint64_t* argmax;           // [samples], zero between launches
    uint64_t* gumbel_argmax;    // [samples], likewise
    uint32_t* arrived;          // [samples], likewise
    int vocab;
    int stride;  // numbers from row to row of logits, a multiple of 8
    int window;  // counters in shared memory, a multiple of 128, at most 65536
    int splits;  // thread blocks of a sample, a multiple of a cluster
};

// Two numbers of 16 bits as two whole numbers in their order. NaNs lie outside of both infinities.
__device__ inline uint32_t ordered_pair(uint32_t pair) {
    return pair ^ ((pair >> 15 & 0x00010001u) * 0x7fffu | 0x80008000u);
}

template <class T>
struct Row {
    const T* logits;      // [vocab], up to the next multiple of 8
    const uint8_t* mask;  // a bit for each token that may be chosen, or null
    int vocab;

    __device__ Row(const T* logits, int vocab) : logits(logits), mask(nullptr), vocab(vocab) {}
    __device__ Row(const SampleParams<T>& p, const Sampling& s, int sample)
        : logits(p.logits + size_t(sample) * p.stride),
          mask(s.mask == NO_MASK ? nullptr : reinterpret_cast<const uint8_t*>(p.masks + s.mask)), vocab(p.vocab) {}

    // The logits of eight tokens from a multiple of 8 on; NaN stands for what may not be chosen or lies beyond the vocabulary.
    __device__ Eight eight(int token) const {
        Eight v{{0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}};
        if (token < vocab) {
            v = load_eight(logits + token);
            if (mask != nullptr) drop_masked(v, token);
        }
        if (token + 8 > vocab) drop_beyond(v, token);
        return v;
    }

    // The same of logits that were copied before, if any of these tokens may have to be dropped at all.
    __device__ bool is_whole(int token) const {
        return mask == nullptr && token + 8 <= vocab;
    }
    __device__ void drop(Eight& v, int token) const {
        if (mask != nullptr && token < vocab) drop_masked(v, token);
        if (token + 8 > vocab) drop_beyond(v, token);
    }

    __device__ void drop_masked(Eight& v, int token) const {
        const uint32_t may_be = mask[token / 8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            if ((may_be >> j & 1) == 0) v.pair[j / 2] |= j % 2 ? 0xffff0000u : 0xffffu;
        }
    }
    __device__ void drop_beyond(Eight& v, int token) const {
#pragma unroll
        for (int j = 0; j < 8; j++) {
            if (token + j >= vocab) v.pair[j / 2] |= j % 2 ? 0xffff0000u : 0xffffu;
        }
    }

    // Calls `take(token, logits)` for eight tokens at a time; thread `thread` of `threads`. The threads of a warp take the same number
    // of turns.
    template <class F>
    __device__ void each_eight(int thread, int threads, F take) const {
        constexpr int BATCH = 4;  // loads under way
        const int lane = thread % 32 * 8;
        for (int run = thread / 32 * 256; run < vocab; run += BATCH * threads * 8) {
            Eight eights[BATCH];
#pragma unroll
            for (int b = 0; b < BATCH; b++) eights[b] = eight(run + b * threads * 8 + lane);
#pragma unroll
            for (int b = 0; b < BATCH; b++) {
                if (run + b * threads * 8 < vocab) take(uint32_t(run + b * threads * 8 + lane), eights[b]);
            }
        }
    }
};

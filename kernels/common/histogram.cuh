// Finds how unlikely a token may be and still be kept, without sorting: as src/compute/cpu/sample/cut.rs, to the bit, by another way.
//
// Logits have 16 bits, so few of them differ. A table in shared memory counts how often each of the `window` greatest occurs, and
// weights are summed over the table, group by group, instead of over the tokens. Sums are of whole numbers, the same in any
// order. The thread blocks of a cluster each count their share of the row, and each adds up the sums of all. Logits below the
// window are almost never wanted: a next table starts there if they are.
#pragma once

#include "cluster.cuh"
#include "logits.cuh"
#include "noise.cuh"

// What a cut adds up.
enum class Cut {
    COUNT,  // tokens, up to top_k
    SHARE,  // their weights, up to the share top_p of all
};

constexpr uint32_t KEEP_ALL = 0x7f7fffffu;

__device__ inline unsigned long long warp_sum(unsigned long long v) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) v += __shfl_xor_sync(0xffffffffu, v, lanes);
    return v;
}

// The sum over this lane and those before it.
__device__ inline unsigned long long warp_prefix(unsigned long long v) {
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
        const unsigned long long other = __shfl_up_sync(0xffffffffu, v, lanes);
        if (threadIdx.x % 32 >= lanes) v += other;
    }
    return v;
}

// Used by all threads of a cluster at once. Codes of logits are named by their distance from that of the greatest.
template <class T>
struct Histogram {
    static constexpr int GROUP = 32;
    static constexpr uint32_t NOTHING = UINT32_MAX;

    const Row<T>& row;
    const Sampling& s;
    const float greatest;
    const uint32_t window;                 // a multiple of 128, at most 2 GROUP for each thread
    uint32_t* const counts;                // [window], in shared memory
    unsigned long long* const group_sums;  // [window / GROUP], in shared memory
    const uint32_t top;                    // code of the greatest logit
    const uint32_t span;                   // distances below this are above minus infinity
    uint32_t base = NOTHING;               // the table's first distance

    // `shared` are 17 / 4 window bytes.
    static __device__ void empty(uint8_t* shared, uint32_t window) {
        for (int i = threadIdx.x; i < window / 4; i += blockDim.x) reinterpret_cast<uint4*>(shared)[i] = uint4{};
        __syncthreads();
    }

    // On an empty table.
    __device__ Histogram(const Row<T>& row, const Sampling& s, float greatest, uint8_t* shared, uint32_t window)
        : row(row), s(s), greatest(greatest), window(window), counts(reinterpret_cast<uint32_t*>(shared)),
          group_sums(reinterpret_cast<unsigned long long*>(counts + window)), top(code_of(greatest)), span(top - code_of(-INFINITY)) {}

    static __device__ uint32_t code_of(float logit) {
        return ordered_pair(narrow2<T>(logit, 0.0f)) & 0xffffu;
    }

    __device__ float score_of(uint32_t distance) const {
        const uint32_t code = top - distance;
        const float logit = widen2<T>(code & 0x8000u ? code ^ 0x8000u : ~code & 0xffffu).x;
        return __fdiv_rn(__fadd_rn(logit, -greatest), s.temperature);
    }

    static __device__ uint32_t key_of(float score) {
        return __float_as_uint(score) & 0x7fffffffu;
    }

    template <Cut CUT>
    __device__ unsigned long long weight_of(uint32_t distance, uint32_t limit) const {
        const float score = score_of(distance);
        if (key_of(score) > limit) return 0;
        return CUT == Cut::COUNT ? 1 : exact_weight(score);
    }

    // Counts the logits whose distances begin at `from`, in a table that is empty.
    __device__ void count(uint32_t from) {
        base = from;
        const uint32_t first = top - base, end = min(window, span - base);
        const auto count_if_here = [&](uint32_t code) {
            if (first - code < end) atomicAdd(counts + (first - code), 1u);
        };
        row.each_eight(cluster_rank() * blockDim.x + threadIdx.x, cluster_size() * blockDim.x, [&](uint32_t, const Eight& eight) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const uint32_t codes = ordered_pair(eight.pair[j]);
                count_if_here(codes & 0xffffu);
                count_if_here(codes >> 16);
            }
        });
        __syncthreads();
    }

    // The weights of the logits below the first window. No more than a look at the first of them unless the temperature is very high.
    __device__ unsigned long long weight_below(uint32_t limit) const {
        __shared__ unsigned long long of_block;
        if (span <= window || score_of(window) < -28.0f) return 0;
        if (threadIdx.x == 0) of_block = 0;
        __syncthreads();
        unsigned long long own = 0;
        row.each_eight(cluster_rank() * blockDim.x + threadIdx.x, cluster_size() * blockDim.x, [&](uint32_t, const Eight& eight) {
            for (int j = 0; j < 8; j++) {
                const uint32_t distance = top - (ordered_pair(eight.pair[j / 2]) >> j % 2 * 16 & 0xffffu);
                if (distance < window || distance >= span) continue;
                own += weight_of<Cut::SHARE>(distance, limit);
            }
        });
        own = warp_sum(own);
        if (threadIdx.x % 32 == 0) atomicAdd(&of_block, own);
        cluster_sync();
        unsigned long long all = 0;
        for (uint32_t rank = 0; rank < cluster_size(); rank++) all += *in_cluster(&of_block, rank);
        cluster_sync();
        return all;
    }

    // The least key at which the weights from key 0 on reach the target; `limit` if they never do.
    template <Cut CUT>
    __device__ uint32_t cut(uint32_t limit) {
        __shared__ unsigned long long of_warp[32], rest;
        __shared__ uint32_t found;
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
        const int groups = window / GROUP;
        const unsigned long long below = CUT == Cut::SHARE ? weight_below(limit) : 0;
        unsigned long long target = 0;
        for (uint32_t from = 0; from < span; from += window) {
            if (base != from) {
                if (base != NOTHING) empty(reinterpret_cast<uint8_t*>(counts), window);
                count(from);
            }
            // Four groups at a time: most are empty.
            for (int first = warp * 4; first < groups; first += warps * 4) {
                const uint4 four = reinterpret_cast<const uint4*>(counts + first * GROUP)[lane];
                const uint32_t used = __ballot_sync(0xffffffffu, (four.x | four.y | four.z | four.w) > 0);
                unsigned long long own_sum = 0;
#pragma unroll
                for (int g = 0; g < 4; g++) {
                    if ((used >> g * 8 & 0xffu) == 0) continue;
                    const int at = (first + g) * GROUP + lane;
                    const uint32_t times = counts[at];
                    const unsigned long long sum = warp_sum(times > 0 ? times * weight_of<CUT>(base + at, limit) : 0ull);
                    if (lane == g) own_sum = sum;
                }
                if (lane < 4) group_sums[first + lane] = own_sum;
            }
            cluster_sync();

            // Each thread adds up two groups of all thread blocks.
            ulonglong2 own{};
            if (threadIdx.x * 2 < groups) {
#pragma unroll 8
                for (uint32_t rank = 0; rank < cluster_size(); rank++) {
                    const ulonglong2 part = *in_cluster(reinterpret_cast<const ulonglong2*>(group_sums) + threadIdx.x, rank);
                    own.x += part.x;
                    own.y += part.y;
                }
            }
            unsigned long long before = warp_prefix(own.x + own.y);
            if (lane == 31) of_warp[warp] = before;
            __syncthreads();
            unsigned long long all = 0;
            before -= own.x + own.y;
            for (int w = 0; w < warps; w++) {
                if (w < warp) before += of_warp[w];
                all += of_warp[w];
            }
            if (from == 0) {
                target = CUT == Cut::COUNT ? s.top_k : (unsigned long long)ceil(double(s.top_p) * double(all + below));
                target = max(target, 1ull);
            }
            const bool is_here = all >= target;
            if (is_here) {
                if (before < target && before + own.x + own.y >= target) {
                    const bool is_second = before + own.x < target;
                    found = threadIdx.x * 2 + is_second;
                    rest = target - before - (is_second ? own.x : 0);
                }
                __syncthreads();
                if (warp == 0) {
                    const uint32_t at = found * GROUP + lane;
                    unsigned long long sum = 0;
#pragma unroll 8
                    for (uint32_t rank = 0; rank < cluster_size(); rank++) sum += *in_cluster(counts + at, rank);
                    sum = warp_prefix(sum > 0 ? sum * weight_of<CUT>(base + at, limit) : 0);
                    const uint32_t reached = __ballot_sync(0xffffffffu, sum >= rest);
                    __syncwarp();
                    if (lane == __ffs(reached) - 1) found = key_of(score_of(base + at));
                }
                __syncthreads();
                limit = found;
            }
            // The others may still be reading this thread block's sums.
            cluster_sync();
            if (is_here) break;
            target -= all;
        }
        return limit;
    }
};

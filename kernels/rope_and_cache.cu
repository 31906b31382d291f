// Normalizes and rotates queries and keys, stores keys and values. Contract: src/compute/ops/rope_and_cache.rs. Reference:
// src/compute/cpu/rope_and_cache.rs.
//
// Memory-bound in prefill: reads qkv once, writes queries, keys and values once. At the launch floor in decode. Keys and values in
// int8 are rounded from f32, before they would be rounded to T.
//
// Three kernels: one for what most models do (whole heads turn, in halves, normalized before or not at all), one for the same and many
// tokens, and one for every other variant of a head, which reads from its parameters where the numbers of a pair are. A norm over all
// heads is a fourth one, before.
#include "common/dependent_launch.cuh"
#include "common/kv_int8.cuh"
#include "common/numbers.cuh"
#include "common/rope.cuh"

template <class T>
struct RopeAndCacheParams {
    T* qkv;                     // [tokens, stride]: heads queries, kv_heads keys, kv_heads values
    T* cache;                   // [block][kv_head][K|V][block_size][head_dim], or the bytes of an int8 cache
    const float* query_norm;    // [head_dim], null where heads are not normalized
    const float* key_norm;      // [head_dim], likewise
    const float* rope;          // [positions, head_dim]: cosines, then sines
    const uint32_t* positions;  // [tokens]
    const uint32_t* slots;      // [tokens]; UINT32_MAX stores nothing
    int heads;
    int kv_heads;
    int head_dim;    // even, at most 512, beyond 256 in kernels for long heads alone
    int block_size;  // tokens, a power of two
    int stride;      // numbers from row to row of qkv, a multiple of 8
    float eps;
    int tokens;      // read by rope_and_cache_wide alone
    int is_int8;     // the cache's format; not read by rope_and_cache_wide
    // What follows is read by the kernels for variants alone.
    const float* temperature;  // [positions], null where queries do not grow
    int rotary;                // numbers of a head that turn, a multiple of 4; 0 turns nothing
    int neighbours;            // 1: pairs (2i, 2i + 1); 0: pairs (i, i + rotary / 2)
    int norm_after;            // 1: heads are normalized after the rotation
    int norm_values;           // 1: values are divided by their root mean square
    float value_eps;
    // What follows is read by whole_norm alone.
    const T* whole_queries;    // [tokens, whole_query_width] of all ranks, null where this rank has all heads
    const T* whole_keys;       // [tokens, whole_key_width], likewise
    int whole_query_width;
    int whole_key_width;
};

enum class Variants {
    NONE,  // rotary = head_dim, halves, normalized before the rotation or not at all
    ALL,
};

// One head a warp finds more warps for few tokens; four share the load of the rope and keep more loads under way.
// Grid [tokens, splits], block [32 * warps], where splits * warps * HEADS is at least heads + 2 kv_heads.
// A lane holds up to PAIRS x 2 numbers of each half of a head.
template <class T, int HEADS, Variants OF, int PAIRS = 2>
__device__ void rope_and_cache(const RopeAndCacheParams<T>& p) {
    constexpr bool IS_VARIANT = OF == Variants::ALL;
    launch_dependents();
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    const int first = blockIdx.y * warps + threadIdx.x / 32, stride = gridDim.y * warps;
    const int half = p.head_dim / 2;
    // Pairs that turn. The numbers beyond them are taken as pairs, too, with the cosine 1 and the sine 0.
    const int turning = p.rotary / 2;
    // Where the numbers are that a lane holds for the pairs `i` and `i + 1`, two at either place.
    const auto low_at = [&](int i) {
        if (!IS_VARIANT) return i;
        return p.neighbours ? 2 * i : i < turning ? i : i + turning;
    };
    const auto high_at = [&](int i) {
        if (!IS_VARIANT) return half + i;
        return p.neighbours ? 2 * i + 2 : i < turning ? i + turning : half + i;
    };
    // Makes of what lies at the two places the first and the second numbers of the two pairs, and the reverse.
    const auto pair_up = [&](float2& low, float2& high) {
        if (!IS_VARIANT || !p.neighbours) return;
        const float second = low.y;
        low.y = high.x;
        high.x = second;
    };
    const size_t token = blockIdx.x;

    const uint32_t slot = p.slots[token];
    const float* rope = p.rope + size_t(p.positions[token]) * (IS_VARIANT ? p.rotary : p.head_dim);
    const float temperature = IS_VARIANT && p.temperature ? p.temperature[p.positions[token]] : 1.0f;
    float2 cosine[PAIRS], sine[PAIRS], low_norm[PAIRS], high_norm[PAIRS];
    const auto load_rope = [&] {
#pragma unroll
        for (int k = 0; k < PAIRS; k++) {
            const int i = k * 64 + lane * 2;
            if (i >= half) break;
            if (IS_VARIANT && i >= turning) {
                cosine[k] = make_float2(1.0f, 1.0f);
                sine[k] = make_float2(0.0f, 0.0f);
                continue;
            }
            cosine[k] = *reinterpret_cast<const float2*>(rope + i);
            sine[k] = *reinterpret_cast<const float2*>(rope + (IS_VARIANT ? turning : half) + i);
        }
    };
    const auto norm_of = [&](int head) { return head < p.heads ? p.query_norm : head < p.heads + p.kv_heads ? p.key_norm : nullptr; };
    const auto load_norm = [&](const float* norm) {
#pragma unroll
        for (int k = 0; k < PAIRS; k++) {
            const int i = k * 64 + lane * 2;
            if (!norm || i >= half) break;
            low_norm[k] = *reinterpret_cast<const float2*>(norm + low_at(i));
            high_norm[k] = *reinterpret_cast<const float2*>(norm + high_at(i));
            pair_up(low_norm[k], high_norm[k]);
        }
    };
    // Few tokens wait for the kernel before them, and load meanwhile what the plan and the weights have for them. Many tokens wait for
    // memory: there the numbers of all heads come first.
    if (HEADS == 1) {
        load_rope();
        load_norm(norm_of(first));
    }
    grid_dependency_wait();

    T* row = p.qkv + token * p.stride;
    uint32_t low_pair[HEADS][PAIRS], high_pair[HEADS][PAIRS];
    float2 low_wide[PAIRS], high_wide[PAIRS];  // of a key or value that becomes int8
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        const int head = first + h * stride;
#pragma unroll
        for (int k = 0; k < PAIRS; k++) {
            const int i = k * 64 + lane * 2;
            if (i >= half || head >= p.heads + 2 * p.kv_heads) break;
            low_pair[h][k] = *reinterpret_cast<const uint32_t*>(row + head * p.head_dim + low_at(i));
            high_pair[h][k] = *reinterpret_cast<const uint32_t*>(row + head * p.head_dim + high_at(i));
        }
    }
    if (HEADS > 1) load_rope();
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        const int head = first + h * stride;
        if (head >= p.heads + 2 * p.kv_heads) return;
        const bool is_query = head < p.heads, is_value = head >= p.heads + p.kv_heads;
        if (!is_query && slot == UINT32_MAX) return;
        if (!is_value) {
            const float* norm = norm_of(head);
            if (HEADS > 1) load_norm(norm);
            float squares = 0.0f;
#pragma unroll
            for (int k = 0; k < PAIRS; k++) {
                if (k * 64 + lane * 2 >= half) break;
                float2 a = widen2<T>(low_pair[h][k]), b = widen2<T>(high_pair[h][k]);
                if (IS_VARIANT && p.norm_after) {
                    pair_up(a, b);
                    turn(a, b, cosine[k], sine[k]);
                }
                squares += a.x * a.x + a.y * a.y + b.x * b.x + b.y * b.y;
            }
            const float scale = norm ? rsqrtf(warp_sum(squares) / p.head_dim + p.eps) : 1.0f;
#pragma unroll
            for (int k = 0; k < PAIRS; k++) {
                if (k * 64 + lane * 2 >= half) break;
                float2 a = widen2<T>(low_pair[h][k]), b = widen2<T>(high_pair[h][k]);
                if (IS_VARIANT) {
                    pair_up(a, b);
                    if (p.norm_after) turn(a, b, cosine[k], sine[k]);
                }
                if (norm) {
                    a = make_float2(a.x * scale * low_norm[k].x, a.y * scale * low_norm[k].y);
                    b = make_float2(b.x * scale * high_norm[k].x, b.y * scale * high_norm[k].y);
                }
                if (!IS_VARIANT || !p.norm_after) turn(a, b, cosine[k], sine[k]);
                if (IS_VARIANT) {
                    if (is_query) {
                        a = make_float2(a.x * temperature, a.y * temperature);
                        b = make_float2(b.x * temperature, b.y * temperature);
                    }
                    pair_up(a, b);
                }
                low_pair[h][k] = narrow2<T>(a.x, a.y);
                high_pair[h][k] = narrow2<T>(b.x, b.y);
                if (p.is_int8) {
                    low_wide[k] = a;
                    high_wide[k] = b;
                }
            }
        }
        if (IS_VARIANT && is_value && p.norm_values) {
            float squares = 0.0f;
#pragma unroll
            for (int k = 0; k < PAIRS; k++) {
                if (k * 64 + lane * 2 >= half) break;
                const float2 a = widen2<T>(low_pair[h][k]), b = widen2<T>(high_pair[h][k]);
                squares += a.x * a.x + a.y * a.y + b.x * b.x + b.y * b.y;
            }
            const float scale = rsqrtf(warp_sum(squares) / p.head_dim + p.value_eps);
#pragma unroll
            for (int k = 0; k < PAIRS; k++) {
                if (k * 64 + lane * 2 >= half) break;
                const float2 a = widen2<T>(low_pair[h][k]), b = widen2<T>(high_pair[h][k]);
                low_wide[k] = make_float2(a.x * scale, a.y * scale);
                high_wide[k] = make_float2(b.x * scale, b.y * scale);
                low_pair[h][k] = narrow2<T>(low_wide[k].x, low_wide[k].y);
                high_pair[h][k] = narrow2<T>(high_wide[k].x, high_wide[k].y);
            }
        }
        if (p.is_int8 && !is_query) {
            uint32_t greatest = 0;
            const auto add = [&](float v) { greatest = max(greatest, __float_as_uint(v) & 0x7fffffffu); };
#pragma unroll
            for (int k = 0; k < PAIRS; k++) {
                if (k * 64 + lane * 2 >= half) break;
                if (is_value && !(IS_VARIANT && p.norm_values)) {
                    low_wide[k] = widen2<T>(low_pair[h][k]);
                    high_wide[k] = widen2<T>(high_pair[h][k]);
                }
                add(low_wide[k].x);
                add(low_wide[k].y);
                add(high_wide[k].x);
                add(high_wide[k].y);
            }
            const bf16 scale = int8_scale(__reduce_max_sync(0xffffffffu, greatest));
            const float inverse = int8_inverse(scale);
            const int kv_head = is_value ? head - p.heads - p.kv_heads : head - p.heads;
            const size_t place = size_t(slot / p.block_size) * p.kv_heads + kv_head;
            const int offset = (is_value ? p.block_size : 0) + slot % p.block_size;
            signed char* of_head = reinterpret_cast<signed char*>(p.cache) + place * 2 * p.block_size * (p.head_dim + 2);
            signed char* to = of_head + size_t(offset) * p.head_dim;
#pragma unroll
            for (int k = 0; k < PAIRS; k++) {
                const int i = k * 64 + lane * 2;
                if (i >= half) break;
                *reinterpret_cast<char2*>(to + low_at(i)) = int8_pair(low_wide[k], inverse);
                *reinterpret_cast<char2*>(to + high_at(i)) = int8_pair(high_wide[k], inverse);
            }
            if (lane == 0) reinterpret_cast<bf16*>(of_head + 2 * p.block_size * p.head_dim)[offset] = scale;
            continue;
        }

        T* to = row + head * p.head_dim;
        if (!is_query) {
            const int kv_head = is_value ? head - p.heads - p.kv_heads : head - p.heads;
            const size_t place = (size_t(slot / p.block_size) * p.kv_heads + kv_head) * 2 + (is_value ? 1 : 0);
            to = p.cache + (place * p.block_size + slot % p.block_size) * p.head_dim;
        }
#pragma unroll
        for (int k = 0; k < PAIRS; k++) {
            const int i = k * 64 + lane * 2;
            if (i >= half) break;
            *reinterpret_cast<uint32_t*>(to + low_at(i)) = low_pair[h][k];
            *reinterpret_cast<uint32_t*>(to + high_at(i)) = high_pair[h][k];
        }
    }
}

// Eight neighbouring numbers of a table in f32.
__device__ inline void load_eight_wide(float2 (&to)[4], const float* from) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float4 four = reinterpret_cast<const float4*>(from)[i];
        to[2 * i] = make_float2(four.x, four.y);
        to[2 * i + 1] = make_float2(four.z, four.w);
    }
}

// What most models do, for many tokens: heads of D numbers, a plain cache, accesses of 16 bytes. A lane has eight numbers of either half
// of a head, so that a warp has several heads of a token AT_ONCE, and the numbers of ROUNDS times as many are under way. The results have
// the bits of the kernel above: the squares are added in its order.
// Grid [tokens / warps rounded up, splits], block [32 * warps], where splits * ROUNDS * AT_ONCE is at least heads + 2 kv_heads.
template <class T, int D, int ROUNDS>
__device__ void rope_and_cache_wide(const RopeAndCacheParams<T>& p) {
    constexpr int HALF = D / 2, LANES = HALF / 8, AT_ONCE = 32 / LANES;
    launch_dependents();
    const int token = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (token >= p.tokens) return;
    const int first = blockIdx.y * ROUNDS * AT_ONCE + threadIdx.x % 32 / LANES, at = threadIdx.x % LANES * 8;
    const int turning = p.heads + p.kv_heads, all = turning + p.kv_heads;
    const uint32_t slot = p.slots[token];
    const float* rope = p.rope + size_t(p.positions[token]) * D;
    grid_dependency_wait();

    T* row = p.qkv + size_t(token) * p.stride + at;
    Eight low[ROUNDS] = {}, high[ROUNDS] = {};
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        const int head = first + r * AT_ONCE;
        if (head >= all) break;
        low[r] = load_eight(row + head * D);
        high[r] = load_eight(row + head * D + HALF);
    }
    float2 cosine[4], sine[4], low_norm[4], high_norm[4];
    load_eight_wide(cosine, rope + at);
    load_eight_wide(sine, rope + HALF + at);
    const float* loaded = nullptr;
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        const int head = first + r * AT_ONCE;
        const bool is_query = head < p.heads, turns = head < turning;
        if (__any_sync(0xffffffffu, turns)) {
            const float* norm = is_query ? p.query_norm : p.key_norm;
            float scale = 1.0f;
            if (p.query_norm) {
                float squares[4];
#pragma unroll
                for (int j = 0; j < 4; j++) squares[j] = squares_of(widen2<T>(low[r].pair[j]), widen2<T>(high[r].pair[j]));
                // In the order of `warp_sum` over lanes that have a pair of either half each.
#pragma unroll
                for (int lanes = LANES / 2; lanes > 0; lanes /= 2) {
#pragma unroll
                    for (int j = 0; j < 4; j++) squares[j] += __shfl_xor_sync(0xffffffffu, squares[j], lanes);
                }
                scale = rsqrtf(((squares[0] + squares[2]) + (squares[1] + squares[3])) / D + p.eps);
                if (norm != loaded && turns) {
                    load_eight_wide(low_norm, norm + at);
                    load_eight_wide(high_norm, norm + HALF + at);
                    loaded = norm;
                }
            }
            if (turns) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const TwoPairs pairs = {cosine[j], sine[j], low_norm[j], high_norm[j]};
                    pairs.template apply<T>(low[r].pair[j], high[r].pair[j], p.query_norm != nullptr, scale);
                }
            }
        }
        if (head >= all || (!is_query && slot == UINT32_MAX)) continue;
        T* to = row + head * D;
        if (!is_query) {
            const int kv_head = turns ? head - p.heads : head - turning;
            const size_t place = (size_t(slot / p.block_size) * p.kv_heads + kv_head) * 2 + (turns ? 0 : 1);
            to = p.cache + (place * p.block_size + slot % p.block_size) * D + at;
        }
        store_eight(to, low[r]);
        store_eight(to + HALF, high[r]);
    }
}

// Normalizes all query heads of a token together, and all its key heads, where they are. A thread block reads its numbers a second
// time from the cache. Grid [tokens, 2], block [32 * warps].
template <class T>
__device__ void whole_norm(const RopeAndCacheParams<T>& p) {
    launch_dependents();
    const bool is_query = blockIdx.y == 0;
    const int queries = p.heads * p.head_dim, width = is_query ? queries : p.kv_heads * p.head_dim;
    const float* weight = is_query ? p.query_norm : p.key_norm;
    T* x = p.qkv + size_t(blockIdx.x) * p.stride + (is_query ? 0 : queries);
    // What the mean is taken over: the heads of all ranks, in the order of one that has them all.
    const T* joined = is_query ? p.whole_queries : p.whole_keys;
    const int whole_width = !joined ? width : is_query ? p.whole_query_width : p.whole_key_width;
    const T* whole = joined ? joined + size_t(blockIdx.x) * whole_width : x;
    grid_dependency_wait();

    float squares = 0.0f;
    for (int i = threadIdx.x * 8; i < whole_width; i += blockDim.x * 8) {
        const Eight v = load_eight(whole + i);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float2 pair = widen2<T>(v.pair[j]);
            squares += pair.x * pair.x + pair.y * pair.y;
        }
    }
    const float scale = rsqrtf(block_sum(squares) / whole_width + p.eps);
    for (int i = threadIdx.x * 8; i < width; i += blockDim.x * 8) {
        Eight v = load_eight(x + i);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float2 pair = widen2<T>(v.pair[j]), w = *reinterpret_cast<const float2*>(weight + i + 2 * j);
            v.pair[j] = narrow2<T>(pair.x * scale * w.x, pair.y * scale * w.y);
        }
        store_eight(x + i, v);
    }
}

// Long heads have more than 256 numbers.
#define KERNELS(heads, dtype)                                                                                            \
    extern "C" __global__ void __launch_bounds__(1024)                                                                   \
        nvllm_k_rope_and_cache_h##heads##_##dtype(const __grid_constant__ RopeAndCacheParams<dtype> p) {                 \
        rope_and_cache<dtype, heads, Variants::NONE>(p);                                                                 \
    }                                                                                                                    \
    extern "C" __global__ void __launch_bounds__(1024)                                                                   \
        nvllm_k_rope_and_cache_variants_h##heads##_##dtype(const __grid_constant__ RopeAndCacheParams<dtype> p) {        \
        rope_and_cache<dtype, heads, Variants::ALL>(p);                                                                  \
    }                                                                                                                    \
    extern "C" __global__ void __launch_bounds__(256)                                                                    \
        nvllm_k_rope_and_cache_long_h##heads##_##dtype(const __grid_constant__ RopeAndCacheParams<dtype> p) {            \
        rope_and_cache<dtype, heads, Variants::ALL, 4>(p);                                                               \
    }
#define WIDE(dim, dtype)                                                                               \
    extern "C" __global__ void __launch_bounds__(64)                                                   \
        nvllm_k_rope_and_cache_wide_d##dim##_##dtype(const __grid_constant__ RopeAndCacheParams<dtype> p) { \
        rope_and_cache_wide<dtype, dim, 2>(p);                                                         \
    }
#define WHOLE_NORM(dtype)                                                                  \
    extern "C" __global__ void __launch_bounds__(1024)                                     \
        nvllm_k_whole_norm_##dtype(const __grid_constant__ RopeAndCacheParams<dtype> p) { \
        whole_norm<dtype>(p);                                                              \
    }

KERNELS(1, bf16)
KERNELS(1, f16)
KERNELS(4, bf16)
KERNELS(4, f16)
WIDE(64, bf16)
WIDE(64, f16)
WIDE(128, bf16)
WIDE(128, f16)
WHOLE_NORM(bf16)
WHOLE_NORM(f16)

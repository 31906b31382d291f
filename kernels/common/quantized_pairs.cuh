// Codes as pairs of 16-bit numbers, in less than one instruction per number.
//
// The bits of a code in those of 128 (bf16) or 1024 (f16) are the number `over + code`: it is neither scaled nor freed of its zero.
#pragma once

#include "quantized.cuh"

// A constant in a register: an instruction takes one immediate only.
template <uint32_t V>
__device__ inline uint32_t held() {
    uint32_t v;
    asm volatile("mov.b32 %0, %1;" : "=r"(v) : "n"(V));
    return v;
}
// A value that is not computed anew in a loop in order to save a register.
template <class V>
__device__ inline void keep(V& v) {
    if constexpr (sizeof(V) == 8) {
        asm volatile("" : "+l"(v));
    } else {
        asm volatile("" : "+r"(v));
    }
}
// a & mask | c
__device__ inline uint32_t and_or(uint32_t a, uint32_t mask, uint32_t c) {
    uint32_t v;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(v) : "r"(a), "r"(mask), "r"(c));
    return v;
}
// a & mask ^ c
__device__ inline uint32_t and_xor(uint32_t a, uint32_t mask, uint32_t c) {
    uint32_t v;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(v) : "r"(a), "r"(mask), "r"(c));
    return v;
}
// Two numbers each: a * b + c, a * b, a + b.
template <class T>
__device__ inline uint32_t fma_pair(uint32_t a, uint32_t b, uint32_t c);
template <>
__device__ inline uint32_t fma_pair<bf16>(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t v;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(c));
    return v;
}
template <>
__device__ inline uint32_t fma_pair<f16>(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t v;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(c));
    return v;
}
template <class T>
__device__ inline uint32_t mul_pair(uint32_t a, uint32_t b) {
    return fma_pair<T>(a, b, 0x80008000u);
}
template <class T>
__device__ inline uint32_t add_pair(uint32_t a, uint32_t b);
template <>
__device__ inline uint32_t add_pair<bf16>(uint32_t a, uint32_t b) {
    return fma_pair<bf16>(a, 0x3f803f80u, b);
}
template <>
__device__ inline uint32_t add_pair<f16>(uint32_t a, uint32_t b) {
    return fma_pair<f16>(a, 0x3c003c00u, b);
}

// Two equal numbers.
template <class T>
__device__ inline uint32_t twice(float v) {
    return narrow2<T>(v, v);
}
// The pairs (0, 1), (2, 3), (4, 5), (6, 7) as (0, 2), (1, 3), (4, 6), (5, 7), and back.
__device__ inline Eight crossed(const Eight& v) {
    return Eight{{__byte_perm(v.pair[0], v.pair[1], 0x5410), __byte_perm(v.pair[0], v.pair[1], 0x7632), __byte_perm(v.pair[2], v.pair[3], 0x5410),
                  __byte_perm(v.pair[2], v.pair[3], 0x7632)}};
}

template <class T>
constexpr bool IS_BF16 = false;
template <>
constexpr bool IS_BF16<bf16> = true;
// Two numbers 128 or 1024: those of codes that are or-ed to their bits.
template <class T>
constexpr uint32_t OVER_BITS = IS_BF16<T> ? 0x43004300u : 0x64006400u;
template <class T>
constexpr float OVER = IS_BF16<T> ? 128.0f : 1024.0f;

// Each kind of codes: the eight numbers of a lane's 32 k as four pairs, each `over + code`, times `FACTOR`. Pairs are (0, 1), (2, 3) and so on, or
// (0, 2), (1, 3), (4, 6), (5, 7) if `CROSSED`. `ZERO` is the code of the number 0 where a header has none.
struct FourScaled : FourBits {
    static constexpr float ZERO = 8;
    static constexpr bool CROSSED = false;
    template <class T>
    static constexpr float over = OVER<T>;
    template <class T>
    static constexpr float factor = 1.0f;
    template <class T>
    struct Held {
        uint32_t over_bits = held<OVER_BITS<T>>();
    };
    template <class T>
    static __device__ inline void pairs(const Held<T>& c, const Lane& l, int half, uint32_t (&w)[4]) {
        const uint32_t word = half == 0 ? l.x : l.y;
#pragma unroll
        for (int i = 0; i < 4; i++) w[i] = and_or(word >> (4 * i), 0x000f000fu, c.over_bits);
    }
};

struct FiveScaled : FiveBits {
    static constexpr float ZERO = 16;
    static constexpr bool CROSSED = false;
    template <class T>
    static constexpr float over = OVER<T>;
    template <class T>
    static constexpr float factor = 1.0f;
    template <class T>
    using Held = FourScaled::Held<T>;
    template <class T>
    static __device__ inline void pairs(const Held<T>& c, const Lane& l, int half, uint32_t (&w)[4]) {
        const uint32_t word = half == 0 ? l.low.x : l.low.y, high = half == 0 ? l.high << 4 : l.high;
#pragma unroll
        for (int i = 0; i < 4; i++) w[i] = and_or(high >> i, 0x00100010u, and_or(word >> (4 * i), 0x000f000fu, c.over_bits));
    }
};

struct SixScaled : SixBits {
    static constexpr float ZERO = 32;
    static constexpr bool CROSSED = false;
    template <class T>
    static constexpr float over = OVER<T>;
    template <class T>
    static constexpr float factor = 1.0f;
    template <class T>
    using Held = FourScaled::Held<T>;
    template <class T>
    static __device__ inline void pairs(const Held<T>& c, const Lane& l, int half, uint32_t (&w)[4]) {
        const uint32_t word = half == 0 ? l.low.x : l.low.y, high = half == 0 ? l.high << 4 : l.high >> 4;
#pragma unroll
        for (int i = 0; i < 4; i++) w[i] = and_or(high >> (2 * i), 0x00300030u, and_or(word >> (4 * i), 0x000f000fu, c.over_bits));
    }
};

// In bf16 a code is 128 + its low seven bits, and -256 or, if the eighth bit is set, -128: exactly code - 128.
struct EightScaled : EightBits {
    static constexpr float ZERO = 128;
    static constexpr bool CROSSED = true;
    template <class T>
    static constexpr float over = IS_BF16<T> ? -128.0f : OVER<T>;
    template <class T>
    static constexpr float factor = 1.0f;
    template <class T>
    struct Held {
        uint32_t over_bits = held<OVER_BITS<T>>(), below = held<0xc380c380u>();
    };
    template <class T>
    static __device__ inline uint32_t pair(const Held<T>& c, uint32_t word) {
        if constexpr (!IS_BF16<T>) return and_or(word, 0x00ff00ffu, c.over_bits);
        return fma_pair<bf16>(and_or(word, 0x007f007fu, c.over_bits), 0x3f803f80u, and_xor(word, 0x00800080u, c.below));
    }
    template <class T>
    static __device__ inline void pairs(const Held<T>& c, const Lane& l, int half, uint32_t (&w)[4]) {
        const uint32_t words[2] = {half == 0 ? l.x : l.z, half == 0 ? l.y : l.w};
#pragma unroll
        for (int i = 0; i < 4; i++) w[i] = pair<T>(c, words[i / 2] >> (i % 2 * 8));
    }
};

// Exponent and mantissa are those of an f16 number that is 2^-8 times as large, or of a bf16 number that is 2^-120 times as large and is multiplied.
struct Float8Scaled : Float8 {
    static constexpr float ZERO = 0;
    static constexpr bool CROSSED = true;
    template <class T>
    static constexpr float over = 0.0f;
    template <class T>
    static constexpr float factor = IS_BF16<T> ? 1.0f : 1.0f / 256;
    template <class T>
    struct Held {};
    template <class T>
    static __device__ inline void pairs(const Held<T>&, const Lane& l, int half, uint32_t (&w)[4]) {
        const uint32_t words[2] = {half == 0 ? l.x : l.z, half == 0 ? l.y : l.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t high = i % 2 ? words[i / 2] : words[i / 2] << 8, sign = high & 0x80008000u;
            if constexpr (IS_BF16<T>) {
                w[i] = fma_pair<bf16>(and_or(high >> 4, 0x07f007f0u, sign), 0x7b807b80u, 0x80008000u);
            } else {
                w[i] = and_or(high >> 1, 0x3f803f80u, sign);
            }
        }
    }
};

// Weights in T, as `(code - zero) * scale` or `(code - zero) * scale + offset`: `code - zero` is exact, scale and offset are rounded to T, and so is
// the result. What the lanes of a column need to know of a unit for that.
template <class T, class Codes, int HEADER, int HEADER_BYTES>
struct WeightsOfColumn {
    static constexpr bool HAS_OFFSET = HEADER == K_BLOCKS || HEADER == HALVES_MIN;
    static constexpr bool HAS_ZERO = HEADER == WORDS && Codes::ZERO != 0;
    static constexpr float OVER_ZERO = Codes::template over<T> + Codes::ZERO;
    static constexpr bool IS_CENTRED = !HAS_ZERO && OVER_ZERO == 0;

    // Two equal numbers each.
    uint32_t centre;              // is added to `over + code`
    uint32_t scale[2], offset[2];  // of the first and second 32 numbers

    __device__ inline void load(const uint8_t* header, int lane, [[maybe_unused]] bool is_bf16) {
        constexpr float FACTOR = 1.0f / Codes::template factor<T>;
        const uint32_t first = *reinterpret_cast<const uint32_t*>(header);
        const uint32_t second = HEADER_BYTES == 8 ? *reinterpret_cast<const uint32_t*>(header + 4) : 0;
        if (!HAS_ZERO) centre = twice<T>(-OVER_ZERO);
        if constexpr (HEADER == HALVES) {
            if constexpr (IS_BF16<T>) {
                const float2 d = widen2<f16>(first);
                scale[0] = twice<T>(d.x), scale[1] = twice<T>(d.y);
            } else {
                scale[0] = __byte_perm(first, 0, 0x1010), scale[1] = __byte_perm(first, 0, 0x3232);
            }
        } else if constexpr (HEADER == HALVES_MIN) {
            const float2 a = widen2<f16>(first), b = widen2<f16>(second);
            scale[0] = twice<T>(a.x), scale[1] = twice<T>(b.x);
            offset[0] = twice<T>(fmaf(a.x, Codes::ZERO, a.y)), offset[1] = twice<T>(fmaf(b.x, Codes::ZERO, b.y));
        } else if constexpr (HEADER == K_BLOCKS) {
            const float2 d = widen2<f16>(first), s = widen2<f16>(__byte_perm(second, 0, 0x4240)), e = widen2<f16>(__byte_perm(second, 0, 0x4341));
            const float d_scaled = d.x * TWO_TO_24, e_scaled = d.y * -TWO_TO_24, s0 = d_scaled * s.x, s1 = d_scaled * s.y;
            scale[0] = twice<T>(s0), scale[1] = twice<T>(s1);
            offset[0] = twice<T>(fmaf(s0, Codes::ZERO, e_scaled * e.x)), offset[1] = twice<T>(fmaf(s1, Codes::ZERO, e_scaled * e.y));
        } else if constexpr (HEADER == SIXTEENTHS) {
            const float d = half_at(first, 0);
            // A byte as a signed number: 2^23 + 128 + it.
            const uint32_t flipped = second ^ 0x80808080u, at = lane >> 1 & 1;
            scale[0] = twice<T>(d * (__uint_as_float(__byte_perm(flipped, 0x4b000000u, 0x7650 + at)) - 8388736.0f));
            scale[1] = twice<T>(d * (__uint_as_float(__byte_perm(flipped, 0x4b000000u, 0x7652 + at)) - 8388736.0f));
        } else if constexpr (HEADER == WORDS) {
            scale[0] = scale[1] = twice<T>(scale_of_word(first, is_bf16) * FACTOR);
            if constexpr (HAS_ZERO && OVER_ZERO == 0) {
                centre = twice<T>(Codes::ZERO - static_cast<float>(first >> 16 & 255));
            } else if constexpr (HAS_ZERO) {
                // -(128 + zero) or -(1024 + zero)
                centre = __byte_perm(first, 0, 0x4242) | OVER_BITS<T> | 0x80008000u;
            }
        } else {
            scale[0] = twice<T>(__uint_as_float(first) * FACTOR), scale[1] = twice<T>(__uint_as_float(second) * FACTOR);
        }
    }

    // The weights of a pair `over + code`.
    __device__ inline uint32_t weights(uint32_t pair, int half) const {
        const uint32_t codes = IS_CENTRED ? pair : add_pair<T>(pair, centre);
        return HAS_OFFSET ? fma_pair<T>(codes, scale[half], offset[half]) : mul_pair<T>(codes, scale[half]);
    }
};

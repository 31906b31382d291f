// Codes of weights as the device holds them, and the numbers that they stand for.
//
// A matrix is a sequence of units of 8 columns by 64 k: first along k, then from eight columns to the next. A unit holds the codes of all its
// numbers, then a header for each column. A warp decodes a unit: lane l has column l / 4, and of each 32 k the eight numbers from
// 8 (l % 4) on. These are the fragments that `gemv_stream` takes of plain weights.
//
// A number is `scale * code - minimum` with f32 scales and minimums, rounded once in f32 and once to T. Where a coding says
// `(code - zero) * scale`, `zero * scale` is exact in f32, so that this is the same number. src/compute/cuda/matrix.rs writes the units and
// sees to that.
//
// Codes come to f32 by way of f16: the bits of a code, as they are, are the subnormal number `code * 2^-24`, which is widened exactly. The
// scales of a header are multiplied by 2^24 for that.
#pragma once

#include "numbers.cuh"

#include <type_traits>

// Layouts of a column's header.
enum HeaderKind {
    HALVES = 0,        // f16 scale of each 32 numbers; the zero of all is QuantizedWeights::zero
    HALVES_MIN = 1,    // f16 scale, f16 m of each 32; m is added
    K_BLOCKS = 2,      // f16 d, f16 e, then bytes s, m of each 32: d s, e m is subtracted
    SIGNED = 3,        // f16 d, then signed bytes s of each 32: d s; QuantizedWeights::zero
    SIXTEENTHS = 4,    // f16 d, two unused bytes, then signed bytes s of each 16: d s; the zero is 32
    WORDS = 5,         // f16 or bf16 scale, byte zero, unused byte: of the 64 numbers, or of each 32 if the header has 8 bytes
    FLOATS = 6,        // f32 scale of each 32; QuantizedWeights::zero
    BF16S = 7,         // bf16 scale of each 32, a power of two of at most 1, for codes of E2M1
};

// Kinds of codes, as `Kind` of src/compute/cuda/gemm/quantized/weights.rs numbers them.
enum CodeKind { FOUR = 0, TABLE = 1, FIVE = 2, SIX = 3, EIGHT = 4, FLOAT8 = 5 };

// The units from an octet of columns on, and what is the same for all of them.
struct QuantizedWeights {
    const uint8_t* units;
    int header;        // HeaderKind
    int header_bytes;  // of a column: 4 or 8
    int units_of_row;  // k / 64, rounded up
    float zero;
    uint32_t table[4];  // bytes that four-bit codes stand for, of the coding that has a table
    int is_bf16;        // the type of a scale in WORDS
    int kind;           // CodeKind; this and what follows is read where the kind is an argument
    int code_bytes;     // of a unit
};

// 1 / 2^-24
constexpr float TWO_TO_24 = 16777216.0f;

__device__ inline float half_at(uint32_t word, int index) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(word >> (16 * index))));
}

// The scale in the lower half of a word.
__device__ inline float scale_of_word(uint32_t word, bool is_bf16) {
    return is_bf16 ? __uint_as_float(word << 16) : half_at(word, 0);
}

// Of a column's first and second 32 numbers: the scale times 2^24, the minimum with its sign changed. Of SIXTEENTHS the scales of four times 16. `second` is the
// second word of headers of 8 bytes, else the first.
template <int HEADER>
__device__ inline float4 scales_of_words(const QuantizedWeights& w, uint32_t first, uint32_t second) {
    const float zero = w.zero;
    const auto pair = [](float scale0, float minimum0, float scale1, float minimum1) {
        return make_float4(scale0 * TWO_TO_24, -minimum0, scale1 * TWO_TO_24, -minimum1);
    };
    const auto unsigned_byte = [](uint32_t word, int index) { return static_cast<float>(word >> (8 * index) & 255); };
    const auto signed_byte = [](uint32_t word, int index) { return static_cast<float>(static_cast<int8_t>(word >> (8 * index))); };
    if constexpr (HEADER == HALVES) {
        const float d0 = half_at(first, 0), d1 = half_at(first, 1);
        return pair(d0, zero * d0, d1, zero * d1);
    } else if constexpr (HEADER == HALVES_MIN) {
        return pair(half_at(first, 0), -half_at(first, 1), half_at(second, 0), -half_at(second, 1));
    } else if constexpr (HEADER == K_BLOCKS) {
        const float d = half_at(first, 0), e = half_at(first, 1);
        return pair(d * unsigned_byte(second, 0), e * unsigned_byte(second, 1), d * unsigned_byte(second, 2), e * unsigned_byte(second, 3));
    } else if constexpr (HEADER == SIGNED) {
        const float d = half_at(first, 0), s0 = d * signed_byte(first, 2), s1 = d * signed_byte(first, 3);
        return pair(s0, zero * s0, s1, zero * s1);
    } else if constexpr (HEADER == SIXTEENTHS) {
        const float d = half_at(first, 0) * TWO_TO_24;
        return make_float4(d * signed_byte(second, 0), d * signed_byte(second, 1), d * signed_byte(second, 2), d * signed_byte(second, 3));
    } else if constexpr (HEADER == WORDS) {
        const float s0 = scale_of_word(first, w.is_bf16), s1 = scale_of_word(second, w.is_bf16);
        return pair(s0, unsigned_byte(first, 2) * s0, s1, unsigned_byte(second, 2) * s1);
    } else if constexpr (HEADER == BF16S) {
        return pair(__uint_as_float(first << 16), 0.0f, __uint_as_float(first & 0xffff0000u), 0.0f);
    } else {
        const float s0 = __uint_as_float(first), s1 = __uint_as_float(second);
        return pair(s0, zero * s0, s1, zero * s1);
    }
}

// The same of a header in memory, whose kind is known at run time.
__device__ inline float4 scales_of_column(const QuantizedWeights& w, const uint8_t* header) {
    const uint32_t first = *reinterpret_cast<const uint32_t*>(header);
    const uint32_t second = w.header_bytes == 8 ? *reinterpret_cast<const uint32_t*>(header + 4) : first;
    switch (w.header) {
        case HALVES: return scales_of_words<HALVES>(w, first, second);
        case HALVES_MIN: return scales_of_words<HALVES_MIN>(w, first, second);
        case K_BLOCKS: return scales_of_words<K_BLOCKS>(w, first, second);
        case SIGNED: return scales_of_words<SIGNED>(w, first, second);
        case SIXTEENTHS: return scales_of_words<SIXTEENTHS>(w, first, second);
        case WORDS: return scales_of_words<WORDS>(w, first, second);
        case BF16S: return scales_of_words<BF16S>(w, first, second);
        default: return scales_of_words<FLOATS>(w, first, second);
    }
}

// Two f16 numbers of `codes`, each `scale * number + offset`.
template <class T>
__device__ inline uint32_t scaled_pair(uint32_t codes, float scale, float offset) {
    const float2 v = widen2<f16>(codes);
    return narrow2<T>(fmaf(scale, v.x, offset), fmaf(scale, v.y, offset));
}

// Eight bytes as numbers.
template <class T>
__device__ inline Eight scaled_bytes(uint32_t first, uint32_t second, float scale, float offset) {
    return Eight{{scaled_pair<T>(__byte_perm(first, 0, 0x4140), scale, offset), scaled_pair<T>(__byte_perm(first, 0, 0x4342), scale, offset),
                  scaled_pair<T>(__byte_perm(second, 0, 0x4140), scale, offset), scaled_pair<T>(__byte_perm(second, 0, 0x4342), scale, offset)}};
}

__device__ inline float scale_of(const float4& s, int half) {
    return half == 0 ? s.x : s.z;
}
__device__ inline float offset_of(const float4& s, int half) {
    return half == 0 ? s.y : s.w;
}

// Each kind of codes: `BYTES` of a unit; `Lane`, what a lane holds of it; and its numbers of the first (`half` 0) or second 32 k.

// Unsigned codes of 4 bits. In a lane's word of eight numbers, nibbles 0 to 3 are the even numbers, 4 to 7 the odd ones.
struct FourBits {
    static constexpr int BYTES = 256;
    using Lane = uint2;
    static __device__ inline Lane load(const uint8_t* unit, int lane) {
        return reinterpret_cast<const uint2*>(unit)[lane];
    }
    template <class T>
    static __device__ inline Eight numbers(const QuantizedWeights&, const Lane& l, const float4& s, int, int half) {
        const uint32_t word = half == 0 ? l.x : l.y, upper = word >> 8;
        const float scale = scale_of(s, half), scale_16 = scale * 0.0625f, offset = offset_of(s, half);
        return Eight{{scaled_pair<T>(word & 0x000f000fu, scale, offset), scaled_pair<T>(word & 0x00f000f0u, scale_16, offset),
                      scaled_pair<T>(upper & 0x000f000fu, scale, offset), scaled_pair<T>(upper & 0x00f000f0u, scale_16, offset)}};
    }
};

// Numbers of E2M1 times `scale`, a power of two of at most 2; nibbles in the order of FourBits. The bits of a code are put where a number of T
// has its sign, the end of its exponent and the begin of its mantissa. That is the number times a power of two, and the product with another one is exact.
template <class T>
__device__ inline Eight e2m1_numbers(uint32_t word, float scale) {
    Eight eight;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t codes = word >> 4 * i;
        if constexpr (std::is_same_v<T, bf16>) {
            const uint32_t bits = (codes << 12 & 0x80008000u) | (codes << 6 & 0x01c001c0u);
            const __nv_bfloat162 numbers = __hmul2(reinterpret_cast<const __nv_bfloat162&>(bits), __float2bfloat162_rn(scale * 0x1p126f));
            eight.pair[i] = reinterpret_cast<const uint32_t&>(numbers);
        } else {
            eight.pair[i] = scaled_pair<T>((codes << 12 & 0x80008000u) | (codes << 9 & 0x0e000e00u), scale * 0x1p14f, 0.0f);
        }
    }
    return eight;
}

// Codes of 4 bits that name one of 16 bytes; the eight of a word in order, or with BF16S, whose table is that of E2M1, as those of FourBits.
struct TableBits {
    static constexpr int BYTES = 256;
    using Lane = uint2;
    static __device__ inline Lane load(const uint8_t* unit, int lane) {
        return reinterpret_cast<const uint2*>(unit)[lane];
    }
    template <class T>
    static __device__ inline Eight numbers(const QuantizedWeights& w, const Lane& l, const float4& s, int, int half) {
        const uint32_t word = half == 0 ? l.x : l.y;
        // Twice the numbers are the bytes that the scale is for.
        if (w.header == BF16S) return e2m1_numbers<T>(word, scale_of(s, half) * (2.0f / TWO_TO_24));
        // The low three bits choose among eight bytes; the fourth chooses between the two results.
        const uint32_t low_bits = word & 0x77777777u, choice = 0x32103210u | (word & 0x88888888u) >> 1;
        const auto four = [&](int shift) {
            const uint32_t low = __byte_perm(w.table[0], w.table[1], low_bits >> shift);
            const uint32_t high = __byte_perm(w.table[2], w.table[3], low_bits >> shift);
            return __byte_perm(low, high, choice >> shift);
        };
        return scaled_bytes<T>(four(0), four(16), scale_of(s, half), offset_of(s, half));
    }
};

// Unsigned codes of 5 bits: four as FourBits, and the fifth of a lane's pair p as bits p and 8 + p of its 16 bits.
struct FiveBits {
    static constexpr int BYTES = 256 + 64;
    struct Lane {
        uint2 low;
        uint32_t high;
    };
    static __device__ inline Lane load(const uint8_t* unit, int lane) {
        return Lane{FourBits::load(unit, lane), load_high(unit, lane)};
    }
    static __device__ inline uint32_t load_high(const uint8_t* unit, int lane) {
        return __byte_perm(reinterpret_cast<const uint16_t*>(unit + 256)[lane], 0, 0x4140);
    }
    template <class T>
    static __device__ inline Eight numbers(const QuantizedWeights&, const Lane& l, const float4& s, int, int half) {
        const uint32_t word = half == 0 ? l.low.x : l.low.y, upper = word >> 8, high = half == 0 ? l.high << 4 : l.high;
        const float scale = scale_of(s, half), scale_16 = scale * 0.0625f, offset = offset_of(s, half);
        return Eight{{scaled_pair<T>(word & 0x000f000fu | high & 0x00100010u, scale, offset),
                      scaled_pair<T>(word & 0x00f000f0u | high << 3 & 0x01000100u, scale_16, offset),
                      scaled_pair<T>(upper & 0x000f000fu | high >> 2 & 0x00100010u, scale, offset),
                      scaled_pair<T>(upper & 0x00f000f0u | high << 1 & 0x01000100u, scale_16, offset)}};
    }
};

// Unsigned codes of 6 bits with a scale for each 16: four bits as FourBits, and two of a lane's pair p as bits 2 p and 16 + 2 p of its 32.
struct SixBits {
    static constexpr int BYTES = 256 + 128;
    struct Lane {
        uint2 low;
        uint32_t high;
    };
    static __device__ inline Lane load(const uint8_t* unit, int lane) {
        return Lane{FourBits::load(unit, lane), load_high(unit, lane)};
    }
    static __device__ inline uint32_t load_high(const uint8_t* unit, int lane) {
        return reinterpret_cast<const uint32_t*>(unit + 256)[lane];
    }
    template <class T>
    static __device__ inline Eight numbers(const QuantizedWeights&, const Lane& l, const float4& s, int lane, int half) {
        const uint32_t word = half == 0 ? l.low.x : l.low.y, upper = word >> 8, high = half == 0 ? l.high << 4 : l.high >> 4;
        const float scale = lane & 2 ? (half == 0 ? s.y : s.w) : (half == 0 ? s.x : s.z);
        const float scale_16 = scale * 0.0625f, offset = scale * (-32.0f / TWO_TO_24);
        return Eight{{scaled_pair<T>(word & 0x000f000fu | high & 0x00300030u, scale, offset),
                      scaled_pair<T>(word & 0x00f000f0u | high << 2 & 0x03000300u, scale_16, offset),
                      scaled_pair<T>(upper & 0x000f000fu | high >> 4 & 0x00300030u, scale, offset),
                      scaled_pair<T>(upper & 0x00f000f0u | high >> 2 & 0x03000300u, scale_16, offset)}};
    }
};

// Unsigned codes of 8 bits.
struct EightBits {
    static constexpr int BYTES = 512;
    using Lane = uint4;
    static __device__ inline Lane load(const uint8_t* unit, int lane) {
        return reinterpret_cast<const uint4*>(unit)[lane];
    }
    template <class T>
    static __device__ inline Eight numbers(const QuantizedWeights&, const Lane& l, const float4& s, int, int half) {
        return scaled_bytes<T>(half == 0 ? l.x : l.z, half == 0 ? l.y : l.w, scale_of(s, half), offset_of(s, half));
    }
};

// E4M3. Its exponent and mantissa are those of an f16 number that is 2^-8 times as large.
struct Float8 {
    static constexpr int BYTES = 512;
    using Lane = uint4;
    static __device__ inline Lane load(const uint8_t* unit, int lane) {
        return EightBits::load(unit, lane);
    }
    template <class T>
    static __device__ inline Eight numbers(const QuantizedWeights&, const Lane& l, const float4& s, int, int half) {
        const float scale = scale_of(s, half) * (256.0f / TWO_TO_24), offset = offset_of(s, half);
        const uint32_t words[2] = {half == 0 ? l.x : l.z, half == 0 ? l.y : l.w};
        Eight eight;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t high = __byte_perm(words[i / 2], 0, i % 2 ? 0x3424 : 0x1404);
            eight.pair[i] = scaled_pair<T>(high & 0x80008000u | high >> 1 & 0x3f803f80u, scale, offset);
        }
        return eight;
    }
};

// Codes whose kind is an argument, in kernels that wait for memory or the tensor cores.
struct AnyBits {
    // Codes of 8 bits, or the lower four bits of all and the others.
    using Lane = uint4;
    static __device__ inline Lane load(const QuantizedWeights& w, const uint8_t* unit, int lane) {
        if (w.kind >= EIGHT) return EightBits::load(unit, lane);
        const uint2 low = FourBits::load(unit, lane);
        const uint32_t high = w.kind == FIVE ? FiveBits::load_high(unit, lane) : w.kind == SIX ? SixBits::load_high(unit, lane) : 0;
        return make_uint4(low.x, low.y, high, 0);
    }
    // The numbers of both 32 k.
    template <class T>
    static __device__ inline void numbers(const QuantizedWeights& w, const Lane& l, const float4& s, int lane, Eight (&to)[2]) {
        const auto both = [&](auto codes, const auto& of_lane) {
#pragma unroll
            for (int half = 0; half < 2; half++) to[half] = decltype(codes)::template numbers<T>(w, of_lane, s, lane, half);
        };
        const uint2 low = make_uint2(l.x, l.y);
        switch (w.kind) {
            case FOUR: return both(FourBits{}, low);
            case TABLE: return both(TableBits{}, low);
            case FIVE: return both(FiveBits{}, FiveBits::Lane{low, l.z});
            case SIX: return both(SixBits{}, SixBits::Lane{low, l.z});
            case EIGHT: return both(EightBits{}, l);
            default: return both(Float8{}, l);
        }
    }
};

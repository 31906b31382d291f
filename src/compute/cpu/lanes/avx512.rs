//! AVX-512 F, BW, DQ and VL: sixteen numbers in a register. AVX512-VNNI and AVX512-BF16 besides with `VNNI`.
//!
//! An [`Avx512`] exists only inside [`run`], whose caller promised the instructions.
#![allow(unsafe_code)]

use super::avx2::{greatest, sum4};
use super::simd::{NUMBERS, Pairwise, Simd};
use super::{Kernel, Lanes, operations};
use half::{bf16, f16};
use std::arch::x86_64::*;

/// # Safety
///
/// The machine must have AVX2, FMA, F16C, and AVX-512 F, BW, DQ and VL.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub unsafe fn run<K: Kernel>(kernel: K) {
    kernel.run(Avx512::<false>(()));
}

#[derive(Clone, Copy)]
pub struct Avx512<const VNNI: bool>(());

type V = __m512;
type U = __m512i;

impl<const VNNI: bool> Lanes for Avx512<VNNI> {
    type V = V;
    type U = U;
    const N: usize = 16;
    const REGISTERS: usize = 32;
    // 24 of 32 registers accumulate.
    const QUERIES: usize = 6;

    #[inline(always)]
    unsafe fn token() -> Self {
        Avx512(())
    }

    operations! { unsafe fn with self:
        load(from: *const f32) -> V = _mm512_loadu_ps(from);
        load_f16(from: *const f16) -> V = _mm512_cvtph_ps(_mm256_loadu_si256(from.cast()));
        load_bf16(from: *const bf16) -> V =
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()))));
        load_two_bf16(from: *const bf16) -> [V; 2] = {
            let pairs = _mm512_loadu_si512(from.cast());
            let odd = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000_u32.cast_signed()));
            [_mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)), _mm512_castsi512_ps(odd)]
        };
        load_i8(from: *const i8) -> V = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast())));
        load_first(from: *const f32, len: usize) -> V = _mm512_maskz_loadu_ps((1 << len) - 1, from);
        store(to: *mut f32, v: V) = _mm512_storeu_ps(to, v);
        store_first(to: *mut f32, v: V, len: usize) = _mm512_mask_storeu_ps(to, (1 << len) - 1, v);
        store_u32(to: *mut u32, v: U) = _mm512_storeu_si512(to.cast(), v);
    }

    #[inline(always)]
    fn prefetch<T>(self, from: *const T) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }

    operations! { fn:
        splat(value: f32) -> V = _mm512_set1_ps(value);
        add(a: V, b: V) -> V = _mm512_add_ps(a, b);
        sub(a: V, b: V) -> V = _mm512_sub_ps(a, b);
        mul(a: V, b: V) -> V = _mm512_mul_ps(a, b);
        div(a: V, b: V) -> V = _mm512_div_ps(a, b);
        fma(a: V, b: V, c: V) -> V = _mm512_fmadd_ps(a, b, c);
        max(a: V, b: V) -> V = _mm512_max_ps(a, b);
        select_less(x: V, bound: V, then: V, otherwise: V) -> V =
            _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, bound), otherwise, then);
        pow2(n: V) -> V = _mm512_castsi512_ps(_mm512_slli_epi32::<23>(
            _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)),
        ));
        splat_u32(value: u32) -> U = _mm512_set1_epi32(value.cast_signed());
        count_from(first: u32) -> U = _mm512_add_epi32(
            _mm512_set1_epi32(first.cast_signed()),
            _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
        );
        add_u32(a: U, b: U) -> U = _mm512_add_epi32(a, b);
        xor(a: U, b: U) -> U = _mm512_xor_si512(a, b);
        and(a: U, b: U) -> U = _mm512_and_si512(a, b);
        shift_right(a: U, bits: u32) -> U = _mm512_srl_epi32(a, _mm_cvtsi32_si128(bits.cast_signed()));
        mul_wide(a: U, b: U) -> [U; 2] = {
            let even = _mm512_mul_epu32(a, b);
            let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(a), _mm512_srli_epi64::<32>(b));
            let high = _mm512_mask_blend_epi32(0b1010_1010_1010_1010, _mm512_srli_epi64::<32>(even), odd);
            let low = _mm512_mask_blend_epi32(0b1010_1010_1010_1010, even, _mm512_slli_epi64::<32>(odd));
            [high, low]
        };
        to_bits(v: V) -> U = _mm512_castps_si512(v);
        with_bits(v: U) -> V = _mm512_castsi512_ps(v);
        to_f32(v: U) -> V = _mm512_cvtepi32_ps(v);
        truncate(v: V) -> U = _mm512_cvttps_epi32(v);
        sum(v: V) -> f32 = sum4([fold(v); 4])[0];
        sum4(v: [V; 4]) -> [f32; 4] = sum4([fold(v[0]), fold(v[1]), fold(v[2]), fold(v[3])]);
        sum8(v: [V; 8]) -> [f32; 8] = sum8(v);
        greatest(v: V) -> f32 = {
            let eight = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
            greatest(_mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight)))
        };
    }
}

/// Lanes `i` and `i + 8` added.
#[inline(always)]
fn fold(v: __m512) -> __m256 {
    // SAFETY: called with these instructions.
    unsafe { _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v)) }
}

/// The sums of `sum4(fold)`, with the same additions, two vectors in each register.
#[inline(always)]
fn sum8(v: [__m512; 8]) -> [f32; 8] {
    // SAFETY: called with these instructions; an `__m256` is eight numbers.
    unsafe {
        // Lanes `i` and `i + 8`: of `v[i]` in the lower half, of `v[i + 4]` in the upper one.
        let mut folded = [v[0]; 4];
        for i in 0..4 {
            let low = _mm512_shuffle_f32x4::<0b01_00_01_00>(v[i], v[i + 4]);
            folded[i] = _mm512_add_ps(low, _mm512_shuffle_f32x4::<0b11_10_11_10>(v[i], v[i + 4]));
        }
        let quads = pairwise(pairwise(folded[0], folded[1]), pairwise(folded[2], folded[3]));
        let even = _mm512_castps512_ps256(_mm512_shuffle_f32x4::<0b10_00>(quads, quads));
        let odd = _mm512_castps512_ps256(_mm512_shuffle_f32x4::<0b11_01>(quads, quads));
        std::mem::transmute::<__m256, [f32; 8]>(_mm256_add_ps(even, odd))
    }
}

/// In each 128 bits the sums of two neighbours each, those of `a` first.
#[inline(always)]
fn pairwise(a: __m512, b: __m512) -> __m512 {
    // SAFETY: called with these instructions.
    unsafe {
        let even = _mm512_shuffle_ps::<0b10_00_10_00>(a, b);
        _mm512_add_ps(even, _mm512_shuffle_ps::<0b11_01_11_01>(a, b))
    }
}

impl<const VNNI: bool> Simd for Avx512<VNNI> {
    type Ints = U;
    type Floats = V;

    operations! { unsafe fn:
        and(a: U, b: U) -> U = _mm512_and_si512(a, b);
        or(a: U, b: U) -> U = _mm512_or_si512(a, b);
        xor(a: U, b: U) -> U = _mm512_xor_si512(a, b);
        add_i32(a: U, b: U) -> U = _mm512_add_epi32(a, b);
        sub_i32(a: U, b: U) -> U = _mm512_sub_epi32(a, b);
        shl_i32(v: U, bits: i32) -> U = _mm512_sllv_epi32(v, _mm512_set1_epi32(bits));
        shr_u32(v: U, bits: i32) -> U = _mm512_srlv_epi32(v, _mm512_set1_epi32(bits));
        shr_i32(v: U, bits: i32) -> U = _mm512_srav_epi32(v, _mm512_set1_epi32(bits));
        low_u32(a: U, b: U) -> U = _mm512_unpacklo_epi32(a, b);
        high_u32(a: U, b: U) -> U = _mm512_unpackhi_epi32(a, b);
        low_u64(a: U, b: U) -> U = _mm512_unpacklo_epi64(a, b);
        high_u64(a: U, b: U) -> U = _mm512_unpackhi_epi64(a, b);
        zero() -> U = _mm512_setzero_si512();
        every_u8(byte: u8) -> U = _mm512_set1_epi8(byte.cast_signed());
        every_i32(number: i32) -> U = _mm512_set1_epi32(number);
        every(number: f32) -> V = _mm512_set1_ps(number);
        to_floats(v: U) -> V = _mm512_cvtepi32_ps(v);
        from_bits(v: U) -> V = _mm512_castsi512_ps(v);
        mul(a: V, b: V) -> V = _mm512_mul_ps(a, b);
        mul_add(a: V, b: V, c: V) -> V = _mm512_fmadd_ps(a, b, c);
        mul_sub_from(a: V, b: V, c: V) -> V = _mm512_fnmadd_ps(a, b, c);
        look_up(indexes: U, table: &[u8; 16]) -> U =
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), indexes);
        load(from: *const u8) -> U = _mm512_loadu_si512(from.cast());
        two(columns: [*const u8; 2]) -> U = _mm512_inserti64x4::<1>(
            _mm512_castsi256_si512(_mm256_loadu_si256(columns[0].cast())),
            _mm256_loadu_si256(columns[1].cast()),
        );
        two_of_nibbles(columns: [*const u8; 2]) -> U = {
            /// Four words that are shifted by four.
            const HIGH: i64 = 0x0004_0004_0004_0004;
            let both = _mm512_broadcast_i32x4(_mm_loadu_si128(columns[0].cast()));
            let both = _mm512_mask_broadcast_i32x4(both, 0xff00, _mm_loadu_si128(columns[1].cast()));
            let shift = _mm512_set_epi64(HIGH, HIGH, 0, 0, HIGH, HIGH, 0, 0);
            _mm512_and_si512(_mm512_srlv_epi16(both, shift), _mm512_set1_epi8(15))
        };
        four(columns: [*const u8; 4]) -> U = {
            let [a, b, c, d] = columns;
            let four = _mm512_castsi128_si512(_mm_loadu_si128(a.cast()));
            let four = _mm512_inserti32x4::<1>(four, _mm_loadu_si128(b.cast()));
            let four = _mm512_inserti32x4::<2>(four, _mm_loadu_si128(c.cast()));
            _mm512_inserti32x4::<3>(four, _mm_loadu_si128(d.cast()))
        };
        four_and_more(low: U, high: U, at: i32, ones: u8) -> U = {
            let high = _mm512_rolv_epi32(high, _mm512_set1_epi32((4 - at) & 31));
            let both = _mm512_ternarylogic_epi32::<0xca>(Self::every_u8(15), low, high);
            _mm512_and_si512(both, Self::every_u8(15 | ones << 4))
        };
        add_fifth_bits(codes: U, bits: [u32; 2]) -> U = {
            let bits = u64::from(bits[0]) | u64::from(bits[1]) << 32;
            _mm512_mask_add_epi8(codes, bits, codes, _mm512_set1_epi8(16))
        };
        even_quarters(a: U, b: U) -> U = _mm512_shuffle_i32x4::<0x88>(a, b);
        odd_quarters(a: U, b: U) -> U = _mm512_shuffle_i32x4::<0xdd>(a, b);
        from_halves(words: U) -> V = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words));
        halves(from: &[u16; NUMBERS]) -> V = _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast()));
        words(from: &[u16; NUMBERS]) -> U = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.as_ptr().cast()));
        bytes(from: &[u8; NUMBERS]) -> U = _mm512_cvtepu8_epi32(_mm_loadu_si128(from.as_ptr().cast()));
        load_floats(from: &[f32; NUMBERS]) -> V = _mm512_loadu_ps(from.as_ptr());
        store_floats(to: &mut [f32; NUMBERS], v: V) = _mm512_storeu_ps(to.as_mut_ptr(), v);
        store_columns(to: &mut [f32], v: V, bias: Option<&[f32]>) = {
            let mask = u16::MAX >> (NUMBERS - to.len());
            let v = match bias {
                Some(bias) => _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, bias[..to.len()].as_ptr())),
                None => v,
            };
            _mm512_mask_storeu_ps(to.as_mut_ptr(), mask, v);
        };
    }
}

impl<const VNNI: bool> Pairwise for Avx512<VNNI> {
    operations! { unsafe fn:
        every_i16(word: i16) -> U = _mm512_set1_epi16(word);
        add_i16(a: U, b: U) -> U = _mm512_add_epi16(a, b);
        sub_i16(a: U, b: U) -> U = _mm512_sub_epi16(a, b);
        upper_bytes(v: U) -> U = _mm512_srli_epi16::<8>(v);
        even_u32(a: U, b: U) -> U = shuffled::<0x88>(a, b);
        odd_u32(a: U, b: U) -> U = shuffled::<0xdd>(a, b);
        multiply_bytes(codes: U, x: U) -> U = _mm512_maddubs_epi16(codes, x);
        multiply_words(a: U, b: U) -> U = _mm512_madd_epi16(a, b);
        to_integers(v: V) -> U = _mm512_cvtps_epi32(v);
        twice(from: *const u8) -> U = _mm512_broadcast_i64x4(_mm256_loadu_si256(from.cast()));
        store(to: *mut u8, v: U) = _mm512_storeu_si512(to.cast(), v);
        dot(sums: U, codes: U, x: U) -> U = {
            if !VNNI {
                unreachable!("without VNNI kernels multiply words");
            }
            _mm512_dpbusd_epi32(sums, codes, x)
        };
    }
}

/// Two of four numbers of 32 bits of `a`, and two of `b`.
///
/// # Safety
///
/// The machine has AVX-512.
#[inline(always)]
unsafe fn shuffled<const ORDER: i32>(a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: the caller says so.
    unsafe { _mm512_castps_si512(_mm512_shuffle_ps::<ORDER>(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b))) }
}

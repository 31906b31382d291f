//! Registers of 512 bits.
#![allow(unsafe_code)]

use super::{Unit, Work};
use crate::cpu::linear::integer::EDGE;
use crate::cpu::linear::integer::activations::Form;
use crate::cpu::linear::integer::codings::{HalfCodes, Integers};
use crate::cpu::linear::integer::pairwise::{self, Pairwise};
use std::arch::x86_64::*;

/// AVX-512 F, BW, DQ and VL, and AVX512-VNNI and AVX512-BF16 with `VNNI`.
pub struct Avx512<const VNNI: bool>;

/// Four words that are shifted by four.
const HIGH: i64 = 0x0004_0004_0004_0004;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,f16c")]
unsafe fn enter_vnni<W: Work>(work: W) -> W::Output {
    // SAFETY: the caller says so.
    unsafe { work.run::<Avx512<true>>() }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
unsafe fn enter<W: Work>(work: W) -> W::Output {
    // SAFETY: the caller says so.
    unsafe { work.run::<Avx512<false>>() }
}

impl<const VNNI: bool> Unit for Avx512<VNNI> {
    type Ints = __m512i;
    type Floats = __m512;
    type Bytes = pairwise::Fours<Self>;
    type Words = pairwise::Words<Self>;
    const FORMS: [Form; 3] = if VNNI { [Form::Digits; 3] } else { [Form::EvenOdd, Form::EvenOdd, Form::Bytes] };
    const IS_SIGNED: bool = false;
    const FEW: usize = 4;
    const TILE: (usize, usize) = (6, 2);

    unsafe fn enter<W: Work>(work: W) -> W::Output {
        // SAFETY: the caller says so.
        unsafe { if VNNI { enter_vnni(work) } else { enter(work) } }
    }

    #[inline(always)]
    unsafe fn zero() -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn two(first: *const u8, second: *const u8) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            let first = _mm256_loadu_si256(first.cast());
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), _mm256_loadu_si256(second.cast()))
        }
    }

    #[inline(always)]
    unsafe fn two_of_nibbles(first: *const u8, second: *const u8) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            let both = _mm512_broadcast_i32x4(_mm_loadu_si128(first.cast()));
            let both = _mm512_mask_broadcast_i32x4(both, 0xff00, _mm_loadu_si128(second.cast()));
            let shift = _mm512_set_epi64(HIGH, HIGH, 0, 0, HIGH, HIGH, 0, 0);
            _mm512_and_si512(_mm512_srlv_epi16(both, shift), _mm512_set1_epi8(15))
        }
    }

    #[inline(always)]
    unsafe fn four(columns: [*const u8; 4]) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            let [a, b, c, d] = columns;
            let four = _mm512_castsi128_si512(_mm_loadu_si128(a.cast()));
            let four = _mm512_inserti32x4::<1>(four, _mm_loadu_si128(b.cast()));
            let four = _mm512_inserti32x4::<2>(four, _mm_loadu_si128(c.cast()));
            _mm512_inserti32x4::<3>(four, _mm_loadu_si128(d.cast()))
        }
    }

    #[inline(always)]
    unsafe fn every_u8(byte: u8) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_set1_epi8(byte.cast_signed()) }
    }

    #[inline(always)]
    unsafe fn every_i32(number: i32) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_set1_epi32(number) }
    }

    #[inline(always)]
    unsafe fn and(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_and_si512(a, b) }
    }

    #[inline(always)]
    unsafe fn or(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    unsafe fn xor(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_xor_si512(a, b) }
    }

    #[inline(always)]
    unsafe fn add_i32(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_add_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn sub_i32(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_sub_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn shl_i32(v: Self::Ints, bits: i32) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_sllv_epi32(v, _mm512_set1_epi32(bits)) }
    }

    #[inline(always)]
    unsafe fn shr_u32(v: Self::Ints, bits: i32) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_srlv_epi32(v, _mm512_set1_epi32(bits)) }
    }

    #[inline(always)]
    unsafe fn shr_i32(v: Self::Ints, bits: i32) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_srav_epi32(v, _mm512_set1_epi32(bits)) }
    }

    #[inline(always)]
    unsafe fn four_and_more(low: Self::Ints, high: Self::Ints, at: i32, ones: u8) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            let high = _mm512_rolv_epi32(high, _mm512_set1_epi32((4 - at) & 31));
            let both = _mm512_ternarylogic_epi32::<0xca>(Self::every_u8(15), low, high);
            Self::and(both, Self::every_u8(15 | ones << 4))
        }
    }

    #[inline(always)]
    unsafe fn add_fifth_bits(codes: Self::Ints, bits: [u32; 2]) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            let bits = u64::from(bits[0]) | u64::from(bits[1]) << 32;
            _mm512_mask_add_epi8(codes, bits, codes, _mm512_set1_epi8(16))
        }
    }

    #[inline(always)]
    unsafe fn look_up(table: &[u8; 16], indexes: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, indexes)
        }
    }

    #[inline(always)]
    unsafe fn low_u32(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_unpacklo_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn high_u32(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_unpackhi_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn low_u64(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_unpacklo_epi64(a, b) }
    }

    #[inline(always)]
    unsafe fn high_u64(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_unpackhi_epi64(a, b) }
    }

    #[inline(always)]
    unsafe fn even_quarters(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_shuffle_i32x4::<0x88>(a, b) }
    }

    #[inline(always)]
    unsafe fn odd_quarters(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_shuffle_i32x4::<0xdd>(a, b) }
    }

    #[inline(always)]
    unsafe fn sums<D: Integers>(codes: HalfCodes<Self>, x: *const u8) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { pairwise::sums::<Self, D>(codes, x) }
    }

    #[inline(always)]
    unsafe fn to_floats(integers: Self::Ints) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe { _mm512_cvtepi32_ps(integers) }
    }

    #[inline(always)]
    unsafe fn from_bits(bits: Self::Ints) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe { _mm512_castsi512_ps(bits) }
    }

    #[inline(always)]
    unsafe fn from_halves(words: Self::Ints) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe { _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words)) }
    }

    #[inline(always)]
    unsafe fn halves(from: &[u16; EDGE]) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())) }
    }

    #[inline(always)]
    unsafe fn words(from: &[u16; EDGE]) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.as_ptr().cast())) }
    }

    #[inline(always)]
    unsafe fn bytes(from: &[u8; EDGE]) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(from.as_ptr().cast())) }
    }

    #[inline(always)]
    unsafe fn every(number: f32) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe { _mm512_set1_ps(number) }
    }

    #[inline(always)]
    unsafe fn load_floats(from: &[f32; EDGE]) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    }

    #[inline(always)]
    unsafe fn store_floats(to: &mut [f32; EDGE], v: Self::Floats) {
        // SAFETY: the caller says so.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), v) }
    }

    #[inline(always)]
    unsafe fn store_columns(to: &mut [f32], v: Self::Floats, bias: Option<&[f32]>) {
        // SAFETY: the caller says so.
        unsafe {
            let mask = u16::MAX >> (EDGE - to.len());
            let v = match bias {
                Some(bias) => _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, bias[..to.len()].as_ptr())),
                None => v,
            };
            _mm512_mask_storeu_ps(to.as_mut_ptr(), mask, v);
        }
    }

    #[inline(always)]
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn mul_add(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn mul_sub_from(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe { _mm512_fnmadd_ps(a, b, c) }
    }
}

impl<const VNNI: bool> Pairwise for Avx512<VNNI> {
    #[inline(always)]
    unsafe fn store(to: *mut u8, v: Self::Ints) {
        // SAFETY: the caller says so.
        unsafe { _mm512_storeu_si512(to.cast(), v) }
    }

    #[inline(always)]
    unsafe fn twice(from: *const u8) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_broadcast_i64x4(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn every_four(from: *const u8) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_set1_epi32(from.cast::<i32>().read_unaligned()) }
    }

    #[inline(always)]
    unsafe fn every_i16(word: i16) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_set1_epi16(word) }
    }

    #[inline(always)]
    unsafe fn add_i16(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_add_epi16(a, b) }
    }

    #[inline(always)]
    unsafe fn sub_i16(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_sub_epi16(a, b) }
    }

    #[inline(always)]
    unsafe fn upper_bytes(v: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_srli_epi16::<8>(v) }
    }

    #[inline(always)]
    unsafe fn even_u32(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            let (a, b) = (_mm512_castsi512_ps(a), _mm512_castsi512_ps(b));
            _mm512_castps_si512(_mm512_shuffle_ps::<0x88>(a, b))
        }
    }

    #[inline(always)]
    unsafe fn odd_u32(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            let (a, b) = (_mm512_castsi512_ps(a), _mm512_castsi512_ps(b));
            _mm512_castps_si512(_mm512_shuffle_ps::<0xdd>(a, b))
        }
    }

    #[inline(always)]
    unsafe fn dot(sums: Self::Ints, codes: Self::Ints, x: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            if !VNNI {
                unreachable!("without VNNI kernels multiply words");
            }
            _mm512_dpbusd_epi32(sums, codes, x)
        }
    }

    #[inline(always)]
    unsafe fn multiply_bytes(codes: Self::Ints, x: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_maddubs_epi16(codes, x) }
    }

    #[inline(always)]
    unsafe fn multiply_words(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_madd_epi16(a, b) }
    }

    #[inline(always)]
    unsafe fn to_integers(numbers: Self::Floats) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { _mm512_cvtps_epi32(numbers) }
    }
}

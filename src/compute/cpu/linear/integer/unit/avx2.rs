//! Registers of 256 bits, two for a vector.
#![allow(unsafe_code)]

use super::{Unit, Work};
use crate::cpu::linear::integer::EDGE;
use crate::cpu::linear::integer::activations::Form;
use crate::cpu::linear::integer::codings::{HalfCodes, Integers};
use crate::cpu::linear::integer::pairwise::{self, Pairwise};
use std::arch::x86_64::*;

/// AVX2, FMA and F16C.
pub struct Avx2;

/// The two halves of a vector.
#[derive(Clone, Copy)]
pub struct Two<T>(T, T);

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn enter<W: Work>(work: W) -> W::Output {
    // SAFETY: the caller says so.
    unsafe { work.run::<Avx2>() }
}

/// Sixteen more where a bit is set.
///
/// # Safety
///
/// The machine has AVX2.
#[inline(always)]
unsafe fn add_fifth_bits(codes: __m256i, bits: u32) -> __m256i {
    // SAFETY: the caller says so.
    unsafe {
        // Byte `i` gets the byte that has its bit.
        let places = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
        let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits.cast_signed()), places);
        let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
        let is_set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
        _mm256_add_epi8(codes, _mm256_and_si256(is_set, _mm256_set1_epi8(16)))
    }
}

/// Two of four numbers of 32 bits of `a`, and two of `b`.
///
/// # Safety
///
/// The machine has AVX2.
#[inline(always)]
unsafe fn shuffled<const ORDER: i32>(a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the caller says so.
    unsafe { _mm256_castps_si256(_mm256_shuffle_ps::<ORDER>(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b))) }
}

impl Unit for Avx2 {
    type Ints = Two<__m256i>;
    type Floats = Two<__m256>;
    type Bytes = pairwise::Fours<Self>;
    type Words = pairwise::Words<Self>;
    const FORMS: [Form; 3] = [Form::EvenOdd, Form::EvenOdd, Form::Bytes];
    const IS_SIGNED: bool = false;
    const FEW: usize = 4;
    const TILE: (usize, usize) = (4, 1);

    unsafe fn enter<W: Work>(work: W) -> W::Output {
        // SAFETY: the caller says so.
        unsafe { enter(work) }
    }

    #[inline(always)]
    unsafe fn zero() -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_setzero_si256(), _mm256_setzero_si256()) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(32).cast())) }
    }

    #[inline(always)]
    unsafe fn two(first: *const u8, second: *const u8) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_loadu_si256(first.cast()), _mm256_loadu_si256(second.cast())) }
    }

    #[inline(always)]
    unsafe fn two_of_nibbles(first: *const u8, second: *const u8) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            let (first, second) = (_mm_loadu_si128(first.cast()), _mm_loadu_si128(second.cast()));
            let both = Two(_mm256_broadcastsi128_si256(first), _mm256_broadcastsi128_si256(second));
            let (shift, low) = (_mm256_set_epi64x(4, 4, 0, 0), _mm256_set1_epi8(15));
            Two(
                _mm256_and_si256(_mm256_srlv_epi64(both.0, shift), low),
                _mm256_and_si256(_mm256_srlv_epi64(both.1, shift), low),
            )
        }
    }

    #[inline(always)]
    unsafe fn four(columns: [*const u8; 4]) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            let [a, b, c, d] = columns;
            Two(_mm256_loadu2_m128i(b.cast(), a.cast()), _mm256_loadu2_m128i(d.cast(), c.cast()))
        }
    }

    #[inline(always)]
    unsafe fn every_u8(byte: u8) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            let once = _mm256_set1_epi8(byte.cast_signed());
            Two(once, once)
        }
    }

    #[inline(always)]
    unsafe fn every_i32(number: i32) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            let once = _mm256_set1_epi32(number);
            Two(once, once)
        }
    }

    #[inline(always)]
    unsafe fn and(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_and_si256(a.0, b.0), _mm256_and_si256(a.1, b.1)) }
    }

    #[inline(always)]
    unsafe fn or(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_or_si256(a.0, b.0), _mm256_or_si256(a.1, b.1)) }
    }

    #[inline(always)]
    unsafe fn xor(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_xor_si256(a.0, b.0), _mm256_xor_si256(a.1, b.1)) }
    }

    #[inline(always)]
    unsafe fn add_i32(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_add_epi32(a.0, b.0), _mm256_add_epi32(a.1, b.1)) }
    }

    #[inline(always)]
    unsafe fn sub_i32(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_sub_epi32(a.0, b.0), _mm256_sub_epi32(a.1, b.1)) }
    }

    #[inline(always)]
    unsafe fn shl_i32(v: Self::Ints, bits: i32) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            let bits = _mm256_set1_epi32(bits);
            Two(_mm256_sllv_epi32(v.0, bits), _mm256_sllv_epi32(v.1, bits))
        }
    }

    #[inline(always)]
    unsafe fn shr_u32(v: Self::Ints, bits: i32) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            let bits = _mm256_set1_epi32(bits);
            Two(_mm256_srlv_epi32(v.0, bits), _mm256_srlv_epi32(v.1, bits))
        }
    }

    #[inline(always)]
    unsafe fn shr_i32(v: Self::Ints, bits: i32) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            let bits = _mm256_set1_epi32(bits);
            Two(_mm256_srav_epi32(v.0, bits), _mm256_srav_epi32(v.1, bits))
        }
    }

    #[inline(always)]
    unsafe fn four_and_more(low: Self::Ints, high: Self::Ints, at: i32, ones: u8) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            let high = Self::and(Self::shr_u32(high, at), Self::every_u8(ones));
            Self::or(Self::and(low, Self::every_u8(15)), Self::shl_i32(high, 4))
        }
    }

    #[inline(always)]
    unsafe fn add_fifth_bits(codes: Self::Ints, bits: [u32; 2]) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { Two(add_fifth_bits(codes.0, bits[0]), add_fifth_bits(codes.1, bits[1])) }
    }

    #[inline(always)]
    unsafe fn look_up(table: &[u8; 16], indexes: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            Two(_mm256_shuffle_epi8(table, indexes.0), _mm256_shuffle_epi8(table, indexes.1))
        }
    }

    #[inline(always)]
    unsafe fn low_u32(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_unpacklo_epi32(a.0, b.0), _mm256_unpacklo_epi32(a.1, b.1)) }
    }

    #[inline(always)]
    unsafe fn high_u32(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_unpackhi_epi32(a.0, b.0), _mm256_unpackhi_epi32(a.1, b.1)) }
    }

    #[inline(always)]
    unsafe fn low_u64(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_unpacklo_epi64(a.0, b.0), _mm256_unpacklo_epi64(a.1, b.1)) }
    }

    #[inline(always)]
    unsafe fn high_u64(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_unpackhi_epi64(a.0, b.0), _mm256_unpackhi_epi64(a.1, b.1)) }
    }

    #[inline(always)]
    unsafe fn even_quarters(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_permute2x128_si256::<0x20>(a.0, a.1), _mm256_permute2x128_si256::<0x20>(b.0, b.1)) }
    }

    #[inline(always)]
    unsafe fn odd_quarters(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_permute2x128_si256::<0x31>(a.0, a.1), _mm256_permute2x128_si256::<0x31>(b.0, b.1)) }
    }

    #[inline(always)]
    unsafe fn sums<D: Integers>(codes: HalfCodes<Self>, x: *const u8) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { pairwise::sums::<Self, D>(codes, x) }
    }

    #[inline(always)]
    unsafe fn to_floats(integers: Self::Ints) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_cvtepi32_ps(integers.0), _mm256_cvtepi32_ps(integers.1)) }
    }

    #[inline(always)]
    unsafe fn from_bits(bits: Self::Ints) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_castsi256_ps(bits.0), _mm256_castsi256_ps(bits.1)) }
    }

    #[inline(always)]
    unsafe fn from_halves(words: Self::Ints) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe {
            let lower = Self::and(words, Self::every_i32(0xffff));
            // In each quarter four words of the first eight, and then four of the others.
            let packed = _mm256_permute4x64_epi64::<0xd8>(_mm256_packus_epi32(lower.0, lower.1));
            Two(_mm256_cvtph_ps(_mm256_castsi256_si128(packed)), _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(packed)))
        }
    }

    #[inline(always)]
    unsafe fn halves(from: &[u16; EDGE]) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe {
            let (first, second) = (_mm_loadu_si128(from.as_ptr().cast()), _mm_loadu_si128(from.as_ptr().add(8).cast()));
            Two(_mm256_cvtph_ps(first), _mm256_cvtph_ps(second))
        }
    }

    #[inline(always)]
    unsafe fn words(from: &[u16; EDGE]) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            let (first, second) = (_mm_loadu_si128(from.as_ptr().cast()), _mm_loadu_si128(from.as_ptr().add(8).cast()));
            Two(_mm256_cvtepu16_epi32(first), _mm256_cvtepu16_epi32(second))
        }
    }

    #[inline(always)]
    unsafe fn bytes(from: &[u8; EDGE]) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            let (first, second) = (_mm_loadl_epi64(from.as_ptr().cast()), _mm_loadl_epi64(from.as_ptr().add(8).cast()));
            Two(_mm256_cvtepu8_epi32(first), _mm256_cvtepu8_epi32(second))
        }
    }

    #[inline(always)]
    unsafe fn every(number: f32) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe {
            let once = _mm256_set1_ps(number);
            Two(once, once)
        }
    }

    #[inline(always)]
    unsafe fn load_floats(from: &[f32; EDGE]) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))) }
    }

    #[inline(always)]
    unsafe fn store_floats(to: &mut [f32; EDGE], v: Self::Floats) {
        // SAFETY: the caller says so.
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr(), v.0);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), v.1);
        }
    }

    #[inline(always)]
    unsafe fn store_columns(to: &mut [f32], v: Self::Floats, bias: Option<&[f32]>) {
        // SAFETY: the caller says so.
        unsafe {
            let mut numbers = [0.0; EDGE];
            Self::store_floats(&mut numbers, v);
            match bias {
                Some(bias) => to.iter_mut().zip(numbers).zip(bias).for_each(|((to, number), bias)| *to = number + bias),
                None => to.copy_from_slice(&numbers[..to.len()]),
            }
        }
    }

    #[inline(always)]
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_mul_ps(a.0, b.0), _mm256_mul_ps(a.1, b.1)) }
    }

    #[inline(always)]
    unsafe fn mul_add(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_fmadd_ps(a.0, b.0, c.0), _mm256_fmadd_ps(a.1, b.1, c.1)) }
    }

    #[inline(always)]
    unsafe fn mul_sub_from(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_fnmadd_ps(a.0, b.0, c.0), _mm256_fnmadd_ps(a.1, b.1, c.1)) }
    }
}

impl Pairwise for Avx2 {
    #[inline(always)]
    unsafe fn store(to: *mut u8, v: Self::Ints) {
        // SAFETY: the caller says so.
        unsafe {
            _mm256_storeu_si256(to.cast(), v.0);
            _mm256_storeu_si256(to.add(32).cast(), v.1);
        }
    }

    #[inline(always)]
    unsafe fn twice(from: *const u8) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            let once = _mm256_loadu_si256(from.cast());
            Two(once, once)
        }
    }

    #[inline(always)]
    unsafe fn every_four(from: *const u8) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { Self::every_i32(from.cast::<i32>().read_unaligned()) }
    }

    #[inline(always)]
    unsafe fn every_i16(word: i16) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            let once = _mm256_set1_epi16(word);
            Two(once, once)
        }
    }

    #[inline(always)]
    unsafe fn add_i16(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_add_epi16(a.0, b.0), _mm256_add_epi16(a.1, b.1)) }
    }

    #[inline(always)]
    unsafe fn sub_i16(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_sub_epi16(a.0, b.0), _mm256_sub_epi16(a.1, b.1)) }
    }

    #[inline(always)]
    unsafe fn upper_bytes(v: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_srli_epi16::<8>(v.0), _mm256_srli_epi16::<8>(v.1)) }
    }

    #[inline(always)]
    unsafe fn even_u32(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { Two(shuffled::<0x88>(a.0, b.0), shuffled::<0x88>(a.1, b.1)) }
    }

    #[inline(always)]
    unsafe fn odd_u32(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { Two(shuffled::<0xdd>(a.0, b.0), shuffled::<0xdd>(a.1, b.1)) }
    }

    unsafe fn dot(_: Self::Ints, _: Self::Ints, _: Self::Ints) -> Self::Ints {
        unreachable!("without VNNI kernels multiply words")
    }

    #[inline(always)]
    unsafe fn multiply_bytes(codes: Self::Ints, x: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_maddubs_epi16(codes.0, x.0), _mm256_maddubs_epi16(codes.1, x.1)) }
    }

    #[inline(always)]
    unsafe fn multiply_words(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_madd_epi16(a.0, b.0), _mm256_madd_epi16(a.1, b.1)) }
    }

    #[inline(always)]
    unsafe fn to_integers(numbers: Self::Floats) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { Two(_mm256_cvtps_epi32(numbers.0), _mm256_cvtps_epi32(numbers.1)) }
    }
}

//! Blocks of 256 numbers, whose scales are codes themselves.
#![allow(unsafe_code)]

use super::number::Number;
use super::{
    Decode, IQ4_VALUES, PIECE_STEPS, Places, Planes, Singly, block_at, counted, from_signed, half, load16, load32,
};
use crate::backend::{Block, Coding};
use std::arch::x86_64::*;

/// Eight scales, then eight minima, of a block of [`Block::Q4K`] or [`Block::Q5K`].
///
/// # Safety
///
/// The machine has AVX-512. Sixteen bytes can be read.
#[inline(always)]
unsafe fn scales_and_mins(at: *const u8) -> Singly<16> {
    // SAFETY: the caller says so.
    unsafe {
        // 32 bits each: both factors, then as `scale_and_min` takes them, for four scales or minima at a time.
        let header = load16(at);
        let first = _mm_shuffle_epi32::<0b10_01_10_01>(header);
        let third = _mm_shuffle_epi32::<0b11_11_11_11>(header);
        let low = _mm_and_si128(first, _mm_set1_epi32(0x3f3f_3f3f));
        let of_third = _mm_and_si128(_mm_srlv_epi32(third, _mm_setr_epi32(0, 4, 0, 4)), _mm_set1_epi32(0x0f0f_0f0f));
        let of_first = _mm_and_si128(_mm_srli_epi32::<2>(first), _mm_set1_epi32(0x3030_3030));
        let codes = _mm_unpacklo_epi32(low, _mm_or_si128(of_third, of_first));
        let codes = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(codes));
        let factors = _mm512_castps128_ps512(_mm_cvtph_ps(header));
        let factors = _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1), factors);
        let mut both = Singly([0.0; 16]);
        _mm512_storeu_ps(both.0.as_mut_ptr(), _mm512_mul_ps(codes, factors));
        both
    }
}

/// The bytes of a block of 256 numbers.
///
/// # Panics
///
/// If less than a block is decoded.
///
/// # Safety
///
/// As [`Decode::decode`].
#[inline(always)]
unsafe fn whole_block<const STEPS: usize>(block: Block, row: Planes, first: usize) -> *const u8 {
    assert!(STEPS == PIECE_STEPS, "{} is decoded in blocks", block.name());
    // SAFETY: the caller says so.
    unsafe { block_at(block, row, first) }
}

pub struct Q4K;

impl Decode for Q4K {
    #[inline(always)]
    unsafe fn decode<N: Number, const STEPS: usize>(_: Coding, row: Planes, first: usize, to: Places) {
        // SAFETY: the caller says that the row has a block of 144 bytes, and that there are eight places.
        unsafe {
            let at = whole_block::<STEPS>(Block::Q4K, row, first);
            let both = scales_and_mins(at);
            for pair in 0..4 {
                let [low, high] = [2 * pair, 2 * pair + 1];
                let tables = [
                    _mm512_fmsub_ps(counted(), both.all(low), both.all(8 + low)),
                    _mm512_fmsub_ps(counted(), both.all(high), both.all(8 + high)),
                ];
                N::store_halves([to.step(low), to.step(high)], load32(at.add(16 + 32 * pair)), tables);
            }
        }
    }
}

pub struct Q5K;

/// The `J`-th 32 codes of five bits of a block, whose low bits are at `at`.
///
/// # Safety
///
/// The machine has AVX-512. Thirty-two bytes can be read.
#[inline(always)]
unsafe fn q5_k_codes<const J: u32>(at: *const u8, fifth: __m256i) -> __m256i {
    // SAFETY: the caller says so.
    unsafe {
        let codes = load32(at);
        let codes = if J % 2 == 1 { _mm256_srli_epi16::<4>(codes) } else { codes };
        let codes = _mm256_and_si256(codes, _mm256_set1_epi8(15));
        let is_fifth = _mm256_test_epi8_mask(fifth, _mm256_set1_epi8((1u8 << J).cast_signed()));
        _mm256_mask_add_epi8(codes, is_fifth, codes, _mm256_set1_epi8(16))
    }
}

impl Decode for Q5K {
    #[inline(always)]
    unsafe fn decode<N: Number, const STEPS: usize>(_: Coding, row: Planes, first: usize, to: Places) {
        // SAFETY: the caller says that the row has a block of 176 bytes, and that there are eight places.
        unsafe {
            let at = whole_block::<STEPS>(Block::Q5K, row, first);
            let both = scales_and_mins(at);
            let (fifth, low) = (load32(at.add(16)), at.add(48));
            let codes = [
                q5_k_codes::<0>(low, fifth),
                q5_k_codes::<1>(low, fifth),
                q5_k_codes::<2>(low.add(32), fifth),
                q5_k_codes::<3>(low.add(32), fifth),
                q5_k_codes::<4>(low.add(64), fifth),
                q5_k_codes::<5>(low.add(64), fifth),
                q5_k_codes::<6>(low.add(96), fifth),
                q5_k_codes::<7>(low.add(96), fifth),
            ];
            for (j, codes) in codes.into_iter().enumerate() {
                let ([low, high], scale, min) = (from_signed(codes), both.all(j), both.all(8 + j));
                N::store(to.step(j), _mm512_fmsub_ps(low, scale, min), _mm512_fmsub_ps(high, scale, min));
            }
        }
    }
}

pub struct Q6K;

/// The codes of a quarter of half a block, whose low four bits are at `low` and whose high two bits are at `high`.
///
/// # Safety
///
/// The machine has AVX-512. Sixty-four bytes of the low bits and 32 of the high ones can be read.
#[inline(always)]
unsafe fn q6_k_codes<const QUARTER: u32>(low: *const u8, high: *const u8) -> __m256i {
    // SAFETY: the caller says so.
    unsafe {
        let (low, high) = (load32(low.add(QUARTER as usize % 2 * 32)), load32(high));
        let low = if QUARTER / 2 == 1 { _mm256_srli_epi16::<4>(low) } else { low };
        // The two bits of the quarter go to bits 4 and 5.
        let high = match QUARTER {
            0 => _mm256_slli_epi16::<4>(high),
            1 => _mm256_slli_epi16::<2>(high),
            2 => high,
            _ => _mm256_srli_epi16::<2>(high),
        };
        let low = _mm256_and_si256(low, _mm256_set1_epi8(0x0f));
        let high = _mm256_and_si256(high, _mm256_set1_epi8(0x30));
        _mm256_sub_epi8(_mm256_or_si256(low, high), _mm256_set1_epi8(32))
    }
}

impl Decode for Q6K {
    #[inline(always)]
    unsafe fn decode<N: Number, const STEPS: usize>(_: Coding, row: Planes, first: usize, to: Places) {
        // SAFETY: the caller says that the row has a block of 210 bytes, and that there are eight places.
        unsafe {
            let at = whole_block::<STEPS>(Block::Q6K, row, first);
            let mut scales = Singly([0.0; 16]);
            let codes = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load16(at.add(192))));
            _mm512_storeu_ps(scales.0.as_mut_ptr(), _mm512_mul_ps(codes, half(at.add(208))));
            for part in 0..2 {
                let (low, high) = (at.add(part * 64), at.add(128 + part * 32));
                let codes = [
                    q6_k_codes::<0>(low, high),
                    q6_k_codes::<1>(low, high),
                    q6_k_codes::<2>(low, high),
                    q6_k_codes::<3>(low, high),
                ];
                for (quarter, codes) in codes.into_iter().enumerate() {
                    let ([low, high], j) = (from_signed(codes), 4 * part + quarter);
                    let low = _mm512_mul_ps(low, scales.all(2 * j));
                    let high = _mm512_mul_ps(high, scales.all(2 * j + 1));
                    N::store(to.step(j), low, high);
                }
            }
        }
    }
}

pub struct Iq4Xs;

impl Decode for Iq4Xs {
    #[inline(always)]
    unsafe fn decode<N: Number, const STEPS: usize>(_: Coding, row: Planes, first: usize, to: Places) {
        // SAFETY: the caller says that the row has a block of 136 bytes, and that there are eight places; the table has 16 numbers.
        unsafe {
            let at = whole_block::<STEPS>(Block::Iq4Xs, row, first);
            let (d, high) = (half(at), u32::from(at.add(2).cast::<u16>().read_unaligned()));
            let low = at.add(4).cast::<u32>().read_unaligned();
            for j in 0..8 {
                let scale = low >> (4 * j) & 15 | (high >> (2 * j) & 3) << 4;
                let scale = _mm512_mul_ps(d, _mm512_set1_ps(scale.cast_signed() as f32 - 32.0));
                let table = N::table(_mm512_mul_ps(_mm512_loadu_ps(IQ4_VALUES.as_ptr()), scale));
                N::store_nibbles(to.step(j), load16(at.add(8 + j * 16)), table);
            }
        }
    }
}

//! Codes whose scales lie apart.
#![allow(unsafe_code)]

use super::number::Number;
use super::{Decode, Places, Planes, Singly, load16, load32};
use crate::cpu::linear::decode::scaled::scaled;
use crate::cpu::linear::kernels::STEP;
use formats::{E2M1, Scaled, Scales, WeightFormat};
use std::arch::x86_64::*;

/// Groups of a part, at most.
const MAX_GROUPS: usize = 8;

/// What the groups of a part of a row share.
struct Groups {
    scales: Singly<MAX_GROUPS>,
    zeros: Singly<MAX_GROUPS>,
}

impl Groups {
    /// Those of `count` groups from the one of number `first` on.
    ///
    /// # Safety
    ///
    /// The machine has AVX-512 and F16C, and the row has these groups.
    #[inline(always)]
    unsafe fn read(scaled: Scaled, row: Planes, first: usize, count: usize) -> Groups {
        // A group whose length is no power of two is a whole row: `reads` says so.
        let group = if scaled.group.is_power_of_two() { first >> scaled.group.trailing_zeros() } else { 0 };
        let mask = ((1u32 << count) - 1) as u8;
        let mut groups = Groups { scales: Singly([0.0; MAX_GROUPS]), zeros: Singly([scaled.codes.zero(); MAX_GROUPS]) };
        // SAFETY: the caller says what the machine has and that the row has the groups; nothing is read beyond the mask.
        unsafe {
            let at = row.scales.add(group * scaled.scales.bytes());
            let scales = match scaled.scales {
                Scales::F16 => _mm256_cvtph_ps(_mm_maskz_loadu_epi16(mask, at.cast())),
                Scales::F32 => _mm256_maskz_loadu_ps(mask, at.cast()),
                Scales::Bf16 => {
                    let bits = _mm256_cvtepu16_epi32(_mm_maskz_loadu_epi16(mask, at.cast()));
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits))
                }
                Scales::E8m0 => {
                    let exponents = _mm256_cvtepu8_epi32(_mm_maskz_loadu_epi8(u16::from(mask), at.cast()));
                    // 2^-127 is a denormal number, and the last exponent is that of no number.
                    let least = _mm256_testn_epi32_mask(exponents, exponents);
                    let none = _mm256_cmpeq_epi32_mask(exponents, _mm256_set1_epi32(255));
                    let bits = _mm256_slli_epi32::<23>(exponents);
                    let bits = _mm256_mask_mov_epi32(bits, least, _mm256_set1_epi32(1 << 22));
                    let bits = _mm256_mask_mov_epi32(bits, none, _mm256_set1_epi32(f32::NAN.to_bits().cast_signed()));
                    _mm256_castsi256_ps(bits)
                }
            };
            _mm256_storeu_ps(groups.scales.0.as_mut_ptr(), scales);
            if scaled.zeros {
                let bytes = _mm_maskz_loadu_epi8(u16::from(mask), row.zeros.add(group).cast());
                _mm256_storeu_ps(groups.zeros.0.as_mut_ptr(), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)));
            }
        }
        groups
    }
}

/// Codes of which some steps share a scale.
trait DecodeGroup {
    /// Decodes `STEPS` steps of group `group` from `codes` on.
    ///
    /// # Safety
    ///
    /// The machine has AVX-512 and what `N` needs. The codes can be read, and there are as many places.
    unsafe fn group<N: Number, const STEPS: usize>(
        scaled: Scaled,
        groups: &Groups,
        group: usize,
        codes: *const u8,
        to: Places,
    );
}

/// [`Decode::decode`]: compiled for each length of a group, so that no loop ends within a few instructions.
///
/// # Safety
///
/// As there.
#[inline(always)]
unsafe fn by_groups<D: DecodeGroup, N: Number, const STEPS: usize>(
    coding: WeightFormat,
    row: Planes,
    first: usize,
    to: Places,
) {
    let scaled = scaled(coding);
    // SAFETY: the caller says so.
    unsafe {
        let codes = row.codes.add(scaled.codes.row_bytes(first));
        match scaled.group / STEP {
            _ if STEPS == 1 => groups_of::<D, N, STEPS, 1>(scaled, row, first, codes, to),
            1 => groups_of::<D, N, STEPS, 1>(scaled, row, first, codes, to),
            2 => groups_of::<D, N, STEPS, 2>(scaled, row, first, codes, to),
            4 => groups_of::<D, N, STEPS, 4>(scaled, row, first, codes, to),
            _ => groups_of::<D, N, STEPS, STEPS>(scaled, row, first, codes, to),
        }
    }
}

/// Decodes `STEPS` steps in groups of `GROUP`.
///
/// # Safety
///
/// As [`Decode::decode`].
#[inline(always)]
unsafe fn groups_of<D: DecodeGroup, N: Number, const STEPS: usize, const GROUP: usize>(
    scaled: Scaled,
    row: Planes,
    first: usize,
    codes: *const u8,
    to: Places,
) {
    let step_bytes = scaled.codes.row_bytes(STEP);
    // SAFETY: the caller says so.
    unsafe {
        let groups = Groups::read(scaled, row, first, STEPS / GROUP);
        for group in 0..STEPS / GROUP {
            let step = group * GROUP;
            D::group::<N, GROUP>(scaled, &groups, group, codes.add(step * step_bytes), to.from(step));
        }
    }
}

impl<D: DecodeGroup> Decode for D {
    #[inline(always)]
    unsafe fn decode<N: Number, const STEPS: usize>(coding: WeightFormat, row: Planes, first: usize, to: Places) {
        // SAFETY: the caller says so.
        unsafe { by_groups::<D, N, STEPS>(coding, row, first, to) }
    }
}

/// Floating-point numbers of four bits, in pairs.
pub struct E2m1;

impl DecodeGroup for E2m1 {
    #[inline(always)]
    unsafe fn group<N: Number, const STEPS: usize>(
        _: Scaled,
        groups: &Groups,
        group: usize,
        codes: *const u8,
        to: Places,
    ) {
        // SAFETY: the caller says that the steps can be read, of 16 bytes each, and that there are as many places; the table has 16 numbers.
        unsafe {
            let centred = _mm512_sub_ps(_mm512_loadu_ps(E2M1.as_ptr()), groups.zeros.all(group));
            let table = N::table(_mm512_mul_ps(centred, groups.scales.all(group)));
            for step in 0..STEPS {
                N::store_pairs(to.step(step), load16(codes.add(step * STEP / 2)), table);
            }
        }
    }
}

/// Signed integers less unsigned zeros.
pub struct I8;

impl DecodeGroup for I8 {
    #[inline(always)]
    unsafe fn group<N: Number, const STEPS: usize>(
        _: Scaled,
        groups: &Groups,
        group: usize,
        codes: *const u8,
        to: Places,
    ) {
        // SAFETY: the caller says that the steps can be read, of 32 bytes each, and that there are as many places.
        unsafe {
            let (scale, zero) = (groups.scales.all(group), groups.zeros.all(group));
            for step in 0..STEPS {
                let at = codes.add(step * STEP);
                let low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load16(at)));
                let high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load16(at.add(16))));
                let (low, high) = (_mm512_sub_ps(low, zero), _mm512_sub_ps(high, zero));
                N::store(to.step(step), _mm512_mul_ps(low, scale), _mm512_mul_ps(high, scale));
            }
        }
    }
}

/// 256 times the numbers of `halves`, or NaN.
///
/// # Safety
///
/// The machine has AVX-512.
#[inline(always)]
unsafe fn from_halves(halves: __m256i, is_nan: __mmask16) -> __m512 {
    // SAFETY: the caller says so.
    unsafe {
        let numbers = _mm512_mul_ps(_mm512_cvtph_ps(halves), _mm512_set1_ps(256.0));
        _mm512_mask_mov_ps(numbers, is_nan, _mm512_set1_ps(f32::NAN))
    }
}

/// Floating-point numbers of eight bits.
pub struct E4m3;

impl DecodeGroup for E4m3 {
    #[inline(always)]
    unsafe fn group<N: Number, const STEPS: usize>(
        _: Scaled,
        groups: &Groups,
        group: usize,
        codes: *const u8,
        to: Places,
    ) {
        // SAFETY: the caller says that the steps can be read, of 32 bytes each, and that there are as many places.
        unsafe {
            let (magnitude, word_bits) = (_mm256_set1_epi8(0x7f), _mm512_set1_epi16(0xbf80_u16.cast_signed()));
            let scale = groups.scales.all(group);
            for step in 0..STEPS {
                let codes = load32(codes.add(step * STEP));
                let is_nan = _mm256_cmpeq_epi8_mask(_mm256_and_si256(codes, magnitude), magnitude);
                // Moved by a bit, and with the sign back in its place, a code is a half of 1/256 of its number.
                let words = _mm512_slli_epi16::<8>(_mm512_cvtepu8_epi16(codes));
                let halves = _mm512_and_si512(_mm512_srai_epi16::<1>(words), word_bits);
                let low = from_halves(_mm512_castsi512_si256(halves), is_nan as u16);
                let high = from_halves(_mm512_extracti64x4_epi64::<1>(halves), (is_nan >> 16) as u16);
                N::store(to.step(step), _mm512_mul_ps(low, scale), _mm512_mul_ps(high, scale));
            }
        }
    }
}

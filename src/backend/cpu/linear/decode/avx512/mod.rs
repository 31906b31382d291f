//! Decoders of AVX-512: a code of four bits names one of the 16 numbers of a table, other codes are converted.
//!
//! Where the instruction set multiplies bf16 numbers, they are rounded in registers.
#![allow(unsafe_code)]

mod codes;
mod number;

use super::{Decoder, Job};
use crate::backend::cpu::linear::kernels::STEP;
use crate::backend::{Block, Codes, Coding, IQ4, Scaled};
use codes::{Bytes, E4m3, Pairs};
use number::{Number, Singles, Words};
use std::arch::x86_64::*;

/// The decoder to f32 numbers. Codes of four bits that lie in pairs come in groups of 32: the even ones, then the odd ones.
pub fn to_f32(coding: Coding) -> Decoder {
    match coding {
        Coding::Block(block) => match block {
            Block::Q8_0 => singles::<Q8_0>,
            Block::Q4_0 => singles::<Q4_0>,
            Block::Q4_1 => singles::<Q4_1>,
            Block::Q5_0 => singles::<Q5_0>,
            Block::Q5_1 => singles::<Q5_1>,
            Block::Q4K => singles::<Q4K>,
            Block::Q5K => singles::<Q5K>,
            Block::Q6K => singles::<Q6K>,
            Block::Iq4Nl => singles::<Iq4Nl>,
            Block::Iq4Xs => singles::<Iq4Xs>,
        },
        Coding::Scaled(Scaled { codes, .. }) => match codes {
            Codes::U4 | Codes::E2m1 => singles::<Pairs>,
            Codes::U8 | Codes::I8 => singles::<Bytes>,
            Codes::E4m3 => singles::<E4m3>,
        },
        _ => unreachable!("plain numbers are not decoded"),
    }
}

/// The decoder to bf16 numbers, as they are.
pub fn to_bf16(coding: Coding) -> Decoder {
    match coding {
        Coding::Block(block) => match block {
            Block::Q8_0 => words::<Q8_0>,
            Block::Q4_0 => words::<Q4_0>,
            Block::Q4_1 => words::<Q4_1>,
            Block::Q5_0 => words::<Q5_0>,
            Block::Q5_1 => words::<Q5_1>,
            Block::Q4K => words::<Q4K>,
            Block::Q5K => words::<Q5K>,
            Block::Q6K => words::<Q6K>,
            Block::Iq4Nl => words::<Iq4Nl>,
            Block::Iq4Xs => words::<Iq4Xs>,
        },
        Coding::Scaled(Scaled { codes, .. }) => match codes {
            Codes::U4 | Codes::E2m1 => words::<Pairs>,
            Codes::U8 | Codes::I8 => words::<Bytes>,
            Codes::E4m3 => words::<E4m3>,
        },
        _ => unreachable!("plain numbers are not decoded"),
    }
}

/// Decodes to f32.
///
/// # Safety
///
/// The machine has AVX-512 and F16C.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
unsafe fn singles<D: Decode>(job: Job) {
    // SAFETY: the caller says so.
    unsafe { D::decode::<Singles>(job) }
}

/// Decodes to bf16.
///
/// # Safety
///
/// The machine has AVX512-BF16 and F16C.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,f16c")]
unsafe fn words<D: Decode>(job: Job) {
    // SAFETY: the caller says so.
    unsafe { D::decode::<Words>(job) }
}

/// A coding.
trait Decode {
    /// Decodes a part of a row.
    ///
    /// # Safety
    ///
    /// The machine has AVX-512, F16C and what `N` needs.
    unsafe fn decode<N: Number>(job: Job);
}

/// The codes themselves, as a table.
///
/// # Safety
///
/// The machine has AVX-512.
#[inline(always)]
unsafe fn counted() -> __m512 {
    // SAFETY: the caller says so.
    unsafe { _mm512_setr_ps(0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.) }
}

/// The half-precision number at `at`, in every lane.
///
/// # Safety
///
/// The machine has AVX-512. Two bytes can be read.
#[inline(always)]
unsafe fn half(at: *const u8) -> __m512 {
    // SAFETY: the caller says so.
    unsafe { _mm512_cvtph_ps(_mm256_set1_epi16(at.cast::<i16>().read_unaligned())) }
}

/// Thirty-two bytes at `at`.
///
/// # Safety
///
/// The machine has AVX2, and they can be read.
#[inline(always)]
unsafe fn load32(at: *const u8) -> __m256i {
    // SAFETY: the caller says so.
    unsafe { _mm256_loadu_si256(at.cast()) }
}

/// Sixteen bytes at `at`.
///
/// # Safety
///
/// They can be read.
#[inline(always)]
unsafe fn load16(at: *const u8) -> __m128i {
    // SAFETY: the caller says so.
    unsafe { _mm_loadu_si128(at.cast()) }
}

/// The 32 codes of four bits whose low bits are the first 16, one in each byte.
///
/// # Safety
///
/// The machine has AVX2. Sixteen bytes can be read.
#[inline(always)]
unsafe fn nibbles(at: *const u8) -> __m256i {
    // SAFETY: the caller says so.
    unsafe {
        let codes = load16(at);
        let both = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(codes), _mm_srli_epi16::<4>(codes));
        _mm256_and_si256(both, _mm256_set1_epi8(15))
    }
}

/// Both halves of 32 signed bytes.
///
/// # Safety
///
/// The machine has AVX-512.
#[inline(always)]
unsafe fn from_signed(bytes: __m256i) -> [__m512; 2] {
    // SAFETY: the caller says so.
    unsafe {
        [_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes)]
            .map(|bytes| _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)))
    }
}

/// Whole blocks, and where their numbers go.
fn blocks<'a, N: Number>(block: Block, job: Job<'a>) -> impl Iterator<Item = (&'a [u8], &'a mut [u8])> {
    let (numbers, bytes) = (block.numbers(), block.bytes());
    let codes = &job.row.codes[job.first / numbers * bytes..];
    codes.chunks_exact(bytes).zip(job.to.chunks_exact_mut(numbers * N::BYTES))
}

struct Q8_0;

impl Decode for Q8_0 {
    #[inline(always)]
    unsafe fn decode<N: Number>(job: Job) {
        for (block, to) in blocks::<N>(Block::Q8_0, job) {
            let at = block.as_ptr();
            // SAFETY: a block of 34 bytes, and room for its 32 numbers, by `blocks`.
            unsafe {
                let d = half(at);
                let [low, high] = from_signed(load32(at.add(2))).map(|q| _mm512_mul_ps(q, d));
                N::store(to.as_mut_ptr(), low, high);
            }
        }
    }
}

struct Q4_0;

impl Decode for Q4_0 {
    #[inline(always)]
    unsafe fn decode<N: Number>(job: Job) {
        // SAFETY: the caller says that the machine has AVX-512.
        let centred = unsafe { _mm512_sub_ps(counted(), _mm512_set1_ps(8.0)) };
        for (block, to) in blocks::<N>(Block::Q4_0, job) {
            let at = block.as_ptr();
            // SAFETY: a block of 18 bytes, and room for its 32 numbers, by `blocks`.
            unsafe {
                let table = N::table(_mm512_mul_ps(centred, half(at)));
                N::store_nibbles(to.as_mut_ptr(), load16(at.add(2)), table);
            }
        }
    }
}

struct Q4_1;

impl Decode for Q4_1 {
    #[inline(always)]
    unsafe fn decode<N: Number>(job: Job) {
        for (block, to) in blocks::<N>(Block::Q4_1, job) {
            let at = block.as_ptr();
            // SAFETY: a block of 20 bytes, and room for its 32 numbers, by `blocks`.
            unsafe {
                let table = N::table(_mm512_fmadd_ps(counted(), half(at), half(at.add(2))));
                N::store_nibbles(to.as_mut_ptr(), load16(at.add(4)), table);
            }
        }
    }
}

/// Thirty-two codes of five bits, the fifth ones apart.
///
/// # Safety
///
/// The machine has AVX-512. Twenty bytes can be read.
#[inline(always)]
unsafe fn five_bits(at: *const u8) -> __m256i {
    // SAFETY: the caller says so.
    unsafe {
        let low = nibbles(at.add(4));
        _mm256_mask_add_epi8(low, at.cast::<u32>().read_unaligned(), low, _mm256_set1_epi8(16))
    }
}

struct Q5_0;

impl Decode for Q5_0 {
    #[inline(always)]
    unsafe fn decode<N: Number>(job: Job) {
        for (block, to) in blocks::<N>(Block::Q5_0, job) {
            let at = block.as_ptr();
            // SAFETY: a block of 22 bytes, and room for its 32 numbers, by `blocks`.
            unsafe {
                let d = half(at);
                let codes = _mm256_sub_epi8(five_bits(at.add(2)), _mm256_set1_epi8(16));
                let [low, high] = from_signed(codes).map(|q| _mm512_mul_ps(q, d));
                N::store(to.as_mut_ptr(), low, high);
            }
        }
    }
}

struct Q5_1;

impl Decode for Q5_1 {
    #[inline(always)]
    unsafe fn decode<N: Number>(job: Job) {
        for (block, to) in blocks::<N>(Block::Q5_1, job) {
            let at = block.as_ptr();
            // SAFETY: a block of 24 bytes, and room for its 32 numbers, by `blocks`.
            unsafe {
                let (d, m) = (half(at), half(at.add(2)));
                let [low, high] = from_signed(five_bits(at.add(4))).map(|q| _mm512_fmadd_ps(q, d, m));
                N::store(to.as_mut_ptr(), low, high);
            }
        }
    }
}

/// Eight scales, then eight minima, of a block of [`Block::Q4K`] or [`Block::Q5K`].
///
/// # Safety
///
/// The machine has AVX-512. Sixteen bytes can be read.
#[inline(always)]
unsafe fn scales_and_mins(at: *const u8) -> [f32; 16] {
    // SAFETY: the caller says so.
    unsafe {
        let word = |i: usize| at.add(4 + 4 * i).cast::<u32>().read_unaligned();
        let [first, second, third] = [word(0), word(1), word(2)];
        // As `scale_and_min` for four of them at a time.
        let scales = [first & 0x3f3f_3f3f, third & 0x0f0f_0f0f | (first >> 6 & 0x0303_0303) << 4];
        let mins = [second & 0x3f3f_3f3f, third >> 4 & 0x0f0f_0f0f | (second >> 6 & 0x0303_0303) << 4];
        let codes = _mm_setr_epi32(
            scales[0].cast_signed(),
            scales[1].cast_signed(),
            mins[0].cast_signed(),
            mins[1].cast_signed(),
        );
        let codes = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(codes));
        let factors = _mm512_mask_blend_ps(0xff00, half(at), half(at.add(2)));
        let mut both = [0.0; 16];
        _mm512_storeu_ps(both.as_mut_ptr(), _mm512_mul_ps(codes, factors));
        both
    }
}

/// What codes stand for in the `j`-th 32 numbers of a block.
///
/// # Safety
///
/// The machine has AVX-512.
#[inline(always)]
unsafe fn k_table(both: &[f32; 16], j: usize) -> __m512 {
    // SAFETY: the caller says so.
    unsafe { _mm512_fmsub_ps(counted(), _mm512_set1_ps(both[j]), _mm512_set1_ps(both[8 + j])) }
}

struct Q4K;

impl Decode for Q4K {
    #[inline(always)]
    unsafe fn decode<N: Number>(job: Job) {
        for (block, to) in blocks::<N>(Block::Q4K, job) {
            let (at, to) = (block.as_ptr(), to.as_mut_ptr());
            // SAFETY: a block of 144 bytes, and room for its 256 numbers, by `blocks`.
            unsafe {
                let both = scales_and_mins(at);
                for pair in 0..4 {
                    let tables = [k_table(&both, 2 * pair), k_table(&both, 2 * pair + 1)];
                    N::store_halves(to.add(2 * pair * STEP * N::BYTES), load32(at.add(16 + 32 * pair)), tables);
                }
            }
        }
    }
}

struct Q5K;

impl Decode for Q5K {
    #[inline(always)]
    unsafe fn decode<N: Number>(job: Job) {
        for (block, to) in blocks::<N>(Block::Q5K, job) {
            let (at, to) = (block.as_ptr(), to.as_mut_ptr());
            // SAFETY: a block of 176 bytes, and room for its 256 numbers, by `blocks`.
            unsafe {
                let both = scales_and_mins(at);
                let fifth = load32(at.add(16));
                for j in 0..8 {
                    let codes = load32(at.add(48 + j / 2 * 32));
                    let codes = if j % 2 == 1 { _mm256_srli_epi16::<4>(codes) } else { codes };
                    let codes = _mm256_and_si256(codes, _mm256_set1_epi8(15));
                    let is_fifth = _mm256_test_epi8_mask(fifth, _mm256_set1_epi8((1u8 << j).cast_signed()));
                    let codes = _mm256_mask_add_epi8(codes, is_fifth, codes, _mm256_set1_epi8(16));
                    let (scale, min) = (_mm512_set1_ps(both[j]), _mm512_set1_ps(both[8 + j]));
                    let [low, high] = from_signed(codes).map(|q| _mm512_fmsub_ps(q, scale, min));
                    N::store(to.add(j * STEP * N::BYTES), low, high);
                }
            }
        }
    }
}

struct Q6K;

impl Decode for Q6K {
    #[inline(always)]
    unsafe fn decode<N: Number>(job: Job) {
        for (block, to) in blocks::<N>(Block::Q6K, job) {
            let (at, to) = (block.as_ptr(), to.as_mut_ptr());
            // SAFETY: a block of 210 bytes, and room for its 256 numbers, by `blocks`.
            unsafe {
                let mut scales = [0.0; 16];
                let codes = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load16(at.add(192))));
                _mm512_storeu_ps(scales.as_mut_ptr(), _mm512_mul_ps(codes, half(at.add(208))));
                for j in 0..8 {
                    let (part, quarter) = (j / 4, j % 4);
                    let low = load32(at.add(part * 64 + quarter % 2 * 32));
                    let low = if quarter / 2 == 1 { _mm256_srli_epi16::<4>(low) } else { low };
                    let high = load32(at.add(128 + part * 32));
                    // The two bits of the quarter go to bits 4 and 5.
                    let high = match quarter {
                        0 => _mm256_slli_epi16::<4>(high),
                        1 => _mm256_slli_epi16::<2>(high),
                        2 => high,
                        _ => _mm256_srli_epi16::<2>(high),
                    };
                    let low = _mm256_and_si256(low, _mm256_set1_epi8(0x0f));
                    let high = _mm256_and_si256(high, _mm256_set1_epi8(0x30));
                    let codes = _mm256_sub_epi8(_mm256_or_si256(low, high), _mm256_set1_epi8(32));
                    let [low, high] = from_signed(codes);
                    let low = _mm512_mul_ps(low, _mm512_set1_ps(scales[2 * j]));
                    let high = _mm512_mul_ps(high, _mm512_set1_ps(scales[2 * j + 1]));
                    N::store(to.add(j * STEP * N::BYTES), low, high);
                }
            }
        }
    }
}

struct Iq4Nl;

impl Decode for Iq4Nl {
    #[inline(always)]
    unsafe fn decode<N: Number>(job: Job) {
        let values = IQ4.map(f32::from);
        for (block, to) in blocks::<N>(Block::Iq4Nl, job) {
            let at = block.as_ptr();
            // SAFETY: a block of 18 bytes, and room for its 32 numbers, by `blocks`; the table has 16 numbers.
            unsafe {
                let table = N::table(_mm512_mul_ps(_mm512_loadu_ps(values.as_ptr()), half(at)));
                N::store_nibbles(to.as_mut_ptr(), load16(at.add(2)), table);
            }
        }
    }
}

struct Iq4Xs;

impl Decode for Iq4Xs {
    #[inline(always)]
    unsafe fn decode<N: Number>(job: Job) {
        let values = IQ4.map(f32::from);
        for (block, to) in blocks::<N>(Block::Iq4Xs, job) {
            let at = block.as_ptr();
            // SAFETY: a block of 136 bytes, and room for its 256 numbers, by `blocks`; the table has 16 numbers.
            unsafe {
                let (d, high) = (half(at), u32::from(at.add(2).cast::<u16>().read_unaligned()));
                let low = at.add(4).cast::<u32>().read_unaligned();
                for (j, to) in to.chunks_exact_mut(STEP * N::BYTES).enumerate() {
                    let scale = low >> (4 * j) & 15 | (high >> (2 * j) & 3) << 4;
                    let scale = _mm512_mul_ps(d, _mm512_set1_ps(scale.cast_signed() as f32 - 32.0));
                    let table = N::table(_mm512_mul_ps(_mm512_loadu_ps(values.as_ptr()), scale));
                    N::store_nibbles(to.as_mut_ptr(), load16(at.add(8 + j * 16)), table);
                }
            }
        }
    }
}

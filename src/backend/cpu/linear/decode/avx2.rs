//! Decoders of AVX2: codes become integers of 32 bits, then f32 numbers.
#![allow(unsafe_code)]

use super::scaled::{Walk, factors, scaled};
use super::{Decoder, Job};
use crate::backend::cpu::linear::kernels::STEP;
use crate::backend::{Block, Codes, Coding, E2M1, IQ4, Scaled, scale_and_min};
use std::arch::x86_64::*;

/// The decoder to f32 numbers. Codes of four bits that lie in pairs come in groups of 16: the even ones, then the odd ones.
pub fn to_f32(coding: Coding) -> Decoder {
    match coding {
        Coding::Block(block) => match block {
            Block::Q8_0 => q8_0,
            Block::Q4_0 => q4_0,
            Block::Q4_1 => q4_1,
            Block::Q5_0 => q5_0,
            Block::Q5_1 => q5_1,
            Block::Q4K => q4_k,
            Block::Q5K => q5_k,
            Block::Q6K => q6_k,
            Block::Iq4Nl => iq4_nl,
            Block::Iq4Xs => iq4_xs,
        },
        Coding::Scaled(Scaled { codes, .. }) => match codes {
            Codes::U4 => pairs_of_integers,
            Codes::E2m1 => pairs_of_floats,
            Codes::U8 | Codes::I8 => bytes,
            Codes::E4m3 => e4m3,
        },
        _ => unreachable!("plain numbers are not decoded"),
    }
}

/// Bytes of 32 decoded numbers.
const TO: usize = STEP * 4;

/// Whole blocks, and where their numbers go.
fn blocks<'a>(block: Block, job: Job<'a>) -> impl Iterator<Item = (&'a [u8], &'a mut [u8])> {
    let (numbers, bytes) = (block.numbers(), block.bytes());
    let codes = &job.row.codes[job.first / numbers * bytes..];
    codes.chunks_exact(bytes).zip(job.to.chunks_exact_mut(numbers * 4))
}

/// Writes 32 numbers.
///
/// # Safety
///
/// The machine has AVX2, and `to` has room.
#[inline(always)]
unsafe fn store(to: *mut u8, numbers: [__m256; 4]) {
    for (i, numbers) in numbers.into_iter().enumerate() {
        // SAFETY: the caller says so.
        unsafe { _mm256_storeu_ps(to.add(32 * i).cast(), numbers) };
    }
}

/// The half-precision number at `at`, in every lane.
///
/// # Safety
///
/// The machine has AVX2 and F16C, and two bytes can be read.
#[inline(always)]
unsafe fn half(at: *const u8) -> __m256 {
    // SAFETY: the caller says so.
    unsafe { _mm256_cvtph_ps(_mm_set1_epi16(at.cast::<i16>().read_unaligned())) }
}

/// The number of the first lane.
///
/// # Safety
///
/// The machine has AVX2.
#[inline(always)]
unsafe fn first(numbers: __m256) -> f32 {
    // SAFETY: the caller says so.
    unsafe { _mm256_cvtss_f32(numbers) }
}

/// Eight bytes at `at`, each in 32 bits.
///
/// # Safety
///
/// The machine has AVX2, and they can be read.
#[inline(always)]
unsafe fn eight(at: *const u8) -> __m256i {
    // SAFETY: the caller says so.
    unsafe { _mm256_cvtepu8_epi32(_mm_loadl_epi64(at.cast())) }
}

/// Eight signed bytes at `at`, each in 32 bits.
///
/// # Safety
///
/// The machine has AVX2, and they can be read.
#[inline(always)]
unsafe fn signed(at: *const u8) -> __m256i {
    // SAFETY: the caller says so.
    unsafe { _mm256_cvtepi8_epi32(_mm_loadl_epi64(at.cast())) }
}

/// The low four bits, or with `HIGH` the high ones, of the 16 bytes at `at`, as numbers.
///
/// # Safety
///
/// The machine has AVX2, and they can be read.
#[inline(always)]
unsafe fn nibbles<const HIGH: bool>(at: *const u8) -> [__m256; 2] {
    // SAFETY: the caller says so.
    unsafe {
        [eight(at), eight(at.add(8))].map(|bytes| {
            let codes =
                if HIGH { _mm256_srli_epi32::<4>(bytes) } else { _mm256_and_si256(bytes, _mm256_set1_epi32(15)) };
            _mm256_cvtepi32_ps(codes)
        })
    }
}

/// `scale * number + offset` of the 32 codes of four bits at `at`, of which the low bits are the first 16.
///
/// # Safety
///
/// The machine has AVX2 and FMA. Sixteen bytes can be read, and `to` has room.
#[inline(always)]
unsafe fn store_nibbles(to: *mut u8, at: *const u8, scale: __m256, offset: __m256) {
    // SAFETY: the caller says so.
    unsafe {
        let ([a, b], [c, d]) = (nibbles::<false>(at), nibbles::<true>(at));
        store(to, [a, b, c, d].map(|q| _mm256_fmadd_ps(q, scale, offset)));
    }
}

/// 32 signed bytes as numbers.
///
/// # Safety
///
/// The machine has AVX2.
#[inline(always)]
unsafe fn from_signed(bytes: __m256i) -> [__m256; 4] {
    // SAFETY: the caller says so.
    unsafe {
        let (low, high) = (_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes));
        [low, _mm_srli_si128::<8>(low), high, _mm_srli_si128::<8>(high)]
            .map(|bytes| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)))
    }
}

/// # Safety
///
/// As [`Decoder`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn q8_0(job: Job) {
    for (block, to) in blocks(Block::Q8_0, job) {
        // SAFETY: a block of 34 bytes, and room for its 32 numbers, by `blocks`.
        unsafe {
            let (d, at) = (half(block.as_ptr()), block.as_ptr().add(2));
            let codes = [signed(at), signed(at.add(8)), signed(at.add(16)), signed(at.add(24))];
            store(to.as_mut_ptr(), codes.map(|q| _mm256_mul_ps(_mm256_cvtepi32_ps(q), d)));
        }
    }
}

/// # Safety
///
/// As [`Decoder`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn q4_0(job: Job) {
    for (block, to) in blocks(Block::Q4_0, job) {
        // SAFETY: a block of 18 bytes, and room for its 32 numbers, by `blocks`. All products and the sum are exact.
        unsafe {
            let d = half(block.as_ptr());
            store_nibbles(to.as_mut_ptr(), block.as_ptr().add(2), d, _mm256_mul_ps(d, _mm256_set1_ps(-8.0)));
        }
    }
}

/// # Safety
///
/// As [`Decoder`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn q4_1(job: Job) {
    for (block, to) in blocks(Block::Q4_1, job) {
        // SAFETY: a block of 20 bytes, and room for its 32 numbers, by `blocks`.
        unsafe {
            let (d, m) = (half(block.as_ptr()), half(block.as_ptr().add(2)));
            store_nibbles(to.as_mut_ptr(), block.as_ptr().add(4), d, m);
        }
    }
}

/// `scale * number + offset` of 32 codes of five bits: four bytes with the fifth ones, then the others.
///
/// # Safety
///
/// The machine has AVX2 and FMA. Twenty bytes can be read, and `to` has room.
#[inline(always)]
unsafe fn store_five_bits(to: *mut u8, at: *const u8, scale: __m256, offset: __m256) {
    // SAFETY: the caller says so.
    unsafe {
        let fifths = _mm256_set1_epi32(at.cast::<i32>().read_unaligned());
        let (first, second, low) = (eight(at.add(4)), eight(at.add(12)), _mm256_set1_epi32(15));
        let codes = [
            fifth::<0>(_mm256_and_si256(first, low), fifths),
            fifth::<8>(_mm256_and_si256(second, low), fifths),
            fifth::<16>(_mm256_srli_epi32::<4>(first), fifths),
            fifth::<24>(_mm256_srli_epi32::<4>(second), fifths),
        ];
        store(to, codes.map(|code| _mm256_fmadd_ps(_mm256_cvtepi32_ps(code), scale, offset)));
    }
}

/// `codes` with the bits of `fifths` from `FIRST` on for their fifth ones.
///
/// # Safety
///
/// The machine has AVX2.
#[inline(always)]
unsafe fn fifth<const FIRST: i32>(codes: __m256i, fifths: __m256i) -> __m256i {
    // SAFETY: the caller says so.
    unsafe {
        let places = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(FIRST));
        let fifth = _mm256_and_si256(_mm256_srlv_epi32(fifths, places), _mm256_set1_epi32(1));
        _mm256_or_si256(codes, _mm256_slli_epi32::<4>(fifth))
    }
}

/// # Safety
///
/// As [`Decoder`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn q5_0(job: Job) {
    for (block, to) in blocks(Block::Q5_0, job) {
        // SAFETY: a block of 22 bytes, and room for its 32 numbers, by `blocks`. All products and the sum are exact.
        unsafe {
            let d = half(block.as_ptr());
            store_five_bits(to.as_mut_ptr(), block.as_ptr().add(2), d, _mm256_mul_ps(d, _mm256_set1_ps(-16.0)));
        }
    }
}

/// # Safety
///
/// As [`Decoder`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn q5_1(job: Job) {
    for (block, to) in blocks(Block::Q5_1, job) {
        // SAFETY: a block of 24 bytes, and room for its 32 numbers, by `blocks`.
        unsafe {
            let (d, m) = (half(block.as_ptr()), half(block.as_ptr().add(2)));
            store_five_bits(to.as_mut_ptr(), block.as_ptr().add(4), d, m);
        }
    }
}

/// The scale and the minimum of each 32 numbers of a block of [`Block::Q4K`] or [`Block::Q5K`].
///
/// # Safety
///
/// The machine has F16C.
#[inline(always)]
unsafe fn scales_and_mins(block: &[u8]) -> [(f32, f32); 8] {
    // SAFETY: the caller says so; a block is longer.
    let (d, e) = unsafe { (first(half(block.as_ptr())), first(half(block.as_ptr().add(2)))) };
    std::array::from_fn(|j| {
        let (scale, min) = scale_and_min(&block[4..16], j);
        (d * f32::from(scale), e * f32::from(min))
    })
}

/// # Safety
///
/// As [`Decoder`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn q4_k(job: Job) {
    for (block, to) in blocks(Block::Q4K, job) {
        // SAFETY: a block of 144 bytes, and room for its 256 numbers, by `blocks`.
        unsafe {
            let factors = scales_and_mins(block);
            for pair in 0..4 {
                let (at, to) = (block.as_ptr().add(16 + 32 * pair), to.as_mut_ptr().add(2 * pair * TO));
                let number = |q: [__m256; 2], (scale, min): (f32, f32)| {
                    q.map(|q| _mm256_fmsub_ps(q, _mm256_set1_ps(scale), _mm256_set1_ps(min)))
                };
                let (low, high) = (factors[2 * pair], factors[2 * pair + 1]);
                let [a, b] = number(nibbles::<false>(at), low);
                let [c, d] = number(nibbles::<false>(at.add(16)), low);
                store(to, [a, b, c, d]);
                let [a, b] = number(nibbles::<true>(at), high);
                let [c, d] = number(nibbles::<true>(at.add(16)), high);
                store(to.add(TO), [a, b, c, d]);
            }
        }
    }
}

/// # Safety
///
/// As [`Decoder`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn q5_k(job: Job) {
    for (block, to) in blocks(Block::Q5K, job) {
        // SAFETY: a block of 176 bytes, and room for its 256 numbers, by `blocks`.
        unsafe {
            let factors = scales_and_mins(block);
            let fifths = _mm256_loadu_si256(block.as_ptr().add(16).cast());
            for (j, (scale, min)) in factors.into_iter().enumerate() {
                let codes = _mm256_loadu_si256(block.as_ptr().add(48 + j / 2 * 32).cast());
                let codes = if j % 2 == 1 { _mm256_srli_epi16::<4>(codes) } else { codes };
                let bit = _mm256_set1_epi8((1u8 << j).cast_signed());
                let is_fifth = _mm256_cmpeq_epi8(_mm256_and_si256(fifths, bit), bit);
                let codes = _mm256_and_si256(codes, _mm256_set1_epi8(15));
                let codes = _mm256_or_si256(codes, _mm256_and_si256(is_fifth, _mm256_set1_epi8(16)));
                let number = |q| _mm256_fmsub_ps(q, _mm256_set1_ps(scale), _mm256_set1_ps(min));
                store(to.as_mut_ptr().add(j * TO), from_signed(codes).map(number));
            }
        }
    }
}

/// # Safety
///
/// As [`Decoder`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn q6_k(job: Job) {
    for (block, to) in blocks(Block::Q6K, job) {
        let at = block.as_ptr();
        // SAFETY: a block of 210 bytes, and room for its 256 numbers, by `blocks`.
        unsafe {
            let d = first(half(at.add(208)));
            for j in 0..8 {
                let (part, quarter) = (j / 4, j % 4);
                let low = _mm256_loadu_si256(at.add(part * 64 + quarter % 2 * 32).cast());
                let low = if quarter / 2 == 1 { _mm256_srli_epi16::<4>(low) } else { low };
                let high = _mm256_loadu_si256(at.add(128 + part * 32).cast());
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
                let scale = |i: usize| _mm256_set1_ps(d * f32::from(block[192 + 2 * j + i].cast_signed()));
                let (first, second, [a, b, c, e]) = (scale(0), scale(1), from_signed(codes));
                let numbers = [(a, first), (b, first), (c, second), (e, second)].map(|(q, s)| _mm256_mul_ps(q, s));
                store(to.as_mut_ptr().add(j * TO), numbers);
            }
        }
    }
}

/// `scale` times what the 32 codes of four bits at `at`, of which the low bits are the first 16, stand for in [`IQ4`].
///
/// # Safety
///
/// The machine has AVX2. Sixteen bytes can be read, and `to` has room.
#[inline(always)]
unsafe fn store_iq4(to: *mut u8, at: *const u8, scale: __m256) {
    // SAFETY: the caller says so; the table has 16 bytes.
    unsafe {
        let (codes, table) = (_mm_loadu_si128(at.cast()), _mm_loadu_si128(IQ4.as_ptr().cast()));
        let both = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(codes), _mm_srli_epi16::<4>(codes));
        let both = _mm256_and_si256(both, _mm256_set1_epi8(15));
        let bytes = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), both);
        store(to, from_signed(bytes).map(|q| _mm256_mul_ps(q, scale)));
    }
}

/// # Safety
///
/// As [`Decoder`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn iq4_nl(job: Job) {
    for (block, to) in blocks(Block::Iq4Nl, job) {
        // SAFETY: a block of 18 bytes, and room for its 32 numbers, by `blocks`.
        unsafe { store_iq4(to.as_mut_ptr(), block.as_ptr().add(2), half(block.as_ptr())) };
    }
}

/// # Safety
///
/// As [`Decoder`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn iq4_xs(job: Job) {
    for (block, to) in blocks(Block::Iq4Xs, job) {
        let high = u32::from(block[2]) | u32::from(block[3]) << 8;
        for (j, to) in to.chunks_exact_mut(TO).enumerate() {
            let scale = u32::from(block[4 + j / 2]) >> (j % 2 * 4) & 15 | (high >> (2 * j) & 3) << 4;
            // SAFETY: a block of 136 bytes, and room for its numbers, by `blocks`.
            unsafe {
                let scale = _mm256_mul_ps(half(block.as_ptr()), _mm256_set1_ps(scale as f32 - 32.0));
                store_iq4(to.as_mut_ptr(), block.as_ptr().add(8 + 16 * j), scale);
            }
        }
    }
}

/// The numbers `(code - zero) * scale` of pairs: of each 16 the even ones, then the odd ones. `number` gives what a code in the low four bits of
/// a lane stands for, whatever lies above them.
macro_rules! pairs {
    ($name:ident, $number:expr) => {
        /// # Safety
        ///
        /// As [`Decoder`].
        #[target_feature(enable = "avx2,fma,f16c")]
        unsafe fn $name(job: Job) {
            let scaled = scaled(job.coding);
            // SAFETY: the caller says that the machine has F16C.
            let factors = unsafe { factors(scaled, &job) };
            let mut walk = Walk::new(scaled, job);
            for group in 0..factors.count {
                let (scale, zero) = (_mm256_set1_ps(factors.scales[group]), _mm256_set1_ps(factors.zeros[group]));
                for _ in 0..walk.steps_of_group() {
                    // SAFETY: `Walk` has 16 bytes of codes for each step, and room for its numbers.
                    unsafe {
                        let (first, second) = (eight(walk.codes), eight(walk.codes.add(8)));
                        let codes = [first, _mm256_srli_epi32::<4>(first), second, _mm256_srli_epi32::<4>(second)];
                        let number = |code| _mm256_mul_ps(_mm256_sub_ps($number(code), zero), scale);
                        store(walk.to, codes.map(number));
                    }
                    walk.advance(STEP / 2, TO);
                }
            }
        }
    };
}

pairs!(pairs_of_integers, |code| _mm256_cvtepi32_ps(_mm256_and_si256(code, _mm256_set1_epi32(15))));
pairs!(pairs_of_floats, |code| {
    // An index is the low three bits of a lane, and the fourth is the sign.
    let sign = _mm256_and_si256(_mm256_slli_epi32::<28>(code), _mm256_set1_epi32(i32::MIN));
    let magnitude = _mm256_permutevar8x32_ps(_mm256_loadu_ps(E2M1.as_ptr()), code);
    _mm256_xor_ps(magnitude, _mm256_castsi256_ps(sign))
});

/// # Safety
///
/// As [`Decoder`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn bytes(job: Job) {
    let scaled = scaled(job.coding);
    // SAFETY: the caller says that the machine has F16C.
    let factors = unsafe { factors(scaled, &job) };
    let (is_unsigned, has_zero) = (scaled.codes == Codes::U8, scaled.zeros || scaled.codes.zero() != 0.0);
    let mut walk = Walk::new(scaled, job);
    for group in 0..factors.count {
        let (scale, zero) = (_mm256_set1_ps(factors.scales[group]), _mm256_set1_ps(factors.zeros[group]));
        for _ in 0..walk.steps_of_group() {
            let at = walk.codes;
            // SAFETY: `Walk` has 32 bytes of codes for each step, and room for its numbers.
            unsafe {
                let codes = match is_unsigned {
                    true => [eight(at), eight(at.add(8)), eight(at.add(16)), eight(at.add(24))],
                    false => [signed(at), signed(at.add(8)), signed(at.add(16)), signed(at.add(24))],
                };
                let mut numbers = codes.map(|code| _mm256_cvtepi32_ps(code));
                if has_zero {
                    numbers = numbers.map(|q| _mm256_sub_ps(q, zero));
                }
                store(walk.to, numbers.map(|q| _mm256_mul_ps(q, scale)));
            }
            walk.advance(STEP, TO);
        }
    }
}

/// # Safety
///
/// As [`Decoder`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn e4m3(job: Job) {
    let scaled = scaled(job.coding);
    // SAFETY: the caller says that the machine has F16C.
    let factors = unsafe { factors(scaled, &job) };
    let (magnitude, nan) = (_mm256_castsi256_ps(_mm256_set1_epi32(i32::MAX)), _mm256_set1_ps(480.0));
    let mut walk = Walk::new(scaled, job);
    for group in 0..factors.count {
        let scale = _mm256_set1_ps(factors.scales[group]);
        for _ in 0..walk.steps_of_group() {
            // SAFETY: `Walk` has 32 bytes of codes for each step, and room for its numbers.
            unsafe {
                let halves = |at: *const u8| {
                    // Moved by a bit, and with the sign back in its place, a code is a half of 1/256 of its number.
                    let words = _mm256_slli_epi16::<8>(_mm256_cvtepu8_epi16(_mm_loadu_si128(at.cast())));
                    _mm256_and_si256(_mm256_srai_epi16::<1>(words), _mm256_set1_epi16(0xbf80_u16.cast_signed()))
                };
                let (first, second) = (halves(walk.codes), halves(walk.codes.add(16)));
                let numbers = [
                    _mm256_castsi256_si128(first),
                    _mm256_extracti128_si256::<1>(first),
                    _mm256_castsi256_si128(second),
                    _mm256_extracti128_si256::<1>(second),
                ];
                let number = |half| {
                    let number = _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256.0));
                    // The greatest magnitude is that of no number.
                    let is_nan = _mm256_cmp_ps::<_CMP_EQ_OQ>(_mm256_and_ps(number, magnitude), nan);
                    _mm256_mul_ps(_mm256_or_ps(number, is_nan), scale)
                };
                store(walk.to, numbers.map(number));
            }
            walk.advance(STEP, TO);
        }
    }
}

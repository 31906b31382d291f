//! Decoders of AVX-512: a code of four bits names one of the 16 numbers of a table, other codes are converted.
//!
//! Where the instruction set multiplies bf16 numbers, they are rounded in registers.
#![allow(unsafe_code)]

mod blocks_of_256;
mod codes;
mod number;

use super::{Decoder, Job, PIECE};
use crate::backend::cpu::linear::kernels::STEP;
use crate::backend::{Block, Coding, IQ4};
pub use blocks_of_256::{Iq4Xs, Q4K, Q5K, Q6K};
pub use codes::{Bytes, E4m3, Pairs};
use number::Singles;
pub use number::{Number, Words};
use std::arch::asm;
use std::arch::x86_64::*;

/// `$function::<D>` for the decoder `D` of `$coding`.
macro_rules! by_coding {
    ($coding:expr, $function:ident) => {{
        use $crate::backend::cpu::linear::decode::avx512 as decoders;
        use $crate::backend::{Block, Codes, Coding, Scaled};
        match $coding {
            Coding::Block(block) => match block {
                Block::Q8_0 => $function::<decoders::Q8_0>,
                Block::Q4_0 => $function::<decoders::Q4_0>,
                Block::Q4_1 => $function::<decoders::Q4_1>,
                Block::Q5_0 => $function::<decoders::Q5_0>,
                Block::Q5_1 => $function::<decoders::Q5_1>,
                Block::Q4K => $function::<decoders::Q4K>,
                Block::Q5K => $function::<decoders::Q5K>,
                Block::Q6K => $function::<decoders::Q6K>,
                Block::Iq4Nl => $function::<decoders::Iq4Nl>,
                Block::Iq4Xs => $function::<decoders::Iq4Xs>,
            },
            Coding::Scaled(Scaled { codes, .. }) => match codes {
                Codes::U4 | Codes::E2m1 => $function::<decoders::Pairs>,
                Codes::U8 | Codes::I8 => $function::<decoders::Bytes>,
                Codes::E4m3 => $function::<decoders::E4m3>,
            },
            _ => unreachable!("plain numbers are not decoded"),
        }
    }};
}
pub(in crate::backend::cpu::linear) use by_coding;

/// The decoder to f32 numbers. Codes of four bits that lie in pairs come in groups of 32: the even ones, then the odd ones.
pub fn to_f32(coding: Coding) -> Decoder {
    by_coding!(coding, singles)
}

/// The decoder to bf16 numbers, as they are.
pub fn to_bf16(coding: Coding) -> Decoder {
    by_coding!(coding, words)
}

/// Decodes to f32.
///
/// # Safety
///
/// The machine has AVX-512 and F16C.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
unsafe fn singles<D: Decode>(job: Job) {
    // SAFETY: the caller says so.
    unsafe { decode_steps::<D, Singles>(job) }
}

/// Decodes to bf16.
///
/// # Safety
///
/// The machine has AVX512-BF16 and F16C.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,f16c")]
unsafe fn words<D: Decode>(job: Job) {
    // SAFETY: the caller says so.
    unsafe { decode_steps::<D, Words>(job) }
}

/// Decodes whole steps, one after another.
///
/// # Panics
///
/// If the row is too short.
///
/// # Safety
///
/// The machine has AVX-512, F16C and what `N` needs.
#[inline(always)]
unsafe fn decode_steps<D: Decode, N: Number>(job: Job) {
    let Job { coding, row, first, to, .. } = job;
    let step_bytes = STEP * N::BYTES;
    let steps = to.len() / step_bytes;
    let end = first + steps * STEP;
    assert!(row.codes.len() >= coding.row_bytes(end));
    assert!(row.scales.len() >= coding.scale_bytes(end) && row.zeros.len() >= coding.zero_bytes(end));
    let row = Planes { codes: row.codes.as_ptr(), scales: row.scales.as_ptr(), zeros: row.zeros.as_ptr() };
    // SAFETY: the assertions found the row's bytes, and `to` has room for the steps.
    unsafe { decode_part::<D, N>(coding, row, first, steps, Places { at: to.as_mut_ptr(), stride: step_bytes }) }
}

/// Where the bytes of a row lie: see [`ScaledRow`](crate::backend::ScaledRow).
#[derive(Clone, Copy)]
pub struct Planes {
    pub codes: *const u8,
    pub scales: *const u8,
    pub zeros: *const u8,
}

/// Where decoded steps go.
#[derive(Clone, Copy)]
pub struct Places {
    /// The place of the first one.
    pub at: *mut u8,
    /// Bytes from one step to the next.
    pub stride: usize,
}

impl Places {
    /// The place of step `step`.
    #[inline(always)]
    fn step(self, step: usize) -> *mut u8 {
        self.at.wrapping_add(step * self.stride)
    }

    /// The places from step `step` on.
    #[inline(always)]
    fn from(self, step: usize) -> Places {
        Places { at: self.step(step), ..self }
    }
}

/// Steps that a decoder takes at once: [`PIECE`] numbers.
pub const PIECE_STEPS: usize = PIECE / STEP;

/// Decodes `steps` steps of a row from number `first` on, a multiple of [`PIECE`].
///
/// # Safety
///
/// The machine has AVX-512, F16C and what `N` needs. The row has these steps, whole blocks, and there are as many places.
#[inline(always)]
pub unsafe fn decode_part<D: Decode, N: Number>(coding: Coding, row: Planes, first: usize, steps: usize, to: Places) {
    // SAFETY: the caller says so.
    unsafe {
        let whole = steps / PIECE_STEPS * PIECE_STEPS;
        for step in (0..whole).step_by(PIECE_STEPS) {
            D::decode::<N, PIECE_STEPS>(coding, row, first + step * STEP, to.from(step));
        }
        for step in whole..steps {
            D::decode::<N, 1>(coding, row, first + step * STEP, to.from(step));
        }
    }
}

/// A coding.
pub trait Decode {
    /// Decodes `STEPS` steps of a row from number `first` on: [`PIECE_STEPS`], or 1 where blocks are no longer.
    ///
    /// # Safety
    ///
    /// As [`decode_part`].
    unsafe fn decode<N: Number, const STEPS: usize>(coding: Coding, row: Planes, first: usize, to: Places);
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
        // No closures: they do not always become part of a function with these instructions.
        let (low, high) = (_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes));
        [_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(low)), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(high))]
    }
}

/// `COUNT` half-precision numbers from `at` on, `stride` bytes apart, as f32 numbers in memory: an instruction that takes one of them into
/// every lane then needs no other.
///
/// # Safety
///
/// The machine has F16C, and they can be read.
#[inline(always)]
unsafe fn halves<const COUNT: usize>(at: *const u8, stride: usize) -> Singly<COUNT> {
    let mut numbers = Singly([0.0; COUNT]);
    for (four, to) in numbers.0.chunks_mut(4).enumerate() {
        let mut bits = 0u64;
        for i in 0..to.len() {
            // SAFETY: the caller says so.
            bits |= u64::from(unsafe { at.add((4 * four + i) * stride).cast::<u16>().read_unaligned() }) << (16 * i);
        }
        // SAFETY: the caller says that the machine has F16C.
        let singles: [f32; 4] = unsafe { std::mem::transmute(_mm_cvtph_ps(_mm_cvtsi64_si128(bits.cast_signed()))) };
        to.copy_from_slice(&singles[..to.len()]);
    }
    numbers
}

/// Numbers in memory of which each is wanted in every lane of a vector.
#[repr(align(64))]
struct Singly<const COUNT: usize>([f32; COUNT]);

impl<const COUNT: usize> Singly<COUNT> {
    /// Number `i` in every lane, from memory. The compiler would load several numbers at once and spread each from a register, which takes
    /// the port of shuffles.
    ///
    /// # Safety
    ///
    /// The machine has AVX-512.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn all(&self, i: usize) -> __m512 {
        let at: *const f32 = &self.0[i];
        let lanes;
        // SAFETY: the caller says that the machine has AVX-512; the number is there.
        unsafe {
            asm!("vbroadcastss {}, dword ptr [{}]", lateout(zmm_reg) lanes, in(reg) at, options(pure, readonly, nostack, preserves_flags));
        }
        lanes
    }
}

/// The bytes of `block` from number `first` of a row on.
///
/// # Safety
///
/// The row has them.
#[inline(always)]
unsafe fn block_at(block: Block, row: Planes, first: usize) -> *const u8 {
    // SAFETY: the caller says so.
    unsafe { row.codes.add(first / block.numbers() * block.bytes()) }
}

pub struct Q8_0;

impl Decode for Q8_0 {
    #[inline(always)]
    unsafe fn decode<N: Number, const STEPS: usize>(_: Coding, row: Planes, first: usize, to: Places) {
        const BYTES: usize = Block::Q8_0.bytes();
        // SAFETY: the caller says that the row has `STEPS` blocks of 34 bytes, and that there are as many places.
        unsafe {
            let at = block_at(Block::Q8_0, row, first);
            let d = halves::<STEPS>(at, BYTES);
            for step in 0..STEPS {
                let codes = at.add(step * BYTES + 2);
                let (low, high) = (_mm512_cvtepi8_epi32(load16(codes)), _mm512_cvtepi8_epi32(load16(codes.add(16))));
                let (low, high, d) = (_mm512_cvtepi32_ps(low), _mm512_cvtepi32_ps(high), d.all(step));
                let (low, high) = (_mm512_mul_ps(low, d), _mm512_mul_ps(high, d));
                N::store(to.step(step), low, high);
            }
        }
    }
}

/// Decodes blocks of 32 codes of four bits, of which each names a number of a table that is `values` times the block's scale.
///
/// # Safety
///
/// As [`Decode::decode`].
#[inline(always)]
unsafe fn scaled_tables<N: Number, const STEPS: usize>(at: *const u8, to: Places, values: __m512) {
    const BYTES: usize = Block::Q4_0.bytes();
    const { assert!(Block::Iq4Nl.bytes() == BYTES) };
    // SAFETY: the caller says that there are `STEPS` blocks of 18 bytes, and as many places.
    unsafe {
        let d = halves::<STEPS>(at, BYTES);
        let (pairs, _) = (STEPS / 2, STEPS % 2);
        for step in (0..2 * pairs).step_by(2) {
            let tables = [_mm512_mul_ps(values, d.all(step)), _mm512_mul_ps(values, d.all(step + 1))];
            let codes = [load16(at.add(step * BYTES + 2)), load16(at.add((step + 1) * BYTES + 2))];
            N::store_two_nibbles([to.step(step), to.step(step + 1)], codes, tables);
        }
        for step in 2 * pairs..STEPS {
            let table = N::table(_mm512_mul_ps(values, d.all(step)));
            N::store_nibbles(to.step(step), load16(at.add(step * BYTES + 2)), table);
        }
    }
}

pub struct Q4_0;

impl Decode for Q4_0 {
    #[inline(always)]
    unsafe fn decode<N: Number, const STEPS: usize>(_: Coding, row: Planes, first: usize, to: Places) {
        // SAFETY: the caller says that the machine has AVX-512 and that the row has these blocks.
        unsafe {
            let centred = _mm512_sub_ps(counted(), _mm512_set1_ps(8.0));
            scaled_tables::<N, STEPS>(block_at(Block::Q4_0, row, first), to, centred);
        }
    }
}

pub struct Q4_1;

impl Decode for Q4_1 {
    #[inline(always)]
    unsafe fn decode<N: Number, const STEPS: usize>(_: Coding, row: Planes, first: usize, to: Places) {
        const BYTES: usize = Block::Q4_1.bytes();
        // SAFETY: the caller says that the row has `STEPS` blocks of 20 bytes, and that there are as many places.
        unsafe {
            let at = block_at(Block::Q4_1, row, first);
            let (d, m) = (halves::<STEPS>(at, BYTES), halves::<STEPS>(at.add(2), BYTES));
            for step in 0..STEPS {
                let table = N::table(_mm512_fmadd_ps(counted(), d.all(step), m.all(step)));
                N::store_nibbles(to.step(step), load16(at.add(step * BYTES + 4)), table);
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

pub struct Q5_0;

impl Decode for Q5_0 {
    #[inline(always)]
    unsafe fn decode<N: Number, const STEPS: usize>(_: Coding, row: Planes, first: usize, to: Places) {
        const BYTES: usize = Block::Q5_0.bytes();
        // SAFETY: the caller says that the row has `STEPS` blocks of 22 bytes, and that there are as many places.
        unsafe {
            let at = block_at(Block::Q5_0, row, first);
            let d = halves::<STEPS>(at, BYTES);
            for step in 0..STEPS {
                let codes = _mm256_sub_epi8(five_bits(at.add(step * BYTES + 2)), _mm256_set1_epi8(16));
                let ([low, high], d) = (from_signed(codes), d.all(step));
                N::store(to.step(step), _mm512_mul_ps(low, d), _mm512_mul_ps(high, d));
            }
        }
    }
}

pub struct Q5_1;

impl Decode for Q5_1 {
    #[inline(always)]
    unsafe fn decode<N: Number, const STEPS: usize>(_: Coding, row: Planes, first: usize, to: Places) {
        const BYTES: usize = Block::Q5_1.bytes();
        // SAFETY: the caller says that the row has `STEPS` blocks of 24 bytes, and that there are as many places.
        unsafe {
            let at = block_at(Block::Q5_1, row, first);
            let (d, m) = (halves::<STEPS>(at, BYTES), halves::<STEPS>(at.add(2), BYTES));
            for step in 0..STEPS {
                let codes = from_signed(five_bits(at.add(step * BYTES + 4)));
                let ([low, high], d, m) = (codes, d.all(step), m.all(step));
                N::store(to.step(step), _mm512_fmadd_ps(low, d, m), _mm512_fmadd_ps(high, d, m));
            }
        }
    }
}

/// [`IQ4`] as f32 numbers.
const IQ4_VALUES: [f32; 16] = {
    let (mut values, mut i) = ([0.0; 16], 0);
    while i < values.len() {
        values[i] = IQ4[i] as f32;
        i += 1;
    }
    values
};

pub struct Iq4Nl;

impl Decode for Iq4Nl {
    #[inline(always)]
    unsafe fn decode<N: Number, const STEPS: usize>(_: Coding, row: Planes, first: usize, to: Places) {
        // SAFETY: the caller says that the machine has AVX-512 and that the row has these blocks; the table has 16 numbers.
        unsafe {
            let values = _mm512_loadu_ps(IQ4_VALUES.as_ptr());
            scaled_tables::<N, STEPS>(block_at(Block::Iq4Nl, row, first), to, values);
        }
    }
}

//! Codes whose scales lie apart from them: the matrices of quantized folders.
//!
//! Readers of AWQ, GPTQ, compressed-tensors, FP8 and MXFP4 bring their tensors into this form; where the file already has it, nothing is
//! copied.

use super::float::{from_bf16, from_f16};

/// Codes in groups that share a scale: `(code - zero) * scale`, computed in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scaled {
    /// The codes of a row.
    pub codes: Codes,
    /// The scales of a row, one for each group.
    pub scales: Scales,
    /// Consecutive numbers of a row that share a scale, a multiple of [`Scaled::STEP`]; [`Scaled::ROW`] where the whole row does. The last group
    /// of a row may be shorter.
    pub group: usize,
    /// Whether each group has a zero of its own, an unsigned byte in a third plane. Otherwise [`Codes::zero`] is the zero of all.
    pub zeros: bool,
}

/// How a code is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codes {
    /// Unsigned integers of 4 bits, the first of two in the low bits.
    U4,
    /// Unsigned integers of 8 bits.
    U8,
    /// Signed integers of 8 bits.
    I8,
    /// OCP E4M3 without infinities: a sign, four bits of exponent with bias 7, three of mantissa.
    E4m3,
    /// OCP E2M1, the first of two in the low bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6, then the same negative.
    E2m1,
}

/// How a scale is written, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scales {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper halves of single precision numbers.
    Bf16,
    /// OCP E8M0: byte `e` is `2^(e - 127)`, and 255 is no number.
    E8m0,
}

/// What the codes of [`Codes::E2m1`] stand for.
pub const E2M1: [f32; 16] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// A row of a scaled matrix, or a part of one that begins at a group.
#[derive(Clone, Copy, Debug)]
pub struct ScaledRow<'a> {
    /// [`Codes::row_bytes`].
    pub codes: &'a [u8],
    /// A scale for each group.
    pub scales: &'a [u8],
    /// A byte for each group, or nothing.
    pub zeros: &'a [u8],
}

impl Scaled {
    /// [`Scaled::group`] where the numbers of a row share one scale.
    pub const ROW: usize = usize::MAX;
    /// A row has a multiple of this many numbers, and can be cut at multiples of it as far as groups allow.
    pub const STEP: usize = 32;

    /// Numbers at whose multiples a row can be cut.
    pub fn cut(self) -> usize {
        if self.group == Scaled::ROW { Scaled::STEP } else { self.group }
    }

    /// Groups of a row of `cols` numbers.
    pub fn groups(self, cols: usize) -> usize {
        cols.div_ceil(self.group)
    }

    /// The numbers that a row stands for.
    pub(super) fn decode(self, row: ScaledRow, numbers: &mut [f32]) {
        for (group, numbers) in numbers.chunks_mut(self.group).enumerate() {
            let scale = self.scales.read(row.scales, group);
            let zero = if self.zeros { f32::from(row.zeros[group]) } else { self.codes.zero() };
            let first = if self.group == Scaled::ROW { 0 } else { self.codes.row_bytes(group * self.group) };
            let codes = &row.codes[first..][..self.codes.row_bytes(numbers.len())];
            self.codes.read(codes, numbers, |code| (code - zero) * scale);
        }
    }
}

impl Codes {
    /// Bytes of a row of `cols` codes.
    pub const fn row_bytes(self, cols: usize) -> usize {
        match self {
            Codes::U4 | Codes::E2m1 => cols / 2,
            Codes::U8 | Codes::I8 | Codes::E4m3 => cols,
        }
    }

    /// What is subtracted from codes without zeros of their own: unsigned ones are symmetric around the middle of their range.
    pub const fn zero(self) -> f32 {
        match self {
            Codes::U4 => 8.0,
            Codes::U8 => 128.0,
            Codes::I8 | Codes::E4m3 | Codes::E2m1 => 0.0,
        }
    }

    fn read(self, codes: &[u8], numbers: &mut [f32], value: impl Fn(f32) -> f32) {
        let bytes = numbers.iter_mut().zip(codes);
        let pairs = |numbers: &mut [f32], code: fn(u8) -> f32| {
            for (pair, &byte) in numbers.as_chunks_mut::<2>().0.iter_mut().zip(codes) {
                *pair = [value(code(byte & 15)), value(code(byte >> 4))];
            }
        };
        match self {
            Codes::U4 => pairs(numbers, f32::from),
            Codes::E2m1 => pairs(numbers, |code| E2M1[usize::from(code)]),
            Codes::U8 => bytes.for_each(|(number, &code)| *number = value(f32::from(code))),
            Codes::I8 => bytes.for_each(|(number, &code)| *number = value(f32::from(code.cast_signed()))),
            Codes::E4m3 => bytes.for_each(|(number, &code)| *number = value(from_e4m3(code))),
        }
    }
}

impl Scales {
    /// Bytes of a scale.
    pub const fn bytes(self) -> usize {
        match self {
            Scales::F32 => 4,
            Scales::F16 | Scales::Bf16 => 2,
            Scales::E8m0 => 1,
        }
    }

    /// The scale of `group`.
    pub fn read(self, scales: &[u8], group: usize) -> f32 {
        let bytes = &scales[group * self.bytes()..][..self.bytes()];
        match self {
            Scales::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            Scales::F16 => from_f16([bytes[0], bytes[1]]),
            Scales::Bf16 => from_bf16([bytes[0], bytes[1]]),
            Scales::E8m0 => from_e8m0(bytes[0]),
        }
    }
}

/// The number of an E4M3 code.
pub const fn from_e4m3(code: u8) -> f32 {
    let (exponent, mantissa) = ((code >> 3 & 15) as u32, (code & 7) as u32);
    let sign = (code as u32 & 0x80) << 24;
    if exponent == 15 && mantissa == 7 {
        return f32::NAN;
    }
    if exponent == 0 {
        // Multiples of 2^-9.
        return f32::from_bits(sign | (mantissa as f32 / 512.0).to_bits());
    }
    f32::from_bits(sign | (exponent + 120) << 23 | mantissa << 20)
}

/// The number of an E8M0 code.
pub const fn from_e8m0(code: u8) -> f32 {
    match code {
        0 => f32::from_bits(1 << 22),
        255 => f32::NAN,
        _ => f32::from_bits((code as u32) << 23),
    }
}

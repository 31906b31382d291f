//! The dequantizer of scaled codes that all instruction sets share: rows in pieces, pieces in groups, groups in steps.
#![allow(unsafe_code)]

use super::{PIECE, RowPart};
use crate::cpu::linear::kernels::STEP;
use formats::{Scaled, Scales, WeightFormat};

/// What is written, and by which instructions: 32 numbers, a step, at a time.
///
/// # Safety
///
/// Each function requires the instruction set. Codes can be read, and `to` has room for a step, of any alignment.
pub trait Number {
    /// Bytes of a number.
    const BYTES: usize;
    /// A number in every lane.
    type Vector: Copy;
    /// What codes of four bits stand for in a group.
    type Table: Copy;

    /// The scales of `count` groups.
    #[inline(always)]
    unsafe fn scales(format: Scales, at: *const u8, count: usize) -> [f32; MAX_GROUPS] {
        let mut scales = [0.0; MAX_GROUPS];
        // SAFETY: the caller says that the scales can be read.
        unsafe {
            let bytes = std::slice::from_raw_parts(at, count * format.bytes());
            match format {
                Scales::F16 => Self::halves(&mut scales[..count], bytes),
                // A loop for each format, so that the compiler makes vectors of it.
                Scales::F32 => read(Scales::F32, &mut scales, bytes),
                Scales::Bf16 => read(Scales::Bf16, &mut scales, bytes),
                Scales::E8m0 => read(Scales::E8m0, &mut scales, bytes),
            }
        }
        scales
    }
    /// The zeros of `count` groups.
    #[inline(always)]
    unsafe fn bytes(at: *const u8, count: usize) -> [f32; MAX_GROUPS] {
        let mut zeros = [0.0; MAX_GROUPS];
        for (group, zero) in zeros.iter_mut().enumerate().take(count) {
            // SAFETY: the caller says that the zeros can be read.
            *zero = f32::from(unsafe { *at.add(group) });
        }
        zeros
    }
    /// As many half-precision numbers as `to` has.
    unsafe fn halves(to: &mut [f32], bytes: &[u8]);

    unsafe fn every(number: &f32) -> Self::Vector;
    unsafe fn table(zero: Self::Vector, scale: Self::Vector) -> Self::Table;
    /// Floating-point numbers of four bits, in pairs.
    unsafe fn e2m1(to: *mut u8, codes: *const u8, table: Self::Table);
    /// Signed integers less zeros.
    unsafe fn i8(to: *mut u8, codes: *const u8, zero: Self::Vector, scale: Self::Vector);
    /// Floating-point numbers of eight bits.
    unsafe fn e4m3(to: *mut u8, codes: *const u8, scale: Self::Vector);
}

/// Reads scales.
#[inline(always)]
fn read(format: Scales, to: &mut [f32], bytes: &[u8]) {
    for (to, from) in to.iter_mut().zip(bytes.chunks_exact(format.bytes())) {
        *to = format.read(from, 0);
    }
}

/// `$function::<D>` for the dequantizer `D` of `$codes`.
macro_rules! by_codes {
    ($codes:expr, $function:ident) => {{
        use formats::Codes;
        use $crate::cpu::linear::dequantize::vectors as dequantizers;
        match $codes {
            Codes::E2m1 => $function::<dequantizers::E2m1>,
            Codes::I8 => $function::<dequantizers::I8>,
            Codes::E4m3 => $function::<dequantizers::E4m3>,
            Codes::U4 | Codes::U8 => unreachable!("multiplied as integers"),
        }
    }};
}
pub(in crate::cpu::linear) use by_codes;

/// A [`Dequantizer`](super::Dequantizer) for codes of `$codes` to `$number`, with `$features`.
macro_rules! dequantizer {
    ($codes:expr, $number:ty, $features:literal) => {{
        use $crate::cpu::linear::dequantize::RowPart;
        use $crate::cpu::linear::dequantize::vectors::{Dequantize, by_codes, run};
        #[target_feature(enable = $features)]
        unsafe fn with_instructions<D: Dequantize>(part: RowPart) {
            // SAFETY: the caller says so.
            unsafe { run::<D, $number>(part) }
        }
        by_codes!($codes, with_instructions)
    }};
}
pub(super) use dequantizer;

/// The scaled format that a dequantizer was chosen for.
pub fn scaled(coding: WeightFormat) -> Scaled {
    let WeightFormat::Scaled(scaled) = coding else { unreachable!("dequantizers are chosen by the format") };
    scaled
}

/// Dequantizes whole steps, one after another.
///
/// # Panics
///
/// If the row is too short.
///
/// # Safety
///
/// The machine has what `N` needs.
#[inline(always)]
pub unsafe fn run<D: Dequantize, N: Number>(part: RowPart) {
    let RowPart { coding, row, first, to, .. } = part;
    let step_bytes = STEP * N::BYTES;
    let steps = to.len() / step_bytes;
    let end = first + steps * STEP;
    assert!(row.codes.len() >= coding.row_bytes(end));
    assert!(row.scales.len() >= coding.scale_bytes(end) && row.zeros.len() >= coding.zero_bytes(end));
    let row = Planes { codes: row.codes.as_ptr(), scales: row.scales.as_ptr(), zeros: row.zeros.as_ptr() };
    // SAFETY: the assertions found the row's bytes, and `to` has room for the steps.
    unsafe { dequantize::<D, N>(coding, row, first, steps, Places { at: to.as_mut_ptr(), stride: step_bytes }) }
}

/// Where the bytes of a row lie: see [`ScaledRow`](formats::ScaledRow).
#[derive(Clone, Copy)]
pub struct Planes {
    pub codes: *const u8,
    pub scales: *const u8,
    pub zeros: *const u8,
}

/// Where dequantized steps go.
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

/// Steps of a piece.
pub const PIECE_STEPS: usize = PIECE / STEP;

/// Dequantizes `steps` steps of a row from number `first` on, a multiple of [`PIECE`].
///
/// # Safety
///
/// The machine has what `N` needs. The row has these steps, and there are as many places.
#[inline(always)]
pub unsafe fn dequantize<D: Dequantize, N: Number>(
    coding: WeightFormat,
    row: Planes,
    first: usize,
    steps: usize,
    to: Places,
) {
    let scaled = scaled(coding);
    // SAFETY: the caller says so.
    unsafe {
        let whole = steps / PIECE_STEPS * PIECE_STEPS;
        for step in (0..whole).step_by(PIECE_STEPS) {
            let (first, to) = (first + step * STEP, to.from(step));
            // Compiled for each length of a group, so that no loop ends within a few instructions.
            match scaled.group / STEP {
                1 => groups::<D, N, PIECE_STEPS, 1>(scaled, row, first, to),
                2 => groups::<D, N, PIECE_STEPS, 2>(scaled, row, first, to),
                4 => groups::<D, N, PIECE_STEPS, 4>(scaled, row, first, to),
                _ => groups::<D, N, PIECE_STEPS, PIECE_STEPS>(scaled, row, first, to),
            }
        }
        for step in whole..steps {
            groups::<D, N, 1, 1>(scaled, row, first + step * STEP, to.from(step));
        }
    }
}

/// Groups of a piece, at most.
pub const MAX_GROUPS: usize = PIECE_STEPS;

/// Dequantizes `STEPS` steps in groups of `GROUP`.
///
/// # Safety
///
/// As [`dequantize`].
#[inline(always)]
unsafe fn groups<D: Dequantize, N: Number, const STEPS: usize, const GROUP: usize>(
    scaled: Scaled,
    row: Planes,
    first: usize,
    to: Places,
) {
    // A group whose length is no power of two is a whole row: `reads` says so.
    let first_group = if scaled.group.is_power_of_two() { first >> scaled.group.trailing_zeros() } else { 0 };
    let step_bytes = scaled.codes.row_bytes(STEP);
    // SAFETY: the caller says so.
    unsafe {
        let scales = N::scales(scaled.scales, row.scales.add(first_group * scaled.scales.bytes()), STEPS / GROUP);
        let zeros = match scaled.zeros {
            true => N::bytes(row.zeros.add(first_group), STEPS / GROUP),
            false => [scaled.codes.zero(); MAX_GROUPS],
        };
        let codes = row.codes.add(scaled.codes.row_bytes(first));
        for group in 0..STEPS / GROUP {
            let step = group * GROUP;
            D::group::<N, GROUP>(&zeros[group], &scales[group], codes.add(step * step_bytes), to.from(step));
        }
    }
}

/// How codes become numbers.
pub trait Dequantize {
    /// Dequantizes `STEPS` steps of a group from `codes` on.
    ///
    /// # Safety
    ///
    /// The machine has what `N` needs. The codes can be read, and there are as many places.
    unsafe fn group<N: Number, const STEPS: usize>(zero: &f32, scale: &f32, codes: *const u8, to: Places);
}

/// [`Number::e2m1`]
pub struct E2m1;

impl Dequantize for E2m1 {
    #[inline(always)]
    unsafe fn group<N: Number, const STEPS: usize>(zero: &f32, scale: &f32, codes: *const u8, to: Places) {
        // SAFETY: the caller says so; a step has 16 bytes.
        unsafe {
            let table = N::table(N::every(zero), N::every(scale));
            for step in 0..STEPS {
                N::e2m1(to.step(step), codes.add(step * STEP / 2), table);
            }
        }
    }
}

/// [`Number::i8`]
pub struct I8;

impl Dequantize for I8 {
    #[inline(always)]
    unsafe fn group<N: Number, const STEPS: usize>(zero: &f32, scale: &f32, codes: *const u8, to: Places) {
        // SAFETY: the caller says so; a step has 32 bytes.
        unsafe {
            let (zero, scale) = (N::every(zero), N::every(scale));
            for step in 0..STEPS {
                N::i8(to.step(step), codes.add(step * STEP), zero, scale);
            }
        }
    }
}

/// [`Number::e4m3`]
pub struct E4m3;

impl Dequantize for E4m3 {
    #[inline(always)]
    unsafe fn group<N: Number, const STEPS: usize>(_: &f32, scale: &f32, codes: *const u8, to: Places) {
        // SAFETY: the caller says so; a step has 32 bytes.
        unsafe {
            let scale = N::every(scale);
            for step in 0..STEPS {
                N::e4m3(to.step(step), codes.add(step * STEP), scale);
            }
        }
    }
}

//! Dequantizes weights into a thread's scratch, in the order in which a kernel reads them.
//!
//! Every instruction set dequantizes to the same numbers, those of [`WeightFormat::dequantize_row`], rounded to bf16 where it multiplies these.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) mod vectors;

use super::super::Isa;
use super::kernels::{Order, STEP};
use super::pack::{even_odd, round_to_bf16};
use formats::{Codes, Scaled, ScaledRow, WeightFormat};

/// A part of a row that is dequantized.
pub struct RowPart<'a> {
    /// How it is coded.
    pub coding: WeightFormat,
    /// The whole row.
    pub row: ScaledRow<'a>,
    /// The first of its numbers, a multiple of [`PIECE`].
    pub first: usize,
    /// How a kernel wants them.
    pub order: Order,
    /// As long as the numbers of the part, whole steps, are in that order.
    pub to: &'a mut [u8],
}

/// Dequantizes.
///
/// # Safety
///
/// The machine has the dequantizer's instruction set.
pub type Dequantizer = unsafe fn(RowPart);

/// Numbers at whose multiples a part begins: whole blocks, and whole groups or a part of one.
pub const PIECE: usize = 256;

/// The longest group whose boundaries meet those of a slice of `k`, if it is a power of two.
const MAX_GROUP: usize = 1024;

/// Whether the kernels read a matrix of `cols` columns in `coding`.
pub fn reads(coding: WeightFormat, cols: usize) -> bool {
    match coding {
        WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => true,
        WeightFormat::Block(_) => cols.is_multiple_of(STEP),
        WeightFormat::Scaled(Scaled { codes, group, zeros, .. }) => {
            let whole = group >= cols;
            // Kernels read no zeros of floating-point numbers of eight bits.
            let has_zeros = zeros && codes == Codes::E4m3;
            let fits = whole || group.is_power_of_two() && (STEP..=MAX_GROUP).contains(&group);
            cols.is_multiple_of(STEP) && fits && !has_zeros
        }
    }
}

/// The dequantizer of `coding` to numbers in `order`. What [`integer`](super::integer) takes has none but the specification.
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(unused_variables))]
pub fn choose(isa: Isa, coding: WeightFormat, order: Order) -> Dequantizer {
    let codes = match coding {
        WeightFormat::Scaled(Scaled { codes: codes @ (Codes::E4m3 | Codes::E2m1), .. }) => codes,
        WeightFormat::Scaled(Scaled { codes: Codes::I8, zeros, .. }) if zeros || cfg!(target_arch = "x86_64") => {
            Codes::I8
        }
        _ => return by_specification,
    };
    match (isa, order) {
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512Bf16 | Isa::Amx, Order::Bf16) => avx512::to_bf16(codes),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx512, _) => avx512::to_f32(codes),
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, _) => avx2::to_f32(codes),
        #[cfg(target_arch = "aarch64")]
        (Isa::Bf16, Order::Bf16) => neon::to_bf16(codes),
        #[cfg(target_arch = "aarch64")]
        (Isa::Neon | Isa::DotProd | Isa::I8mm, _) => neon::to_f32(codes),
        _ => by_specification,
    }
}

/// Dequantizes by the specification.
fn by_specification(part: RowPart) {
    let RowPart { coding, row, first, order, to } = part;
    let number_bytes = order.bytes();
    for (piece, to) in to.chunks_mut(PIECE * number_bytes).enumerate() {
        let mut numbers = [0.0; PIECE];
        let numbers = &mut numbers[..to.len() / number_bytes];
        coding.dequantize_row(part_of(coding, row, first + piece * PIECE, numbers.len()), numbers);
        reorder(order, numbers, to);
    }
}

/// The bytes of `len` numbers of `row` from `first` on.
fn part_of(coding: WeightFormat, row: ScaledRow, first: usize, len: usize) -> ScaledRow {
    match coding {
        WeightFormat::Scaled(Scaled { codes, scales, group, zeros }) => {
            let groups = first / group..(first + len).div_ceil(group);
            ScaledRow {
                codes: &row.codes[codes.row_bytes(first)..][..codes.row_bytes(len)],
                scales: &row.scales[groups.start * scales.bytes()..groups.end * scales.bytes()],
                zeros: if zeros { &row.zeros[groups] } else { row.zeros },
            }
        }
        _ => ScaledRow { codes: &row.codes[coding.row_bytes(first)..][..coding.row_bytes(len)], ..row },
    }
}

/// Writes whole steps.
fn reorder(order: Order, numbers: &[f32], to: &mut [u8]) {
    let steps = numbers.as_chunks::<STEP>().0;
    match order {
        Order::Straight => to.copy_from_slice(bytemuck::cast_slice(numbers)),
        Order::EvenOdd(lanes) => {
            for (from, to) in steps.iter().zip(to.as_chunks_mut::<{ STEP * 4 }>().0) {
                let mut step = [0.0; STEP];
                match lanes {
                    8 => even_odd::<8>(&mut step, from),
                    _ => even_odd::<16>(&mut step, from),
                }
                *to = bytemuck::cast(step);
            }
        }
        Order::Bf16 => {
            for (from, to) in steps.iter().zip(to.as_chunks_mut::<{ STEP * 2 }>().0) {
                *to = bytemuck::cast(from.map(round_to_bf16));
            }
        }
    }
}

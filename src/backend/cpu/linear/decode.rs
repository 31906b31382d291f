//! Decodes weights into a thread's scratch, in the order in which a kernel reads them.
//!
//! This is worth its stores where many rows of `x` meet the same weights. Kernels for few rows decode in registers instead: to the same
//! numbers in the same order, so that a row of the result has the same bits by either route.

use super::kernels::{Order, STEP};
use super::pack::{even_odd, round_to_bf16};
use crate::backend::{Coding, Scaled, ScaledRow};

/// Numbers that are decoded together: whole blocks, and whole groups or a part of one.
const PIECE: usize = 256;

/// The longest group whose boundaries meet those of a slice of `k`, if it is a power of two.
const MAX_GROUP: usize = 1024;

/// Whether the kernels read a matrix of `cols` columns in `coding`.
pub fn reads(coding: Coding, cols: usize) -> bool {
    match coding {
        Coding::F32 | Coding::F16 | Coding::Bf16 => true,
        Coding::Block(_) => cols.is_multiple_of(STEP),
        Coding::Scaled(Scaled { group, .. }) => {
            let whole = group >= cols;
            cols.is_multiple_of(STEP) && (whole || group.is_power_of_two() && (STEP..=MAX_GROUP).contains(&group))
        }
    }
}

/// Decodes the numbers of `row` from `first` on, a multiple of [`PIECE`], into `to`, which is as long as they are in `order`.
pub fn decode(coding: Coding, order: Order, row: ScaledRow, first: usize, to: &mut [u8]) {
    let (pieces, number_bytes) = (to.chunks_mut(PIECE * order.bytes()), order.bytes());
    for (piece, to) in pieces.enumerate() {
        let len = to.len() / number_bytes;
        let mut numbers = [0.0; PIECE];
        let numbers = &mut numbers[..len];
        coding.decode_row(part(coding, row, first + piece * PIECE, len), numbers);
        reorder(order, numbers, to);
    }
}

/// The bytes of `len` numbers of `row` from `first` on.
fn part(coding: Coding, row: ScaledRow, first: usize, len: usize) -> ScaledRow {
    match coding {
        Coding::Scaled(Scaled { codes, scales, group, zeros }) => {
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

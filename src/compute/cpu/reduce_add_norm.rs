//! See `ops/reduce_add_norm.rs` for the contract.
//!
//! The CPU divides no sum when an engine runs on it. This is the specification of what GPUs do, and lets tests compute a model whose
//! sums are divided.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::team::{Extent, Rows};
use super::{Cpu, Tensor, add_norm};
use crate::{AddNorm, Device, NextNorm};

/// The sum that [`add_norm`](super::add_norm) takes: in f32, in the order of `shares`.
pub fn reference(shares: &[Vec<f32>]) -> Vec<f32> {
    let sum = |at: usize| shares.iter().map(|share| share[at]).reduce(|sum, v| sum + v).unwrap_or(0.0);
    (0..shares[0].len()).map(sum).collect()
}

pub fn run(
    cpu: &mut Cpu,
    residual: &mut Tensor,
    share: &Tensor,
    add: AddNorm<Box<[f32]>>,
    next: Option<NextNorm<Tensor, Box<[f32]>>>,
) {
    let (rows, hidden) = (share.rows(), share.cols());
    let mut sum = match cpu.sum_of_shares.take() {
        Some(sum) if sum.cols() == hidden && sum.capacity() >= rows => sum,
        _ => match cpu.tensor(rows, hidden) {
            Ok(sum) => sum,
            Err(_) => return cpu.note_exchange(false),
        },
    };
    sum.set_rows(rows);
    let (to, member) = (Disjoint::new(sum.values_mut()), cpu.member());
    let add_up = |rows_of: &dyn Fn(usize) -> Rows| {
        for rank in 0..member.ranks() {
            let from = rows_of(rank);
            cpu.for_rows(rows, hidden, &|range| {
                for row in range {
                    // SAFETY: `for_rows` gives each row to one call.
                    let to = unsafe { to.part(row * hidden..(row + 1) * hidden) };
                    // SAFETY: that rank shows as many rows of `hidden` numbers.
                    let from = unsafe { from.part(row, hidden) };
                    match rank {
                        0 => to.copy_from_slice(from),
                        _ => to.iter_mut().zip(from).for_each(|(to, v)| *to += v),
                    }
                }
            });
        }
    };
    let (own, extent) = (Rows::new(share.values().as_ptr(), hidden), Extent { rows, width: &|_| hidden });
    // SAFETY: the share is borrowed for the call, and nobody writes it.
    let passed = unsafe { member.exchange(own, extent, add_up) };
    cpu.note_exchange(passed);
    add_norm::run(cpu, residual, &sum, add, next);
    cpu.sum_of_shares = Some(sum);
}

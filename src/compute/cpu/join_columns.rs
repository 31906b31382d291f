//! See `ops/join_columns.rs` for the contract.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::team::{Extent, Rows};
use super::{Cpu, Tensor};
use crate::Part;
use std::ops::Range;

/// The specification: what every rank has in `out` afterwards, where `parts[r]` are the columns `shares[r]`. `out` is `[rows, cols]`
pub fn reference(out: &mut [f32], cols: usize, parts: &[Vec<f32>], shares: &[Range<usize>]) {
    for (part, share) in parts.iter().zip(shares) {
        for (row, part) in out.chunks_exact_mut(cols).zip(part.chunks_exact(share.len())) {
            row[share.clone()].copy_from_slice(part);
        }
    }
}

pub fn run(cpu: &Cpu, out: &mut Tensor, part: Option<Part<Tensor>>, shares: &[Range<usize>]) {
    let member = cpu.member();
    let (rank, rows, cols) = (member.rank(), out.rows(), out.cols());
    let own = &shares[rank];
    assert_eq!(shares.len(), member.ranks());
    let is_in_place = part.is_none();
    let out = Disjoint::new(out.values_mut());
    let (start, stride) = match part {
        Some(Part { x, first }) => {
            assert!(first + own.len() <= x.cols());
            (x.values()[first.min(x.values().len())..].as_ptr(), x.cols())
        }
        None => (out.start().wrapping_add(own.start).cast_const(), cols),
    };
    let copy = |rows_of: &dyn Fn(usize) -> Rows| {
        for (other, share) in shares.iter().enumerate() {
            if is_in_place && other == rank {
                continue;
            }
            let from = rows_of(other);
            cpu.for_rows(rows, share.len(), &|range| {
                for row in range {
                    let columns = row * cols + share.start..row * cols + share.end;
                    // SAFETY: `for_rows` gives each row to one call, and other ranks read this rank's own columns alone, which are not
                    // written here where they are shown in place.
                    let to = unsafe { out.part(columns) };
                    // SAFETY: that rank shows as many rows, and the columns of its share.
                    to.copy_from_slice(unsafe { from.part(row, share.len()) });
                }
            });
        }
    };
    let extent = Extent { rows, width: &|rank| shares[rank].len() };
    // SAFETY: the rows at `start` are borrowed for the call, and are not written before it returns.
    let passed = unsafe { member.exchange(Rows::new(start, stride), extent, copy) };
    cpu.note_exchange(passed);
}

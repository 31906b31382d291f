//! The part of a linear layer that an adapter adds: see `ops/linear.rs`.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::{Cpu, Tensor};
use crate::Adapter;
use std::ops::Range;

/// Adds it to the columns of `out` in `columns`. A number is added up over the rank in order, so that it depends on its row alone.
pub fn add(cpu: &Cpu, out: &mut Tensor, adapter: Adapter<Tensor, Box<[f32]>>, columns: Range<usize>) {
    let (rows, cols) = (out.rows(), out.cols());
    let (rank, projected) = (adapter.projected.cols(), adapter.projected.values());
    let out = Disjoint::new(out.values_mut());
    cpu.for_rows(rows, rank * columns.len(), &|rows| {
        for row in rows {
            // SAFETY: the ranges of `for_rows` do not overlap, so neither do rows.
            let out = unsafe { out.part(row * cols + columns.start..row * cols + columns.end) };
            for (&factor, up) in projected[row * rank..][..rank].iter().zip(adapter.up.chunks_exact(cols)) {
                let factor = adapter.scale * factor;
                out.iter_mut().zip(&up[columns.clone()]).for_each(|(out, up)| *out += factor * up);
            }
        }
    });
}

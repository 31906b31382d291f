//! See `ops/pool_states.rs` for the contract.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::{Cpu, DeviceBatch, Tensor};
use crate::batch::Batch;

/// The specification. `cols` numbers a token.
pub fn reference(out: &mut [f32], x: &[f32], cols: usize, batch: &Batch) {
    for (out, &[first, end]) in out.chunks_exact_mut(cols).zip(&batch.pooled_ranges) {
        for (col, out) in out.iter_mut().enumerate() {
            let sum: f64 = (first..end).map(|token| f64::from(x[token as usize * cols + col])).sum();
            *out = (sum / f64::from(end - first)) as f32;
        }
    }
}

pub fn run(cpu: &Cpu, out: &mut Tensor, x: &Tensor, device_batch: &DeviceBatch) {
    let (cols, x) = (x.cols(), x.values());
    let ranges = &device_batch.batch.pooled_ranges;
    let out = Disjoint::new(out.values_mut());
    let longest = ranges.iter().map(|[first, end]| end - first).max().unwrap_or(0) as usize;
    cpu.for_rows(ranges.len(), longest * cols, &|rows| {
        for row in rows {
            // SAFETY: the ranges of `for_rows` do not overlap, so neither do rows.
            let out = unsafe { out.part(row * cols..(row + 1) * cols) };
            let [first, end] = ranges[row].map(|token| token as usize);
            for (index, out) in out.chunks_mut(SUMS).enumerate() {
                let mut sums = [0.0; SUMS];
                for token in first..end {
                    let states = &x[token * cols + index * SUMS..][..out.len()];
                    sums.iter_mut().zip(states).for_each(|(sum, &v)| *sum += f64::from(v));
                }
                out.iter_mut().zip(sums).for_each(|(out, sum)| *out = (sum / (end - first) as f64) as f32);
            }
        }
    });
}

/// Columns whose sums are taken together: they stay in registers.
const SUMS: usize = 32;

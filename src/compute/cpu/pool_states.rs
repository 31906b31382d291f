//! See `ops/pool_states.rs` for the contract.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::{Cpu, DeviceBatch, Tensor};
use crate::batch::{Batch, PoolKind, PooledRange};

/// The specification. `cols` numbers a token.
pub fn reference(out: &mut [f32], x: &[f32], cols: usize, batch: &Batch) {
    for (out, &PooledRange { first, end, kind }) in out.chunks_exact_mut(cols).zip(&batch.pooled_ranges) {
        let len = f64::from(end - first);
        for (col, out) in out.iter_mut().enumerate() {
            let states = (first..end).map(|token| f64::from(x[token as usize * cols + col]));
            *out = match kind {
                PoolKind::Mean => states.sum::<f64>() / len,
                PoolKind::MeanSqrtLen => states.sum::<f64>() / len.sqrt(),
                PoolKind::WeightedMean => {
                    let weighted: f64 = states.enumerate().map(|(index, v)| (index + 1) as f64 * v).sum();
                    weighted / (len * (len + 1.0) / 2.0)
                }
                PoolKind::Max => states.fold(f64::NEG_INFINITY, f64::max),
            } as f32;
        }
    }
}

pub fn run(cpu: &Cpu, out: &mut Tensor, x: &Tensor, device_batch: &DeviceBatch) {
    let (cols, x) = (x.cols(), x.values());
    let ranges = &device_batch.batch.pooled_ranges;
    let out = Disjoint::new(out.values_mut());
    let longest = ranges.iter().map(|range| range.end - range.first).max().unwrap_or(0) as usize;
    cpu.for_rows(ranges.len(), longest * cols, &|rows| {
        for row in rows {
            // SAFETY: the ranges of `for_rows` do not overlap, so neither do rows.
            let out = unsafe { out.part(row * cols..(row + 1) * cols) };
            let PooledRange { first, end, kind } = ranges[row];
            for (index, out) in out.chunks_mut(SUMS).enumerate() {
                let mut sums = [if kind == PoolKind::Max { f64::NEG_INFINITY } else { 0.0 }; SUMS];
                for (place, token) in (first as usize..end as usize).enumerate() {
                    let states = &x[token * cols + index * SUMS..][..out.len()];
                    let states = sums.iter_mut().zip(states.iter().map(|&v| f64::from(v)));
                    match kind {
                        PoolKind::Mean | PoolKind::MeanSqrtLen => states.for_each(|(sum, v)| *sum += v),
                        PoolKind::WeightedMean => states.for_each(|(sum, v)| *sum += (place + 1) as f64 * v),
                        PoolKind::Max => states.for_each(|(sum, v)| *sum = sum.max(v)),
                    }
                }
                let divisor = kind.divisor((end - first) as usize);
                out.iter_mut().zip(sums).for_each(|(out, sum)| *out = (sum / divisor) as f32);
            }
        }
    });
}

/// Columns whose sums are taken together: they stay in registers.
const SUMS: usize = 32;

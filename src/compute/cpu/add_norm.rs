//! See `ops/add_norm.rs` for the contract.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::lanes::{Kernel, Lanes, dispatch};
use super::norm::{self, normalize};
use super::{Cpu, Tensor};
use crate::{AddNorm, NextNorm};

/// The specification, in f64 up to the sum.
pub fn reference(
    residual: &mut [f32],
    delta: &[f32],
    add: AddNorm<Box<[f32]>>,
    next: Option<NextNorm<[f32], Box<[f32]>>>,
) {
    let delta = match add.post {
        None => delta.iter().map(|&v| f64::from(v)).collect(),
        Some(post) => norm::reference_wide(delta, post),
    };
    for (residual, v) in residual.iter_mut().zip(delta) {
        *residual = (f64::from(add.stream_scale) * (f64::from(*residual) + f64::from(add.scale) * v)) as f32;
    }
    if let Some(NextNorm { out, norm }) = next {
        norm::reference(out, residual, norm);
    }
}

pub fn run(
    cpu: &Cpu,
    residual: &mut Tensor,
    delta: &Tensor,
    add: AddNorm<Box<[f32]>>,
    next: Option<NextNorm<Tensor, Box<[f32]>>>,
) {
    let (rows, hidden, delta) = (delta.rows(), delta.cols(), delta.values());
    let residual = Disjoint::new(residual.values_mut());
    let next = next.map(|NextNorm { out, norm }| (Disjoint::new(out.values_mut()), norm));
    cpu.for_rows(rows, hidden, &|rows| {
        let numbers = rows.start * hidden..rows.end * hidden;
        // SAFETY: the ranges of `for_rows` do not overlap.
        let residual = unsafe { residual.part(numbers.clone()) };
        let next = next.as_ref().map(|(out, norm)| {
            // SAFETY: as above.
            NextNorm { out: unsafe { out.part(numbers.clone()) }, norm: *norm }
        });
        dispatch(cpu.isa, AddNormalize { hidden, residual, delta: &delta[numbers], add, next });
    });
}

/// Rows of `hidden` numbers.
struct AddNormalize<'a> {
    hidden: usize,
    residual: &'a mut [f32],
    delta: &'a [f32],
    add: AddNorm<'a, Box<[f32]>>,
    next: Option<NextNorm<'a, [f32], Box<[f32]>>>,
}

impl Kernel for AddNormalize<'_> {
    #[inline(always)]
    fn run<L: Lanes>(mut self, lanes: L) {
        let AddNorm { post, scale, stream_scale } = self.add;
        let rows = self.residual.chunks_exact_mut(self.hidden).zip(self.delta.chunks_exact(self.hidden));
        for (row, (residual, delta)) in rows.enumerate() {
            match post {
                // A factor of 1 changes no bit.
                None => residual.iter_mut().zip(delta).for_each(|(to, v)| *to = stream_scale * (*to + scale * v)),
                Some(post) => normalize(lanes, residual, delta, post, |to, v| *to = stream_scale * (*to + scale * v)),
            }
            if let Some(NextNorm { out, norm }) = &mut self.next {
                let out = &mut out[row * self.hidden..][..self.hidden];
                normalize(lanes, out, residual, *norm, |out, v| *out = v);
            }
        }
    }
}

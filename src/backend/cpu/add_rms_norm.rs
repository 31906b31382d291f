//! See `ops/add_rms_norm.rs` for the contract.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::lanes::{Kernel, Lanes, dispatch};
use super::rms_norm::{self, inverse_rms};
use super::{Cpu, Tensor};

/// The specification.
pub fn reference(out: &mut [f32], residual: &mut [f32], x: &[f32], weight: &[f32], eps: f32) {
    residual.iter_mut().zip(x).for_each(|(residual, x)| *residual += x);
    rms_norm::reference(out, residual, weight, eps);
}

pub fn run(cpu: &Cpu, out: &mut Tensor, residual: &mut Tensor, x: &Tensor, weight: &[f32], eps: f32) {
    let hidden = weight.len();
    let (rows, x) = (x.rows(), x.values());
    let (out, residual) = (Disjoint::new(out.values_mut()), Disjoint::new(residual.values_mut()));
    cpu.for_rows(rows, hidden, &|rows| {
        let numbers = rows.start * hidden..rows.end * hidden;
        // SAFETY: the ranges of `for_rows` do not overlap.
        let (out, residual) = unsafe { (out.part(numbers.clone()), residual.part(numbers.clone())) };
        dispatch(cpu.isa, AddNormalize { out, residual, x: &x[numbers], weight, eps });
    });
}

/// Rows of `weight.len()` numbers.
struct AddNormalize<'a> {
    out: &'a mut [f32],
    residual: &'a mut [f32],
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
}

impl Kernel for AddNormalize<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let hidden = self.weight.len();
        let rows = self.residual.chunks_exact_mut(hidden).zip(self.x.chunks_exact(hidden));
        for (out, (residual, x)) in self.out.chunks_exact_mut(hidden).zip(rows) {
            residual.iter_mut().zip(x).for_each(|(residual, x)| *residual += x);
            let scale = inverse_rms(lanes, residual, self.eps);
            for ((out, &v), &weight) in out.iter_mut().zip(&*residual).zip(self.weight) {
                *out = v * scale * weight;
            }
        }
    }
}

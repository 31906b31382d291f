//! See `ops/gated_norm.rs` for the contract.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::lanes::{Kernel, Lanes, dispatch, exp};
use super::norm::inverse_rms;
use super::{Cpu, Tensor};
use crate::HeadGate;

/// The specification.
pub fn reference(x: &mut [f32], gate: &[f32], weight: &[f32], eps: f32) {
    for (x, gate) in x.chunks_exact_mut(weight.len()).zip(gate.chunks_exact(weight.len())) {
        let squares: f64 = x.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
        let scale = 1.0 / (squares / x.len() as f64 + f64::from(eps)).sqrt();
        for ((x, &gate), &weight) in x.iter_mut().zip(gate).zip(weight) {
            let gate = f64::from(gate) / (1.0 + (-f64::from(gate)).exp());
            *x = (f64::from(*x) * scale * f64::from(weight) * gate) as f32;
        }
    }
}

pub fn run(cpu: &Cpu, x: &mut Tensor, gate: HeadGate<Tensor, Box<[f32]>>) {
    let (rows, width) = (x.rows(), x.cols());
    let x = Disjoint::new(x.values_mut());
    cpu.for_rows(rows, 6 * width, &|rows| {
        for row in rows {
            // SAFETY: the ranges of `for_rows` do not overlap.
            let x = unsafe { x.part(row * width..(row + 1) * width) };
            let gates = &gate.gate.values()[row * gate.gate.cols() + gate.first..][..width];
            dispatch(cpu.isa, GatedNorm { x, gates, weight: gate.weight, eps: gate.eps });
        }
    });
}

struct GatedNorm<'a> {
    x: &'a mut [f32],
    gates: &'a [f32],
    weight: &'a [f32],
    eps: f32,
}

impl Kernel for GatedNorm<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let dim = self.weight.len();
        for (x, gates) in self.x.chunks_exact_mut(dim).zip(self.gates.chunks_exact(dim)) {
            let scale = lanes.splat(inverse_rms(lanes, x, self.eps));
            let mut start = 0;
            while start < dim {
                let len = L::N.min(dim - start);
                let load = |from: &[f32]| {
                    let from = &from[start..start + len];
                    // SAFETY: the slice has `len` numbers.
                    unsafe {
                        if len == L::N { lanes.load(from.as_ptr()) } else { lanes.load_first(from.as_ptr(), len) }
                    }
                };
                let gate = load(gates);
                let minus = lanes.sub(lanes.splat(0.0), gate);
                let gate = lanes.div(gate, lanes.add(lanes.splat(1.0), exp(lanes, minus)));
                let v = lanes.mul(lanes.mul(lanes.mul(load(x), scale), load(self.weight)), gate);
                let to = x[start..start + len].as_mut_ptr();
                // SAFETY: as above.
                unsafe { if len == L::N { lanes.store(to, v) } else { lanes.store_first(to, v, len) } }
                start += len;
            }
        }
    }
}

//! See `ops/gated_norm.rs` for the contract.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::lanes::{Kernel, Lanes, dispatch, exp};
use super::norm::inverse_rms;
use super::{Cpu, Tensor};
use crate::{GateOrder, HeadGate};

/// The specification, for one row.
pub fn reference(
    x: &mut [f32],
    (gate, gate_scale): (&[f32], f32),
    weight: &[f32],
    (head_dim, eps): (usize, f32),
    order: GateOrder,
) {
    let silu = |v: f32| {
        let v = f64::from(gate_scale) * f64::from(v);
        v / (1.0 + (-v).exp())
    };
    for (index, (x, gate)) in x.chunks_exact_mut(head_dim).zip(gate.chunks_exact(head_dim)).enumerate() {
        let before = |i: usize| if order == GateOrder::BeforeNorm { silu(gate[i]) } else { 1.0 };
        let after = |i: usize| if order == GateOrder::AfterNorm { silu(gate[i]) } else { 1.0 };
        let v: Vec<f64> = x.iter().enumerate().map(|(i, &v)| f64::from(v) * before(i)).collect();
        let squares: f64 = v.iter().map(|v| v * v).sum();
        let scale = 1.0 / (squares / x.len() as f64 + f64::from(eps)).sqrt();
        for (i, x) in x.iter_mut().enumerate() {
            let weight = f64::from(weight[(index * head_dim + i) % weight.len()]);
            *x = (v[i] * scale * weight * after(i)) as f32;
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
            let HeadGate { scale, order, head_dim, weight, eps, .. } = gate;
            dispatch(cpu.isa, GatedNorm { x, gates, gate_scale: scale, order, head_dim, weight, eps });
        }
    });
}

struct GatedNorm<'a> {
    x: &'a mut [f32],
    gates: &'a [f32],
    gate_scale: f32,
    order: GateOrder,
    head_dim: usize,
    weight: &'a [f32],
    eps: f32,
}

impl Kernel for GatedNorm<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let dim = self.head_dim;
        let gate_scale = lanes.splat(self.gate_scale);
        let silu = |gate| silu(lanes, lanes.mul(gate, gate_scale));
        let weights = self.weight.chunks_exact(dim).cycle();
        for ((x, gates), weight) in self.x.chunks_exact_mut(dim).zip(self.gates.chunks_exact(dim)).zip(weights) {
            if self.order == GateOrder::BeforeNorm {
                each(lanes, x, [gates], |x, [gate]| lanes.mul(x, silu(gate)));
            }
            let scale = lanes.splat(inverse_rms(lanes, x, self.eps));
            match self.order {
                GateOrder::AfterNorm => each(lanes, x, [weight, gates], |x, [weight, gate]| {
                    lanes.mul(lanes.mul(lanes.mul(x, scale), weight), silu(gate))
                }),
                GateOrder::BeforeNorm => {
                    each(lanes, x, [weight], |x, [weight]| lanes.mul(lanes.mul(x, scale), weight));
                }
            }
        }
    }
}

#[inline(always)]
fn silu<L: Lanes>(lanes: L, v: L::V) -> L::V {
    let minus = lanes.sub(lanes.splat(0.0), v);
    lanes.div(v, lanes.add(lanes.splat(1.0), exp(lanes, minus)))
}

/// Replaces each number by `f` of it and of what other arrays have at the same place.
#[inline(always)]
pub fn each<L: Lanes, const N: usize>(
    lanes: L,
    x: &mut [f32],
    others: [&[f32]; N],
    f: impl Fn(L::V, [L::V; N]) -> L::V,
) {
    let mut start = 0;
    while start < x.len() {
        let len = L::N.min(x.len() - start);
        let mut read = [lanes.splat(0.0); N];
        for (v, from) in read.iter_mut().zip(others) {
            *v = load(lanes, &from[start..start + len]);
        }
        let v = f(load(lanes, &x[start..start + len]), read);
        let to = x[start..start + len].as_mut_ptr();
        // SAFETY: the slice has `len` numbers.
        unsafe { if len == L::N { lanes.store(to, v) } else { lanes.store_first(to, v, len) } }
        start += len;
    }
}

/// At most as many numbers as a vector has.
#[inline(always)]
fn load<L: Lanes>(lanes: L, from: &[f32]) -> L::V {
    // SAFETY: the slice has as many numbers.
    unsafe { if from.len() == L::N { lanes.load(from.as_ptr()) } else { lanes.load_first(from.as_ptr(), from.len()) } }
}

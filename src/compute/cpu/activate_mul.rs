//! See `ops/activate_mul.rs` for the contract.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::lanes::{Kernel, Lanes, dispatch, exp};
use super::{Cpu, Isa, Tensor};
use crate::Activation;
use std::marker::PhantomData;

/// The specification. `width` numbers a row of `out`.
pub fn reference(out: &mut [f32], gate_up: &[f32], width: usize, activation: Activation) {
    for (out, gate_up) in out.chunks_exact_mut(width).zip(gate_up.chunks_exact(2 * width)) {
        for (i, out) in out.iter_mut().enumerate() {
            *out = gated(f64::from(gate_up[i]), f64::from(gate_up[width + i]), activation) as f32;
        }
    }
}

/// A gate and its up.
fn gated(gate: f64, up: f64, activation: Activation) -> f64 {
    match activation {
        Activation::ClampedSwiglu => {
            let gate = gate.min(LIMIT.into());
            gate / (1.0 + (-f64::from(GAIN) * gate).exp()) * (up.clamp((-LIMIT).into(), LIMIT.into()) + 1.0)
        }
        _ => activated(gate, activation) * up,
    }
}

/// The activation of a gate that leaves its up as it is.
pub fn activated(v: f64, activation: Activation) -> f64 {
    match activation {
        Activation::Silu => v / (1.0 + (-v).exp()),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (v + 0.044715 * v * v * v);
            v / 2.0 * (1.0 + inner.tanh())
        }
        Activation::ClampedSwiglu => unreachable!("it changes the up"),
    }
}

pub fn run(cpu: &Cpu, out: &mut Tensor, gate_up: &Tensor, activation: Activation) {
    match activation {
        Activation::Silu => run_gate::<Silu>(cpu, out, gate_up),
        Activation::GeluTanh => run_gate::<GeluTanh>(cpu, out, gate_up),
        Activation::ClampedSwiglu => run_gate::<ClampedSwiglu>(cpu, out, gate_up),
    }
}

/// A row or a part of one, whose gates and ups lie apart.
pub fn row(isa: Isa, out: &mut [f32], gate: &[f32], up: &[f32], activation: Activation) {
    match activation {
        Activation::Silu => dispatch(isa, Row { out, gate, up, activation: PhantomData::<Silu> }),
        Activation::GeluTanh => dispatch(isa, Row { out, gate, up, activation: PhantomData::<GeluTanh> }),
        Activation::ClampedSwiglu => dispatch(isa, Row { out, gate, up, activation: PhantomData::<ClampedSwiglu> }),
    }
}

fn run_gate<A: Gated>(cpu: &Cpu, out: &mut Tensor, gate_up: &Tensor) {
    let (rows, width) = (out.rows(), out.cols());
    let gate_up = gate_up.values();
    let out = Disjoint::new(out.values_mut());
    // A number costs about four times what a copied one does.
    cpu.for_rows(rows, 4 * width, &|rows| {
        // SAFETY: the ranges of `for_rows` do not overlap.
        let out = unsafe { out.part(rows.start * width..rows.end * width) };
        let gate_up = &gate_up[2 * rows.start * width..2 * rows.end * width];
        dispatch(cpu.isa, Gate { out, gate_up, width, activation: PhantomData::<A> });
    });
}

/// Where gates and ups of gpt-oss end.
const LIMIT: f32 = 7.0;
/// What its gates are multiplied with in the sigmoid.
const GAIN: f32 = 1.702;

/// An activation of vectors.
pub trait Activate {
    fn activate<L: Lanes>(lanes: L, v: L::V) -> L::V;
}

/// What becomes of gates and their ups.
pub trait Gated {
    fn gated<L: Lanes>(lanes: L, gate: L::V, up: L::V) -> L::V;
}

impl<A: Activate> Gated for A {
    #[inline(always)]
    fn gated<L: Lanes>(lanes: L, gate: L::V, up: L::V) -> L::V {
        lanes.mul(A::activate(lanes, gate), up)
    }
}

struct ClampedSwiglu;

impl Gated for ClampedSwiglu {
    #[inline(always)]
    fn gated<L: Lanes>(lanes: L, gate: L::V, up: L::V) -> L::V {
        let limit = lanes.splat(LIMIT);
        // What is not below a bound, a number that is none among them, stays.
        let at_most = |v, bound| lanes.select_less(bound, v, bound, v);
        let gate = at_most(gate, limit);
        let least = lanes.splat(-LIMIT);
        let up = at_most(up, limit);
        let up = lanes.select_less(up, least, least, up);
        let activated = sigmoid_times(lanes, gate, lanes.mul(gate, lanes.splat(-GAIN)));
        lanes.mul(activated, lanes.add(up, lanes.splat(1.0)))
    }
}

pub struct Silu;

impl Activate for Silu {
    #[inline(always)]
    fn activate<L: Lanes>(lanes: L, v: L::V) -> L::V {
        sigmoid_times(lanes, v, lanes.sub(lanes.splat(0.0), v))
    }
}

pub struct GeluTanh;

impl Activate for GeluTanh {
    /// `(1 + tanh(u)) / 2` is `1 / (1 + exp(-2 u))`, which keeps the digits of negative numbers.
    #[inline(always)]
    fn activate<L: Lanes>(lanes: L, v: L::V) -> L::V {
        // 2 sqrt(2 / pi), and that times 0.044715.
        let [linear, cubic] = [-1.595_769, -0.071_354_82].map(|factor| lanes.splat(factor));
        sigmoid_times(lanes, v, lanes.mul(v, lanes.fma(cubic, lanes.mul(v, v), linear)))
    }
}

/// `v / (1 + exp(minus))`
#[inline(always)]
fn sigmoid_times<L: Lanes>(lanes: L, v: L::V, minus: L::V) -> L::V {
    lanes.div(v, lanes.add(lanes.splat(1.0), exp(lanes, minus)))
}

struct Gate<'a, A> {
    out: &'a mut [f32],
    gate_up: &'a [f32],
    width: usize,
    activation: PhantomData<A>,
}

impl<A: Gated> Kernel for Gate<'_, A> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        for (out, gate_up) in self.out.chunks_exact_mut(self.width).zip(self.gate_up.chunks_exact(2 * self.width)) {
            let (gate, up) = gate_up.split_at(self.width);
            Row { out, gate, up, activation: self.activation }.run(lanes);
        }
    }
}

struct Row<'a, A> {
    out: &'a mut [f32],
    gate: &'a [f32],
    up: &'a [f32],
    activation: PhantomData<A>,
}

impl<A: Gated> Kernel for Row<'_, A> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let Row { out, gate, up, .. } = self;
        let width = out.len();
        assert!(gate.len() == width && up.len() == width);
        let whole = width / L::N * L::N;
        for i in (0..whole).step_by(L::N) {
            // SAFETY: `i + N` is at most `width`, the length of all three.
            unsafe {
                let (gate, up) = (lanes.load(gate.as_ptr().add(i)), lanes.load(up.as_ptr().add(i)));
                lanes.store(out.as_mut_ptr().add(i), A::gated(lanes, gate, up));
            }
        }
        let rest = width - whole;
        // SAFETY: `whole + rest` is `width`, and `rest` less than N.
        unsafe {
            let gate = lanes.load_first(gate.as_ptr().add(whole), rest);
            let up = lanes.load_first(up.as_ptr().add(whole), rest);
            lanes.store_first(out.as_mut_ptr().add(whole), A::gated(lanes, gate, up), rest);
        }
    }
}

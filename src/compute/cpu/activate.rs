//! See `ops/activate.rs` for the contract.
#![allow(unsafe_code)]

use super::activate_mul::{self, Activate, GeluTanh, Silu};
use super::disjoint::Disjoint;
use super::gated_norm::each;
use super::lanes::{Kernel, Lanes, dispatch};
use super::{Cpu, Tensor};
use crate::{Activated, Activation, Curve, Part};
use std::marker::PhantomData;

/// The specification, for one row.
pub fn reference(out: &mut [f32], of: &[f32], (scale, curve): (f32, Curve), times: Option<&[f32]>) {
    let curve = |v: f64| match curve {
        Curve::Gate(activation) => activate_mul::activated(v, activation),
        Curve::ReluSquared => v.max(0.0).powi(2),
    };
    for (i, out) in out.iter_mut().enumerate() {
        *out = (curve(f64::from(scale) * f64::from(of[i])) * times.map_or(1.0, |times| f64::from(times[i]))) as f32;
    }
}

pub fn run(cpu: &Cpu, out: &mut Tensor, activated: Activated<Tensor>) {
    match activated.curve {
        Curve::Gate(Activation::Silu) => run_curve::<Silu>(cpu, out, activated),
        Curve::Gate(Activation::GeluTanh) => run_curve::<GeluTanh>(cpu, out, activated),
        Curve::Gate(Activation::ClampedSwiglu) => unreachable!("the op refuses it"),
        Curve::ReluSquared => run_curve::<ReluSquared>(cpu, out, activated),
    }
}

fn run_curve<A: Activate>(cpu: &Cpu, out: &mut Tensor, Activated { of, scale, times, .. }: Activated<Tensor>) {
    let (rows, width) = (out.rows(), out.cols());
    let out = Disjoint::new(out.values_mut());
    let row_of = |part: Part<'_, Tensor>, row: usize| part.x.cols() * row + part.first;
    // A number costs about four times what a copied one does.
    cpu.for_rows(rows, 4 * width, &|rows| {
        for row in rows {
            // SAFETY: the ranges of `for_rows` do not overlap.
            let out = unsafe { out.part(row * width..(row + 1) * width) };
            let of = &of.x.values()[row_of(of, row)..][..width];
            let times = times.map(|times| &times.x.values()[row_of(times, row)..][..width]);
            dispatch(cpu.isa, Curved { out, of, scale, times, curve: PhantomData::<A> });
        }
    });
}

struct ReluSquared;

impl Activate for ReluSquared {
    #[inline(always)]
    fn activate<L: Lanes>(lanes: L, v: L::V) -> L::V {
        let v = lanes.max(lanes.splat(0.0), v);
        lanes.mul(v, v)
    }
}

struct Curved<'a, A> {
    out: &'a mut [f32],
    of: &'a [f32],
    scale: f32,
    times: Option<&'a [f32]>,
    curve: PhantomData<A>,
}

impl<A: Activate> Kernel for Curved<'_, A> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let scale = lanes.splat(self.scale);
        let curve = |v| A::activate(lanes, lanes.mul(v, scale));
        match self.times {
            Some(times) => each(lanes, self.out, [self.of, times], |_, [v, times]| lanes.mul(curve(v), times)),
            None => each(lanes, self.out, [self.of], |_, [v]| curve(v)),
        }
    }
}

//! See `ops/activate.rs` for the contract.
#![allow(unsafe_code)]

use super::activate_mul::{self, Activate, GeluTanh, Silu};
use super::disjoint::Disjoint;
use super::gated_norm::each;
use super::lanes::{Kernel, Lanes, dispatch, exp, tanh};
use super::{Cpu, Tensor};
use crate::{Activated, Activation, Curve, Part};
use std::marker::PhantomData;

/// The specification, for one row.
pub fn reference(out: &mut [f32], of: &[f32], (scale, curve): (f32, Curve), times: Option<&[f32]>) {
    let curve = |v: f64| match curve {
        Curve::Gate(activation) => activate_mul::activated(v, activation),
        Curve::ReluSquared => v.max(0.0).powi(2),
        Curve::Tanh => v.tanh(),
        Curve::Gelu => v / 2.0 * erfc(-v / std::f64::consts::SQRT_2),
    };
    for (i, out) in out.iter_mut().enumerate() {
        *out = (curve(f64::from(scale) * f64::from(of[i])) * times.map_or(1.0, |times| f64::from(times[i]))) as f32;
    }
}

/// `1 - erf(x)`: by the series of erf near 0, by a continued fraction beyond.
fn erfc(x: f64) -> f64 {
    let z = x.abs();
    if z.is_nan() {
        return z;
    }
    let of_z = if z < 2.0 {
        let term = |(sum, term): (f64, f64), n: i32| {
            let next = -term * z * z / f64::from(n);
            (sum + next / f64::from(2 * n + 1), next)
        };
        1.0 - (1..60).fold((z, z), term).0 * 2.0 / std::f64::consts::PI.sqrt()
    } else {
        let fraction = (1..60).rev().fold(z, |below, n| z + f64::from(n) / 2.0 / below);
        (-z * z).exp() / fraction / std::f64::consts::PI.sqrt()
    };
    if x < 0.0 { 2.0 - of_z } else { of_z }
}

pub fn run(cpu: &Cpu, out: &mut Tensor, activated: Activated<Tensor>) {
    match activated.curve {
        Curve::Gate(Activation::Silu) => run_curve::<Silu>(cpu, out, activated),
        Curve::Gate(Activation::GeluTanh) => run_curve::<GeluTanh>(cpu, out, activated),
        Curve::Gate(Activation::ClampedSwiglu) => unreachable!("the op refuses it"),
        Curve::ReluSquared => run_curve::<ReluSquared>(cpu, out, activated),
        Curve::Gelu => run_curve::<Gelu>(cpu, out, activated),
        Curve::Tanh => run_curve::<Tanh>(cpu, out, activated),
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

struct Tanh;

impl Activate for Tanh {
    #[inline(always)]
    fn activate<L: Lanes>(lanes: L, v: L::V) -> L::V {
        tanh(lanes, v)
    }
}

struct Gelu;

/// The powers of `t = 1 / (1 + z / 2)`, constant term first, of which `t exp(p(t) - z^2)` is `erfc(z)` within 1.2e-7 of itself (Press et al.,
/// Numerical Recipes, 6.2).
const ERFC: [f32; 10] = [
    -1.265_512_2,
    1.000_023_7,
    0.374_091_96,
    0.096_784_18,
    -0.186_288_06,
    0.278_868_08,
    -1.135_204,
    1.488_515_9,
    -0.822_152_2,
    0.170_872_77,
];

impl Activate for Gelu {
    /// `v erfc(|v| / sqrt(2)) / 2` for a negative `v`, and `v` less that for another, which keeps the digits of both.
    #[inline(always)]
    fn activate<L: Lanes>(lanes: L, v: L::V) -> L::V {
        let (zero, half, one) = (lanes.splat(0.0), lanes.splat(0.5), lanes.splat(1.0));
        let z = lanes.mul(lanes.max(v, lanes.sub(zero, v)), lanes.splat(std::f32::consts::FRAC_1_SQRT_2));
        let t = lanes.div(one, lanes.fma(z, half, one));
        let mut p = lanes.splat(ERFC[9]);
        for &c in ERFC[..9].iter().rev() {
            p = lanes.fma(p, t, lanes.splat(c));
        }
        let erfc = lanes.mul(t, exp(lanes, lanes.sub(p, lanes.mul(z, z))));
        // An infinite number times nothing is nothing here.
        let tail = lanes.select_less(z, lanes.splat(10.0), lanes.mul(lanes.mul(half, erfc), v), zero);
        let tail = lanes.select_less(zero, lanes.add(z, one), tail, v);
        lanes.select_less(v, zero, tail, lanes.sub(v, tail))
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

//! See `ops/rms_norm.rs` for the contract.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::lanes::{Kernel, Lanes, dispatch};
use super::{Cpu, Tensor};

/// The specification, in f64 so that its own rounding stays out of comparisons.
pub fn reference(out: &mut [f32], x: &[f32], weight: &[f32], eps: f32) {
    let hidden = weight.len();
    for (out, x) in out.chunks_exact_mut(hidden).zip(x.chunks_exact(hidden)) {
        let squares: f64 = x.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
        let rms = (squares / hidden as f64 + f64::from(eps)).sqrt();
        for ((out, &x), &weight) in out.iter_mut().zip(x).zip(weight) {
            *out = (f64::from(x) / rms * f64::from(weight)) as f32;
        }
    }
}

pub fn run(cpu: &Cpu, out: &mut Tensor, x: &Tensor, weight: &[f32], eps: f32) {
    let hidden = weight.len();
    let (rows, x) = (x.rows(), x.values());
    let out = Disjoint::new(out.values_mut());
    cpu.for_rows(rows, hidden, &|rows| {
        let numbers = rows.start * hidden..rows.end * hidden;
        // SAFETY: the ranges of `for_rows` do not overlap.
        let out = unsafe { out.part(numbers.clone()) };
        dispatch(cpu.isa, Normalize { out, x: &x[numbers], weight, eps });
    });
}

/// Rows of `weight.len()` numbers.
struct Normalize<'a> {
    out: &'a mut [f32],
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
}

impl Kernel for Normalize<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let hidden = self.weight.len();
        for (out, x) in self.out.chunks_exact_mut(hidden).zip(self.x.chunks_exact(hidden)) {
            let scale = inverse_rms(lanes, x, self.eps);
            for ((out, &x), &weight) in out.iter_mut().zip(x).zip(self.weight) {
                *out = x * scale * weight;
            }
        }
    }
}

/// `1 / sqrt(mean(x^2) + eps)`, summed in an order that depends on the length alone.
#[inline(always)]
pub fn inverse_rms<L: Lanes>(lanes: L, x: &[f32], eps: f32) -> f32 {
    // Four sums, so that an addition need not wait for the one before it.
    let mut sums = [lanes.splat(0.0); 4];
    let mut quads = x.chunks_exact(4 * L::N);
    for quad in &mut quads {
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the chunk has 4 N numbers.
            let v = unsafe { lanes.load(quad.as_ptr().add(i * L::N)) };
            *sum = lanes.fma(v, v, *sum);
        }
    }
    let mut vectors = quads.remainder().chunks_exact(L::N);
    for vector in &mut vectors {
        // SAFETY: the chunk has N numbers.
        let v = unsafe { lanes.load(vector.as_ptr()) };
        sums[0] = lanes.fma(v, v, sums[0]);
    }
    let rest = vectors.remainder();
    // SAFETY: the remainder is shorter than N.
    let v = unsafe { lanes.load_first(rest.as_ptr(), rest.len()) };
    sums[1] = lanes.fma(v, v, sums[1]);
    let squares = lanes.sum(lanes.add(lanes.add(sums[0], sums[1]), lanes.add(sums[2], sums[3])));
    1.0 / (squares / x.len() as f32 + eps).sqrt()
}

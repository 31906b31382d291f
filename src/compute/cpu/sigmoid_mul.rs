//! See `ops/sigmoid_mul.rs` for the contract.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::lanes::{Kernel, Lanes, dispatch, exp};
use super::{Cpu, Tensor};

/// The specification.
pub fn reference(x: &mut [f32], gate: &[f32]) {
    let span = x.len() / gate.len();
    for (i, x) in x.iter_mut().enumerate() {
        *x = (f64::from(*x) / (1.0 + (-f64::from(gate[i / span])).exp())) as f32;
    }
}

pub fn run(cpu: &Cpu, x: &mut Tensor, gate: &Tensor) {
    let (rows, width, gates) = (x.rows(), x.cols(), gate.cols());
    let gate = gate.values();
    let x = Disjoint::new(x.values_mut());
    // A number costs about four times what a copied one does.
    cpu.for_rows(rows, 4 * width, &|rows| {
        // SAFETY: the ranges of `for_rows` do not overlap.
        let x = unsafe { x.part(rows.start * width..rows.end * width) };
        let gate = &gate[rows.start * gates..rows.end * gates];
        match width / gates {
            1 => dispatch(cpu.isa, SigmoidMul { x, gate }),
            span => dispatch(cpu.isa, SigmoidMulSpans { x, gate, span }),
        }
    });
}

/// A gate per number.
struct SigmoidMul<'a> {
    x: &'a mut [f32],
    gate: &'a [f32],
}

impl Kernel for SigmoidMul<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let gated = |x, gate| {
            let minus = lanes.sub(lanes.splat(0.0), gate);
            lanes.div(x, lanes.add(lanes.splat(1.0), exp(lanes, minus)))
        };
        let (mut x, mut gate) = (self.x.chunks_exact_mut(L::N), self.gate.chunks_exact(L::N));
        for (x, gate) in (&mut x).zip(&mut gate) {
            // SAFETY: both chunks have N numbers.
            unsafe { lanes.store(x.as_mut_ptr(), gated(lanes.load(x.as_ptr()), lanes.load(gate.as_ptr()))) }
        }
        let (x, gate) = (x.into_remainder(), gate.remainder());
        assert_eq!(x.len(), gate.len());
        // SAFETY: both remainders have this length, which is less than N.
        unsafe {
            let v = gated(lanes.load_first(x.as_ptr(), x.len()), lanes.load_first(gate.as_ptr(), x.len()));
            lanes.store_first(x.as_mut_ptr(), v, x.len());
        }
    }
}

/// A gate per `span` numbers.
struct SigmoidMulSpans<'a> {
    x: &'a mut [f32],
    gate: &'a [f32],
    span: usize,
}

impl Kernel for SigmoidMulSpans<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        for (x, &gate) in self.x.chunks_exact_mut(self.span).zip(self.gate) {
            let divisor = lanes.add(lanes.splat(1.0), exp(lanes, lanes.splat(-gate)));
            let mut x = x.chunks_exact_mut(L::N);
            for x in &mut x {
                // SAFETY: the chunk has N numbers.
                unsafe { lanes.store(x.as_mut_ptr(), lanes.div(lanes.load(x.as_ptr()), divisor)) }
            }
            let x = x.into_remainder();
            // SAFETY: the remainder has this length, which is less than N.
            unsafe {
                let v = lanes.div(lanes.load_first(x.as_ptr(), x.len()), divisor);
                lanes.store_first(x.as_mut_ptr(), v, x.len());
            }
        }
    }
}

//! See `ops/silu_mul.rs` for the contract.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::lanes::{Kernel, Lanes, dispatch, exp};
use super::{Cpu, Tensor};

/// The specification. `width` numbers a row of `out`.
pub fn reference(out: &mut [f32], gate_up: &[f32], width: usize) {
    for (out, gate_up) in out.chunks_exact_mut(width).zip(gate_up.chunks_exact(2 * width)) {
        for (i, out) in out.iter_mut().enumerate() {
            let (gate, up) = (f64::from(gate_up[i]), f64::from(gate_up[width + i]));
            *out = (gate / (1.0 + (-gate).exp()) * up) as f32;
        }
    }
}

pub fn run(cpu: &Cpu, out: &mut Tensor, gate_up: &Tensor) {
    let (rows, width) = (out.rows(), out.cols());
    let gate_up = gate_up.values();
    let out = Disjoint::new(out.values_mut());
    // A number costs about four times what a copied one does.
    cpu.for_rows(rows, 4 * width, &|rows| {
        // SAFETY: the ranges of `for_rows` do not overlap.
        let out = unsafe { out.part(rows.start * width..rows.end * width) };
        dispatch(cpu.isa, Gate { out, gate_up: &gate_up[2 * rows.start * width..2 * rows.end * width], width });
    });
}

struct Gate<'a> {
    out: &'a mut [f32],
    gate_up: &'a [f32],
    width: usize,
}

impl Kernel for Gate<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        for (out, gate_up) in self.out.chunks_exact_mut(self.width).zip(self.gate_up.chunks_exact(2 * self.width)) {
            let (gate, up) = gate_up.split_at(self.width);
            let whole = self.width / L::N * L::N;
            for i in (0..whole).step_by(L::N) {
                // SAFETY: `i + N` is at most `width`, the length of all three.
                unsafe {
                    let v = silu_times(lanes, lanes.load(gate.as_ptr().add(i)), lanes.load(up.as_ptr().add(i)));
                    lanes.store(out.as_mut_ptr().add(i), v);
                }
            }
            let rest = self.width - whole;
            // SAFETY: `whole + rest` is `width`, and `rest` less than N.
            unsafe {
                let gate = lanes.load_first(gate.as_ptr().add(whole), rest);
                let up = lanes.load_first(up.as_ptr().add(whole), rest);
                lanes.store_first(out.as_mut_ptr().add(whole), silu_times(lanes, gate, up), rest);
            }
        }
    }
}

/// `gate / (1 + exp(-gate)) * up`
#[inline(always)]
fn silu_times<L: Lanes>(lanes: L, gate: L::V, up: L::V) -> L::V {
    let minus = lanes.sub(lanes.splat(0.0), gate);
    let silu = lanes.div(gate, lanes.add(lanes.splat(1.0), exp(lanes, minus)));
    lanes.mul(silu, up)
}

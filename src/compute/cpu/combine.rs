//! See `ops/combine.rs` for the contract.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::experts::Routes;
use super::lanes::{Kernel, Lanes, dispatch, exp};
use super::{Cpu, Isa, Tensor};
use crate::{CHOSEN_MAX, SharedExpert};
use std::ops::Range;

/// The specification: `x` has a row per slot, in the order of slots. `shared` and the gates of its rows.
pub fn reference(out: &mut [f32], cols: usize, x: &[f32], weights: &[f32], shared: Option<(&[f32], Option<&[f32]>)>) {
    let tokens = out.len() / cols;
    let chosen = weights.len() / tokens.max(1);
    for (at, out) in out.iter_mut().enumerate() {
        let (token, column) = (at / cols, at % cols);
        let slots = token * chosen..(token + 1) * chosen;
        let sum: f64 = slots.map(|slot| f64::from(weights[slot]) * f64::from(x[slot * cols + column])).sum();
        let of_shared = shared.map_or(0.0, |(shared, gates)| {
            let gate = gates.map_or(1.0, |gates| 1.0 / (1.0 + (-f64::from(gates[token])).exp()));
            gate * f64::from(shared[at])
        });
        *out = (sum + of_shared) as f32;
    }
}

pub fn run(
    cpu: &Cpu,
    out: &mut Tensor,
    x: &Tensor,
    shared: Option<SharedExpert<Tensor>>,
    routes: &Routes,
    experts: Range<usize>,
) {
    let (tokens, cols) = (out.rows(), out.cols());
    let is_whole = experts.len() == routes.shape().experts;
    let out = Disjoint::new(out.values_mut());
    cpu.for_rows(tokens, cols * (routes.shape().chosen + 1), &|range| {
        for token in range {
            let (rows, weights) = routes.of_token(token);
            let shared = shared.as_ref().map(|SharedExpert { x, gate }| Shared {
                x: &x.values()[token * cols..][..cols],
                gate: gate.map(|gate| gate.values()[token]),
            });
            // SAFETY: the ranges of `for_rows` do not overlap.
            let out = unsafe { out.part(token * cols..(token + 1) * cols) };
            if is_whole {
                row(cpu.isa, out, x.values(), rows, weights, shared);
                continue;
            }
            let (mut own, mut count) = ([(0, 0.0); CHOSEN_MAX], 0);
            for ((&expert, &row), &weight) in routes.experts_of(token).iter().zip(rows).zip(weights) {
                if experts.contains(&(expert as usize)) {
                    (own[count], count) = ((row, weight), count + 1);
                }
            }
            let (rows, weights) = (own.map(|(row, _)| row), own.map(|(_, weight)| weight));
            row(cpu.isa, out, x.values(), &rows[..count], &weights[..count], shared);
        }
    });
}

/// The row of the expert that computes all tokens.
pub struct Shared<'a> {
    pub x: &'a [f32],
    pub gate: Option<f32>,
}

/// One token, of which `rows` of `x` are added up.
pub fn row(isa: Isa, out: &mut [f32], x: &[f32], rows: &[u32], weights: &[f32], shared: Option<Shared>) {
    dispatch(isa, Combine { out, x, rows, weights, shared });
}

/// A token.
struct Combine<'a> {
    out: &'a mut [f32],
    x: &'a [f32],
    rows: &'a [u32],
    weights: &'a [f32],
    shared: Option<Shared<'a>>,
}

impl Kernel for Combine<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let Combine { out, x, rows, weights, shared } = self;
        let cols = out.len();
        let one = lanes.splat(1.0);
        let gate = shared.as_ref().map(|shared| match shared.gate {
            None => one,
            Some(gate) => lanes.div(one, lanes.add(one, exp(lanes, lanes.splat(-gate)))),
        });
        for first in (0..cols).step_by(L::N) {
            let count = L::N.min(cols - first);
            // SAFETY: the slices have `count` numbers from `first` on.
            let load = |row: &[f32]| unsafe {
                match count == L::N {
                    true => lanes.load(row[first..][..count].as_ptr()),
                    false => lanes.load_first(row[first..][..count].as_ptr(), count),
                }
            };
            let mut sum = lanes.splat(0.0);
            for (&row, &weight) in rows.iter().zip(weights) {
                sum = lanes.fma(lanes.splat(weight), load(&x[row as usize * cols..][..cols]), sum);
            }
            if let (Some(shared), Some(gate)) = (&shared, gate) {
                sum = lanes.fma(gate, load(shared.x), sum);
            }
            // SAFETY: as above.
            unsafe {
                match count == L::N {
                    true => lanes.store(out[first..][..count].as_mut_ptr(), sum),
                    false => lanes.store_first(out[first..][..count].as_mut_ptr(), sum, count),
                }
            }
        }
    }
}

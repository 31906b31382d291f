//! See `ops/selective_scan.rs` for the contract.
//!
//! A thread computes a head of a row, token by token, so that neither the batch nor how a prompt was cut changes a bit.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::gated_delta::softplus;
use super::lanes::{Kernel, Lanes, dispatch};
use super::states::States;
use super::{Cpu, DeviceBatch, Tensor};
use crate::batch::NO_STATE;
use crate::{ScanHeads, ScanInputs};

/// The specification, for one row. `xbc` is `[tokens, width]`, `steps` is `[tokens, heads]`, `state` is `[heads, state_dim, head_dim]`.
pub fn reference(
    out: &mut [f32],
    xbc: &[f32],
    (steps, step_scale): (&[f32], f32),
    rates: &[f32],
    sizes: ScanHeads,
    state: &mut [f32],
) {
    let ScanHeads { heads, groups, head_dim, state_dim } = sizes;
    let mut s: Vec<f64> = state.iter().map(|&v| f64::from(v)).collect();
    for (token, xbc) in xbc.chunks_exact(sizes.width()).enumerate() {
        for head in 0..heads {
            let group = head / (heads / groups);
            let number = |at: usize| f64::from(xbc[at]);
            let rate = |index: usize| f64::from(rates[index * heads + head]);
            let raw = f64::from(step_scale) * f64::from(steps[token * heads + head]) + rate(1);
            let step = if raw > 20.0 { raw } else { raw.exp().ln_1p() };
            let decay = (-rate(0) * step).exp();
            let b = |i: usize| number(sizes.head_width() + group * state_dim + i);
            let c = |i: usize| number(sizes.head_width() + (groups + group) * state_dim + i);
            let s = &mut s[head * state_dim * head_dim..][..state_dim * head_dim];
            for j in 0..head_dim {
                let x = number(head * head_dim + j);
                let mut read = 0.0;
                for i in 0..state_dim {
                    let s = &mut s[i * head_dim + j];
                    *s = decay * *s + b(i) * (step * x);
                    read += c(i) * *s;
                }
                out[(token * heads + head) * head_dim + j] = (read + rate(2) * x) as f32;
            }
        }
    }
    state.iter_mut().zip(&s).for_each(|(state, &s)| *state = s as f32);
}

pub fn run(
    cpu: &Cpu,
    out: &mut Tensor,
    inputs: ScanInputs<Tensor, Box<[f32]>>,
    sizes: ScanHeads,
    (states, at): (&mut States, usize),
    device_batch: &DeviceBatch,
) {
    let batch = &device_batch.batch;
    let ScanInputs { xbc, steps, first_step, step_scale, rates } = inputs;
    let ScanHeads { heads, groups, head_dim, state_dim } = sizes;
    let (size, width) = (state_dim * head_dim, sizes.head_width());
    let states = states.region(at, sizes.state_numbers());
    let out = Disjoint::new(out.values_mut());
    cpu.pool.for_each(batch.rows() * heads, 1, &|_, items| {
        for item in items {
            let (row, head) = (item / heads, item % heads);
            let (source, slot) = (batch.state_sources[row], batch.state_slots[row]);
            let part = head * size..(head + 1) * size;
            // SAFETY: an item alone reads and writes this head in the slots of its row, and no row writes what another one reads.
            let state = unsafe { states.part(slot, part.clone()) }.expect("a row has a slot");
            match source {
                NO_STATE => state.fill(0.0),
                _ if source == slot => {}
                // SAFETY: as above; the two slots differ.
                _ => state.copy_from_slice(unsafe { states.part(source, part.clone()) }.expect("it is a slot")),
            }
            let group = head / (heads / groups);
            for token in batch.row(row) {
                let xbc = &xbc.values()[token * sizes.width()..][..sizes.width()];
                let (x, bc) = xbc.split_at(width);
                let (b, c) = bc.split_at(groups * state_dim);
                let of_group = group * state_dim..(group + 1) * state_dim;
                let raw = step_scale * steps.values()[token * steps.cols() + first_step + head];
                let step = softplus(raw + rates[heads + head]);
                let at = token * width + head * head_dim;
                dispatch(
                    cpu.isa,
                    Step {
                        // SAFETY: the tokens of a row belong to it, and an item computes one head.
                        out: unsafe { out.part(at..at + head_dim) },
                        state,
                        b: &b[of_group.clone()],
                        c: &c[of_group],
                        x: &x[head * head_dim..][..head_dim],
                        step,
                        decay: (-rates[head] * step).exp(),
                        skip: rates[2 * heads + head],
                    },
                );
                let saved = batch.state_saves[token];
                // SAFETY: a slot that is saved to is named once in a batch.
                if let Some(saved) = unsafe { states.part(saved, part.clone()) } {
                    saved.copy_from_slice(state);
                }
            }
        }
    });
}

/// One token of one head.
struct Step<'a> {
    out: &'a mut [f32],
    /// `[state_dim, head_dim]`
    state: &'a mut [f32],
    b: &'a [f32],
    c: &'a [f32],
    x: &'a [f32],
    step: f32,
    decay: f32,
    skip: f32,
}

impl Kernel for Step<'_> {
    #[inline(always)]
    fn run<L: Lanes>(mut self, lanes: L) {
        let mut column = 0;
        while column + 4 * L::N <= self.out.len() {
            self.strip::<L, 4>(lanes, column);
            column += 4 * L::N;
        }
        while column < self.out.len() {
            // No vector has more than 16 numbers, and the numbers of a head are a multiple of 16.
            self.strip::<L, 1>(lanes, column);
            column += L::N;
        }
    }
}

impl Step<'_> {
    /// `U` vectors of columns.
    #[inline(always)]
    fn strip<L: Lanes, const U: usize>(&mut self, lanes: L, column: usize) {
        const { assert!(L::N <= 16) };
        let stride = self.out.len();
        assert!(column + U * L::N <= stride && self.x.len() == stride && self.state.len() == self.b.len() * stride);
        let state = self.state.as_mut_ptr();
        let decay = lanes.splat(self.decay);
        let mut x = [lanes.splat(0.0); U];
        for (u, x) in x.iter_mut().enumerate() {
            // SAFETY: `x` has `stride` numbers, of which these are some by the assertion.
            *x = unsafe { lanes.load(self.x.as_ptr().add(column + u * L::N)) };
        }
        let written = x.map(|x| lanes.mul(lanes.splat(self.step), x));
        let mut read = x.map(|x| lanes.mul(lanes.splat(self.skip), x));
        for (i, (&b, &c)) in self.b.iter().zip(self.c).enumerate() {
            let (b, c) = (lanes.splat(b), lanes.splat(c));
            for (u, read) in read.iter_mut().enumerate() {
                // SAFETY: row `i` of the state has `stride` numbers, of which these are some by the assertion.
                unsafe {
                    let at = state.add(i * stride + column + u * L::N);
                    let s = lanes.fma(b, written[u], lanes.mul(lanes.load(at), decay));
                    lanes.store(at, s);
                    *read = lanes.fma(c, s, *read);
                }
            }
        }
        for (u, read) in read.into_iter().enumerate() {
            // SAFETY: `out` has `stride` numbers.
            unsafe { lanes.store(self.out.as_mut_ptr().add(column + u * L::N), read) };
        }
    }
}

//! See `ops/gated_delta.rs` for the contract.
//!
//! A thread computes a value head of a row, token by token, so that neither the batch nor how a prompt was cut changes a bit. The state of a head is taken in
//! strips of columns, which stay in the first-level cache between the two times they are read.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::lanes::{Kernel, Lanes, dispatch};
use super::states::States;
use super::{Cpu, DeviceBatch, Tensor};
use crate::batch::NO_STATE;
use crate::{DeltaHeads, DeltaInputs};

/// The specification, for one row. `qkv` is `[tokens, width]`, `b` and `a` are `[tokens, values]`, `state` is `[values, key_dim, value_dim]`.
pub fn reference(
    out: &mut [f32],
    qkv: &[f32],
    [b, a]: [&[f32]; 2],
    decays: &[f32],
    heads: DeltaHeads,
    state: &mut [f32],
) {
    let DeltaHeads { keys, values, key_dim, value_dim, .. } = heads;
    let wide = |v: &[f32]| v.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>();
    let unit = |v: &[f32]| {
        let v = wide(v);
        let norm = (v.iter().map(|v| v * v).sum::<f64>() + 1e-6).sqrt();
        v.into_iter().map(|v| v / norm).collect::<Vec<f64>>()
    };
    let mut s = wide(state);
    for (token, qkv) in qkv.chunks_exact(heads.width()).enumerate() {
        for head in 0..values {
            let key_head = heads.key_head(head);
            let q = unit(&qkv[key_head * key_dim..][..key_dim]);
            let k = unit(&qkv[(keys + key_head) * key_dim..][..key_dim]);
            let v = wide(&qkv[2 * heads.key_width() + head * value_dim..][..value_dim]);
            let gate = |x: &[f32]| f64::from(x[token * values + head]);
            let beta = 1.0 / (1.0 + (-gate(b)).exp());
            let rate = gate(a) + f64::from(decays[values + head]);
            let softplus = if rate > 20.0 { rate } else { rate.exp().ln_1p() };
            let decay = (-f64::from(decays[head]) * softplus).exp();
            let s = &mut s[head * key_dim * value_dim..][..key_dim * value_dim];
            for j in 0..value_dim {
                (0..key_dim).for_each(|i| s[i * value_dim + j] *= decay);
                let known: f64 = (0..key_dim).map(|i| k[i] * s[i * value_dim + j]).sum();
                let delta = beta * (v[j] - known);
                (0..key_dim).for_each(|i| s[i * value_dim + j] += k[i] * delta);
                let read: f64 = (0..key_dim).map(|i| q[i] * s[i * value_dim + j]).sum();
                out[token * values * value_dim + head * value_dim + j] = (read / (key_dim as f64).sqrt()) as f32;
            }
        }
    }
    state.iter_mut().zip(&s).for_each(|(state, &s)| *state = s as f32);
}

pub fn run(
    cpu: &Cpu,
    out: &mut Tensor,
    inputs: DeltaInputs<Tensor, Box<[f32]>>,
    heads: DeltaHeads,
    (states, at): (&mut States, usize),
    device_batch: &DeviceBatch,
) {
    let batch = &device_batch.batch;
    let DeltaInputs { qkv, gates, first_gate, decays } = inputs;
    let (size, width) = (heads.key_dim * heads.value_dim, heads.value_width());
    let states = states.region(at, heads.state_numbers());
    let out = Disjoint::new(out.values_mut());
    cpu.pool.for_each(batch.rows() * heads.values, 1, &|_, items| {
        for item in items {
            let (row, head) = (item / heads.values, item % heads.values);
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
            let key_head = heads.key_head(head);
            let (rate, bias) = (decays[head], decays[heads.values + head]);
            for token in batch.row(row) {
                let qkv = &qkv.values()[token * heads.width()..][..heads.width()];
                let (queries, rest) = qkv.split_at(heads.key_width());
                let (keys, values) = rest.split_at(heads.key_width());
                let of_key_head = key_head * heads.key_dim..(key_head + 1) * heads.key_dim;
                let gate = |index: usize| gates.values()[token * gates.cols() + first_gate + index];
                let at = token * width + head * heads.value_dim;
                dispatch(
                    cpu.isa,
                    Step {
                        // SAFETY: the tokens of a row belong to it, and an item computes one head.
                        out: unsafe { out.part(at..at + heads.value_dim) },
                        state,
                        query: &queries[of_key_head.clone()],
                        key: &keys[of_key_head],
                        value: &values[head * heads.value_dim..][..heads.value_dim],
                        beta: 1.0 / (1.0 + (-gate(head)).exp()),
                        decay: (-rate * softplus(gate(heads.values + head) + bias)).exp(),
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

/// `ln(1 + e^x)`; above 20 it is `x` in single precision.
pub(super) fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// One token of one value head.
struct Step<'a> {
    out: &'a mut [f32],
    /// `[key_dim, value_dim]`
    state: &'a mut [f32],
    query: &'a [f32],
    key: &'a [f32],
    value: &'a [f32],
    beta: f32,
    decay: f32,
}

/// The longest key.
const KEY_DIM_MAX: usize = 128;

impl Kernel for Step<'_> {
    #[inline(always)]
    fn run<L: Lanes>(mut self, lanes: L) {
        let dim = self.key.len();
        let (mut q, mut k) = ([0.0; KEY_DIM_MAX], [0.0; KEY_DIM_MAX]);
        for (to, from, scale) in [(&mut q, self.query, 1.0 / (dim as f32).sqrt()), (&mut k, self.key, 1.0)] {
            let norm = scale / (squares(lanes, from) + 1e-6).sqrt();
            to.iter_mut().zip(from).for_each(|(to, from)| *to = from * norm);
        }
        let (q, k) = (&q[..dim], &k[..dim]);
        let mut column = 0;
        while column + 4 * L::N <= self.out.len() {
            self.strip::<L, 4>(lanes, q, k, column);
            column += 4 * L::N;
        }
        while column < self.out.len() {
            // No vector has more than 16 numbers, and the values are a multiple of 16.
            self.strip::<L, 1>(lanes, q, k, column);
            column += L::N;
        }
    }
}

impl Step<'_> {
    /// `U` vectors of columns.
    #[inline(always)]
    fn strip<L: Lanes, const U: usize>(&mut self, lanes: L, q: &[f32], k: &[f32], column: usize) {
        const { assert!(L::N <= 16) };
        let stride = self.out.len();
        assert!(column + U * L::N <= stride && self.value.len() == stride && self.state.len() == k.len() * stride);
        let state = self.state.as_mut_ptr();
        let decay = lanes.splat(self.decay);
        let mut known = [lanes.splat(0.0); U];
        for (i, &k) in k.iter().enumerate() {
            let k = lanes.splat(k);
            for (u, known) in known.iter_mut().enumerate() {
                // SAFETY: row `i` of the state has `stride` numbers, of which these are some by the assertion.
                let s = unsafe { lanes.load(state.add(i * stride + column + u * L::N)) };
                *known = lanes.fma(k, s, *known);
            }
        }
        let mut delta = known;
        for (u, delta) in delta.iter_mut().enumerate() {
            // SAFETY: as above.
            let value = unsafe { lanes.load(self.value.as_ptr().add(column + u * L::N)) };
            let difference = lanes.sub(value, lanes.mul(*delta, decay));
            *delta = lanes.mul(lanes.splat(self.beta), difference);
        }
        let mut read = [lanes.splat(0.0); U];
        for (i, (&q, &k)) in q.iter().zip(k).enumerate() {
            let (q, k) = (lanes.splat(q), lanes.splat(k));
            for (u, read) in read.iter_mut().enumerate() {
                // SAFETY: as above.
                unsafe {
                    let at = state.add(i * stride + column + u * L::N);
                    let s = lanes.fma(k, delta[u], lanes.mul(lanes.load(at), decay));
                    lanes.store(at, s);
                    *read = lanes.fma(q, s, *read);
                }
            }
        }
        for (u, read) in read.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { lanes.store(self.out.as_mut_ptr().add(column + u * L::N), read) };
        }
    }
}

/// The sum of squares of a number of values that is a multiple of 16.
#[inline(always)]
fn squares<L: Lanes>(lanes: L, x: &[f32]) -> f32 {
    let mut sum = lanes.splat(0.0);
    for x in x.chunks_exact(L::N) {
        // SAFETY: the chunk has N numbers.
        let v = unsafe { lanes.load(x.as_ptr()) };
        sum = lanes.fma(v, v, sum);
    }
    lanes.sum(sum)
}

//! See `ops/causal_conv.rs` for the contract.
//!
//! Two loops: over tokens to compute, over rows to write the states, which the first loop reads.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::lanes::{Kernel, Lanes, dispatch, exp};
use super::states::{Region, States};
use super::{Cpu, DeviceBatch, Tensor};
use crate::batch::{Batch, NO_STATE};
use crate::recurrent::{ConvForm, MAX_TAPS, ShortConv};
use std::ops::Range;

/// The specification, for one row: `x` is `[tokens, input_cols]`, `out` is `[tokens, cols]`, `state` is `[taps - 1, cols]`.
pub fn reference(out: &mut [f32], x: &[f32], weight: &[f32], conv: ShortConv, state: &mut Vec<f32>) {
    let cols = weight.len() / (conv.taps + usize::from(conv.has_bias));
    let is_gated = conv.form == ConvForm::Gated;
    let mut inputs = state.clone();
    for x in x.chunks_exact(conv.input_cols(cols)) {
        inputs.extend((0..cols).map(|c| if is_gated { x[c] * x[cols + c] } else { x[c] }));
    }
    for (token, out) in out.chunks_exact_mut(cols).enumerate() {
        for (c, out) in out.iter_mut().enumerate() {
            let taps =
                (0..conv.taps).map(|j| f64::from(weight[j * cols + c]) * f64::from(inputs[(token + j) * cols + c]));
            let bias = if conv.has_bias { f64::from(weight[conv.taps * cols + c]) } else { 0.0 };
            let sum: f64 = taps.sum::<f64>() + bias;
            *out = match conv.form {
                ConvForm::Plain => sum,
                ConvForm::Silu => sum / (1.0 + (-sum).exp()),
                ConvForm::Gated => sum * f64::from(x[(token * 3 + 2) * cols + c]),
            } as f32;
        }
    }
    *state = inputs.split_off(inputs.len() - conv.state_numbers(cols));
}

pub fn run(
    cpu: &Cpu,
    out: &mut Tensor,
    x: &Tensor,
    weight: &[f32],
    conv: ShortConv,
    (states, at): (&mut States, usize),
    device_batch: &DeviceBatch,
) {
    let (cols, batch) = (out.cols(), &device_batch.batch);
    let input = Input { x, cols, history: conv.taps - 1, is_gated: conv.form == ConvForm::Gated };
    let states = states.region(at, conv.state_numbers(cols));
    let out = Disjoint::new(out.values_mut());
    cpu.for_rows(batch.tokens(), (conv.taps + 4) * cols, &|tokens| {
        // SAFETY: the ranges of `for_rows` do not overlap.
        let out = unsafe { out.part(tokens.start * cols..tokens.end * cols) };
        let mut row = row_of(batch, tokens.start);
        for (token, out) in tokens.zip(out.chunks_exact_mut(cols)) {
            while token >= batch.row(row).end {
                row += 1;
            }
            // SAFETY: nobody writes states in this loop.
            let state = unsafe { states.part(batch.state_sources[row], 0..input.history * cols) };
            let mut taps = [Tap::ZERO; MAX_TAPS];
            for (j, tap) in taps[..conv.taps].iter_mut().enumerate() {
                *tap = input.at(batch.row(row), (token + j) as isize - input.history as isize, state.as_deref());
            }
            let gate = if input.is_gated { input.columns(token, 2) } else { &[] };
            let (weight, bias) = weight.split_at(conv.taps * cols);
            dispatch(
                cpu.isa,
                Convolve { out, taps: &taps[..conv.taps], weight, bias, gate, has_silu: conv.form == ConvForm::Silu },
            );
        }
    });
    cpu.pool.for_each(batch.rows(), 1, &|_, rows| rows.for_each(|row| input.keep(batch, row, &states)));
}

/// The row of a token.
fn row_of(batch: &Batch, token: usize) -> usize {
    batch.row_starts.partition_point(|&start| start as usize <= token) - 1
}

/// The inputs of a convolution.
struct Input<'a> {
    x: &'a Tensor,
    cols: usize,
    /// Tokens that the state has.
    history: usize,
    is_gated: bool,
}

/// What is read of a token: `x`, or `x * gate` unless the gate is empty. Zeros if `x` is empty.
#[derive(Clone, Copy)]
struct Tap<'a> {
    x: &'a [f32],
    gate: &'a [f32],
}

impl Tap<'_> {
    const ZERO: Tap<'static> = Tap { x: &[], gate: &[] };
}

impl Input<'_> {
    /// The columns of `token` that come after `index` times as many.
    fn columns(&self, token: usize, index: usize) -> &[f32] {
        &self.x.values()[token * self.x.cols() + index * self.cols..][..self.cols]
    }

    /// What is read of `token`, which may lie before the tokens of its row.
    fn at<'a>(&'a self, row: Range<usize>, token: isize, state: Option<&'a [f32]>) -> Tap<'a> {
        match token - row.start as isize {
            0.. if self.is_gated => Tap { x: self.columns(token as usize, 1), gate: self.columns(token as usize, 0) },
            0.. => Tap { x: self.columns(token as usize, 0), gate: &[] },
            before => match state {
                Some(state) => {
                    Tap { x: &state[(self.history as isize + before) as usize * self.cols..][..self.cols], gate: &[] }
                }
                None => Tap::ZERO,
            },
        }
    }

    /// Writes the state after each token of a row that is to be saved, then the one after the last.
    fn keep(&self, batch: &Batch, row: usize, states: &Region) {
        let (tokens, source) = (batch.row(row), batch.state_sources[row]);
        let saves = tokens.clone().map(|token| (token, batch.state_saves[token])).filter(|&(_, slot)| slot != NO_STATE);
        for (last, slot) in saves.chain([(tokens.end - 1, batch.state_slots[row])]) {
            for i in 0..self.history {
                let token = (last + 1 + i) as isize - self.history as isize;
                let before = token - tokens.start as isize;
                // SAFETY: a row alone writes its slots, one thread does, and nobody writes what another row reads. What is read from the slot that is
                // written lies behind what is written, or is the same.
                unsafe {
                    let Some(to) = states.part(slot, i * self.cols..(i + 1) * self.cols) else { continue };
                    if before >= 0 && self.is_gated {
                        let (b, x) = (self.columns(token as usize, 0), self.columns(token as usize, 1));
                        to.iter_mut().zip(b.iter().zip(x)).for_each(|(to, (b, x))| *to = b * x);
                        continue;
                    }
                    let to = to.as_mut_ptr();
                    let from = match before {
                        0.. => self.columns(token as usize, 0).as_ptr(),
                        _ => {
                            let start = (self.history as isize + before) as usize * self.cols;
                            match states.part(source, start..start + self.cols) {
                                Some(from) => from.as_ptr(),
                                None => {
                                    to.write_bytes(0, self.cols);
                                    continue;
                                }
                            }
                        }
                    };
                    std::ptr::copy(from, to, self.cols);
                }
            }
        }
    }
}

/// One token.
struct Convolve<'a> {
    out: &'a mut [f32],
    taps: &'a [Tap<'a>],
    /// `[taps, cols]`
    weight: &'a [f32],
    /// Empty without one.
    bias: &'a [f32],
    /// Factors of the sums. Empty without any.
    gate: &'a [f32],
    has_silu: bool,
}

impl Kernel for Convolve<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let cols = self.out.len();
        let mut start = 0;
        while start < cols {
            let len = L::N.min(cols - start);
            let load = |from: &[f32]| {
                let from = &from[start..start + len];
                // SAFETY: the slice has `len` numbers.
                unsafe { if len == L::N { lanes.load(from.as_ptr()) } else { lanes.load_first(from.as_ptr(), len) } }
            };
            let mut sum = if self.bias.is_empty() { lanes.splat(0.0) } else { load(self.bias) };
            for (tap, weight) in self.taps.iter().zip(self.weight.chunks_exact(cols)) {
                if !tap.x.is_empty() {
                    let x = load(tap.x);
                    let x = if tap.gate.is_empty() { x } else { lanes.mul(load(tap.gate), x) };
                    sum = lanes.fma(load(weight), x, sum);
                }
            }
            if self.has_silu {
                let minus = lanes.sub(lanes.splat(0.0), sum);
                sum = lanes.div(sum, lanes.add(lanes.splat(1.0), exp(lanes, minus)));
            }
            if !self.gate.is_empty() {
                sum = lanes.mul(sum, load(self.gate));
            }
            let to = self.out[start..start + len].as_mut_ptr();
            // SAFETY: as above.
            unsafe { if len == L::N { lanes.store(to, sum) } else { lanes.store_first(to, sum, len) } }
            start += len;
        }
    }
}

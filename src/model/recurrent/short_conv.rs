//! The gated short convolution of a layer: `out(c * conv(b * x))`, where `b`, `c` and `x` are projections of the stream.

use super::{StateShare, gathered};
use crate::linear::{Inputs, Linear, Projection};
use crate::shard::{Back, Sharding};
use crate::spec::{DecoderSpec, GatedShortConv as Spec, Recurrent};
use crate::weights::Weights;
use base::error::Result;
use compute::ops;
use compute::{Backend, ShortConv as Conv, Tensor};
use std::ops::Range;

/// The gated short convolution of one layer, as far as this rank computes it: some of the columns.
pub struct ShortConv<B: Backend> {
    conv: Conv,
    /// Where its region of the state begins.
    at: usize,
    /// `b`, then `x`, then `c`.
    input: Linear<B>,
    /// `[taps, columns]`, then the biases
    weight: B::Vector,
    output: Linear<B>,
}

/// What it writes on its way, shared by all layers. `None` where no layer has one.
pub struct ConvScratch<B: Backend>(Option<Scratch<B>>);

struct Scratch<B: Backend> {
    /// What the projection makes. `[tokens, 3 columns]`
    projected: Tensor<B::Storage>,
    /// `[tokens, columns]`
    mixed: Tensor<B::Storage>,
    /// The same of all ranks, where the projection back reads it whole.
    all_mixed: Option<Tensor<B::Storage>>,
    /// Columns of each rank in the rows of all. `[ranks]`
    shares: Vec<Range<usize>>,
}

/// Numbers of the recurrent state that a layer keeps on a rank.
pub fn state_numbers(spec: &Spec, sharding: &Sharding, hidden: usize) -> usize {
    spec.conv().state_numbers(sharding.own_width(hidden).len())
}

/// Which numbers of the state of a layer a rank has.
pub(super) fn state_share(spec: &Spec, sharding: &Sharding, hidden: usize) -> StateShare {
    let own_columns = vec![sharding.own_width(hidden)];
    StateShare { conv: [spec.conv().taps - 1, hidden], own_columns, rest: 0, own_rest: Vec::new() }
}

impl<B: Backend> ConvScratch<B> {
    /// For passes of at most `tokens` tokens.
    pub fn new(backend: &B, spec: &DecoderSpec, sharding: &Sharding, tokens: usize) -> Result<ConvScratch<B>> {
        if !spec.recurrent_layers().any(|layer| matches!(layer, Recurrent::ShortConv(_))) {
            return Ok(ConvScratch(None));
        }
        let own = sharding.own_width(spec.hidden).len();
        let tensor = |cols| backend.tensor(tokens, cols);
        Ok(ConvScratch(Some(Scratch {
            projected: tensor(3 * own)?,
            mixed: tensor(own)?,
            all_mixed: sharding.gathers().then(|| tensor(spec.hidden)).transpose()?,
            shares: sharding.width(spec.hidden),
        })))
    }

    /// Sets the tokens of this pass.
    pub fn set_rows(&mut self, tokens: usize) {
        if let Some(scratch) = &mut self.0 {
            let all = [&mut scratch.projected, &mut scratch.mixed].into_iter().chain(&mut scratch.all_mixed);
            all.for_each(|tensor| tensor.set_rows(tokens));
        }
    }
}

impl<B: Backend> ShortConv<B> {
    /// The convolution of layer `layer`, whose input and output are `hidden` wide, and whose region of the state begins at `at`.
    pub fn load(
        backend: &B,
        spec: &Spec,
        sharding: &Sharding,
        weights: &mut Weights,
        [layer, at]: [usize; 2],
        hidden: usize,
    ) -> Result<ShortConv<B>> {
        let names = weights.names();
        let name = |part| names.in_layer(layer, part);
        let parts = &names.short_conv;
        let own = sharding.own_width(hidden);
        let rows = |third: usize| third * hidden + own.start..third * hidden + own.end;
        // The tensor has `b`, `c` and `x`.
        let input = Projection { name: name(parts.input), outputs: 3 * hidden, own: vec![rows(0), rows(2), rows(1)] };
        let Back { inputs, outputs, adds_bias } = sharding.back(hidden, own.clone());
        let output = Projection { name: name(parts.output), outputs: hidden, own: vec![outputs] };
        let inputs = Inputs { all: hidden, own: inputs };
        let conv = spec.conv();
        let weight = weights.short_conv(&name(parts.conv), hidden, conv, std::slice::from_ref(&own))?;
        Ok(ShortConv {
            conv,
            at,
            input: Linear::load(backend, weights, Inputs::all(hidden), &[input], spec.bias, true)?,
            weight: backend.table(&weight)?,
            output: Linear::load(backend, weights, inputs, &[output], spec.bias, adds_bias)?,
        })
    }

    /// The layer that reads the input.
    pub fn input(&self) -> &Linear<B> {
        &self.input
    }

    /// The projection of what [`forward`](Self::forward) returns back into the stream.
    pub fn output(&self) -> &Linear<B> {
        &self.output
    }

    /// What [`output`](Self::output) reads. `x` is `[tokens, hidden]`.
    pub fn forward<'a>(
        &self,
        backend: &mut B,
        scratch: &'a mut ConvScratch<B>,
        states: &mut B::States,
        device_batch: &B::DeviceBatch,
        x: &Tensor<B::Storage>,
    ) -> &'a Tensor<B::Storage> {
        let Scratch { projected, mixed, all_mixed, shares } = scratch.0.as_mut().expect("a layer of the spec");
        self.input.forward(backend, projected, x);
        ops::causal_conv(backend, mixed, projected, &self.weight, self.conv, (states, self.at), device_batch);
        gathered(backend, mixed, all_mixed, shares)
    }
}

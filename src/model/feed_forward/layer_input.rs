//! What a layer adds to the stream from the input that it has besides it: `back(activation(gate(x)) * input)`.

use crate::linear::{Inputs, Linear, Projection};
use crate::shard::{Back, Sharding};
use crate::spec::{self, Bias, DecoderSpec};
use crate::weights::Weights;
use base::error::Result;
use compute::ops;
use compute::{Activated, Activation, Backend, Curve, Part, Tensor};
use std::ops::Range;

/// The part of one layer, as far as this rank computes it.
pub struct LayerInput<B: Backend> {
    /// Where this rank's columns of this layer begin in the inputs.
    first: usize,
    gate: Linear<B>,
    activation: Activation,
    back: Linear<B>,
}

/// What it writes on its way, shared by all layers. Widths are those of this rank's share, unless they say otherwise.
pub struct LayerInputScratch<B: Backend> {
    /// `[tokens, width]`
    gate: Tensor<B::Storage>,
    /// `[tokens, width]`
    gated: Tensor<B::Storage>,
    /// The same of all ranks, where the projection back reads it whole.
    all_gated: Option<Tensor<B::Storage>>,
    /// Columns of each rank in the rows of all. `[ranks]`
    shares: Vec<Range<usize>>,
}

impl<B: Backend> LayerInputScratch<B> {
    /// For passes of at most `tokens` tokens. `None` where layers have no such inputs.
    pub fn new(
        backend: &B,
        spec: &DecoderSpec,
        sharding: &Sharding,
        tokens: usize,
    ) -> Result<Option<LayerInputScratch<B>>> {
        let Some(spec::LayerInputs { width, .. }) = spec.layer_inputs else { return Ok(None) };
        let own = || backend.tensor(tokens, sharding.own_width(width).len());
        Ok(Some(LayerInputScratch {
            gate: own()?,
            gated: own()?,
            all_gated: sharding.gathers().then(|| backend.tensor(tokens, width)).transpose()?,
            shares: sharding.width(width),
        }))
    }

    /// Sets the tokens of this pass.
    pub fn set_rows(&mut self, tokens: usize) {
        let all = [&mut self.gate, &mut self.gated].into_iter().chain(&mut self.all_gated);
        all.for_each(|tensor| tensor.set_rows(tokens));
    }
}

impl<B: Backend> LayerInput<B> {
    /// That of layer `layer`, whose stream is `hidden` wide.
    pub fn load(
        backend: &B,
        spec: &spec::LayerInput,
        sharding: &Sharding,
        weights: &mut Weights,
        layer: usize,
        hidden: usize,
    ) -> Result<LayerInput<B>> {
        let names = weights.names();
        let name = |part| names.in_layer(layer, part);
        let (width, own) = (spec.width, sharding.own_width(spec.width));
        let first = layer * width + own.start;
        let gate = Projection { name: name(names.layer_inputs.gate), outputs: width, own: vec![own.clone()] };
        let Back { inputs, outputs, adds_bias } = sharding.back(width, own);
        let back = Projection { name: name(names.layer_inputs.back), outputs: hidden, own: vec![outputs] };
        let inputs = Inputs { all: width, own: inputs };
        Ok(LayerInput {
            first,
            gate: Linear::load(backend, weights, Inputs::all(hidden), &[gate], Bias::None, true)?,
            activation: spec.activation,
            back: Linear::load(backend, weights, inputs, &[back], Bias::None, adds_bias)?,
        })
    }

    /// The layer that reads the stream.
    pub fn input(&self) -> &Linear<B> {
        &self.gate
    }

    /// The projection of what [`forward`](Self::forward) returns back into the stream.
    pub fn output(&self) -> &Linear<B> {
        &self.back
    }

    /// What [`output`](Self::output) reads. `x` is `[tokens, hidden]`, and `inputs` has those of all layers.
    pub fn forward<'a>(
        &self,
        backend: &mut B,
        scratch: &'a mut LayerInputScratch<B>,
        x: &Tensor<B::Storage>,
        inputs: &Tensor<B::Storage>,
    ) -> &'a Tensor<B::Storage> {
        let LayerInputScratch { gate, gated, all_gated, shares } = scratch;
        self.gate.forward(backend, gate, x);
        let (of, times) = (Part { x: &*gate, first: 0 }, Some(Part { x: inputs, first: self.first }));
        ops::activate(backend, gated, Activated { of, scale: 1.0, curve: Curve::Gate(self.activation), times });
        match all_gated {
            Some(all) => {
                ops::join_columns(backend, all, Some(Part { x: gated, first: 0 }), shares);
                all
            }
            None => gated,
        }
    }
}

//! The gated MLP of a layer: `down(activation(gate(x)) * up(x))`.

use crate::linear::{Inputs, Linear, Projection};
use crate::names::{GateUpNames, MlpNames};
use crate::shard::{Back, Sharding};
use crate::spec::{self, DecoderSpec, FeedForward};
use crate::weights::Weights;
use base::error::Result;
use compute::ops;
use compute::{Activation, Backend, Part, Tensor};
use std::ops::Range;

/// The MLP of one layer.
pub struct Mlp<B: Backend> {
    /// That of all ranks.
    width: usize,
    gate_up: Linear<B>,
    activation: Activation,
    down: Linear<B>,
}

/// What the MLP writes on its way, shared by all layers of one width. One per width, in the order in which layers first have them.
pub struct MlpScratch<B: Backend>(Vec<WidthScratch<B>>);

/// What an MLP of one width writes on its way. `width` is that of this rank's share, unless it says otherwise.
struct WidthScratch<B: Backend> {
    /// Of all ranks.
    all: usize,
    /// For the product that is gated, where the device stores it. `[tokens, 2 * width]`
    gate_up: Tensor<B::Storage>,
    /// `[tokens, width]`
    gated: Tensor<B::Storage>,
    /// The same of all ranks, where the last projection reads it whole.
    all_gated: Option<Tensor<B::Storage>>,
    /// Columns of each rank in the rows of all. `[ranks]`
    shares: Vec<Range<usize>>,
}

impl<B: Backend> MlpScratch<B> {
    /// For passes of at most `tokens` tokens.
    pub fn new(backend: &B, spec: &DecoderSpec, sharding: &Sharding, tokens: usize) -> Result<MlpScratch<B>> {
        let mut widths: Vec<usize> = Vec::new();
        for width in spec.feed_forwards().filter_map(FeedForward::dense).map(|mlp| mlp.width) {
            if !widths.contains(&width) {
                widths.push(width);
            }
        }
        let scratch = widths.into_iter().map(|width| WidthScratch::new(backend, width, sharding, tokens));
        scratch.collect::<Result<_>>().map(MlpScratch)
    }

    /// Sets the tokens of this pass.
    pub fn set_rows(&mut self, tokens: usize) {
        self.0.iter_mut().for_each(|scratch| scratch.set_rows(tokens));
    }

    fn of(&mut self, width: usize) -> &mut WidthScratch<B> {
        self.0.iter_mut().find(|scratch| scratch.all == width).expect("a layer of the spec")
    }
}

impl<B: Backend> WidthScratch<B> {
    fn new(backend: &B, width: usize, sharding: &Sharding, tokens: usize) -> Result<WidthScratch<B>> {
        let own = sharding.own_width(width).len();
        let tensor = |cols| backend.tensor(tokens, cols);
        Ok(WidthScratch {
            all: width,
            gate_up: tensor(2 * own)?,
            gated: tensor(own)?,
            all_gated: sharding.gathers().then(|| tensor(width)).transpose()?,
            shares: sharding.width(width),
        })
    }

    fn set_rows(&mut self, tokens: usize) {
        let all = [&mut self.gate_up, &mut self.gated].into_iter().chain(&mut self.all_gated);
        all.for_each(|tensor| tensor.set_rows(tokens));
    }
}

impl<B: Backend> Mlp<B> {
    /// The MLP of layer `layer` whose parts have these names, and whose input and output are `hidden` wide.
    pub fn load(
        backend: &B,
        spec: &spec::Mlp,
        parts: &MlpNames,
        sharding: &Sharding,
        weights: &mut Weights,
        [layer, hidden]: [usize; 2],
    ) -> Result<Mlp<B>> {
        let names = weights.names();
        let in_layer = |part: Projection| Projection { name: names.in_layer(layer, &part.name), ..part };
        let (width, own) = (spec.width, sharding.own_width(spec.width));
        let stacked: Vec<_> = gate_up_projections(parts, width, &own).into_iter().map(in_layer).collect();
        let Back { inputs, outputs, adds_bias } = sharding.back(width, own);
        let down = in_layer(back_projection(parts, hidden, &outputs));
        let inputs = Inputs { all: width, own: inputs };
        Ok(Mlp {
            width,
            gate_up: Linear::load(backend, weights, Inputs::all(hidden), &stacked, spec.bias, true)?,
            activation: spec.activation,
            down: Linear::load(backend, weights, inputs, &[down], spec.bias, adds_bias)?,
        })
    }

    /// The layer that reads the input.
    pub fn input(&self) -> &Linear<B> {
        &self.gate_up
    }

    /// The projection of what [`forward`](Self::forward) returns back into the stream.
    pub fn output(&self) -> &Linear<B> {
        &self.down
    }

    /// What [`output`](Self::output) reads. `x` is `[tokens, hidden]`.
    pub fn forward<'a>(
        &self,
        backend: &mut B,
        scratch: &'a mut MlpScratch<B>,
        x: &Tensor<B::Storage>,
    ) -> &'a Tensor<B::Storage> {
        let WidthScratch { gate_up, gated, all_gated, shares, .. } = scratch.of(self.width);
        self.gate_up.forward_gated(backend, gated, gate_up, x, self.activation);
        match all_gated {
            Some(all) => {
                ops::join_columns(backend, all, Some(Part { x: gated, first: 0 }), shares);
                all
            }
            None => gated,
        }
    }
}

/// The projections into an MLP of `width`, of which a rank has the outputs `own` of the gate and of what stands beside it. Names are those of parts.
pub fn gate_up_projections(parts: &MlpNames, width: usize, own: &Range<usize>) -> Vec<Projection> {
    match parts.gate_up {
        GateUpNames::Separate { gate, up } => {
            [gate, up].map(|part| Projection { name: part.into(), outputs: width, own: vec![own.clone()] }).into()
        }
        GateUpNames::Fused(both) => {
            let own = vec![own.clone(), width + own.start..width + own.end];
            vec![Projection { name: both.into(), outputs: 2 * width, own }]
        }
    }
}

/// The projection back into the stream, of which a rank has the outputs `own`. The name is that of the part.
pub fn back_projection(parts: &MlpNames, hidden: usize, own: &Range<usize>) -> Projection {
    Projection { name: parts.down.into(), outputs: hidden, own: vec![own.clone()] }
}

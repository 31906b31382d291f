//! What works on each token alone.

mod experts;
mod layer_input;
mod mlp;

use crate::linear::Linear;
use crate::products::Work;
use crate::shard::Sharding;
use crate::spec::{self, DecoderSpec};
use crate::stream::SublayerOutput;
use crate::weights::Weights;
use base::error::Result;
use compute::{Backend, Tensor};
pub use experts::Experts;
use experts::ExpertsScratch;
use layer_input::{LayerInput, LayerInputScratch};
use mlp::{Mlp, MlpScratch};

/// The feed-forward part of a layer, as far as this rank computes it.
pub enum FeedForward<B: Backend> {
    /// One MLP for all tokens.
    Dense(Mlp<B>),
    /// What the layer gets besides the stream.
    LayerInput(LayerInput<B>),
    /// Several, of which a router chooses some for each token.
    Experts(Experts<B>),
}

/// What such parts write on their way.
pub struct FeedForwardScratch<B: Backend> {
    dense: MlpScratch<B>,
    layer_input: Option<LayerInputScratch<B>>,
    experts: ExpertsScratch<B>,
}

impl<B: Backend> FeedForwardScratch<B> {
    /// For passes of at most `tokens` tokens.
    pub fn new(backend: &B, spec: &DecoderSpec, sharding: &Sharding, tokens: usize) -> Result<FeedForwardScratch<B>> {
        Ok(FeedForwardScratch {
            dense: MlpScratch::new(backend, spec, sharding, tokens)?,
            layer_input: LayerInputScratch::new(backend, spec, sharding, tokens)?,
            experts: ExpertsScratch::new(backend, spec, sharding, tokens)?,
        })
    }

    /// Sets the tokens of this pass.
    pub fn set_rows(&mut self, tokens: usize) {
        self.dense.set_rows(tokens);
        self.layer_input.iter_mut().for_each(|scratch| scratch.set_rows(tokens));
        self.experts.set_rows(tokens);
    }
}

impl<B: Backend> FeedForward<B> {
    /// The part of layer `layer`, whose input and output are `hidden` wide.
    pub fn load(
        backend: &B,
        spec: &spec::FeedForward,
        sharding: &Sharding,
        weights: &mut Weights,
        layer: usize,
        hidden: usize,
    ) -> Result<FeedForward<B>> {
        Ok(match spec {
            spec::FeedForward::Dense(mlp) => {
                let parts = &weights.names().mlp;
                FeedForward::Dense(Mlp::load(backend, mlp, parts, sharding, weights, [layer, hidden])?)
            }
            spec::FeedForward::Shared(mlp) => {
                let parts = &weights.names().experts.shared;
                FeedForward::Dense(Mlp::load(backend, mlp, parts, sharding, weights, [layer, hidden])?)
            }
            spec::FeedForward::Experts(experts) => {
                FeedForward::Experts(Experts::load(backend, experts, sharding, weights, layer, hidden)?)
            }
            spec::FeedForward::LayerInput(input) => {
                FeedForward::LayerInput(LayerInput::load(backend, input, sharding, weights, layer, hidden)?)
            }
        })
    }

    /// The layer that reads the input, where one alone does.
    pub fn input(&self) -> Option<&Linear<B>> {
        match self {
            FeedForward::Dense(mlp) => Some(mlp.input()),
            FeedForward::LayerInput(part) => Some(part.input()),
            FeedForward::Experts(_) => None,
        }
    }

    /// Its products, in order.
    pub fn work(&self) -> Vec<Work<'_, B>> {
        match self {
            FeedForward::Dense(mlp) => {
                vec![mlp.first_work(["gate_up", "up"]), Work::back("down", mlp.output())]
            }
            FeedForward::LayerInput(part) => {
                vec![Work::product("input gate", part.input()), Work::back("input back", part.output())]
            }
            FeedForward::Experts(experts) => experts.work(),
        }
    }

    /// What it adds to the stream. `x` is what it reads, and `rows` the stream itself, `[tokens, hidden]`; `layer_inputs` has what all layers get besides it.
    pub fn forward<'a>(
        &'a self,
        backend: &mut B,
        scratch: &'a mut FeedForwardScratch<B>,
        [x, rows]: [&Tensor<B::Storage>; 2],
        layer_inputs: Option<&Tensor<B::Storage>>,
        device_batch: &B::DeviceBatch,
    ) -> SublayerOutput<'a, B> {
        match self {
            FeedForward::Dense(mlp) => {
                let gated = mlp.forward(backend, &mut scratch.dense, x);
                SublayerOutput::Product { layer: mlp.output(), x: gated }
            }
            FeedForward::LayerInput(part) => {
                let (Some(scratch), Some(inputs)) = (&mut scratch.layer_input, layer_inputs) else {
                    unreachable!("the spec has such inputs")
                };
                let gated = part.forward(backend, scratch, x, inputs);
                SublayerOutput::Product { layer: part.output(), x: gated }
            }
            FeedForward::Experts(experts) => {
                let FeedForwardScratch { dense, experts: scratch, .. } = scratch;
                experts.forward(backend, scratch, dense, [x, rows], device_batch)
            }
        }
    }
}

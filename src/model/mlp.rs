//! The gated MLP of a layer: `down(activation(gate(x)) * up(x))`.

use crate::backend::{Activation, Backend, Tensor};
use crate::error::Result;
use crate::model::linear::Linear;
use crate::model::names::GateUpNames;
use crate::model::spec::GatedMlp;
use crate::model::weights::Weights;
use crate::ops;

/// The MLP of one layer.
pub struct Mlp<B: Backend> {
    gate_up: Linear<B>,
    activation: Activation,
    down: Linear<B>,
}

/// What the MLP writes on its way, shared by all layers.
pub struct MlpScratch<B: Backend> {
    /// `[tokens, 2 * width]`
    gate_up: Tensor<B::Storage>,
    /// `[tokens, width]`
    gated: Tensor<B::Storage>,
}

impl<B: Backend> MlpScratch<B> {
    /// For passes of at most `tokens` tokens through MLPs of this width.
    pub fn new(backend: &B, width: usize, tokens: usize) -> Result<MlpScratch<B>> {
        Ok(MlpScratch { gate_up: backend.tensor(tokens, 2 * width)?, gated: backend.tensor(tokens, width)? })
    }

    /// Sets the tokens of this pass.
    pub fn set_rows(&mut self, tokens: usize) {
        self.gate_up.set_rows(tokens);
        self.gated.set_rows(tokens);
    }
}

impl<B: Backend> Mlp<B> {
    /// The MLP of layer `layer`, whose input and output are `hidden` wide.
    pub fn load(backend: &B, spec: &GatedMlp, weights: &mut Weights, layer: usize, hidden: usize) -> Result<Mlp<B>> {
        let names = weights.names();
        let name = |part| names.in_layer(layer, part);
        let stacked = match names.mlp.gate_up {
            GateUpNames::Separate { gate, up } => vec![(name(gate), spec.width), (name(up), spec.width)],
            GateUpNames::Fused(both) => vec![(name(both), 2 * spec.width)],
        };
        Ok(Mlp {
            gate_up: Linear::load(backend, weights, hidden, &stacked, spec.bias)?,
            activation: spec.activation,
            down: Linear::load(backend, weights, spec.width, &[(name(names.mlp.down), hidden)], spec.bias)?,
        })
    }

    /// `out` and `x` are `[tokens, hidden]`.
    pub fn forward(
        &self,
        backend: &mut B,
        scratch: &mut MlpScratch<B>,
        out: &mut Tensor<B::Storage>,
        x: &Tensor<B::Storage>,
    ) {
        self.gate_up.forward(backend, &mut scratch.gate_up, x);
        ops::activate_mul(backend, &mut scratch.gated, &scratch.gate_up, self.activation);
        self.down.forward(backend, out, &scratch.gated);
    }
}

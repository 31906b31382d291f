//! The gated MLP of a layer: `down(silu(gate(x)) * up(x))`.

use crate::backend::{Backend, Tensor};
use crate::error::Result;
use crate::model::linear::Linear;
use crate::model::spec::DecoderSpec;
use crate::model::weights::Weights;
use crate::ops;

/// The MLP of one layer.
pub struct Mlp<B: Backend> {
    gate_up: Linear<B>,
    down: Linear<B>,
}

/// What the MLP writes on its way, shared by all layers.
pub struct MlpScratch<B: Backend> {
    /// `[tokens, 2 * intermediate]`
    gate_up: Tensor<B::Storage>,
    /// `[tokens, intermediate]`
    gated: Tensor<B::Storage>,
}

impl<B: Backend> MlpScratch<B> {
    /// For passes of up to `tokens` tokens.
    pub fn new(backend: &B, spec: &DecoderSpec, tokens: usize) -> Result<MlpScratch<B>> {
        Ok(MlpScratch {
            gate_up: backend.tensor(tokens, 2 * spec.intermediate)?,
            gated: backend.tensor(tokens, spec.intermediate)?,
        })
    }

    /// Sets the tokens of this pass.
    pub fn set_rows(&mut self, tokens: usize) {
        self.gate_up.set_rows(tokens);
        self.gated.set_rows(tokens);
    }
}

impl<B: Backend> Mlp<B> {
    /// The MLP of layer `layer`.
    pub fn load(backend: &B, spec: &DecoderSpec, weights: &mut Weights, layer: usize) -> Result<Mlp<B>> {
        let name = |part: &str| format!("layers.{layer}.mlp.{part}_proj");
        let wide = spec.intermediate;
        let stacked = [(name("gate"), wide), (name("up"), wide)];
        Ok(Mlp {
            gate_up: Linear::load(backend, weights, spec.hidden, &stacked, spec.mlp_bias)?,
            down: Linear::load(backend, weights, wide, &[(name("down"), spec.hidden)], spec.mlp_bias)?,
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
        ops::silu_mul(backend, &mut scratch.gated, &scratch.gate_up);
        self.down.forward(backend, out, &scratch.gated);
    }
}

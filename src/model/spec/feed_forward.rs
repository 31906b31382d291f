//! What works on each token alone, as data.

use super::{Activation, Bias};

/// What works on each token alone.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedForward {
    /// One MLP for all tokens.
    Dense(Mlp),
    /// What the layer gets besides the stream.
    LayerInput(LayerInput),
}

/// `back(activation(gate(x)) * input)`, where `input` is that of the layer among [`LayerInputs`].
#[derive(Clone, Debug, PartialEq)]
pub struct LayerInput {
    /// Numbers of the input.
    pub width: usize,
    /// Of the gate.
    pub activation: Activation,
}

/// Projections up and down, and what is between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Mlp {
    /// Outputs of `up`, and of `gate`.
    pub width: usize,
    /// What is between them.
    pub form: MlpForm,
    /// Of all projections.
    pub bias: Bias,
}

/// What an MLP computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MlpForm {
    /// `down(activation(gate_scale * gate(x)) * up(x))`
    Gated {
        /// Of the gate.
        activation: Activation,
        /// Factor of the gate before.
        gate_scale: f32,
    },
    /// `down(max(up(x), 0)^2)`
    ReluSquared,
}

impl FeedForward {
    /// Outputs of its widest projection.
    pub fn width(&self) -> usize {
        match self {
            FeedForward::Dense(mlp) => mlp.width,
            FeedForward::LayerInput(input) => input.width,
        }
    }

    /// The MLP, if that is what it is.
    pub fn mlp(&self) -> Option<&Mlp> {
        match self {
            FeedForward::Dense(mlp) => Some(mlp),
            FeedForward::LayerInput(_) => None,
        }
    }

    /// What it does with the input of its layer, if that is what it is.
    pub fn layer_input(&self) -> Option<&LayerInput> {
        match self {
            FeedForward::Dense(_) => None,
            FeedForward::LayerInput(input) => Some(input),
        }
    }
}

impl MlpForm {
    /// That of most models.
    pub fn gated(activation: Activation) -> MlpForm {
        MlpForm::Gated { activation, gate_scale: 1.0 }
    }

    /// Projections into the MLP.
    pub fn projections(self) -> usize {
        match self {
            MlpForm::Gated { .. } => 2,
            MlpForm::ReluSquared => 1,
        }
    }
}

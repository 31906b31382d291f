//! What works on each token alone, as data.

use super::{Activation, Bias, Curve, Router};

/// What works on each token alone.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedForward {
    /// One MLP for all tokens.
    Dense(Mlp),
    /// The same, under the names of the expert that computes all tokens: where experts read a latent, it is a branch beside them.
    Shared(Mlp),
    /// Several, of which a router chooses some for each token.
    Experts(Experts),
    /// What the layer gets besides the stream.
    LayerInput(LayerInput),
}

/// `back(activation(gate(x)) * input)`, where `input` is that of the layer among [`LayerInputs`](super::LayerInputs).
#[derive(Clone, Debug, PartialEq)]
pub struct LayerInput {
    /// Numbers of the input.
    pub width: usize,
    /// Of the gate.
    pub activation: Activation,
}

/// A mixture of experts: see [`route`](compute::ops::route) and [`combine`](compute::ops::combine).
#[derive(Clone, Debug, PartialEq)]
pub struct Experts {
    /// What chooses them.
    pub router: Router,
    /// What is added to scores where experts are chosen.
    pub correction: Correction,
    /// How the logits of the router are made.
    pub logits: Logits,
    /// What they read and give in the place of the stream. `None`: the stream.
    pub latent: Option<ExpertLatent>,
    /// Each of them.
    pub expert: Mlp,
    /// The expert that computes all tokens.
    pub shared: Option<SharedExpert>,
}

impl Experts {
    /// Experts that read the stream and are chosen by their plain logits, with none that computes all tokens.
    pub fn plain(router: Router, expert: Mlp) -> Experts {
        Experts { router, correction: Correction::None, logits: Logits::PLAIN, latent: None, expert, shared: None }
    }
}

/// A narrow projection of the stream, which experts read in its place. A projection back of their sum is added to the stream. The router reads the stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertLatent {
    /// Its numbers.
    pub width: usize,
    /// Of both projections.
    pub bias: Bias,
}

/// How the logits of a router are made, and what becomes of its weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logits {
    /// Of the projection to them.
    pub bias: Bias,
    /// What the projection reads: the stream, divided by the root of this and its mean square, and times stored factors and the root of its inverse
    /// width. `None`: what the experts read.
    pub norm: Option<f32>,
    /// Whether the weight of an expert has a stored factor.
    pub expert_scales: ExpertScales,
}

/// Whether the weight of an expert has a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertScales {
    /// A tensor of a number per expert.
    Stored,
    /// None.
    None,
}

impl Logits {
    /// By a projection of what the experts read, without a bias.
    pub const PLAIN: Logits = Logits { bias: Bias::None, norm: None, expert_scales: ExpertScales::None };
}

/// What is added to scores where experts are chosen, and not where they are weighted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Correction {
    /// A tensor of a number per expert.
    Stored,
    /// Nothing.
    None,
}

/// An expert that computes all tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedExpert {
    /// What it computes.
    pub mlp: Mlp,
    /// What multiplies it.
    pub gate: SharedGate,
}

/// What multiplies the expert that computes all tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedGate {
    /// `sigmoid(W x)`, one number per token.
    Sigmoid,
    /// Nothing.
    None,
}

/// Projections up and down, and what is between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Mlp {
    /// Outputs of `up`, and of `gate`.
    pub width: usize,
    /// What is between them.
    pub form: MlpForm,
    /// Of the projections into it.
    pub bias: Bias,
    /// Of the projection out of it.
    pub down_bias: Bias,
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
    /// `down(curve(gate(x)) * up(x))`, of a curve that no product of gates and ups has.
    GatedBy(Curve),
    /// `down(curve(up(x)))`
    Ungated(Curve),
}

impl FeedForward {
    /// The MLPs that compute every token.
    pub fn dense(&self) -> Option<&Mlp> {
        match self {
            FeedForward::Dense(mlp) | FeedForward::Shared(mlp) => Some(mlp),
            FeedForward::Experts(experts) => experts.shared.as_ref().map(|shared| &shared.mlp),
            FeedForward::LayerInput(_) => None,
        }
    }

    /// The mixture of experts, if that is what it is.
    pub fn experts(&self) -> Option<&Experts> {
        match self {
            FeedForward::Dense(_) | FeedForward::Shared(_) | FeedForward::LayerInput(_) => None,
            FeedForward::Experts(experts) => Some(experts),
        }
    }

    /// What it does with the input of its layer, if that is what it is.
    pub fn layer_input(&self) -> Option<&LayerInput> {
        match self {
            FeedForward::Dense(_) | FeedForward::Shared(_) | FeedForward::Experts(_) => None,
            FeedForward::LayerInput(input) => Some(input),
        }
    }

    /// Outputs of the gate of its narrowest MLP, or numbers of a latent that is narrower.
    pub fn width(&self) -> usize {
        let of_latent = |experts: &Experts| experts.latent.map_or(usize::MAX, |latent| latent.width);
        let of_experts = self.experts().map(|experts| experts.expert.width.min(of_latent(experts)));
        let of_input = self.layer_input().map(|input| input.width);
        self.dense().map(|mlp| mlp.width).into_iter().chain(of_experts).chain(of_input).min().unwrap_or(0)
    }

    /// Rows of as many numbers as the stream has, `hidden`, that are read for a token.
    pub(super) fn rows(&self, hidden: usize) -> usize {
        let of_mlp = |mlp: &Mlp| mlp.width * (mlp.form.projections() + 1);
        let of_experts = |experts: &Experts| {
            let chosen = experts.router.chosen * of_mlp(&experts.expert);
            let chosen = match experts.latent {
                None => chosen,
                Some(latent) => 2 * latent.width + (chosen * latent.width).div_ceil(hidden),
            };
            experts.router.experts + chosen
        };
        let of_input = self.layer_input().map_or(0, |input| 2 * input.width);
        self.dense().map_or(0, of_mlp) + self.experts().map_or(0, of_experts) + of_input
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
            MlpForm::Gated { .. } | MlpForm::GatedBy(_) => 2,
            MlpForm::Ungated(_) => 1,
        }
    }
}

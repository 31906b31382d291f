//! Routers and mixtures of experts.

use super::Random;
use compute::cpu::reference;
use compute::{Activation, Groups, HostMatrix, Router, Scores};

/// A softmax over 8 experts, of which 2 are chosen.
pub const ROUTER: Router =
    Router { experts: 8, chosen: 2, scores: Scores::Softmax, groups: None, norm: None, scale: 1.0 };

/// Routers, with whether they have a bias.
pub const ROUTERS: &[(&str, Router, bool)] = &[
    ("one expert", Router { experts: 1, chosen: 1, ..ROUTER }, false),
    ("all experts", Router { experts: 5, chosen: 5, ..ROUTER }, false),
    ("Mixtral", Router { norm: Some(0.0), ..ROUTER }, false),
    ("OLMoE", Router { experts: 64, chosen: 8, ..ROUTER }, false),
    ("Qwen3-30B-A3B", Router { experts: 128, chosen: 8, norm: Some(0.0), ..ROUTER }, false),
    ("Qwen3-Next", Router { experts: 512, chosen: 10, norm: Some(0.0), ..ROUTER }, false),
    ("odd numbers", Router { experts: 37, chosen: 3, norm: Some(0.5), scale: 1.7, ..ROUTER }, false),
    ("a softmax with a bias", Router { experts: 64, chosen: 6, norm: Some(1e-12), ..ROUTER }, true),
    ("sigmoids", Router { experts: 32, chosen: 4, scores: Scores::Sigmoid, norm: Some(1e-6), ..ROUTER }, false),
    (
        "GLM-4.5-Air",
        Router { experts: 128, chosen: 8, scores: Scores::Sigmoid, norm: Some(1e-20), scale: 2.5, ..ROUTER },
        true,
    ),
    (
        "DeepSeek-V3",
        Router {
            experts: 256,
            chosen: 8,
            scores: Scores::Sigmoid,
            groups: Some(Groups { count: 8, kept: 4, best: 2 }),
            norm: Some(1e-20),
            scale: 2.5,
        },
        true,
    ),
    (
        "groups by their best expert",
        Router { experts: 60, chosen: 6, groups: Some(Groups { count: 6, kept: 2, best: 1 }), scale: 16.0, ..ROUTER },
        false,
    ),
];

/// Logits of which no two are near each other, for `tokens` tokens. `[tokens, experts]`
pub fn logits(random: &mut Random, tokens: usize, experts: usize) -> Vec<f32> {
    let step = 8.0 / experts as f32;
    let rows = (0..tokens).flat_map(|_| random.permutation(experts));
    rows.map(|place| (place as f32 - experts as f32 / 2.0) * step).collect()
}

/// A bias that moves experts by some places.
pub fn bias(random: &mut Random, experts: usize) -> Vec<f32> {
    random.numbers(experts, 0.02)
}

/// A mixture of experts.
#[derive(Clone, Copy)]
pub struct Case {
    pub tokens: usize,
    pub hidden: usize,
    pub width: usize,
    pub experts: usize,
    pub chosen: usize,
    pub spread: Spread,
    pub shared: Shared,
    pub has_bias: bool,
    pub activation: Activation,
}

/// Where tokens go.
#[derive(Clone, Copy, PartialEq)]
pub enum Spread {
    /// Anywhere.
    All,
    /// All to the same experts.
    Same,
    /// To every second expert.
    Half,
}

/// Whether an expert computes all tokens.
#[derive(Clone, Copy, PartialEq)]
pub enum Shared {
    None,
    Plain,
    Gated,
}

const SMALL: Case = Case {
    tokens: 1,
    hidden: 64,
    width: 32,
    experts: 8,
    chosen: 2,
    spread: Spread::All,
    shared: Shared::None,
    has_bias: false,
    activation: Activation::Silu,
};

pub const CASES: &[(&str, Case)] = &[
    ("one expert", Case { experts: 1, chosen: 1, tokens: 3, ..SMALL }),
    ("one token", SMALL),
    ("as many as there are", Case { experts: 4, chosen: 4, tokens: 5, ..SMALL }),
    ("five tokens, odd width, bias", Case { tokens: 5, width: 40, experts: 7, chosen: 3, has_bias: true, ..SMALL }),
    ("gpt-oss", Case { tokens: 6, has_bias: true, activation: Activation::ClampedSwiglu, ..SMALL }),
    ("gpt-oss, a prompt", Case { tokens: 40, has_bias: true, activation: Activation::ClampedSwiglu, ..SMALL }),
    ("decode batch of 17, a shared expert", Case { tokens: 17, shared: Shared::Plain, ..SMALL }),
    ("a shared expert with a gate", Case { tokens: 4, hidden: 88, shared: Shared::Gated, ..SMALL }),
    ("no token for half of the experts", Case { tokens: 30, spread: Spread::Half, ..SMALL }),
    ("all tokens for one expert", Case { tokens: 70, chosen: 1, spread: Spread::Same, ..SMALL }),
    (
        "more tokens for an expert than are computed together",
        Case { tokens: 300, chosen: 1, spread: Spread::Same, ..SMALL },
    ),
    ("prefill", Case { tokens: 150, hidden: 128, width: 96, experts: 16, chosen: 4, ..SMALL }),
    ("decode, a part of Qwen3-30B-A3B", Case { hidden: 512, width: 192, experts: 32, chosen: 8, ..SMALL }),
    ("decode batch of 32, many experts", Case { tokens: 32, experts: 64, chosen: 6, has_bias: true, ..SMALL }),
];

impl Case {
    /// Weights are those of a softmax over the chosen experts.
    pub fn router(&self) -> Router {
        Router { experts: self.experts, chosen: self.chosen, norm: Some(0.0), ..ROUTER }
    }

    /// `[tokens, experts]`
    pub fn logits(&self, random: &mut Random) -> Vec<f32> {
        let Case { tokens, experts, spread, .. } = *self;
        let rows = if spread == Spread::Same { 1 } else { tokens };
        let mut logits = logits(random, rows, experts);
        if spread == Spread::Half {
            logits.iter_mut().skip(1).step_by(2).for_each(|logit| *logit -= 100.0);
        }
        if spread == Spread::Same { logits.repeat(tokens) } else { logits }
    }
}

/// What a mixture reads. Weights are those of experts: of gate, then of up, and of down.
pub struct Inputs {
    pub x: Vec<f32>,
    pub logits: Vec<f32>,
    pub gate_up: Vec<Vec<HostMatrix>>,
    pub down: Vec<Vec<HostMatrix>>,
    /// `[experts * 2 * width]` and `[experts * hidden]`
    pub biases: Option<[Vec<f32>; 2]>,
    pub shared: Option<Vec<f32>>,
    pub gates: Option<Vec<f32>>,
}

impl Inputs {
    /// Numbers that `rounded` can hold, and weights that `matrix` makes of rows and columns.
    pub fn new(
        case: &Case,
        rounded: impl Fn(f32) -> f32,
        mut matrix: impl FnMut(&mut Random, usize, usize) -> HostMatrix,
    ) -> Inputs {
        let Case { tokens, hidden, width, experts, shared, has_bias, .. } = *case;
        let mut random = Random(31);
        let gate_up =
            (0..experts).map(|_| vec![matrix(&mut random, width, hidden), matrix(&mut random, width, hidden)]);
        let gate_up = gate_up.collect();
        let down = (0..experts).map(|_| vec![matrix(&mut random, hidden, width)]).collect();
        let mut numbers = |len: usize| random.numbers(len, 1.0).into_iter().map(&rounded).collect::<Vec<f32>>();
        Inputs {
            x: numbers(tokens * hidden),
            gate_up,
            down,
            biases: has_bias.then(|| [numbers(experts * 2 * width), numbers(experts * hidden)]),
            shared: (shared != Shared::None).then(|| numbers(tokens * hidden)),
            gates: (shared == Shared::Gated).then(|| numbers(tokens)),
            logits: case.logits(&mut random),
        }
    }

    /// The specification. `rounded`: to what a device stores between the products. `[tokens, hidden]`
    pub fn expected(&self, case: &Case, rounded: impl Fn(f32) -> f32) -> Vec<f32> {
        let Case { tokens, hidden, width, chosen, .. } = *case;
        let (experts, weights) = reference::route(&self.logits, None, None, &case.router());
        let x: Vec<f32> = self.x.chunks_exact(hidden).flat_map(|row| row.repeat(chosen)).collect();
        let biases = self.biases.as_ref();
        let mut gate_up = vec![f32::NAN; tokens * chosen * 2 * width];
        reference::expert_linear(&mut gate_up, &x, &self.gate_up, biases.map(|[first, _]| &first[..]), &experts);
        gate_up.iter_mut().for_each(|v| *v = rounded(*v));
        let mut gated = vec![f32::NAN; tokens * chosen * width];
        reference::activate_mul(&mut gated, &gate_up, width, case.activation);
        gated.iter_mut().for_each(|v| *v = rounded(*v));
        let mut down = vec![f32::NAN; tokens * chosen * hidden];
        reference::expert_linear(&mut down, &gated, &self.down, biases.map(|[_, second]| &second[..]), &experts);
        down.iter_mut().for_each(|v| *v = rounded(*v));
        let mut out = vec![f32::NAN; tokens * hidden];
        let shared = self.shared.as_ref().map(|shared| (&shared[..], self.gates.as_deref()));
        reference::combine(&mut out, hidden, &down, &weights, shared);
        out
    }
}

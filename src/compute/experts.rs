//! Mixtures of experts: how does a router choose, and what do ops know of the choice?
//!
//! Each token has `chosen` slots, one for each expert that computes it, the expert with the best score first. Between the products, tensors have a row
//! per slot. In which order these rows lie is the backend's business: a backend groups them by expert where its kernels gain from it.

use crate::{Activation, Curve, HostMatrix};
use std::ops::Range;

/// How a router chooses experts for a token, and how much each counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Router {
    /// Experts of a layer, at most [`EXPERTS_MAX`].
    pub experts: usize,
    /// Experts that compute a token, at most [`CHOSEN_MAX`].
    pub chosen: usize,
    /// What becomes of the logits.
    pub scores: Scores,
    /// Whether experts are chosen from some groups alone.
    pub groups: Option<Groups>,
    /// Whether the weights of a token are divided by their sum, and what is added to this first.
    pub norm: Option<f32>,
    /// Factor of the weights.
    pub scale: f32,
}

/// Experts of a layer, at most: what the kernels have room for.
pub const EXPERTS_MAX: usize = 1024;
/// Experts that compute a token, at most.
pub const CHOSEN_MAX: usize = 32;
/// Groups of experts, at most.
pub const GROUPS_MAX: usize = 64;

/// The scores of the experts, in f32. Divided by their sum, those of [`Softmax`](Scores::Softmax) are a softmax over the chosen experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scores {
    /// A softmax over all experts.
    Softmax,
    /// The sigmoid of each logit.
    Sigmoid,
}

/// Groups of as many experts each, one after the other. Experts outside the groups with the best scores are not chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// How many there are, a divisor of the number of experts.
    pub count: usize,
    /// How many are chosen from.
    pub kept: usize,
    /// The score of a group is the sum of that many best scores in it: 1 or 2.
    pub best: usize,
}

/// The shape of experts of a layer that follow each other: as many matrices of one shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertsShape {
    /// The number of the first one.
    pub first: usize,
    /// How many.
    pub experts: usize,
    /// Rows of each.
    pub outputs: usize,
    /// Columns of each.
    pub inputs: usize,
}

impl ExpertsShape {
    /// Their numbers.
    pub fn range(&self) -> Range<usize> {
        self.first..self.first + self.experts
    }
}

/// What routes have room for, and how many tokens they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutesShape {
    /// Experts of a layer.
    pub experts: usize,
    /// Experts that compute a token.
    pub chosen: usize,
    /// Tokens of this pass.
    pub tokens: usize,
}

impl RoutesShape {
    /// Rows of the tensors between the products.
    pub fn slots(&self) -> usize {
        self.tokens * self.chosen
    }
}

/// What a layer has stored for its router: a number for each expert. `[experts]`
#[derive(Debug)]
pub struct RouterVectors<'a, V> {
    /// What is added to scores where experts are chosen. `None`: nothing.
    pub bias: Option<&'a V>,
    /// Factors of the weights, after their sum was divided. `None`: ones.
    pub scales: Option<&'a V>,
}

impl<V> Clone for RouterVectors<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for RouterVectors<'_, V> {}

/// Without factors.
impl<'a, V> From<Option<&'a V>> for RouterVectors<'a, V> {
    fn from(bias: Option<&'a V>) -> Self {
        RouterVectors { bias, scales: None }
    }
}

/// Which rows a linear layer of experts reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertRows {
    /// One for each slot, in the order of the results.
    Slots,
    /// One for each token, which all of its experts read.
    Tokens,
}

/// What becomes of the first product of an expert.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExpertForm {
    /// `activation(gate) * up`.
    Gated(Activation),
    /// `curve(up)`.
    Ungated(Curve),
}

/// The MLPs of the experts of a layer, as the host has them.
#[derive(Clone, Copy, Debug)]
pub struct HostExpertWeights<'a> {
    /// Which of them compute a token.
    pub router: &'a Router,
    /// Of each expert: gates, if it has any, and ups. `[projections * width, hidden]`
    pub gate_up: &'a [Vec<HostMatrix>],
    /// `[experts, projections * width]`
    pub gate_up_bias: Option<&'a [f32]>,
    /// What comes between the products.
    pub form: ExpertForm,
    /// Of each expert. `[hidden, width]`
    pub down: &'a [Vec<HostMatrix>],
    /// `[experts, hidden]`
    pub down_bias: Option<&'a [f32]>,
}

/// The expert that computes all tokens.
#[derive(Debug)]
pub struct SharedExpert<'a, T> {
    /// What it computed. `[tokens, outputs]`
    pub x: &'a T,
    /// Its factor is the sigmoid of this number. `None`: 1. `[tokens, 1]`
    pub gate: Option<&'a T>,
}

impl Router {
    /// Whether experts are chosen by their logits: scores grow with them, and no two are rounded to one.
    pub(crate) fn chooses_by_logits(&self, has_bias: bool) -> bool {
        self.groups.is_none() && !has_bias
    }

    /// Whether it can be computed.
    pub fn is_valid(&self) -> bool {
        let Router { experts, chosen, groups, .. } = *self;
        let reaches = |groups: Groups| {
            let Groups { count, kept, best } = groups;
            (1..=GROUPS_MAX).contains(&count)
                && (1..=count).contains(&kept)
                && experts.is_multiple_of(count)
                && (1..=2).contains(&best)
                && best <= experts / count
                && chosen <= kept * (experts / count)
        };
        (1..=EXPERTS_MAX).contains(&experts)
            && (1..=CHOSEN_MAX.min(experts)).contains(&chosen)
            && groups.is_none_or(reaches)
    }
}

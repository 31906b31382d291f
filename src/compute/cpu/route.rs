//! See `ops/route.rs` for the contract.
//!
//! Experts are ordered by a key: the bits of what they are chosen by, as an unsigned number that grows with it, and behind it what makes the lower index
//! greater. No two experts have one key, so that the next best is the best of those below the last one.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::experts::Routes;
use super::lanes::{Kernel, Lanes, dispatch, exp};
use super::{Cpu, Tensor};
use crate::{GROUPS_MAX, Groups, Router, RouterVectors, Scores};

/// The specification: experts and weights of each token, the best first. `[tokens, chosen]`
pub fn reference(
    logits: &[f32],
    bias: Option<&[f32]>,
    scales: Option<&[f32]>,
    router: &Router,
) -> (Vec<u32>, Vec<f32>) {
    let Router { experts, chosen, scores, groups, norm, scale } = *router;
    let (mut indices, mut weights) = (Vec::new(), Vec::new());
    for logits in logits.chunks_exact(experts) {
        let logits: Vec<f64> = logits.iter().map(|&v| f64::from(v)).collect();
        let greatest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|v| (v - greatest).exp()).sum();
        let score = |v: &f64| match scores {
            Scores::Softmax => (v - greatest).exp() / sum,
            Scores::Sigmoid => 1.0 / (1.0 + (-v).exp()),
        };
        let scores: Vec<f64> = logits.iter().map(score).collect();
        let chosen_by = |e: usize| scores[e] + bias.map_or(0.0, |bias| f64::from(bias[e]));
        let sorted = |among: Vec<usize>| -> Vec<usize> {
            let mut among = among;
            // Stable: of equal ones the lower index stays first.
            among.sort_by(|&a, &b| chosen_by(b).total_cmp(&chosen_by(a)));
            among
        };
        let mut candidates: Vec<usize> = (0..experts).collect();
        if let Some(Groups { count, kept, best }) = groups {
            let size = experts / count;
            let of_group = |g: usize| sorted((g * size..(g + 1) * size).collect());
            let value = |g: &usize| of_group(*g)[..best].iter().map(|&e| chosen_by(e)).sum::<f64>();
            let mut order: Vec<usize> = (0..count).collect();
            order.sort_by(|a, b| value(b).total_cmp(&value(a)));
            candidates.retain(|e| order[..kept].contains(&(e / size)));
        }
        let best = &sorted(candidates)[..chosen];
        let sum: f64 = best.iter().map(|&e| scores[e]).sum();
        let divisor = norm.map_or(1.0, |eps| sum + f64::from(eps));
        indices.extend(best.iter().map(|&e| e as u32));
        let factor = |e: usize| f64::from(scale) * scales.map_or(1.0, |scales| f64::from(scales[e]));
        weights.extend(best.iter().map(|&e| (scores[e] / divisor * factor(e)) as f32));
    }
    (indices, weights)
}

pub fn run(cpu: &Cpu, routes: &mut Routes, logits: &mut Tensor, vectors: RouterVectors<Box<[f32]>>, router: &Router) {
    let tokens = logits.rows();
    let Router { experts, chosen, .. } = *router;
    let (indices, weights) = routes.choices_mut(tokens);
    let (indices, weights) = (Disjoint::new(indices), Disjoint::new(weights));
    let logits = Disjoint::new(logits.values_mut());
    cpu.for_rows(tokens, experts * (chosen + 4), &|range| {
        for token in range {
            let slots = token * chosen..(token + 1) * chosen;
            // SAFETY: the ranges of `for_rows` do not overlap.
            let (row, indices, weights) = unsafe {
                (logits.part(token * experts..(token + 1) * experts), indices.part(slots.clone()), weights.part(slots))
            };
            choose(cpu, row, vectors, router, indices, weights);
        }
    });
    routes.sort();
}

/// Chooses for one token, whose logits become scores.
fn choose(
    cpu: &Cpu,
    row: &mut [f32],
    RouterVectors { bias, scales }: RouterVectors<Box<[f32]>>,
    router: &Router,
    indices: &mut [u32],
    weights: &mut [f32],
) {
    let bias = bias.map(|bias| &bias[..]);
    let by_logits = router.chooses_by_logits(bias.is_some());
    if by_logits {
        best(|_| true, row, None, indices);
    }
    match router.scores {
        Scores::Softmax => dispatch(cpu.isa, Softmax(row)),
        Scores::Sigmoid => dispatch(cpu.isa, Sigmoid(row)),
    }
    if !by_logits {
        let kept = router.groups.map_or(u64::MAX, |groups| best_groups(row, bias, groups));
        let size = row.len() / router.groups.map_or(1, |groups| groups.count);
        best(|expert| kept >> (expert / size) & 1 == 1, row, bias, indices);
    }
    let mut sum = 0.0;
    for (weight, &expert) in weights.iter_mut().zip(&*indices) {
        *weight = row[expert as usize];
        sum += *weight;
    }
    let divisor = router.norm.map_or(1.0, |eps| sum + eps);
    weights.iter_mut().for_each(|weight| *weight = *weight / divisor * router.scale);
    if let Some(scales) = scales {
        weights.iter_mut().zip(&*indices).for_each(|(weight, &expert)| *weight *= scales[expert as usize]);
    }
}

/// The key of `value` at `index`. A NaN has a lower one than every number.
fn key(value: f32, index: usize) -> u64 {
    let bits = (value + 0.0).to_bits();
    let grows = match value.is_nan() {
        true => 0,
        false if bits >> 31 == 1 => !bits,
        false => bits | 1 << 31,
    };
    u64::from(grows) << 32 | u64::from(u32::MAX - index as u32)
}

/// The experts with the greatest keys among those that `may` be chosen, the greatest first.
fn best(may: impl Fn(usize) -> bool, scores: &[f32], bias: Option<&[f32]>, indices: &mut [u32]) {
    let key_of = |expert: usize| key(scores[expert] + bias.map_or(0.0, |bias| bias[expert]), expert);
    let mut last = u64::MAX;
    for index in indices {
        let next = |expert: usize| Some(key_of(expert)).filter(|&key| key < last && may(expert));
        last = (0..scores.len()).filter_map(next).max().expect("enough experts may be chosen: `Router::is_valid`");
        *index = u32::MAX - last as u32;
    }
}

/// The groups with the best scores: a bit for each.
fn best_groups(scores: &[f32], bias: Option<&[f32]>, groups: Groups) -> u64 {
    let Groups { count, kept, best: of_best } = groups;
    let size = scores.len() / count;
    let mut values = [f32::NEG_INFINITY; GROUPS_MAX];
    for (group, value) in values.iter_mut().enumerate().take(count) {
        let mut two = [0; 2];
        best(|expert| expert / size == group, scores, bias, &mut two[..of_best]);
        let chosen_by = |&expert: &u32| scores[expert as usize] + bias.map_or(0.0, |bias| bias[expert as usize]);
        *value = two[..of_best].iter().map(chosen_by).sum();
    }
    let mut order = [0; GROUPS_MAX];
    best(|_| true, &values[..count], None, &mut order[..kept]);
    order[..kept].iter().fold(0, |bits, group| bits | 1 << group)
}

/// Makes a softmax of logits.
struct Softmax<'a>(&'a mut [f32]);

impl Kernel for Softmax<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let greatest = self.0.iter().fold(f32::NEG_INFINITY, |greatest, &v| greatest.max(v));
        each(lanes, self.0, |v| exp(lanes, lanes.sub(v, lanes.splat(greatest))));
        let sum: f32 = self.0.iter().sum();
        each(lanes, self.0, |v| lanes.div(v, lanes.splat(sum)));
    }
}

/// Makes sigmoids of logits.
struct Sigmoid<'a>(&'a mut [f32]);

impl Kernel for Sigmoid<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let one = lanes.splat(1.0);
        let sigmoid = |v| lanes.div(one, lanes.add(one, exp(lanes, lanes.sub(lanes.splat(0.0), v))));
        each(lanes, self.0, sigmoid);
    }
}

/// Replaces each number by what `f` makes of it.
#[inline(always)]
fn each<L: Lanes>(lanes: L, numbers: &mut [f32], f: impl Fn(L::V) -> L::V) {
    let mut vectors = numbers.chunks_exact_mut(L::N);
    for vector in &mut vectors {
        // SAFETY: the chunk has N numbers.
        unsafe { lanes.store(vector.as_mut_ptr(), f(lanes.load(vector.as_ptr()))) }
    }
    let rest = vectors.into_remainder();
    // SAFETY: the remainder is shorter than N.
    unsafe { lanes.store_first(rest.as_mut_ptr(), f(lanes.load_first(rest.as_ptr(), rest.len())), rest.len()) }
}

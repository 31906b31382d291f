//! See `ops/logprobs.rs` for the contract.
//!
//! A sample is made by one thread: the greatest logit, then the sum of weights and the most probable tokens. A chunk that has none as likely as the
//! last of those found so far is passed over, which are nearly all.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::lanes::{Kernel, Lanes, dispatch};
use super::sample::noise;
use super::sample::row::{CHUNK, Row, greatest, map};
use super::{Cpu, DeviceBatch, Tensor};
use crate::batch::{MAX_LOGPROBS, NO_TOKEN};
use base::TokenId;

/// The specification of one sample: the log-probability of `chosen`, and the `top` most probable tokens with theirs.
pub fn reference(logits: &[f32], chosen: TokenId, top: usize) -> (f64, Vec<(TokenId, f64)>) {
    let mut tokens: Vec<(TokenId, f64)> = (0..).zip(logits.iter().map(|&logit| f64::from(logit))).collect();
    tokens.retain(|(_, logit)| *logit > f64::NEG_INFINITY);
    // The sort is stable: equal ones stay in the order of their ids.
    tokens.sort_by(|a, b| b.1.partial_cmp(&a.1).expect("NaNs are gone"));
    if let Some(&(_, f64::INFINITY)) = tokens.first() {
        tokens.iter_mut().for_each(|(_, logit)| *logit = if logit.is_infinite() { 0.0 } else { f64::NEG_INFINITY });
    }
    let greatest = tokens.first().map_or(0.0, |(_, logit)| *logit);
    let sum = tokens.iter().map(|(_, logit)| (logit - greatest).exp()).sum::<f64>();
    tokens.iter_mut().for_each(|(_, logit)| *logit -= greatest + sum.ln());
    let of_chosen =
        tokens.iter().find(|(token, _)| *token == chosen).map_or(f64::NEG_INFINITY, |(_, logprob)| *logprob);
    tokens.resize(top.max(tokens.len()), (NO_TOKEN, f64::NEG_INFINITY));
    tokens.truncate(top);
    (of_chosen, tokens)
}

pub fn run(cpu: &Cpu, device_batch: &mut DeviceBatch, logits: &mut Tensor) {
    let DeviceBatch { batch, sampled, raw, logprobs, top_tokens, top_logprobs, .. } = device_batch;
    let (samples, vocab) = (batch.samples(), logits.cols());
    logprobs.resize(samples, 0.0);
    top_tokens.resize(samples * MAX_LOGPROBS, NO_TOKEN);
    top_logprobs.resize(samples * MAX_LOGPROBS, f32::NEG_INFINITY);
    let rows = Disjoint::new(logits.values_mut());
    let (logprobs, top_tokens) = (Disjoint::new(logprobs), Disjoint::new(top_tokens));
    let top_logprobs = Disjoint::new(top_logprobs);
    cpu.for_rows(samples, vocab, &|samples| {
        for sample in samples {
            let sampling = &batch.sampling[sample];
            if sampling.logprobs == 0 {
                continue;
            }
            // SAFETY: the ranges of `for_rows` do not overlap, nor do the parts of two samples.
            let (logits, logprob, top_tokens, top_logprobs) = unsafe {
                (
                    rows.part(sample * vocab..(sample + 1) * vocab),
                    &mut logprobs.part(sample..sample + 1)[0],
                    top_tokens.part(sample * MAX_LOGPROBS..sample * MAX_LOGPROBS + sampling.top_logprobs()),
                    top_logprobs.part(sample * MAX_LOGPROBS..sample * MAX_LOGPROBS + sampling.top_logprobs()),
                )
            };
            for at in sampling.adjusted() {
                logits[batch.adjustments[at].token as usize] = raw[at];
            }
            let row = Row { logits, mask: None };
            dispatch(cpu.isa, Rank { row, chosen: sampled[sample], logprob, top_tokens, top_logprobs });
        }
    });
}

/// Ranks the tokens of one sample.
struct Rank<'a> {
    row: Row<'a>,
    chosen: TokenId,
    logprob: &'a mut f32,
    /// `[top_logprobs]`
    top_tokens: &'a mut [TokenId],
    /// `[top_logprobs]`; logits until they become log-probabilities.
    top_logprobs: &'a mut [f32],
}

impl Kernel for Rank<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let Rank { row, chosen, logprob, top_tokens, top_logprobs } = self;
        let most = row.argmax(lanes).logit;
        let sum = sum_and_rank(lanes, row, most, top_tokens, top_logprobs);
        let log_sum = if sum == 0 { f32::INFINITY } else { noise::ln(sum as f32 * 2f32.powi(-40)) };
        let logprob_of = |logit: f32| if logit == most { 0.0 - log_sum } else { (logit - most) - log_sum };
        // A NaN loses against minus infinity.
        *logprob = logprob_of(row.logits[chosen as usize]).max(f32::NEG_INFINITY);
        top_logprobs.iter_mut().for_each(|logit| *logit = logprob_of(*logit).max(f32::NEG_INFINITY));
    }
}

/// The weights of all tokens in fractions of 2^40, and the most probable tokens with their logits.
#[inline(always)]
fn sum_and_rank<L: Lanes>(lanes: L, row: Row, most: f32, tokens: &mut [TokenId], logits: &mut [f32]) -> u64 {
    let (mut sum, mut found) = (0, 0);
    let mut least = f32::NEG_INFINITY;
    for start in row.chunks() {
        let chunk = row.chunk(lanes, start);
        let greatest = greatest(lanes, &chunk);
        sum += weight(lanes, &chunk, greatest, most);
        // Among equals the first one found is the lowest.
        if tokens.is_empty() || greatest <= least {
            continue;
        }
        for (token, logit) in (start as TokenId..).zip(chunk) {
            if logit <= least {
                continue;
            }
            let place = logits[..found].partition_point(|&other| other >= logit);
            found = (found + 1).min(tokens.len());
            tokens[place..found].rotate_right(1);
            logits[place..found].rotate_right(1);
            (tokens[place], logits[place]) = (token, logit);
            if found == tokens.len() {
                least = logits[found - 1];
            }
        }
    }
    sum
}

/// The sum of a chunk's weights.
#[inline(always)]
fn weight<L: Lanes>(lanes: L, chunk: &[f32; CHUNK], greatest: f32, most: f32) -> u64 {
    if most.is_infinite() {
        let share = if most > 0.0 { 1 << 40 } else { 0 };
        return chunk.iter().map(|&logit| if logit == most { share } else { 0 }).sum();
    }
    if greatest - most < noise::LEAST_SCORE {
        return 0;
    }
    let mut scores = *chunk;
    map(lanes, &mut scores, |logit| lanes.sub(logit, lanes.splat(most)));
    let (mut upper, mut lower) = ([0u32; CHUNK], [0u32; CHUNK]);
    for at in (0..CHUNK).step_by(L::N) {
        // SAFETY: `at + N` is at most CHUNK, the length of all three.
        unsafe {
            let [high, low] = noise::weights(lanes, lanes.load(scores.as_ptr().add(at)));
            lanes.store_u32(upper.as_mut_ptr().add(at), high);
            lanes.store_u32(lower.as_mut_ptr().add(at), low);
        }
    }
    upper.iter().zip(&lower).map(|(&high, &low)| (u64::from(high) << 20) + u64::from(low)).sum()
}

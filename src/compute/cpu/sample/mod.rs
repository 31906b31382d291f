//! See `ops/sample.rs` for the contract, and [`Sampling`] for the rule.
//!
//! A sample is made by one thread in at most eight passes over its logits, of which the common cases need one (greedy) or
//! two (no filter). No pass needs memory beyond a histogram on the stack.
//!
//! To the bit, the rule is this. A logit that is NaN or masked is none. With `m` the greatest logit, the score of a token
//! is `s = (logit - m) / temperature` in f32. Top-n-sigma keeps scores not below that of [`Spread`]. Top-k keeps scores not below the k-th.
//! Top-p weighs each kept token with [`noise::weight`]`(s)` and keeps the most probable until their sum reaches the share, rounded up.
//! Min-p keeps scores not below [`noise::ln`]`(min_p)`. XTC drops the scores above the least one whose weight is not below its share of the sum
//! of all kept weights, rounded up. The choice is the greatest `s + gumbel`, the lowest token id among equals.

#![allow(unsafe_code)]

mod cut;
pub(super) mod noise;
pub(crate) mod philox;
pub(super) mod row;
mod spread;

use super::disjoint::Disjoint;
use super::lanes::{Kernel, Lanes, dispatch};
use super::{Cpu, DeviceBatch, Tensor};
use crate::batch::{Batch, NO_MASK, NO_TOKEN, Sampling};
use base::TokenId;
use cut::{KEEP_ALL, Key, Scores};
use noise::{GREATEST_GUMBEL, gumbel, gumbels};
use row::{CHUNK, Row, first_equal, greatest};
use spread::Spread;

/// The specification: sorts, and draws a random number for every token. `logits` is `[samples, vocab]`.
pub fn reference(logits: &[f32], vocab: usize, batch: &Batch) -> Vec<TokenId> {
    logits.chunks_exact(vocab).zip(&batch.sampling).map(|(logits, sampling)| choose(logits, sampling, batch)).collect()
}

fn choose(logits: &[f32], sampling: &Sampling, batch: &Batch) -> TokenId {
    if sampling.forced != NO_TOKEN {
        return sampling.forced;
    }
    let may_be = |token: TokenId| {
        let word = || batch.masks[sampling.mask as usize + token as usize / 32];
        sampling.mask == NO_MASK || word() >> (token % 32) & 1 == 1
    };
    let mut kept: Vec<(TokenId, f32)> = (0..).zip(logits.iter().copied()).collect();
    kept.retain(|(token, logit)| !logit.is_nan() && may_be(*token));
    // The greatest first; the sort is stable, so that equal ones stay in the order of their ids.
    kept.sort_by(|a, b| b.1.partial_cmp(&a.1).expect("NaNs are gone"));
    let Some(&(argmax, greatest)) = kept.first() else { return 0 };
    if sampling.temperature == 0.0 || greatest.is_infinite() {
        return argmax;
    }
    let mut spread = Spread::default();
    kept.iter().for_each(|(_, logit)| spread.add(greatest, *logit));
    for (_, logit) in &mut kept {
        *logit = (*logit - greatest) / sampling.temperature;
    }
    kept.retain(|(_, score)| *score > f32::NEG_INFINITY);
    if sampling.top_n_sigma > 0.0 {
        let least = -f32::from_bits(spread.limit(sampling.top_n_sigma, sampling.temperature));
        kept.retain(|(_, score)| *score >= least);
    }
    if sampling.top_k > 0 && (sampling.top_k as usize) < kept.len() {
        let least = kept[sampling.top_k as usize - 1].1;
        kept.retain(|(_, score)| *score >= least);
    }
    if sampling.top_p < 1.0 {
        let total: u64 = kept.iter().map(|(_, score)| noise::weight(*score)).sum();
        let wanted = (f64::from(sampling.top_p) * total as f64).ceil() as u64;
        let mut sum = 0;
        let least = kept.iter().find(|(_, score)| {
            sum += noise::weight(*score);
            sum >= wanted
        });
        let least = least.map_or(f32::NEG_INFINITY, |(_, score)| *score);
        kept.retain(|(_, score)| *score >= least);
    }
    if sampling.min_p > 0.0 {
        kept.retain(|(_, score)| *score >= noise::ln(sampling.min_p));
    }
    if sampling.xtc_threshold > 0.0 {
        let total: u64 = kept.iter().map(|(_, score)| noise::weight(*score)).sum();
        let wanted = (f64::from(sampling.xtc_threshold) * total as f64).ceil() as u64;
        let is_top = |(_, score): &&(TokenId, f32)| noise::weight(*score) >= wanted;
        let least = kept.iter().filter(is_top).map(|(_, score)| *score).fold(0.0, f32::min);
        kept.retain(|(_, score)| *score <= least);
    }
    let key = [sampling.seed as u32, (sampling.seed >> 32) as u32];
    let mut best = (0, f32::NEG_INFINITY);
    kept.sort_by_key(|(token, _)| *token);
    for (token, score) in kept {
        let counter = [token / 4, sampling.position, sampling.stream as u32, (sampling.stream >> 32) as u32];
        let noisy = score + gumbel(philox::block(counter, key)[token as usize % 4]);
        if noisy > best.1 {
            best = (token, noisy);
        }
    }
    best.0
}

pub fn run(cpu: &Cpu, device_batch: &mut DeviceBatch, logits: &Tensor) {
    let DeviceBatch { batch, sampled, .. } = device_batch;
    let (samples, vocab) = (batch.samples(), logits.cols());
    sampled.clear();
    sampled.resize(samples, 0);
    let tokens = Disjoint::new(sampled);
    cpu.for_rows(samples, vocab, &|samples| {
        for sample in samples {
            let sampling = &batch.sampling[sample];
            // SAFETY: the ranges of `for_rows` do not overlap.
            let token = unsafe { &mut tokens.part(sample..sample + 1)[0] };
            if sampling.forced != NO_TOKEN {
                *token = sampling.forced;
                continue;
            }
            let mask = (sampling.mask != NO_MASK)
                .then(|| &batch.masks[sampling.mask as usize..][..vocab.div_ceil(u32::BITS as usize)]);
            let row = Row { logits: &logits.values()[sample * vocab..][..vocab], mask };
            dispatch(cpu.isa, Choose { row, sampling, token });
        }
    });
}

/// Chooses one token.
struct Choose<'a> {
    row: Row<'a>,
    sampling: &'a Sampling,
    token: &'a mut TokenId,
}

impl Kernel for Choose<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let argmax = self.row.argmax(lanes);
        *self.token = argmax.token;
        if self.sampling.temperature > 0.0 && argmax.logit.is_finite() {
            let scores = Scores { row: self.row, greatest: argmax.logit, temperature: self.sampling.temperature };
            let limit = filter(lanes, &scores, self.sampling);
            *self.token = if self.sampling.xtc_threshold > 0.0 {
                let first = scores.cut_at_threshold(lanes, limit, self.sampling.xtc_threshold);
                gumbel_argmax::<L, true>(lanes, &scores, self.sampling, first, limit, argmax.token)
            } else {
                gumbel_argmax::<L, false>(lanes, &scores, self.sampling, 0, limit, argmax.token)
            };
        }
    }
}

/// The greatest key that the filters keep.
#[inline(always)]
fn filter<L: Lanes>(lanes: L, scores: &Scores, sampling: &Sampling) -> Key {
    let mut limit = KEEP_ALL;
    if sampling.top_n_sigma > 0.0 {
        limit = limit.min(scores.cut_at_sigma(lanes, sampling.top_n_sigma));
    }
    if sampling.top_k > 0 && (sampling.top_k as usize) < scores.row.logits.len() {
        limit = limit.min(scores.cut_at_count(lanes, sampling.top_k));
    }
    if sampling.top_p < 1.0 {
        limit = limit.min(scores.cut_at_share(lanes, limit, sampling.top_p));
    }
    if sampling.min_p > 0.0 {
        limit = limit.min(noise::ln(sampling.min_p).abs().to_bits());
    }
    limit
}

/// The token with the greatest noisy score among those with keys up to `limit` and, if `CAPPED`, from `first` on.
#[inline(always)]
fn gumbel_argmax<L: Lanes, const CAPPED: bool>(
    lanes: L,
    scores: &Scores,
    sampling: &Sampling,
    first: Key,
    limit: Key,
    argmax: TokenId,
) -> TokenId {
    let (most, least) = (-f32::from_bits(first), -f32::from_bits(limit));
    // The noisy score of the most probable token is a bound that few others can pass: most chunks need no random numbers.
    let chunk = argmax as usize / CHUNK * CHUNK;
    let mut bound = match CAPPED && first > 0 {
        true => f32::NEG_INFINITY,
        false => noise(lanes, sampling, chunk)[argmax as usize - chunk],
    };
    let (mut token, mut best) = (argmax, f32::NEG_INFINITY);
    for start in scores.row.chunks() {
        let mut chunk = scores.chunk(lanes, start);
        let greatest_score = greatest(lanes, &chunk);
        if greatest_score < least || greatest_score + GREATEST_GUMBEL < bound {
            continue;
        }
        let noise = noise(lanes, sampling, start);
        for at in (0..CHUNK).step_by(L::N) {
            // SAFETY: `at + N` is at most CHUNK, the length of both.
            unsafe {
                let score = lanes.load(chunk.as_ptr().add(at));
                let noisy = lanes.add(score, lanes.load(noise.as_ptr().add(at)));
                let dropped = lanes.splat(f32::NEG_INFINITY);
                let noisy = match CAPPED {
                    true => lanes.select_less(lanes.splat(most), score, dropped, noisy),
                    false => noisy,
                };
                lanes.store(chunk.as_mut_ptr().add(at), lanes.select_less(score, lanes.splat(least), dropped, noisy));
            }
        }
        let greatest = greatest(lanes, &chunk);
        if greatest > best {
            (token, best) = ((start + first_equal(&chunk, greatest)) as TokenId, greatest);
            bound = bound.max(best);
        }
    }
    token
}

/// The noise of the tokens of a chunk.
#[inline(always)]
fn noise<L: Lanes>(lanes: L, sampling: &Sampling, start: usize) -> [f32; CHUNK] {
    const BLOCKS: usize = CHUNK / 4;
    let rest = [sampling.position, sampling.stream as u32, (sampling.stream >> 32) as u32];
    let key = [sampling.seed as u32, (sampling.seed >> 32) as u32];
    let mut words = [[0.0; BLOCKS]; 4];
    for at in (0..BLOCKS).step_by(L::N) {
        let blocks = philox::blocks(lanes, (start / 4 + at) as u32, rest, key);
        for (to, block) in words.iter_mut().zip(blocks) {
            // SAFETY: `at + N` is at most BLOCKS.
            unsafe { lanes.store(to.as_mut_ptr().add(at), gumbels(lanes, block)) };
        }
    }
    let mut noise = [0.0; CHUNK];
    for (i, four) in noise.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        *four = [words[0][i], words[1][i], words[2][i], words[3][i]];
    }
    noise
}

//! Finds how unlikely a token may be and still be kept, without sorting.
//!
//! Scores are not positive, so the bits of their absolute value order them: key 0 is the most probable token. The cut is
//! found digit by digit: a histogram over the first digit of all keys tells which bin it lies in, one over the second
//! digit of that bin's keys where in there, and so on. Sums are of whole numbers, the same in any order.
#![allow(unsafe_code)]

use super::noise::{LEAST_SCORE, weight, weights};
use super::row::{CHUNK, Row, greatest, map};
use super::spread::Spread;
use crate::cpu::lanes::Lanes;

/// The absolute value of a score, as bits.
pub type Key = u32;

/// Every token is kept, those at minus infinity apart.
pub const KEEP_ALL: Key = f32::MAX.to_bits();

/// Scores of a row: `(logit - greatest logit) / temperature`, so that the most probable token has 0.
#[derive(Clone, Copy)]
pub struct Scores<'a> {
    pub row: Row<'a>,
    /// The greatest logit, which is finite.
    pub greatest: f32,
    /// Greater than 0.
    pub temperature: f32,
}

impl Scores<'_> {
    /// Scores of the chunk at `start`.
    #[inline(always)]
    pub fn chunk<L: Lanes>(&self, lanes: L, start: usize) -> [f32; CHUNK] {
        let mut scores = self.row.chunk(lanes, start);
        let (greatest, temperature) = (lanes.splat(self.greatest), lanes.splat(self.temperature));
        map(lanes, &mut scores, |logit| lanes.div(lanes.sub(logit, greatest), temperature));
        scores
    }

    /// The key of the k-th most probable token.
    #[inline(always)]
    pub fn cut_at_count<L: Lanes>(&self, lanes: L, k: u32) -> Key {
        self.cut(lanes, KEEP_ALL, Count, |_| u64::from(k))
    }

    /// The key at which the most probable tokens first hold the share `p` of all probability down to `limit`.
    #[inline(always)]
    pub fn cut_at_share<L: Lanes>(&self, lanes: L, limit: Key, p: f32) -> Key {
        self.cut(lanes, limit, Weight, |total| (f64::from(p) * total as f64).ceil() as u64)
    }

    /// The key of the top-n-sigma threshold: `sigmas` standard deviations of the logits below the greatest one.
    #[inline(always)]
    pub fn cut_at_sigma<L: Lanes>(&self, lanes: L, sigmas: f32) -> Key {
        let mut spread = Spread::default();
        for start in self.row.chunks() {
            self.row.chunk(lanes, start).into_iter().for_each(|logit| spread.add(self.greatest, logit));
        }
        spread.limit(sigmas, self.temperature)
    }

    /// The key of the least probable token that has the share `threshold` of all probability down to `limit`; 0 if none has.
    #[inline(always)]
    pub fn cut_at_threshold<L: Lanes>(&self, lanes: L, limit: Key, threshold: f32) -> Key {
        // Below, weights are 0.
        let least = LEAST_SCORE.max(-f32::from_bits(limit));
        let mut total = 0;
        for start in self.row.chunks() {
            let scores = self.chunk(lanes, start);
            if greatest(lanes, &scores) >= least {
                let weights = Weight.chunk(lanes, &scores);
                total +=
                    scores.into_iter().zip(weights).filter(|(score, _)| *score >= least).map(|it| it.1).sum::<u64>();
            }
        }
        let wanted = (f64::from(threshold) * total as f64).ceil() as u64;
        let mut found = 0;
        for start in self.row.chunks() {
            let scores = self.chunk(lanes, start);
            if greatest(lanes, &scores) >= least {
                for (score, weight) in scores.into_iter().zip(Weight.chunk(lanes, &scores)) {
                    if score >= least && weight >= wanted {
                        found = key(score).max(found);
                    }
                }
            }
        }
        found
    }

    /// The least key at which the tokens from key 0 on measure `target`, a function of what all up to `limit` measure.
    ///
    /// `limit`, or a little more, if they never do.
    #[inline(always)]
    fn cut<L: Lanes>(&self, lanes: L, limit: Key, measure: impl Measure, target: impl Fn(u64) -> u64) -> Key {
        let mut bins = [0; 2048];
        for start in self.row.chunks() {
            let scores = self.chunk(lanes, start);
            if greatest(lanes, &scores) < -f32::from_bits(limit) {
                continue;
            }
            for (score, measure) in scores.into_iter().zip(measure.chunk(lanes, &scores)) {
                let key = key(score);
                // No branch: whether a token is above the limit can be as good as random.
                bins[key as usize >> 20] += if key <= limit { measure } else { 0 };
            }
        }
        let mut wanted = target(bins.iter().sum());
        let high = reach(&bins, &mut wanted);
        let middle = high << 10 | self.digit(lanes, limit, &measure, &mut wanted, high, 10);
        middle << 10 | self.digit(lanes, limit, &measure, &mut wanted, middle, 0)
    }

    /// The ten bits of the cut above the lowest `shift`, of which the bits before are `prefix`.
    #[inline(always)]
    fn digit<L: Lanes>(
        &self,
        lanes: L,
        limit: Key,
        measure: &impl Measure,
        wanted: &mut u64,
        prefix: u32,
        shift: u32,
    ) -> u32 {
        let mut bins = [0; 1024];
        let most = -f32::from_bits(prefix << (shift + 10));
        let least = -f32::from_bits((prefix << (shift + 10) | ((1 << (shift + 10)) - 1)).min(limit));
        for start in self.row.chunks() {
            let scores = self.chunk(lanes, start);
            if greatest(lanes, &scores) < least {
                continue;
            }
            for score in scores {
                if score <= most && score >= least {
                    bins[(key(score) >> shift & 1023) as usize] += measure.one(score);
                }
            }
        }
        reach(&bins, wanted)
    }
}

/// The place of a score in the order of likelihood.
#[inline(always)]
fn key(score: f32) -> Key {
    score.abs().to_bits()
}

/// What of the tokens is summed up until it reaches a target.
trait Measure {
    /// Of one token.
    fn one(&self, score: f32) -> u64;
    /// Of each token of a chunk.
    fn chunk<L: Lanes>(&self, lanes: L, scores: &[f32; CHUNK]) -> [u64; CHUNK];
}

/// Their number.
struct Count;

impl Measure for Count {
    #[inline(always)]
    fn one(&self, _: f32) -> u64 {
        1
    }

    #[inline(always)]
    fn chunk<L: Lanes>(&self, _: L, _: &[f32; CHUNK]) -> [u64; CHUNK] {
        [1; CHUNK]
    }
}

/// Their probability, in some unit.
struct Weight;

impl Measure for Weight {
    #[inline(always)]
    fn one(&self, score: f32) -> u64 {
        weight(score)
    }

    #[inline(always)]
    fn chunk<L: Lanes>(&self, lanes: L, scores: &[f32; CHUNK]) -> [u64; CHUNK] {
        let (mut upper, mut lower) = ([0u32; CHUNK], [0u32; CHUNK]);
        for at in (0..CHUNK).step_by(L::N) {
            // SAFETY: `at + N` is at most CHUNK, the length of all three.
            unsafe {
                let [high, low] = weights(lanes, lanes.load(scores.as_ptr().add(at)));
                lanes.store_u32(upper.as_mut_ptr().add(at), high);
                lanes.store_u32(lower.as_mut_ptr().add(at), low);
            }
        }
        std::array::from_fn(|i| (u64::from(upper[i]) << 20) + u64::from(lower[i]))
    }
}

/// The first bin where the sum reaches `wanted`, the last one if none does. Takes the bins before it off `wanted`.
#[inline(always)]
fn reach(bins: &[u64], wanted: &mut u64) -> u32 {
    for (bin, &weight) in bins.iter().enumerate() {
        if weight >= *wanted {
            return bin as u32;
        }
        *wanted -= weight;
    }
    bins.len() as u32 - 1
}

//! Finds how unlikely a token may be and still be kept, without sorting.
//!
//! Scores are not positive, so the bits of their absolute value order them: key 0 is the likeliest token. The cut is
//! found digit by digit: a histogram over the first digit of all keys tells which bin it lies in, one over the second
//! digit of that bin's keys where in there, and so on. Sums are of whole numbers, the same in any order.

use super::noise::weight;
use super::row::{CHUNK, Row};

/// The absolute value of a score, as bits.
pub type Key = u32;

/// Every token is kept, those at minus infinity apart.
pub const KEEP_ALL: Key = f32::MAX.to_bits();

/// Scores of a row: `(logit - greatest logit) / temperature`, so that the likeliest token has 0.
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
    pub fn chunk(&self, start: usize) -> [f32; CHUNK] {
        let mut scores = self.row.chunk(start);
        for score in &mut scores {
            *score = (*score - self.greatest) / self.temperature;
        }
        scores
    }

    /// The key of the k-th likeliest token.
    #[inline(always)]
    pub fn cut_at_count(&self, k: u32) -> Key {
        self.cut(KEEP_ALL, |_| 1, |_| u64::from(k))
    }

    /// The key at which the likeliest tokens first hold the share `p` of all probability down to `limit`.
    #[inline(always)]
    pub fn cut_at_share(&self, limit: Key, p: f32) -> Key {
        self.cut(limit, weight, |total| (f64::from(p) * total as f64).ceil() as u64)
    }

    /// The least key at which the weights from key 0 on reach `target`, a function of all weights up to `limit`.
    ///
    /// `limit`, or a little more, if they never do.
    #[inline(always)]
    fn cut(&self, limit: Key, weigh: impl Fn(f32) -> u64, target: impl Fn(u64) -> u64) -> Key {
        let mut bins = [0; 2048];
        self.histogram(&mut bins, limit, &weigh, |key| Some(key >> 20));
        let mut wanted = target(bins.iter().sum());
        let high = reach(&bins, &mut wanted);

        let mut bins = [0; 1024];
        self.histogram(&mut bins, limit, &weigh, |key| (key >> 20 == high).then_some(key >> 10 & 1023));
        let high = high << 10 | reach(&bins, &mut wanted);

        let mut bins = [0; 1024];
        self.histogram(&mut bins, limit, &weigh, |key| (key >> 10 == high).then_some(key & 1023));
        high << 10 | reach(&bins, &mut wanted)
    }

    #[inline(always)]
    fn histogram(&self, bins: &mut [u64], limit: Key, weigh: impl Fn(f32) -> u64, bin: impl Fn(Key) -> Option<u32>) {
        for start in self.row.chunks() {
            for score in self.chunk(start) {
                let key = score.abs().to_bits();
                if key <= limit
                    && let Some(bin) = bin(key)
                {
                    bins[bin as usize] += weigh(score);
                }
            }
        }
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

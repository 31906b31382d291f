//! How far are the logits of a row spread? What top-n-sigma keeps, exact to the bit on every device.
//!
//! Distances from the greatest logit are summed as whole numbers, with their squares: the sums are the same in any order. The rest is f64,
//! each operation rounded by itself.

use super::cut::{KEEP_ALL, Key};

/// Steps of a distance of 1.
const STEPS: f32 = 4096.0;
/// Greater distances, from 512 on, count as this many steps. The squares of four million such numbers fit into 64 bits.
const MOST: f32 = 2_097_151.0;

/// Sums over the tokens of a row that may be chosen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spread {
    tokens: u64,
    sum: u64,
    squares: u64,
}

impl Spread {
    /// Adds a token. A logit of minus infinity is none.
    #[inline(always)]
    pub fn add(&mut self, greatest: f32, logit: f32) {
        let is_there = u64::from(logit > f32::NEG_INFINITY);
        let steps = is_there * u64::from(((greatest - logit) * STEPS).min(MOST) as u32);
        self.tokens += is_there;
        self.sum += steps;
        self.squares += steps * steps;
    }

    /// The key of a score that is `sigmas` standard deviations below the greatest. At least one token was added.
    pub fn limit(&self, sigmas: f32, temperature: f32) -> Key {
        let tokens = self.tokens as f64;
        let mean = self.sum as f64 / tokens;
        let variance = (self.squares as f64 / tokens - mean * mean).max(0.0);
        let sigma = variance.sqrt() / f64::from(STEPS);
        let reach = (f64::from(sigmas) * sigma) as f32;
        (reach / temperature).to_bits().min(KEEP_ALL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reach_is_a_multiple_of_the_standard_deviation() {
        let logits = [3.0f32, 1.0, -2.0, 0.5, f32::NEG_INFINITY];
        let mut spread = Spread::default();
        logits.iter().for_each(|logit| spread.add(3.0, *logit));
        // The mean of the four is 0.625, the mean of their squares 3.5625.
        let sigma = (3.5625f32 - 0.625 * 0.625).sqrt();
        let reach = f32::from_bits(spread.limit(1.5, 0.5));
        assert!((reach - 1.5 * sigma / 0.5).abs() < 1e-3, "{reach}");
    }

    #[test]
    fn extremes_neither_overflow_nor_divide_by_nothing() {
        let mut equal = Spread::default();
        equal.add(7.0, 7.0);
        assert_eq!(equal.limit(2.0, 1e-30), 0, "equal logits are all the greatest");
        let mut wide = Spread::default();
        [f32::MAX, f32::MIN].iter().for_each(|logit| wide.add(f32::MAX, *logit));
        assert_eq!(wide.limit(f32::MAX, 1.0), KEEP_ALL);
    }
}

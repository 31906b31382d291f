//! What a pass costs, learned from those that were made: how many tokens fit in a time.
//!
//! The time of a pass is taken to be `fixed + tokens * each`. Both come from a regression in which older passes count
//! less and less, so that it follows longer contexts and a clock that throttles. Only the choice of chunk sizes uses it;
//! results never depend on it.

use std::time::Duration;

/// Share of the newest pass in the means: about the last twenty passes count.
const NEWEST: f64 = 0.05;
/// Tokens of a pass while nothing is known yet: cheap enough for every device, and a first measurement.
const FIRST_TOKENS: usize = 16;

/// A pass has at most this many times the tokens of the largest pass of late: what a large pass costs cannot be told from small ones,
/// whose times differ more by chance than by their tokens.
const GROWTH: usize = 4;

/// Running means over tokens `n` and seconds `t` of the passes made.
#[derive(Debug, Default)]
pub struct PassCost {
    passes: u64,
    n: f64,
    t: f64,
    nn: f64,
    nt: f64,
    /// Tokens of the largest pass of late, which fades while passes are smaller.
    largest: usize,
    beginning: Duration,
}

impl PassCost {
    /// Notes how long the host took to begin a pass.
    pub fn observe_beginning(&mut self, spent: Duration) {
        self.beginning = spent.max(self.beginning - self.beginning / 16);
    }

    /// How long beginning a pass may take: the longest of late, which fades while others take less. A device that is launched
    /// kernel by kernel needs most of a millisecond; one that replays a graph, and the CPU, almost nothing.
    pub fn beginning(&self) -> Duration {
        self.beginning
    }

    /// Notes that a pass over `tokens` tokens took `spent`.
    pub fn observe(&mut self, tokens: usize, spent: Duration) {
        let (n, t) = (tokens as f64, spent.as_secs_f64());
        self.passes += 1;
        self.largest = tokens.max(self.largest - self.largest / 16);
        // The first passes are averaged plainly, or the very first would weigh on for long.
        let newest = NEWEST.max(1.0 / self.passes as f64);
        for (mean, value) in [(&mut self.n, n), (&mut self.t, t), (&mut self.nn, n * n), (&mut self.nt, n * t)] {
            *mean += newest * (value - *mean);
        }
    }

    /// Tokens for a pass of `stages` stages, one of which is to take about a quarter of `budget`; at least one.
    ///
    /// A call can be late by one stage. A quarter keeps that small, while chunks stay large enough that weights are not read
    /// over and over for a few tokens. Where the fixed part alone takes more than the quarter, small chunks would gain
    /// little time and cost a long prompt dearly: then the tokens may cost as much as the fixed part, as long as a stage
    /// still fits in the budget.
    pub fn tokens_within(&self, budget: Duration, stages: usize) -> usize {
        if self.passes == 0 {
            return FIRST_TOKENS;
        }
        let (fixed, each) = self.parts();
        let whole = budget.as_secs_f64() * stages as f64;
        let fitting = |seconds: f64| (seconds - fixed) / each;
        // A cast from float saturates, so that "no time at all was measured" becomes "as many as you like".
        let fits = fitting(whole / 4.0).max((fixed / each).min(fitting(whole))) as usize;
        fits.clamp(1, GROWTH * self.largest.max(FIRST_TOKENS))
    }

    /// Seconds of a pass however few its tokens are, and seconds of a token.
    fn parts(&self) -> (f64, f64) {
        let variance = self.nn - self.n * self.n;
        let each = (self.nt - self.n * self.t) / variance;
        // Passes of about one size tell nothing of the fixed part. Taking it for zero errs towards small chunks; these
        // differ in size from the passes before and so teach the difference.
        match variance > 1e-3 * self.nn && each > 0.0 && each * self.n < self.t {
            true => (self.t - each * self.n, each),
            false => (0.0, self.t / self.n),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(us: f64) -> Duration {
        Duration::from_nanos((us * 1000.0) as u64)
    }

    #[test]
    fn a_linear_cost_is_learned() {
        let mut cost = PassCost::default();
        for tokens in (0..200).map(|i| 1 + i * 37 % 100) {
            cost.observe(tokens, micros(500.0 + 10.0 * tokens as f64));
        }
        for stages in [1, 10] {
            let fits = cost.tokens_within(micros(6000.0 / stages as f64), stages);
            assert!((95..=105).contains(&fits), "{fits} tokens in {stages} stages");
        }
    }

    #[test]
    fn where_the_fixed_part_is_large_a_chunk_is_still_worth_its_pass() {
        let mut cost = PassCost::default();
        for tokens in (0..200).map(|i| 1 + i * 37 % 200) {
            cost.observe(tokens, micros(4000.0 + 10.0 * tokens as f64));
        }
        let halves = cost.tokens_within(micros(10_000.0), 1);
        assert!((390..=410).contains(&halves), "{halves}: as much as the fixed part");
        let fits = cost.tokens_within(micros(6000.0), 1);
        assert!((190..=210).contains(&fits), "{fits}: a stage still fits in the budget");
        assert_eq!(cost.tokens_within(micros(2000.0), 1), 1, "nothing fits");
    }

    #[test]
    fn a_pass_has_at_least_one_token_however_short_the_time() {
        let mut cost = PassCost::default();
        cost.observe(8, micros(8000.0));
        cost.observe(4, micros(6000.0));
        assert_eq!(cost.tokens_within(Duration::ZERO, 4), 1);
    }

    #[test]
    fn passes_of_one_size_give_a_cautious_answer() {
        let mut cost = PassCost::default();
        for _ in 0..50 {
            cost.observe(4, micros(400.0));
        }
        assert_eq!(cost.tokens_within(micros(1000.0), 4), 10);
    }

    #[test]
    fn nonsense_measurements_are_survived() {
        for times in [[0.0, 0.0], [900.0, 100.0]] {
            let mut cost = PassCost::default();
            cost.observe(1, micros(times[0]));
            cost.observe(64, micros(times[1]));
            assert!(cost.tokens_within(micros(100.0), 4) >= 1, "{times:?}");
        }
    }

    #[test]
    fn the_longest_beginning_counts_until_it_fades() {
        let mut cost = PassCost::default();
        cost.observe_beginning(micros(1600.0));
        cost.observe_beginning(micros(20.0));
        assert_eq!(cost.beginning(), micros(1500.0));
        (0..200).for_each(|_| cost.observe_beginning(micros(20.0)));
        assert_eq!(cost.beginning(), micros(20.0));
    }

    #[test]
    fn what_small_passes_took_by_chance_does_not_make_a_large_one() {
        let mut cost = PassCost::default();
        // Half a millisecond, and now and then twice as long: less by chance with more tokens.
        for i in 0..400 {
            cost.observe(1 + i % 4, micros(if i % 7 == 0 { 1000.0 } else { 500.0 + (i % 4) as f64 * 0.1 }));
        }
        assert!(cost.tokens_within(micros(4000.0), 8) <= GROWTH * FIRST_TOKENS);
        // It grows when a large pass has shown what it takes.
        cost.observe(64, micros(6000.0));
        let next = cost.tokens_within(micros(40_000.0), 8);
        assert!((65..=4 * 64).contains(&next), "{next}");
    }

    #[test]
    fn a_slower_clock_is_followed() {
        let mut cost = PassCost::default();
        for slowdown in [1.0, 4.0] {
            for tokens in (0..300).map(|i| 1 + i * 37 % 100) {
                cost.observe(tokens, micros(slowdown * 10.0 * tokens as f64));
            }
        }
        let fits = cost.tokens_within(micros(4000.0), 4);
        assert!((80..=125).contains(&fits), "{fits}");
    }
}

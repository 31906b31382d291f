//! Cases of `logprobs`, and how near the specification an answer must be.

use super::process_logits::PENALTIES;
use super::sample::WARM;
use super::{Random, ask, on_grid};
use base::TokenId;
use compute::batch::{Batch, LogitBias, MAX_LOGPROBS, Sampled, Sampling};
use compute::cpu::reference;

/// Samples that ask for log-probabilities.
#[derive(Clone, Copy)]
pub struct Case {
    pub samples: usize,
    pub vocab: usize,
    /// Greatest absolute value of a logit.
    pub size: f32,
    /// Logits are multiples of this, so that some are equal; 0 leaves them as they are.
    pub grid: f32,
    /// Adjusted tokens of each sample; they do not show.
    pub adjusted: usize,
    pub spoil: Spoil,
    pub sampling: Sampling,
}

/// What stands among the logits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Spoil {
    Nothing,
    /// Each third is a NaN.
    NaNs,
    /// Each third is minus infinity.
    MinusInfinity,
    /// All but three are a NaN.
    AllButThree,
    /// Two are infinite.
    Infinity,
    /// All are minus infinity or NaN.
    All,
}

const ASKS: Sampling = Sampling { logprobs: 6, ..WARM };
pub const PLAIN: Case =
    Case { samples: 9, vocab: 301, size: 6.0, grid: 0.0, adjusted: 0, spoil: Spoil::Nothing, sampling: ASKS };
const QWEN3_VOCAB: Case = Case { samples: 4, vocab: 151_936, size: 14.0, ..PLAIN };

pub const CASES: &[(&str, Case)] = &[
    ("the chosen token alone", Case { sampling: Sampling { logprobs: 1, ..WARM }, ..PLAIN }),
    ("five more", PLAIN),
    ("as many as there can be", Case { sampling: Sampling { logprobs: 65, ..WARM }, ..PLAIN }),
    ("more than there are", Case { vocab: 40, sampling: Sampling { logprobs: 65, ..WARM }, ..PLAIN }),
    ("forced tokens", Case { sampling: Sampling { forced: 17, ..ASKS }, ..PLAIN }),
    ("equal logits", Case { size: 0.0, ..PLAIN }),
    ("ties", Case { grid: 2.0, ..PLAIN }),
    ("logits far apart", Case { size: 600.0, ..PLAIN }),
    ("under penalties and bans", Case { adjusted: 30, sampling: Sampling { logprobs: 6, ..PENALTIES }, ..PLAIN }),
    ("greedy", Case { sampling: Sampling { logprobs: 6, ..Sampling::GREEDY }, ..PLAIN }),
    ("among NaNs", Case { spoil: Spoil::NaNs, ..PLAIN }),
    ("among minus infinity", Case { spoil: Spoil::MinusInfinity, ..PLAIN }),
    ("of the three that are left", Case { spoil: Spoil::AllButThree, ..PLAIN }),
    ("of two that are infinite", Case { spoil: Spoil::Infinity, ..PLAIN }),
    ("of none", Case { spoil: Spoil::All, ..PLAIN }),
    ("a forced NaN", Case { spoil: Spoil::NaNs, sampling: Sampling { forced: 3, ..ASKS }, ..PLAIN }),
    ("Qwen3's vocabulary", QWEN3_VOCAB),
    ("Qwen3's vocabulary, flat", Case { size: 0.3, ..QWEN3_VOCAB }),
    ("Qwen3's vocabulary, all equal", Case { size: 0.0, sampling: Sampling { logprobs: 65, ..WARM }, ..QWEN3_VOCAB }),
];

/// Logits that `round` can hold, and what is asked of them.
pub fn inputs(case: &Case, round: impl Fn(f32) -> f32) -> (Vec<f32>, Batch) {
    let mut random = Random(12);
    let mut logits = random.numbers(case.samples * case.vocab, case.size);
    on_grid(&mut logits, case.grid);
    for (i, logit) in logits.iter_mut().enumerate() {
        let token = i % case.vocab;
        *logit = match case.spoil {
            Spoil::NaNs if token.is_multiple_of(3) => f32::NAN,
            Spoil::MinusInfinity if token.is_multiple_of(3) => f32::NEG_INFINITY,
            Spoil::AllButThree if ![7, 100, 250].contains(&token) => f32::NAN,
            Spoil::Infinity if [90, 91].contains(&token) => f32::INFINITY,
            Spoil::All if token.is_multiple_of(2) => f32::NAN,
            Spoil::All => f32::NEG_INFINITY,
            _ => round(*logit),
        };
    }
    let mut batch = Batch::default();
    for sample in 0..case.samples {
        // Each fourth sample does not ask.
        let logprobs = if sample % 4 == 2 { 0 } else { case.sampling.logprobs };
        let adjustments: Vec<LogitBias> = random
            .tokens(case.adjusted, case.vocab)
            .into_iter()
            .map(|token| match random.below(3) {
                0 => LogitBias::ban(token),
                uses => LogitBias { token, uses: uses as u32, bias: 8.0 },
            })
            .collect();
        ask(&mut batch, Sampling { position: sample as u32, logprobs, ..case.sampling }, adjustments);
    }
    (logits, batch)
}

/// Compares an answer with the specification: the same tokens, and probabilities within a millionth.
pub fn check(what: &str, logits: &[f32], vocab: usize, batch: &Batch, found: &Sampled) {
    assert_eq!(found.tokens.len(), batch.samples(), "{what}");
    assert_eq!(found.logprobs.len(), batch.samples(), "{what}");
    assert_eq!(found.top_tokens.len(), batch.samples() * MAX_LOGPROBS, "{what}");
    assert_eq!(found.top_logprobs.len(), batch.samples() * MAX_LOGPROBS, "{what}");
    for (sample, sampling) in batch.sampling.iter().enumerate().filter(|(_, sampling)| sampling.logprobs > 0) {
        let row = &logits[sample * vocab..][..vocab];
        let (of_chosen, ranked) = reference::logprobs(row, found.tokens[sample], sampling.top_logprobs());
        let what = format!("{what}, sample {sample}");
        assert_near(&what, found.logprobs[sample], of_chosen);
        let place = sample * MAX_LOGPROBS;
        let (tokens, logprobs): (Vec<TokenId>, Vec<f64>) = ranked.into_iter().unzip();
        assert_eq!(found.top_tokens[place..][..tokens.len()], tokens, "{what}");
        for (&found, wanted) in found.top_logprobs[place..].iter().zip(logprobs) {
            assert_near(&what, found, wanted);
        }
    }
}

fn assert_near(what: &str, found: f32, wanted: f64) {
    let is_same = f64::from(found) == wanted || (f64::from(found) - wanted).abs() <= 1e-6 * (1.0 + wanted.abs());
    assert!(is_same, "{what}: {found}, but {wanted} is right");
}

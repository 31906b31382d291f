//! Cases of `process_logits`.

use super::{Random, ask};
use base::TokenId;
use compute::batch::{Batch, FROM_PREVIOUS, LogitBias, Sampling};

/// Samples with this many adjusted tokens each.
#[derive(Clone, Copy)]
pub struct Case {
    pub samples: usize,
    pub vocab: usize,
    pub listed: usize,
    pub uses: Uses,
    pub biases: Biases,
    pub awaits: Awaits,
    pub sampling: Sampling,
}

/// How often the listed tokens were used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Uses {
    /// Nowhere.
    No,
    /// In the prompt alone.
    InPrompt,
    /// Nowhere, in the prompt, or some times.
    Any,
}

/// What is added to the listed tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Biases {
    Zero,
    Some,
    /// Each third token is banned.
    SomeBans,
}

/// What the token of the pass before is, of which the device alone knows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Awaits {
    Nothing,
    /// Listed in two of three samples.
    AnyToken,
}

pub const PENALTIES: Sampling =
    Sampling { repetition_penalty: 1.3, presence_penalty: 0.5, frequency_penalty: 0.2, ..Sampling::GREEDY };
pub const PLAIN: Case = Case {
    samples: 7,
    vocab: 301,
    listed: 40,
    uses: Uses::Any,
    biases: Biases::Zero,
    awaits: Awaits::Nothing,
    sampling: PENALTIES,
};

pub const CASES: &[(&str, Case)] = &[
    ("biases", Case { uses: Uses::No, biases: Biases::Some, sampling: Sampling::GREEDY, ..PLAIN }),
    ("bans", Case { uses: Uses::No, biases: Biases::SomeBans, ..PLAIN }),
    (
        "repetition of the prompt's tokens",
        Case { uses: Uses::InPrompt, sampling: Sampling { repetition_penalty: 1.7, ..Sampling::GREEDY }, ..PLAIN },
    ),
    (
        "a penalty below one favours repetition",
        Case { sampling: Sampling { repetition_penalty: 0.6, ..Sampling::GREEDY }, ..PLAIN },
    ),
    ("presence", Case { sampling: Sampling { presence_penalty: -1.2, ..Sampling::GREEDY }, ..PLAIN }),
    ("frequency", Case { sampling: Sampling { frequency_penalty: 0.7, ..Sampling::GREEDY }, ..PLAIN }),
    ("all penalties", PLAIN),
    ("all penalties and biases", Case { biases: Biases::Some, ..PLAIN }),
    ("all penalties and bans", Case { biases: Biases::SomeBans, ..PLAIN }),
    ("nothing listed", Case { listed: 0, biases: Biases::Some, ..PLAIN }),
    ("awaited, all penalties and bans", Case { biases: Biases::SomeBans, awaits: Awaits::AnyToken, ..PLAIN }),
    ("awaited, nothing listed", Case { listed: 0, awaits: Awaits::AnyToken, ..PLAIN }),
    ("awaited, without penalties", Case { awaits: Awaits::AnyToken, sampling: Sampling::GREEDY, ..PLAIN }),
    (
        "thousands of tokens of Qwen3's vocabulary",
        Case { samples: 3, vocab: 151_936, listed: 8000, biases: Biases::Some, awaits: Awaits::AnyToken, ..PLAIN },
    ),
];

/// Logits that `round` can hold, what is asked of them, and the tokens of the pass before.
pub fn inputs(case: &Case, round: impl Fn(f32) -> f32) -> (Vec<f32>, Batch, Vec<TokenId>) {
    let mut random = Random(11);
    let logits = random.numbers(case.samples * case.vocab, 9.0).into_iter().map(round).collect();
    let (mut batch, mut previous) = (Batch::default(), Vec::new());
    for sample in 0..case.samples {
        // One sample has nothing listed.
        let listed = random.tokens(if sample == 1 { 0 } else { case.listed }, case.vocab);
        let mut sampling = case.sampling;
        previous.push(random.below(case.vocab) as TokenId);
        if case.awaits == Awaits::AnyToken && sample != 2 {
            // The samples of the pass before lay in another order.
            let from = case.samples - 1 - sample;
            sampling.awaited = FROM_PREVIOUS | from as u32;
        }
        let adjustments: Vec<LogitBias> = listed
            .iter()
            .map(|&token| LogitBias {
                token,
                uses: match case.uses {
                    Uses::No => LogitBias::UNUSED,
                    Uses::InPrompt => 0,
                    Uses::Any => [LogitBias::UNUSED, 0, 1, 2, 900][random.below(5)],
                },
                bias: match case.biases {
                    Biases::Zero => 0.0,
                    Biases::Some => random.numbers(1, 5.0)[0],
                    Biases::SomeBans if random.below(3) == 0 => f32::NEG_INFINITY,
                    Biases::SomeBans => 0.0,
                },
            })
            .collect();
        ask(&mut batch, sampling, adjustments);
    }
    for sample in 0..case.samples {
        let listed = batch.adjustments[batch.sampling[sample].adjusted()].to_vec();
        if sample % 3 > 0 && !listed.is_empty() {
            previous[case.samples - 1 - sample] = listed[random.below(listed.len())].token;
        }
    }
    (logits, batch, previous)
}

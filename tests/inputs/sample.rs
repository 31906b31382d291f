//! Cases of `sample`, bans and masks included.

use super::{Random, ask, on_grid};
use base::TokenId;
use compute::batch::{Batch, LogitBias, NO_TOKEN, Sampling};
use compute::cpu::reference;

/// Samples of one kind over random logits.
#[derive(Clone, Copy)]
pub struct Case {
    pub samples: usize,
    pub vocab: usize,
    /// Greatest absolute value of a logit.
    pub size: f32,
    /// Logits are multiples of this, so that some are equal; 0 leaves them as they are.
    pub grid: f32,
    /// Banned tokens of each sample.
    pub banned: usize,
    /// The number of tokens that may be chosen, in three of four samples; 0 where all may.
    pub one_in: usize,
    /// Each third sample has its token chosen for it.
    pub forced: Forced,
    pub sampling: Sampling,
}

/// Whether tokens are chosen in advance.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Forced {
    No,
    EachThird,
}

pub const WARM: Sampling = Sampling { temperature: 0.8, seed: 0x1234_5678_9abc_def0, ..Sampling::GREEDY };
pub const GREEDY: Sampling = Sampling::GREEDY;
pub const PLAIN: Case =
    Case { samples: 200, vocab: 300, size: 6.0, grid: 0.0, banned: 0, one_in: 0, forced: Forced::No, sampling: WARM };
const QWEN3_VOCAB: Case = Case { samples: 4, vocab: 151_936, ..PLAIN };

pub const CASES: &[(&str, Case)] = &[
    ("greedy", Case { sampling: GREEDY, ..PLAIN }),
    ("greedy among equals", Case { sampling: GREEDY, grid: 2.0, ..PLAIN }),
    ("greedy, some banned", Case { sampling: GREEDY, banned: 40, ..PLAIN }),
    ("greedy, most masked", Case { sampling: GREEDY, one_in: 20, ..PLAIN }),
    ("temperature", PLAIN),
    ("high temperature", Case { sampling: Sampling { temperature: 50.0, ..WARM }, ..PLAIN }),
    ("a temperature so low that it is greedy", Case { sampling: Sampling { temperature: 1e-30, ..WARM }, ..PLAIN }),
    ("temperature, some banned", Case { banned: 40, ..PLAIN }),
    ("temperature, some masked and some banned", Case { banned: 40, one_in: 3, ..PLAIN }),
    ("temperature, nearly all or all masked", Case { one_in: 400, ..PLAIN }),
    ("temperature, some forced", Case { one_in: 5, forced: Forced::EachThird, ..PLAIN }),
    ("temperature, equal logits", Case { size: 0.0, ..PLAIN }),
    ("a vocabulary of two", Case { vocab: 2, ..PLAIN }),
    ("a vocabulary of 65", Case { vocab: 65, ..PLAIN }),
    ("a vocabulary of 65, half of it masked", Case { vocab: 65, one_in: 2, ..PLAIN }),
    ("top-k", Case { sampling: Sampling { top_k: 10, ..WARM }, ..PLAIN }),
    ("top-k of one", Case { sampling: Sampling { top_k: 1, ..WARM }, ..PLAIN }),
    ("top-k of more than there are", Case { sampling: Sampling { top_k: 1000, ..WARM }, ..PLAIN }),
    ("top-k of more than the mask leaves", Case { sampling: Sampling { top_k: 100, ..WARM }, one_in: 4, ..PLAIN }),
    ("top-k of nearly all, many banned", Case { sampling: Sampling { top_k: 290, ..WARM }, banned: 40, ..PLAIN }),
    ("top-k with ties", Case { sampling: Sampling { top_k: 10, ..WARM }, grid: 0.5, ..PLAIN }),
    ("top-p", Case { sampling: Sampling { top_p: 0.9, ..WARM }, ..PLAIN }),
    ("top-p of what the mask leaves", Case { sampling: Sampling { top_p: 0.9, ..WARM }, one_in: 4, ..PLAIN }),
    ("top-p of nearly nothing", Case { sampling: Sampling { top_p: 1e-6, ..WARM }, ..PLAIN }),
    ("top-p of nearly all", Case { sampling: Sampling { top_p: 0.999_999, ..WARM }, ..PLAIN }),
    ("top-p with ties", Case { sampling: Sampling { top_p: 0.7, ..WARM }, grid: 1.0, ..PLAIN }),
    ("top-p, equal logits", Case { sampling: Sampling { top_p: 0.5, ..WARM }, size: 0.0, ..PLAIN }),
    (
        "top-p of logits far below any model's",
        Case { sampling: Sampling { temperature: 3e4, top_p: 0.9, ..WARM }, size: 6e4, banned: 9, ..PLAIN },
    ),
    (
        "top-k that ends among logits far below any model's",
        Case {
            sampling: Sampling { temperature: 3e4, top_k: 280, top_p: 0.99, ..WARM },
            size: 6e4,
            banned: 9,
            ..PLAIN
        },
    ),
    (
        "top-p over the whole range of bf16",
        Case { sampling: Sampling { temperature: 1e38, top_k: 290, top_p: 0.9, ..WARM }, size: 1e38, ..PLAIN },
    ),
    (
        "filters over a vocabulary that two thread blocks share",
        Case {
            samples: 40,
            vocab: 20_000,
            sampling: Sampling { top_k: 3000, top_p: 0.9, ..WARM },
            banned: 7,
            one_in: 2,
            ..PLAIN
        },
    ),
    ("min-p", Case { sampling: Sampling { min_p: 0.05, ..WARM }, ..PLAIN }),
    ("min-p of all", Case { sampling: Sampling { min_p: 1.0, ..WARM }, grid: 1.0, ..PLAIN }),
    (
        "all filters, some banned",
        Case { sampling: Sampling { top_k: 40, top_p: 0.95, min_p: 0.02, ..WARM }, banned: 3, ..PLAIN },
    ),
    ("top-n-sigma", Case { sampling: Sampling { top_n_sigma: 1.0, ..WARM }, ..PLAIN }),
    ("top-n-sigma of nearly nothing", Case { sampling: Sampling { top_n_sigma: 1e-9, ..WARM }, grid: 1.0, ..PLAIN }),
    ("top-n-sigma of all", Case { sampling: Sampling { top_n_sigma: 1e30, ..WARM }, banned: 40, ..PLAIN }),
    ("top-n-sigma below 0 is off", Case { sampling: Sampling { top_n_sigma: -1.0, ..WARM }, ..PLAIN }),
    ("top-n-sigma, equal logits", Case { sampling: Sampling { top_n_sigma: 1.0, ..WARM }, size: 0.0, ..PLAIN }),
    (
        "top-n-sigma of what mask and bans leave",
        Case { sampling: Sampling { top_n_sigma: 1.5, ..WARM }, one_in: 4, banned: 40, ..PLAIN },
    ),
    (
        "top-n-sigma of logits far below any model's",
        Case { sampling: Sampling { temperature: 3e4, top_n_sigma: 1.5, ..WARM }, size: 6e4, banned: 9, ..PLAIN },
    ),
    (
        "top-n-sigma over a vocabulary of two",
        Case { sampling: Sampling { top_n_sigma: 1.99, ..WARM }, vocab: 2, ..PLAIN },
    ),
    ("XTC", Case { sampling: Sampling { xtc_threshold: 0.02, ..WARM }, ..PLAIN }),
    ("XTC with ties", Case { sampling: Sampling { xtc_threshold: 0.01, ..WARM }, grid: 0.5, ..PLAIN }),
    ("XTC, equal logits", Case { sampling: Sampling { xtc_threshold: 0.001, ..WARM }, size: 0.0, ..PLAIN }),
    ("XTC that no token reaches", Case { sampling: Sampling { xtc_threshold: 0.5, ..WARM }, size: 0.1, ..PLAIN }),
    ("XTC of nearly all", Case { sampling: Sampling { xtc_threshold: 1e-9, ..WARM }, ..PLAIN }),
    ("XTC of all there is", Case { sampling: Sampling { xtc_threshold: 1e-40, ..WARM }, banned: 40, ..PLAIN }),
    ("XTC over a vocabulary of two", Case { sampling: Sampling { xtc_threshold: 0.1, ..WARM }, vocab: 2, ..PLAIN }),
    (
        "XTC of what the mask leaves, some forced",
        Case { sampling: Sampling { xtc_threshold: 0.05, ..WARM }, one_in: 20, forced: Forced::EachThird, ..PLAIN },
    ),
    ("XTC is none where greedy", Case { sampling: Sampling { xtc_threshold: 0.01, ..GREEDY }, ..PLAIN }),
    (
        "XTC of a temperature so low that it is greedy",
        Case { sampling: Sampling { temperature: 1e-30, xtc_threshold: 0.1, ..WARM }, ..PLAIN },
    ),
    (
        "every filter, some banned",
        Case {
            sampling: Sampling { top_n_sigma: 1.6, top_k: 60, top_p: 0.97, min_p: 0.02, xtc_threshold: 0.04, ..WARM },
            banned: 3,
            ..PLAIN
        },
    ),
    (
        "top-n-sigma and XTC over a vocabulary that two thread blocks share",
        Case {
            samples: 40,
            vocab: 20_000,
            sampling: Sampling { top_n_sigma: 1.5, xtc_threshold: 0.0005, ..WARM },
            banned: 7,
            one_in: 2,
            ..PLAIN
        },
    ),
    // Enough samples for the kernel that reads logits once.
    ("temperature of many samples over GPT-2's vocabulary", Case { samples: 24, vocab: 50_257, ..PLAIN }),
    ("greedy, many samples over GPT-2's vocabulary", Case { samples: 12, vocab: 50_257, sampling: GREEDY, ..PLAIN }),
    (
        "temperature of many samples, masked, banned and forced",
        Case { samples: 40, vocab: 20_000, banned: 7, one_in: 3, forced: Forced::EachThird, ..PLAIN },
    ),
    ("equal logits of many samples", Case { samples: 70, vocab: 9001, size: 0.0, ..PLAIN }),
    (
        "a temperature so low that few tokens matter, many samples",
        Case { samples: 40, vocab: 20_000, sampling: Sampling { temperature: 0.002, ..WARM }, ..PLAIN },
    ),
    (
        "a temperature so high that all tokens matter, many samples",
        Case { samples: 40, vocab: 20_000, sampling: Sampling { temperature: 1e30, ..WARM }, ..PLAIN },
    ),
    (
        "logits so large that f32 does not hold their scores, many samples",
        Case { samples: 20, vocab: 5000, size: 6e4, sampling: Sampling { temperature: 2e-6, ..WARM }, ..PLAIN },
    ),
    (
        "temperature over the whole range of bf16, many samples",
        Case { samples: 24, sampling: Sampling { temperature: 3e38, ..WARM }, size: 3e38, ..PLAIN },
    ),
    ("greedy over Qwen3's vocabulary", Case { sampling: GREEDY, ..QWEN3_VOCAB }),
    ("temperature over Qwen3's vocabulary", QWEN3_VOCAB),
    ("temperature over a tenth of Qwen3's vocabulary", Case { one_in: 10, ..QWEN3_VOCAB }),
    (
        "a low temperature over Qwen3's vocabulary",
        Case { sampling: Sampling { temperature: 0.2, ..WARM }, ..QWEN3_VOCAB },
    ),
    ("top-p over Qwen3's vocabulary", Case { sampling: Sampling { top_p: 0.95, ..WARM }, ..QWEN3_VOCAB }),
    (
        "top-p of one sample over Qwen3's vocabulary",
        Case { samples: 1, sampling: Sampling { top_p: 0.95, ..WARM }, banned: 60, ..QWEN3_VOCAB },
    ),
    (
        "top-k of equal logits over Qwen3's vocabulary",
        Case { sampling: Sampling { top_k: 20, ..WARM }, size: 0.0, ..QWEN3_VOCAB },
    ),
    (
        "all filters over Qwen3's vocabulary",
        Case { sampling: Sampling { top_k: 5000, top_p: 0.95, min_p: 1e-5, ..WARM }, banned: 5, ..QWEN3_VOCAB },
    ),
    (
        "top-n-sigma and XTC over Qwen3's vocabulary",
        Case {
            sampling: Sampling { top_n_sigma: 1.2, min_p: 1e-3, xtc_threshold: 1e-4, ..WARM },
            banned: 5,
            ..QWEN3_VOCAB
        },
    ),
    (
        "top-n-sigma of one sample over Qwen3's vocabulary",
        Case { samples: 1, sampling: Sampling { top_n_sigma: 1.0, ..WARM }, one_in: 10, ..QWEN3_VOCAB },
    ),
];

/// Logits that `round` can hold, and what is asked of them.
pub fn inputs(case: &Case, round: impl Fn(f32) -> f32) -> (Vec<f32>, Batch) {
    let mut random = Random(8);
    let mut logits = random.numbers(case.samples * case.vocab, case.size);
    on_grid(&mut logits, case.grid);
    logits.iter_mut().for_each(|logit| *logit = round(*logit));
    let mut batch = Batch::default();
    for sample in 0..case.samples {
        let mut sampling = Sampling { position: sample as u32, stream: (sample as u64 % 3) << 31, ..case.sampling };
        if case.one_in > 0 && sample % 4 != 3 {
            sampling.mask = batch.masks.len() as u32;
            let mut word = || (0..32).fold(0, |word, bit| word | u32::from(random.below(case.one_in) == 0) << bit);
            batch.masks.extend((0..case.vocab.div_ceil(32)).map(|_| word()));
        }
        if case.forced == Forced::EachThird && sample % 3 == 1 {
            sampling.forced = random.below(case.vocab) as TokenId;
        }
        ask(&mut batch, sampling, random.tokens(case.banned, case.vocab).into_iter().map(LogitBias::ban));
    }
    (logits, batch)
}

/// What the specification chooses. Bans leave no number that would have to be rounded.
pub fn expected(logits: &[f32], vocab: usize, batch: &Batch) -> Vec<TokenId> {
    reference::sample(&reference::process_logits(logits, vocab, batch, &[]), vocab, batch)
}

/// A row of five logits, which tokens are banned, and which token is chosen.
pub type Edge = (&'static str, [f32; 5], &'static [TokenId], TokenId);

const NAN: f32 = f32::NAN;
const MINUS: f32 = f32::NEG_INFINITY;
const PLUS: f32 = f32::INFINITY;

pub const EDGES: &[Edge] = &[
    ("NaN never wins", [NAN, 1.0, NAN, 2.0, NAN], &[], 3),
    ("all NaN", [NAN; 5], &[], 0),
    ("all minus infinity", [MINUS; 5], &[], 0),
    ("minus infinity and NaN", [NAN, MINUS, NAN, MINUS, NAN], &[], 1),
    ("minus infinity, the first banned", [MINUS; 5], &[0, 1], 2),
    ("all banned", [1.0; 5], &[4, 3, 2, 1, 0], 0),
    ("all but one banned", [1.0; 5], &[4, 3, 1, 0], 2),
    ("the likeliest banned", [1.0, 90.0, 2.0, 60.0, 3.0], &[1], 3),
    ("infinite logits, the first one wins", [1.0, PLUS, NAN, PLUS, 0.0], &[], 1),
    ("zeros of both signs are equal", [MINUS, -0.0, 0.0, -0.0, MINUS], &[3, 2], 1),
];

/// How an edge's tokens are kept from being chosen.
#[derive(Clone, Copy, Debug)]
pub enum By {
    Ban,
    Mask,
}

/// One sample of an edge, once banned and once masked, in each way to choose.
pub fn edge_batches(banned: &[TokenId]) -> Vec<(By, Batch)> {
    let ways = [
        GREEDY,
        WARM,
        Sampling { top_k: 3, top_p: 0.9, min_p: 0.1, ..WARM },
        // At most one token has half of the probability, so that XTC drops none.
        Sampling { top_n_sigma: 1e-6, xtc_threshold: 0.5, ..WARM },
    ];
    let both = ways.iter().flat_map(|way| [(By::Ban, way), (By::Mask, way)]);
    both.map(|(by, way)| {
        let mut batch = Batch::default();
        match by {
            By::Ban => ask(&mut batch, *way, banned.iter().copied().map(LogitBias::ban)),
            By::Mask => {
                batch.masks = vec![NO_TOKEN, banned.iter().fold(u32::MAX, |mask, token| mask & !(1 << token))];
                ask(&mut batch, Sampling { mask: 1, ..*way }, []);
            }
        }
        (by, batch)
    })
    .collect()
}

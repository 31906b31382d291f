//! `sample`: the same tokens as the specification, exactly.

use crate::column::{Column, Op, agrees};
use crate::scene::{Random, limits};
use nanovllm::backend::cpu::{Cpu, Isa, reference};
use nanovllm::batch::{Batch, Sampling};
use nanovllm::ops;

struct Case {
    samples: usize,
    vocab: usize,
    /// Greatest absolute value of a logit.
    size: f32,
    /// Logits are multiples of this, so that some are equal; 0 leaves them as they are.
    grid: f32,
    /// Banned tokens of each sample.
    banned: usize,
    sampling: Sampling,
}

const WARM: Sampling = Sampling { temperature: 0.8, seed: 0x1234_5678_9abc_def0, ..Sampling::GREEDY };
const PLAIN: Case = Case { samples: 200, vocab: 300, size: 6.0, grid: 0.0, banned: 0, sampling: WARM };

fn inputs(case: &Case) -> (Vec<f32>, Batch) {
    let mut random = Random(8);
    let mut logits = random.numbers(case.samples * case.vocab, case.size);
    if case.grid > 0.0 {
        logits.iter_mut().for_each(|logit| *logit = (*logit / case.grid).round() * case.grid);
    }
    let mut batch = Batch::default();
    for sample in 0..case.samples {
        let banned_start = batch.banned_tokens.len() as u32;
        batch.banned_tokens.extend((0..case.banned).map(|_| random.below(case.vocab) as u32));
        batch.sampled_tokens.push(sample as u32);
        batch.sampling.push(Sampling {
            position: sample as u32,
            stream: (sample as u64 % 3) << 31,
            banned_start,
            banned_end: batch.banned_tokens.len() as u32,
            ..case.sampling
        });
    }
    (logits, batch)
}

struct Sample;

impl Op for Sample {
    type Case = Case;
    const CASES: &'static [(&'static str, Case)] = &[
        ("greedy", Case { sampling: Sampling::GREEDY, ..PLAIN }),
        ("greedy among equals", Case { sampling: Sampling::GREEDY, grid: 2.0, ..PLAIN }),
        ("greedy, some banned", Case { sampling: Sampling::GREEDY, banned: 40, ..PLAIN }),
        ("temperature", PLAIN),
        ("high temperature", Case { sampling: Sampling { temperature: 50.0, ..WARM }, ..PLAIN }),
        ("a temperature so low that it is greedy", Case { sampling: Sampling { temperature: 1e-30, ..WARM }, ..PLAIN }),
        ("temperature, some banned", Case { banned: 40, ..PLAIN }),
        ("temperature, equal logits", Case { size: 0.0, ..PLAIN }),
        ("a vocabulary of two", Case { vocab: 2, ..PLAIN }),
        ("a vocabulary of 65", Case { vocab: 65, ..PLAIN }),
        ("top-k", Case { sampling: Sampling { top_k: 10, ..WARM }, ..PLAIN }),
        ("top-k of one", Case { sampling: Sampling { top_k: 1, ..WARM }, ..PLAIN }),
        ("top-k of more than there are", Case { sampling: Sampling { top_k: 1000, ..WARM }, ..PLAIN }),
        ("top-k of nearly all, many banned", Case { sampling: Sampling { top_k: 290, ..WARM }, banned: 40, ..PLAIN }),
        ("top-k with ties", Case { sampling: Sampling { top_k: 10, ..WARM }, grid: 0.5, ..PLAIN }),
        ("top-p", Case { sampling: Sampling { top_p: 0.9, ..WARM }, ..PLAIN }),
        ("top-p of nearly nothing", Case { sampling: Sampling { top_p: 1e-6, ..WARM }, ..PLAIN }),
        ("top-p of nearly all", Case { sampling: Sampling { top_p: 0.999_999, ..WARM }, ..PLAIN }),
        ("top-p with ties", Case { sampling: Sampling { top_p: 0.7, ..WARM }, grid: 1.0, ..PLAIN }),
        ("min-p", Case { sampling: Sampling { min_p: 0.05, ..WARM }, ..PLAIN }),
        ("min-p of all", Case { sampling: Sampling { min_p: 1.0, ..WARM }, grid: 1.0, ..PLAIN }),
        (
            "all filters, some banned",
            Case { sampling: Sampling { top_k: 40, top_p: 0.95, min_p: 0.02, ..WARM }, banned: 3, ..PLAIN },
        ),
        ("greedy over Qwen3's vocabulary", Case { sampling: Sampling::GREEDY, samples: 4, vocab: 151_936, ..PLAIN }),
        ("temperature over Qwen3's vocabulary", Case { samples: 4, vocab: 151_936, ..PLAIN }),
        (
            "all filters over Qwen3's vocabulary",
            Case {
                sampling: Sampling { top_k: 5000, top_p: 0.95, min_p: 1e-5, ..WARM },
                samples: 4,
                vocab: 151_936,
                banned: 5,
                ..PLAIN
            },
        ),
    ];
    const BOUND: f64 = 0.0;

    fn expected(case: &Case) -> Vec<f32> {
        let (logits, batch) = inputs(case);
        reference::sample(&logits, case.vocab, &batch).iter().map(|&token| token as f32).collect()
    }

    fn computed<B: Column>(backend: &mut B, case: &Case) -> Vec<f32> {
        let (logits, batch) = inputs(case);
        sampled(backend, &logits, case.vocab, &batch)
    }
}

fn sampled<B: Column>(backend: &mut B, logits: &[f32], vocab: usize, batch: &Batch) -> Vec<f32> {
    let logits = backend.filled(logits, vocab);
    let mut step = backend.step(&limits(batch)).unwrap();
    backend.stage(&mut step, batch).unwrap();
    ops::sample(backend, &mut step, &logits);
    backend.sampled(&step).unwrap().tokens.iter().map(|&token| token as f32).collect()
}

#[test]
fn sample_agrees_with_its_specification() {
    agrees::<Sample>();
}

#[test]
fn no_token_that_is_nan_or_banned_is_chosen() {
    const NAN: f32 = f32::NAN;
    const MINUS: f32 = f32::NEG_INFINITY;
    const PLUS: f32 = f32::INFINITY;
    let cases: &[(&str, &[f32], &[u32], f32)] = &[
        ("NaN never wins", &[NAN, 1.0, NAN, 2.0, NAN], &[], 3.0),
        ("all NaN", &[NAN; 5], &[], 0.0),
        ("all minus infinity", &[MINUS; 5], &[], 0.0),
        ("minus infinity and NaN", &[NAN, MINUS, NAN, MINUS, NAN], &[], 1.0),
        ("minus infinity, the first banned", &[MINUS; 5], &[0, 1], 2.0),
        ("all banned", &[1.0; 5], &[4, 3, 2, 1, 0], 0.0),
        ("all but one banned", &[1.0; 5], &[4, 3, 1, 0], 2.0),
        ("the likeliest banned", &[1.0, 90.0, 2.0, 60.0, 3.0], &[1], 3.0),
        ("infinite logits, the first one wins", &[1.0, PLUS, NAN, PLUS, 0.0], &[], 1.0),
        ("the greatest finite numbers", &[f32::MIN, f32::MAX, f32::MIN, 0.0, 0.0], &[], 1.0),
        ("zeros of both signs are equal", &[MINUS, -0.0, 0.0, -0.0, MINUS], &[3, 2], 1.0),
    ];
    for isa in Isa::available() {
        let cpu = &mut Cpu::new(1, *isa);
        for (name, logits, banned, expected) in cases {
            for sampling in [Sampling::GREEDY, WARM, Sampling { top_k: 3, top_p: 0.9, min_p: 0.1, ..WARM }] {
                let batch = Batch {
                    sampled_tokens: vec![0],
                    sampling: vec![Sampling { banned_end: banned.len() as u32, ..sampling }],
                    banned_tokens: banned.to_vec(),
                    ..Batch::default()
                };
                let token = sampled(cpu, logits, 5, &batch);
                assert_eq!(token, [*expected], "{name}, {isa:?}, temperature {}", sampling.temperature);
                assert_eq!(reference::sample(logits, 5, &batch), [*expected as u32], "{name}, by the specification");
            }
        }
    }
}

/// What makes one draw differ from the next.
#[derive(Clone, Copy, Debug)]
enum By {
    Position,
    Stream,
    Seed,
}

#[test]
fn draws_follow_the_distribution() {
    const DRAWS: usize = 100_000;
    const LOGITS: [f32; 12] = [0.1, 2.0, -1.0, 0.7, 3.0, -2.5, 1.4, 0.0, 2.4, -0.3, 1.0, 0.5];
    // Each with the tokens that are kept, likeliest first.
    let order = [4, 8, 1, 6, 10, 3, 11, 0, 7, 9, 2, 5];
    let cases = [
        ("no filter", By::Position, WARM, 12),
        ("no filter, by stream", By::Stream, WARM, 12),
        ("no filter, by seed", By::Seed, WARM, 12),
        ("a high temperature", By::Position, Sampling { temperature: 3.0, ..WARM }, 12),
        ("top-k", By::Position, Sampling { top_k: 5, ..WARM }, 5),
        // At temperature 0.8 the shares are 0.465, 0.220, 0.133, 0.063, 0.038 and less.
        ("top-p", By::Position, Sampling { top_p: 0.9, ..WARM }, 5),
        ("min-p", By::Position, Sampling { min_p: 0.1, ..WARM }, 4),
        ("top-p of what top-k left", By::Position, Sampling { top_k: 3, top_p: 0.8, ..WARM }, 2),
    ];
    let cpu = &mut Cpu::new(2, *Isa::available().last().unwrap());
    for (name, by, sampling, kept) in cases {
        let mut batch = Batch::default();
        for draw in 0..DRAWS as u64 {
            batch.sampled_tokens.push(draw as u32);
            batch.sampling.push(match by {
                By::Position => Sampling { position: draw as u32, ..sampling },
                By::Stream => Sampling { stream: draw << 20, ..sampling },
                By::Seed => Sampling { seed: draw << 15, ..sampling },
            });
        }
        let mut counts = [0.0; 12];
        for token in sampled(cpu, &LOGITS.repeat(DRAWS), 12, &batch) {
            counts[token as usize] += 1.0;
        }
        let weight = |token: usize| f64::from(LOGITS[token] / sampling.temperature).exp();
        let total: f64 = order[..kept].iter().map(|&token| weight(token)).sum();
        let mut chi_square = 0.0;
        for &token in &order[..kept] {
            let expected = DRAWS as f64 * weight(token) / total;
            chi_square += (counts[token] - expected) * (counts[token] - expected) / expected;
        }
        for &token in &order[kept..] {
            assert_eq!(counts[token], 0.0, "{name}: token {token} should have been dropped");
        }
        // The 99.9th percentile, by Wilson and Hilferty.
        let degrees = kept as f64 - 1.0;
        let ninth = 2.0 / (9.0 * degrees);
        let bound = degrees * (1.0 - ninth + 3.09 * ninth.sqrt()).powi(3);
        assert!(chi_square < bound, "{name}: chi-square {chi_square:.1} of {degrees} degrees, at most {bound:.1}");
    }
}

#[test]
fn a_draw_depends_on_its_own_numbers_alone() {
    let (logits, batch) = inputs(&PLAIN);
    let cpu = &mut Cpu::new(2, *Isa::available().last().unwrap());
    let together = sampled(cpu, &logits, PLAIN.vocab, &batch);
    for sample in [0, 1, 77, 199] {
        let alone = Batch { sampled_tokens: vec![0], sampling: vec![batch.sampling[sample]], ..Batch::default() };
        let row = &logits[sample * PLAIN.vocab..][..PLAIN.vocab];
        assert_eq!(sampled(cpu, row, PLAIN.vocab, &alone), [together[sample]]);
    }
}

//! `sample`: the same tokens as the specification, exactly.

use crate::column::{Column, Op, agrees};
use crate::inputs::sample::{CASES, Case, EDGES, PLAIN, WARM, edge_batches, expected, inputs};
use crate::inputs::{answered, ask};
use base::TokenId;
use compute::batch::{Batch, LogitBias, Sampling};
use compute::cpu::{Cpu, Isa};

struct Sample;

impl Op for Sample {
    type Case = Case;
    const CASES: &'static [(&'static str, Case)] = CASES;
    const BOUND: f64 = 0.0;

    fn expected(case: &Case) -> Vec<f32> {
        let (logits, batch) = inputs(case, |logit| logit);
        expected(&logits, case.vocab, &batch).iter().map(|&token| token as f32).collect()
    }

    fn computed<B: Column>(backend: &mut B, case: &Case) -> Vec<f32> {
        let (logits, batch) = inputs(case, |logit| logit);
        sampled(backend, &logits, case.vocab, &batch).iter().map(|&token| token as f32).collect()
    }
}

fn sampled<B: Column>(backend: &mut B, logits: &[f32], vocab: usize, batch: &Batch) -> Vec<TokenId> {
    let mut logits = backend.filled(logits, vocab);
    let device_batch = answered(backend, batch, &mut logits);
    backend.results(&device_batch).tokens.to_vec()
}

#[test]
fn sample_agrees_with_its_specification() {
    agrees::<Sample>();
}

#[test]
fn no_token_that_is_nan_banned_or_masked_is_chosen() {
    // Of the number types, f32 alone has these.
    let greatest = ("the greatest finite numbers", [f32::MIN, f32::MAX, f32::MIN, 0.0, 0.0], &[][..], 1);
    for isa in Isa::available() {
        let cpu = &mut Cpu::new(1, *isa);
        for (name, logits, banned, wanted) in EDGES.iter().chain([&greatest]) {
            for (by, batch) in edge_batches(banned) {
                let what = format!("{name}, {by:?}, {isa:?}, temperature {}", batch.sampling[0].temperature);
                assert_eq!(sampled(cpu, logits, 5, &batch), [*wanted], "{what}");
                assert_eq!(expected(logits, 5, &batch), [*wanted], "{what}, by the specification");
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

const DRAWS: usize = 100_000;
const LOGITS: [f32; 12] = [0.1, 2.0, -1.0, 0.7, 3.0, -2.5, 1.4, 0.0, 2.4, -0.3, 1.0, 0.5];

/// How often each token comes in many draws.
fn counts(by: By, sampling: Sampling, adjustments: &[LogitBias]) -> [f64; 12] {
    let mut batch = Batch::default();
    for draw in 0..DRAWS as u64 {
        let sampling = match by {
            By::Position => Sampling { position: draw as u32, ..sampling },
            By::Stream => Sampling { stream: draw << 20, ..sampling },
            By::Seed => Sampling { seed: draw << 15, ..sampling },
        };
        ask(&mut batch, sampling, adjustments.iter().copied());
    }
    let mut counts = [0.0; 12];
    let cpu = &mut Cpu::new(2, *Isa::available().last().unwrap());
    for token in sampled(cpu, &LOGITS.repeat(DRAWS), 12, &batch) {
        counts[token as usize] += 1.0;
    }
    counts
}

/// Asserts that counts are those of draws with these weights, by a chi-square test; no weight is no draw.
fn assert_drawn(name: &str, counts: &[f64; 12], weights: &[f64; 12]) {
    let total: f64 = weights.iter().sum();
    let (mut chi_square, mut degrees) = (0.0, -1.0f64);
    for (token, (&count, &weight)) in counts.iter().zip(weights).enumerate() {
        if weight == 0.0 {
            assert_eq!(count, 0.0, "{name}: token {token} should have been dropped");
            continue;
        }
        let expected = DRAWS as f64 * weight / total;
        chi_square += (count - expected) * (count - expected) / expected;
        degrees += 1.0;
    }
    // The 99.9th percentile, by Wilson and Hilferty.
    let ninth = 2.0 / (9.0 * degrees);
    let bound = degrees * (1.0 - ninth + 3.09 * ninth.sqrt()).powi(3);
    assert!(chi_square < bound, "{name}: chi-square {chi_square:.1} of {degrees} degrees, at most {bound:.1}");
}

#[test]
fn draws_follow_the_distribution() {
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
        // The standard deviation of the logits is 1.454.
        ("top-n-sigma", By::Position, Sampling { top_n_sigma: 1.2, ..WARM }, 4),
        ("top-n-sigma with top-k", By::Position, Sampling { top_n_sigma: 1.2, top_k: 2, ..WARM }, 2),
    ];
    let excluded = [
        // The first three have 0.465, 0.220 and 0.133.
        ("XTC", Sampling { xtc_threshold: 0.13, ..WARM }, 2..12),
        ("XTC that one token alone reaches", Sampling { xtc_threshold: 0.3, ..WARM }, 0..12),
        // Of four, the second and third have 0.249 and 0.151.
        ("XTC of what top-k left", Sampling { top_k: 4, xtc_threshold: 0.2, ..WARM }, 1..4),
        ("XTC of three of four", Sampling { top_k: 4, xtc_threshold: 0.15, ..WARM }, 2..4),
    ];
    let kept = cases.map(|(name, by, sampling, kept)| (name, by, sampling, 0..kept));
    let excluded = excluded.map(|(name, sampling, kept)| (name, By::Position, sampling, kept));
    for (name, by, sampling, kept) in kept.into_iter().chain(excluded) {
        let mut weights = [0.0; 12];
        for &token in &order[kept] {
            weights[token] = f64::from(LOGITS[token] / sampling.temperature).exp();
        }
        assert_drawn(name, &counts(by, sampling, &[]), &weights);
    }
}

#[test]
fn draws_under_penalties_and_biases_follow_their_distribution() {
    let sampling = Sampling { repetition_penalty: 1.5, presence_penalty: 0.6, frequency_penalty: 0.25, ..WARM };
    let used = |token, uses| LogitBias { token, uses, bias: 0.0 };
    let biased = |token, bias| LogitBias { token, uses: LogitBias::UNUSED, bias };
    let adjustments = [used(4, 3), used(8, 0), used(2, 1), biased(1, -1.0), biased(5, 3.5), LogitBias::ban(6)];
    let mut logits = LOGITS;
    logits[4] = 3.0 / 1.5 - 0.6 - 3.0 * 0.25;
    logits[8] = 2.4 / 1.5;
    logits[2] = -1.5 - 0.6 - 0.25;
    logits[1] = 2.0 - 1.0;
    logits[5] = -2.5 + 3.5;
    logits[6] = f32::NEG_INFINITY;
    let weights = logits.map(|logit| f64::from(logit / sampling.temperature).exp());
    assert_drawn("penalties", &counts(By::Position, sampling, &adjustments), &weights);
}

#[test]
fn events_of_a_sample_follow_their_probability_and_are_not_its_noise() {
    let draws = |probability: f32, of: &dyn Fn(u32) -> Sampling| {
        (0..DRAWS as u32).filter(|&draw| of(draw).draws(probability)).count() as f64 / DRAWS as f64
    };
    let by_position = |position| Sampling { position, ..WARM };
    let by_seed = |seed: u32| Sampling { seed: seed.into(), ..WARM };
    for probability in [0.1, 0.5, 0.9] {
        for of in [&by_position as &dyn Fn(u32) -> Sampling, &by_seed] {
            let share = draws(probability, of);
            assert!((share - f64::from(probability)).abs() < 0.006, "{share} instead of {probability}");
        }
    }
    assert_eq!((draws(0.0, &by_position), draws(1.0, &by_position)), (0.0, 1.0));
    // Among the samples with the event, tokens are drawn as among all.
    let mut batch = Batch::default();
    let with_event = (0..).map(by_position).filter(|sampling| sampling.draws(0.2)).take(DRAWS);
    with_event.for_each(|sampling| ask(&mut batch, sampling, []));
    let cpu = &mut Cpu::new(2, *Isa::available().last().unwrap());
    let mut counts = [0.0; 12];
    for token in sampled(cpu, &LOGITS.repeat(DRAWS), 12, &batch) {
        counts[token as usize] += 1.0;
    }
    assert_drawn("with an event", &counts, &LOGITS.map(|logit| f64::from(logit / WARM.temperature).exp()));
}

#[test]
fn a_draw_depends_on_its_own_numbers_alone() {
    let (logits, batch) = inputs(&PLAIN, |logit| logit);
    let cpu = &mut Cpu::new(2, *Isa::available().last().unwrap());
    let together = sampled(cpu, &logits, PLAIN.vocab, &batch);
    for sample in [0, 1, 77, 199] {
        let mut alone = Batch::default();
        ask(&mut alone, batch.sampling[sample], []);
        let row = &logits[sample * PLAIN.vocab..][..PLAIN.vocab];
        assert_eq!(sampled(cpu, row, PLAIN.vocab, &alone), [together[sample]]);
    }
}

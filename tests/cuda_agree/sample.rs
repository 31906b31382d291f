//! `sample`: the same tokens as on the CPU, exactly.

use crate::scene::{Random, Scene, filled, on_device, rounded, staged};
use nanovllm::backend::{Backend, DType};
use nanovllm::batch::Sampling;
use nanovllm::ops;

struct SampleCase {
    name: &'static str,
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
const PLAIN: SampleCase =
    SampleCase { name: "", samples: 200, vocab: 300, size: 6.0, grid: 0.0, banned: 0, sampling: WARM };
const QWEN3_VOCAB: SampleCase = SampleCase { samples: 6, vocab: 151_936, ..PLAIN };

const SAMPLE: &[SampleCase] = &[
    SampleCase { name: "greedy", sampling: Sampling::GREEDY, ..PLAIN },
    SampleCase { name: "greedy among equals", sampling: Sampling::GREEDY, grid: 2.0, ..PLAIN },
    SampleCase { name: "greedy, some banned", sampling: Sampling::GREEDY, banned: 40, ..PLAIN },
    SampleCase { name: "temperature", ..PLAIN },
    SampleCase { name: "high temperature", sampling: Sampling { temperature: 50.0, ..WARM }, ..PLAIN },
    SampleCase { name: "hardly any temperature", sampling: Sampling { temperature: 1e-30, ..WARM }, ..PLAIN },
    SampleCase { name: "temperature, some banned", banned: 40, ..PLAIN },
    SampleCase { name: "temperature, equal logits", size: 0.0, ..PLAIN },
    SampleCase { name: "a vocabulary of two", vocab: 2, ..PLAIN },
    SampleCase { name: "a vocabulary of 65", vocab: 65, ..PLAIN },
    SampleCase { name: "top-k", sampling: Sampling { top_k: 10, ..WARM }, ..PLAIN },
    SampleCase { name: "top-k of one", sampling: Sampling { top_k: 1, ..WARM }, ..PLAIN },
    SampleCase { name: "top-k of more than there are", sampling: Sampling { top_k: 1000, ..WARM }, ..PLAIN },
    SampleCase {
        name: "top-k of nearly all, many banned",
        sampling: Sampling { top_k: 290, ..WARM },
        banned: 40,
        ..PLAIN
    },
    SampleCase { name: "top-k with ties", sampling: Sampling { top_k: 10, ..WARM }, grid: 0.5, ..PLAIN },
    SampleCase { name: "top-p", sampling: Sampling { top_p: 0.9, ..WARM }, ..PLAIN },
    SampleCase { name: "top-p of nearly nothing", sampling: Sampling { top_p: 1e-6, ..WARM }, ..PLAIN },
    SampleCase { name: "top-p of nearly all", sampling: Sampling { top_p: 0.999_999, ..WARM }, ..PLAIN },
    SampleCase { name: "top-p with ties", sampling: Sampling { top_p: 0.7, ..WARM }, grid: 1.0, ..PLAIN },
    SampleCase { name: "top-p, equal logits", sampling: Sampling { top_p: 0.5, ..WARM }, size: 0.0, ..PLAIN },
    SampleCase {
        name: "top-p of logits far below any model's",
        sampling: Sampling { temperature: 3e4, top_p: 0.9, ..WARM },
        size: 6e4,
        banned: 9,
        ..PLAIN
    },
    SampleCase {
        name: "top-k that ends among logits far below any model's",
        sampling: Sampling { temperature: 3e4, top_k: 280, top_p: 0.99, ..WARM },
        size: 6e4,
        banned: 9,
        ..PLAIN
    },
    SampleCase {
        name: "top-p over the whole range of bf16",
        sampling: Sampling { temperature: 1e38, top_k: 290, top_p: 0.9, ..WARM },
        size: 1e38,
        ..PLAIN
    },
    SampleCase {
        name: "filters over a vocabulary that two thread blocks share",
        samples: 40,
        vocab: 20_000,
        sampling: Sampling { top_k: 3000, top_p: 0.9, ..WARM },
        banned: 7,
        ..PLAIN
    },
    SampleCase { name: "min-p", sampling: Sampling { min_p: 0.05, ..WARM }, ..PLAIN },
    SampleCase { name: "min-p of all", sampling: Sampling { min_p: 1.0, ..WARM }, grid: 1.0, ..PLAIN },
    SampleCase {
        name: "all filters, some banned",
        sampling: Sampling { top_k: 40, top_p: 0.95, min_p: 0.02, ..WARM },
        banned: 3,
        ..PLAIN
    },
    SampleCase { name: "greedy over Qwen3's vocabulary", sampling: Sampling::GREEDY, ..QWEN3_VOCAB },
    SampleCase { name: "temperature over Qwen3's vocabulary", ..QWEN3_VOCAB },
    SampleCase {
        name: "a low temperature over Qwen3's vocabulary",
        sampling: Sampling { temperature: 0.2, ..WARM },
        ..QWEN3_VOCAB
    },
    SampleCase { name: "top-p over Qwen3's vocabulary", sampling: Sampling { top_p: 0.95, ..WARM }, ..QWEN3_VOCAB },
    SampleCase {
        name: "top-p of one sample over Qwen3's vocabulary",
        samples: 1,
        sampling: Sampling { top_p: 0.95, ..WARM },
        banned: 60,
        ..QWEN3_VOCAB
    },
    SampleCase {
        name: "top-k of equal logits over Qwen3's vocabulary",
        sampling: Sampling { top_k: 20, ..WARM },
        size: 0.0,
        ..QWEN3_VOCAB
    },
    SampleCase {
        name: "all filters over Qwen3's vocabulary",
        sampling: Sampling { top_k: 5000, top_p: 0.95, min_p: 1e-5, ..WARM },
        banned: 5,
        ..QWEN3_VOCAB
    },
];

#[test]
fn the_same_logits_give_the_same_tokens_as_on_the_cpu() {
    on_device(|cuda, dtype| {
        for case in SAMPLE {
            let mut random = Random(8);
            let mut logits = random.numbers(case.samples * case.vocab, case.size, DType::F32);
            for logit in &mut logits {
                let on_grid = if case.grid > 0.0 { (*logit / case.grid).round() * case.grid } else { *logit };
                *logit = rounded(on_grid, dtype);
            }
            let mut batch = Scene::new(&vec![(0, 1); case.samples], 16, &mut random).batch;
            for (sample, sampling) in batch.sampling.iter_mut().enumerate() {
                let banned_start = batch.banned_tokens.len() as u32;
                batch.banned_tokens.extend((0..case.banned).map(|_| random.below(case.vocab) as u32));
                *sampling = Sampling {
                    position: sample as u32,
                    stream: (sample as u64 % 3) << 31,
                    banned_start,
                    banned_end: batch.banned_tokens.len() as u32,
                    ..case.sampling
                };
            }
            let expected = nanovllm::backend::cpu::reference::sample(&logits, case.vocab, &batch);
            let logits = filled(cuda, &logits, case.vocab);
            let mut step = staged(cuda, &batch);
            for round in 0..2 {
                ops::sample(cuda, &mut step, &logits);
                assert_eq!(cuda.sampled(&step).unwrap().tokens, expected, "{}, {dtype:?}, round {round}", case.name);
            }
        }
    });
}

#[test]
fn no_token_that_is_nan_or_banned_is_chosen() {
    const NAN: f32 = f32::NAN;
    const MINUS: f32 = f32::NEG_INFINITY;
    const PLUS: f32 = f32::INFINITY;
    let cases: &[(&str, &[f32], &[u32], u32)] = &[
        ("NaN never wins", &[NAN, 1.0, NAN, 2.0, NAN], &[], 3),
        ("all NaN", &[NAN; 5], &[], 0),
        ("all minus infinity", &[MINUS; 5], &[], 0),
        ("minus infinity and NaN", &[NAN, MINUS, NAN, MINUS, NAN], &[], 1),
        ("minus infinity, the first banned", &[MINUS; 5], &[0, 1], 2),
        ("all banned", &[1.0; 5], &[4, 3, 2, 1, 0], 0),
        ("all but one banned", &[1.0; 5], &[4, 3, 1, 0], 2),
        ("the likeliest banned", &[1.0, 90.0, 2.0, 60.0, 3.0], &[1], 3),
        ("infinite logits, the first one wins", &[1.0, PLUS, NAN, PLUS, 0.0], &[], 1),
        ("zeros of both signs are equal", &[MINUS, -0.0, 0.0, -0.0, MINUS], &[3, 2], 1),
    ];
    on_device(|cuda, dtype| {
        for (name, logits, banned, expected) in cases {
            for sampling in [Sampling::GREEDY, WARM, Sampling { top_k: 3, top_p: 0.9, min_p: 0.1, ..WARM }] {
                let mut batch = Scene::new(&[(0, 1)], 16, &mut Random(9)).batch;
                batch.sampling = vec![Sampling { banned_end: banned.len() as u32, ..sampling }];
                batch.banned_tokens = banned.to_vec();
                let logits = filled(cuda, logits, 5);
                let mut step = staged(cuda, &batch);
                ops::sample(cuda, &mut step, &logits);
                let token = cuda.sampled(&step).unwrap().tokens;
                assert_eq!(token, [*expected], "{name}, {dtype:?}, temperature {}", sampling.temperature);
            }
        }
    });
}

//! What Hugging Face transformers says of the checkpoints in tests/golden, and how a runner is compared with it.
#![allow(dead_code)]

use crate::driver::{Logits, Sequence, golden, pass};
use base::TokenId;
use compute::batch::{Batch, BatchLimits};
use safetensors::SafeTensors;
use std::fs;

/// How far logits of a GPU, and embeddings, may be from the reference, as a share of their norm. tests/library/golden.rs has the narrower
/// bounds of the CPU.
pub const SINGLE_PRECISION: f32 = 1e-3;
pub const HALF_PRECISION: f32 = 2e-2;

/// What transformers says.
pub struct Reference {
    pub prompt: Vec<TokenId>,
    /// Greedy, after the prompt. `[n]`
    pub tokens: Vec<TokenId>,
    /// `[n, vocab]`
    pub logits: Vec<Vec<f32>>,
    /// How far its own logits in bf16 are from these; only large cases know. `[64]`
    pub bf16_apart: Vec<f32>,
}

impl Reference {
    pub fn read(name: &str) -> Reference {
        let bytes = fs::read(golden(name).join("reference.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let words = |name: &str| -> Vec<[u8; 4]> {
            let (words, rest) = file.tensor(name).unwrap().data().as_chunks();
            assert!(rest.is_empty());
            words.to_vec()
        };
        let ids = |name| words(name).into_iter().map(TokenId::from_le_bytes).collect();
        let vocab = file.tensor("logits").unwrap().shape()[1];
        let numbers: Vec<f32> = words("logits").into_iter().map(f32::from_le_bytes).collect();
        Reference {
            prompt: ids("prompt"),
            tokens: ids("tokens"),
            logits: numbers.chunks(vocab).map(<[f32]>::to_vec).collect(),
            bf16_apart: match file.tensor("bf16_apart") {
                Ok(_) => words("bf16_apart").into_iter().map(f32::from_le_bytes).collect(),
                Err(_) => Vec::new(),
            },
        }
    }
}

impl Reference {
    /// What a prompt is pooled to, as `last` or `mean`. `[hidden]`
    pub fn embedding(name: &str, pooling: &str) -> Vec<f32> {
        let bytes = fs::read(golden(name).join("embedding.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let (words, _) = file.tensor(pooling).unwrap().data().as_chunks();
        words.iter().copied().map(f32::from_le_bytes).collect()
    }
}

/// `|a - b| / |b|`
pub fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let square = |sum: f32, x: f32| sum + x * x;
    let apart = a.iter().zip(b).map(|(a, b)| a - b).fold(0.0, square);
    (apart / b.iter().copied().fold(0.0, square)).sqrt()
}

/// How many of `steps` the reference decided.
#[derive(Clone, Copy, Debug, Default)]
pub struct Decided {
    pub steps: usize,
    pub of: usize,
}

impl Decided {
    /// Asserts that it decided at least `share` of the steps: choices among ties show nothing.
    pub fn assert_at_least(self, share: f64, what: &str) {
        let Decided { steps, of } = self;
        assert!(steps as f64 >= share * of as f64, "{what}: the reference decided only {steps} of {of} steps");
    }
}

impl std::ops::AddAssign for Decided {
    fn add_assign(&mut self, other: Decided) {
        (self.steps, self.of) = (self.steps + other.steps, self.of + other.of);
    }
}

/// Asserts which tokens were chosen in the steps of `follow`, which feeds the reference's tokens, so that each step stands for itself. A token is the
/// greedy one of the runner's own logits, `rows`. If no logit is further from the reference's than `limit` times the greatest of them, the reference
/// has it at most twice that below its best: where it leads by more, the choice must be its own. Returns how many steps were such.
pub fn assert_greedy(chosen: &[TokenId], rows: &[Vec<f32>], reference: &Reference, limit: f32, what: &str) -> Decided {
    assert_eq!((chosen.len(), rows.len()), (reference.tokens.len(), reference.tokens.len()), "{what}: steps");
    let mut decided = Decided { steps: 0, of: chosen.len() };
    for (step, (&token, found)) in chosen.iter().zip(rows).enumerate() {
        let (logits, best) = (&reference.logits[step], reference.tokens[step]);
        let greatest = found.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        assert!(found[token as usize] == greatest, "{what}, step {step}: {token} is not the greedy token");
        let close = 2.0 * limit * logits.iter().copied().fold(0.0, |max: f32, x| max.max(x.abs()));
        let (behind, ahead) = (logits[best as usize] - logits[token as usize], lead(logits));
        if token != best {
            println!("{what}, step {step}: {token} instead of {best}, {behind:.4} ahead; {close:.4} are close");
        }
        assert!(behind <= close, "{what}, step {step}: {token} instead of {best}, {behind} ahead, {close} are close");
        if ahead > close {
            assert_eq!(token, best, "{what}, step {step}: it led by {ahead}");
            decided.steps += 1;
        }
    }
    decided
}

/// How far the reference's first choice is ahead of its second.
pub fn lead(logits: &[f32]) -> f32 {
    let mut sorted = logits.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    sorted[0] - sorted[1]
}

/// Feeds the reference's own tokens, so that each step can be compared whatever came before: the logits of every step,
/// and the token each of them chose.
pub fn follow(runner: &mut impl Logits, limits: &BatchLimits, reference: &Reference) -> (Vec<Vec<f32>>, Vec<TokenId>) {
    let mut sequence = Sequence::new(&reference.prompt, 0..limits.table_width() as u32).of(runner, 0);
    let mut batch = Batch::with_limits(limits);
    let (mut rows, mut chosen) = (Vec::new(), Vec::new());
    for token in &reference.tokens {
        batch.clear();
        sequence.bring(sequence.pending(), limits, &mut batch);
        chosen.extend(pass(runner, &batch));
        rows.push(runner.logits_of(0));
        sequence.tokens.push(*token);
    }
    (rows, chosen)
}

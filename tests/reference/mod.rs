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

/// How far the reference's first choice is ahead of its second.
pub fn lead(logits: &[f32]) -> f32 {
    let mut sorted = logits.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    sorted[0] - sorted[1]
}

/// Feeds the reference's own tokens, so that each step can be compared whatever came before: the logits of every step,
/// and the token each of them chose.
pub fn follow(runner: &mut impl Logits, limits: &BatchLimits, reference: &Reference) -> (Vec<Vec<f32>>, Vec<TokenId>) {
    let mut sequence = Sequence::new(&reference.prompt, 0..limits.table_width() as u32);
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

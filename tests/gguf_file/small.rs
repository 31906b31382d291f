//! A small model of the architecture `llama`, whose every number a test may change.
#![allow(dead_code)]

use crate::writer::{Value, Writer};

pub const HIDDEN: usize = 32;
pub const WIDTH: usize = 64;
pub const VOCAB: usize = 48;

/// Numbers in -0.5 to 0.5, others for each seed.
pub fn numbers(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..len).map(|_| next()).collect()
}

/// The keys of a model with two heads as wide as its stream.
pub fn keys_of(hidden: usize, width: usize) -> Writer {
    let mut file = Writer::new();
    file.set("general.architecture", "llama")
        .set("llama.block_count", Value::U32(1))
        .set("llama.context_length", Value::U32(64))
        .set("llama.embedding_length", Value::U32(hidden as u32))
        .set("llama.feed_forward_length", Value::U32(width as u32))
        .set("llama.attention.head_count", Value::U32(2))
        .set("llama.attention.head_count_kv", Value::U32(1))
        .set("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5))
        .set("llama.rope.dimension_count", Value::U32(hidden as u32 / 2));
    file
}

/// The names and shapes of its matrices.
pub fn matrices_of(hidden: usize, width: usize) -> [(&'static str, [usize; 2]); 9] {
    [
        ("token_embd.weight", [VOCAB, hidden]),
        ("output.weight", [VOCAB, hidden]),
        ("blk.0.attn_q.weight", [hidden, hidden]),
        ("blk.0.attn_k.weight", [hidden / 2, hidden]),
        ("blk.0.attn_v.weight", [hidden / 2, hidden]),
        ("blk.0.attn_output.weight", [hidden, hidden]),
        ("blk.0.ffn_gate.weight", [width, hidden]),
        ("blk.0.ffn_up.weight", [width, hidden]),
        ("blk.0.ffn_down.weight", [hidden, width]),
    ]
}

/// Adds its norms.
pub fn add_norms(file: &mut Writer, hidden: usize) {
    for (seed, name) in ["output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"].iter().enumerate() {
        file.tensor(name, &[hidden], &numbers(100 + seed as u64, hidden));
    }
}

/// The keys of the small model.
pub fn keys() -> Writer {
    keys_of(HIDDEN, WIDTH)
}

/// The small model in single precision.
pub fn model() -> Writer {
    let mut file = keys();
    for (seed, (name, [rows, cols])) in matrices_of(HIDDEN, WIDTH).into_iter().enumerate() {
        file.tensor(name, &[rows, cols], &numbers(seed as u64, rows * cols));
    }
    add_norms(&mut file, HIDDEN);
    file
}

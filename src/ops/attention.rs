//! Causal attention of each new token to the cached keys and values of its row, its own included.
//!
//! `out[t, h, ..] = sum_j softmax_j(scale * q[t, h] . K[j, g]) V[j, g, ..]` over positions `j <= positions[t]` of the same
//! row, found through its block table; query head `h` reads key and value head `g = h / (heads / kv_heads)`.

use crate::backend::{Backend, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `out`  | `[tokens, heads * head_dim]` |
/// | `qkv`  | `[tokens, (heads + 2 kv_heads) * head_dim]`, of which the queries are read |
/// | `cache`| one layer: `[block][kv_head][K or V][block_size][head_dim]` |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
#[allow(clippy::too_many_arguments)]
pub fn attention<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    qkv: &Tensor<B::Storage>,
    cache: &B::KvCache,
    layer: usize,
    heads: usize,
    scale: f32,
    step: &B::Step,
) {
    let kv = B::kv_shape(cache);
    let tokens = B::batch(step).tokens();
    assert!(layer < kv.layers && heads.is_multiple_of(kv.kv_heads));
    assert_eq!((qkv.rows(), qkv.cols()), (tokens, (heads + 2 * kv.kv_heads) * kv.head_dim));
    assert_eq!((out.rows(), out.cols()), (tokens, heads * kv.head_dim));
    backend.attention(out, qkv, cache, layer, heads, scale, step);
}

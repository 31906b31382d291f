//! Prepares attention: normalizes and rotates queries and keys, and stores keys and values in their blocks.
//!
//! Per token, for each query and key head `v` of its row in `qkv`: where `norm` is given, `v = rms_norm(v) * weight`; then
//! `v[i], v[i + d/2] = v[i] * cos[i] - v[i + d/2] * sin[i], v[i + d/2] * cos[i] + v[i] * sin[i]` for `i < d/2`, with the
//! cosines and sines of the token's position. Queries are written back; keys and values go to the token's slot.

use crate::backend::{AttentionSpec, Backend, QkNormRope, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `qkv`  | `[tokens, (spec.heads + 2 kv_heads) * head_dim]`, queries, keys, values |
/// | `cache`| one layer: `[block][kv_head][K or V][block_size][head_dim]` |
/// | `transform.rope` | `[positions, head_dim]`: `head_dim / 2` cosines, then as many sines |
/// | `transform.norm` | each weight `[head_dim]` |
///
/// Of `spec`, the number of heads is read.
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn rope_and_cache<B: Backend>(
    backend: &mut B,
    spec: &AttentionSpec,
    qkv: &mut Tensor<B::Storage>,
    transform: QkNormRope<B::Vector>,
    cache: &mut B::KvCache,
    layer: usize,
    device_batch: &B::DeviceBatch,
) {
    let kv = B::kv_shape(cache);
    let batch = B::batch(device_batch);
    assert!(layer < kv.layers);
    assert_eq!((qkv.rows(), qkv.cols()), (batch.tokens(), (spec.heads + 2 * kv.kv_heads) * kv.head_dim));
    let QkNormRope { norm, rope } = &transform;
    assert!(norm.as_ref().is_none_or(|n| B::vector_len(n.query) == kv.head_dim && B::vector_len(n.key) == kv.head_dim));
    assert!(batch.positions.iter().all(|&p| (p as usize + 1) * kv.head_dim <= B::vector_len(rope)));
    backend.rope_and_cache(spec, qkv, transform, cache, layer, device_batch);
}

//! Attention of each new token to the cached keys and values of its row, its own included.
//!
//! `out[t, h, ..] = sum_j softmax_j(cap(scale * q[t, h] . K[j, g])) V[j, g, ..]` over positions `j` of the same row, found
//! through the block table of `place`, with `window_start(positions[t]) <= j < window_end(positions[t], context_lens[r])`; query head `h` reads key and value
//! head `g = h / (heads / kv_heads)`. A value may be the last numbers of its key: see [`KvValues`](crate::KvValues). `cap(s) = softcap * tanh(s / softcap)`, or `s` without a softcap. [`AttentionSpec`]
//! defines `heads`, `scale`, `window_start`, `window_end` and `softcap`. Rows of a layer that [looks both ways](crate::Reach::Both) bring all of their
//! tokens. Where the layer has sinks, the sum below each softmax has one more term, `exp(sinks[h])`.

use crate::{Backend, KvPlace, Scoring, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `out`  | `[tokens, spec.heads * value_dim]` |
/// | `qkv`  | as [`rope_and_cache`](super::rope_and_cache) has it, of which the queries are read |
/// | `sinks`| `[spec.heads]` |
/// | `cache`| one layer: `[block][kv_head][K or V][block_size][head_dim]` |
///
/// # Panics
///
/// If the shapes disagree, the window has no token, or the softcap is not above 0: only a wrong model can cause it, never a user's input.
pub fn attention<'a, B: Backend>(
    backend: &mut B,
    scoring: impl Into<Scoring<'a, B::Vector>>,
    out: &mut Tensor<B::Storage>,
    qkv: &Tensor<B::Storage>,
    cache: &B::KvCache,
    place: impl Into<KvPlace>,
    device_batch: &B::DeviceBatch,
) where
    B::Vector: 'a,
{
    let (scoring, place) = (scoring.into(), place.into());
    check::<B>(scoring, out, qkv, cache, place, device_batch);
    backend.attention(scoring, out, qkv, cache, place, device_batch);
}

/// Asserts that the shapes agree.
pub(super) fn check<B: Backend>(
    Scoring { spec, sinks }: Scoring<B::Vector>,
    out: &Tensor<B::Storage>,
    qkv: &Tensor<B::Storage>,
    cache: &B::KvCache,
    place: KvPlace,
    device_batch: &B::DeviceBatch,
) {
    let kv = B::kv_layout(cache).shape_at(place);
    assert!(place.table <= B::batch(device_batch).window_tables.len());
    let tokens = B::batch(device_batch).tokens();
    assert!(spec.heads.is_multiple_of(kv.kv_heads) && spec.window != Some(0));
    assert!(spec.softcap.is_none_or(|softcap| softcap > 0.0));
    assert!(sinks.is_none_or(|sinks| B::vector_len(sinks) == spec.heads));
    let queries = spec.heads * kv.head_dim;
    let of_keys = kv.values.vectors() * kv.kv_heads * kv.head_dim;
    assert!(qkv.rows() == tokens && [queries, queries + of_keys].contains(&qkv.cols()));
    assert_eq!((out.rows(), out.cols()), (tokens, spec.heads * kv.value_dim()));
}

//! Prepares attention: normalizes and rotates queries and keys, and stores keys and values in their blocks.
//!
//! Per token, for each query and key head `v` of its row in `qkv`, in this order, each step where `transform` has it:
//!
//! 1. `v = v / rms(v) * weight`, where `rms` goes over the head ([`NormOrder::BeforeRope`]) or over all query heads, or all key
//!    heads, of the token ([`NormExtent::Whole`]), those of other ranks included, which `transform.whole` has;
//! 2. `v[a], v[b] = v[a] * cos[i] - v[b] * sin[i], v[b] * cos[i] + v[a] * sin[i]` for `i < rotary / 2`, with the cosines and sines
//!    of the token's position; [`Pairing`] says which numbers `a` and `b` are pair `i`, and those from `rotary` on pass;
//! 3. `v = v / rms(v) * weight` over the head ([`NormOrder::AfterRope`]);
//! 4. `v = v * temperature[position]` for queries.
//!
//! Each value head `v` becomes `v / sqrt(mean(v^2) + value_norm)` where `transform` has a norm of values.
//!
//! Queries are written back; keys and values go to the token's slot in the block table of `place`. Where `qkv` has the columns of queries alone, nothing is stored: attention
//! reads what another layer stored.
//!
//! [`NormOrder::BeforeRope`]: crate::NormOrder::BeforeRope
//! [`NormOrder::AfterRope`]: crate::NormOrder::AfterRope
//! [`Pairing`]: crate::Pairing

use crate::{AttentionSpec, Backend, KvPlace, KvValues, NormExtent, QkNormRope, Tensor, WholeRows};

/// | tensor | shape |
/// |--------|-------|
/// | `qkv`  | `[tokens, (spec.heads + 2 kv_heads) * head_dim]`, queries, keys, values; or `[tokens, spec.heads * head_dim]` |
/// |        | where values lie in keys: `[tokens, (spec.heads + kv_heads) * head_dim]`, queries, keys |
/// | `cache`| one layer: `[block][kv_head][K or V][block_size][head_dim]`, without V where values lie in keys |
/// | `transform.rope` | `[positions, rotary]`: `rotary / 2` cosines, then as many sines |
/// | `transform.norm` | each weight `[head_dim]`; for a norm of the whole width `[spec.heads * head_dim]` and `[kv_heads * head_dim]` |
/// | `transform.whole` | `[tokens, query width]` and `[tokens, key width]` of all ranks |
/// | `transform.temperature` | `[positions]` |
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
    transform: QkNormRope<B::Vector, Tensor<B::Storage>>,
    cache: &mut B::KvCache,
    place: impl Into<KvPlace>,
    device_batch: &B::DeviceBatch,
) {
    let place = place.into();
    check::<B>(spec, qkv, &transform, cache, place, device_batch);
    backend.rope_and_cache(spec, qkv, transform, cache, place, device_batch);
}

/// Asserts that the shapes agree.
pub(super) fn check<B: Backend>(
    spec: &AttentionSpec,
    qkv: &Tensor<B::Storage>,
    transform: &QkNormRope<B::Vector, Tensor<B::Storage>>,
    cache: &B::KvCache,
    place: KvPlace,
    device_batch: &B::DeviceBatch,
) {
    let kv = B::kv_layout(cache).shape_at(place);
    let batch = B::batch(device_batch);
    assert!(place.table <= batch.window_tables.len());
    let queries = spec.heads * kv.head_dim;
    let has_keys = qkv.cols() != queries;
    assert_eq!(
        (qkv.rows(), qkv.cols()),
        (batch.tokens(), queries + if has_keys { kv.values.vectors() * kv.kv_heads * kv.head_dim } else { 0 })
    );
    let QkNormRope { norm, whole, rope, temperature, value_norm } = transform;
    assert!(value_norm.is_none_or(|eps| eps > 0.0 && kv.values == KvValues::Stored));
    if let Some(WholeRows { queries, keys }) = whole {
        assert_eq!((queries.rows(), keys.rows()), (qkv.rows(), qkv.rows()));
        assert!(has_keys && queries.cols() >= spec.heads * kv.head_dim && keys.cols() >= kv.kv_heads * kv.head_dim);
    }
    if let Some(norm) = norm {
        let (query, key) = match norm.extent {
            NormExtent::Head(_) => (1, 1),
            NormExtent::Whole => (spec.heads, kv.kv_heads),
        };
        assert_eq!(B::vector_len(norm.query), query * kv.head_dim);
        assert!(!has_keys || B::vector_len(norm.key) == key * kv.head_dim);
    }
    let positions = batch.positions.iter().map(|&p| p as usize + 1).max().unwrap_or(0);
    if let Some(rope) = rope {
        assert!(rope.rotary.is_multiple_of(2) && rope.rotary > 0 && rope.rotary <= kv.head_dim);
        assert!(positions * rope.rotary <= B::vector_len(rope.table));
    }
    assert!(temperature.is_none_or(|temperature| positions <= B::vector_len(temperature)));
}

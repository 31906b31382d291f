//! [`rope_and_cache`](super::rope_and_cache), then [`attention`](super::attention), in one launch where the device has one for the batch.
//!
//! What the cache holds afterwards has the bits of the ops one by one. Whether the queries in `qkv` are those of before or those that attention
//! takes is not defined. Where all rows bring one token, none attends to that of another row.

use super::attention::check;
use super::rope_and_cache::check as check_transform;
use crate::{AttentionSpec, Backend, HeadRows, KvPlace, QkNormRope, Tensor};

/// The shapes are those of the two ops, with `heads.qkv` as `qkv`, and `heads.out` as the `out` of attention.
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn rope_and_attention<B: Backend>(
    backend: &mut B,
    spec: &AttentionSpec,
    heads: HeadRows<Tensor<B::Storage>>,
    transform: QkNormRope<B::Vector, Tensor<B::Storage>>,
    cache: &mut B::KvCache,
    place: impl Into<KvPlace>,
    device_batch: &B::DeviceBatch,
) {
    let place = place.into();
    check_transform::<B>(spec, heads.qkv, &transform, cache, place, device_batch);
    check::<B>(spec, heads.out, heads.qkv, cache, place, device_batch);
    backend.rope_and_attention(spec, heads, transform, cache, place, device_batch);
}

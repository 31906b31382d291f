//! [`rope_and_cache`](super::rope_and_cache), then [`attention`](super::attention), in one launch where the device has one for the batch.
//!
//! What the cache holds afterwards has the bits of the ops one by one. Whether the queries in `qkv` are those of before or those that attention
//! takes is not defined. Where all rows bring one token, none attends to that of another row.

use super::attention::check;
use super::rope_and_cache::check as check_transform;
use crate::{Backend, HeadRows, KvPlace, QkNormRope, Scoring, Tensor};

/// The shapes are those of the two ops, with `heads.qkv` as `qkv`, and `heads.out` as the `out` of attention.
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn rope_and_attention<'a, B: Backend>(
    backend: &mut B,
    scoring: impl Into<Scoring<'a, B::Vector>>,
    heads: HeadRows<Tensor<B::Storage>>,
    transform: QkNormRope<B::Vector, Tensor<B::Storage>>,
    cache: &mut B::KvCache,
    place: impl Into<KvPlace>,
    device_batch: &B::DeviceBatch,
) where
    B::Vector: 'a,
{
    let (scoring, place) = (scoring.into(), place.into());
    check_transform::<B>(scoring.spec, heads.qkv, &transform, cache, place, device_batch);
    check::<B>(scoring, heads.out, heads.qkv, cache, place, device_batch);
    backend.rope_and_attention(scoring, heads, transform, cache, place, device_batch);
}

//! See `ops/rope_and_attention.rs` for the contract: one after the other.

use super::{Cpu, DeviceBatch, KvCache, Tensor, attention, rope_and_cache};
use crate::{HeadRows, KvPlace, QkNormRope, Scoring};

pub fn run(
    cpu: &mut Cpu,
    scoring: Scoring<Box<[f32]>>,
    heads: HeadRows<Tensor>,
    transform: QkNormRope<Box<[f32]>, Tensor>,
    cache: &mut KvCache,
    place: KvPlace,
    device_batch: &DeviceBatch,
) {
    let HeadRows { qkv, out } = heads;
    rope_and_cache::run(cpu, scoring.spec, qkv, transform, cache, place, device_batch);
    attention::run(cpu, scoring, out, qkv, cache, place, device_batch);
}

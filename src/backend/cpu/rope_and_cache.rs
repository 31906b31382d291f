//! See `ops/rope_and_cache.rs` for the contract.

use super::{Cpu, KvCache, Step, Tensor};
use crate::backend::HeadNorm;

#[allow(clippy::too_many_arguments)]
pub fn run(
    cpu: &Cpu,
    qkv: &mut Tensor,
    cache: &mut KvCache,
    layer: usize,
    heads: usize,
    norm: Option<HeadNorm<Box<[f32]>>>,
    rope: &[f32],
    step: &Step,
) {
    let _ = (&cpu.pool, cpu.isa, qkv, cache, layer, heads, norm, rope, step);
    todo!()
}

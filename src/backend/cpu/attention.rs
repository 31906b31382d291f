//! See `ops/attention.rs` for the contract.

use super::{Cpu, KvCache, Step, Tensor};

#[allow(clippy::too_many_arguments)]
pub fn run(
    cpu: &Cpu,
    out: &mut Tensor,
    qkv: &Tensor,
    cache: &KvCache,
    layer: usize,
    heads: usize,
    scale: f32,
    step: &Step,
) {
    let _ = (&cpu.pool, cpu.isa, out, qkv, cache, layer, heads, scale, step);
    todo!()
}

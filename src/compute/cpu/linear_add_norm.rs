//! See `ops/linear_add_norm.rs` for the contract: one after the other.

use super::{Cpu, Matrix, Tensor, add_norm, linear};
use crate::{AddNorm, LayerInput, NextNorm};

pub fn run(
    cpu: &mut Cpu,
    residual: &mut Tensor,
    delta: &mut Tensor,
    layer: LayerInput<Tensor, Matrix, Box<[f32]>>,
    add: AddNorm<Box<[f32]>>,
    next: NextNorm<Tensor, Box<[f32]>>,
) {
    let LayerInput { x, weight, bias } = layer;
    linear::run(cpu, delta, x, weight, bias.map(|bias| &bias[..]), 0..weight.rows());
    add_norm::run(cpu, residual, delta, add, Some(next));
}

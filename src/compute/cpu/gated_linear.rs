//! See `ops/gated_linear.rs` for the contract: one after the other.

use super::{Cpu, Matrix, Tensor, activate_mul, linear};
use crate::Activation;

pub fn run(
    cpu: &mut Cpu,
    out: &mut Tensor,
    gate_up: &mut Tensor,
    x: &Tensor,
    weight: &Matrix,
    bias: Option<&[f32]>,
    activation: Activation,
) {
    linear::run(cpu, gate_up, x, weight, bias, 0..weight.rows());
    activate_mul::run(cpu, out, gate_up, activation);
}

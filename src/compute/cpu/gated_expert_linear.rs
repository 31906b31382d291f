//! See `ops/gated_expert_linear.rs` for the contract: a thread applies the gates of the columns that it has computed.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::experts::{Experts, Product, Routes};
use super::{Cpu, Tensor, activate_mul};
use crate::{Activation, LayerInput};

pub fn run(
    cpu: &mut Cpu,
    out: &mut Tensor,
    gate_up: &mut Tensor,
    layer: LayerInput<Tensor, Experts, Box<[f32]>>,
    activation: Activation,
    routes: &Routes,
) {
    let LayerInput { x, weight, bias, .. } = layer;
    let (isa, width) = (cpu.isa, out.cols());
    let (out, gate_up) = (Disjoint::new(out.values_mut()), Disjoint::new(gate_up.values_mut()));
    let product = Product { out: gate_up, x: x.values(), by_token: true, weight, bias: bias.map(|b| &b[..]), routes };
    product.run(cpu, &[0, width], width, &|rows, columns| {
        for row in rows {
            let at = |first: usize| first + columns.start..first + columns.end;
            // SAFETY: this thread alone has these rows and columns, and has computed them.
            let (out, gate, up) = unsafe {
                let first = 2 * row * width;
                (out.part(at(row * width)), gate_up.part(at(first)), gate_up.part(at(first + width)))
            };
            activate_mul::row(isa, out, gate, up, activation);
        }
    });
}

//! See `ops/expert_linear.rs` for the contract.

use super::disjoint::Disjoint;
use super::experts::{Experts, Product, Routes};
use super::{Cpu, Matrix, Tensor};
use crate::{ExpertRows, ExpertsShape, HostMatrix, LayerInput};

/// The specification: the row of each slot, whose expert is `experts[slot]`. `x` has a row per slot. Sums are in f64.
pub fn reference(out: &mut [f32], x: &[f32], weight: &[Vec<HostMatrix>], bias: Option<&[f32]>, experts: &[u32]) {
    let shape = Matrix::new(&weight[0]).map(|first| (first.rows(), first.cols()));
    let (outputs, inputs) = shape.expect("memory for a specification");
    for ((out, x), &expert) in out.chunks_exact_mut(outputs).zip(x.chunks_exact(inputs)).zip(experts) {
        let matrix = Matrix::new(&weight[expert as usize]).expect("memory for a specification");
        let bias = bias.map(|bias| &bias[expert as usize * outputs..][..outputs]);
        super::linear::reference(out, x, &matrix, bias, 0..outputs);
    }
}

pub fn run(
    cpu: &mut Cpu,
    out: &mut Tensor,
    layer: LayerInput<Tensor, Experts, Box<[f32]>>,
    rows: ExpertRows,
    routes: &Routes,
) {
    let LayerInput { x, weight, bias, .. } = layer;
    let ExpertsShape { outputs, .. } = weight.shape();
    let out = Disjoint::new(out.values_mut());
    let product = Product {
        out,
        x: x.values(),
        by_token: rows == ExpertRows::Tokens,
        weight,
        bias: bias.map(|b| &b[..]),
        routes,
    };
    product.run(cpu, &[0], outputs, &|_, _| ());
}

//! A linear layer of a model: its weights, and its bias if it has one.

use crate::spec::Bias;
use crate::weights::Weights;
use base::error::Result;
use compute::ops;
use compute::{Activation, Backend, LayerInput, Tensor};
use std::ops::Range;

/// One or several projections of the same input, stacked along their outputs.
pub struct Linear<B: Backend> {
    /// `[outputs, inputs]`
    weight: B::Matrix,
    /// `[outputs]`
    bias: Option<B::Vector>,
}

/// A projection as a model has it, and the part of it that is computed.
pub struct Projection {
    /// The name of the layer.
    pub name: String,
    /// Outputs of the whole.
    pub outputs: usize,
    /// Those that are computed, stacked in this order.
    pub own: Vec<Range<usize>>,
}

/// The inputs of projections, and those of them that are there.
#[derive(Clone)]
pub struct Inputs {
    /// Inputs of the whole.
    pub all: usize,
    /// Those that `x` has.
    pub own: Range<usize>,
}

impl Inputs {
    /// All of them.
    pub fn all(all: usize) -> Inputs {
        Inputs { all, own: 0..all }
    }
}

impl<B: Backend> Linear<B> {
    /// Stacks the projections `parts`. A rank that has some of the inputs computes a share of each sum; `adds_bias` says whether this
    /// share contains the bias.
    pub fn load(
        backend: &B,
        weights: &mut Weights,
        inputs: Inputs,
        parts: &[Projection],
        bias: Bias,
        adds_bias: bool,
    ) -> Result<Linear<B>> {
        let mut matrices = Vec::new();
        for Projection { name, outputs, own } in parts {
            matrices.extend(weights.matrix_parts(name, (*outputs, inputs.all), own, inputs.own.clone())?);
        }
        let weight = backend.matrix(&matrices)?;
        let bias = match bias {
            Bias::None => None,
            Bias::Added => {
                let mut vectors = Vec::new();
                for Projection { name, outputs, own } in parts {
                    vectors.extend(weights.bias(name, *outputs, own)?);
                }
                adds_bias.then(|| backend.vector(&vectors)).transpose()?
            }
        };
        Ok(Linear { weight, bias })
    }

    /// A layer that is small and important enough to be kept as it is stored where others are quantized. `[outputs, inputs]`
    pub fn load_unquantized(
        backend: &B,
        weights: &mut Weights,
        name: &str,
        [outputs, inputs]: [usize; 2],
        bias: Bias,
    ) -> Result<Linear<B>> {
        let weight = backend.matrix(&[weights.unquantized(name, outputs, inputs)?])?;
        let all = 0..outputs;
        let bias = match bias {
            Bias::None => None,
            Bias::Added => Some(backend.vector(&weights.bias(name, outputs, std::slice::from_ref(&all))?)?),
        };
        Ok(Linear { weight, bias })
    }

    /// A layer of these weights.
    pub fn of(weight: B::Matrix, bias: Option<B::Vector>) -> Linear<B> {
        Linear { weight, bias }
    }

    /// `[outputs, inputs]`
    pub fn weight(&self) -> &B::Matrix {
        &self.weight
    }

    /// The layer with what it reads, as ops take both.
    pub fn with_input<'a>(
        &'a self,
        x: &'a Tensor<B::Storage>,
    ) -> LayerInput<'a, Tensor<B::Storage>, B::Matrix, B::Vector> {
        LayerInput::new(x, &self.weight, self.bias.as_ref())
    }

    /// `out = x weight^T + bias`. `out` is `[tokens, outputs]`, `x` is `[tokens, inputs]`.
    pub fn forward(&self, backend: &mut B, out: &mut Tensor<B::Storage>, x: &Tensor<B::Storage>) {
        let (outputs, _) = B::matrix_shape(&self.weight);
        ops::linear(backend, out, self.with_input(x), 0..outputs);
    }

    /// Of outputs that are gates, then as many numbers of up: `out = activation(gate) * up`. `out` is `[tokens, outputs / 2]`, `x` is
    /// `[tokens, inputs]`; `gate_up` is `[tokens, outputs]`, and what it holds afterwards is not defined.
    pub fn forward_gated(
        &self,
        backend: &mut B,
        out: &mut Tensor<B::Storage>,
        gate_up: &mut Tensor<B::Storage>,
        x: &Tensor<B::Storage>,
        activation: Activation,
    ) {
        ops::gated_linear(backend, out, gate_up, self.with_input(x), activation);
    }
}

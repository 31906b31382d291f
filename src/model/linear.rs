//! A linear layer of a model: its weights, and its bias if it has one.

use crate::backend::{Backend, Tensor};
use crate::error::Result;
use crate::model::spec::Bias;
use crate::model::weights::Weights;
use crate::ops;

/// One or several projections of the same input, stacked along their outputs.
pub struct Linear<B: Backend> {
    /// `[outputs, inputs]`
    weight: B::Matrix,
    /// `[outputs]`
    bias: Option<B::Vector>,
}

impl<B: Backend> Linear<B> {
    /// Stacks the projections `parts`, each a name and its number of outputs.
    pub fn load(
        backend: &B,
        weights: &mut Weights,
        inputs: usize,
        parts: &[(String, usize)],
        bias: Bias,
    ) -> Result<Linear<B>> {
        let matrices: Result<Vec<_>> =
            parts.iter().map(|(name, outputs)| weights.matrix(name, *outputs, inputs)).collect();
        let weight = backend.matrix(&matrices?)?;
        let bias = match bias {
            Bias::None => None,
            Bias::Added => {
                let vectors: Result<Vec<_>> =
                    parts.iter().map(|(name, outputs)| weights.bias(name, *outputs)).collect();
                Some(backend.vector(&vectors?)?)
            }
        };
        Ok(Linear { weight, bias })
    }

    /// `out = x weight^T + bias`. `out` is `[tokens, outputs]`, `x` is `[tokens, inputs]`.
    pub fn forward(&self, backend: &mut B, out: &mut Tensor<B::Storage>, x: &Tensor<B::Storage>) {
        let (outputs, _) = B::matrix_shape(&self.weight);
        ops::linear(backend, out, x, &self.weight, self.bias.as_ref(), 0..outputs);
    }
}

//! The projections of a latent to keys and values, a matrix per head, as the files of one family or another have them.

use super::Weights;
use crate::names::LatentUpNames;
use crate::quantization::Quantization;
use base::error::Result;
use compute::HostMatrix;
use formats::WeightFormat;
use std::ops::Range;

/// Numbers of the key and of the value of a head, and of the latent that they are projections of.
#[derive(Clone, Copy, Debug)]
pub struct LatentShape {
    /// Heads of all ranks.
    pub heads: usize,
    /// Numbers of a key that are projections of the latent.
    pub key: usize,
    /// Numbers of a value.
    pub value: usize,
    /// Numbers of the latent.
    pub rank: usize,
}

/// What queries are multiplied by to meet the latent, and what attention gives to become values. `[heads]`
pub struct LatentUp {
    /// The projections to keys, transposed. `[rank, key]`
    pub keys: Vec<HostMatrix>,
    /// The projections to values. `[value, rank]`
    pub values: Vec<HostMatrix>,
}

impl Weights {
    /// The projections of a latent to the keys and values of the heads `own` in layer `layer`.
    ///
    /// llama.cpp writes those to keys transposed, so that they stay coded. Where a file has them as they are, they are decoded and turned: no coding can be
    /// turned as it is.
    pub fn latent_up(&mut self, layer: usize, shape: LatentShape, own: Range<usize>) -> Result<LatentUp> {
        let names = self.names();
        let LatentShape { heads, key, value, rank } = shape;
        let in_layer = |part| names.in_layer(layer, part);
        let both = match names.attention.latent.up {
            LatentUpNames::ByHead(both) => both,
            LatentUpNames::Separate { key: keys, value: of_values, both } if !self.has_module(&in_layer(both)) => {
                let keys = self.matrices_of_heads(&in_layer(keys), [heads, rank, key], own.clone())?;
                let values = self.matrices_of_heads(&in_layer(of_values), [heads, value, rank], own)?;
                return Ok(LatentUp { keys, values });
            }
            LatentUpNames::Separate { key, value, both } => {
                // Files of the time between both forms have all three.
                [key, value].into_iter().for_each(|part| self.leave(&in_layer(part)));
                both
            }
        };
        let (both, step) = (in_layer(both), key + value);
        let all = (heads * step, rank);
        let rows = |first: usize, len: usize| -> Vec<Range<usize>> {
            own.clone().map(|head| head * step + first).map(|first| first..first + len).collect()
        };
        let stored = self.stored_parts(&both, all, &rows(0, key), 0..rank)?;
        let keys = stored.iter().map(|matrix| self.turned(matrix)).collect::<Result<Vec<_>>>()?;
        self.count(&both, &keys);
        let values = self.matrix_parts(&both, all, &rows(key, value), 0..rank)?;
        Ok(LatentUp { keys, values })
    }

    fn has_module(&self, name: &str) -> bool {
        Quantization::parts(&self.module(name)).any(|name| self.tensors.get(&name).is_some())
    }

    /// The matrices `own` of the tensor `name`, which has `count` of them.
    fn matrices_of_heads(
        &mut self,
        name: &str,
        [count, rows, cols]: [usize; 3],
        own: Range<usize>,
    ) -> Result<Vec<HostMatrix>> {
        let all = self.rows_of(self.full_name(name, "weight"), [count, rows, cols])?;
        let held = all[own].iter().map(|matrix| self.held(matrix, 0..cols)).collect::<Result<Vec<_>>>()?;
        self.count(name, &held);
        Ok(held)
    }

    /// The columns of a matrix as rows, in the form in which a matrix is given.
    fn turned(&self, matrix: &HostMatrix) -> Result<HostMatrix> {
        let turned = matrix.converted(WeightFormat::from(self.dtype))?.transposed()?;
        let (_, cols) = turned.shape();
        self.held(&turned, 0..cols)
    }
}

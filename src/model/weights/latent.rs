//! The projections of a latent to keys and values, as the files of one family or another have them.

use super::Weights;
use crate::names::LatentUpNames;
use crate::quantization::Quantization;
use base::error::Result;
use compute::{HeadColumns, HostMatrix};
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

/// A projection to keys and values, and where both are among its outputs.
pub struct LatentUp {
    /// Rows of one matrix, stacked.
    pub parts: Vec<HostMatrix>,
    /// Columns of the keys.
    pub keys: HeadColumns,
    /// Columns of the values.
    pub values: HeadColumns,
}

impl Weights {
    /// The projection of a latent to the keys and values of the heads `own` in layer `layer`.
    ///
    /// Where a file has the keys transposed, as llama.cpp writes them, they are decoded and turned: no coding can be turned as it is.
    pub fn latent_up(&mut self, layer: usize, shape: LatentShape, own: Range<usize>) -> Result<LatentUp> {
        let names = self.names();
        let LatentShape { heads, key, value, rank } = shape;
        let in_layer = |part| names.in_layer(layer, part);
        let both = match names.attention.latent.up {
            LatentUpNames::ByHead(both) => both,
            LatentUpNames::Separate { key: keys, value: of_values, both } if !self.has_module(&in_layer(both)) => {
                let keys = self.turned(&in_layer(keys), [heads, rank, key], own.clone())?;
                let name = self.full_name(&in_layer(of_values), "weight");
                let all = self.rows_of(name, [heads, value, rank])?;
                let values =
                    all[own.clone()].iter().map(|head| self.held(head, 0..rank)).collect::<Result<Vec<_>>>()?;
                self.count(&in_layer(of_values), &values);
                return Ok(LatentUp {
                    parts: [keys].into_iter().chain(values).collect(),
                    keys: HeadColumns { first: 0, step: key },
                    values: HeadColumns { first: own.len() * key, step: value },
                });
            }
            LatentUpNames::Separate { key, value, both } => {
                // Files of the time between both forms have all three.
                [key, value].into_iter().for_each(|part| self.leave(&in_layer(part)));
                both
            }
        };
        let step = key + value;
        let rows = own.start * step..own.end * step;
        let parts = self.matrix_parts(&in_layer(both), (heads * step, rank), std::slice::from_ref(&rows), 0..rank)?;
        let [keys, values] = [0, key].map(|first| HeadColumns { first, step });
        Ok(LatentUp { parts, keys, values })
    }

    fn has_module(&self, name: &str) -> bool {
        Quantization::parts(&self.module(name)).any(|name| self.tensors.get(&name).is_some())
    }

    /// The matrices `own` of a tensor of `count`, each turned, one after the other. `[own * cols, rows]`
    fn turned(&mut self, name: &str, [count, rows, cols]: [usize; 3], own: Range<usize>) -> Result<HostMatrix> {
        let full_name = self.full_name(name, "weight");
        let matrices = self.rows_of(full_name, [count, rows, cols])?;
        let plain = WeightFormat::from(self.dtype);
        let matrices: Vec<HostMatrix> =
            matrices[own].iter().map(|matrix| matrix.converted(plain)).collect::<Result<_>>()?;
        let turned: Vec<HostMatrix> = matrices.iter().map(HostMatrix::transposed).collect::<Result<_>>()?;
        drop(matrices);
        let all = HostMatrix::from_rows(turned.len() * cols, rows, plain, "transposed weights", |row, numbers| {
            turned[row / cols].dequantize_row(row % cols, numbers);
        })?;
        let held = self.held(&all, 0..rows)?;
        self.count(name, std::slice::from_ref(&held));
        Ok(held)
    }
}

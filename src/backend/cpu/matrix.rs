//! Weights of a linear layer, read where they lie in the mapped file.

use crate::backend::{DType, HostTensor};
use crate::error::Result;

/// Weights stacked along their rows. `[rows, cols]`
pub struct Matrix {
    parts: Vec<HostTensor>,
    rows: usize,
    cols: usize,
}

impl Matrix {
    /// Stacks `parts`, which share number type and columns.
    ///
    /// # Panics
    ///
    /// If they do not: the loader checks shapes against config.json.
    pub fn new(parts: &[HostTensor]) -> Result<Matrix> {
        let cols = parts[0].shape()[1];
        assert!(parts.iter().all(|p| p.shape().len() == 2 && p.shape()[1] == cols && p.dtype() == parts[0].dtype()));
        Ok(Matrix { rows: parts.iter().map(|p| p.shape()[0]).sum(), cols, parts: parts.to_vec() })
    }

    /// Outputs of the layer.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs of the layer.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Number type.
    pub fn dtype(&self) -> DType {
        self.parts[0].dtype()
    }

    /// The stacked tensors, first rows first.
    pub fn parts(&self) -> &[HostTensor] {
        &self.parts
    }
}

//! Weights of a linear layer, read where they lie in the mapped file.

use crate::backend::{DType, HostTensor};
use crate::error::Result;
use std::ops::Range;

/// Weights stacked along their rows. `[rows, cols]`
pub struct Matrix {
    parts: Vec<HostTensor>,
    rows: usize,
    cols: usize,
}

/// Rows of a [`Matrix`] that follow each other in memory.
pub(in crate::backend::cpu) struct Segment<'a> {
    /// Which rows of the matrix.
    pub rows: Range<usize>,
    /// Their numbers, little-endian, of any alignment. `[rows, cols]`
    pub bytes: &'a [u8],
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

    /// Bytes of one row.
    pub fn row_bytes(&self) -> usize {
        self.cols * self.dtype().bytes()
    }

    /// The stacked tensors, first rows first.
    pub fn parts(&self) -> &[HostTensor] {
        &self.parts
    }

    /// The rows of `range`, cut where one part ends and the next begins.
    pub(in crate::backend::cpu) fn segments(&self, range: Range<usize>) -> impl Iterator<Item = Segment<'_>> {
        let row_bytes = self.row_bytes();
        let mut end = 0;
        self.parts.iter().filter_map(move |part| {
            let first = end;
            end += part.shape()[0];
            let rows = range.start.max(first)..range.end.min(end);
            (!rows.is_empty()).then(|| {
                let bytes = &part.bytes()[(rows.start - first) * row_bytes..(rows.end - first) * row_bytes];
                Segment { rows, bytes }
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `rows` rows of two bf16 numbers, each byte the number of its part.
    fn part(number: u8, rows: usize) -> HostTensor {
        HostTensor::owned(vec![number; rows * 4].into(), DType::Bf16, vec![rows, 2])
    }

    #[test]
    fn a_range_of_rows_is_cut_where_parts_meet() {
        let matrix = Matrix::new(&[part(1, 3), part(2, 1), part(3, 4)]).unwrap();
        assert_eq!((matrix.rows(), matrix.cols(), matrix.row_bytes()), (8, 2, 4));
        let cases: [(Range<usize>, &[(Range<usize>, u8)]); 5] = [
            (0..8, &[(0..3, 1), (3..4, 2), (4..8, 3)]),
            (1..3, &[(1..3, 1)]),
            (2..5, &[(2..3, 1), (3..4, 2), (4..5, 3)]),
            (6..8, &[(6..8, 3)]),
            (4..4, &[]),
        ];
        for (range, wanted) in cases {
            let found: Vec<_> = matrix.segments(range.clone()).map(|s| (s.rows.clone(), s.bytes.to_vec())).collect();
            let wanted: Vec<_> =
                wanted.iter().map(|(rows, part)| (rows.clone(), vec![*part; rows.len() * 4])).collect();
            assert_eq!(found, wanted, "{range:?}");
        }
    }
}

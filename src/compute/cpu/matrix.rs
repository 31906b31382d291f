//! Weights of a linear layer, read where they lie in the mapped file.

use super::linear;
use crate::HostMatrix;
use base::error::Result;
use formats::{ScaledRow, WeightFormat};
use std::iter;
use std::ops::Range;

/// Weights stacked along their rows. Each part keeps its coding. `[rows, cols]`
pub struct Matrix {
    /// With rows that follow each other.
    parts: Vec<HostMatrix>,
    rows: usize,
    cols: usize,
}

/// Rows of a [`Matrix`] that follow each other in memory.
pub(in crate::cpu) struct Segment<'a> {
    /// Which rows of the matrix.
    pub rows: Range<usize>,
    /// Their numbers, or the codes of these, of any alignment. `[rows, cols]`
    pub bytes: &'a [u8],
    /// The scales of these rows, where they lie apart. `[rows, groups]`
    pub scales: &'a [u8],
    /// The zeros of these rows, where they have some. `[rows, groups]`
    pub zeros: &'a [u8],
    /// Bytes of a row of each of the three.
    pub row_bytes: [usize; 3],
}

impl Segment<'_> {
    /// The planes of row `row` of the segment.
    pub fn row(&self, row: usize) -> ScaledRow<'_> {
        let Segment { bytes, scales, zeros, row_bytes: [code_bytes, scale_bytes, zero_bytes], .. } = self;
        ScaledRow {
            codes: &bytes[row * code_bytes..][..*code_bytes],
            scales: &scales[row * scale_bytes..][..*scale_bytes],
            zeros: &zeros[row * zero_bytes..][..*zero_bytes],
        }
    }
}

impl Matrix {
    /// Stacks `parts`, which share the number of columns. A part in a coding that the kernels do not read is kept as bf16 numbers.
    ///
    /// # Panics
    ///
    /// If they do not: the loader checks shapes against config.json.
    pub fn new(parts: &[HostMatrix]) -> Result<Matrix> {
        let (_, cols) = parts[0].shape();
        assert!(parts.iter().all(|part| part.shape().1 == cols));
        let readable = |part: &HostMatrix| match linear::reads(part.coding(), cols) {
            true => part.packed(),
            false => part.converted(WeightFormat::Bf16),
        };
        let parts = parts.iter().map(readable).collect::<Result<Vec<_>>>()?;
        Ok(Matrix { rows: parts.iter().map(|part| part.shape().0).sum(), cols, parts })
    }

    /// Outputs of the layer.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs of the layer.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The stacked matrices, first rows first.
    pub fn parts(&self) -> &[HostMatrix] {
        &self.parts
    }

    /// The rows of `range`, cut where the coding changes.
    pub(in crate::cpu) fn runs(&self, range: Range<usize>) -> impl Iterator<Item = (WeightFormat, Range<usize>)> {
        let mut parts = self.ranges().filter_map(move |(part, rows)| {
            let rows = range.start.max(rows.start)..range.end.min(rows.end);
            (!rows.is_empty()).then_some((part.coding(), rows))
        });
        let mut next = parts.next();
        iter::from_fn(move || {
            let (coding, mut rows) = next.take()?;
            next = parts.next();
            while let Some((_, more)) = next.take_if(|(other, _)| *other == coding) {
                rows.end = more.end;
                next = parts.next();
            }
            Some((coding, rows))
        })
    }

    /// The rows of `range`, cut where one part ends and the next begins.
    pub(in crate::cpu) fn segments(&self, range: Range<usize>) -> impl Iterator<Item = Segment<'_>> {
        self.ranges().filter_map(move |(part, all)| {
            let rows = range.start.max(all.start)..range.end.min(all.end);
            (!rows.is_empty()).then(|| {
                let (coding, cols) = (part.coding(), self.cols);
                let ScaledRow { codes, scales, zeros } = part.planes().expect("packed when the matrix was made");
                let row_bytes = [coding.row_bytes(cols), coding.scale_bytes(cols), coding.zero_bytes(cols)];
                let within = row_bytes.map(|bytes| (rows.start - all.start) * bytes..(rows.end - all.start) * bytes);
                let [of_codes, of_scales, of_zeros] = within;
                Segment {
                    bytes: &codes[of_codes],
                    scales: &scales[of_scales],
                    zeros: &zeros[of_zeros],
                    row_bytes,
                    rows,
                }
            })
        })
    }

    /// Each part, and which rows it is.
    fn ranges(&self) -> impl Iterator<Item = (&HostMatrix, Range<usize>)> {
        let mut end = 0;
        self.parts.iter().map(move |part| {
            let first = end;
            end += part.shape().0;
            (part, first..end)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use os::HostBytes;

    /// `rows` rows of two numbers, each byte the number of its part.
    fn part(number: u8, rows: usize, coding: WeightFormat) -> HostMatrix {
        HostMatrix::new(HostBytes::owned(vec![number; rows * coding.row_bytes(2)].into()), coding, rows, 2)
    }

    #[test]
    fn a_range_of_rows_is_cut_where_parts_meet() {
        let bf16 = |number, rows| part(number, rows, WeightFormat::Bf16);
        let matrix = Matrix::new(&[bf16(1, 3), bf16(2, 1), bf16(3, 4)]).unwrap();
        assert_eq!((matrix.rows(), matrix.cols()), (8, 2));
        /// Rows, and what they are cut into: rows of which part.
        type Case = (Range<usize>, &'static [(Range<usize>, u8)]);
        let cases: [Case; 5] = [
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

    #[test]
    fn a_range_of_rows_has_as_many_runs_as_codings_in_a_row() {
        use WeightFormat::{Bf16, F32};
        let matrix = Matrix::new(&[part(1, 3, Bf16), part(2, 1, Bf16), part(3, 4, F32), part(4, 2, Bf16)]).unwrap();
        type Case = (Range<usize>, &'static [(WeightFormat, Range<usize>)]);
        let cases: [Case; 4] = [
            (0..10, &[(Bf16, 0..4), (F32, 4..8), (Bf16, 8..10)]),
            (1..4, &[(Bf16, 1..4)]),
            (3..9, &[(Bf16, 3..4), (F32, 4..8), (Bf16, 8..9)]),
            (5..5, &[]),
        ];
        for (range, wanted) in cases {
            assert_eq!(matrix.runs(range.clone()).collect::<Vec<_>>(), wanted, "{range:?}");
        }
    }

    #[test]
    fn columns_of_a_matrix_are_packed() {
        let matrix = Matrix::new(&[part(1, 3, WeightFormat::F32).columns(1..2)]).unwrap();
        assert_eq!((matrix.rows(), matrix.cols()), (3, 1));
        assert_eq!(matrix.segments(1..3).next().unwrap().bytes, [1; 8]);
    }
}

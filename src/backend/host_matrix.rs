//! A weight matrix on the host: what shape has it, how is it coded, and what is a part of it?
//!
//! Parts are views: rows for an expert, a stacked projection or a rank that holds some of the outputs, columns for a rank that holds some of
//! the inputs. Invariant: row `r` of each plane lies at `r * stride` and is as long as the coding says.

use super::{Coding, HostBytes};
use crate::error::{Result, room};
use std::ops::Range;

/// A matrix as it lies in a model file or in a part of one. `[rows, cols]`
#[derive(Clone, Debug)]
pub struct HostMatrix {
    rows: usize,
    cols: usize,
    coding: Coding,
    planes: Planes,
}

/// What a coding keeps of each row. Those with scales of their own have a plane for them.
#[derive(Clone, Debug)]
struct Planes {
    codes: Plane,
}

/// Rows of bytes, of any alignment.
#[derive(Clone, Debug)]
struct Plane {
    bytes: HostBytes,
    /// Bytes from one row to the next.
    stride: usize,
}

impl HostMatrix {
    /// A matrix whose rows follow each other.
    ///
    /// # Panics
    ///
    /// If the number of bytes does not fit: whoever read the file's header checks that.
    pub fn new(codes: HostBytes, coding: Coding, rows: usize, cols: usize) -> HostMatrix {
        let stride = coding.row_bytes(cols);
        assert_eq!(codes.len(), rows * stride);
        HostMatrix { rows, cols, coding, planes: Planes { codes: Plane { bytes: codes, stride } } }
    }

    /// Rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    /// How its numbers are written.
    pub fn coding(&self) -> Coding {
        self.coding
    }

    /// Some of the rows.
    ///
    /// # Panics
    ///
    /// If the range exceeds the rows.
    pub fn rows(&self, range: Range<usize>) -> HostMatrix {
        assert!(range.start <= range.end && range.end <= self.rows);
        let codes = self.planes.codes.part(range.clone(), 0..self.row_bytes());
        HostMatrix { rows: range.len(), planes: Planes { codes }, ..*self }
    }

    /// Some of the columns.
    ///
    /// # Panics
    ///
    /// If the range exceeds the columns, or cuts through a [group](Coding::group).
    pub fn columns(&self, range: Range<usize>) -> HostMatrix {
        let group = self.coding.group();
        assert!(range.start <= range.end && range.end <= self.cols);
        assert!(range.start.is_multiple_of(group) && (range.end.is_multiple_of(group) || range.end == self.cols));
        let bytes = self.coding.row_bytes(range.start)..self.coding.row_bytes(range.end);
        let codes = self.planes.codes.part(0..self.rows, bytes);
        HostMatrix { cols: range.len(), planes: Planes { codes }, ..*self }
    }

    /// The bytes of all rows, where these follow each other.
    pub fn contiguous(&self) -> Option<&[u8]> {
        let Plane { bytes, stride } = &self.planes.codes;
        (*stride == self.row_bytes() || self.rows <= 1).then_some(bytes)
    }

    /// Its bytes in order, in pieces as long as the layout allows: all rows at once where they follow each other, else row by row.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let (whole, rows) = match self.contiguous() {
            Some(bytes) => (Some(bytes), 0),
            None => (None, self.rows),
        };
        whole.into_iter().chain((0..rows).map(|row| self.row(row)))
    }

    /// The same matrix with rows that follow each other: copied if they do not.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](crate::error::Error::OutOfMemory) when there is no room for the copy.
    pub fn packed(&self) -> Result<HostMatrix> {
        if self.contiguous().is_some() {
            return Ok(self.clone());
        }
        let mut bytes = room(self.rows * self.row_bytes(), "a part of a weight matrix", "the size of the model")?;
        (0..self.rows).for_each(|row| bytes.extend_from_slice(self.row(row)));
        Ok(HostMatrix::new(HostBytes::owned(bytes.into()), self.coding, self.rows, self.cols))
    }

    /// Its numbers: the specification of what a backend multiplies with. `[rows, cols]`
    pub fn to_f32(&self) -> Vec<f32> {
        let mut numbers = vec![0.0; self.rows * self.cols];
        for (row, numbers) in numbers.chunks_exact_mut(self.cols.max(1)).enumerate() {
            self.coding.decode(self.row(row), numbers);
        }
        numbers
    }

    fn row(&self, row: usize) -> &[u8] {
        let Plane { bytes, stride } = &self.planes.codes;
        &bytes[row * stride..][..self.row_bytes()]
    }

    fn row_bytes(&self) -> usize {
        self.coding.row_bytes(self.cols)
    }
}

impl Plane {
    /// The bytes at `bytes` of each of `rows`.
    fn part(&self, rows: Range<usize>, bytes: Range<usize>) -> Plane {
        let end = if rows.is_empty() { 0 } else { (rows.end - 1) * self.stride + bytes.end };
        let start = if rows.is_empty() { 0 } else { rows.start * self.stride + bytes.start };
        Plane { bytes: self.bytes.slice(start..end), stride: self.stride }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers 0, 1, 2, … in rows of `cols`.
    fn matrix(rows: usize, cols: usize, coding: Coding) -> HostMatrix {
        let mut bytes = vec![0; coding.row_bytes(rows * cols)];
        coding.encode((0..rows * cols).map(|number| number as f32), &mut bytes);
        HostMatrix::new(HostBytes::owned(bytes.into()), coding, rows, cols)
    }

    #[test]
    fn parts_are_views_of_rows_and_columns() {
        for coding in [Coding::F32, Coding::F16, Coding::Bf16] {
            let whole = matrix(4, 6, coding);
            let wanted = |rows: Range<usize>, cols: Range<usize>| -> Vec<f32> {
                rows.flat_map(|row| cols.clone().map(move |col| (row * 6 + col) as f32)).collect()
            };
            let cases: [(HostMatrix, Range<usize>, Range<usize>); 6] = [
                (whole.clone(), 0..4, 0..6),
                (whole.rows(1..3), 1..3, 0..6),
                (whole.columns(2..5), 0..4, 2..5),
                (whole.columns(2..5).rows(3..4), 3..4, 2..5),
                (whole.rows(1..4).columns(1..6).columns(1..3), 1..4, 2..4),
                (whole.columns(3..6).rows(2..2), 2..2, 3..6),
            ];
            for (part, rows, cols) in cases {
                assert_eq!(part.shape(), (rows.len(), cols.len()));
                assert_eq!(part.to_f32(), wanted(rows.clone(), cols.clone()), "{coding:?} {rows:?} {cols:?}");
                assert_eq!(part.contiguous().is_some(), cols == (0..6) || rows.len() <= 1, "{rows:?} {cols:?}");
                let packed = part.packed().unwrap();
                assert_eq!(packed.contiguous().unwrap().len(), coding.row_bytes(cols.len()) * rows.len());
                assert_eq!(packed.to_f32(), part.to_f32());
                assert_eq!(part.pieces().collect::<Vec<_>>().concat(), packed.contiguous().unwrap());
            }
        }
    }
}

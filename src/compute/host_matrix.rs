//! A weight matrix on the host: what shape has it, how is it coded, and what is a part of it?
//!
//! Parts are views: rows for an expert, a stacked projection or a rank that holds some of the outputs, columns for a rank that holds some of
//! the inputs. Invariant: row `r` of each plane lies at `r * stride` and is as long as the coding says.

use base::error::{Result, filled, room};
use formats::{ScaledRow, WeightFormat};
use os::HostBytes;
use std::ops::Range;

/// A matrix as it lies in a model file or in a part of one. `[rows, cols]`
#[derive(Clone, Debug)]
pub struct HostMatrix {
    rows: usize,
    cols: usize,
    coding: WeightFormat,
    planes: Planes,
}

/// What a coding keeps of each row. The planes that it does not have are empty.
#[derive(Clone, Debug)]
struct Planes {
    codes: Plane,
    scales: Plane,
    zeros: Plane,
}

/// Rows of bytes, of any alignment.
#[derive(Clone, Debug)]
struct Plane {
    bytes: HostBytes,
    /// Bytes from one row to the next.
    stride: usize,
}

impl HostMatrix {
    /// A matrix whose rows follow each other, in a coding that has all of a row in one place.
    ///
    /// # Panics
    ///
    /// If the number of bytes does not fit: whoever read the file's header checks that.
    pub fn new(codes: HostBytes, coding: WeightFormat, rows: usize, cols: usize) -> HostMatrix {
        let nothing = || codes.slice(0..0);
        let (scales, zeros) = (nothing(), nothing());
        HostMatrix::scaled(codes, scales, zeros, coding, rows, cols)
    }

    /// As [`HostMatrix::new`], with the scales and zeros of a coding that has them in planes of their own. `zeros` is empty where it has none.
    ///
    /// # Panics
    ///
    /// As there.
    pub fn scaled(
        codes: HostBytes,
        scales: HostBytes,
        zeros: HostBytes,
        coding: WeightFormat,
        rows: usize,
        cols: usize,
    ) -> HostMatrix {
        let plane = |bytes: HostBytes, stride: usize| {
            assert_eq!(bytes.len(), rows * stride);
            Plane { bytes, stride }
        };
        let planes = Planes {
            codes: plane(codes, coding.row_bytes(cols)),
            scales: plane(scales, coding.scale_bytes(cols)),
            zeros: plane(zeros, coding.zero_bytes(cols)),
        };
        HostMatrix { rows, cols, coding, planes }
    }

    /// Rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    /// How its numbers are written.
    pub fn coding(&self) -> WeightFormat {
        self.coding
    }

    /// Some of the rows.
    ///
    /// # Panics
    ///
    /// If the range exceeds the rows.
    pub fn rows(&self, range: Range<usize>) -> HostMatrix {
        assert!(range.start <= range.end && range.end <= self.rows);
        self.part(range, 0..self.cols)
    }

    /// The even rows, and the odd ones.
    pub fn by_turns(&self) -> [HostMatrix; 2] {
        let (Planes { codes, scales, zeros }, coding, cols) = (&self.planes, self.coding, self.cols);
        [0, 1].map(|first| {
            let rows = (self.rows + 1 - first) / 2;
            let every_second = |plane: &Plane, row_bytes: usize| {
                let first = first.min(self.rows) * plane.stride;
                let end = if rows == 0 { first } else { first + (rows - 1) * 2 * plane.stride + row_bytes };
                Plane { bytes: plane.bytes.slice(first.min(end)..end), stride: 2 * plane.stride }
            };
            let planes = Planes {
                codes: every_second(codes, coding.row_bytes(cols)),
                scales: every_second(scales, coding.scale_bytes(cols)),
                zeros: every_second(zeros, coding.zero_bytes(cols)),
            };
            HostMatrix { rows, planes, ..*self }
        })
    }

    /// Its columns as rows, in the same [plain](WeightFormat::is_plain) coding.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](base::error::Error::OutOfMemory) when there is no room for the copy.
    pub fn transposed(&self) -> Result<HostMatrix> {
        /// Columns that are read together: a line of the cache.
        const TOGETHER: usize = 32;
        let number = self.coding.row_bytes(1);
        let (what, knob) = ("transposed weights", "the size of the model");
        let bytes = HostBytes::written(self.rows * self.cols * number, what, knob, |to| {
            for first in (0..self.cols).step_by(TOGETHER) {
                let columns = first..self.cols.min(first + TOGETHER);
                for row in 0..self.rows {
                    let from = &self.row(row).codes[columns.start * number..columns.end * number];
                    for (column, from) in columns.clone().zip(from.chunks_exact(number)) {
                        to[(column * self.rows + row) * number..][..number].copy_from_slice(from);
                    }
                }
            }
            Ok(())
        })?;
        Ok(HostMatrix::new(bytes, self.coding, self.cols, self.rows))
    }

    /// Some of the columns.
    ///
    /// # Panics
    ///
    /// If the range exceeds the columns, or cuts through a [group](WeightFormat::group).
    pub fn columns(&self, range: Range<usize>) -> HostMatrix {
        let group = self.coding.group();
        assert!(range.start <= range.end && range.end <= self.cols);
        assert!(range.start.is_multiple_of(group) && (range.end.is_multiple_of(group) || range.end == self.cols));
        self.part(0..self.rows, range)
    }

    fn part(&self, rows: Range<usize>, cols: Range<usize>) -> HostMatrix {
        let Planes { codes, scales, zeros } = &self.planes;
        let part = |plane: &Plane, bytes: &dyn Fn(usize) -> usize| {
            // The last group of a row may be shorter, and one group may be the whole row.
            let (start, len) =
                if cols.start == 0 { (0, bytes(cols.end)) } else { (bytes(cols.start), bytes(cols.len())) };
            let start = start.min(bytes(self.cols) - len);
            plane.part(rows.clone(), start..start + len)
        };
        let planes = Planes {
            codes: part(codes, &|cols| self.coding.row_bytes(cols)),
            scales: part(scales, &|cols| self.coding.scale_bytes(cols)),
            zeros: part(zeros, &|cols| self.coding.zero_bytes(cols)),
        };
        HostMatrix { rows: rows.len(), cols: cols.len(), coding: self.coding, planes }
    }

    /// The bytes of all rows, where these follow each other and are all that the coding has.
    pub fn contiguous(&self) -> Option<&[u8]> {
        let Planes { codes, scales, zeros } = &self.planes;
        let alone = scales.stride == 0 && zeros.stride == 0;
        codes.contiguous(self.rows, self.row_bytes()).filter(|_| alone)
    }

    /// Codes, scales and zeros of all rows, where the rows of each plane follow each other.
    pub fn planes(&self) -> Option<ScaledRow<'_>> {
        let Planes { codes, scales, zeros } = &self.planes;
        Some(ScaledRow {
            codes: codes.contiguous(self.rows, self.row_bytes())?,
            scales: scales.contiguous(self.rows, self.coding.scale_bytes(self.cols))?,
            zeros: zeros.contiguous(self.rows, self.coding.zero_bytes(self.cols))?,
        })
    }

    /// The bytes of a [plain](WeightFormat::is_plain) matrix in order, in pieces as long as the layout allows: all rows at once where they follow
    /// each other, else row by row.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let (whole, rows) = match self.contiguous() {
            Some(bytes) => (Some(bytes), 0),
            None => (None, self.rows),
        };
        whole.into_iter().chain((0..rows).map(|row| self.row(row).codes))
    }

    /// The same matrix with rows that follow each other in each plane: copied if they do not.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](base::error::Error::OutOfMemory) when there is no room for the copy.
    pub fn packed(&self) -> Result<HostMatrix> {
        if self.planes().is_some() {
            return Ok(self.clone());
        }
        let copy = |plane: &Plane, row_bytes: usize| -> Result<HostBytes> {
            let mut bytes = room(self.rows * row_bytes, "a part of a weight matrix", "the size of the model")?;
            (0..self.rows).for_each(|row| bytes.extend_from_slice(plane.row(row, row_bytes)));
            Ok(HostBytes::owned(bytes.into()))
        };
        let (Planes { codes, scales, zeros }, coding, cols) = (&self.planes, self.coding, self.cols);
        Ok(HostMatrix::scaled(
            copy(codes, coding.row_bytes(cols))?,
            copy(scales, coding.scale_bytes(cols))?,
            copy(zeros, coding.zero_bytes(cols))?,
            coding,
            self.rows,
            cols,
        ))
    }

    /// The same numbers in a [plain](WeightFormat::is_plain) coding, rounded to nearest even; itself if it has that coding.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](base::error::Error::OutOfMemory) when there is no room for the copy.
    pub fn converted(&self, to: WeightFormat) -> Result<HostMatrix> {
        if self.coding == to {
            return Ok(self.clone());
        }
        HostMatrix::from_rows(self.rows, self.cols, to, "converted weights", |row, numbers| {
            self.dequantize_row(row, numbers)
        })
    }

    /// A matrix in a [plain](WeightFormat::is_plain) coding whose rows `fill` writes, rounded to nearest even. `what` is for the message.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](base::error::Error::OutOfMemory) when there is no room for it.
    pub fn from_rows(
        rows: usize,
        cols: usize,
        to: WeightFormat,
        what: &'static str,
        mut fill: impl FnMut(usize, &mut [f32]),
    ) -> Result<HostMatrix> {
        const KNOB: &str = "the size of the model";
        let row_bytes = to.row_bytes(cols);
        let mut numbers = filled(0.0, cols, what, KNOB)?;
        let bytes = HostBytes::written(rows * row_bytes, what, KNOB, |bytes| {
            for (row, to_row) in bytes.chunks_exact_mut(row_bytes.max(1)).enumerate() {
                fill(row, &mut numbers);
                to.encode(numbers.iter().copied(), to_row);
            }
            Ok(())
        })?;
        Ok(HostMatrix::new(bytes, to, rows, cols))
    }

    /// Some of the columns: a view where the coding can be cut there, else a copy of their numbers in the [plain](WeightFormat::is_plain) coding
    /// `plain`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](base::error::Error::OutOfMemory) when there is no room for the copy.
    ///
    /// # Panics
    ///
    /// If the range exceeds the columns.
    pub fn cut_columns(&self, range: Range<usize>, plain: WeightFormat) -> Result<HostMatrix> {
        let group = self.coding.group();
        if range.start.is_multiple_of(group) && (range.end.is_multiple_of(group) || range.end == self.cols) {
            return Ok(self.columns(range));
        }
        let mut whole = filled(0.0, self.cols, "a row of weights", "the size of the model")?;
        HostMatrix::from_rows(self.rows, range.len(), plain, "columns of a rank", |row, numbers| {
            self.dequantize_row(row, &mut whole);
            numbers.copy_from_slice(&whole[range.clone()]);
        })
    }

    /// Bytes of all its planes.
    pub fn bytes(&self) -> usize {
        let (coding, cols) = (self.coding, self.cols);
        self.rows * (coding.row_bytes(cols) + coding.scale_bytes(cols) + coding.zero_bytes(cols))
    }

    /// Its numbers: the specification of what a backend multiplies with. `[rows, cols]`
    pub fn to_f32(&self) -> Vec<f32> {
        let mut numbers = vec![0.0; self.rows * self.cols];
        for (row, numbers) in numbers.chunks_exact_mut(self.cols.max(1)).enumerate() {
            self.dequantize_row(row, numbers);
        }
        numbers
    }

    /// The numbers of row `row`. `[cols]`
    ///
    /// # Panics
    ///
    /// If there is no such row, or `numbers` has another length.
    pub fn dequantize_row(&self, row: usize, numbers: &mut [f32]) {
        assert_eq!(numbers.len(), self.cols);
        self.coding.dequantize_row(self.row(row), numbers);
    }

    pub(crate) fn row(&self, row: usize) -> ScaledRow<'_> {
        let (Planes { codes, scales, zeros }, coding, cols) = (&self.planes, self.coding, self.cols);
        ScaledRow {
            codes: codes.row(row, coding.row_bytes(cols)),
            scales: scales.row(row, coding.scale_bytes(cols)),
            zeros: zeros.row(row, coding.zero_bytes(cols)),
        }
    }

    fn row_bytes(&self) -> usize {
        self.coding.row_bytes(self.cols)
    }
}

impl Plane {
    /// `row_bytes` bytes of row `row`.
    fn row(&self, row: usize, row_bytes: usize) -> &[u8] {
        &self.bytes[row * self.stride..][..row_bytes]
    }

    /// The bytes of `rows` rows of `row_bytes`, where these follow each other.
    fn contiguous(&self, rows: usize, row_bytes: usize) -> Option<&[u8]> {
        (self.stride == row_bytes || rows <= 1).then_some(&*self.bytes)
    }

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
    fn matrix(rows: usize, cols: usize, coding: WeightFormat) -> HostMatrix {
        let mut bytes = vec![0; coding.row_bytes(rows * cols)];
        coding.encode((0..rows * cols).map(|number| number as f32), &mut bytes);
        HostMatrix::new(HostBytes::owned(bytes.into()), coding, rows, cols)
    }

    #[test]
    fn parts_are_views_of_rows_and_columns() {
        for coding in [WeightFormat::F32, WeightFormat::F16, WeightFormat::Bf16] {
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

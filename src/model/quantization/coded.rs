//! A quantized matrix of a file, checked and not yet brought into the form that backends hold.
//!
//! Planes that a file has in another order are rewritten for the rows that are asked for, so that a rank rewrites no more than it keeps.

use super::transpose;
use base::error::{Result, filled};
use compute::HostMatrix;
use formats::{Codes, Scaled, ScaledRow, Scales, WeightFormat};
use os::HostBytes;
use std::ops::Range;

const KNOB: &str = "the size of the model";

/// A quantized matrix. `[rows, cols]`
pub struct Coded {
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
    /// What a code is, in the form that it is brought into.
    pub codes: Codes,
    /// Where the codes are.
    pub code_plane: CodePlane,
    /// What a scale is.
    pub scales: Scales,
    /// Where the scales are.
    pub scale_plane: ScalePlane,
    /// Where the zeros are; `None` where all are [`Codes::zero`].
    pub zeros: Option<Zeros>,
    /// Consecutive columns that share a scale; [`Scaled::ROW`] where all do.
    pub group: usize,
    /// The group of each column, where they are not consecutive. `[cols]`
    pub group_of: Option<Vec<u32>>,
}

/// Where the codes of a matrix are in a file.
pub enum CodePlane {
    /// Row after row, `stride` bytes each.
    Rows {
        /// All of them.
        bytes: HostBytes,
        /// Bytes of a row.
        stride: usize,
    },
    /// Signed bytes row after row, which become unsigned ones that are greater by 128.
    Signed(HostBytes),
    /// Words of 32 bits, each of consecutive inputs of one output. `[inputs per word, outputs]`
    InputWords(HostBytes),
    /// Words of eight outputs of one input, in the order of AWQ. `[inputs, outputs per word]`
    OutputWords(HostBytes),
}

/// Where the scales of a matrix are in a file.
pub enum ScalePlane {
    /// Scales for blocks of this many rows, row after row. `[blocks of rows, groups]`
    Rows(HostBytes, usize),
    /// `[groups, rows]`
    Columns(HostBytes),
}

/// The zeros of a matrix.
pub struct Zeros {
    /// Words of 32 bits, or bytes.
    pub bytes: HostBytes,
    /// How they are packed.
    pub packing: ZeroPacking,
    /// What is added to what is stored, modulo the range of the codes.
    pub added: u8,
}

/// How zeros are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroPacking {
    /// A byte each. `[rows, groups]`
    Bytes,
    /// Words of consecutive rows, `bits` each. `[words of rows, groups]`
    RowWords {
        /// Bits of a zero.
        bits: usize,
    },
    /// Words of consecutive rows, `bits` each. `[groups, words of rows]`
    GroupWords {
        /// Bits of a zero.
        bits: usize,
    },
    /// The same of 4 bits in the order of AWQ.
    AwqWords,
}

impl Coded {
    /// Rows `range` of the matrix: codes with their scales where a backend can hold them, else their numbers in the plain coding `plain`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](base::error::Error::OutOfMemory) when there is no room for planes that are rewritten.
    pub fn part(&self, range: Range<usize>, plain: WeightFormat) -> Result<HostMatrix> {
        let codes = self.codes_of(range.clone())?;
        let scales = self.scales_of(range.clone())?;
        let zeros = self.zeros_of(range.clone())?;
        if self.stays_coded() {
            let (group, has_zeros) = (self.group, self.zeros.is_some());
            let coding =
                WeightFormat::Scaled(Scaled { codes: self.codes, scales: self.scales, group, zeros: has_zeros });
            return Ok(HostMatrix::scaled(codes, scales, zeros, coding, range.len(), self.cols));
        }
        self.decoded([&codes, &scales, &zeros], range.len(), plain)
    }

    /// Whether a backend can hold the codes in their groups.
    pub fn stays_coded(&self) -> bool {
        self.group_of.is_none() && stays_coded(self.cols, self.group)
    }

    fn groups(&self) -> usize {
        self.cols.div_ceil(self.group)
    }

    /// The codes of some rows, row after row.
    fn codes_of(&self, rows: Range<usize>) -> Result<HostBytes> {
        let stride = self.stride();
        let written = |fill: &dyn Fn(&mut [u8])| {
            HostBytes::written(rows.len() * stride, "rewritten codes of weights", KNOB, |to| {
                fill(to);
                Ok(())
            })
        };
        match &self.code_plane {
            CodePlane::Rows { bytes, stride } => Ok(bytes.slice(rows.start * stride..rows.end * stride)),
            CodePlane::Signed(bytes) => {
                let from = &bytes[rows.start * stride..rows.end * stride];
                written(&|to| to.iter_mut().zip(from).for_each(|(to, &from)| *to = from ^ 0x80))
            }
            CodePlane::InputWords(words) => written(&|to| transpose::words(words, self.rows, rows.clone(), to)),
            CodePlane::OutputWords(words) => written(&|to| transpose::awq(words, self.rows, rows.clone(), to)),
        }
    }

    /// Bytes of a row of codes.
    fn stride(&self) -> usize {
        match self.code_plane {
            CodePlane::Rows { stride, .. } => stride,
            _ => self.codes.row_bytes(self.cols),
        }
    }

    /// The scales of some rows, row after row.
    fn scales_of(&self, rows: Range<usize>) -> Result<HostBytes> {
        let (groups, width) = (self.groups(), self.scales.bytes());
        let written = |fill: &dyn Fn(usize, usize) -> usize, bytes: &HostBytes| {
            HostBytes::written(rows.len() * groups * width, "scales of weights", KNOB, |to| {
                for (row, to) in rows.clone().zip(to.chunks_exact_mut((groups * width).max(1))) {
                    for (group, to) in to.chunks_exact_mut(width).enumerate() {
                        to.copy_from_slice(&bytes[fill(row, group) * width..][..width]);
                    }
                }
                Ok(())
            })
        };
        match &self.scale_plane {
            ScalePlane::Rows(bytes, 1) => {
                let row = groups * width;
                Ok(bytes.slice(rows.start * row..rows.end * row))
            }
            ScalePlane::Rows(bytes, block) => written(&|row, group| row / block * groups + group, bytes),
            ScalePlane::Columns(bytes) => written(&|row, group| group * self.rows + row, bytes),
        }
    }

    /// The zeros of some rows, row after row, or nothing.
    fn zeros_of(&self, rows: Range<usize>) -> Result<HostBytes> {
        let Some(zeros) = &self.zeros else { return Ok(HostBytes::owned([].into())) };
        let groups = self.groups();
        HostBytes::written(rows.len() * groups, "zeros of weights", KNOB, |to| {
            for (row, to) in rows.zip(to.chunks_exact_mut(groups.max(1))) {
                to.iter_mut().enumerate().for_each(|(group, to)| *to = zeros.at(row, group, self.rows, groups));
            }
            Ok(())
        })
    }

    /// The numbers of rows whose planes are given.
    fn decoded(&self, planes: [&[u8]; 3], rows: usize, plain: WeightFormat) -> Result<HostMatrix> {
        let [codes, scales, zeros] = planes;
        let (groups, stride) = (self.groups(), self.stride());
        // The codes alone, as whole numbers or those that they stand for.
        let alone =
            WeightFormat::Scaled(Scaled { codes: self.codes, scales: Scales::F32, group: Scaled::ROW, zeros: false });
        let one = 1f32.to_le_bytes();
        let bits = self.codes.row_bytes(8);
        let mut values = filled(0.0, stride * 8 / bits, "a row of weights", KNOB)?;
        HostMatrix::from_rows(rows, self.cols, plain, "dequantized weights", |row, numbers| {
            let codes = &codes[row * stride..][..stride];
            alone.dequantize_row(ScaledRow { codes, scales: &one, zeros: &[] }, &mut values);
            for (col, (number, &value)) in numbers.iter_mut().zip(&values).enumerate() {
                let group = self.group_of.as_ref().map_or(col / self.group, |groups| groups[col] as usize);
                let scale = self.scales.read(&scales[row * groups * self.scales.bytes()..], group);
                let code = match zeros.get(row * groups + group) {
                    Some(&zero) => value + self.codes.zero() - f32::from(zero),
                    None => value,
                };
                *number = code * scale;
            }
        })
    }
}

/// Whether a matrix of `cols` columns in groups of `group` is held as it is coded.
pub fn stays_coded(cols: usize, group: usize) -> bool {
    cols.is_multiple_of(Scaled::STEP) && (group == Scaled::ROW || group.is_multiple_of(Scaled::STEP))
}

impl Zeros {
    /// The zero of a group of row `row`, of `rows` rows with `groups` groups each.
    pub fn at(&self, row: usize, group: usize, rows: usize, groups: usize) -> u8 {
        /// Where the eight outputs of a word of AWQ are, in nibbles.
        const AWQ: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];
        let word = |at: usize| {
            let bytes = &self.bytes[at * 4..][..4];
            u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
        };
        let field = |bits: usize, at: usize, field: usize| {
            let mask = (1u32 << bits) - 1;
            (word(at) >> (field * bits)).wrapping_add(self.added.into()) & mask
        };
        match self.packing {
            ZeroPacking::Bytes => self.bytes[row * groups + group].wrapping_add(self.added),
            ZeroPacking::RowWords { bits } => {
                let each = 32 / bits;
                field(bits, row / each * groups + group, row % each) as u8
            }
            ZeroPacking::GroupWords { bits } => {
                let each = 32 / bits;
                field(bits, group * rows.div_ceil(each) + row / each, row % each) as u8
            }
            ZeroPacking::AwqWords => field(4, group * rows.div_ceil(8) + row / 8, AWQ[row % 8]) as u8,
        }
    }

    /// These, unless all are `zero`.
    pub fn unless_all(self, zero: u8, rows: usize, groups: usize) -> Option<Zeros> {
        let all = (0..rows).all(|row| (0..groups).all(|group| self.at(row, group, rows, groups) == zero));
        (!all).then_some(self)
    }
}

//! How are the numbers of a weight written as bytes?
//!
//! A quantized matrix *is* a matrix of real numbers, those that [`WeightFormat::decode`] gives. A backend may hold it in any form, as long as its
//! products are those of these numbers, within the tolerance of its arithmetic. Nothing above the backends depends on a coding.

mod block;
mod float;
mod grids;
mod lattice;
mod scaled;

pub use block::{Block, IQ4, q3_scale, scale_and_min};
pub use lattice::Lattice;
pub use scaled::{Codes, E2M1, Scaled, ScaledRow, Scales, from_e4m3, from_e8m0};

use super::DType;
use std::fmt;

/// How numbers are written. A row of a matrix is coded by itself, in groups of [`WeightFormat::group`] numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    /// IEEE single precision, little-endian.
    F32,
    /// IEEE half precision, little-endian.
    F16,
    /// The upper halves of single precision numbers, little-endian.
    Bf16,
    /// Blocks of a GGUF file, which hold codes and scales.
    Block(Block),
    /// Codes, with their scales in a plane of their own.
    Scaled(Scaled),
}

impl WeightFormat {
    /// Numbers that are coded together: a row can be cut at multiples of it.
    pub fn group(self) -> usize {
        match self {
            WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => 1,
            WeightFormat::Block(block) => block.numbers(),
            WeightFormat::Scaled(scaled) => scaled.cut(),
        }
    }

    /// Bytes of a row of `cols` numbers, without scales that lie apart. `cols` is a multiple of [`WeightFormat::group`]; the last group of scaled
    /// codes may be shorter.
    pub fn row_bytes(self, cols: usize) -> usize {
        match self {
            WeightFormat::F32 => cols * 4,
            WeightFormat::F16 | WeightFormat::Bf16 => cols * 2,
            WeightFormat::Block(block) => cols / block.numbers() * block.bytes(),
            WeightFormat::Scaled(scaled) => scaled.codes.row_bytes(cols),
        }
    }

    /// Bytes of the scales of a row of `cols` numbers that lie apart from the codes.
    pub fn scale_bytes(self, cols: usize) -> usize {
        match self {
            WeightFormat::Scaled(scaled) => scaled.groups(cols) * scaled.scales.bytes(),
            _ => 0,
        }
    }

    /// Bytes of the zeros of a row of `cols` numbers.
    pub fn zero_bytes(self, cols: usize) -> usize {
        match self {
            WeightFormat::Scaled(scaled) if scaled.zeros => scaled.groups(cols),
            _ => 0,
        }
    }

    /// Whether numbers are written as they are, without scales.
    pub fn is_plain(self) -> bool {
        matches!(self, WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16)
    }

    /// The numbers that `row`, a row or a part of one, stands for. This is the specification.
    ///
    /// # Panics
    ///
    /// If the lengths do not fit.
    pub fn dequantize_row(self, row: ScaledRow, numbers: &mut [f32]) {
        let cols = numbers.len();
        assert_eq!(row.codes.len(), self.row_bytes(cols));
        assert_eq!((row.scales.len(), row.zeros.len()), (self.scale_bytes(cols), self.zero_bytes(cols)));
        match self {
            WeightFormat::F32 => float::read(row.codes, numbers, f32::from_le_bytes),
            WeightFormat::F16 => float::read(row.codes, numbers, float::from_f16),
            WeightFormat::Bf16 => float::read(row.codes, numbers, float::from_bf16),
            WeightFormat::Block(block) => block.decode(row.codes, numbers),
            WeightFormat::Scaled(scaled) => scaled.decode(row, numbers),
        }
    }

    /// As [`WeightFormat::dequantize_row`], for a coding whose scales, if there are any, lie among the codes.
    ///
    /// # Panics
    ///
    /// If the lengths do not fit, or the scales lie apart.
    pub fn decode(self, bytes: &[u8], numbers: &mut [f32]) {
        self.dequantize_row(ScaledRow { codes: bytes, scales: &[], zeros: &[] }, numbers);
    }

    /// The nearest that can be written to `numbers`, the even one of two. `bytes` has room for all of them.
    ///
    /// # Panics
    ///
    /// If the coding is not [plain](WeightFormat::is_plain).
    pub fn encode(self, numbers: impl IntoIterator<Item = f32>, bytes: &mut [u8]) {
        match self {
            WeightFormat::F32 => float::write(numbers, bytes, f32::to_le_bytes),
            WeightFormat::F16 => float::write(numbers, bytes, float::to_f16),
            WeightFormat::Bf16 => float::write(numbers, bytes, float::to_bf16),
            WeightFormat::Block(_) | WeightFormat::Scaled(_) => panic!("{self} has no nearest number"),
        }
    }

    /// The number type in which these weights are computed with where nobody asks for another.
    pub fn dtype(self) -> DType {
        match self {
            WeightFormat::F32 => DType::F32,
            WeightFormat::F16 => DType::F16,
            WeightFormat::Bf16 | WeightFormat::Block(_) | WeightFormat::Scaled(_) => DType::Bf16,
        }
    }
}

/// What people call it.
impl fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            WeightFormat::F32 => f.write_str("F32"),
            WeightFormat::F16 => f.write_str("F16"),
            WeightFormat::Bf16 => f.write_str("BF16"),
            WeightFormat::Block(block) => f.write_str(block.name()),
            WeightFormat::Scaled(Scaled { codes, group, .. }) => {
                f.write_str(match codes {
                    Codes::U4 => "INT4",
                    Codes::U8 | Codes::I8 => "INT8",
                    Codes::E4m3 => "FP8 E4M3",
                    Codes::E2m1 => "FP4 E2M1",
                })?;
                if *group == Scaled::ROW { f.write_str(" per row") } else { write!(f, " in groups of {group}") }
            }
        }
    }
}

impl From<DType> for WeightFormat {
    fn from(dtype: DType) -> WeightFormat {
        match dtype {
            DType::F32 => WeightFormat::F32,
            DType::F16 => WeightFormat::F16,
            DType::Bf16 => WeightFormat::Bf16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_as_the_nearest_number() {
        let numbers = [0.0f32, -1.5, 0.1, 65504.0, 1e-7];
        for (coding, wanted) in [
            (WeightFormat::F32, numbers),
            (WeightFormat::F16, numbers.map(|number| half::f16::from_f32(number).to_f32())),
            (WeightFormat::Bf16, numbers.map(|number| half::bf16::from_f32(number).to_f32())),
        ] {
            let mut bytes = vec![0; coding.row_bytes(numbers.len())];
            coding.encode(numbers, &mut bytes);
            let mut read = [0.0; 5];
            coding.decode(&bytes, &mut read);
            assert_eq!(read, wanted, "{coding:?}");
            coding.decode(&bytes[coding.row_bytes(2)..], &mut read[..3]);
            assert_eq!(read[..3], wanted[2..], "{coding:?} from the middle");
        }
    }
}

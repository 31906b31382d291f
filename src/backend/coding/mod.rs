//! How are the numbers of a weight written as bytes?
//!
//! A coded matrix *is* a matrix of real numbers, those that [`Coding::decode`] gives. A backend may hold it in any form, as long as its
//! products are those of these numbers, within the tolerance of its arithmetic. Nothing above the backends depends on a coding.

mod float;

use super::DType;

/// How numbers are written. A row of a matrix is coded by itself, in groups of [`Coding::group`] numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// IEEE single precision, little-endian.
    F32,
    /// IEEE half precision, little-endian.
    F16,
    /// The upper halves of single precision numbers, little-endian.
    Bf16,
}

impl Coding {
    /// Numbers that are coded together: a row can be cut at multiples of it.
    pub fn group(self) -> usize {
        match self {
            Coding::F32 | Coding::F16 | Coding::Bf16 => 1,
        }
    }

    /// Bytes of a row of `cols` numbers, a multiple of [`Coding::group`].
    pub fn row_bytes(self, cols: usize) -> usize {
        match self {
            Coding::F32 => cols * 4,
            Coding::F16 | Coding::Bf16 => cols * 2,
        }
    }

    /// The numbers that `bytes`, a row or a part of one, stand for. This is the specification.
    ///
    /// # Panics
    ///
    /// If the lengths do not fit.
    pub fn decode(self, bytes: &[u8], numbers: &mut [f32]) {
        assert_eq!(bytes.len(), self.row_bytes(numbers.len()));
        match self {
            Coding::F32 => float::read(bytes, numbers, f32::from_le_bytes),
            Coding::F16 => float::read(bytes, numbers, float::from_f16),
            Coding::Bf16 => float::read(bytes, numbers, float::from_bf16),
        }
    }

    /// The nearest that can be written to `numbers`, the even one of two. `bytes` has room for all of them.
    pub fn encode(self, numbers: impl IntoIterator<Item = f32>, bytes: &mut [u8]) {
        match self {
            Coding::F32 => float::write(numbers, bytes, f32::to_le_bytes),
            Coding::F16 => float::write(numbers, bytes, float::to_f16),
            Coding::Bf16 => float::write(numbers, bytes, float::to_bf16),
        }
    }

    /// The number type in which these weights are computed with where nobody asks for another.
    pub fn dtype(self) -> DType {
        match self {
            Coding::F32 => DType::F32,
            Coding::F16 => DType::F16,
            Coding::Bf16 => DType::Bf16,
        }
    }
}

impl From<DType> for Coding {
    fn from(dtype: DType) -> Coding {
        match dtype {
            DType::F32 => Coding::F32,
            DType::F16 => Coding::F16,
            DType::Bf16 => Coding::Bf16,
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
            (Coding::F32, numbers),
            (Coding::F16, numbers.map(|number| half::f16::from_f32(number).to_f32())),
            (Coding::Bf16, numbers.map(|number| half::bf16::from_f32(number).to_f32())),
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

//! The weights of a norm, or a bias, as a model file has them.

use formats::WeightFormat;
use os::HostBytes;

/// Numbers in a row, coded, of any alignment. `[len]`
#[derive(Clone, Debug)]
pub struct HostVector {
    len: usize,
    coding: WeightFormat,
    bytes: HostBytes,
}

impl HostVector {
    /// A vector of `len` numbers.
    ///
    /// # Panics
    ///
    /// If the number of bytes does not fit.
    pub fn new(bytes: HostBytes, coding: WeightFormat, len: usize) -> HostVector {
        assert_eq!(bytes.len(), coding.row_bytes(len));
        HostVector { len, coding, bytes }
    }

    /// Some of the numbers.
    ///
    /// # Panics
    ///
    /// If the range exceeds them.
    pub fn part(&self, range: std::ops::Range<usize>) -> HostVector {
        let bytes = self.coding.row_bytes(range.start)..self.coding.row_bytes(range.end);
        HostVector { len: range.len(), coding: self.coding, bytes: self.bytes.slice(bytes) }
    }

    /// The numbers.
    pub fn to_f32(&self) -> Vec<f32> {
        let mut numbers = vec![0.0; self.len];
        self.coding.decode(&self.bytes, &mut numbers);
        numbers
    }
}

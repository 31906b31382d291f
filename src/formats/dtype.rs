//! The number types of arithmetic and of KV caches. How weights are written is a [`WeightFormat`](super::WeightFormat).

/// A floating-point type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DType {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of a single precision number.
    Bf16,
}

impl DType {
    /// Bytes of one number.
    pub const fn bytes(self) -> usize {
        match self {
            DType::F32 => 4,
            DType::F16 | DType::Bf16 => 2,
        }
    }
}

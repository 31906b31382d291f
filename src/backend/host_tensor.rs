//! A tensor as it lies in a model file.

use memmap2::Mmap;
use std::ops::Range;
use std::sync::Arc;

/// The number types of weights and KV caches.
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
    pub fn bytes(self) -> usize {
        match self {
            DType::F32 => 4,
            DType::F16 | DType::Bf16 => 2,
        }
    }
}

/// A tensor whose numbers stay in a mapped file, little-endian, row-major, of any alignment.
#[derive(Clone, Debug)]
pub struct HostTensor {
    dtype: DType,
    shape: Vec<usize>,
    bytes: Bytes,
}

#[derive(Clone, Debug)]
enum Bytes {
    Mapped { file: Arc<Mmap>, range: Range<usize> },
    Owned(Arc<[u8]>),
}

impl HostTensor {
    /// A tensor at `range` of a mapped file.
    ///
    /// # Panics
    ///
    /// If the range does not lie in the file or does not fit the shape: whoever read the file's header checks that.
    pub fn mapped(file: Arc<Mmap>, range: Range<usize>, dtype: DType, shape: Vec<usize>) -> HostTensor {
        assert!(range.end <= file.len());
        assert_eq!(range.len(), shape.iter().product::<usize>() * dtype.bytes());
        HostTensor { dtype, shape, bytes: Bytes::Mapped { file, range } }
    }

    /// A tensor in memory.
    ///
    /// # Panics
    ///
    /// If the number of bytes does not fit the shape.
    pub fn owned(bytes: Arc<[u8]>, dtype: DType, shape: Vec<usize>) -> HostTensor {
        assert_eq!(bytes.len(), shape.iter().product::<usize>() * dtype.bytes());
        HostTensor { dtype, shape, bytes: Bytes::Owned(bytes) }
    }

    /// Number type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Length of each axis.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The numbers as they lie in the file.
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped { file, range } => &file[range.clone()],
            Bytes::Owned(bytes) => bytes,
        }
    }

    /// The numbers converted to f32.
    pub fn to_f32(&self) -> impl Iterator<Item = f32> + '_ {
        let dtype = self.dtype;
        self.bytes().chunks_exact(dtype.bytes()).map(move |b| match dtype {
            DType::F32 => f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
            DType::F16 => half::f16::from_le_bytes([b[0], b[1]]).to_f32(),
            DType::Bf16 => half::bf16::from_le_bytes([b[0], b[1]]).to_f32(),
        })
    }
}

//! Memory of an activation tensor.

use super::driver::{Address, Context, Memory, Pinned};
use crate::backend::DType;
use crate::error::Result;
use half::{bf16, f16};
use std::ops::Range;
use std::sync::Arc;

/// Activations on the device.
pub type Tensor = crate::backend::Tensor<Storage>;

/// Rows of numbers in the model's type. Each row begins at a multiple of 16 bytes, whatever its length.
pub struct Storage {
    memory: Memory,
    stride: usize,
}

impl Storage {
    /// Room for `capacity` rows of `cols` numbers, all zero: rows that only pad a batch are read where attention wrote nothing.
    pub fn new(context: &Arc<Context>, capacity: usize, cols: usize, dtype: DType) -> Result<Storage> {
        let stride = cols.next_multiple_of(8);
        let knob = "max_batched_tokens";
        let memory = Memory::zeroed(context, capacity * stride * dtype.bytes(), "activations on the device", knob)?;
        Ok(Storage { memory, stride })
    }

    pub(super) fn address(&self) -> Address {
        self.memory.address()
    }

    /// Numbers from row to row.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// Begins a copy of rows to the beginning of pinned memory. Each takes [`stride`](Self::stride) numbers there, too.
    pub(super) fn download(&self, rows: Range<usize>, dtype: DType, to: &mut Pinned) -> Result<()> {
        let row_bytes = self.stride * dtype.bytes();
        to.download(&self.memory, rows.start * row_bytes, rows.len() * row_bytes)
    }

    pub(super) fn read(&self, rows: usize, cols: usize, dtype: DType) -> Result<Vec<f32>> {
        let mut bytes = vec![0; rows * self.stride * 2];
        self.memory.read(0, &mut bytes)?;
        let mut values = Vec::with_capacity(rows * cols);
        widen(&bytes, self.stride, cols, dtype, &mut values);
        Ok(values)
    }

    pub(super) fn write(&self, cols: usize, dtype: DType, values: &[f32]) -> Result<()> {
        let number = |&v: &f32| match dtype {
            DType::Bf16 => bf16::from_f32(v).to_le_bytes(),
            DType::F16 | DType::F32 => f16::from_f32(v).to_le_bytes(),
        };
        let mut bytes = vec![0; values.len() / cols.max(1) * self.stride * 2];
        for (to, row) in bytes.chunks_exact_mut(self.stride * 2).zip(values.chunks_exact(cols)) {
            to[..cols * 2].copy_from_slice(&row.iter().flat_map(number).collect::<Vec<u8>>());
        }
        self.memory.write(0, &bytes)
    }
}

/// Appends rows of `cols` numbers of two bytes, which begin every `stride` numbers, as f32.
pub(super) fn widen(rows: &[u8], stride: usize, cols: usize, dtype: DType, to: &mut Vec<f32>) {
    let number = |b: &[u8]| match dtype {
        DType::Bf16 => bf16::from_le_bytes([b[0], b[1]]).to_f32(),
        DType::F16 | DType::F32 => f16::from_le_bytes([b[0], b[1]]).to_f32(),
    };
    to.extend(rows.chunks_exact(stride * 2).flat_map(|row| row[..cols * 2].chunks_exact(2).map(number)));
}

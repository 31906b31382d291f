//! Memory of an activation tensor.

use super::driver::{Address, Context, Memory, Pinned};
use base::error::Result;
use formats::DType;
use half::{bf16, f16};
use std::ops::Range;
use std::sync::Arc;

/// Activations on the device.
pub type Tensor = crate::Tensor<Storage>;

/// Rows of numbers in the model's type. Each row begins at a multiple of 16 bytes, whatever its length.
pub struct Storage {
    memory: Memory,
    stride: usize,
    factors: Option<RowFactors>,
}

/// What the rows of a tensor are still to be multiplied by, each with a factor of its own: `1 / sqrt(sum / cols + eps)` of the sum of its parts.
#[derive(Clone, Copy, Debug)]
pub struct RowFactors {
    /// Sums of squares, in f32. `[rows, parts rounded up to 4]`
    pub squares: Address,
    /// Parts of a row's sum.
    pub parts: usize,
    /// Added to the mean.
    pub eps: f32,
}

impl Storage {
    /// Room for `capacity` rows of `cols` numbers, all zero: rows that only pad a batch are read where attention wrote nothing.
    pub fn new(context: &Arc<Context>, capacity: usize, cols: usize, dtype: DType) -> Result<Storage> {
        let stride = cols.next_multiple_of(8);
        let knob = "max_batched_tokens";
        let memory = Memory::zeroed(context, capacity * stride * dtype.bytes(), "activations on the device", knob)?;
        Ok(Storage { memory, stride, factors: None })
    }

    /// Where its rows begin.
    ///
    /// # Panics
    ///
    /// If they are still to be multiplied by factors: an op read rows that were left to another one.
    pub(super) fn address(&self) -> Address {
        assert!(self.factors.is_none(), "rows that are not divided yet");
        self.memory.address()
    }

    /// Where its rows begin, and what they are still to be multiplied by.
    pub(super) fn undivided(&self) -> (Address, Option<RowFactors>) {
        (self.memory.address(), self.factors)
    }

    /// Where an op stores rows, which are to be multiplied by `factors`.
    pub(super) fn overwritten(&mut self, factors: Option<RowFactors>) -> Address {
        self.factors = factors;
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

    /// The same for a host function that is launched behind it.
    pub(super) fn download_for_host(&self, rows: usize, dtype: DType, to: &Pinned) -> Result<()> {
        assert!(self.factors.is_none(), "rows that are not divided yet");
        to.download_for_host(0, &self.memory, 0, rows * self.stride * dtype.bytes())
    }

    /// Takes rows of `from` numbers as rows of `to` numbers.
    pub(super) fn reshape(&mut self, from: usize, to: usize) {
        assert!(self.factors.is_none() && self.stride == from && to.is_multiple_of(8), "rows are padded");
        self.stride = to;
    }

    pub(super) fn read(&self, rows: usize, cols: usize, dtype: DType) -> Result<Vec<f32>> {
        assert!(self.factors.is_none(), "rows that are not divided yet");
        let mut bytes = vec![0; rows * self.stride * 2];
        self.memory.read(0, &mut bytes)?;
        let mut values = Vec::with_capacity(rows * cols);
        widen(&bytes, self.stride, cols, dtype, &mut values);
        Ok(values)
    }

    pub(super) fn write(&mut self, cols: usize, dtype: DType, values: &[f32]) -> Result<()> {
        self.factors = None;
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

//! Weights on the device, and the way they get there.

use super::driver::{Context, Event, EventKind, Memory, Pinned};
use crate::backend::{Coding, DType, HostMatrix, HostVector};
use crate::error::{Error, Result};
use half::{bf16, f16};
use std::sync::Arc;

/// What to do where the device has no room for weights.
const KNOB: &str = "the memory that other programs hold, or take a smaller model";

/// Weights of a linear layer, or an embedding table. `[rows, cols]`
pub struct Matrix {
    pub(super) memory: Memory,
    rows: usize,
    cols: usize,
}

impl Matrix {
    /// Stacks `parts` on the device, converted to `dtype` where they have another.
    ///
    /// # Panics
    ///
    /// If their numbers of columns differ: the loader checks shapes against config.json.
    pub fn new(context: &Arc<Context>, staging: &mut Staging, parts: &[HostMatrix], dtype: DType) -> Result<Matrix> {
        let (_, cols) = parts[0].shape();
        assert!(parts.iter().all(|part| part.shape().1 == cols));
        if !cols.is_multiple_of(8) {
            return Err(Error::UnsupportedModel {
                setting: "the width of a weight matrix",
                value: cols.to_string(),
                supported: "a multiple of 8 on CUDA",
            });
        }
        let rows = parts.iter().map(|part| part.shape().0).sum();
        let memory = Memory::new(context, rows * cols * dtype.bytes(), "weights on the device", KNOB)?;
        let mut offset = 0;
        for part in parts {
            offset += staging.upload(&memory, offset, part, dtype)?;
        }
        Ok(Matrix { memory, rows, cols })
    }

    /// Outputs of the layer.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs of the layer.
    pub fn cols(&self) -> usize {
        self.cols
    }
}

/// Norm weights, a bias or a table. `[len]`
pub struct Vector {
    /// In f32.
    pub(super) wide: Memory,
    /// In the model's number type, for cuBLASLt, which adds a bias in no other. Missing for tables.
    pub(super) narrow: Option<Memory>,
    len: usize,
}

impl Vector {
    /// Small weights stacked end to end.
    pub fn new(context: &Arc<Context>, parts: &[HostVector], dtype: DType) -> Result<Vector> {
        let values: Vec<f32> = parts.iter().flat_map(HostVector::to_f32).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|&v| narrow(v, dtype)).collect();
        let low = Memory::new(context, bytes.len(), "weights on the device", KNOB)?;
        low.write(0, &bytes)?;
        Ok(Vector { narrow: Some(low), ..Vector::table(context, &values)? })
    }

    /// A table computed on the host.
    pub fn table(context: &Arc<Context>, values: &[f32]) -> Result<Vector> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let wide = Memory::new(context, bytes.len(), "a table on the device", KNOB)?;
        wide.write(0, &bytes)?;
        Ok(Vector { wide, narrow: None, len: values.len() })
    }

    /// Numbers in it.
    pub fn numbers(&self) -> usize {
        self.len
    }
}

fn narrow(value: f32, dtype: DType) -> [u8; 2] {
    match dtype {
        DType::Bf16 => bf16::from_f32(value).to_le_bytes(),
        DType::F16 | DType::F32 => f16::from_f32(value).to_le_bytes(),
    }
}

/// Two pinned buffers: while the device copies one, the host fills the other from the mapped file.
pub struct Staging {
    buffers: [(Pinned, Event); 2],
    next: usize,
}

impl Staging {
    const BYTES: usize = 8 << 20;

    /// Takes the pinned memory.
    pub fn new(context: &Arc<Context>) -> Result<Staging> {
        let buffer = || {
            let pinned = Pinned::zeroed(context, Staging::BYTES, "pinned memory for loading", "locked memory limits")?;
            Ok((pinned, Event::new(context, EventKind::Order)?))
        };
        Ok(Staging { buffers: [buffer()?, buffer()?], next: 0 })
    }

    /// Brings a matrix to `offset` of `to`, its rows behind each other, and returns its bytes there. Rows that lie apart on the host are
    /// packed in the pinned buffers. The last copies may still be under way.
    fn upload(&mut self, to: &Memory, offset: usize, matrix: &HostMatrix, dtype: DType) -> Result<usize> {
        if !matrix.coding().is_plain() {
            return self.upload(to, offset, &matrix.converted(Coding::from(dtype))?, dtype);
        }
        let coding = matrix.coding();
        let (mut done, mut filled) = (0, 0);
        for piece in matrix.pieces() {
            for chunk in piece.chunks(coding.row_bytes(Staging::BYTES / 4)) {
                if filled + chunk.len() / coding.row_bytes(1) * dtype.bytes() > Staging::BYTES {
                    self.send(filled, to, offset + done)?;
                    (done, filled) = (done + filled, 0);
                }
                let (pinned, event) = &mut self.buffers[self.next];
                if filled == 0 {
                    event.wait()?;
                }
                filled += convert(&mut pinned.bytes_mut()[filled..], chunk, coding, dtype);
            }
        }
        self.send(filled, to, offset + done)?;
        Ok(done + filled)
    }

    /// Begins the copy of the first `bytes` of the buffer that was filled, and turns to the other one.
    fn send(&mut self, bytes: usize, to: &Memory, offset: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let (pinned, event) = &self.buffers[self.next];
        self.next ^= 1;
        pinned.upload(0..bytes, to, offset)?;
        event.record()
    }
}

/// Writes numbers coded as `from` as numbers of type `to` and returns the bytes written.
fn convert(out: &mut [u8], chunk: &[u8], from: Coding, to: DType) -> usize {
    if from == Coding::from(to) {
        out[..chunk.len()].copy_from_slice(chunk);
        return chunk.len();
    }
    let pairs = out.chunks_exact_mut(2).zip(chunk.chunks_exact(from.row_bytes(1)));
    match from {
        Coding::F32 => {
            pairs.for_each(|(o, b)| o.copy_from_slice(&narrow(f32::from_le_bytes([b[0], b[1], b[2], b[3]]), to)))
        }
        Coding::F16 => {
            pairs.for_each(|(o, b)| o.copy_from_slice(&narrow(f16::from_le_bytes([b[0], b[1]]).to_f32(), to)))
        }
        Coding::Bf16 => {
            pairs.for_each(|(o, b)| o.copy_from_slice(&narrow(bf16::from_le_bytes([b[0], b[1]]).to_f32(), to)))
        }
        Coding::Block(_) | Coding::Scaled(_) => unreachable!("converted before"),
    }
    chunk.len() / from.row_bytes(1) * 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_another_type_are_converted_on_the_way() {
        let values = [0.0f32, 1.0, -2.5, 1024.0];
        let wide: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let half: Vec<u8> = values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect();
        let brain: Vec<u8> = values.iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect();
        let cases = [
            ("f32 to bf16", &wide, Coding::F32, DType::Bf16, &brain),
            ("f32 to f16", &wide, Coding::F32, DType::F16, &half),
            ("f16 to bf16", &half, Coding::F16, DType::Bf16, &brain),
            ("bf16 to f16", &brain, Coding::Bf16, DType::F16, &half),
            ("bf16 as it is", &brain, Coding::Bf16, DType::Bf16, &brain),
        ];
        for (name, input, from, to, expected) in cases {
            let mut out = [0xff; 32];
            let bytes = convert(&mut out, input, from, to);
            assert_eq!(&out[..bytes], &expected[..], "{name}");
        }
    }
}

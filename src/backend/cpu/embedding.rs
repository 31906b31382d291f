//! See `ops/embedding.rs` for the contract.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::{Cpu, Matrix, Number, Step, Tensor};
use crate::backend::DType;
use crate::batch::TokenId;
use half::{bf16, f16};

/// The specification.
pub fn reference(out: &mut [f32], table: &Matrix, token_ids: &[TokenId]) {
    let values: Vec<f32> = table.parts().iter().flat_map(|part| part.to_f32()).collect();
    for (out, &token) in out.chunks_exact_mut(table.cols()).zip(token_ids) {
        out.copy_from_slice(&values[token as usize * table.cols()..][..table.cols()]);
    }
}

pub fn run(cpu: &Cpu, out: &mut Tensor, table: &Matrix, step: &Step) {
    let hidden = table.cols();
    let tokens = &step.batch.token_ids;
    let out = Disjoint::new(out.values_mut());
    cpu.for_rows(tokens.len(), hidden, &|rows| {
        for (row, &token) in rows.clone().zip(&tokens[rows]) {
            // SAFETY: the ranges of `for_rows` do not overlap, so neither do rows.
            let out = unsafe { out.part(row * hidden..(row + 1) * hidden) };
            let bytes = row_bytes(table, token as usize);
            match table.dtype() {
                DType::F32 => convert(out, bytes, f32::from_le_bytes),
                DType::F16 => convert(out, bytes, |b| f16::from_le_bytes(b).to_f32()),
                DType::Bf16 => convert(out, bytes, |b| Number::to_f32(bf16::from_le_bytes(b))),
            }
        }
    });
}

/// A row of the table as it lies in the file.
fn row_bytes(table: &Matrix, row: usize) -> &[u8] {
    let mut row = row;
    for part in table.parts() {
        let rows = part.shape()[0];
        if row < rows {
            let len = table.cols() * table.dtype().bytes();
            return &part.bytes()[row * len..(row + 1) * len];
        }
        row -= rows;
    }
    panic!("a token beyond the vocabulary: the engine refuses those");
}

fn convert<const BYTES: usize>(out: &mut [f32], bytes: &[u8], number: impl Fn([u8; BYTES]) -> f32) {
    for (out, &bytes) in out.iter_mut().zip(bytes.as_chunks::<BYTES>().0) {
        *out = number(bytes);
    }
}

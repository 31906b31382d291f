//! See `ops/embedding.rs` for the contract.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::{Cpu, DeviceBatch, Matrix, Tensor};
use base::TokenId;

/// The specification.
pub fn reference(out: &mut [f32], table: &Matrix, scale: f32, token_ids: &[TokenId]) {
    let values: Vec<f32> = table.parts().iter().flat_map(|part| part.to_f32()).collect();
    for (out, &token) in out.chunks_exact_mut(table.cols()).zip(token_ids) {
        let row = &values[token as usize * table.cols()..][..table.cols()];
        out.iter_mut().zip(row).for_each(|(out, v)| *out = v * scale);
    }
}

pub fn run(cpu: &Cpu, out: &mut Tensor, table: &Matrix, scale: f32, device_batch: &DeviceBatch) {
    let hidden = table.cols();
    let tokens = &device_batch.batch.token_ids;
    let out = Disjoint::new(out.values_mut());
    cpu.for_rows(tokens.len(), hidden, &|rows| {
        for (row, &token) in rows.clone().zip(&tokens[rows]) {
            // SAFETY: the ranges of `for_rows` do not overlap, so neither do rows.
            let out = unsafe { out.part(row * hidden..(row + 1) * hidden) };
            dequantize_row(table, token as usize, out);
            if scale != 1.0 {
                out.iter_mut().for_each(|v| *v *= scale);
            }
        }
    });
}

/// Writes a row of the table.
fn dequantize_row(table: &Matrix, row: usize, out: &mut [f32]) {
    let (coding, _) = table.runs(row..row + 1).next().expect("the engine refuses a token beyond the vocabulary");
    let segment = table.segments(row..row + 1).next().expect("it is in a run");
    coding.dequantize_row(segment.row(0), out);
}

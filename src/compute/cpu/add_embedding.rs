//! See `ops/add_embedding.rs` for the contract.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::{Cpu, DeviceBatch, Matrix, Tensor};
use crate::TableRows;
use crate::batch::Batch;

/// The specification.
pub fn reference(out: &mut [f32], table: &Matrix, rows: TableRows, batch: &Batch) {
    let values: Vec<f32> = table.parts().iter().flat_map(|part| part.to_f32()).collect();
    for (token, out) in out.chunks_exact_mut(table.cols()).enumerate() {
        let row = &values[rows.of(batch, token) * table.cols()..][..table.cols()];
        out.iter_mut().zip(row).for_each(|(out, v)| *out += v);
    }
}

pub fn run(cpu: &Cpu, out: &mut Tensor, table: &Matrix, table_rows: TableRows, device_batch: &DeviceBatch) {
    let (tokens, hidden) = (out.rows(), table.cols());
    let out = Disjoint::new(out.values_mut());
    cpu.for_rows(tokens, hidden, &|rows| {
        let mut added = [0.0; ADDED];
        for token in rows {
            let row = table_rows.of(&device_batch.batch, token);
            let (coding, _) = table.runs(row..row + 1).next().expect("the op refuses a row that is not there");
            let segment = table.segments(row..row + 1).next().expect("it is in a run");
            // SAFETY: the ranges of `for_rows` do not overlap, so neither do rows.
            let out = unsafe { out.part(token * hidden..(token + 1) * hidden) };
            for (index, out) in out.chunks_mut(ADDED).enumerate() {
                let bytes = |numbers: usize| coding.row_bytes(numbers);
                let part = &segment.row(0).codes[bytes(index * ADDED)..bytes(index * ADDED + out.len())];
                coding.decode(part, &mut added[..out.len()]);
                out.iter_mut().zip(&added).for_each(|(out, v)| *out += v);
            }
        }
    });
}

/// Numbers of a table that stand decoded at a time.
const ADDED: usize = 1024;

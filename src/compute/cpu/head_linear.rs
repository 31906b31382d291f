//! See `ops/head_linear.rs` for the contract.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::experts::{ROWS_AT_ONCE, Worker, columns_of_piece};
use super::linear::{self, Rows};
use super::{Cpu, Experts, Matrix, Tensor};
use crate::{ExpertsShape, HeadColumns, HostMatrix};

/// The specification: `out` is `[tokens, out_cols]`, `x` `[tokens, cols]`, each with the columns of its heads. Sums are in f64.
pub fn reference(
    (out, out_cols, to): (&mut [f32], usize, HeadColumns),
    (x, cols, from): (&[f32], usize, HeadColumns),
    heads: &[HostMatrix],
) {
    for (head, weight) in heads.iter().enumerate() {
        let matrix = Matrix::new(std::slice::from_ref(weight)).expect("memory for a specification");
        let (outputs, inputs) = (matrix.rows(), matrix.cols());
        for (out, x) in out.chunks_exact_mut(out_cols).zip(x.chunks_exact(cols)) {
            let (out, x) = (&mut out[to.of(head)..][..outputs], &x[from.of(head)..][..inputs]);
            linear::reference(out, x, &matrix, None, 0..outputs);
        }
    }
}

/// A piece is some columns of one head, for all tokens, as in `experts.rs`.
pub fn run(cpu: &mut Cpu, (out, to): (&mut Tensor, HeadColumns), (x, from): (&Tensor, HeadColumns), weight: &Experts) {
    let arithmetic = cpu.arithmetic();
    let Cpu { pool, workers, .. } = cpu;
    let workers = Disjoint::new(workers.get_mut());
    let ExpertsShape { experts: heads, outputs, inputs, .. } = weight.shape();
    let (tokens, out_cols, cols) = (x.rows(), out.cols(), x.cols());
    let (out, x) = (Disjoint::new(out.values_mut()), x.values());
    let columns = columns_of_piece(pool, heads, outputs);
    let pieces = outputs.div_ceil(columns);
    pool.for_each(heads * pieces, 1, &|thread, range| {
        // SAFETY: no two calls with the same thread overlap.
        let Worker { pool, scratch, x: room, out: sums } = &mut unsafe { workers.part(thread..thread + 1) }[0];
        for piece in range {
            let (head, first) = (piece / pieces, piece % pieces * columns);
            let columns = first..outputs.min(first + columns);
            let matrix = weight.matrix(head);
            for first in (0..tokens).step_by(ROWS_AT_ONCE) {
                let rows = first..tokens.min(first + ROWS_AT_ONCE);
                let len = rows.len();
                for (to, row) in room.chunks_exact_mut(inputs).zip(rows.clone()) {
                    to.copy_from_slice(&x[row * cols + from.of(head)..][..inputs]);
                }
                let product =
                    Rows { out: Disjoint::new(&mut sums[..len * outputs]), x: &room[..len * inputs], tokens: len };
                linear::product(pool, arithmetic, scratch, product, matrix, None, columns.clone());
                for (sums, row) in sums.chunks_exact(outputs).zip(rows) {
                    let at = row * out_cols + to.of(head);
                    // SAFETY: heads of `out` do not overlap, and the columns of a head belong to one piece.
                    let out = unsafe { out.part(at + columns.start..at + columns.end) };
                    out.copy_from_slice(&sums[columns.clone()]);
                }
            }
        }
    });
}

//! See `ops/place_heads.rs` for the contract.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::{Cpu, Tensor};
use crate::{HeadColumns, HeadPart};

/// The specification: one part of the heads. `out` is `[tokens, out_cols]`, `x` with its columns `[tokens, cols]`
pub fn reference(
    (out, out_cols): (&mut [f32], usize),
    from: Option<(&[f32], usize, HeadColumns)>,
    to: HeadColumns,
    [heads, width]: [usize; 2],
) {
    for (token, out) in out.chunks_exact_mut(out_cols).enumerate() {
        for (head, i) in (0..heads).flat_map(|head| (0..width).map(move |i| (head, i))) {
            out[to.of(head) + i] = from.map_or(0.0, |(x, cols, from)| x[token * cols + from.of(head) + i]);
        }
    }
}

pub fn run(cpu: &Cpu, out: &mut Tensor, heads: usize, parts: &[HeadPart<Tensor>]) {
    let (rows, cols) = (out.rows(), out.cols());
    let numbers = parts.iter().map(|part| heads * part.width).sum();
    let out = Disjoint::new(out.values_mut());
    cpu.for_rows(rows, numbers, &|rows| {
        for row in rows {
            // SAFETY: the ranges of `for_rows` do not overlap.
            let out = unsafe { out.part(row * cols..(row + 1) * cols) };
            for &HeadPart { ref from, to, width } in parts {
                for head in 0..heads {
                    let out = &mut out[to.of(head)..][..width];
                    match from {
                        None => out.fill(0.0),
                        Some((x, from)) => out.copy_from_slice(&x.values()[row * x.cols() + from.of(head)..][..width]),
                    }
                }
            }
        }
    });
}

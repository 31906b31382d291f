//! See `ops/join_slots.rs` for the contract.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::experts::Routes;
use super::team::{Extent, Rows};
use super::{Cpu, Tensor};
use std::ops::Range;

/// The specification: what a rank that gets `columns` has afterwards, where `x[r]` is what rank `r` computed, `experts[r]` are its experts, and `choices`
/// the expert of each row. `[slots, columns]`
pub fn reference(
    x: &[Vec<f32>],
    cols: usize,
    columns: &Range<usize>,
    experts: &[Range<usize>],
    choices: &[u32],
) -> Vec<f32> {
    let row = |(slot, &expert): (usize, &u32)| {
        let owner = experts.iter().position(|own| own.contains(&(expert as usize))).expect("each expert has a rank");
        x[owner][slot * cols..][columns.clone()].to_vec()
    };
    choices.iter().enumerate().flat_map(row).collect()
}

pub fn run(
    cpu: &Cpu,
    out: &mut Tensor,
    x: &Tensor,
    columns: &[Range<usize>],
    experts: &[Range<usize>],
    routes: &Routes,
) {
    let member = cpu.member();
    let (slots, cols, width) = (out.rows(), x.cols(), out.cols());
    let own = &columns[member.rank()];
    assert_eq!((columns.len(), experts.len(), own.len()), (member.ranks(), member.ranks(), width));
    let out = Disjoint::new(out.values_mut());
    // What ranks of other processes show is copied whole: as many numbers at a time as there is room for.
    let at_once = if member.spans_processes() { slots / member.ranks() } else { slots };
    for start in (0..slots).step_by(at_once.max(1)) {
        let shown = start..slots.min(start + at_once.max(1));
        let copy = |rows_of: &dyn Fn(usize) -> Rows| {
            for (other, experts) in experts.iter().enumerate() {
                let rows = routes.rows_of(experts);
                let rows = rows.start.max(shown.start)..rows.end.min(shown.end);
                let from = rows_of(other);
                cpu.for_rows(rows.len(), width, &|range| {
                    for row in range.map(|row| rows.start + row) {
                        // SAFETY: `for_rows` gives each row to one call, and a row has an expert of one rank.
                        let to = unsafe { out.part(row * width..(row + 1) * width) };
                        // SAFETY: that rank shows the rows of `shown` with all columns, and has computed this one.
                        to.copy_from_slice(&unsafe { from.part(row - shown.start, cols) }[own.clone()]);
                    }
                });
            }
        };
        let first = x.values()[start * cols..].as_ptr();
        // SAFETY: the rows are borrowed for the call, and are not written before it returns.
        let passed =
            unsafe { member.exchange(Rows::new(first, cols), Extent { rows: shown.len(), width: &|_| cols }, copy) };
        cpu.note_exchange(passed);
    }
}

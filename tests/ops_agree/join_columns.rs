//! `join_columns`.

use crate::column::Column;
use crate::ranks::in_every_way;
use crate::scene::Random;
use compute::Part;
use compute::cpu::reference;
use compute::ops;
use std::ops::Range;

struct Case {
    rows: usize,
    cols: usize,
    shares: &'static [Range<usize>],
    /// Columns of each rank's tensor before its share. `None`: the share lies in its place in the joined tensor.
    first: Option<usize>,
}

const CASES: &[(&str, Case)] = &[
    ("one rank, in place", Case { rows: 3, cols: 8, shares: std::slice::from_ref(&(0..8)), first: None }),
    ("one rank", Case { rows: 3, cols: 8, shares: std::slice::from_ref(&(0..8)), first: Some(0) }),
    ("two ranks, in place", Case { rows: 5, cols: 64, shares: &[0..32, 32..64], first: None }),
    ("two ranks", Case { rows: 5, cols: 64, shares: &[0..32, 32..64], first: Some(0) }),
    ("shares that begin within their tensor", Case { rows: 5, cols: 64, shares: &[0..32, 32..64], first: Some(7) }),
    ("a share of one column", Case { rows: 4, cols: 3, shares: &[0..1, 1..3], first: None }),
    ("three ranks, uneven", Case { rows: 7, cols: 83, shares: &[0..30, 30..58, 58..83], first: None }),
    ("three ranks, uneven, of parts", Case { rows: 7, cols: 83, shares: &[0..30, 30..58, 58..83], first: Some(1) }),
    (
        "four ranks, two of which have the same",
        Case { rows: 2, cols: 48, shares: &[0..24, 0..24, 24..48, 24..48], first: Some(0) },
    ),
    (
        "four ranks, two of which have the same, in place",
        Case { rows: 2, cols: 48, shares: &[0..24, 0..24, 24..48, 24..48], first: None },
    ),
    ("shares that overlap in part", Case { rows: 3, cols: 20, shares: &[0..12, 8..20], first: Some(0) }),
    ("columns that nobody has", Case { rows: 3, cols: 20, shares: &[2..9, 11..20], first: Some(0) }),
    (
        "more rows than one thread takes",
        Case { rows: 301, cols: 40, shares: &[0..10, 10..20, 20..30, 30..40], first: None },
    ),
];

impl Case {
    /// What all ranks together compute, and what lies in the joined tensor before. `[rows, cols]`
    fn whole(&self) -> (Vec<f32>, Vec<f32>) {
        let mut random = Random(3);
        let mut numbers = || random.numbers(self.rows * self.cols, 1.0);
        (numbers(), numbers())
    }

    /// The columns of `rank`. `[rows, columns]`
    fn part(&self, whole: &[f32], rank: usize) -> Vec<f32> {
        whole.chunks_exact(self.cols).flat_map(|row| row[self.shares[rank].clone()].to_vec()).collect()
    }
}

#[test]
fn every_rank_gets_the_columns_of_all() {
    for (name, case) in CASES {
        let (whole, mut expected) = case.whole();
        let parts: Vec<Vec<f32>> = (0..case.shares.len()).map(|rank| case.part(&whole, rank)).collect();
        reference::join_columns(&mut expected, case.cols, &parts, case.shares);
        let joined = |cpu: &mut _, rank: usize| join(cpu, case, rank);
        in_every_way(case.shares.len(), joined, |ranks, way| {
            for (rank, joined) in ranks.iter().enumerate() {
                assert_eq!(joined, &expected, "{name}, {way}, rank {rank}");
            }
        });
    }
}

/// What rank `rank` has in the joined tensor afterwards.
fn join<B: Column>(backend: &mut B, case: &Case, rank: usize) -> Vec<f32> {
    let (whole, mut before) = case.whole();
    let (own, part) = (&case.shares[rank], case.part(&whole, rank));
    let Some(first) = case.first else {
        for (row, part) in before.chunks_exact_mut(case.cols).zip(part.chunks_exact(own.len())) {
            row[own.clone()].copy_from_slice(part);
        }
        let mut out = backend.filled(&before, case.cols);
        ops::join_columns(backend, &mut out, None, case.shares);
        return backend.read(&out);
    };
    // Columns on both sides of the share, which are nobody's.
    let cols = first + own.len() + 2;
    let mut x = vec![f32::NAN; case.rows * cols];
    for (row, part) in x.chunks_exact_mut(cols).zip(part.chunks_exact(own.len())) {
        row[first..first + own.len()].copy_from_slice(part);
    }
    let (x, mut out) = (backend.filled(&x, cols), backend.filled(&before, case.cols));
    ops::join_columns(backend, &mut out, Some(Part { x: &x, first }), case.shares);
    backend.read(&out)
}

//! `embedding`, `add_embedding` and `gather`, which copy, multiply or add once: their bits must be equal.

use crate::column::{Column, Op, agrees};
use crate::scene::{Random, Row, Sequences, uploaded};
use compute::batch::{Batch, PoolKind, PooledRange};
use compute::cpu::{Matrix, reference};
use compute::ops;
use compute::{HostMatrix, TableRows};
use formats::WeightFormat;
use os::HostBytes;

struct Table {
    tokens: usize,
    hidden: usize,
    coding: WeightFormat,
    /// Rows of each stacked part.
    parts: &'static [usize],
    scale: f32,
}

struct Embedding;

impl Op for Embedding {
    type Case = Table;
    const CASES: &'static [(&'static str, Table)] = &[
        ("one token", Table { tokens: 1, hidden: 16, coding: WeightFormat::Bf16, parts: &[1], scale: 1.0 }),
        ("f32", Table { tokens: 9, hidden: 33, coding: WeightFormat::F32, parts: &[97], scale: 1.0 }),
        (
            "f16 in three parts",
            Table { tokens: 40, hidden: 24, coding: WeightFormat::F16, parts: &[5, 1, 30], scale: 1.0 },
        ),
        (
            "bf16, shared among threads",
            Table { tokens: 70, hidden: 1024, coding: WeightFormat::Bf16, parts: &[300], scale: 1.0 },
        ),
        ("scaled", Table { tokens: 9, hidden: 33, coding: WeightFormat::Bf16, parts: &[97], scale: 12.0 }),
    ];
    const BOUND: f64 = 0.0;

    fn expected(case: &Table) -> Vec<f32> {
        let (parts, batch) = table(case);
        let mut out = vec![f32::NAN; case.tokens * case.hidden];
        reference::embedding(&mut out, &Matrix::new(&parts).unwrap(), case.scale, &batch.token_ids);
        out
    }

    fn computed<B: Column>(backend: &mut B, case: &Table) -> Vec<f32> {
        let (parts, batch) = table(case);
        let table = backend.matrix(&parts).unwrap();
        let device_batch = uploaded(backend, &batch);
        let mut out = backend.poisoned(case.tokens, case.hidden);
        ops::embedding(backend, &mut out, &table, case.scale, &device_batch);
        backend.read(&out)
    }
}

fn table(case: &Table) -> (Vec<HostMatrix>, Batch) {
    let mut random = Random(3);
    let vocab: usize = case.parts.iter().sum();
    let token_ids = (0..case.tokens).map(|i| if i == 0 { vocab - 1 } else { random.below(vocab) } as u32).collect();
    let mut part = |rows: &usize| {
        let numbers = random.numbers(rows * case.hidden, 1.0);
        let mut bytes = vec![0; case.coding.row_bytes(numbers.len())];
        case.coding.encode(numbers, &mut bytes);
        HostMatrix::new(HostBytes::owned(bytes.into()), case.coding, *rows, case.hidden)
    };
    (case.parts.iter().map(&mut part).collect(), Batch { token_ids, ..Batch::default() })
}

struct AddEmbedding;

impl Op for AddEmbedding {
    type Case = (Table, TableRows);
    const CASES: &'static [(&'static str, (Table, TableRows))] = &[
        ("positions", (ADDED, TableRows::Positions { first: 0 })),
        ("positions behind the padding", (ADDED, TableRows::Positions { first: 2 })),
        ("types", (ADDED, TableRows::Types)),
        (
            "bf16, wider than is decoded at once",
            (Table { hidden: 2500, coding: WeightFormat::Bf16, ..ADDED }, TableRows::Types),
        ),
    ];
    const BOUND: f64 = 0.0;

    fn expected((case, rows): &(Table, TableRows)) -> Vec<f32> {
        let ((parts, _), (batch, mut out)) = (table(case), added(case));
        reference::add_embedding(&mut out, &Matrix::new(&parts).unwrap(), *rows, &batch);
        out
    }

    fn computed<B: Column>(backend: &mut B, (case, rows): &(Table, TableRows)) -> Vec<f32> {
        let ((parts, _), (batch, out)) = (table(case), added(case));
        let table = backend.matrix(&parts).unwrap();
        let device_batch = uploaded(backend, &batch);
        let mut out = backend.filled(&out, case.hidden);
        ops::add_embedding(backend, &mut out, &table, *rows, &device_batch);
        backend.read(&out)
    }
}

const ADDED: Table = Table { tokens: 70, hidden: 37, coding: WeightFormat::F32, parts: &[60], scale: 1.0 };

/// Two texts, and what is added to.
fn added(case: &Table) -> (Batch, Vec<f32>) {
    let positions = (0..20).chain(0..50).collect();
    let token_types = (0..70).map(|token| u32::from(token % 20 > 9)).collect();
    let batch = Batch { token_ids: vec![0; 70], positions, token_types, ..Batch::default() };
    (batch, Random(5).numbers(case.tokens * case.hidden, 1.0))
}

struct Picks {
    /// New tokens of each row.
    rows: &'static [usize],
    /// New tokens that are sampled.
    sampled: &'static [u32],
    /// New tokens whose hidden states are read.
    read: &'static [u32],
    hidden: usize,
}

struct Gather;

impl Op for Gather {
    type Case = Picks;
    const CASES: &'static [(&'static str, Picks)] = &[
        ("one token", Picks { rows: &[1], sampled: &[0], read: &[], hidden: 8 }),
        ("decode batch", Picks { rows: &[1, 1, 1, 1], sampled: &[0, 1, 2, 3], read: &[], hidden: 1024 }),
        ("unfinished prompts ask for nothing", Picks { rows: &[5, 1, 9, 3], sampled: &[5, 17], read: &[], hidden: 5 }),
        ("prompts that are embedded", Picks { rows: &[5, 3], sampled: &[], read: &[0, 1, 2, 3, 4, 7], hidden: 5 }),
        ("samples come before what is read", Picks { rows: &[2, 3, 1], sampled: &[5], read: &[1, 4], hidden: 8 }),
    ];
    const BOUND: f64 = 0.0;

    fn expected(case: &Picks) -> Vec<f32> {
        let (x, batch) = picks(case);
        let mut out = vec![f32::NAN; (case.sampled.len() + case.read.len()) * case.hidden];
        reference::gather(&mut out, &x, case.hidden, &batch);
        out
    }

    fn computed<B: Column>(backend: &mut B, case: &Picks) -> Vec<f32> {
        let (x, batch) = picks(case);
        let device_batch = uploaded(backend, &batch);
        let x = backend.filled(&x, case.hidden);
        let mut out = backend.poisoned(case.sampled.len() + case.read.len(), case.hidden);
        ops::gather(backend, &mut out, &x, &device_batch);
        backend.read(&out)
    }
}

fn picks(case: &Picks) -> (Vec<f32>, Batch) {
    let mut random = Random(4);
    let sequences = Sequences::new(&mut random, case.rows, 4);
    let rows: Vec<Row> =
        case.rows.iter().enumerate().map(|(sequence, &new)| Row { sequence, before: 0, new }).collect();
    let mut batch = sequences.batch(&rows);
    batch.sampled_tokens = case.sampled.to_vec();
    batch.sampling.truncate(case.sampled.len());
    batch.pooled_tokens = case.read.to_vec();
    (random.numbers(batch.tokens() * case.hidden, 1.0), batch)
}

#[test]
fn embedding_agrees_with_its_specification() {
    agrees::<Embedding>();
}

#[test]
fn add_embedding_agrees_with_its_specification() {
    agrees::<AddEmbedding>();
}

struct Pool;

impl Op for Pool {
    type Case = (&'static [[u32; 2]], usize);
    const CASES: &'static [(&'static str, Self::Case)] = &[
        ("one token", (&[[0, 1]], 8)),
        ("first, last and all", (&[[0, 1], [69, 70], [0, 70]], 37)),
        ("texts of several lengths", (&[[0, 3], [3, 60], [60, 70]], 1024)),
    ];
    const BOUND: f64 = 1e-7;

    fn expected((ranges, cols): &Self::Case) -> Vec<f32> {
        let mut out = vec![f32::NAN; PoolKind::ALL.len() * ranges.len() * cols];
        reference::pool_states(&mut out, &Random(6).numbers(70 * cols, 1.0), *cols, &pooled(ranges));
        out
    }

    fn computed<B: Column>(backend: &mut B, (ranges, cols): &Self::Case) -> Vec<f32> {
        let device_batch = uploaded(backend, &pooled(ranges));
        let x = backend.filled(&Random(6).numbers(70 * cols, 1.0), *cols);
        let mut out = backend.poisoned(PoolKind::ALL.len() * ranges.len(), *cols);
        ops::pool_states(backend, &mut out, &x, &device_batch);
        backend.read(&out)
    }
}

fn pooled(ranges: &[[u32; 2]]) -> Batch {
    let of = |kind| ranges.iter().map(move |&[first, end]| PooledRange { first, end, kind });
    Batch {
        token_ids: vec![0; 70],
        pooled_ranges: PoolKind::ALL.into_iter().flat_map(of).collect(),
        ..Batch::default()
    }
}

#[test]
fn pool_agrees_with_its_specification() {
    agrees::<Pool>();
}

#[test]
fn gather_agrees_with_its_specification() {
    agrees::<Gather>();
}

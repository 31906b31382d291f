//! `head_linear`.

use crate::coded::random_matrix;
use crate::column::{Column, Op, agrees};
use crate::linear::matrix;
use crate::scene::Random;
use compute::cpu::{Cpu, Isa, reference};
use compute::ops;
use compute::{Device, HeadColumns, HostMatrix, LayerInput};
use formats::{Block, WeightFormat};

struct Case {
    tokens: usize,
    heads: usize,
    /// Outputs and inputs of a head.
    shape: [usize; 2],
    /// Columns of `x` and of `out`.
    cols: [usize; 2],
    from: HeadColumns,
    to: HeadColumns,
    coding: WeightFormat,
}

const fn columns(first: usize, step: usize) -> HeadColumns {
    HeadColumns { first, step }
}

const SMALL: Case = Case {
    tokens: 3,
    heads: 2,
    shape: [16, 24],
    cols: [64, 56],
    from: columns(0, 32),
    to: columns(8, 24),
    coding: WeightFormat::F32,
};

struct HeadLinear;

impl Op for HeadLinear {
    type Case = Case;
    const CASES: &'static [(&'static str, Case)] = &[
        ("two heads, f32", SMALL),
        ("one token", Case { tokens: 1, ..SMALL }),
        ("more tokens than are taken at once", Case { tokens: 131, ..SMALL }),
        ("bf16", Case { coding: WeightFormat::Bf16, tokens: 20, ..SMALL }),
        (
            "keys of GLM-4.7-Flash",
            Case {
                tokens: 2,
                heads: 20,
                shape: [512, 192],
                cols: [20 * 256, 21 * 576],
                from: columns(0, 256),
                to: columns(64, 576),
                coding: WeightFormat::Bf16,
            },
        ),
        (
            "values of DeepSeek-V2-Lite, q8_0",
            Case {
                tokens: 9,
                heads: 16,
                shape: [128, 512],
                cols: [16 * 512, 16 * 128],
                from: columns(0, 512),
                to: columns(0, 128),
                coding: WeightFormat::Block(Block::Q8_0),
            },
        ),
    ];
    // Activations are rounded beside weights in bf16 and quantized ones.
    const BOUND: f64 = 1e-2;

    fn expected(case: &Case) -> Vec<f32> {
        let mut out = vec![UNTOUCHED; case.tokens * case.cols[1]];
        let [x_cols, out_cols] = case.cols;
        reference::head_linear((&mut out, out_cols, case.to), (&inputs(case), x_cols, case.from), &heads(case));
        out
    }

    fn computed<B: Column>(backend: &mut B, case: &Case) -> Vec<f32> {
        let x = backend.filled(&inputs(case), case.cols[0]);
        let mut out = backend.filled(&vec![UNTOUCHED; case.tokens * case.cols[1]], case.cols[1]);
        let weight = backend.heads(&heads(case)).unwrap();
        ops::head_linear(backend, (&mut out, case.to), (&x, case.from), &weight);
        backend.read(&out)
    }
}

/// What belongs to no head stays.
const UNTOUCHED: f32 = 7.0;

fn inputs(case: &Case) -> Vec<f32> {
    Random(3).numbers(case.tokens * case.cols[0], 4.0)
}

fn heads(case: &Case) -> Vec<HostMatrix> {
    let (mut random, [rows, cols]) = (Random(4), case.shape);
    let mut one = || match case.coding.is_plain() {
        true => matrix(&random.numbers(rows * cols, 1.0), case.coding, rows),
        false => random_matrix(&mut random, case.coding, rows, cols),
    };
    (0..case.heads).map(|_| one()).collect()
}

#[test]
fn head_linear_agrees_with_its_specification() {
    agrees::<HeadLinear>();
}

/// Whatever the threads, the pieces and the other tokens.
#[test]
fn a_row_of_a_head_has_the_bits_of_a_linear_layer() {
    for (isa, (name, case)) in
        Isa::available().iter().flat_map(|isa| HeadLinear::CASES.iter().map(move |case| (*isa, case)))
    {
        let all = HeadLinear::computed(&mut Cpu::new(2, isa), case);
        let (x, weights) = (inputs(case), heads(case));
        let [outputs, inputs] = case.shape;
        for (head, weight) in weights.iter().enumerate() {
            let cpu = &mut Cpu::new(1, isa);
            let rows: Vec<f32> =
                x.chunks(case.cols[0]).flat_map(|row| row[case.from.of(head)..][..inputs].to_vec()).collect();
            let (x, mut out) = (cpu.filled(&rows, inputs), cpu.poisoned(case.tokens, outputs));
            let matrix = cpu.matrix(std::slice::from_ref(weight)).unwrap();
            ops::linear(cpu, &mut out, LayerInput::new(&x, &matrix, None), 0..outputs);
            let found = all.chunks(case.cols[1]).flat_map(|row| row[case.to.of(head)..][..outputs].to_vec());
            let same = found.zip(cpu.read(&out)).all(|(found, wanted)| found.to_bits() == wanted.to_bits());
            assert!(same, "{name}, head {head}, {isa:?}");
        }
    }
}

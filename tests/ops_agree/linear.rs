//! `linear`, and the promise that a row's result depends on that row alone.

use crate::column::{Column, Op, agrees};
use crate::scene::Random;
use compute::cpu::{Cpu, Isa, Matrix, reference};
use compute::ops;
use compute::{HostMatrix, LayerInput};
use formats::WeightFormat;
use os::HostBytes;
use std::ops::Range;

const CODINGS: [WeightFormat; 3] = [WeightFormat::Bf16, WeightFormat::F16, WeightFormat::F32];

#[derive(Clone)]
struct Case {
    tokens: usize,
    inputs: usize,
    /// Outputs of each stacked part.
    parts: &'static [usize],
    bias: Bias,
    /// Which outputs are computed; `None` means all.
    columns: Option<Range<usize>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Bias {
    None,
    Some,
}

const SMALL: Case = Case { tokens: 1, inputs: 64, parts: &[48], bias: Bias::None, columns: None };

const CASES: &[(&str, Case)] = &[
    ("one of everything", Case { inputs: 1, parts: &[1], ..SMALL }),
    ("one token", SMALL),
    ("two tokens, bias", Case { tokens: 2, bias: Bias::Some, ..SMALL }),
    ("three tokens", Case { tokens: 3, ..SMALL }),
    ("decode batch of 4", Case { tokens: 4, ..SMALL }),
    ("decode batch of 17", Case { tokens: 17, ..SMALL }),
    ("decode batch of 33, odd outputs", Case { tokens: 33, parts: &[37], bias: Bias::Some, ..SMALL }),
    ("fewer inputs than lanes", Case { tokens: 5, inputs: 7, parts: &[9], ..SMALL }),
    ("31 inputs", Case { tokens: 6, inputs: 31, parts: &[25], ..SMALL }),
    ("33 inputs", Case { tokens: 7, inputs: 33, parts: &[26], ..SMALL }),
    ("a slice and a tail", Case { tokens: 5, inputs: 1025, parts: &[30], bias: Bias::Some, ..SMALL }),
    ("slices, steps and a tail", Case { tokens: 9, inputs: 2048 + 100, parts: &[31], ..SMALL }),
    ("stacked parts of odd lengths", Case { tokens: 6, parts: &[1, 50, 3, 29], bias: Bias::Some, ..SMALL }),
    ("some columns", Case { tokens: 5, parts: &[40, 40], bias: Bias::Some, columns: Some(13..71), ..SMALL }),
    ("one column", Case { tokens: 18, parts: &[40, 40], columns: Some(40..41), ..SMALL }),
    ("more tokens than are packed together", Case { tokens: 300, inputs: 96, parts: &[70], ..SMALL }),
    ("decode, a part of Qwen3-0.6B's down projection", Case { inputs: 3072, parts: &[200], ..SMALL }),
    ("decode, Qwen3-0.6B's queries, keys and values", Case { inputs: 1024, parts: &[256, 128, 128], ..SMALL }),
    ("decode batch of 16, Qwen3-0.6B", Case { tokens: 16, inputs: 2048, parts: &[128], ..SMALL }),
    ("prefill, Qwen3-0.6B", Case { tokens: 70, inputs: 1024, parts: &[96, 96], ..SMALL }),
];

/// A case in one number type of weights.
struct Inputs {
    x: Vec<f32>,
    parts: Vec<HostMatrix>,
    bias: Option<Vec<f32>>,
    columns: Range<usize>,
    outputs: usize,
}

fn inputs(case: &Case, coding: WeightFormat) -> Inputs {
    let mut random = Random(9);
    let outputs = case.parts.iter().sum();
    let parts = case.parts.iter().map(|&rows| {
        let numbers = random.numbers(rows * case.inputs, 1.0);
        matrix(&numbers, coding, rows)
    });
    Inputs {
        parts: parts.collect(),
        x: random.numbers(case.tokens * case.inputs, 1.0),
        bias: (case.bias == Bias::Some).then(|| random.numbers(outputs, 1.0)),
        columns: case.columns.clone().unwrap_or(0..outputs),
        outputs,
    }
}

/// A matrix of `rows` rows. Its bytes begin at an odd address, as they may in a file.
pub fn matrix(numbers: &[f32], coding: WeightFormat, rows: usize) -> HostMatrix {
    let len = coding.row_bytes(numbers.len());
    let mut map = memmap2::MmapMut::map_anon(len + 1).unwrap();
    coding.encode(numbers.iter().copied(), &mut map[1..]);
    let bytes = HostBytes::mapped(map.make_read_only().unwrap().into(), 1..len + 1);
    HostMatrix::new(bytes, coding, rows, numbers.len() / rows)
}

/// All results of a case, one number type after another; columns that are not computed must stay poisoned.
fn computed<B: Column>(backend: &mut B, case: &Case, change: fn(f32) -> f32) -> Vec<f32> {
    let mut all = Vec::new();
    for coding in CODINGS {
        let inputs = inputs(case, coding);
        let x: Vec<f32> = inputs.x.iter().map(|&v| change(v)).collect();
        let out = multiplied(backend, &x, case.inputs, &inputs);
        for row in out.chunks_exact(inputs.outputs) {
            let outside = (0..inputs.outputs).filter(|n| !inputs.columns.contains(n));
            assert!(outside.into_iter().all(|n| row[n].is_nan()), "a column that was not asked for was written");
            all.extend(&row[inputs.columns.clone()]);
        }
    }
    all
}

/// `[tokens, outputs]`
fn multiplied<B: Column>(backend: &mut B, x: &[f32], cols: usize, inputs: &Inputs) -> Vec<f32> {
    let weight = backend.matrix(&inputs.parts).unwrap();
    let bias = inputs.bias.as_ref().map(|bias| backend.table(bias).unwrap());
    let mut out = backend.poisoned(x.len() / cols, inputs.outputs);
    let x = backend.filled(x, cols);
    ops::linear(backend, &mut out, LayerInput::new(&x, &weight, bias.as_ref()), inputs.columns.clone());
    backend.read(&out)
}

fn expected(case: &Case, change: fn(f32) -> f32) -> Vec<f32> {
    let mut all = Vec::new();
    for coding in CODINGS {
        let inputs = inputs(case, coding);
        let x: Vec<f32> = inputs.x.iter().map(|&v| change(v)).collect();
        let mut out = vec![0.0; case.tokens * inputs.outputs];
        let weight = Matrix::new(&inputs.parts).unwrap();
        reference::linear(&mut out, &x, &weight, inputs.bias.as_deref(), inputs.columns.clone());
        all.extend(out.chunks_exact(inputs.outputs).flat_map(|row| row[inputs.columns.clone()].to_vec()));
    }
    all
}

/// Activations as they are: an instruction set that rounds them to bf16 may do so.
struct Linear;

impl Op for Linear {
    type Case = Case;
    const CASES: &'static [(&'static str, Case)] = CASES;
    const BOUND: f64 = 3e-3;

    fn expected(case: &Case) -> Vec<f32> {
        expected(case, |v| v)
    }

    fn computed<B: Column>(backend: &mut B, case: &Case) -> Vec<f32> {
        computed(backend, case, |v| v)
    }
}

/// Activations that are bf16 numbers already, so that only the order of the sum is left to differ.
struct Exact;

impl Op for Exact {
    type Case = Case;
    const CASES: &'static [(&'static str, Case)] = CASES;
    const BOUND: f64 = 1e-6;

    fn expected(case: &Case) -> Vec<f32> {
        expected(case, |v| half::bf16::from_f32(v).to_f32())
    }

    fn computed<B: Column>(backend: &mut B, case: &Case) -> Vec<f32> {
        computed(backend, case, |v| half::bf16::from_f32(v).to_f32())
    }
}

#[test]
fn linear_agrees_with_its_specification() {
    agrees::<Linear>();
}

#[test]
fn linear_on_bf16_activations_differs_only_by_the_order_of_the_sum() {
    agrees::<Exact>();
}

pub fn assert_same_bits(found: &[f32], wanted: &[f32], what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    let differs = found.iter().zip(wanted).position(|(a, b)| a.to_bits() != b.to_bits());
    assert_eq!(differs, None, "{what}: the first number with other bits");
}

#[test]
fn a_row_has_the_same_bits_whatever_rows_are_beside_it() {
    // Panels of many rows, and what is left of them.
    let case = Case { tokens: 290, inputs: 1100, parts: &[301, 138], bias: Bias::Some, columns: None };
    for isa in Isa::available() {
        for coding in CODINGS {
            let inputs = inputs(&case, coding);
            let whole = multiplied(&mut Cpu::new(2, *isa), &inputs.x, case.inputs, &inputs);
            let outputs = inputs.outputs;
            for (threads, rows) in [(1, 290), (3, 290), (1, 1), (2, 2), (1, 3), (3, 5), (2, 16), (1, 33), (2, 257)] {
                let cpu = &mut Cpu::new(threads, *isa);
                let mut first = 0;
                // One row at a time would take long and say no more than some of them.
                while first < case.tokens && (rows > 1 || first < 40) {
                    let last = case.tokens.min(first + rows);
                    let part =
                        multiplied(cpu, &inputs.x[first * case.inputs..last * case.inputs], case.inputs, &inputs);
                    let what = format!("{isa:?}, {coding:?}, {threads} threads, rows {first}..{last}");
                    assert_same_bits(&part, &whole[first * outputs..last * outputs], &what);
                    first = last;
                }
            }
        }
    }
}

#[test]
fn a_column_has_the_same_bits_whatever_columns_are_asked_for() {
    let case = Case { tokens: 6, inputs: 200, parts: &[61, 38], bias: Bias::Some, columns: None };
    for isa in Isa::available() {
        for coding in CODINGS {
            let mut inputs = inputs(&case, coding);
            let cpu = &mut Cpu::new(2, *isa);
            let whole = multiplied(cpu, &inputs.x, case.inputs, &inputs);
            for columns in [0..1, 5..30, 60..62, 17..99] {
                inputs.columns = columns.clone();
                let some = multiplied(cpu, &inputs.x, case.inputs, &inputs);
                for (some, whole) in some.chunks_exact(inputs.outputs).zip(whole.chunks_exact(inputs.outputs)) {
                    assert_same_bits(&some[columns.clone()], &whole[columns.clone()], &format!("{isa:?}, {columns:?}"));
                }
            }
        }
    }
}

#[test]
fn what_is_not_a_number_stays_in_its_row_and_its_column() {
    // Neither a multiple of a step nor of a vector: what lies behind a row's end is the next row.
    let case = Case { tokens: 6, inputs: 45, parts: &[30], bias: Bias::None, columns: None };
    let (bad_row, bad_column) = (2, 7);
    for isa in Isa::available() {
        for coding in CODINGS {
            let cpu = &mut Cpu::new(1, *isa);
            let mut inputs = inputs(&case, coding);
            inputs.x[bad_row * case.inputs] = f32::NAN;
            let mut numbers = inputs.parts[0].to_f32();
            numbers[bad_column * case.inputs..][..case.inputs].fill(f32::INFINITY);
            inputs.parts = vec![matrix(&numbers, coding, 30)];
            let out = multiplied(cpu, &inputs.x, case.inputs, &inputs);
            for (row, out) in out.as_chunks::<30>().0.iter().enumerate() {
                for (column, number) in out.iter().enumerate() {
                    let hit = row == bad_row || column == bad_column;
                    assert_eq!(!number.is_finite(), hit, "{isa:?}, {coding:?}, row {row}, column {column}: {number}");
                }
            }
        }
    }
}

#[test]
fn no_tokens_and_no_columns_are_no_work() {
    for isa in Isa::available() {
        let cpu = &mut Cpu::new(2, *isa);
        let mut inputs = inputs(&SMALL, WeightFormat::Bf16);
        assert!(multiplied(cpu, &[], 64, &inputs).is_empty());
        inputs.columns = 5..5;
        assert!(multiplied(cpu, &inputs.x, 64, &inputs).iter().all(|v| v.is_nan()));
    }
}

/// A stack whose parts are coded differently: the kernels are chosen for each part, and a part's columns have the bits that they have
/// where it is alone, whatever range of columns is asked for.
#[test]
fn a_stack_of_several_codings_has_the_bits_of_its_parts() {
    let codings = [WeightFormat::Bf16, WeightFormat::Bf16, WeightFormat::F32, WeightFormat::F16, WeightFormat::Bf16];
    let (rows, inputs) = (70, 96);
    let mut random = Random(11);
    let parts = codings.map(|coding| matrix(&random.numbers(rows * inputs, 1.0), coding, rows));
    let outputs = rows * codings.len();
    for isa in Isa::available() {
        let cpu = &mut Cpu::new(2, *isa);
        for tokens in [1, 5, 40] {
            let x = random.numbers(tokens * inputs, 1.0);
            let mut stacked = |parts: &[HostMatrix], outputs: usize, columns: Range<usize>| {
                multiplied(
                    cpu,
                    &x,
                    inputs,
                    &Inputs { x: Vec::new(), parts: parts.to_vec(), bias: None, columns, outputs },
                )
            };
            let alone: Vec<_> = parts.iter().map(|part| stacked(std::slice::from_ref(part), rows, 0..rows)).collect();
            for columns in [0..outputs, 33..outputs - 5, 140..210] {
                let together = stacked(&parts, outputs, columns.clone());
                for (token, out) in together.chunks_exact(outputs).enumerate() {
                    for column in columns.clone() {
                        let wanted = alone[column / rows][token * rows + column % rows];
                        assert_eq!(
                            out[column].to_bits(),
                            wanted.to_bits(),
                            "{isa:?}, {tokens} tokens, column {column}"
                        );
                    }
                }
            }
        }
    }
}

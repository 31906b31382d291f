//! `linear` with weights in codings with scales: a quantized matrix is the matrix of the numbers that it stands for.

use crate::column::{Column, Op, agrees};
use crate::integers;
use crate::linear::{assert_same_bits, matrix};
use crate::scene::{Random, uploaded};
use compute::batch::Batch;
use compute::cpu::{Cpu, Isa, Matrix, reference};
use compute::ops;
use compute::{Device, HostMatrix, LayerInput};
use formats::{Block, Codes, Scaled, Scales, WeightFormat};
use half::f16;
use os::HostBytes;
use std::ops::Range;

/// Every block, and each kind of codes, scales, groups and zeros.
pub fn codings() -> Vec<WeightFormat> {
    let scaled = |codes, scales, group, zeros| WeightFormat::Scaled(Scaled { codes, scales, group, zeros });
    let blocks = Block::ALL.map(WeightFormat::Block);
    let scaled = [
        scaled(Codes::U4, Scales::F16, 128, true),
        scaled(Codes::U4, Scales::Bf16, 32, false),
        scaled(Codes::U4, Scales::F32, 64, false),
        scaled(Codes::U4, Scales::F16, 1024, false),
        scaled(Codes::U8, Scales::F16, 128, true),
        scaled(Codes::U8, Scales::F32, Scaled::ROW, false),
        scaled(Codes::I8, Scales::F16, 32, false),
        scaled(Codes::I8, Scales::Bf16, Scaled::ROW, false),
        scaled(Codes::I8, Scales::F32, 256, true),
        scaled(Codes::E4m3, Scales::F32, 128, false),
        scaled(Codes::E4m3, Scales::Bf16, Scaled::ROW, false),
        scaled(Codes::E2m1, Scales::E8m0, 32, false),
        scaled(Codes::E2m1, Scales::F16, 64, true),
        // A group that kernels do not know.
        scaled(Codes::U4, Scales::F16, 96, false),
    ];
    blocks.into_iter().chain(scaled).collect()
}

/// Random codes with scales near 1/100. All planes begin at odd addresses, as they may in a file.
pub fn random_matrix(random: &mut Random, coding: WeightFormat, rows: usize, cols: usize) -> HostMatrix {
    let bytes = |random: &mut Random, len: usize| -> Vec<u8> { (0..len).map(|_| random.below(256) as u8).collect() };
    let mut codes = bytes(random, rows * coding.row_bytes(cols));
    // Those of unsigned bytes may be above 127, which is the greatest signed one.
    let most = if matches!(coding, WeightFormat::Scaled(Scaled { codes: Codes::U8, .. })) { 255 } else { 15 };
    let zeros: Vec<u8> = bytes(random, rows * coding.zero_bytes(cols)).iter().map(|byte| byte & most).collect();
    let mut scales = Vec::new();
    match coding {
        WeightFormat::Block(block) => {
            let halves: &[usize] = match block {
                Block::Q4_1 | Block::Q5_1 | Block::Q4K | Block::Q5K => &[0, 2],
                Block::Q6K => &[208],
                Block::Q2K => &[80, 82],
                Block::Q3K => &[108],
                Block::Mxfp4 | Block::Iq1M => &[],
                Block::Tq1_0 => &[52],
                Block::Tq2_0 => &[64],
                _ => &[0],
            };
            for bytes in codes.chunks_exact_mut(block.bytes()) {
                if block == Block::Iq1M {
                    // The f16 number in the upper bits of four scales: about 0.01.
                    for (at, four) in [(49, 0), (51, 0), (53, 0x1), (55, 0x2)] {
                        bytes[at] = bytes[at] & 0x0f | four << 4;
                    }
                }
                if block == Block::Mxfp4 {
                    bytes[0] = 118 + bytes[0] % 4;
                }
                for &at in halves {
                    let half = f16::from_f32(random.numbers(1, 0.01)[0] + 0.005);
                    bytes[at..at + 2].copy_from_slice(&half.to_le_bytes());
                }
            }
        }
        WeightFormat::Scaled(scaled) => {
            for _ in 0..rows * scaled.groups(cols) {
                let scale = random.numbers(1, 0.01)[0] + 0.005;
                match scaled.scales {
                    Scales::F32 => scales.extend(scale.to_le_bytes()),
                    Scales::F16 => scales.extend(f16::from_f32(scale).to_le_bytes()),
                    Scales::Bf16 => scales.extend(half::bf16::from_f32(scale).to_le_bytes()),
                    Scales::E8m0 => scales.push(118 + random.below(4) as u8),
                }
            }
            if scaled.codes == Codes::E4m3 {
                // No infinities and NaNs.
                codes.iter_mut().for_each(|code| *code = if *code & 0x7f == 0x7f { 0x40 } else { *code });
            }
        }
        _ => unreachable!("plain"),
    }
    let odd = |bytes: Vec<u8>| {
        let len = bytes.len();
        let bytes: Vec<u8> = std::iter::once(0).chain(bytes).collect();
        HostBytes::owned(bytes.into()).slice(1..len + 1)
    };
    HostMatrix::scaled(odd(codes), odd(scales), odd(zeros), coding, rows, cols)
}

struct Case {
    tokens: usize,
    inputs: usize,
    /// Outputs of each stacked part.
    parts: &'static [usize],
    /// Which outputs are computed.
    columns: Range<usize>,
}

/// Multiples of 256, which all blocks divide, and of a group of 96.
const CASES: &[(&str, Case)] = &[
    ("one token", Case { tokens: 1, inputs: 768, parts: &[48], columns: 0..48 }),
    ("two tokens", Case { tokens: 2, inputs: 768, parts: &[31], columns: 0..31 }),
    ("three tokens, two slices", Case { tokens: 3, inputs: 1536, parts: &[25], columns: 0..25 }),
    ("decode batch of 5, some columns", Case { tokens: 5, inputs: 768, parts: &[17, 40], columns: 13..50 }),
    ("decode batch of 17", Case { tokens: 17, inputs: 2304, parts: &[20], columns: 0..20 }),
    ("decode batch of 34, odd outputs", Case { tokens: 34, inputs: 768, parts: &[33, 1, 7], columns: 0..41 }),
    ("prefill", Case { tokens: 70, inputs: 1536, parts: &[50, 30], columns: 2..79 }),
];

fn parts(case: &Case, coding: WeightFormat) -> (Vec<f32>, Vec<HostMatrix>) {
    let mut random = Random(21);
    let parts = case.parts.iter().map(|&rows| random_matrix(&mut random, coding, rows, case.inputs)).collect();
    (random.numbers(case.tokens * case.inputs, 1.0), parts)
}

/// `[tokens, columns]`
pub fn multiplied<B: Column>(backend: &mut B, x: &[f32], parts: &[HostMatrix], columns: Range<usize>) -> Vec<f32> {
    let (_, inputs) = parts[0].shape();
    let outputs: usize = parts.iter().map(|part| part.shape().0).sum();
    let weight = backend.matrix(parts).unwrap();
    let mut out = backend.poisoned(x.len() / inputs, outputs);
    let x = backend.filled(x, inputs);
    ops::linear(backend, &mut out, LayerInput::new(&x, &weight, None), columns.clone());
    let out = backend.read(&out);
    for row in out.chunks_exact(outputs) {
        let outside = (0..outputs).filter(|n| !columns.contains(n));
        assert!(outside.into_iter().all(|n| row[n].is_nan()), "a column that was not asked for was written");
    }
    out.chunks_exact(outputs).flat_map(|row| row[columns.clone()].to_vec()).collect()
}

struct Coded;

impl Op for Coded {
    type Case = Case;
    const CASES: &'static [(&'static str, Case)] = CASES;
    const BOUND: f64 = 5e-3;

    fn expected(case: &Case) -> Vec<f32> {
        let results = codings().into_iter().flat_map(|coding| {
            let (x, parts) = parts(case, coding);
            let outputs: usize = case.parts.iter().sum();
            let mut out = vec![0.0; case.tokens * outputs];
            // Of their numbers: a backend may keep some codings as other numbers.
            let numbers: Vec<_> = parts.iter().map(|part| part.converted(WeightFormat::F32).unwrap()).collect();
            reference::linear(&mut out, &x, &Matrix::new(&numbers).unwrap(), None, case.columns.clone());
            let columns = case.columns.clone();
            out.chunks_exact(outputs).flat_map(|row| row[columns.clone()].to_vec()).collect::<Vec<_>>()
        });
        results.collect()
    }

    fn computed<B: Column>(backend: &mut B, case: &Case) -> Vec<f32> {
        let results = codings().into_iter().flat_map(|coding| {
            let (x, parts) = parts(case, coding);
            multiplied(backend, &x, &parts, case.columns.clone())
        });
        results.collect()
    }
}

#[test]
fn products_with_coded_weights_agree_with_their_specification() {
    agrees::<Coded>();
}

/// The first numbers of each pair, then the second ones, in groups of 32 or 16 numbers.
fn even_odd(numbers: &[f32], lanes: usize) -> Vec<f32> {
    let group = |group: &[f32]| -> Vec<f32> {
        group.iter().step_by(2).chain(group.iter().skip(1).step_by(2)).copied().collect()
    };
    numbers.chunks(2 * lanes).flat_map(group).collect()
}

/// Numbers that an instruction set takes at a time from codes that come apart into even and odd ones.
fn lanes_of_pairs(isa: Isa) -> Option<usize> {
    match isa.name() {
        "avx2" => Some(8),
        "avx512" => Some(16),
        _ => None,
    }
}

/// What multiplies dequantized numbers: AMX has tiles for plain weights and for codes with scales, and leaves blocks of GGUF to the set below.
fn multiplies(isa: Isa, coding: WeightFormat) -> Isa {
    let below = || Isa::available().iter().copied().find(|isa| isa.name() == "avx512bf16");
    match coding {
        WeightFormat::Block(_) if isa.name() == "amx" => below().expect("AMX comes with it"),
        _ => isa,
    }
}

/// What the products are bit for bit: those of integers, or of the plain numbers that the instruction set multiplies, in the order in which
/// codes of four bits come apart.
#[test]
fn products_with_coded_weights_have_the_bits_of_those_with_their_numbers() {
    for isa in Isa::available() {
        let plain = if isa.rounds_activations() { WeightFormat::Bf16 } else { WeightFormat::F32 };
        for coding in codings() {
            for (name, case) in CASES {
                let (x, parts) = parts(case, coding);
                let found = multiplied(&mut Cpu::new(2, *isa), &x, &parts, case.columns.clone());
                if integers::takes(*isa, coding) {
                    let of_parts: Vec<_> =
                        parts.iter().map(|part| (part.shape().0, integers::products(&x, part))).collect();
                    let of_token = |token: usize| -> Vec<f32> {
                        let rows = |(rows, out): &(usize, Vec<f32>)| out[token * rows..(token + 1) * rows].to_vec();
                        of_parts.iter().flat_map(rows).collect::<Vec<_>>()[case.columns.clone()].to_vec()
                    };
                    let wanted: Vec<f32> = (0..case.tokens).flat_map(of_token).collect();
                    assert_same_bits(&found, &wanted, &format!("{isa:?}, {coding:?}, {name}"));
                    continue;
                }
                let known = !matches!(coding, WeightFormat::Scaled(Scaled { group: 96, .. }));
                let lanes = match coding {
                    WeightFormat::Scaled(Scaled { codes: Codes::U4 | Codes::E2m1, .. }) if known => {
                        lanes_of_pairs(*isa)
                    }
                    _ => None,
                };
                let plain = if known { plain } else { WeightFormat::Bf16 };
                let ordered = |numbers: Vec<f32>| match lanes {
                    Some(lanes) => even_odd(&numbers, lanes),
                    None => numbers,
                };
                let numbers = |part: &HostMatrix| matrix(&ordered(part.to_f32()), plain, part.shape().0);
                let parts: Vec<_> = parts.iter().map(numbers).collect();
                let wanted =
                    multiplied(&mut Cpu::new(2, multiplies(*isa, coding)), &ordered(x), &parts, case.columns.clone());
                assert_same_bits(&found, &wanted, &format!("{isa:?}, {coding:?}, {name}"));
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_whatever_rows_are_beside_it() {
    let case = Case { tokens: 150, inputs: 1536, parts: &[61, 38], columns: 0..99 };
    for isa in Isa::available().iter().filter(|isa| **isa != Isa::Portable) {
        for coding in codings() {
            let (x, parts) = parts(&case, coding);
            let whole = multiplied(&mut Cpu::new(2, *isa), &x, &parts, case.columns.clone());
            for (threads, rows) in [(1, 150), (3, 150), (1, 1), (2, 2), (3, 5), (2, 16), (1, 33)] {
                let cpu = &mut Cpu::new(threads, *isa);
                for first in (0..case.tokens.min(4 * rows)).step_by(rows) {
                    let last = case.tokens.min(first + rows);
                    let part =
                        multiplied(cpu, &x[first * case.inputs..last * case.inputs], &parts, case.columns.clone());
                    let what = format!("{isa:?}, {coding:?}, {threads} threads, rows {first}..{last}");
                    assert_same_bits(&part, &whole[first * 99..last * 99], &what);
                }
            }
        }
    }
}

/// A stack of a file with mixed types: a part's columns have the bits that they have where it is alone.
#[test]
fn a_stack_of_coded_parts_has_the_bits_of_its_parts() {
    let int4 = WeightFormat::Scaled(Scaled { codes: Codes::U4, scales: Scales::F16, group: 128, zeros: true });
    let codings = [
        WeightFormat::Block(Block::Q4K),
        WeightFormat::Block(Block::Q6K),
        WeightFormat::Bf16,
        int4,
        WeightFormat::Block(Block::Q4K),
    ];
    let (rows, inputs) = (70, 768);
    let mut random = Random(31);
    let parts = codings.map(|coding| match coding.is_plain() {
        true => matrix(&random.numbers(rows * inputs, 1.0), coding, rows),
        false => random_matrix(&mut random, coding, rows, inputs),
    });
    for isa in Isa::available() {
        let cpu = &mut Cpu::new(2, *isa);
        for tokens in [1, 5, 40] {
            let x = random.numbers(tokens * inputs, 1.0);
            let alone: Vec<_> =
                parts.iter().map(|part| multiplied(cpu, &x, std::slice::from_ref(part), 0..rows)).collect();
            for columns in [0..5 * rows, 33..345, 140..210] {
                let together = multiplied(cpu, &x, &parts, columns.clone());
                for (token, out) in together.chunks_exact(columns.len()).enumerate() {
                    let wanted: Vec<f32> =
                        columns.clone().map(|column| alone[column / rows][token * rows + column % rows]).collect();
                    assert_same_bits(out, &wanted, &format!("{isa:?}, {tokens} tokens, token {token}, {columns:?}"));
                }
            }
        }
    }
}

/// A rank holds some of the rows or some of the columns of a matrix.
#[test]
fn parts_of_a_coded_matrix_have_the_bits_of_a_matrix_of_their_own() {
    let (rows, inputs) = (40, 1536);
    let mut random = Random(41);
    for coding in codings() {
        let whole = random_matrix(&mut random, coding, rows, inputs);
        let half = (inputs / 2).next_multiple_of(coding.group());
        let view = whole.columns(half..inputs).rows(7..29);
        let numbers = matrix(&view.to_f32(), WeightFormat::F32, 22);
        let x = random.numbers(3 * (inputs - half), 1.0);
        let outputs = 0..22;
        if half == inputs {
            continue;
        }
        let found = multiplied(&mut Cpu::new(2, Isa::Portable), &x, std::slice::from_ref(&view), outputs.clone());
        let wanted = match coding {
            WeightFormat::Scaled(Scaled { group: 96, .. }) => view.converted(WeightFormat::Bf16).unwrap(),
            _ => numbers,
        };
        let wanted = multiplied(&mut Cpu::new(2, Isa::Portable), &x, &[wanted], outputs);
        assert_same_bits(&found, &wanted, &format!("{coding:?}"));
    }
}

#[test]
fn rows_of_a_coded_table_are_its_numbers() {
    let (rows, cols) = (31, 768);
    let mut random = Random(51);
    for coding in codings() {
        let table = random_matrix(&mut random, coding, rows, cols);
        let batch = Batch { token_ids: vec![0, 30, 7, 7], ..Batch::default() };
        let cpu = &mut Cpu::new(2, Isa::Portable);
        let weight = cpu.matrix(std::slice::from_ref(&table)).unwrap();
        let (device_batch, mut out) = (uploaded(cpu, &batch), cpu.poisoned(batch.token_ids.len(), cols));
        ops::embedding(cpu, &mut out, &weight, 1.0, &device_batch);
        let kept = weight.parts()[0].to_f32();
        let wanted: Vec<f32> =
            batch.token_ids.iter().flat_map(|&row| kept[row as usize * cols..][..cols].to_vec()).collect();
        assert_same_bits(&cpu.read(&out), &wanted, &format!("{coding:?}"));
        if !matches!(coding, WeightFormat::Scaled(Scaled { group: 96, .. })) {
            assert_same_bits(&kept, &table.to_f32(), &format!("{coding:?}"));
        }
    }
}

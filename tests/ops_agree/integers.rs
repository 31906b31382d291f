//! `linear` as sums of products of integers: which instruction sets and codings take it, and what it is bit for bit.

use crate::column::Column;
use compute::cpu::{Cpu, Isa};
use compute::ops;
use compute::{Device, HostMatrix, LayerInput};
use formats::{Block, Codes, IQ4, Scaled, ScaledRow, WeightFormat, q3_scale, scale_and_min};
use half::{bf16, f16};

/// Numbers along `k` that share a scale of `x`.
const GROUP: usize = 32;

/// Whether products with weights in `coding` are those of integers.
pub fn takes(isa: Isa, coding: WeightFormat) -> bool {
    isa > Isa::Portable && has_integers(coding)
}

fn has_integers(coding: WeightFormat) -> bool {
    match coding {
        WeightFormat::Block(block) => !matches!(block, Block::Q2K | Block::Mxfp4) && !block.is_lattice(),
        WeightFormat::Scaled(Scaled { group: 96, .. }) => false,
        WeightFormat::Scaled(Scaled { codes, zeros, .. }) => {
            matches!(codes, Codes::U4 | Codes::U8) || codes == Codes::I8 && !zeros
        }
        _ => false,
    }
}

/// A group of weights: `scale * code + min`.
struct Weights {
    /// Without their zero.
    codes: [i32; GROUP],
    /// Of each half.
    scales: [f32; 2],
    min: f32,
}

/// A group of `x`: `scale * integer`.
struct Activations {
    integers: [i32; GROUP],
    scale: f32,
}

/// Whether codes have more than four bits.
fn is_wide(coding: WeightFormat) -> bool {
    use Block::{Q3K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
    match coding {
        WeightFormat::Block(block) => matches!(block, Q8_0 | Q5_0 | Q5_1 | Q5K | Q6K | Q3K),
        WeightFormat::Scaled(Scaled { codes, .. }) => codes != Codes::U4,
        _ => unreachable!("plain"),
    }
}

/// Rounds a group of `x`.
fn rounded(x: &[f32], is_wide: bool) -> Activations {
    let greatest = x.iter().fold(0.0f32, |greatest, x| greatest.max(x.abs()));
    if x.iter().any(|x| !x.is_finite()) {
        return Activations { integers: [0; GROUP], scale: f32::NAN };
    }
    if greatest < f32::MIN_POSITIVE * 4096.0 {
        return Activations { integers: [0; GROUP], scale: 0.0 };
    }
    let most = if is_wide { 2040.0 } else { 127.0 };
    let inverse = most / greatest;
    let integer = |x: f32| {
        let number = x * inverse;
        let number = if is_wide { bf16::from_f32(number).to_f32() } else { number };
        number.round_ties_even() as i32
    };
    Activations { integers: std::array::from_fn(|i| integer(x[i])), scale: greatest / most }
}

/// Group `group` of a row.
fn weights(coding: WeightFormat, row: ScaledRow, group: usize) -> Weights {
    match coding {
        WeightFormat::Block(block) => {
            of_block(block, &row.codes[group * GROUP / block.numbers() * block.bytes()..], group % 8)
        }
        WeightFormat::Scaled(scaled) => {
            let of_row = if scaled.group == Scaled::ROW { 0 } else { group * GROUP / scaled.group };
            let scale = scaled.scales.read(row.scales, of_row);
            let zero = if scaled.zeros { f32::from(row.zeros[of_row]) } else { scaled.codes.zero() } as i32;
            let code = |i: usize| {
                let i = group * GROUP + i;
                match scaled.codes {
                    Codes::U4 => i32::from(row.codes[i / 2] >> (i % 2 * 4) & 15),
                    Codes::U8 => i32::from(row.codes[i]),
                    Codes::I8 => i32::from(row.codes[i].cast_signed()),
                    _ => unreachable!("not integers"),
                }
            };
            Weights { codes: std::array::from_fn(|i| code(i) - zero), scales: [scale; 2], min: 0.0 }
        }
        _ => unreachable!("plain"),
    }
}

/// The `j`-th group of a block of 256 numbers, or the one group of another block.
fn of_block(block: Block, bytes: &[u8], j: usize) -> Weights {
    let half = |at: usize| f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32();
    // Byte `i` has number `i` in its low bits and number `i + 16` in its high ones.
    let nibble = |at: usize, i: usize| i32::from(bytes[at + i % 16] >> (i / 16 * 4) & 15);
    let fifth = |at: usize, i: usize| i32::from(bytes[at + i / 8] >> (i % 8) & 1) << 4;
    let (d, group) = (half(0), |code: &dyn Fn(usize) -> i32, scale: f32, min: f32| Weights {
        codes: std::array::from_fn(code),
        scales: [scale; 2],
        min,
    });
    match block {
        Block::Q8_0 => group(&|i| i32::from(bytes[2 + i].cast_signed()), d, 0.0),
        Block::Q4_0 => group(&|i| nibble(2, i) - 8, d, 0.0),
        Block::Q4_1 => group(&|i| nibble(4, i), d, half(2)),
        Block::Q5_0 => group(&|i| (nibble(6, i) | fifth(2, i)) - 16, d, 0.0),
        Block::Q5_1 => group(&|i| nibble(8, i) | fifth(4, i), d, half(2)),
        Block::Iq4Nl => group(&|i| i32::from(IQ4[nibble(2, i) as usize]), d, 0.0),
        Block::Q4K | Block::Q5K => {
            let (scale, min) = scale_and_min(&bytes[4..16], j);
            let at = if block == Block::Q4K { 16 } else { 48 } + j / 2 * 32;
            let low = |i: usize| i32::from(bytes[at + i] >> (j % 2 * 4) & 15);
            let fifth = |i: usize| if block == Block::Q4K { 0 } else { i32::from(bytes[16 + i] >> j & 1) << 4 };
            group(&|i| low(i) | fifth(i), d * f32::from(scale), -(half(2) * f32::from(min)))
        }
        Block::Q6K => {
            let (part, quarter) = (j / 4, j % 4);
            let code = |i: usize| {
                let low = bytes[part * 64 + quarter % 2 * 32 + i] >> (quarter / 2 * 4) & 15;
                let high = bytes[128 + part * 32 + i] >> (quarter * 2) & 3;
                i32::from(low | high << 4) - 32
            };
            let scale = |half_of: usize| half(208) * f32::from(bytes[192 + 2 * j + half_of].cast_signed());
            Weights { codes: std::array::from_fn(code), scales: [scale(0), scale(1)], min: 0.0 }
        }
        Block::Q3K => {
            let code = |i: usize| {
                let low = bytes[32 + j / 4 * 32 + i] >> (j % 4 * 2) & 3;
                i32::from(low | (bytes[i] >> j & 1) << 2) - 4
            };
            let scale = |half_of: usize| half(108) * (f32::from(q3_scale(&bytes[96..108], 2 * j + half_of)) - 32.0);
            Weights { codes: std::array::from_fn(code), scales: [scale(0), scale(1)], min: 0.0 }
        }
        Block::Q2K | Block::Mxfp4 => unreachable!("they are decoded"),
        Block::Iq2Xxs
        | Block::Iq2Xs
        | Block::Iq2S
        | Block::Iq3Xxs
        | Block::Iq3S
        | Block::Iq1S
        | Block::Iq1M
        | Block::Tq1_0
        | Block::Tq2_0 => unreachable!("they are decoded"),
        Block::Iq4Xs => {
            let low = bytes[4 + j / 2] >> (j % 2 * 4) & 15;
            let high = (u16::from_le_bytes([bytes[2], bytes[3]]) >> (2 * j) & 3) as u8;
            let scale = d * (f32::from(low | high << 4) - 32.0);
            group(&|i| i32::from(IQ4[nibble(8 + 16 * j, i) as usize]), scale, 0.0)
        }
    }
}

/// The products, one sum in f32 for each. `[tokens, rows]`
pub fn products(x: &[f32], matrix: &HostMatrix) -> Vec<f32> {
    let ((rows, inputs), coding) = (matrix.shape(), matrix.coding());
    let planes = matrix.planes().expect("rows that follow each other");
    let row_of = |row: usize| {
        let plane = |plane: &'static str, bytes: usize| {
            let all = match plane {
                "codes" => planes.codes,
                "scales" => planes.scales,
                _ => planes.zeros,
            };
            &all[row * bytes..(row + 1) * bytes]
        };
        ScaledRow {
            codes: plane("codes", coding.row_bytes(inputs)),
            scales: plane("scales", coding.scale_bytes(inputs)),
            zeros: plane("zeros", coding.zero_bytes(inputs)),
        }
    };
    let has_halves = matches!(coding, WeightFormat::Block(Block::Q6K | Block::Q3K));
    let weights: Vec<Vec<Weights>> =
        (0..rows).map(|row| (0..inputs / GROUP).map(|group| weights(coding, row_of(row), group)).collect()).collect();
    let mut out = Vec::new();
    for x in x.chunks_exact(inputs) {
        let x: Vec<_> = x.chunks_exact(GROUP).map(|x| rounded(x, is_wide(coding))).collect();
        for weights in &weights {
            let mut sum = 0.0f32;
            for (w, x) in weights.iter().zip(&x) {
                let products: Vec<i32> = w.codes.iter().zip(x.integers).map(|(w, x)| w * x).collect();
                if has_halves {
                    for (products, scale) in products.chunks(GROUP / 2).zip(w.scales) {
                        sum = (products.iter().sum::<i32>() as f32).mul_add(scale * x.scale, sum);
                    }
                } else {
                    sum = (products.iter().sum::<i32>() as f32).mul_add(w.scales[0] * x.scale, sum);
                }
                if w.min != 0.0 {
                    sum = w.min.mul_add(x.scale * x.integers.iter().sum::<i32>() as f32, sum);
                }
            }
            out.push(sum);
        }
    }
    out
}

/// The specification of these products is that of their numbers.
#[test]
fn groups_of_integers_are_the_numbers_of_a_matrix() {
    let mut random = crate::scene::Random(61);
    for coding in crate::coded::codings().into_iter().filter(|coding| has_integers(*coding)) {
        let matrix = crate::coded::random_matrix(&mut random, coding, 1, 768);
        let row = matrix.planes().unwrap();
        let numbers: Vec<f32> = (0..768 / GROUP)
            .flat_map(|group| {
                let Weights { codes, scales, min } = weights(coding, row, group);
                (0..GROUP).map(move |i| scales[i / (GROUP / 2)] * codes[i] as f32 + min).collect::<Vec<_>>()
            })
            .collect();
        for (found, wanted) in numbers.iter().zip(matrix.to_f32()) {
            assert!((found - wanted).abs() <= 1e-6 * wanted.abs().max(0.01), "{coding:?}: {found}, but {wanted}");
        }
    }
}

/// Kernels take rows by six, four and two, and columns by 16: each number of rows, and columns that are left over.
#[test]
fn each_number_of_rows_has_the_bits_of_the_specification() {
    const ROWS: usize = 13;
    let (outputs, inputs) = (37, 512);
    let mut random = crate::scene::Random(67);
    for coding in crate::coded::codings().into_iter().filter(|coding| has_integers(*coding)) {
        let matrix = crate::coded::random_matrix(&mut random, coding, outputs, inputs);
        let x = random.numbers(ROWS * inputs, 1.0);
        let specified = products(&x, &matrix);
        for isa in Isa::available().iter().filter(|isa| takes(**isa, coding)) {
            for rows in 1..=ROWS {
                for columns in [0..outputs, 5..22, 36..37] {
                    let (x, parts) = (&x[..rows * inputs], std::slice::from_ref(&matrix));
                    let found = crate::coded::multiplied(&mut Cpu::new(2, *isa), x, parts, columns.clone());
                    let of_row = |row: &[f32]| row[columns.clone()].to_vec();
                    let wanted: Vec<f32> = specified.chunks_exact(outputs).take(rows).flat_map(of_row).collect();
                    crate::linear::assert_same_bits(
                        &found,
                        &wanted,
                        &format!("{isa:?}, {coding:?}, {rows}, {columns:?}"),
                    );
                }
            }
        }
    }
}

/// An infinity or a NaN in `x` must not become a finite product, and zeros or tiny numbers not a NaN.
#[test]
fn numbers_that_are_not_finite_stay_so() {
    let (rows, inputs) = (20, 768);
    let mut random = crate::scene::Random(71);
    for isa in Isa::available() {
        for coding in crate::coded::codings().into_iter().filter(|coding| takes(*isa, *coding)) {
            let matrix = crate::coded::random_matrix(&mut random, coding, rows, inputs);
            for tokens in [1, 3, 6, 20] {
                for (number, is_finite) in
                    [(f32::NAN, false), (f32::INFINITY, false), (-f32::INFINITY, false), (1e-40, true)]
                {
                    let mut x = random.numbers(tokens * inputs, 1.0);
                    // The row in the middle; a group of another has zeros only.
                    let row = tokens / 2;
                    x[row * inputs + 37] = number;
                    x[..GROUP].fill(if row == 0 { 1e-39 } else { 0.0 });
                    let cpu = &mut Cpu::new(2, *isa);
                    let (weight, mut out) =
                        (cpu.matrix(std::slice::from_ref(&matrix)).unwrap(), cpu.poisoned(tokens, rows));
                    let x = cpu.filled(&x, inputs);
                    ops::linear(cpu, &mut out, LayerInput::new(&x, &weight, None), 0..rows);
                    for (token, out) in cpu.read(&out).chunks_exact(rows).enumerate() {
                        let wanted = is_finite || token != row;
                        assert!(
                            out.iter().all(|v| v.is_finite() == wanted),
                            "{isa:?}, {coding:?}, {number}, {token}: {out:?}"
                        );
                    }
                }
            }
        }
    }
}

//! Do codings of weights stand for the numbers that others read in them?
//!
//! The bytes and numbers of tests/golden/codings.safetensors are from the `gguf` package and torch (make_codings.py).

use compute::HostMatrix;
use formats::{Block, Codes, Scaled, ScaledRow, Scales, WeightFormat, from_e4m3};
use os::HostBytes;
use safetensors::SafeTensors;
use std::ops::Range;

fn golden() -> Vec<u8> {
    std::fs::read(crate::tree::root().join("tests/golden/codings.safetensors")).unwrap()
}

fn numbers(file: &SafeTensors, name: &str) -> Vec<f32> {
    file.tensor(name).unwrap().data().as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

/// As bits, and every NaN as one.
fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|n| if n.is_nan() { u32::MAX } else { n.to_bits() }).collect()
}

#[test]
fn blocks_are_those_of_gguf() {
    let golden = golden();
    let file = SafeTensors::deserialize(&golden).unwrap();
    for block in Block::ALL {
        let name = block.name();
        let tensor = file.tensor(&format!("{name}.bytes")).unwrap();
        let (bytes, wanted) = (tensor.data(), numbers(&file, &format!("{name}.numbers")));
        let coding = WeightFormat::Block(block);
        assert_eq!(coding.row_bytes(wanted.len()), bytes.len(), "{name}");
        let mut found = vec![0.0; wanted.len()];
        coding.decode(bytes, &mut found);
        assert_eq!(bits(&found), bits(&wanted), "{name}");
    }
}

#[test]
fn eight_bit_floats_are_those_of_torch() {
    let golden = golden();
    let file = SafeTensors::deserialize(&golden).unwrap();
    let found: Vec<f32> = (0..=255).map(from_e4m3).collect();
    assert_eq!(bits(&found), bits(&numbers(&file, "E4M3.numbers")));
    let bytes: Vec<u8> = (0..=255).collect();
    let found: Vec<f32> = (0..256).map(|group| Scales::E8m0.read(&bytes, group)).collect();
    assert_eq!(bits(&found), bits(&numbers(&file, "E8M0.numbers")));
}

const ROWS: usize = 3;
const COLS: usize = 160;

/// A scaled matrix of pseudo-random bytes, and what each of its numbers has to be by the formula.
fn scaled(scaled: Scaled) -> (HostMatrix, Vec<f32>) {
    let coding = WeightFormat::Scaled(scaled);
    let byte = |i: usize, salt: usize| ((i + salt).wrapping_mul(0x9e37_79b9) >> 13) as u8;
    let codes: Vec<u8> = (0..ROWS * coding.row_bytes(COLS)).map(|i| byte(i, 1) & 0x77).collect();
    let groups = scaled.groups(COLS);
    let scales: Vec<u8> = (0..ROWS * groups)
        .flat_map(|i| {
            let scale = 0.5 + i as f32 / 16.0;
            match scaled.scales {
                Scales::F32 => scale.to_le_bytes().to_vec(),
                Scales::F16 => half::f16::from_f32(scale).to_le_bytes().to_vec(),
                Scales::Bf16 => half::bf16::from_f32(scale).to_le_bytes().to_vec(),
                Scales::E8m0 => vec![120 + i as u8],
            }
        })
        .collect();
    let zeros: Vec<u8> = (0..coding.zero_bytes(COLS) * ROWS).map(|i| byte(i, 9) & 15).collect();
    let mut wanted = Vec::new();
    for row in 0..ROWS {
        for col in 0..COLS {
            let group = row * groups + col / scaled.group;
            let byte = codes[row * coding.row_bytes(COLS) + coding.row_bytes(col + 1).max(1) - 1];
            let byte = if coding.row_bytes(2) == 1 { codes[row * COLS / 2 + col / 2] } else { byte };
            let nibble = byte >> (4 * (col % 2)) & 15;
            let code = match scaled.codes {
                Codes::U4 => f32::from(nibble),
                Codes::U8 => f32::from(byte),
                Codes::I8 => f32::from(byte.cast_signed()),
                Codes::E4m3 => from_e4m3(byte),
                Codes::E2m1 => formats::E2M1[usize::from(nibble)],
            };
            let zero = if scaled.zeros { f32::from(zeros[group]) } else { scaled.codes.zero() };
            wanted.push((code - zero) * scaled.scales.read(&scales, group));
        }
    }
    let bytes = |bytes: Vec<u8>| HostBytes::owned(bytes.into());
    (HostMatrix::scaled(bytes(codes), bytes(scales), bytes(zeros), coding, ROWS, COLS), wanted)
}

fn part(numbers: &[f32], rows: Range<usize>, cols: Range<usize>) -> Vec<f32> {
    rows.flat_map(|row| numbers[row * COLS..][cols.clone()].to_vec()).collect()
}

#[test]
fn scaled_matrices_and_parts_of_them_are_their_formula() {
    for codes in [Codes::U4, Codes::U8, Codes::I8, Codes::E4m3, Codes::E2m1] {
        for scales in [Scales::F32, Scales::F16, Scales::Bf16, Scales::E8m0] {
            for group in [32, 64, 128, Scaled::ROW] {
                for zeros in [false, true] {
                    let coding = Scaled { codes, scales, group, zeros };
                    let (whole, wanted) = scaled(coding);
                    assert_eq!(bits(&whole.to_f32()), bits(&wanted), "{coding:?}");
                    let cut = coding.cut();
                    let parts = [(1..3, 0..COLS), (0..3, cut..COLS), (2..3, cut..COLS), (0..2, 0..cut), (1..1, 0..cut)];
                    for (rows, cols) in parts {
                        let found = whole.columns(cols.clone()).rows(rows.clone());
                        let wanted = part(&wanted, rows.clone(), cols.clone());
                        assert_eq!(bits(&found.to_f32()), bits(&wanted), "{coding:?} {rows:?} {cols:?}");
                        let packed = found.packed().unwrap();
                        assert!(packed.planes().is_some());
                        assert_eq!(bits(&packed.to_f32()), bits(&wanted), "{coding:?} packed");
                        let rounded = found.converted(WeightFormat::F32).unwrap();
                        assert_eq!(bits(&rounded.to_f32()), bits(&wanted));
                    }
                }
            }
        }
    }
}

#[test]
fn a_part_of_a_matrix_of_blocks_is_made_of_whole_blocks() {
    let golden = golden();
    let file = SafeTensors::deserialize(&golden).unwrap();
    for block in Block::ALL {
        let tensor = file.tensor(&format!("{}.bytes", block.name())).unwrap();
        let wanted = numbers(&file, &format!("{}.numbers", block.name()));
        let cols = 3 * block.numbers();
        let rows = wanted.len() / cols;
        let bytes = HostBytes::owned(tensor.data().into());
        let whole = HostMatrix::new(bytes, WeightFormat::Block(block), rows, cols);
        let found = whole.columns(block.numbers()..cols).rows(1..rows).packed().unwrap();
        let tail: Vec<f32> = (1..rows).flat_map(|row| wanted[row * cols..][block.numbers()..cols].to_vec()).collect();
        assert_eq!(bits(&found.to_f32()), bits(&tail), "{block:?}");
        assert_eq!(found.bytes(), (rows - 1) * 2 * block.bytes());
    }
}

#[test]
#[should_panic(expected = "assertion")]
fn a_row_of_the_wrong_length_is_refused() {
    let row = ScaledRow { codes: &[0; 33], scales: &[], zeros: &[] };
    WeightFormat::Block(Block::Q8_0).dequantize_row(row, &mut [0.0; 32]);
}

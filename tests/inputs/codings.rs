//! Matrices in every coding, of random codes.

use super::Random;
use compute::HostMatrix;
use formats::{Block, Codes, Scaled, Scales, WeightFormat};
use os::HostBytes;

/// Every kind of block; every kind of code, of scale and of group.
pub fn all() -> Vec<WeightFormat> {
    let scaled = |codes, scales, group, zeros| WeightFormat::Scaled(Scaled { codes, scales, group, zeros });
    let blocks = Block::ALL.map(WeightFormat::Block);
    let scaled = [
        scaled(Codes::U4, Scales::F16, 128, true),
        scaled(Codes::U4, Scales::Bf16, 32, true),
        scaled(Codes::U4, Scales::Bf16, 64, false),
        scaled(Codes::U4, Scales::F32, 128, false),
        scaled(Codes::U4, Scales::F32, 32, true),
        scaled(Codes::U8, Scales::F16, 32, false),
        scaled(Codes::U8, Scales::F16, 128, true),
        scaled(Codes::I8, Scales::F32, Scaled::ROW, false),
        scaled(Codes::I8, Scales::Bf16, 96, false),
        scaled(Codes::E4m3, Scales::F32, 128, false),
        scaled(Codes::E4m3, Scales::Bf16, Scaled::ROW, false),
        scaled(Codes::E2m1, Scales::E8m0, 32, false),
        scaled(Codes::E2m1, Scales::F16, 64, false),
    ];
    blocks.into_iter().chain(scaled).collect()
}

/// A matrix of random codes, of numbers of about 0.1. `cols` is a multiple of what the coding holds together.
pub fn matrix(random: &mut Random, coding: WeightFormat, [rows, cols]: [usize; 2]) -> HostMatrix {
    let mut bytes = |len: usize| -> Vec<u8> { (0..len).map(|_| random.below(256) as u8).collect() };
    let owned = |bytes: Vec<u8>| HostBytes::owned(bytes.into());
    match coding {
        WeightFormat::Block(block) => {
            let mut codes = bytes(rows * coding.row_bytes(cols));
            for bytes in codes.chunks_exact_mut(block.bytes()) {
                let (scales, size): (&[usize], f32) = match block {
                    Block::Q4_1 | Block::Q5_1 => (&[0, 2], 0.01),
                    Block::Q4_0 | Block::Q5_0 => (&[0], 0.01),
                    Block::Q8_0 | Block::Iq4Nl => (&[0], 0.001),
                    Block::Q4K | Block::Q5K => (&[0, 2], 0.0004),
                    Block::Q6K => (&[208], 0.00004),
                    Block::Iq4Xs => (&[0], 0.00004),
                    Block::Q2K => (&[80, 82], 0.002),
                    Block::Q3K => (&[108], 0.0006),
                    Block::Iq2Xxs | Block::Iq2Xs | Block::Iq2S => (&[0], 0.0004),
                    Block::Iq3Xxs | Block::Iq3S => (&[0], 0.0003),
                    Block::Iq1S => (&[0], 0.005),
                    Block::Iq1M => {
                        // The f16 number in the upper bits of four scales: about 0.01.
                        for (at, four) in [(49, 0), (51, 0), (53, 0x1), (55, 0x2)] {
                            bytes[at] = bytes[at] & 0x0f | four << 4;
                        }
                        (&[], 0.0)
                    }
                    Block::Tq1_0 | Block::Tq2_0 => (if block == Block::Tq1_0 { &[52] } else { &[64] }, 0.05),
                    Block::Mxfp4 => {
                        bytes[0] = 120 + bytes[0] % 4;
                        (&[], 0.0)
                    }
                };
                for &at in scales {
                    let sign = if bytes[at] & 1 == 0 { 1.0 } else { -1.0 };
                    let scale = sign * size * (1.0 + f32::from(bytes[at + 1]) / 256.0);
                    bytes[at..at + 2].copy_from_slice(&half::f16::from_f32(scale).to_le_bytes());
                }
            }
            HostMatrix::new(owned(codes), coding, rows, cols)
        }
        WeightFormat::Scaled(scaled) => {
            let mut codes = bytes(rows * coding.row_bytes(cols));
            if scaled.codes == Codes::E4m3 {
                codes.iter_mut().for_each(|code| *code = if *code & 0x7f == 0x7f { 0 } else { *code });
            }
            let size = match scaled.codes {
                Codes::U4 | Codes::E2m1 => 0.02,
                Codes::U8 | Codes::I8 => 0.001,
                Codes::E4m3 => 0.0005,
            };
            let groups = rows * scaled.groups(cols);
            let scale = |byte: u8| {
                let scale = size * (1.0 + f32::from(byte) / 256.0);
                match scaled.scales {
                    Scales::F32 => (scale * 1.000_123).to_le_bytes().to_vec(),
                    Scales::F16 => half::f16::from_f32(scale).to_le_bytes().to_vec(),
                    Scales::Bf16 => half::bf16::from_f32(scale).to_le_bytes().to_vec(),
                    Scales::E8m0 => vec![120 + byte % 4],
                }
            };
            let scales = bytes(groups).into_iter().flat_map(scale).collect();
            let mask = if scaled.codes == Codes::U4 { 15 } else { 255 };
            let zeros = bytes(rows * coding.zero_bytes(cols)).into_iter().map(|zero| zero & mask).collect();
            HostMatrix::scaled(owned(codes), owned(scales), owned(zeros), coding, rows, cols)
        }
        WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => panic!("{coding} has no codes"),
    }
}

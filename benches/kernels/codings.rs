//! Weights in the codings of model files, of random codes.

use super::noise;
use compute::HostMatrix;
use formats::{Block, Codes, DType, Scaled, Scales, WeightFormat};
use os::HostBytes;

/// Which coding each part of a model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mixture {
    Bf16,
    Q8_0,
    /// As llama.cpp mixes them: Q6_K in the head, and in the values and down projections of half of the layers.
    Q4KM,
    /// Groups of 128 with f16 scales.
    Int8,
    /// Groups of 128 with f16 scales and zeros, the head in int8: AWQ.
    Int4,
    /// Blocks of 128 with f32 scales.
    Fp8,
}

impl Mixture {
    pub const ALL: [Mixture; 6] =
        [Mixture::Bf16, Mixture::Q8_0, Mixture::Int8, Mixture::Fp8, Mixture::Q4KM, Mixture::Int4];

    /// The coding of most weights.
    pub fn coding(self) -> WeightFormat {
        let scaled = |codes, scales, zeros| WeightFormat::Scaled(Scaled { codes, scales, group: 128, zeros });
        match self {
            Mixture::Bf16 => WeightFormat::Bf16,
            Mixture::Q8_0 => WeightFormat::Block(Block::Q8_0),
            Mixture::Q4KM => WeightFormat::Block(Block::Q4K),
            Mixture::Int8 => scaled(Codes::I8, Scales::F16, false),
            Mixture::Int4 => scaled(Codes::U4, Scales::F16, true),
            Mixture::Fp8 => scaled(Codes::E4m3, Scales::F32, false),
        }
    }

    /// The coding of the head.
    pub fn head(self) -> WeightFormat {
        match self {
            Mixture::Q4KM => WeightFormat::Block(Block::Q6K),
            Mixture::Int4 => Mixture::Int8.coding(),
            _ => self.coding(),
        }
    }

    /// The coding of the values and down projections of layer `layer` of `layers`.
    pub fn sensitive(self, layer: usize, layers: usize) -> WeightFormat {
        let has_more = layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
        match self {
            Mixture::Q4KM if has_more => WeightFormat::Block(Block::Q6K),
            _ => self.coding(),
        }
    }
}

/// A matrix of random codes, of small numbers.
pub fn matrix(coding: WeightFormat, [rows, cols]: [usize; 2], seed: u64) -> HostMatrix {
    let owned = |bytes: Vec<u8>| HostBytes::owned(bytes.into());
    let bytes = |len: usize| noise(len.div_ceil(2), seed)[..len].to_vec();
    match coding {
        WeightFormat::Block(block) => {
            let mut codes = bytes(rows * coding.row_bytes(cols));
            let scales: &[usize] = match block {
                Block::Q4_1 | Block::Q5_1 | Block::Q4K | Block::Q5K => &[0, 2],
                Block::Q6K => &[208],
                _ => &[0],
            };
            for block in codes.chunks_exact_mut(block.bytes()) {
                scales.iter().for_each(|&at| {
                    block[at..at + 2].copy_from_slice(&half::f16::from_f32(0.0001).to_le_bytes());
                });
            }
            HostMatrix::new(owned(codes), coding, rows, cols)
        }
        WeightFormat::Scaled(scaled) => {
            let groups = rows * scaled.groups(cols);
            let scale = match scaled.scales {
                Scales::F32 => 0.0001f32.to_le_bytes().to_vec(),
                Scales::F16 => half::f16::from_f32(0.0001).to_le_bytes().to_vec(),
                Scales::Bf16 => half::bf16::from_f32(0.0001).to_le_bytes().to_vec(),
                Scales::E8m0 => vec![110],
            };
            let mut codes = bytes(rows * coding.row_bytes(cols));
            // No code is NaN.
            codes.iter_mut().for_each(|code| *code &= if scaled.codes == Codes::E4m3 { 0xbf } else { 0xff });
            let zeros = vec![7; rows * coding.zero_bytes(cols)];
            HostMatrix::scaled(owned(codes), owned(scale.repeat(groups)), owned(zeros), coding, rows, cols)
        }
        WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => {
            assert_eq!(coding, WeightFormat::from(DType::Bf16));
            HostMatrix::new(owned(noise(rows * cols, seed)), coding, rows, cols)
        }
    }
}

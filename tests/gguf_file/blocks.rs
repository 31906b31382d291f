//! Models of the architecture `llama` whose matrices are blocks, and the same models in the numbers that the blocks stand for.
#![allow(dead_code)]

use crate::small;
use crate::writer::Writer;
use compute::HostMatrix;
use formats::{Block, WeightFormat};
use os::HostBytes;

/// A type of blocks for each of [`small::matrices_of`].
pub type Kinds = [Block; 9];

/// The number that stands for a type in a file.
fn id_of(block: Block) -> u32 {
    match block {
        Block::Q4_0 => 2,
        Block::Q4_1 => 3,
        Block::Q5_0 => 6,
        Block::Q5_1 => 7,
        Block::Q8_0 => 8,
        Block::Q4K => 12,
        Block::Q5K => 13,
        Block::Q6K => 14,
        Block::Iq4Nl => 20,
        Block::Iq4Xs => 23,
        Block::Q2K => 10,
        Block::Q3K => 11,
        Block::Mxfp4 => 39,
        Block::Iq2Xxs => 16,
        Block::Iq2Xs => 17,
        Block::Iq2S => 22,
        Block::Iq3Xxs => 18,
        Block::Iq3S => 21,
        Block::Iq1S => 19,
        Block::Iq1M => 29,
        Block::Tq1_0 => 34,
        Block::Tq2_0 => 35,
    }
}

/// Random blocks whose numbers are as large as those of a model.
fn blocks(seed: u64, block: Block, numbers: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize
    };
    let (halves, least): (&[usize], f32) = match block {
        Block::Q4_1 | Block::Q5_1 => (&[0, 2], 0.01),
        Block::Q4K | Block::Q5K => (&[0, 2], 0.0005),
        Block::Q6K => (&[208], 0.0001),
        Block::Iq4Xs => (&[0], 0.0001),
        Block::Q2K => (&[80, 82], 0.005),
        Block::Q3K => (&[108], 0.001),
        Block::Mxfp4 | Block::Iq1M => (&[], 0.0),
        Block::Tq1_0 => (&[52], 0.05),
        Block::Tq2_0 => (&[64], 0.05),
        Block::Iq2Xxs | Block::Iq2Xs | Block::Iq2S | Block::Iq3Xxs | Block::Iq3S => (&[0], 0.0005),
        Block::Iq1S => (&[0], 0.01),
        Block::Q8_0 | Block::Iq4Nl => (&[0], 0.002),
        _ => (&[0], 0.02),
    };
    let mut bytes: Vec<u8> = (0..numbers / block.numbers() * block.bytes()).map(|_| next() as u8).collect();
    for one in bytes.chunks_exact_mut(block.bytes()) {
        for &at in halves {
            let half = half::f16::from_f32(least * (1.0 + (next() % 8) as f32 / 8.0));
            one[at..at + 2].copy_from_slice(&half.to_le_bytes());
        }
        if block == Block::Iq1M {
            // The f16 number in the upper bits of four scales: about 0.01.
            for (at, four) in [(49, 0), (51, 0), (53, 0x1), (55, 0x2)] {
                one[at] = one[at] & 0x0f | four << 4;
            }
        }
        if block == Block::Mxfp4 {
            one[0] = 122 + one[0] % 2;
        }
    }
    bytes
}

/// Files of one type, of Q4_K_M's mixture, and of what that has where rows are no multiple of 256.
pub fn mixtures() -> impl Iterator<Item = (String, Kinds)> {
    let alone = Block::ALL.map(|block| (format!("{block:?}"), [block; 9]));
    let mixture = |usual, better| {
        let mut blocks = [usual; 9];
        // The head, values, and the way out of the MLP.
        [1, 4, 8].into_iter().for_each(|at| blocks[at] = better);
        blocks
    };
    let mixtures = [
        ("Q4_K_M".into(), mixture(Block::Q4K, Block::Q6K)),
        ("Q4_K_M of rows of 32".into(), mixture(Block::Q5_0, Block::Q8_0)),
        ("IQ4 and Q5_K".into(), mixture(Block::Iq4Xs, Block::Q5K)),
    ];
    alone.into_iter().chain(mixtures)
}

/// The narrowest model of these types: the widths of its stream and of its MLP.
pub fn narrowest(kinds: &Kinds) -> [usize; 2] {
    let needs = kinds.iter().map(|block| block.numbers()).max().unwrap();
    if needs == 256 { [256, 512] } else { [32, 96] }
}

/// A file of blocks of these types, and one of the numbers that they stand for.
pub fn files(kinds: &Kinds, [hidden, width]: [usize; 2]) -> (Writer, Writer) {
    let (mut coded, mut plain) = (small::keys_of(hidden, width), small::keys_of(hidden, width));
    for (at, (tensor, [rows, cols])) in small::matrices_of(hidden, width).into_iter().enumerate() {
        let bytes = blocks(at as u64, kinds[at], rows * cols);
        let matrix =
            HostMatrix::new(HostBytes::owned(bytes.clone().into()), WeightFormat::Block(kinds[at]), rows, cols);
        coded.coded(tensor, &[rows, cols], id_of(kinds[at]), bytes);
        plain.tensor(tensor, &[rows, cols], &matrix.to_f32());
    }
    for file in [&mut coded, &mut plain] {
        small::add_norms(file, hidden);
    }
    (coded, plain)
}

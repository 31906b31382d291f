//! The blocks of GGUF files: codes and their scales one after another.
//!
//! Source of the layouts and formulas: `ggml-common.h` and `gguf/quants.py` of llama.cpp. All products and differences below are exact in
//! f32 before the last rounding, so that it does not matter whether a kernel fuses them.

use super::float::from_f16;
use super::lattice::Lattice;
use super::scaled::{E2M1, from_e8m0};

/// How a block of numbers is written. The names are those of ggml.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Block {
    /// 32 numbers `d q`: f16 `d`, 32 signed bytes `q`.
    Q8_0,
    /// 32 numbers `d (q - 8)`: f16 `d`, 16 bytes of which byte `i` holds number `i` in its low bits and number `i + 16` in its high ones.
    Q4_0,
    /// 32 numbers `d q + m`: f16 `d`, f16 `m`, codes as [`Block::Q4_0`].
    Q4_1,
    /// 32 numbers `d (q - 16)`: f16 `d`, 32 bits of which bit `i` is the fifth of number `i`, codes as [`Block::Q4_0`].
    Q5_0,
    /// 32 numbers `d q + m`: f16 `d`, f16 `m`, fifth bits and codes as [`Block::Q5_0`].
    Q5_1,
    /// 256 numbers `d s q - e m`, with a 6-bit scale `s` and a 6-bit `m` for each 32 of them: f16 `d`, f16 `e`, 12 bytes of
    /// [scales](scale_and_min), 128 bytes; of each 32 bytes the low bits are 32 numbers and the high bits the next 32.
    Q4K,
    /// As [`Block::Q4K`], with 32 bytes before the codes: bit `j` of byte `i` is the fifth bit of number `i` of the `j`-th 32.
    Q5K,
    /// 256 numbers `d s (q - 32)`, with a signed 8-bit scale `s` for each 16 of them: 128 bytes with the low four bits, 64 bytes with the high
    /// two, 16 scales, f16 `d`.
    Q6K,
    /// 32 numbers `d t[q]` with the table [`IQ4`]: f16 `d`, codes as [`Block::Q4_0`].
    Iq4Nl,
    /// 256 numbers `d (s - 32) t[q]`, with a 6-bit scale `s` for each 32 of them: f16 `d`, 16 bits with the high two bits of each scale,
    /// 4 bytes with the low four, then 16 bytes for each 32 numbers as [`Block::Q4_0`].
    Iq4Xs,
    /// 256 numbers `d s q - e m`, with a scale `s` and an `m` of four bits for each 16 of them: a byte for each 16 with `s` in its low bits, 64 bytes of
    /// codes of two bits, f16 `d`, f16 `e`. Of each 32 bytes, bits `2 j` and `2 j + 1` are the `j`-th of four times 32 numbers.
    Q2K,
    /// 256 numbers `d (s - 32) (q - 4)`, with a [scale](q3_scale) `s` for each 16 of them: 32 bytes of third bits as [`Block::Q5K`] has fifth ones, 64 bytes
    /// with the low two bits as [`Block::Q2K`], 12 bytes of scales, f16 `d`.
    Q3K,
    /// 32 numbers `d t[q]` with the table [`E2M1`]: an E8M0 byte `d`, codes as [`Block::Q4_0`].
    Mxfp4,
    /// 256 numbers `d (s + 1/2) / 4 * v`, with a scale `s` of four bits for each 32 of them: f16 `d`, then 8 bytes for each 32: four indices of vectors `v` of
    /// eight numbers 8, 25 and 43, and 32 bits of which the upper four are `s` and each seven others are the [signs](Lattice) of a vector.
    Iq2Xxs,
    /// As [`Block::Iq2Xxs`], with a scale for each 16: f16 `d`, 16 bits for each vector, an index of nine and signs of seven, 8 bytes of scales.
    Iq2Xs,
    /// As [`Block::Iq2Xs`]: f16 `d`, 32 bytes with the lower bits of the indices, 32 bytes of signs, 8 bytes with the upper two bits of the indices, 8 bytes of
    /// scales.
    Iq2S,
    /// 256 numbers `d (s + 1/2) / 2 * v` as [`Block::Iq2Xxs`]: f16 `d`, 64 indices of vectors `v` of four numbers from 4 to 62, and 32 bits for each 32 numbers.
    Iq3Xxs,
    /// 256 numbers `d (2 s + 1) v`, with a scale `s` of four bits for each 32 of them: f16 `d`, 64 bytes with the lower bits of the indices of vectors `v` of four odd
    /// numbers up to 15, 8 bytes with their ninth bits, 32 bytes of signs, 4 bytes of scales.
    Iq3S,
    /// 256 numbers `d (2 s + 1) (v + e)`, with a scale `s` of three bits and an `e` of 1/8 or -1/8 for each 32 of them: f16 `d`, 32 bytes with the lower bits of the
    /// indices of vectors `v` of eight numbers -1, 0 and 1, and 16 bits for each 32 numbers: four times three upper bits, `s`, and whether `e` is negative.
    Iq1S,
    /// As [`Block::Iq1S`], with a scale for each 16 and an `e` for each 8: 32 bytes with the lower bits of the indices, 16 bytes with three upper bits and the sign of
    /// `e` of each, four times 16 bits of which the upper four are those of f16 `d` and the others four scales.
    Iq1M,
    /// 256 numbers `d (q - 1)` with `q` from 0 to 2: 48 bytes of five digits to the base 3, 4 bytes of four digits, f16 `d`.
    Tq1_0,
    /// 256 numbers `d (q - 1)`: 64 bytes of codes as [`Block::Q2K`], f16 `d`.
    Tq2_0,
}

/// What the codes of [`Block::Iq4Nl`] and [`Block::Iq4Xs`] stand for.
pub const IQ4: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

impl Block {
    /// All of them.
    pub const ALL: [Block; 22] = [
        Block::Q8_0,
        Block::Q4_0,
        Block::Q4_1,
        Block::Q5_0,
        Block::Q5_1,
        Block::Q4K,
        Block::Q5K,
        Block::Q6K,
        Block::Iq4Nl,
        Block::Iq4Xs,
        Block::Q2K,
        Block::Q3K,
        Block::Mxfp4,
        Block::Iq2Xxs,
        Block::Iq2Xs,
        Block::Iq2S,
        Block::Iq3Xxs,
        Block::Iq3S,
        Block::Iq1S,
        Block::Iq1M,
        Block::Tq1_0,
        Block::Tq2_0,
    ];

    /// Numbers in a block.
    pub const fn numbers(self) -> usize {
        match self {
            Block::Q8_0 | Block::Q4_0 | Block::Q4_1 | Block::Q5_0 | Block::Q5_1 | Block::Iq4Nl | Block::Mxfp4 => 32,
            Block::Q2K | Block::Q3K | Block::Q4K | Block::Q5K | Block::Q6K | Block::Iq4Xs => 256,
            Block::Iq2Xxs
            | Block::Iq2Xs
            | Block::Iq2S
            | Block::Iq3Xxs
            | Block::Iq3S
            | Block::Iq1S
            | Block::Iq1M
            | Block::Tq1_0
            | Block::Tq2_0 => 256,
        }
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        match self {
            Block::Q8_0 => 34,
            Block::Q4_0 | Block::Iq4Nl => 18,
            Block::Q4_1 => 20,
            Block::Q5_0 => 22,
            Block::Q5_1 => 24,
            Block::Q4K => 144,
            Block::Q5K => 176,
            Block::Q6K => 210,
            Block::Iq4Xs => 136,
            Block::Q2K => 84,
            Block::Q3K => 110,
            Block::Mxfp4 => 17,
            Block::Iq2Xxs => 66,
            Block::Iq2Xs => 74,
            Block::Iq2S => 82,
            Block::Iq3Xxs => 98,
            Block::Iq3S => 110,
            Block::Iq1S => 50,
            Block::Iq1M => 56,
            Block::Tq1_0 => 54,
            Block::Tq2_0 => 66,
        }
    }

    /// Its name in ggml.
    pub const fn name(self) -> &'static str {
        match self {
            Block::Q8_0 => "Q8_0",
            Block::Q4_0 => "Q4_0",
            Block::Q4_1 => "Q4_1",
            Block::Q5_0 => "Q5_0",
            Block::Q5_1 => "Q5_1",
            Block::Q4K => "Q4_K",
            Block::Q5K => "Q5_K",
            Block::Q6K => "Q6_K",
            Block::Iq4Nl => "IQ4_NL",
            Block::Iq4Xs => "IQ4_XS",
            Block::Q2K => "Q2_K",
            Block::Q3K => "Q3_K",
            Block::Mxfp4 => "MXFP4",
            Block::Iq2Xxs => "IQ2_XXS",
            Block::Iq2Xs => "IQ2_XS",
            Block::Iq2S => "IQ2_S",
            Block::Iq3Xxs => "IQ3_XXS",
            Block::Iq3S => "IQ3_S",
            Block::Iq1S => "IQ1_S",
            Block::Iq1M => "IQ1_M",
            Block::Tq1_0 => "TQ1_0",
            Block::Tq2_0 => "TQ2_0",
        }
    }

    /// Whether it is made of vectors of a lattice, or of numbers of three values: see [`Lattice`].
    pub const fn is_lattice(self) -> bool {
        matches!(
            self,
            Block::Iq2Xxs
                | Block::Iq2Xs
                | Block::Iq2S
                | Block::Iq3Xxs
                | Block::Iq3S
                | Block::Iq1S
                | Block::Iq1M
                | Block::Tq1_0
                | Block::Tq2_0
        )
    }

    /// Decodes whole blocks.
    pub(super) fn decode(self, bytes: &[u8], numbers: &mut [f32]) {
        for (block, numbers) in bytes.chunks_exact(self.bytes()).zip(numbers.chunks_exact_mut(self.numbers())) {
            // The scale of those that begin with it.
            let d = half(block, 0);
            match self {
                Block::Q8_0 => q8_0(block, numbers),
                Block::Q4_0 => nibbles(&block[2..], numbers, |q| d * (f32::from(q) - 8.0)),
                Block::Q4_1 => {
                    let m = half(block, 2);
                    nibbles(&block[4..], numbers, |q| d * f32::from(q) + m);
                }
                Block::Q5_0 => five_bits(&block[2..], numbers, |q| d * (f32::from(q) - 16.0)),
                Block::Q5_1 => {
                    let m = half(block, 2);
                    five_bits(&block[4..], numbers, |q| d * f32::from(q) + m);
                }
                Block::Q4K => q4_k(block, numbers),
                Block::Q5K => q5_k(block, numbers),
                Block::Q6K => q6_k(block, numbers),
                Block::Iq4Nl => nibbles(&block[2..], numbers, |q| d * f32::from(IQ4[usize::from(q)])),
                Block::Iq4Xs => iq4_xs(block, numbers),
                Block::Q2K => q2_k(block, numbers),
                Block::Q3K => q3_k(block, numbers),
                Block::Mxfp4 => {
                    let d = from_e8m0(block[0]);
                    // Zero has no sign.
                    nibbles(&block[1..], numbers, |q| d * (E2M1[usize::from(q)] + 0.0));
                }
                _ => Lattice::of(self, block).expect("all other blocks").decode(numbers),
            }
        }
    }
}

/// The 6-bit scale and minimum of the `j`-th 32 numbers of a [`Block::Q4K`] or [`Block::Q5K`], from the 12 bytes that hold all eight.
pub fn scale_and_min(packed: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        let (low, scale_high, min_high) = (packed[j + 4], packed[j - 4] >> 6, packed[j] >> 6);
        (low & 15 | scale_high << 4, low >> 4 | min_high << 4)
    }
}

/// The scale of the `k`-th 16 numbers of a [`Block::Q3K`], of six bits, from the 12 bytes that hold all sixteen.
pub fn q3_scale(packed: &[u8], k: usize) -> u8 {
    let low = packed[k % 8] >> (k / 8 * 4) & 15;
    low | (packed[8 + k % 4] >> (k / 4 * 2) & 3) << 4
}

pub(super) fn half(block: &[u8], at: usize) -> f32 {
    from_f16([block[at], block[at + 1]])
}

fn q8_0(block: &[u8], numbers: &mut [f32]) {
    let d = half(block, 0);
    for (number, &q) in numbers.iter_mut().zip(&block[2..]) {
        *number = f32::from(q.cast_signed()) * d;
    }
}

/// Sixteen bytes: the low bits are the first 16 numbers, the high bits the others.
fn nibbles(codes: &[u8], numbers: &mut [f32], value: impl Fn(u8) -> f32) {
    let (low, high) = numbers.split_at_mut(16);
    for ((low, high), &code) in low.iter_mut().zip(high).zip(codes) {
        (*low, *high) = (value(code & 15), value(code >> 4));
    }
}

/// As [`nibbles`], with 32 fifth bits before them.
fn five_bits(codes: &[u8], numbers: &mut [f32], value: impl Fn(u8) -> f32) {
    let fifth = u32::from_le_bytes([codes[0], codes[1], codes[2], codes[3]]);
    let bit = |i: usize| ((fifth >> i & 1) as u8) << 4;
    let (low, high) = numbers.split_at_mut(16);
    for (i, ((low, high), &code)) in low.iter_mut().zip(high).zip(&codes[4..]).enumerate() {
        (*low, *high) = (value(code & 15 | bit(i)), value(code >> 4 | bit(i + 16)));
    }
}

fn q4_k(block: &[u8], numbers: &mut [f32]) {
    k_block(block, numbers, |i, j| (block[16 + j / 2 * 32 + i] >> (j % 2 * 4)) & 15);
}

fn q5_k(block: &[u8], numbers: &mut [f32]) {
    k_block(block, numbers, |i, j| (block[48 + j / 2 * 32 + i] >> (j % 2 * 4)) & 15 | (block[16 + i] >> j & 1) << 4);
}

/// `code(i, j)` is number `i` of the `j`-th 32.
fn k_block(block: &[u8], numbers: &mut [f32], code: impl Fn(usize, usize) -> u8) {
    let (d, e) = (half(block, 0), half(block, 2));
    for (j, numbers) in numbers.chunks_exact_mut(32).enumerate() {
        let (scale, min) = scale_and_min(&block[4..16], j);
        let (scale, min) = (d * f32::from(scale), e * f32::from(min));
        for (i, number) in numbers.iter_mut().enumerate() {
            *number = scale * f32::from(code(i, j)) - min;
        }
    }
}

fn q6_k(block: &[u8], numbers: &mut [f32]) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let d = half(block, 208);
    for (k, numbers) in numbers.chunks_exact_mut(16).enumerate() {
        let (part, quarter, half) = (k / 8, k / 2 % 4, k % 2);
        let low = &low[part * 64 + quarter % 2 * 32 + half * 16..][..16];
        let high = &high[part * 32 + half * 16..][..16];
        let scale = d * f32::from(scales[k].cast_signed());
        for (number, (low, high)) in numbers.iter_mut().zip(low.iter().zip(high)) {
            let (four, two) = (low >> (quarter / 2 * 4) & 15, high >> (quarter * 2) & 3);
            *number = scale * (f32::from(four | two << 4) - 32.0);
        }
    }
}

fn q2_k(block: &[u8], numbers: &mut [f32]) {
    let (d, e) = (half(block, 80), half(block, 82));
    for (k, numbers) in numbers.chunks_exact_mut(16).enumerate() {
        let (part, quarter, half) = (k / 8, k / 2 % 4, k % 2);
        let codes = &block[16 + part * 32 + half * 16..][..16];
        let (scale, min) = (d * f32::from(block[k] & 15), e * f32::from(block[k] >> 4));
        for (number, code) in numbers.iter_mut().zip(codes) {
            *number = scale * f32::from(code >> (quarter * 2) & 3) - min;
        }
    }
}

fn q3_k(block: &[u8], numbers: &mut [f32]) {
    let d = half(block, 108);
    for (k, numbers) in numbers.chunks_exact_mut(16).enumerate() {
        let (part, quarter, half) = (k / 8, k / 2 % 4, k % 2);
        let (low, high) = (&block[32 + part * 32 + half * 16..][..16], &block[half * 16..][..16]);
        let scale = d * (f32::from(q3_scale(&block[96..108], k)) - 32.0);
        for (number, (low, high)) in numbers.iter_mut().zip(low.iter().zip(high)) {
            let code = low >> (quarter * 2) & 3 | (high >> (k / 2) & 1) << 2;
            *number = scale * (f32::from(code) - 4.0);
        }
    }
}

fn iq4_xs(block: &[u8], numbers: &mut [f32]) {
    let (d, high) = (half(block, 0), u16::from_le_bytes([block[2], block[3]]));
    for (j, numbers) in numbers.chunks_exact_mut(32).enumerate() {
        let low = block[4 + j / 2] >> (j % 2 * 4) & 15;
        let scale = low | ((high >> (2 * j) & 3) as u8) << 4;
        let scale = d * (f32::from(scale) - 32.0);
        nibbles(&block[8 + j * 16..], numbers, |q| scale * f32::from(IQ4[usize::from(q)]));
    }
}

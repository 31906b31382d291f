//! The blocks of GGUF files with at most about three bits for each number: vectors of a lattice that are named by index, with signs and scales apart, and
//! numbers of three values.
//!
//! A block is 256 numbers. What it stands for is made of two parts, so that a backend can hold it in another form: a factor for each 16 numbers, and an integer for
//! each number. Their product is exact in f32.

use super::Block;
use super::block::half;
use super::float::from_f16;
use super::grids;

/// Numbers that share a factor, at most as many as do in every coding here.
const SHARED: usize = 16;

/// What a block stands for: number `i` is `factors[i / 16] * integers[i]`.
pub struct Lattice {
    /// Multiples of the scale of the block by an integer of at most 31, divided by a power of two.
    pub factors: [f32; 16],
    /// From -62 to 62.
    pub integers: [i8; 256],
}

impl Lattice {
    /// The parts of a block, `None` for another kind of blocks.
    pub fn of(kind: Block, block: &[u8]) -> Option<Lattice> {
        let mut lattice = Lattice { factors: [0.0; 16], integers: [0; 256] };
        match kind {
            Block::Iq2Xxs => lattice.iq2_xxs(block),
            Block::Iq2Xs => lattice.iq2_xs(block),
            Block::Iq2S => lattice.iq2_s(block),
            Block::Iq3Xxs => lattice.iq3_xxs(block),
            Block::Iq3S => lattice.iq3_s(block),
            Block::Iq1S => lattice.iq1_s(block),
            Block::Iq1M => lattice.iq1_m(block),
            Block::Tq1_0 => lattice.tq1_0(block),
            Block::Tq2_0 => lattice.tq2_0(block),
            _ => return None,
        }
        Some(lattice)
    }

    /// The integers that numbers of such blocks may be, where 32 numbers share a factor. `None` where 16 do, and for other blocks.
    pub const fn table(kind: Block) -> Option<[i8; 16]> {
        match kind {
            Block::Iq2Xxs => Some([8, 25, 43, -8, -25, -43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            Block::Iq3Xxs => Some([4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62]),
            Block::Iq3S => Some([1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15]),
            Block::Iq1S => Some([1, 7, 9, -1, -7, -9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            Block::Tq1_0 | Block::Tq2_0 => Some([0, 1, -1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            _ => None,
        }
    }

    /// The numbers.
    pub fn decode(&self, numbers: &mut [f32]) {
        for (i, (number, &integer)) in numbers.iter_mut().zip(&self.integers).enumerate() {
            *number = self.factors[i / SHARED] * f32::from(integer);
        }
    }

    /// Vector `at` of eight numbers, of two bits each, and a bit for each that is negative.
    fn put_eight(&mut self, at: usize, vector: u16, signs: u8) {
        const MAGNITUDES: [i8; 4] = [8, 25, 43, 0];
        for (i, integer) in self.integers[8 * at..][..8].iter_mut().enumerate() {
            let magnitude = MAGNITUDES[usize::from(vector >> (2 * i) & 3)];
            *integer = if signs >> i & 1 == 1 { -magnitude } else { magnitude };
        }
    }

    /// Vector `at` of four numbers, of three bits each, and a bit for each that is negative.
    fn put_four(&mut self, at: usize, vector: u16, signs: u8, magnitudes: [i8; 8]) {
        for (i, integer) in self.integers[4 * at..][..4].iter_mut().enumerate() {
            let magnitude = magnitudes[usize::from(vector >> (3 * i) & 7)];
            *integer = if signs >> i & 1 == 1 { -magnitude } else { magnitude };
        }
    }

    /// Vector `at` of eight numbers -1, 0 and 1, to each of which an eighth is added or from which it is taken: as eighths.
    fn put_eighths(&mut self, at: usize, vector: u16, is_less: bool) {
        for (i, integer) in self.integers[8 * at..][..8].iter_mut().enumerate() {
            let number = (vector >> (2 * i) & 3) as i8 - 1;
            *integer = 8 * number + if is_less { -1 } else { 1 };
        }
    }

    /// The factor of the `j`-th 32 numbers.
    fn share_32(&mut self, j: usize, factor: f32) {
        self.factors[2 * j..][..2].fill(factor);
    }

    fn iq2_xxs(&mut self, block: &[u8]) {
        let d = half(block, 0);
        for j in 0..8 {
            let bytes = &block[2 + 8 * j..][..8];
            let packed = word(bytes, 4);
            self.share_32(j, d * (0.5 + (packed >> 28) as f32) * 0.25);
            for (i, &code) in bytes[..4].iter().enumerate() {
                self.put_eight(4 * j + i, grids::IQ2_XXS[usize::from(code)], seven_signs(packed >> (7 * i)));
            }
        }
    }

    fn iq2_xs(&mut self, block: &[u8]) {
        let (d, scales) = (half(block, 0), &block[66..74]);
        for at in 0..32 {
            let code = short(block, 2 + 2 * at);
            self.put_eight(at, grids::IQ2_XS[usize::from(code & 511)], seven_signs(u32::from(code >> 9)));
        }
        self.share_16(d, scales);
    }

    fn iq2_s(&mut self, block: &[u8]) {
        let (codes, signs, high, scales) = (&block[2..34], &block[34..66], &block[66..74], &block[74..82]);
        for at in 0..32 {
            let index = u16::from(codes[at]) | u16::from(high[at / 4] >> (at % 4 * 2) & 3) << 8;
            self.put_eight(at, grids::IQ2_S[usize::from(index)], signs[at]);
        }
        self.share_16(half(block, 0), scales);
    }

    /// The factors of 16 numbers each, of four bits.
    fn share_16(&mut self, d: f32, scales: &[u8]) {
        for (k, factor) in self.factors.iter_mut().enumerate() {
            *factor = d * (0.5 + f32::from(scales[k / 2] >> (k % 2 * 4) & 15)) * 0.25;
        }
    }

    fn iq3_xxs(&mut self, block: &[u8]) {
        const MAGNITUDES: [i8; 8] = [4, 12, 20, 28, 36, 44, 52, 62];
        let (d, codes) = (half(block, 0), &block[2..66]);
        for j in 0..8 {
            let packed = word(block, 66 + 4 * j);
            self.share_32(j, d * (0.5 + (packed >> 28) as f32) * 0.5);
            for i in 0..4 {
                let signs = seven_signs(packed >> (7 * i));
                let at = 8 * j + 2 * i;
                self.put_four(at, grids::IQ3_XXS[usize::from(codes[at])], signs, MAGNITUDES);
                self.put_four(at + 1, grids::IQ3_XXS[usize::from(codes[at + 1])], signs >> 4, MAGNITUDES);
            }
        }
    }

    fn iq3_s(&mut self, block: &[u8]) {
        const MAGNITUDES: [i8; 8] = [1, 3, 5, 7, 9, 11, 13, 15];
        let (codes, high, signs, scales) = (&block[2..66], &block[66..74], &block[74..106], &block[106..110]);
        let d = half(block, 0);
        for at in 0..64 {
            let index = u16::from(codes[at]) | u16::from(high[at / 8] >> (at % 8) & 1) << 8;
            self.put_four(at, grids::IQ3_S[usize::from(index)], signs[at / 2] >> (at % 2 * 4), MAGNITUDES);
        }
        for j in 0..8 {
            self.share_32(j, d * f32::from(1 + 2 * (scales[j / 2] >> (j % 2 * 4) & 15)));
        }
    }

    fn iq1_s(&mut self, block: &[u8]) {
        let (d, codes) = (half(block, 0), &block[2..34]);
        for j in 0..8 {
            let packed = short(block, 34 + 2 * j);
            self.share_32(j, d * f32::from(2 * (packed >> 12 & 7) + 1) * 0.125);
            for i in 0..4 {
                let index = u16::from(codes[4 * j + i]) | (packed >> (3 * i) & 7) << 8;
                self.put_eighths(4 * j + i, grids::IQ1[usize::from(index)], packed >> 15 == 1);
            }
        }
    }

    fn iq1_m(&mut self, block: &[u8]) {
        let (codes, high) = (&block[..32], &block[32..48]);
        let scales: [u16; 4] = std::array::from_fn(|i| short(block, 48 + 2 * i));
        let d = (0..4).fold(0, |d, i| d | (scales[i] >> 12) << (4 * i));
        let d = from_f16(d.to_le_bytes());
        for (k, factor) in self.factors.iter_mut().enumerate() {
            *factor = d * f32::from(2 * (scales[k / 4] >> (k % 4 * 3) & 7) + 1) * 0.125;
        }
        for at in 0..32 {
            let bits = high[at / 2] >> (at % 2 * 4);
            let index = u16::from(codes[at]) | u16::from(bits & 7) << 8;
            self.put_eighths(at, grids::IQ1[usize::from(index)], bits & 8 != 0);
        }
    }

    fn tq1_0(&mut self, block: &[u8]) {
        const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
        self.factors = [half(block, 52); 16];
        // How many bytes, how many digits each of them has.
        let runs = [(0..32, 5), (32..48, 5), (48..52, 4)];
        let mut integers = self.integers.iter_mut();
        for (bytes, digits) in runs {
            for power in &POWERS[..digits] {
                for (integer, byte) in (&mut integers).take(bytes.len()).zip(&block[bytes.clone()]) {
                    *integer = ((u16::from(byte.wrapping_mul(*power)) * 3) >> 8) as i8 - 1;
                }
            }
        }
    }

    fn tq2_0(&mut self, block: &[u8]) {
        self.factors = [half(block, 64); 16];
        for (i, integer) in self.integers.iter_mut().enumerate() {
            *integer = (block[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) as i8 - 1;
        }
    }
}

/// Seven bits and one that makes the number of those that are set even.
fn seven_signs(bits: u32) -> u8 {
    let bits = (bits & 127) as u8;
    bits | ((bits.count_ones() & 1) as u8) << 7
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Backends that hold codes of four bits rely on it.
    #[test]
    fn a_table_has_every_integer_of_its_blocks_and_neighbours_share_their_factor() {
        let mut byte = 1u32;
        for kind in Block::ALL {
            let Some(table) = Lattice::table(kind) else { continue };
            for _ in 0..200 {
                let next = |_| {
                    byte = byte.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (byte >> 24) as u8
                };
                let block: Vec<u8> = (0..kind.bytes()).map(next).collect();
                let lattice = Lattice::of(kind, &block).expect("a lattice");
                assert!(lattice.integers.iter().all(|integer| table.contains(integer)), "{kind:?}");
                assert!(lattice.factors.chunks(2).all(|two| two[0].to_bits() == two[1].to_bits()), "{kind:?}");
            }
        }
    }
}

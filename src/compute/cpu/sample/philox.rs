//! Philox4x32-10: random numbers as a function of a key and a counter, without state.

use crate::cpu::lanes::Lanes;

const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const ROUNDS: usize = 10;

/// The block of one counter.
pub fn block(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let [a, b] = [wide(counter[0], MULTIPLIERS[0]), wide(counter[2], MULTIPLIERS[1])];
        counter = [high(b) ^ counter[1] ^ key[0], b as u32, high(a) ^ counter[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// The blocks of the counters `[first + lane, rest..]`: word `w` of a block is in its lane of `[w]`.
#[inline(always)]
pub fn blocks<L: Lanes>(lanes: L, first: u32, rest: [u32; 3], mut key: [u32; 2]) -> [L::U; 4] {
    let [a, b] = [lanes.splat_u32(MULTIPLIERS[0]), lanes.splat_u32(MULTIPLIERS[1])];
    let mut words =
        [lanes.count_from(first), lanes.splat_u32(rest[0]), lanes.splat_u32(rest[1]), lanes.splat_u32(rest[2])];
    for _ in 0..ROUNDS {
        let ([high_a, low_a], [high_b, low_b]) = (lanes.mul_wide(words[0], a), lanes.mul_wide(words[2], b));
        words = [
            lanes.xor(lanes.xor(high_b, words[1]), lanes.splat_u32(key[0])),
            low_b,
            lanes.xor(lanes.xor(high_a, words[3]), lanes.splat_u32(key[1])),
            low_a,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    words
}

fn wide(a: u32, b: u32) -> u64 {
    u64::from(a) * u64::from(b)
}

fn high(product: u64) -> u32 {
    (product >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Isa;
    use crate::cpu::lanes::{Kernel, dispatch};

    #[test]
    fn the_published_vectors_of_random123_come_out() {
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, expected) in cases {
            assert_eq!(block(counter, key), expected);
        }
    }

    /// Blocks of a vector of counters.
    struct Blocks<'a> {
        first: u32,
        words: &'a mut [[u32; 16]; 4],
        len: &'a mut usize,
    }

    impl Kernel for Blocks<'_> {
        fn run<L: Lanes>(self, lanes: L) {
            *self.len = L::N;
            for (to, word) in self.words.iter_mut().zip(blocks(lanes, self.first, REST, KEY)) {
                // SAFETY: no vector has more than 16 numbers.
                unsafe { lanes.store_u32(to.as_mut_ptr(), word) };
            }
        }
    }

    const REST: [u32; 3] = [7, 0xffff_0001, 3];
    const KEY: [u32; 2] = [0x1234_5678, 0x9abc_def0];

    #[test]
    fn blocks_side_by_side_are_those_one_by_one() {
        for isa in Isa::available() {
            for first in [0, 5, 37_984, u32::MAX - 3] {
                let (mut words, mut len) = ([[0; 16]; 4], 0);
                dispatch(*isa, Blocks { first, words: &mut words, len: &mut len });
                for i in 0..len {
                    let alone = block([first.wrapping_add(i as u32), REST[0], REST[1], REST[2]], KEY);
                    assert_eq!(words.map(|word| word[i]), alone, "{isa:?}");
                }
            }
        }
    }
}

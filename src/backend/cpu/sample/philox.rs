//! Philox4x32-10: random numbers as a function of a key and a counter, without state.

/// Blocks that are computed side by side.
pub const BLOCKS: usize = 16;

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

/// The blocks of the counters `[first + i, rest..]`: word `w` of block `i` is `[w][i]`.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
pub fn blocks(first: u32, rest: [u32; 3], mut key: [u32; 2]) -> [[u32; BLOCKS]; 4] {
    let mut words = [[0; BLOCKS], [rest[0]; BLOCKS], [rest[1]; BLOCKS], [rest[2]; BLOCKS]];
    for (i, word) in words[0].iter_mut().enumerate() {
        *word = first.wrapping_add(i as u32);
    }
    for _ in 0..ROUNDS {
        for i in 0..BLOCKS {
            let [a, b] = [wide(words[0][i], MULTIPLIERS[0]), wide(words[2][i], MULTIPLIERS[1])];
            words[0][i] = high(b) ^ words[1][i] ^ key[0];
            words[1][i] = b as u32;
            words[2][i] = high(a) ^ words[3][i] ^ key[1];
            words[3][i] = a as u32;
        }
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    words
}

#[inline(always)]
fn wide(a: u32, b: u32) -> u64 {
    u64::from(a) * u64::from(b)
}

#[inline(always)]
fn high(product: u64) -> u32 {
    (product >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn blocks_side_by_side_are_those_one_by_one() {
        let (rest, key) = ([7, 0xffff_0001, 3], [0x1234_5678, 0x9abc_def0]);
        for first in [0, 5, 37_984, u32::MAX - 3] {
            let words = blocks(first, rest, key);
            for i in 0..BLOCKS as u32 {
                let alone = block([first.wrapping_add(i), rest[0], rest[1], rest[2]], key);
                assert_eq!(words.map(|word| word[i as usize]), alone);
            }
        }
    }
}

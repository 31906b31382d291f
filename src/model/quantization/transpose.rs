//! Codes that a file has with the outputs of a layer side by side, rewritten with the inputs of an output side by side.

use std::ops::Range;

/// Columns of words that are rewritten together: those of a cache line.
const LANES: usize = 16;

/// Rewrites words of consecutive inputs, `[words, outputs]`, as the words of the outputs `range`, `[range, words]`.
pub fn words(from: &[u8], outputs: usize, range: Range<usize>, to: &mut [u8]) {
    let from = from.as_chunks::<4>().0;
    let to = to.as_chunks_mut::<4>().0;
    let words = from.len() / outputs.max(1);
    for first in range.clone().step_by(LANES) {
        let last = range.end.min(first + LANES);
        for (at, from) in from.chunks_exact(outputs).enumerate() {
            for (output, word) in (first..last).zip(&from[first..last]) {
                to[(output - range.start) * words + at] = *word;
            }
        }
    }
}

/// Rewrites words of eight outputs in the order of AWQ, `[inputs, outputs / 8]`, as codes of 4 bits of the outputs `range`,
/// `[range, inputs / 2]`. The number of inputs is even.
pub fn awq(from: &[u8], outputs: usize, range: Range<usize>, to: &mut [u8]) {
    let from = from.as_chunks::<4>().0;
    let each = outputs / 8;
    let inputs = from.len() / each.max(1);
    let columns = range.start / 8..range.end.div_ceil(8);
    for first in columns.clone().step_by(LANES) {
        let lanes = LANES.min(columns.end - first);
        for at in (0..inputs).step_by(8) {
            let taken = 8.min(inputs - at);
            let mut tile = [[0u32; LANES]; 8];
            for (input, tile) in tile.iter_mut().enumerate().take(taken) {
                let row = &from[(at + input) * each + first..][..lanes];
                tile.iter_mut().zip(row).for_each(|(to, &word)| *to = u32::from_le_bytes(word));
            }
            transpose_nibbles(&mut tile);
            for (nibble, tile) in tile.iter().enumerate() {
                for (lane, word) in tile.iter().enumerate().take(lanes) {
                    let output = (first + lane) * 8 + ORDER[nibble];
                    if range.contains(&output) {
                        let start = ((output - range.start) * inputs + at) / 2;
                        to[start..start + taken / 2].copy_from_slice(&word.to_le_bytes()[..taken / 2]);
                    }
                }
            }
        }
    }
}

/// The output, of the eight of a word, that each nibble of AWQ is.
const ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

/// Nibble `i` of word `j` becomes nibble `j` of word `i`, in each lane.
fn transpose_nibbles(tile: &mut [[u32; LANES]; 8]) {
    for (distance, mask) in [(4, 0x0000_ffffu32), (2, 0x00ff_00ff), (1, 0x0f0f_0f0f)] {
        for low in (0..8).filter(|word| word & distance == 0) {
            let (before, after) = tile.split_at_mut(low + distance);
            for (low, high) in before[low].iter_mut().zip(&mut after[0]) {
                let swapped = (*low >> (4 * distance) ^ *high) & mask;
                *high ^= swapped;
                *low ^= swapped << (4 * distance);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nibble(row: usize, col: usize) -> u8 {
        ((row * 7 + col * 3 + row * col) % 16) as u8
    }

    #[test]
    fn codes_of_awq_become_rows_of_codes() {
        for (outputs, inputs, range) in [(32, 64, 0..32), (160, 10, 0..160), (32, 24, 8..24), (24, 8, 3..13)] {
            let mut from = Vec::new();
            for input in 0..inputs {
                for word in 0..outputs / 8 {
                    let code = |i: usize| u32::from(nibble(word * 8 + ORDER[i], input)) << (4 * i);
                    from.extend((0..8).map(code).sum::<u32>().to_le_bytes());
                }
            }
            let mut to = vec![0; range.len() * inputs / 2];
            awq(&from, outputs, range.clone(), &mut to);
            for (row, to) in range.clone().zip(to.chunks_exact(inputs / 2)) {
                for (pair, byte) in to.iter().enumerate() {
                    let wanted = nibble(row, 2 * pair) | nibble(row, 2 * pair + 1) << 4;
                    assert_eq!(*byte, wanted, "{outputs} {inputs} {range:?}: {row} {pair}");
                }
            }
        }
    }

    #[test]
    fn words_of_inputs_become_rows_of_words() {
        let from: Vec<u8> = (0..3 * 40).flat_map(|word: u32| word.to_le_bytes()).collect();
        let mut to = vec![0; 20 * 3 * 4];
        words(&from, 40, 5..25, &mut to);
        let found: Vec<u32> = to.as_chunks::<4>().0.iter().map(|&word| u32::from_le_bytes(word)).collect();
        let wanted: Vec<u32> = (5..25).flat_map(|output| (0..3).map(move |word| word * 40 + output)).collect();
        assert_eq!(found, wanted);
    }
}

//! The merges of a SentencePiece tokenizer, which its GGUF file does not have.
//!
//! SentencePiece joins the two neighbours whose union has the best score, wherever it comes from. A tokenizer.json joins by a list of
//! pairs: all pairs whose union is a token, in the order of its score. A vocabulary may have as many pairs as its tokens have
//! letters. Both the places where tokens can be split and the pairs are therefore limited, the former before anything is
//! allocated.

use base::limits;
use std::cmp::Reverse;
use std::collections::HashMap;

/// A token of more bytes is not made of others. SentencePiece learns pieces of at most 16 characters; the longest tokens that are added to
/// a model are runs of 31 spaces, of three bytes each.
const PIECE_BYTES_MAX: usize = 128;

/// Places at which a token can be divided into two.
pub fn divisions(text: &str) -> usize {
    if text.len() > PIECE_BYTES_MAX { 0 } else { text.chars().count().saturating_sub(1) }
}

/// A pair of tokens whose union is a token.
struct Pair {
    /// The index of the union among the pieces.
    union: u32,
    left: u32,
    right: u32,
    /// Characters of both, of which a piece has few.
    left_chars: u8,
    right_chars: u8,
}

/// All pairs of tokens whose union is a token, by their ids: in the order of the score of the union, then of the lengths of both in
/// characters, the greater first. `pieces` have a spelling, an id and a score each. `None` where there are more than
/// [`limits::GGUF_MERGES`].
pub fn from_scores(pieces: &[(&str, u32, f64)]) -> Option<Vec<(u32, u32)>> {
    let ids: HashMap<&str, u32> = pieces.iter().map(|&(text, id, _)| (text, id)).collect();
    let mut found = Vec::new();
    for (union, &(text, _, _)) in pieces.iter().enumerate() {
        let divisions = divisions(text);
        for (left_chars, (at, _)) in text.char_indices().take(divisions + 1).enumerate().skip(1) {
            let (left, right) = text.split_at(at);
            let Some(&left) = ids.get(left) else { continue };
            let Some(&right) = ids.get(right) else { continue };
            if found.len() == limits::GGUF_MERGES {
                return None;
            }
            let right_chars = (divisions + 1 - left_chars) as u8;
            found.push(Pair { union: union as u32, left, right, left_chars: left_chars as u8, right_chars });
        }
    }
    let score = |pair: &Pair| pieces[pair.union as usize].2;
    let others = |pair: &Pair| (Reverse((pair.left_chars, pair.right_chars)), pair.union, pair.left, pair.right);
    // In place, because a stable sort needs as much memory again.
    found.sort_unstable_by(|a, b| score(b).total_cmp(&score(a)).then_with(|| others(a).cmp(&others(b))));
    Some(found.into_iter().map(|pair| (pair.left, pair.right)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_come_in_the_order_of_the_score_of_their_union() {
        let pieces =
            [("a", 0, -1.0), ("b", 1, -2.0), ("ab", 2, -5.0), ("aab", 3, -4.0), ("aa", 4, -4.5), ("é", 5, 0.0)];
        assert_eq!(from_scores(&pieces), Some(vec![(4, 1), (0, 2), (0, 0), (0, 1)]));
    }

    #[test]
    fn equal_scores_keep_the_order_of_the_pieces() {
        let pieces = [("b", 9, 0.0), ("é", 1, 0.0), ("éb", 2, 0.0), ("bé", 3, 0.0), ("ébé", 4, 0.0)];
        assert_eq!(from_scores(&pieces), Some(vec![(2, 1), (1, 3), (1, 9), (9, 1)]));
    }

    #[test]
    fn a_long_token_is_not_divided() {
        assert_eq!([divisions(""), divisions("é"), divisions("éaé"), divisions(&"a".repeat(129))], [0, 0, 2, 0]);
    }

    #[test]
    fn more_pairs_than_are_read_are_not_collected() {
        // All texts of up to 16 letters a and b: 131,070 tokens with 1.8 million pairs.
        let texts: Vec<String> = (1..=16).flat_map(|len| (0..1u32 << len).map(move |bits| word(bits, len))).collect();
        let pieces: Vec<_> = texts.iter().enumerate().map(|(id, text)| (text.as_str(), id as u32, 0.0)).collect();
        assert!(texts.iter().map(|text| divisions(text)).sum::<usize>() <= limits::GGUF_DIVISIONS);
        assert_eq!(from_scores(&pieces), None);
    }

    fn word(bits: u32, len: u32) -> String {
        (0..len).map(|at| if bits >> at & 1 == 0 { 'a' } else { 'b' }).collect()
    }
}

//! The merges of a SentencePiece tokenizer, which its GGUF file does not have.
//!
//! SentencePiece joins the two neighbours whose union has the best score, wherever it comes from. A tokenizer.json joins by a list of
//! pairs: all pairs whose union is a token, in the order of its score.

use std::cmp::Reverse;
use std::collections::HashMap;

/// Longer tokens are made of pairs too, but none that a text would have: runs of dashes or of spaces have at most as many bytes.
const PIECE_BYTES_MAX: usize = 256;

/// All pairs of tokens whose union is a token: by the score of the union, then by the lengths of both in characters, the greater first.
/// `pieces` have a spelling, an id and a score each.
pub fn from_scores<'a>(pieces: &[(&'a str, usize, f64)]) -> Vec<(&'a str, &'a str)> {
    let ids: HashMap<&str, usize> = pieces.iter().map(|&(text, id, _)| (text, id)).collect();
    let mut found = Vec::new();
    for &(text, _, score) in pieces.iter().filter(|(text, _, _)| text.len() <= PIECE_BYTES_MAX) {
        let begin = found.len();
        for (at, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(at);
            if let (Some(&left_id), Some(&right_id)) = (ids.get(left), ids.get(right)) {
                found.push((score, (left, right), (left_id, right_id)));
            }
        }
        found[begin..].sort_by_key(|&(_, _, ids)| ids);
    }
    // Sorting keeps the order of equals.
    let mut keyed: Vec<_> = found
        .into_iter()
        .map(|(score, pair, _)| ((score, pair.0.chars().count(), pair.1.chars().count()), pair))
        .collect();
    keyed.sort_by(|((a, a_left, a_right), _), ((b, b_left, b_right), _)| {
        b.total_cmp(a).then(Reverse(a_left).cmp(&Reverse(b_left))).then(Reverse(a_right).cmp(&Reverse(b_right)))
    });
    keyed.into_iter().map(|(_, pair)| pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_come_in_the_order_of_the_score_of_their_union() {
        let pieces =
            [("a", 0, -1.0), ("b", 1, -2.0), ("ab", 2, -5.0), ("aab", 3, -4.0), ("aa", 4, -4.5), ("é", 5, 0.0)];
        assert_eq!(from_scores(&pieces), [("aa", "b"), ("a", "ab"), ("a", "a"), ("a", "b")]);
    }
}

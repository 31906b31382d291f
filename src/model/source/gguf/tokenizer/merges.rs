//! The merges of a SentencePiece tokenizer, which its GGUF file does not have.
//!
//! SentencePiece joins the two neighbours whose union has the best score, wherever it comes from. A tokenizer.json joins by a list of
//! pairs: all pairs whose union is a token, in the order of its score.

use std::collections::HashMap;

/// A token of more bytes is not made of others. SentencePiece learns pieces of at most 16 characters; the longest tokens that are added to
/// a model are runs of 31 spaces, of three bytes each.
const PIECE_BYTES_MAX: usize = 128;

/// All pairs of tokens whose union is a token, by their ids: in the order of the score of the union, then of the lengths of both in
/// characters, the greater first. `pieces` have a spelling, an id and a score each.
pub fn from_scores(pieces: &[(&str, usize, f64)]) -> Vec<(usize, usize)> {
    let ids: HashMap<&str, usize> = pieces.iter().map(|&(text, id, _)| (text, id)).collect();
    let mut found = Vec::new();
    for &(text, _, score) in pieces.iter().filter(|(text, _, _)| text.len() <= PIECE_BYTES_MAX) {
        let begin = found.len();
        for (at, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(at);
            if let (Some(&left_id), Some(&right_id)) = (ids.get(left), ids.get(right)) {
                found.push(((score, left.chars().count(), right.chars().count()), (left_id, right_id)));
            }
        }
        found[begin..].sort_by_key(|&(_, ids)| ids);
    }
    // Sorting keeps the order of equals.
    found.sort_by(|((a, a_left, a_right), _), ((b, b_left, b_right), _)| {
        b.total_cmp(a).then(b_left.cmp(a_left)).then(b_right.cmp(a_right))
    });
    found.into_iter().map(|(_, ids)| ids).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_come_in_the_order_of_the_score_of_their_union() {
        let pieces =
            [("a", 0, -1.0), ("b", 1, -2.0), ("ab", 2, -5.0), ("aab", 3, -4.0), ("aa", 4, -4.5), ("é", 5, 0.0)];
        assert_eq!(from_scores(&pieces), [(4, 1), (0, 2), (0, 0), (0, 1)]);
    }
}

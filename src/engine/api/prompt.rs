//! What is a prompt made of, and which blocks of two prompts hold the same?
//!
//! A prompt is a list of parts. The rows of an embedding take the places of tokens: a sequence has [`PLACE`] for each of them, and the id of the embedding is
//! a part of what a cached block is found by. The API offers tokens alone.

use base::TokenId;
use std::hash::{Hash, Hasher};

/// A part of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptPart {
    /// Token ids.
    Tokens(Vec<TokenId>),
    /// Rows that were computed elsewhere, such as those of an image.
    #[cfg_attr(not(test), expect(dead_code, reason = "the API offers tokens alone"))]
    Embeddings {
        /// Stands for the numbers: a hash of them.
        id: u128,
        /// How many there are.
        rows: usize,
    },
}

/// The token that stands where a row of an embedding is.
pub const PLACE: TokenId = 0;

/// Where a sequence has the rows of an embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbeddingRows {
    id: u128,
    start: usize,
    rows: usize,
}

/// The first tokens of a sequence, and the embeddings among them.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// [`PLACE`] where a row of an embedding is.
    pub tokens: &'a [TokenId],
    /// In order.
    pub embeddings: &'a [EmbeddingRows],
}

/// The tokens of a prompt, and the embeddings among them.
pub fn joined(parts: Vec<PromptPart>) -> (Vec<TokenId>, Box<[EmbeddingRows]>) {
    let (mut tokens, mut embeddings) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            PromptPart::Tokens(more) if tokens.is_empty() => tokens = more,
            PromptPart::Tokens(more) => tokens.extend(more),
            PromptPart::Embeddings { id, rows } => {
                embeddings.push(EmbeddingRows { id, start: tokens.len(), rows });
                tokens.resize(tokens.len() + rows, PLACE);
            }
        }
    }
    (tokens, embeddings.into())
}

impl<'a> From<&'a [TokenId]> for Content<'a> {
    fn from(tokens: &'a [TokenId]) -> Content<'a> {
        Content { tokens, embeddings: &[] }
    }
}

impl<'a, const N: usize> From<&'a [TokenId; N]> for Content<'a> {
    fn from(tokens: &'a [TokenId; N]) -> Content<'a> {
        Content::from(&tokens[..])
    }
}

impl Content<'_> {
    /// Whether the `size` tokens from `start` on have rows of an embedding among them. If so, `hasher` gets which ones.
    pub fn hash_embeddings(&self, start: usize, size: usize, hasher: &mut impl Hasher) -> bool {
        let within = self.embeddings.iter().filter(|rows| rows.start < start + size && start < rows.start + rows.rows);
        // Where a row is in its embedding follows from where both are in the sequence, which the prefix before tells.
        within.inspect(|rows| (rows.id, rows.start, rows.rows).hash(hasher)).count() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::sampling_params::SamplingParams;
    use crate::options::PrefixCache;
    use crate::schedule::blocks::{BlockManager, WindowEntries};
    use crate::schedule::sequence::tests::sequence_of;

    const SIZE: usize = 4;

    /// Runs a prompt with an embedding of 6 rows between 3 and 4 tokens. Returns how many of its tokens were cached.
    fn cached(pool: &mut BlockManager, id: u128) -> usize {
        let tokens = |first| PromptPart::Tokens((first..first + 4).collect());
        let parts = vec![tokens(1), PromptPart::Embeddings { id, rows: 6 }, tokens(7)];
        let mut it = sequence_of(1, parts, 40, SamplingParams::default());
        let cached = it.try_start(pool, (&[], WindowEntries::default()), 0).expect("blocks are free");
        it.in_flight = it.tokens.len() - cached;
        it.collect(it.in_flight, pool);
        it.table.release(pool);
        cached
    }

    #[test]
    fn equal_embeddings_share_blocks_and_others_share_what_is_before_them() {
        let mut pool = BlockManager::new(32, SIZE, PrefixCache::On).unwrap();
        assert_eq!(cached(&mut pool, 5), 0);
        assert_eq!(cached(&mut pool, 5), 12, "of 14 tokens, all full blocks");
        assert_eq!(cached(&mut pool, 6), 4, "the tokens before");
        assert_eq!(cached(&mut pool, 6), 12);
        // Tokens that look like the places of an embedding are none.
        let mut parts: Vec<TokenId> = (1..5).collect();
        parts.extend([PLACE; 6]);
        parts.extend(7..11);
        let mut it = sequence_of(1, vec![PromptPart::Tokens(parts)], 40, SamplingParams::default());
        assert_eq!(it.try_start(&mut pool, (&[], WindowEntries::default()), 0), Some(4));
    }
}

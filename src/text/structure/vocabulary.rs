//! A model's tokens as the crate `llguidance` asks for them: what each spells, and how a text is cut into them.
//!
//! The crate `toktrie_hf_tokenizers` 1.9 does the same, but for version 0.21 of the crate `tokenizers`: with it, the library would
//! contain that crate twice, and a model two copies of its vocabulary. It also panics on a token that begins with `<0x` and is no byte.

use crate::tokenizer::{AddedTokens, Encoding, SpelledTokens, Tokenizer};
use base::TokenId;
use base::error::{Error, Result};
use llguidance::toktrie::{INVALID_TOKEN, TokRxInfo, TokTrie, TokenizerEnv};
use std::sync::Arc;

/// Bytes of the longest token that the crate's tree holds. A longer one is never chosen.
const TOKEN_BYTES_MAX: usize = 1000;

/// Bytes of a text without choice that are cut into tokens before each of these: all of a long one would take longer than
/// a step.
const FORCED_BYTES: usize = 2048;

/// A text without marks, taken as it stands.
const PLAIN: Encoding = Encoding { added: AddedTokens::Omit, spelled: SpelledTokens::Text };

/// What the crate needs of a tokenizer.
pub(super) struct Vocabulary {
    tokenizer: Arc<Tokenizer>,
    trie: TokTrie,
    cutting: Cutting,
}

/// Which tokens a text is made of where the grammar leaves one text only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cutting {
    /// Those that the tokenizer makes of it: what the model has learnt.
    AsLearnt,
    /// Any that spell it: the model chooses. For tokenizers to which a text means something else at its beginning.
    Free,
}

impl Vocabulary {
    /// The tokens of a model of `vocab_size` tokens.
    pub fn new(tokenizer: Arc<Tokenizer>, vocab_size: usize) -> Result<Vocabulary> {
        if tokenizer.token_bytes(0).is_none() {
            let what = "structure: the tokenizer's decoder does not define the text of a single token".to_owned();
            return Err(Error::Unsupported { what });
        }
        let words: Vec<Vec<u8>> = (0..vocab_size as TokenId).map(|token| word(&tokenizer, token)).collect();
        // An answer ends by tokens that the sequence knows, so the crate is told of none.
        let trie = TokTrie::from(&TokRxInfo::new(vocab_size as u32, INVALID_TOKEN), &words);
        let mut vocabulary = Vocabulary { tokenizer, trie, cutting: Cutting::Free };
        if PROBES.iter().all(|probe| vocabulary.learnt(probe).is_some()) {
            vocabulary.cutting = Cutting::AsLearnt;
        }
        Ok(vocabulary)
    }

    /// The tokens that the tokenizer makes of `text`, if they spell nothing else.
    fn learnt(&self, text: &str) -> Option<Vec<TokenId>> {
        let tokens = self.tokenizer.encode(text, PLAIN).ok()?;
        (self.trie.decode_raw(&tokens) == text.as_bytes()).then_some(tokens)
    }
}

/// Texts that a tokenizer with a rule for their beginning, or for what is no letter, would change.
const PROBES: &[&str] = &["word", " word", "{\"", "12", "\n\n  x", "\u{e9}\u{4e2d}"];

/// What a token spells in a grammar. The crate tells tokens that are no text by a byte that no text has.
fn word(tokenizer: &Tokenizer, token: TokenId) -> Vec<u8> {
    let bytes = tokenizer.token_bytes(token).unwrap_or_default();
    if bytes.len() > TOKEN_BYTES_MAX {
        return Vec::new();
    }
    match tokenizer.is_mark(token) {
        true => [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat(),
        false => bytes.to_vec(),
    }
}

/// The first bytes of a text, at most [`FORCED_BYTES`] and whole characters of it.
fn beginning(bytes: &[u8]) -> &[u8] {
    let is_inside = |&index: &usize| bytes[index] & 0xC0 == 0x80;
    match bytes.len() > FORCED_BYTES {
        true => {
            &bytes[..(FORCED_BYTES - 3..=FORCED_BYTES).rev().find(|index| !is_inside(index)).unwrap_or(FORCED_BYTES)]
        }
        false => bytes,
    }
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        // Of a text without choice only the first token is used.
        let bytes = beginning(bytes);
        self.trie.tokenize_with_greedy_fallback(bytes, |text| {
            self.learnt(text).unwrap_or_else(|| self.trie.greedy_tokenize(text.as_bytes()))
        })
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.cutting == Cutting::AsLearnt
    }
}

//! Text to tokens and back, by the model folder's tokenizer.json.

use crate::batch::TokenId;
use crate::error::Result;
use std::path::Path;

/// The tokenizer of a model folder. May be used from any thread.
pub struct Tokenizer {}

/// What happens to special tokens, such as `<|im_end|>`, on the way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// Whether the tokens that begin and end a text are added.
    pub added: AddedTokens,
    /// Whether the spelling of a special token in the text becomes that token.
    pub spelled: SpelledTokens,
}

/// Whether the tokens that begin and end a text are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddedTokens {
    /// As the tokenizer's post-processor says.
    Add,
    /// The text alone.
    Omit,
}

/// Whether the spelling of a special token in the text becomes that token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpelledTokens {
    /// It becomes the token.
    Parse,
    /// It stays text: what users type cannot forge a turn.
    Text,
}

/// What happens to special tokens on the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialTokens {
    /// They leave no text.
    Skip,
    /// They are spelled out.
    Keep,
}

/// The text of one completion as its tokens arrive.
#[derive(Debug, Default)]
pub struct TextStream {}

impl Tokenizer {
    /// Reads tokenizer.json, or says `None` when the folder has none.
    pub fn open(folder: &Path) -> Result<Option<Tokenizer>> {
        let _ = folder;
        todo!()
    }

    /// The tokens of `text`.
    pub fn encode(&self, text: &str, encoding: Encoding) -> Result<Vec<TokenId>> {
        let _ = (text, encoding);
        todo!()
    }

    /// The text of `tokens`; an invalid sequence becomes U+FFFD.
    pub fn decode(&self, tokens: &[TokenId], special: SpecialTokens) -> Result<String> {
        let _ = (tokens, special);
        todo!()
    }
}

impl TextStream {
    /// Appends to `out` the whole characters that `token` completes. Allocates nothing but what `out` needs.
    pub fn push(&mut self, tokenizer: &Tokenizer, token: TokenId, out: &mut String) {
        let _ = (tokenizer, token, out);
        todo!()
    }

    /// Appends what is left when no token follows: U+FFFD for a character that was never completed.
    pub fn finish(&mut self, tokenizer: &Tokenizer, out: &mut String) {
        let _ = (tokenizer, out);
        todo!()
    }
}

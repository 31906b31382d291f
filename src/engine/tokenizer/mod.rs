//! Text to tokens and back, by the model folder's tokenizer.json.
//!
//! The crate `tokenizers` reads the file and encodes. Decoding runs once for every generated token, so it does not go
//! through the crate where the decoder is of a common kind: [`token_table`] holds what each token spells.
//!
//! Whether spelled special tokens are parsed is a setting of the crate's added vocabulary, and one instance serves all
//! threads. A second added vocabulary with the other setting is a few kilobytes; a second tokenizer would be tens of
//! megabytes. So the text-only path runs the stages of the crate's `encode` over that second vocabulary.

mod text_stream;
mod token_table;

pub use text_stream::TextStream;

use crate::batch::TokenId;
use crate::error::{Error, Result};
use serde::de::IgnoredAny;
use std::path::Path;
use token_table::TokenTable;
use tokenizers::tokenizer::{AddedVocabulary, Encoding as CrateEncoding, Model, OffsetType, PreTokenizer};

/// The tokenizer of a model folder. May be used from any thread.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// The added tokens of `inner`, but spelled special tokens stay text.
    text_only: AddedVocabulary,
    table: TokenTable,
}

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
    ///
    /// Added tokens that tokenizer.json does not call special, such as `<think>` in some models, are parsed all the
    /// same. So is what the model's own vocabulary spells, as transformers has it with `split_special_tokens`.
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

impl Tokenizer {
    /// Reads tokenizer.json, or says `None` when the folder has none.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the file cannot be read, [`Error::ModelFile`] when it is not a tokenizer.
    pub fn open(folder: &Path) -> Result<Option<Tokenizer>> {
        let path = folder.join("tokenizer.json");
        let json = match std::fs::read(&path) {
            Ok(json) => json,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::Io { path, source }),
        };
        Tokenizer::from_json(&json).map(Some).map_err(|reason| Error::ModelFile { path, reason })
    }

    /// A tokenizer from the bytes of a tokenizer.json; the error says what is wrong with them.
    fn from_json(json: &[u8]) -> std::result::Result<Tokenizer, String> {
        // The crate panics where JSON breaks off inside the decoder, so the syntax is checked first.
        serde_json::from_slice::<IgnoredAny>(json).map_err(|error| format!("not JSON: {error}"))?;
        let mut inner = tokenizers::Tokenizer::from_bytes(json).map_err(|error| format!("not a tokenizer: {error}"))?;
        // Some files keep the truncation and padding of the last training run; a prompt is never cut or filled silently.
        inner.with_truncation(None).map_err(|error| error.to_string())?;
        inner.with_padding(None);
        inner.set_encode_special_tokens(false);
        let mut text_only = inner.get_added_vocabulary().clone();
        text_only.set_encode_special_tokens(true);
        let table = TokenTable::new(&inner);
        Ok(Tokenizer { inner, text_only, table })
    }

    /// The tokens of `text`.
    ///
    /// A byte of text becomes one token at most in the tokenizers of today's models, plus the few that the
    /// post-processor adds. A normalizer may break this rule for rare characters: NFC makes up to three times the bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Tokenizer`] when the model of the tokenizer has no token for the text and none for the unknown.
    pub fn encode(&self, text: &str, encoding: Encoding) -> Result<Vec<TokenId>> {
        let add_special_tokens = encoding.added == AddedTokens::Add;
        let encoded = match encoding.spelled {
            SpelledTokens::Parse => self.inner.encode_fast(text, add_special_tokens),
            SpelledTokens::Text => self
                .encode_text_only(text)
                .and_then(|encoded| self.inner.post_process(encoded, None, add_special_tokens)),
        };
        encoded
            .map(|encoded| encoded.get_ids().to_vec())
            .map_err(|error| Error::Tokenizer { reason: error.to_string() })
    }

    /// The stages of the crate's `encode` up to post-processing, over the added vocabulary that leaves special tokens
    /// alone.
    fn encode_text_only(&self, text: &str) -> tokenizers::Result<CrateEncoding> {
        let mut pieces = self.text_only.extract_and_normalize(self.inner.get_normalizer(), text);
        if let Some(pre_tokenizer) = self.inner.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces)?;
        }
        self.inner.get_model().tokenize_in_pretokenized(&mut pieces, None)?;
        pieces.into_encoding(None, 0, OffsetType::None)
    }

    /// The text of `tokens`; an invalid sequence becomes U+FFFD, an id beyond the vocabulary leaves no text.
    ///
    /// Equals what a [`TextStream`] gives piece by piece. Byte tokens of a sentencepiece-style tokenizer that are no
    /// UTF-8 become one U+FFFD each, as in transformers; but whole characters among them are kept, where transformers
    /// would replace them too, and so would have to hold text back.
    ///
    /// # Errors
    ///
    /// [`Error::Tokenizer`] when the decoder refuses.
    pub fn decode(&self, tokens: &[TokenId], special: SpecialTokens) -> Result<String> {
        if self.table.streaming().is_none() {
            return self.decode_by_crate(tokens, special);
        }
        let mut text = String::with_capacity(tokens.len() * 4);
        let mut stream = TextStream::default();
        for &token in tokens {
            stream.push_as(self, token, special, &mut text);
        }
        stream.finish(self, &mut text);
        Ok(text)
    }

    fn decode_by_crate(&self, tokens: &[TokenId], special: SpecialTokens) -> Result<String> {
        self.inner
            .decode(tokens, special == SpecialTokens::Skip)
            .map_err(|error| Error::Tokenizer { reason: error.to_string() })
    }

    /// The id of the token that is spelled so in tokenizer.json, such as `<|im_end|>`.
    pub fn token_id(&self, spelling: &str) -> Option<TokenId> {
        self.inner.token_to_id(spelling)
    }

    /// One past the greatest token id. The model's embedding may have more rows than that, for alignment.
    pub fn vocab_size(&self) -> usize {
        self.table.len()
    }

    /// What `token` adds to a text when it is not the first. `None` when there is no such token, or when the decoder
    /// does not work token by token. The bytes need not be UTF-8.
    pub fn token_bytes(&self, token: TokenId) -> Option<&[u8]> {
        self.table.streaming().and_then(|_| self.table.bytes(token))
    }

    /// Whether `token` is special: it marks structure and leaves no text in a stream.
    pub fn is_special(&self, token: TokenId) -> bool {
        self.table.is_special(token)
    }
}

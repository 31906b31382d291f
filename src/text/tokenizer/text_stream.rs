//! The text of one completion, piece by piece, whole characters only.
//!
//! Bytes that may yet become a character wait, three at most; everything else is appended at once. A decoder without a
//! table keeps the tokens of the last two pieces instead and decodes them anew, because only their context says what a
//! token adds.

use super::token_table::{Beginning, IllFormed, Streaming};
use super::{SpecialTokens, Tokenizer};
use base::TokenId;

/// Without a table: tokens that wait for the end of a character, or leave no text. More than that do not wait, so that the
/// time of a step does not grow with the completion.
const WAITING_MAX: usize = 64;

/// The text of one completion as its tokens arrive. A stream belongs to one tokenizer.
#[derive(Debug, Default)]
pub struct TextStream {
    /// Bytes that begin a character, `pending[..pending_len]`.
    pending: [u8; 4],
    pending_len: usize,
    /// Whether the text has begun, so that the rule for its beginning is over.
    begun: bool,
    /// Spaces dropped from the beginning so far.
    spaces_dropped: u8,
    /// Without a table: the tokens of the last piece and those that followed it.
    window: Vec<TokenId>,
    /// Of these, tokens whose text was appended.
    told: usize,
}

impl TextStream {
    /// A text that continues another one, as a completion continues its prompt: a space that a decoder removes from the beginning
    /// of a text is kept, so that every token leaves exactly its [`token_bytes`](Tokenizer::token_bytes).
    pub fn continuing() -> TextStream {
        TextStream { begun: true, ..TextStream::default() }
    }

    /// Appends to `out` the whole characters that `token` completes; special tokens leave none.
    ///
    /// Allocates nothing but what `out` needs, if the decoder is byte-level or of the sentencepiece kind. With any other
    /// decoder the text differs from the whole decode where a token changes the text of earlier ones.
    pub fn push(&mut self, tokenizer: &Tokenizer, token: TokenId, out: &mut String) {
        self.push_as(tokenizer, token, SpecialTokens::Skip, out);
    }

    /// The same, with a choice about special tokens.
    pub fn push_as(&mut self, tokenizer: &Tokenizer, token: TokenId, special: SpecialTokens, out: &mut String) {
        if special == SpecialTokens::Skip && tokenizer.table.is_special(token) {
            return;
        }
        let Some(streaming) = tokenizer.table.streaming() else {
            self.window.push(token);
            return self.tell(tokenizer, Rest::MayFollow, out);
        };
        let Some(bytes) = tokenizer.table.bytes(token) else { return };
        if streaming.beginning == Beginning::ByCrate && !self.begun {
            self.begun = true;
            // The decoders read from a table cannot fail on a token that exists.
            out.push_str(&tokenizer.decode_by_crate(&[token], SpecialTokens::Keep).unwrap_or_default());
            return;
        }
        let mut bytes = bytes;
        while let [first, rest @ ..] = bytes
            && self.pending_len > 0
        {
            let mut joined = self.pending;
            joined[self.pending_len] = *first;
            let joined_len = std::mem::take(&mut self.pending_len) + 1;
            self.append(&joined[..joined_len], streaming, out);
            bytes = rest;
        }
        self.append(bytes, streaming, out);
    }

    /// Appends what is left when no token follows: U+FFFD for a character that was never completed.
    pub fn finish(&mut self, tokenizer: &Tokenizer, out: &mut String) {
        match tokenizer.table.streaming() {
            None => self.tell(tokenizer, Rest::Ended, out),
            Some(streaming) => {
                let pending = std::mem::take(&mut self.pending_len);
                self.replace(pending, streaming, out);
            }
        }
    }

    /// Appends the characters of `bytes`, which nothing pending precedes. A character cut by their end becomes pending.
    fn append(&mut self, bytes: &[u8], streaming: Streaming, out: &mut String) {
        let mut seen = 0;
        for chunk in bytes.utf8_chunks() {
            self.append_text(chunk.valid(), streaming, out);
            let invalid = chunk.invalid();
            seen += chunk.valid().len() + invalid.len();
            let cut = seen == bytes.len() && std::str::from_utf8(invalid).is_err_and(|e| e.error_len().is_none());
            if cut {
                self.pending[..invalid.len()].copy_from_slice(invalid);
                self.pending_len = invalid.len();
            } else {
                self.replace(invalid.len(), streaming, out);
            }
        }
    }

    /// Appends what stands for `bytes` bytes that are no character.
    fn replace(&mut self, bytes: usize, streaming: Streaming, out: &mut String) {
        let replacements = match streaming.ill_formed {
            IllFormed::OnePerSequence => bytes.min(1),
            IllFormed::OnePerByte => bytes,
        };
        for _ in 0..replacements {
            self.append_text("\u{FFFD}", streaming, out);
        }
    }

    fn append_text(&mut self, mut text: &str, streaming: Streaming, out: &mut String) {
        if let Beginning::StripSpaces(most) = streaming.beginning
            && !self.begun
        {
            while self.spaces_dropped < most
                && let Some(rest) = text.strip_prefix(' ')
            {
                self.spaces_dropped += 1;
                text = rest;
            }
            self.begun = self.spaces_dropped == most || !text.is_empty();
        }
        out.push_str(text);
    }

    /// Without a table: appends what the tokens of the window that were not told add to those that were.
    fn tell(&mut self, tokenizer: &Tokenizer, rest: Rest, out: &mut String) {
        let decode = |tokens: &[TokenId]| tokenizer.decode_by_crate(tokens, SpecialTokens::Keep).unwrap_or_default();
        let text = decode(&self.window);
        let waits_long = self.window.len() - self.told >= WAITING_MAX;
        if rest == Rest::MayFollow && text.ends_with('\u{FFFD}') && !waits_long {
            return;
        }
        // A decoder that changes the text of earlier tokens cannot take back what was told: the rest then stands alone.
        let told = decode(&self.window[..self.told]);
        let alone = if text.starts_with(&told) { String::new() } else { decode(&self.window[self.told..]) };
        let new = text.strip_prefix(told.as_str()).unwrap_or(&alone);
        if !new.is_empty() || waits_long {
            out.push_str(new);
            self.window.drain(..self.told);
            self.told = self.window.len();
        }
    }
}

/// Whether more tokens may come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    MayFollow,
    Ended,
}

//! The vocabulary of a GGUF file, and its special tokens.

use super::super::header::Header;
use base::limits;

/// The tokens of a file.
pub struct Vocabulary<'a> {
    /// What each is spelled as, by id.
    pub tokens: Vec<&'a str>,
    /// By id.
    pub kinds: Vec<TokenKind>,
}

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    Normal,
    Unknown,
    /// Leaves no text.
    Control,
    /// Is found in a text before anything else.
    UserDefined,
    /// Never occurs.
    Unused,
    /// A byte, spelled `<0x0A>`.
    Byte,
}

/// Tokens that end a completion, whatever else the file says: those of `special_eog_ids` in llama.cpp, src/llama-vocab.cpp.
const END_TEXTS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    // The end of a file, of models that complete code.
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<|file_sep|>",
];

impl<'a> Vocabulary<'a> {
    /// The vocabulary of a file; `None` if it has none.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn read(header: &'a Header) -> Result<Option<Vocabulary<'a>>, String> {
        let Some(tokens) = header.strings("tokenizer.ggml.tokens", limits::TOKENS)? else { return Ok(None) };
        let tokens = tokens.into_iter().enumerate().map(|(id, bytes)| {
            if bytes.len() > limits::TOKEN_BYTES {
                let (bytes, most) = (bytes.len(), limits::TOKEN_BYTES);
                return Err(format!(
                    "token {id} of tokenizer.ggml.tokens has {bytes} bytes, but at most {most} are read"
                ));
            }
            std::str::from_utf8(bytes).map_err(|_| format!("token {id} of tokenizer.ggml.tokens is not UTF-8"))
        });
        let tokens = tokens.collect::<Result<Vec<_>, _>>()?;
        let kinds = match header.numbers("tokenizer.ggml.token_type", limits::TOKENS)? {
            None => vec![TokenKind::Normal; tokens.len()],
            Some(kinds) if kinds.len() < tokens.len() => {
                let (tokens, kinds) = (tokens.len(), kinds.len());
                return Err(format!("tokenizer.ggml.token_type has {kinds} entries, but there are {tokens} tokens"));
            }
            Some(kinds) => kinds[..tokens.len()].iter().map(|&kind| TokenKind::of(kind as i64)).collect(),
        };
        Ok(Some(Vocabulary { tokens, kinds }))
    }

    /// The id that a key names, if there is such a token.
    ///
    /// # Errors
    ///
    /// If the key is no id.
    pub fn id(&self, header: &Header, name: &str) -> Result<Option<usize>, String> {
        let id = header.unsigned(&format!("tokenizer.ggml.{name}_token_id"))?;
        Ok(id.filter(|&id| id < self.tokens.len() as u64).map(|id| id as usize))
    }

    /// Whether a text is never made of smaller parts: the token is found in it as a whole.
    pub fn is_added(&self, id: usize) -> bool {
        matches!(self.kinds[id], TokenKind::Unknown | TokenKind::Control | TokenKind::UserDefined)
    }

    /// The tokens that end a completion: those that keys name, and those known by their text. In order, and without repetition.
    ///
    /// # Errors
    ///
    /// If a key is no id.
    pub fn ends(&self, header: &Header) -> Result<Vec<usize>, String> {
        let mut ends = Vec::new();
        for name in ["eos", "eot", "eom"] {
            ends.extend(self.id(header, name)?);
        }
        let is_end = |&id: &usize| self.is_added(id) && END_TEXTS.contains(&self.tokens[id]);
        ends.extend((0..self.tokens.len()).filter(is_end).take(limits::STOP_TOKENS / 2));
        let mut seen = std::collections::HashSet::new();
        ends.retain(|&id| seen.insert(id));
        Ok(ends)
    }
}

impl TokenKind {
    fn of(number: i64) -> TokenKind {
        match number {
            2 => TokenKind::Unknown,
            3 => TokenKind::Control,
            4 => TokenKind::UserDefined,
            5 => TokenKind::Unused,
            6 => TokenKind::Byte,
            _ => TokenKind::Normal,
        }
    }
}

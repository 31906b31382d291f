//! The WordPiece tokenizer of a file (`bert`).
//!
//! Its vocabulary marks the tokens that begin a word, and not those that continue one: a conversion writes `▁word` for `word` and `ing` for
//! `##ing`. Control tokens are as they were.

use super::super::Header;
use super::frame::{self, Frame};
use super::vocabulary::TokenKind;
use super::{Document, Pieces, SPACE, Spelled, Vocabulary};
use serde_json::json;
use std::borrow::Cow;

/// What continues a word in a tokenizer.json.
const CONTINUES: &str = "##";

/// As in BERT, where the file does not say.
const BEGIN: usize = 101;
const END: usize = 102;
const UNKNOWN: usize = 100;

/// The tokenizer.json of a file with these tokens.
pub fn document<'a>(header: &'a Header, vocabulary: &Vocabulary<'a>) -> Result<Document<'a>, String> {
    let token = |names: [&str; 2], default: usize| -> Result<(usize, &'a str), String> {
        let found = match vocabulary.id(header, names[0])? {
            Some(id) => Some(id),
            None => vocabulary.id(header, names[1])?,
        };
        let id = found.unwrap_or(default);
        match vocabulary.tokens.get(id) {
            Some(&text) => Ok((id, text)),
            None => Err(format!("tokenizer.ggml.{}_token_id is missing, but every text has this token", names[0])),
        }
    };
    let (begin, end) = (token(["cls", "bos"], BEGIN)?, token(["seperator", "eos"], END)?);
    let (_, unknown) = token(["unknown", "unknown"], UNKNOWN)?;
    let frame = Frame {
        begin: Some(begin),
        end: Some(end),
        between: vec![end],
        begins_again: false,
        second_type: frame::second_type(header)?,
    };
    let lowercase = header.flag("tokenizer.ggml.normalizer.lowercase")?.unwrap_or(true);
    // Without it, accents go where cases do.
    let strips_accents = header.flag("tokenizer.ggml.normalizer.strip_accents")?;
    Ok(Document {
        normalizer: json!({
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": strips_accents,
            "lowercase": lowercase,
        }),
        pre_tokenizer: json!({"type": "BertPreTokenizer"}),
        post_processor: frame.template(),
        decoder: json!({"type": "WordPiece", "prefix": CONTINUES, "cleanup": true}),
        model: json!({
            "type": "WordPiece", "unk_token": unknown, "continuing_subword_prefix": CONTINUES, "max_input_chars_per_word": 100,
        }),
        spelled: Spelled::AsWords,
        pieces: Pieces::Words,
        strips: false,
    })
}

/// How a token is spelled in a tokenizer.json.
pub fn spelling<'a>(vocabulary: &Vocabulary<'a>, id: usize) -> Cow<'a, str> {
    let text = vocabulary.tokens[id];
    if let TokenKind::Control | TokenKind::Unknown = vocabulary.kinds[id] {
        return text.into();
    }
    match text.strip_prefix(SPACE) {
        Some(word) if !word.is_empty() => word.into(),
        _ => format!("{CONTINUES}{text}").into(),
    }
}

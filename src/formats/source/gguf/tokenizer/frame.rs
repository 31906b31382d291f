//! What stands around a text, and between and around the two texts of a pair.

use super::super::Header;
use super::Vocabulary;
use serde_json::{Value, json};

/// A token: its id and its spelling.
type Token<'a> = (usize, &'a str);

/// Tokens around texts.
pub struct Frame<'a> {
    pub begin: Option<Token<'a>>,
    /// Behind a text, and behind the second text of a pair.
    pub end: Option<Token<'a>>,
    /// What stands behind the first text of a pair.
    pub between: Vec<Token<'a>>,
    /// Whether the second text of a pair begins as a text does.
    pub begins_again: bool,
    /// The type of the tokens of a second text.
    pub second_type: u32,
}

/// As the flags `add_bos_token`, `add_eos_token` and `add_sep_token` say. `adds` and `defaults` are whether a text begins and ends with a token and the ids of both, where
/// the file has neither.
///
/// # Errors
///
/// What is wrong with a key, or missing.
pub fn of_flags(
    header: &Header,
    vocabulary: &Vocabulary,
    adds: [bool; 2],
    defaults: [Option<usize>; 2],
) -> Result<Value, String> {
    let token = |name: &str, adds: bool, default: Option<usize>| -> Result<Option<Token>, String> {
        if !header.flag(&format!("tokenizer.ggml.add_{name}_token"))?.unwrap_or(adds) {
            return Ok(None);
        }
        let id = vocabulary.id(header, name)?.or(default.filter(|&id| id < vocabulary.tokens.len()));
        let id =
            id.ok_or_else(|| format!("tokenizer.ggml.{name}_token_id is missing, but begins or ends every text"))?;
        Ok(Some((id, vocabulary.tokens[id])))
    };
    let (begin, end) = (token("bos", adds[0], defaults[0])?, token("eos", adds[1], defaults[1])?);
    // The conversion of ModernBERT says so, whose pairs have one.
    let has_one = header.text("general.architecture")? == Some("modern-bert");
    let second = match header.flag("tokenizer.ggml.add_sep_token")? {
        Some(true) if end.is_some() && !has_one => {
            vocabulary.id(header, "seperator")?.map(|id| (id, vocabulary.tokens[id])).or(end)
        }
        _ => None,
    };
    // Where no token ends a text, one begins the second.
    let begins_again = end.is_none();
    let second_type = if begins_again { 1 } else { second_type(header)? };
    let between = end.into_iter().chain(second).collect();
    Ok(Frame { begin, end, between, begins_again, second_type }.template())
}

/// The type of the tokens of a second text, which a model with one type does not have.
///
/// # Errors
///
/// If the key is no number.
pub fn second_type(header: &Header) -> Result<u32, String> {
    Ok(header.unsigned("tokenizer.ggml.token_type_count")?.is_some_and(|count| count > 1).into())
}

impl Frame<'_> {
    /// The post-processor.
    pub fn template(&self) -> Value {
        let Frame { begin, end, .. } = *self;
        if begin.is_none() && end.is_none() {
            return Value::Null;
        }
        let special = |token: &Token, kind: u32| json!({"SpecialToken": {"id": token.1, "type_id": kind}});
        let text = |name: &str, kind: u32| json!({"Sequence": {"id": name, "type_id": kind}});
        let [begin_one, end_one] = [begin, end].map(|token| token.map(|token| special(&token, 0)));
        let single: Vec<Value> = begin_one.clone().into_iter().chain([text("A", 0)]).chain(end_one).collect();
        let kind = self.second_type;
        let between = self.between.iter().map(|token| special(token, 0));
        let again = begin.filter(|_| self.begins_again).map(|token| special(&token, kind));
        let second = again.into_iter().chain([text("B", kind)]).chain(end.map(|token| special(&token, kind)));
        let pair: Vec<Value> = begin_one.into_iter().chain([text("A", 0)]).chain(between).chain(second).collect();
        let tokens = [begin, end].into_iter().flatten().chain(self.between.iter().copied());
        let tokens = tokens.map(|(id, text)| (text.to_owned(), json!({"id": text, "ids": [id], "tokens": [text]})));
        json!({
            "type": "TemplateProcessing",
            "single": single,
            "pair": pair,
            "special_tokens": Value::Object(tokens.collect()),
        })
    }
}

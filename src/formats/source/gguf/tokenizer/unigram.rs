//! The unigram tokenizer of a file (`t5`), as XLM-RoBERTa has it.

use super::super::Header;
use super::vocabulary::TokenKind;
use super::{Document, Pieces, SPACE, Spelled, Vocabulary, frame};
use base::limits;
use serde_json::{Value, json};
use std::collections::HashMap;

/// As in T5, where the file does not say.
const END: usize = 1;
const UNKNOWN: usize = 2;

/// Bytes of the normalizer at most. That of XLM-RoBERTa has 237,539.
const CHARSMAP_BYTES: usize = 1 << 20;

/// The tokenizer.json of a file with these tokens.
pub fn document<'a>(header: &'a Header, vocabulary: &Vocabulary<'a>) -> Result<Document<'a>, String> {
    if header.flag("tokenizer.ggml.treat_whitespace_as_suffix")? == Some(true) {
        return Err("tokenizer.ggml.treat_whitespace_as_suffix is true, but must be false".into());
    }
    let tokens = vocabulary.tokens.len();
    let scores = header.numbers("tokenizer.ggml.scores", limits::TOKENS)?;
    let scores = scores.filter(|scores| scores.len() >= tokens && scores.iter().all(|score| score.is_finite()));
    let scores =
        scores.ok_or_else(|| format!("tokenizer.ggml.scores must have a number for each of the {tokens} tokens"))?;
    let unknown = vocabulary.id(header, "unknown")?.unwrap_or(UNKNOWN);
    if unknown >= tokens {
        return Err("tokenizer.ggml.unknown_token_id is missing, but there must be such a token".into());
    }
    let has_prefix = header.flag("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    let joins_spaces = header.flag("tokenizer.ggml.remove_extra_whitespaces")?.unwrap_or(false);
    let words = json!({
        "type": "Metaspace", "replacement": SPACE, "prepend_scheme": if has_prefix { "always" } else { "never" }, "split": true,
    });
    let mut normalizers = charsmap(header)?.into_iter().collect::<Vec<Value>>();
    let pre_tokenizer = match (joins_spaces, has_prefix) {
        // Each word begins with a space, and no other spaces stay.
        (true, true) => json!({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, words]}),
        (true, false) => {
            normalizers.push(json!({"type": "Strip", "strip_left": true, "strip_right": true}));
            normalizers.push(json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}));
            words.clone()
        }
        (false, _) => words.clone(),
    };
    let has_bytes = vocabulary.kinds.contains(&TokenKind::Byte);
    Ok(Document {
        normalizer: match &normalizers[..] {
            [] => Value::Null,
            _ => json!({"type": "Sequence", "normalizers": normalizers}),
        },
        pre_tokenizer,
        post_processor: frame::of_flags(header, vocabulary, [false, true], [None, Some(END)])?,
        decoder: words,
        model: json!({"type": "Unigram", "unk_id": unknown, "byte_fallback": has_bytes}),
        spelled: Spelled::As(HashMap::new()),
        pieces: Pieces::Scored(scores),
        strips: false,
    })
}

/// The step that replaces sequences of characters.
fn charsmap(header: &Header) -> Result<Option<Value>, String> {
    const KEY: &str = "tokenizer.ggml.precompiled_charsmap";
    let Some(numbers) = header.numbers(KEY, CHARSMAP_BYTES)? else { return Ok(None) };
    let byte = |number: f64| match number {
        0.0..=255.0 => Some(number as u8),
        // The conversion may have written them with signs.
        -128.0..0.0 => Some((number as i8).cast_unsigned()),
        _ => None,
    };
    let bytes = numbers.into_iter().map(byte).collect::<Option<Vec<u8>>>();
    let bytes = bytes.ok_or_else(|| format!("key {KEY} must be an array of bytes"))?;
    Ok((!bytes.is_empty()).then(|| json!({"type": "Precompiled", "precompiled_charsmap": base64(&bytes)})))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let byte = |at: usize| u32::from(part.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let is_there = digit <= part.len();
            text.push(if is_there { DIGITS[(bits >> (18 - 6 * digit)) as usize % 64].into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_base64_has_them() {
        for (bytes, text) in
            [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (b"\xff\xfe\xfd", "//79")]
        {
            assert_eq!(base64(bytes), text);
        }
    }
}

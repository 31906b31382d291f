//! Whether a long text can be tokenized in pieces that give the same tokens.
//!
//! It can where no token, and no match of a pattern, goes on from a letter to a space or a mark that follows it, and where
//! nothing that comes before or after such a place has an effect across it. That is so for byte-level tokenizers with the
//! patterns below: none of their alternatives has a letter before one of [`AFTER`], and the only one that looks ahead,
//! `\s+(?!\S)`, does not end in a letter.

use super::kind;
use serde_json::Value;

/// Where a text may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cutting {
    /// Nowhere.
    Nowhere,
    /// After a letter, before one of [`AFTER`].
    AtWordEnds,
}

/// What may follow a cut.
const AFTER: [char; 7] = [' ', '\n', ',', '.', '，', '。', '、'];

/// Patterns of GPT-2, of Llama 3, and of Qwen 2 and 3.
const PATTERNS: [&str; 3] = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];

impl Cutting {
    /// How the texts of a tokenizer with these parts can be cut.
    pub fn of(normalizer: Option<&Value>, pre_tokenizer: Option<&Value>, added: &[Value]) -> Cutting {
        let normalizes_in_place = normalizer.is_none_or(|step| of_kind(step, "NFC"));
        if normalizes_in_place && pre_tokenizer.is_some_and(splits_words) && added.iter().all(leaves_word_ends) {
            Cutting::AtWordEnds
        } else {
            Cutting::Nowhere
        }
    }

    /// The first place to cut `text` at or after byte `least`; its end when there is none.
    pub fn next(self, text: &str, least: usize) -> usize {
        if self == Cutting::Nowhere || least >= text.len() {
            return text.len();
        }
        let from = text.floor_char_boundary(least);
        let mut before = None;
        for (at, character) in text[from..].char_indices() {
            if before.is_some_and(is_letter) && AFTER.contains(&character) {
                return from + at;
            }
            before = Some(character);
        }
        text.len()
    }
}

/// Letters of `\p{L}` that no following character of [`AFTER`] combines with.
fn is_letter(character: char) -> bool {
    character.is_ascii_alphabetic()
        || matches!(character, '\u{3041}'..='\u{3096}' | '\u{30A1}'..='\u{30FA}' | '\u{4E00}'..='\u{9FFF}')
}

fn of_kind(step: &Value, wanted: &str) -> bool {
    step.as_object().is_some_and(|fields| kind(fields) == wanted)
}

/// A byte-level pre-tokenizer with one of [`PATTERNS`].
fn splits_words(step: &Value) -> bool {
    let is_byte_level = |step: &Value, has_pattern: bool| {
        of_kind(step, "ByteLevel")
            && step["add_prefix_space"] == Value::Bool(false)
            && step.get("use_regex").and_then(Value::as_bool).unwrap_or(true) == has_pattern
    };
    let is_known_split = |step: &Value| {
        of_kind(step, "Split")
            && step["behavior"] == "Isolated"
            && step["invert"] == Value::Bool(false)
            && step["pattern"]["Regex"].as_str().is_some_and(|pattern| PATTERNS.contains(&pattern))
    };
    match step.get("pretokenizers").and_then(Value::as_array).map(Vec::as_slice) {
        Some([split, bytes]) => of_kind(step, "Sequence") && is_known_split(split) && is_byte_level(bytes, false),
        Some(_) => false,
        None => is_byte_level(step, true),
    }
}

/// Whether an added token neither crosses a place where a text is cut nor takes what stands around it.
fn leaves_word_ends(token: &Value) -> bool {
    let takes_more = ["lstrip", "rstrip", "single_word"].iter().any(|option| token[option] == Value::Bool(true));
    let Some(content) = token["content"].as_str().filter(|_| !takes_more) else { return false };
    let characters: Vec<char> = content.chars().collect();
    characters.windows(2).all(|pair| AFTER.contains(&pair[0]) || !AFTER.contains(&pair[1]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::{AddedTokens, Encoding, SpelledTokens, Tokenizer};
    use formats::source::Source;
    use proptest::prelude::*;
    use serde_json::json;
    use std::path::Path;

    fn open(name: &str) -> Tokenizer {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/text")).join(name);
        Tokenizer::open(&Source::open(&folder).unwrap()).unwrap().unwrap()
    }

    #[test]
    fn a_text_is_cut_where_a_word_ends() {
        let cut = |text: &str, least| Cutting::AtWordEnds.next(text, least);
        assert_eq!(cut("one two", 0), 3);
        assert_eq!(cut("one two", 2), 3);
        assert_eq!(cut("one two", 3), 7, "the letter before byte 3 is not seen");
        assert_eq!(cut("日本語。x", 0), 9);
        assert_eq!(cut("日本語。x", 9), 13);
        assert_eq!(cut("it's 12 ,.", 0), 4);
        assert_eq!(cut("", 0), 0);
        assert_eq!(Cutting::Nowhere.next("one two", 0), 7);
    }

    #[test]
    fn only_tokenizers_that_are_known_to_allow_it_are_cut() {
        for (name, cutting) in [
            ("byte_level", Cutting::AtWordEnds),
            ("byte_level_bos", Cutting::AtWordEnds),
            ("byte_level_cases", Cutting::Nowhere),
            ("byte_level_digits", Cutting::Nowhere),
            ("sentencepiece", Cutting::Nowhere),
            ("blocks_without_prefix", Cutting::Nowhere),
            ("metaspace", Cutting::Nowhere),
            ("wordpiece", Cutting::Nowhere),
        ] {
            assert_eq!(open(name).facts.cutting, cutting, "{name}");
        }
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true});
        let cutting = |added: Value| Cutting::of(None, Some(&bytes), &[added]);
        assert_eq!(cutting(json!({"content": "  "})), Cutting::AtWordEnds);
        assert_eq!(cutting(json!({"content": "<|x|>", "lstrip": false})), Cutting::AtWordEnds);
        for taking in [json!({"content": "a b"}), json!({"content": "a."}), json!({"content": "a", "rstrip": true})] {
            assert_eq!(cutting(taking), Cutting::Nowhere);
        }
        let prefixed = json!({"type": "ByteLevel", "add_prefix_space": true, "use_regex": true});
        assert_eq!(Cutting::of(None, Some(&prefixed), &[]), Cutting::Nowhere);
    }

    proptest! {
        #[test]
        fn the_pieces_of_a_text_have_its_tokens(
            parts in prop::collection::vec(
                prop_oneof![
                    Just("a"), Just("word"), Just("It's"), Just(" "), Just("  "), Just("\n"), Just(" \r\n\t"), Just(","),
                    Just("."), Just("..."), Just("日本"), Just("。"), Just("、"), Just("か"), Just("\u{3099}"), Just("é"),
                    Just("e\u{301}"), Just("\u{338}"), Just("12"), Just("<|im_end|>"), Just("<think>"), Just("'"),
                    Just("'S"), Just("\u{1F600}"), Just("\u{AC00}\u{11A8}"), Just("ﬁ"), Just("\0"),
                ],
                0..40,
            ),
            least in 0usize..40,
        ) {
            let text = parts.concat();
            for name in ["byte_level", "byte_level_bos"] {
                let tokenizer = open(name);
                for spelled in [SpelledTokens::Parse, SpelledTokens::Text] {
                    let encoding = Encoding { added: AddedTokens::Omit, spelled };
                    let (first, rest) = text.split_at(tokenizer.facts.cutting.next(&text, least));
                    let pieces = [tokenizer.encode(first, encoding).unwrap(), tokenizer.encode(rest, encoding).unwrap()];
                    prop_assert_eq!(tokenizer.encode(&text, encoding).unwrap(), pieces.concat());
                }
            }
        }
    }
}

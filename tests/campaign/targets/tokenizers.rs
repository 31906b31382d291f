//! tokenizer.json, changed in ways that the crate which reads it may not expect.

use super::folders::{GOLDEN, file, replaced};
use super::json;
use crate::case::{self, Content, Input};
use crate::random::{self, Rng};
use serde_json::Value;

pub fn corpus() -> Vec<Input> {
    let mut all: Vec<Input> = ["byte_level", "byte_level_bos", "metaspace", "sentencepiece", "wordpiece"]
        .iter()
        .map(|name| {
            let bytes = file(&format!("tests/golden/text/{name}"), "tokenizer.json");
            replaced(format!("{name} as it is"), GOLDEN, "tokenizer.json", Content::Bytes(bytes))
        })
        .collect();
    let hostile = case::hostile("tokenizers", "tokenizer.json").into_iter();
    all.extend(hostile.filter(|input| input.origin.ends_with(".json")));
    all
}

const TOKENIZER_NAMES: &[&str] = &[
    "version",
    "truncation",
    "padding",
    "added_tokens",
    "normalizer",
    "pre_tokenizer",
    "post_processor",
    "decoder",
    "model",
    "type",
    "vocab",
    "merges",
    "BPE",
    "WordPiece",
    "WordLevel",
    "Unigram",
    "Sequence",
    "normalizers",
    "pretokenizers",
    "processors",
    "decoders",
    "Replace",
    "pattern",
    "String",
    "Regex",
    "content",
    "ByteLevel",
    "ByteFallback",
    "Fuse",
    "Strip",
    "Prepend",
    "Metaspace",
    "replacement",
    "prepend_scheme",
    "add_prefix_space",
    "trim_offsets",
    "use_regex",
    "Split",
    "behavior",
    "Isolated",
    "Removed",
    "MergedWithPrevious",
    "invert",
    "Digits",
    "individual_digits",
    "Punctuation",
    "FixedLength",
    "length",
    "TemplateProcessing",
    "single",
    "pair",
    "special_tokens",
    "SpecialToken",
    "Sequence",
    "A",
    "B",
    "BertNormalizer",
    "Lowercase",
    "NFC",
    "NFD",
    "NFKC",
    "NFKD",
    "Nmt",
    "Precompiled",
    "precompiled_charsmap",
    "CTC",
    "WordPiece",
    "prefix",
    "cleanup",
    "BPEDecoder",
    "suffix",
    "unk_token",
    "dropout",
    "fuse_unk",
    "byte_fallback",
    "ignore_merges",
    "continuing_subword_prefix",
    "end_of_word_suffix",
    "max_input_chars_per_word",
    "unk_id",
    "id",
    "special",
    "lstrip",
    "rstrip",
    "normalized",
    "single_word",
    "start",
    "stop",
    "",
    "\u{0}",
    "▁",
    "Ġ",
    "a",
    "<unk>",
    "<0x0A>",
    "(a|)*",
    "\\s+",
];

pub fn change(rng: &mut Rng, corpus: &[Input]) -> Input {
    let from = &corpus[rng.below(corpus.len())];
    let bytes = from.bytes("tokenizer.json").to_vec();
    // Mostly all but the vocabulary, which has most of the nodes, is changed.
    let bytes = match serde_json::from_slice::<Value>(&bytes) {
        Ok(mut value) if bytes.len() < 1 << 18 && !rng.one_in(10) => {
            let vocab = value["model"].is_object().then(|| value["model"]["vocab"].take());
            let merges = value["model"].is_object().then(|| value["model"]["merges"].take());
            json::mutate(rng, &mut value, TOKENIZER_NAMES);
            if let (Some(mut vocab), Some(merges), Some(Value::Object(model))) = (vocab, merges, value.get_mut("model"))
            {
                if rng.one_in(4) {
                    json::mutate(rng, &mut vocab, TOKENIZER_NAMES);
                }
                model.insert("vocab".to_owned(), vocab);
                model.insert("merges".to_owned(), merges);
            }
            value.to_string().into_bytes()
        }
        _ => random::mutate(rng, bytes, TOKENIZER_NAMES, &[]),
    };
    replaced(format!("{}, changed", from.origin), GOLDEN, "tokenizer.json", Content::Bytes(bytes))
}

//! Tokenizers and chat templates against what Hugging Face's packages make of the same input.
//!
//! The expected values lie in tests/golden/text with the scripts that made them.

use formats::source::Source;
use serde_json::Value as Json;
use std::path::PathBuf;
use text::tokenizer::{AddedTokens, Encoding, SpecialTokens, SpelledTokens, TextStream, Tokenizer};

fn golden(path: &str) -> PathBuf {
    crate::tree::root().join("tests/golden/text").join(path)
}

fn expected(path: &str) -> Vec<Json> {
    let text = std::fs::read_to_string(golden(path)).expect("a committed file");
    serde_json::from_str(&text).expect("a list of cases")
}

/// The committed tokenizers with their expected values.
fn tokenizers() -> Vec<(String, Tokenizer, Json)> {
    let open = |case: Json| {
        let name = case["tokenizer"].as_str().expect("a name").to_string();
        let tokenizer =
            Tokenizer::open(&Source::open(&golden(&name)).expect("a folder")).expect("a good file").expect("a file");
        (name, tokenizer, case)
    };
    expected("tokenizers.json").into_iter().map(open).collect()
}

fn tokens(json: &Json) -> Vec<u32> {
    json.as_array().expect("tokens").iter().map(|token| token.as_u64().expect("a token") as u32).collect()
}

/// The pieces that a stream gives for `tokens`, the last one from its end.
fn streamed(tokenizer: &Tokenizer, tokens: &[u32]) -> Vec<String> {
    let mut stream = TextStream::default();
    let mut pieces = Vec::new();
    for &token in tokens {
        let mut piece = String::new();
        stream.push(tokenizer, token, &mut piece);
        pieces.push(piece);
    }
    let mut piece = String::new();
    stream.finish(tokenizer, &mut piece);
    pieces.push(piece);
    pieces
}

#[test]
fn texts_become_the_tokens_that_hugging_face_makes() {
    for (name, tokenizer, case) in tokenizers() {
        for text in case["encoded"].as_array().expect("texts") {
            for (mode, spelled, added) in [
                ("parsed", SpelledTokens::Parse, AddedTokens::Omit),
                ("parsed_with_added", SpelledTokens::Parse, AddedTokens::Add),
                ("as_text", SpelledTokens::Text, AddedTokens::Omit),
                ("as_text_with_added", SpelledTokens::Text, AddedTokens::Add),
            ] {
                let encoding = Encoding { added, spelled };
                let found = tokenizer.encode(text["text"].as_str().expect("text"), encoding).expect("tokens");
                assert_eq!(found, tokens(&text[mode]), "{name}, {}, {mode}", text["name"]);
            }
        }
    }
}

#[test]
fn tokens_become_the_text_that_hugging_face_makes() {
    for (name, tokenizer, case) in tokenizers() {
        for sequence in case["decoded"].as_array().expect("sequences") {
            let ids = tokens(&sequence["tokens"]);
            for (mode, special) in [("skip", SpecialTokens::Skip), ("keep", SpecialTokens::Keep)] {
                let found = tokenizer.decode(&ids, special).expect("text");
                assert_eq!(found, sequence[mode].as_str().expect("text"), "{name}, {ids:?}, {mode}");
            }
        }
    }
}

#[test]
fn a_stream_says_what_the_whole_decode_says_wherever_it_ends() {
    for (name, tokenizer, case) in tokenizers() {
        for sequence in case["decoded"].as_array().expect("sequences") {
            let ids = tokens(&sequence["tokens"]);
            for end in 0..=ids.len() {
                let whole = tokenizer.decode(&ids[..end], SpecialTokens::Skip).expect("text");
                assert_eq!(streamed(&tokenizer, &ids[..end]).concat(), whole, "{name}, {:?}", &ids[..end]);
            }
        }
    }
}

#[test]
fn a_stream_that_continues_a_text_adds_what_the_whole_decode_adds() {
    let plain = Encoding { added: AddedTokens::Omit, spelled: SpelledTokens::Text };
    for (name, tokenizer, case) in tokenizers() {
        // Without a table the stream does not know what it continues.
        if tokenizer.token_bytes(0).is_none() {
            continue;
        }
        let word = tokenizer.encode("word", plain).expect("tokens");
        let before = tokenizer.decode(&word, SpecialTokens::Skip).expect("text");
        for sequence in case["decoded"].as_array().expect("sequences") {
            let ids = tokens(&sequence["tokens"]);
            let (mut stream, mut text) = (TextStream::continuing(), before.clone());
            ids.iter().for_each(|&token| stream.push(&tokenizer, token, &mut text));
            stream.finish(&tokenizer, &mut text);
            let whole = tokenizer.decode(&[&word[..], &ids].concat(), SpecialTokens::Skip).expect("text");
            assert_eq!(text, whole, "{name}, {ids:?}");
        }
    }
}

#[test]
fn a_stream_gives_every_character_with_the_token_that_completes_it() {
    for (name, tokenizer, case) in tokenizers() {
        for text in case["encoded"].as_array().expect("texts") {
            let ids = tokens(&text["parsed"]);
            let pieces = streamed(&tokenizer, &ids);
            let mut told = String::new();
            for (end, piece) in (1..).zip(&pieces[..ids.len()]) {
                told.push_str(piece);
                // A decoder without a table cannot tell U+FFFD of the text from its own.
                let settled = tokenizer.decode(&ids[..end], SpecialTokens::Skip).expect("text");
                let waits_for = settled.strip_prefix(told.as_str()).expect("told text never changes");
                assert!(
                    waits_for.chars().all(|c| c == '\u{FFFD}'),
                    "{name}: {:?} held back {waits_for:?}",
                    text["name"]
                );
            }
        }
    }
}

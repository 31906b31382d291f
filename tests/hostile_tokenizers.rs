//! A tokenizer.json that asks for too much, or on which the crate `tokenizers` panics, is refused or harmless.
//!
//! tests/hostile/tokenizers holds one file for each way, written by tests/hostile/make_tokenizers.py.

mod processor_time;
mod silence;
mod tree;

use base::error::Error;
use formats::source::Source;
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use text::tokenizer::{AddedTokens, Encoding, SpecialTokens, SpelledTokens, TextStream, Tokenizer};

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, which counts the bytes that are held.
struct Counting;

impl Counting {
    fn hold(bytes: usize) {
        PEAK.fetch_max(HELD.fetch_add(bytes, Relaxed) + bytes, Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::hold(layout.size());
        // SAFETY: the caller's promise is the one that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Tests run one after another, because time and memory are counted for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// What `work` gives, the processor time it takes, and the most bytes that it holds at once.
fn measured<T>(work: impl FnOnce() -> T) -> (T, Duration, usize) {
    let before = HELD.load(Relaxed);
    PEAK.store(before, Relaxed);
    let begun = processor_time::of_process();
    let result = work();
    (result, processor_time::of_process() - begun, PEAK.load(Relaxed) - before)
}

/// What becomes of a file.
enum Outcome {
    /// It is refused with these words.
    Refused(&'static str),
    /// It opens, and all that is done with it ends well or in an error of the request.
    Opens,
}
use Outcome::{Opens, Refused};

/// The committed tokenizers that are harmless.
const GOLDEN: [&str; 10] = [
    "byte_level",
    "byte_level_bos",
    "byte_level_cases",
    "byte_level_digits",
    "sentencepiece",
    "blocks_without_prefix",
    "blocks_first",
    "blocks_and_marks",
    "metaspace",
    "wordpiece",
];

/// The files, by name.
const FILES: &[(&str, Outcome)] = &[
    ("added-empty", Opens),
    ("added-erased", Refused("not a tokenizer")),
    ("added-long", Refused("added_tokens has a token of 5000 bytes, but at most 4096 are accepted")),
    ("added-no-list", Refused("added_tokens must be a list")),
    ("added-same-when-normalized", Opens),
    ("added-takes-spaces", Opens),
    ("added-twice", Opens),
    ("bert-largest", Opens),
    ("breaks-off-in-decoder", Refused("not JSON: EOF")),
    ("byte-fallback-without-bytes", Opens),
    ("charsmap-claims-4-GiB", Refused("has a trie of 4294967292 bytes, but 0 bytes follow")),
    ("charsmap-empty", Refused("precompiled_charsmap is shorter than its own length")),
    ("charsmap-good", Opens),
    ("charsmap-grows", Refused("normalizer may turn one byte into 3000, but at most 64 are accepted")),
    ("charsmap-inside-a-character", Refused("has a replacement outside of its texts")),
    ("charsmap-leads-out", Refused("has a trie whose offsets leave it")),
    ("charsmap-missing", Refused("not a tokenizer")),
    ("charsmap-no-base64", Refused("precompiled_charsmap is not base64")),
    ("charsmap-null", Refused("precompiled_charsmap must be a text")),
    ("charsmap-of-one-unit", Refused("has a trie whose offsets leave it")),
    ("charsmap-round", Refused("precompiled_charsmap has a")),
    ("charsmap-short", Refused("has an empty trie")),
    ("charsmap-value-beyond", Refused("has a replacement outside of its texts")),
    ("decoder-bpe-nothing", Opens),
    ("decoder-ctc-all", Opens),
    ("decoder-ctc-nothing", Opens),
    ("decoder-erases", Opens),
    ("decoder-many", Refused("with decoder, the tokenizer has more than 64 steps")),
    ("decoder-number", Refused("not a tokenizer")),
    ("decoder-replace-chain", Refused("decoder may turn one byte into 8, but at most 4 are accepted")),
    ("decoder-replace-nothing", Refused("decoder: pattern may match the empty string")),
    ("decoder-replace-regex", Opens),
    ("decoder-strip-beyond", Refused("not a tokenizer that works: decoding a token failed")),
    ("decoder-strip-both", Refused("not a tokenizer that works: decoding a token failed")),
    ("decoder-strip-huge", Refused("decoder: stop is 1152921504606846976, but must be a whole number from 0 to 16")),
    ("decoder-strip-start-huge", Refused("decoder: start is 1152921504606846976")),
    ("decoder-unknown", Refused("not a tokenizer")),
    ("decoder-wordpiece", Opens),
    ("deep", Refused("not JSON: recursion limit exceeded")),
    ("deep-in-model", Refused("not JSON: recursion limit exceeded")),
    ("dropout", Refused("dropout of the model is 0.5, but must be null or 0")),
    ("dropout-beyond", Refused("dropout of the model is 7, but must be null or 0")),
    ("empty", Refused("not JSON: EOF")),
    ("empty-object", Refused("model is missing")),
    ("id-added-billion", Refused("added_tokens: id is 1000000000, but must be a whole number from 0 to 1048575")),
    ("id-beyond", Refused("the vocabulary of 6 tokens has the id 4294967296, but ids must be below 65560")),
    ("id-billion", Refused("has the id 1000000000, but ids must be below 65560")),
    ("id-fraction", Refused("not a tokenizer")),
    ("id-gap", Refused("has the id 70000, but ids must be below 65560")),
    ("id-largest", Refused("has the id 4294967295, but ids must be below 65560")),
    ("id-negative", Refused("not a tokenizer")),
    ("ids-all-equal", Opens),
    ("list", Refused("not a tokenizer")),
    ("merge-number", Refused("not a tokenizer")),
    ("merge-of-nothing", Refused("not a tokenizer")),
    ("merge-prefix-longer", Refused("not a tokenizer")),
    ("merge-text-three", Refused("not a tokenizer")),
    ("merge-three", Refused("not a tokenizer")),
    ("merge-unknown", Refused("not a tokenizer")),
    ("model-of-no-type", Opens),
    ("more-after-it", Refused("not JSON: trailing characters")),
    ("normalizer-bytes-of-bytes", Refused("normalizer may turn one byte into 128, but at most 64 are accepted")),
    ("normalizer-deep", Opens),
    ("normalizer-many", Refused("with normalizer, the tokenizer has more than 64 steps")),
    ("normalizer-prepend-chain", Refused("normalizer may turn one byte into 81, but at most 64 are accepted")),
    ("normalizer-prepend-large", Refused("normalizer may turn one byte into 5001")),
    ("normalizer-replace-boundary", Refused("in a way whose time has no known bound")),
    ("normalizer-replace-chain", Refused("normalizer may turn one byte into 128")),
    ("normalizer-replace-large", Refused("normalizer may turn one byte into 5000")),
    ("normalizer-replace-nothing", Refused("normalizer: pattern may match the empty string")),
    ("normalizer-replace-regex-nothing", Refused("normalizer: pattern may match the empty string")),
    ("normalizer-unknown", Refused("not a tokenizer")),
    ("normalizer-untyped", Refused("normalizer: pattern may match the empty string")),
    ("normalizer-untyped-chain", Refused("normalizer may turn one byte into 81")),
    ("not-utf8", Refused("not JSON")),
    ("null", Refused("not a tokenizer")),
    ("number-without-end", Refused("not JSON: number out of range")),
    ("padding-huge", Opens),
    ("part-unknown", Opens),
    ("pre-delimiter-empty", Refused("not a tokenizer")),
    ("pre-fixed-length-0", Refused("pre_tokenizer: length is 0, but must be a whole number from 1 to 4294967295")),
    ("pre-fixed-length-huge", Refused("pre_tokenizer: length is 18446744073709551615")),
    ("pre-fixed-length-negative", Refused("pre_tokenizer: length is -1")),
    ("pre-many", Refused("with pre_tokenizer, the tokenizer has more than 64 steps")),
    ("pre-metaspace-chain", Refused("pre_tokenizer may turn one byte into 256")),
    ("pre-metaspace-two", Refused("not a tokenizer")),
    ("pre-split-backtracks", Refused("in a way whose time has no known bound")),
    ("pre-split-backtracks-nested", Refused("in a way whose time has no known bound")),
    ("pre-split-broken", Refused("pre_tokenizer: pattern \"(\"")),
    ("pre-split-calls-itself", Refused("Unknown group flag")),
    ("pre-split-class-counted", Refused("repeats a part 5000 times, but at most 256 are accepted")),
    ("pre-split-counted", Refused("repeats a part 970299 times, but at most 256 are accepted")),
    ("pre-split-deep", Refused("pre_tokenizer: pattern")),
    ("pre-split-long", Refused("has 10001 bytes, but at most 4096 are accepted")),
    ("pre-split-looks-behind", Refused("in a way whose time has no known bound")),
    ("pre-split-nothing", Refused("pre_tokenizer: pattern may match the empty string")),
    ("pre-split-quadratic", Opens),
    ("pre-split-refers-back", Refused("in a way whose time has no known bound")),
    ("pre-split-regex-nothing", Refused("pre_tokenizer: pattern may match the empty string")),
    (
        "subword-prefix-long",
        Refused("continuing_subword_prefix of the model has 5000 bytes, but at most 256 are accepted"),
    ),
    ("surrogate", Refused("not JSON")),
    ("surrogate-in-vocabulary", Refused("not JSON")),
    ("template-chain", Refused("post_processor: single has the text 2 times, but must have it once")),
    ("template-empty", Opens),
    ("template-missing-token", Refused("post_processor: single has the token <x>, which is not in special_tokens")),
    ("template-second-text", Refused("post_processor: single has a second text")),
    ("template-text-often", Refused("post_processor: single has the text 1000 times")),
    ("template-tokens-often", Refused("post_processor adds 1000000 tokens to a text, but at most 256 are accepted")),
    ("template-uneven", Opens),
    ("template-without-text", Opens),
    ("token-empty", Opens),
    ("token-long", Refused("the vocabulary has a token of 5000 bytes, but at most 4096 are accepted")),
    ("truncation-0", Opens),
    ("truncation-stride", Opens),
    ("twice", Refused("model occurs twice")),
    ("twice-in-model", Refused("vocab occurs twice")),
    ("unigram-empty", Refused("not a tokenizer")),
    ("unigram-empty-token", Opens),
    ("unigram-long-token", Refused("the vocabulary has a token of 500 bytes, but at most 128 are accepted")),
    ("unigram-twins", Opens),
    ("unigram-unknown-beyond", Refused("not a tokenizer")),
    ("unigram-without-unknown", Opens),
    ("unknown-long", Refused("unk_token of the model has 1000 bytes, but at most 256 are accepted")),
    ("unknown-missing", Opens),
    ("version-2", Refused("not a tokenizer: version is 2.0, but must be 1.0")),
    ("vocabulary-empty", Opens),
    ("vocabulary-list-in-bpe", Refused("not a tokenizer")),
    ("vocabulary-of-lists", Refused("not a tokenizer")),
    ("wordlevel-without-unknown", Opens),
    (
        "wordpiece-long-words",
        Refused("max_input_chars_per_word is 1000000000, but must be a whole number from 0 to 256"),
    ),
    ("wordpiece-words-of-nothing", Opens),
    ("wordpiece-without-unknown", Opens),
];

fn hostile() -> PathBuf {
    crate::tree::root().join("tests/hostile/tokenizers")
}

/// A folder with a tokenizer.json, gone when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("nanovllm-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn open(&self, json: &[u8]) -> Result<Tokenizer, Error> {
        fs::write(self.0.join("tokenizer.json"), json).unwrap();
        Tokenizer::open(&Source::open(&self.0).unwrap()).map(|tokenizer| tokenizer.expect("a file"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const ALL: [Encoding; 2] = [
    Encoding { added: AddedTokens::Add, spelled: SpelledTokens::Parse },
    Encoding { added: AddedTokens::Omit, spelled: SpelledTokens::Text },
];

/// Texts that are mean to a tokenizer with the letters a and b.
fn texts() -> Vec<String> {
    let mut texts: Vec<String> = ["", "a", " ", "\u{10FFFF}", "ab".repeat(15_000).as_str()].map(str::to_owned).into();
    texts.extend(
        ["a", " ", "<s>", "\n", "é", "\u{1D160}", "\u{301}", "a c"].map(|part| part.repeat(30_000 / part.len())),
    );
    texts.push("aaaaaaaaaaaaaaaaaaaaab".repeat(1300));
    texts
}

/// Does with a tokenizer what requests do.
fn use_it(name: &str, tokenizer: &Tokenizer) {
    let fine =
        |error: Error| assert!(matches!(error, Error::Tokenizer { .. } | Error::Option { .. }), "{name}: {error}");
    for text in texts() {
        for encoding in ALL {
            let _ = tokenizer.encode(&text, encoding).map_err(fine);
        }
    }
    let last = tokenizer.vocab_size() as u32;
    let tokens: Vec<u32> = (0..last.min(100)).chain([last, u32::MAX]).collect();
    let mut stream = TextStream::default();
    let mut text = String::new();
    for &token in &tokens {
        for special in [SpecialTokens::Skip, SpecialTokens::Keep] {
            let _ = tokenizer.decode(&[token, 0, token], special).map_err(fine);
        }
        let _ = (tokenizer.token_bytes(token), tokenizer.is_added(token), tokenizer.is_special(token));
        stream.push(tokenizer, token, &mut text);
    }
    stream.finish(tokenizer, &mut text);
}

#[test]
fn each_file_is_refused_or_harmless_in_little_time_and_memory() {
    silence::contained_panics();
    let _alone = ALONE.lock().unwrap_or_else(|failed| failed.into_inner());
    let folder = Folder::new("hostile");
    let mut wrong = Vec::new();
    for (name, outcome) in FILES {
        let json = fs::read(hostile().join(format!("{name}.json"))).unwrap();
        let (opened, time, bytes) = measured(|| folder.open(&json));
        let mut say = |what: String| wrong.push(format!("{name}: {what}"));
        if time > Duration::from_secs(1) || bytes > 64 << 20 {
            say(format!("opening took {time:?} and {bytes} bytes"));
        }
        match (opened, outcome) {
            (Ok(tokenizer), Opens) => {
                let ((), time, bytes) = measured(|| use_it(name, &tokenizer));
                if time > Duration::from_secs(20) || bytes > 64 << 20 {
                    say(format!("using it took {time:?} and {bytes} bytes"));
                }
            }
            (Err(Error::ModelFile { reason, .. }), Refused(words)) if reason.contains(words) => {
                if reason.len() > 400 {
                    say(format!("the reason has {} bytes", reason.len()));
                }
            }
            (Ok(_), Refused(_)) => say("opened".into()),
            (Err(error), _) => say(error.to_string()),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_file_of_the_folder_has_its_outcome_here() {
    let there: BTreeSet<String> = fs::read_dir(hostile())
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let named: BTreeSet<String> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(there, named);
}

#[test]
fn a_file_of_many_parts_is_refused_before_it_is_parsed() {
    let _alone = ALONE.lock().unwrap_or_else(|failed| failed.into_inner());
    let folder = Folder::new("many-parts");
    let ids = |count: usize| (0..count).map(|id| format!(r#""{id}":{id}"#)).collect::<Vec<_>>().join(",");
    let list = |part: &str, count: usize| vec![part; count].join(",");
    let model = r#""model":{"type":"BPE","vocab":{"a":0},"merges":[]}"#;
    let cases = [
        ("vocabulary", format!(r#"{{"model":{{"type":"BPE","vocab":{{{}}},"merges":[]}}}}"#, ids(1_500_000))),
        (
            "merges",
            format!(r#"{{"model":{{"type":"BPE","vocab":{{"a":0}},"merges":[{}]}}}}"#, list(r#""a a""#, 3_000_000)),
        ),
        (
            "values",
            format!(r#"{{"model":{{"type":"BPE","vocab":{{"a":0}},"merges":[],"x":[{}]}}}}"#, list("[]", 3_000_000)),
        ),
        ("values", format!(r#"{{{model},"normalizer":{{"x":[{}]}}}}"#, list("0", 3_000_000))),
        ("values", format!(r#"{{{model},"added_tokens":[{}]}}"#, list("{}", 3_000_000))),
        ("added_tokens", format!(r#"{{{model},"added_tokens":[{}]}}"#, list("{}", 20_000))),
        ("bytes, but at most 67108864 are read", " ".repeat((64 << 20) + 1)),
    ];
    for (words, json) in cases {
        let json = json.into_bytes();
        let (opened, time, bytes) = measured(|| folder.open(&json));
        let error = opened.err().expect(words);
        assert!(matches!(&error, Error::ModelFile { reason, .. } if reason.contains(words)), "{words}: {error:.300}");
        assert!(time < Duration::from_secs(5) && bytes < (64 << 20) + json.len(), "{words}: {time:?}, {bytes} bytes");
    }
}

#[test]
fn a_pattern_that_may_be_slow_is_for_short_texts() {
    let _alone = ALONE.lock().unwrap_or_else(|failed| failed.into_inner());
    let folder = Folder::new("slow");
    let tokenizer = folder.open(&fs::read(hostile().join("pre-split-quadratic.json")).unwrap()).unwrap();
    match tokenizer.encode(&"a".repeat(40_000), ALL[0]) {
        Err(Error::Tokenizer { reason }) => assert!(reason.contains("at most 32768 are accepted"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_text_that_is_too_long_is_refused_in_the_time_that_its_limit_takes() {
    let _alone = ALONE.lock().unwrap_or_else(|failed| failed.into_inner());
    let golden = crate::tree::root().join("tests/golden/text");
    let sentences = "The engine answers questions about prime numbers, in order. ".repeat(180_000);
    let letters = "a".repeat(10 << 20);
    for name in GOLDEN {
        let tokenizer = Tokenizer::open(&Source::open(&golden.join(name)).unwrap()).unwrap().unwrap();
        for text in [&sentences, &letters] {
            let (refused, time, bytes) = measured(|| tokenizer.encode_within(text, ALL[0], 4096));
            match refused {
                Err(Error::PromptFarTooLong { tokens, limit: 4096 }) => assert!(tokens >= 4096),
                // A word of ten million letters is one unknown token.
                Err(Error::Tokenizer { .. }) if name == "wordpiece" => continue,
                other => panic!("{name}: {:?}", other.map(|tokens| tokens.len())),
            }
            assert!(time < Duration::from_secs(1) && bytes < 64 << 20, "{name}: {time:?}, {bytes} bytes");
        }
        let error = tokenizer.encode(&"a".repeat((16 << 20) + 1), ALL[0]).unwrap_err().to_string();
        assert_eq!(error, "text is of 16777217 bytes, but must be of at most 16777216 bytes, NVLLM_MAX_TEXT_BYTES");
    }
}

#[test]
fn a_long_text_has_the_tokens_of_its_parts_and_takes_little_memory() {
    let _alone = ALONE.lock().unwrap_or_else(|failed| failed.into_inner());
    let golden = crate::tree::root().join("tests/golden/text");
    // Three million bytes with ends of lines, marks, other scripts, special tokens and decomposed letters.
    let part = "Words, and more.\n\n  It's 2026: e\u{301}t\u{e9} 日本語。ひらがな、カタカナ <|im_end|>x ,y\u{1F600} .\r\n\t done";
    let repeated = part.repeat(3 << 20 >> 7);
    for name in ["byte_level", "byte_level_bos"] {
        let tokenizer = Tokenizer::open(&Source::open(&golden.join(name)).unwrap()).unwrap().unwrap();
        for encoding in ALL {
            let (tokens, time, bytes) = measured(|| tokenizer.encode(&repeated, encoding).unwrap());
            let bare = Encoding { added: AddedTokens::Omit, ..encoding };
            let whole = tokenizer.encode(&part.repeat(500), bare).unwrap();
            let start = tokens.len() - tokenizer.encode(&repeated, bare).unwrap().len();
            assert!(tokens[start..].starts_with(&whole[..whole.len() - 10]), "{name}");
            assert_eq!(start > 0, name == "byte_level_bos" && encoding.added == AddedTokens::Add);
            println!("{name}: {} bytes, {} tokens, {time:?}, {bytes} bytes at most", repeated.len(), tokens.len());
            assert!(bytes < (64 << 20) + tokens.len() * 12, "{name}: {bytes} bytes");
        }
    }
}

#[test]
fn a_text_in_one_piece_takes_some_hundred_bytes_for_each_of_its_own() {
    let _alone = ALONE.lock().unwrap_or_else(|failed| failed.into_inner());
    let golden = crate::tree::root().join("tests/golden/text");
    for name in GOLDEN {
        let tokenizer = Tokenizer::open(&Source::open(&golden.join(name)).unwrap()).unwrap().unwrap();
        for part in ["a", " ", ".", " a", "The answer to 42 is, in short: no. ", "\u{1F600}"] {
            let text = part.repeat((256 << 10) / part.len());
            let (tokens, time, bytes) = measured(|| tokenizer.encode(&text, ALL[0]));
            let tokens = tokens.map(|tokens| tokens.len());
            println!("{name}: {part:?}: {tokens:?}, {time:?}, {} bytes for each", bytes / text.len());
            assert!(bytes / text.len() < 600, "{name}: {part:?}: {} bytes for each", bytes / text.len());
        }
    }
}

//! Prompts and completions over every kind of tokenizer: a completion continues its prompt byte by byte, whatever the engine does
//! with its sequence.
//!
//! The tokens come from the fake model, so that they include special tokens, single bytes and characters that are never completed.

use crate::fake_runner;

use base::TokenId;
use compute::batch::BatchLimits;
use engine::options::PrefixCache;
use engine::sampling_params::{Eos, SamplingParams};
use engine::{Budget, Engine, EngineLimits, Prompt};
use fake_runner::oracle::SEED;
use fake_runner::{Shape, load};
use formats::source::Source;
use std::collections::BTreeMap;
use std::time::Duration;
use text::tokenizer::{AddedTokens, Encoding, SpecialTokens, SpelledTokens, Tokenizer};

/// The committed tokenizers whose tokens each spell bytes.
const KINDS: &[&str] = &[
    "byte_level",
    "byte_level_bos",
    "byte_level_cases",
    "byte_level_digits",
    "sentencepiece",
    "blocks_without_prefix",
    "blocks_first",
    "blocks_and_marks",
    "metaspace",
];

const PLAIN: Encoding = Encoding { added: AddedTokens::Omit, spelled: SpelledTokens::Text };

type Completions = BTreeMap<(u64, u32), (Vec<TokenId>, String)>;

fn tokenizer(kind: &str) -> Tokenizer {
    let folder = crate::tree::root().join("tests/golden/text").join(kind);
    Tokenizer::open(&Source::open(&folder).unwrap()).unwrap().unwrap()
}

/// An engine whose blocks do not suffice for all its rows, so that sequences are preempted.
fn open(kind: &str, depth: usize) -> Engine {
    let tokenizer = tokenizer(kind);
    let limits = BatchLimits { tokens: 24, rows: 6, model_len: 128, block_size: 4, ..BatchLimits::NONE };
    let shape = Shape {
        limits,
        blocks: 40,
        vocab: tokenizer.vocab_size(),
        stages: 2,
        depth,
        window: None,
        states: None,
        windowed: None,
    };
    Engine::with_tokenizer(
        load(shape),
        EngineLimits { max_queue: None, prefix_cache: PrefixCache::On, seed: SEED },
        tokenizer,
    )
}

fn params(seed: u64) -> SamplingParams {
    SamplingParams {
        temperature: 1.0,
        seed: Some(seed),
        max_tokens: Some(40),
        eos: Eos::Ignored,
        ..SamplingParams::default()
    }
}

/// Adds the outputs that wait to `completions`.
fn poll(engine: &mut Engine, completions: &mut Completions) {
    while let Some(output) = engine.next_output() {
        let (tokens, text) = completions.entry((output.request_id, output.index)).or_default();
        tokens.extend(&output.token_ids);
        text.push_str(&output.text);
    }
}

fn run(engine: &mut Engine, budget: Budget, completions: &mut Completions) {
    let handle = engine.handle().clone();
    while !handle.is_finished() {
        engine.step(budget).unwrap();
        poll(engine, completions);
    }
}

/// What `tokens` add to a text, by the decoder that tests/text/text_golden.rs compares with Hugging Face's: to one that has begun with a
/// whole word.
fn continued(tokenizer: &Tokenizer, tokens: &[TokenId]) -> String {
    let word = tokenizer.encode("word", PLAIN).unwrap();
    let before = tokenizer.decode(&word, SpecialTokens::Skip).unwrap();
    let whole = tokenizer.decode(&[&word[..], tokens].concat(), SpecialTokens::Skip).unwrap();
    whole.strip_prefix(before.as_str()).expect("a whole character ends the word").to_owned()
}

/// The characters that the bytes of `tokens` are, without the help of a decoder, up to the first byte that is no UTF-8.
fn spelled(tokenizer: &Tokenizer, tokens: &[TokenId]) -> String {
    let kept = tokens.iter().filter(|&&token| !tokenizer.is_special(token));
    let bytes: Vec<u8> = kept.filter_map(|&token| tokenizer.token_bytes(token)).flatten().copied().collect();
    bytes.utf8_chunks().next().map_or(String::new(), |chunk| chunk.valid().to_owned())
}

#[test]
fn a_completion_is_the_text_that_its_tokens_add_to_the_prompt() {
    for &kind in KINDS {
        let tokenizer = tokenizer(kind);
        let (mut compared, mut with_space) = (0, 0);
        for (depth, budget) in [(1, Budget::OnePass), (2, Budget::OnePass), (1, Budget::Time(Duration::from_micros(1)))]
        {
            let mut engine = open(kind, depth);
            for seed in 1..=24 {
                let prompt = tokenizer.encode("The engine", PLAIN).unwrap();
                let params = SamplingParams { completions: 2, ..params(seed) };
                engine.handle().add_request(Prompt::Tokens(&prompt), params).unwrap();
            }
            let mut completions = Completions::new();
            run(&mut engine, budget, &mut completions);
            assert_eq!(completions.len(), 48);
            assert!(engine.handle().stats().preemptions > 0, "{kind}: not one sequence was preempted");
            for (tokens, text) in completions.values() {
                assert_eq!(*text, continued(&tokenizer, tokens), "{kind}, {tokens:?}");
                let spelled = spelled(&tokenizer, tokens);
                assert!(text.starts_with(&spelled), "{kind}, {tokens:?}: {spelled:?}");
                compared += spelled.len();
                with_space += usize::from(text.starts_with(' '));
            }
        }
        assert!(compared > 100, "{kind}: {compared} bytes were compared");
        assert!(with_space > 0, "{kind}: no completion begins with a space");
    }
}

#[test]
fn a_fork_continues_the_text_of_its_parent() {
    for &kind in KINDS {
        let tokenizer = tokenizer(kind);
        let mut engine = open(kind, 1);
        let prompt = tokenizer.encode("The engine", PLAIN).unwrap();
        let mut forks = 0;
        for seed in 1..=30 {
            let parent = engine.handle().add_request(Prompt::Tokens(&prompt), params(seed)).unwrap();
            let mut completions = Completions::new();
            for _ in 0..10 {
                engine.step(Budget::OnePass).unwrap();
                poll(&mut engine, &mut completions);
            }
            let (tokens, text) = completions[&(parent, 0)].clone();
            // The rest of a character that the parent has begun is U+FFFD in the fork, as its documentation says.
            if continued(&tokenizer, &tokens) != text {
                run(&mut engine, Budget::OnePass, &mut completions);
                continue;
            }
            let fork = engine.fork(parent, 0, params(seed + 100)).unwrap();
            run(&mut engine, Budget::OnePass, &mut completions);
            let (added, added_text) = &completions[&(fork, 0)];
            let joined = [&tokens[..], added].concat();
            assert_eq!(text + added_text, continued(&tokenizer, &joined), "{kind}, {joined:?}");
            forks += 1;
        }
        assert!(forks >= 5, "{kind}: {forks} forks");
    }
}

#[test]
fn a_restored_prefix_gives_the_same_text() {
    for &kind in KINDS {
        let prompt = tokenizer(kind).encode("The engine answers questions about prime numbers.", PLAIN).unwrap();
        let answer = |engine: &mut Engine| {
            engine.handle().add_request(Prompt::Tokens(&prompt), params(7)).unwrap();
            let mut completions = Completions::new();
            run(engine, Budget::OnePass, &mut completions);
            completions.into_values().next().unwrap()
        };
        let mut engine = open(kind, 1);
        let first = answer(&mut engine);
        let prefix = engine.find_prefix(&prompt, 0).unwrap();
        let mut bytes = vec![0; prefix.bytes()];
        engine.save_prefix(&prefix, &mut bytes).unwrap();
        let mut other = open(kind, 1);
        assert!(other.restore_prefix(&bytes).unwrap() > 0);
        assert_eq!(answer(&mut other), first, "{kind}");
    }
}

#[test]
fn a_prompt_that_begins_with_the_tokens_that_are_added_does_not_get_them_twice() {
    let spelled = Encoding { added: AddedTokens::Omit, spelled: SpelledTokens::Parse };
    for &kind in KINDS {
        let tokenizer = tokenizer(kind);
        let before = tokenizer.added_before();
        let begins_texts =
            ["byte_level_bos", "byte_level_cases", "sentencepiece", "blocks_without_prefix", "blocks_first"];
        assert_eq!(before.is_some(), begins_texts.contains(&kind), "{kind}: {before:?}");
        let whole = before.clone().unwrap_or_default() + "Hello there";
        let added = Encoding { added: AddedTokens::Add, ..spelled };
        let mut engine = open(kind, 1);
        let mut prompt_tokens = |text: &str| {
            engine
                .handle()
                .add_request(Prompt::Text(text), SamplingParams { max_tokens: Some(1), ..params(1) })
                .unwrap();
            engine.step(Budget::OnePass).unwrap();
            let output = engine.next_output().unwrap();
            output.prompt_tokens as usize
        };
        assert_eq!(prompt_tokens(&whole), tokenizer.encode(&whole, spelled).unwrap().len(), "{kind}");
        assert_eq!(prompt_tokens("Hello there"), tokenizer.encode("Hello there", added).unwrap().len(), "{kind}");
    }
}

#[test]
fn a_stop_string_ends_a_text_wherever_its_tokens_split_it() {
    for &kind in KINDS {
        let mut engine = open(kind, 1);
        let prompt = tokenizer(kind).encode("The engine", PLAIN).unwrap();
        let mut stopped = 0;
        for seed in 1..=6 {
            let mut answer = |stop: Option<&str>| {
                let stop_strings = stop.into_iter().map(str::to_owned).collect();
                let params = SamplingParams { stop_strings, ..params(seed) };
                engine.handle().add_request(Prompt::Tokens(&prompt), params).unwrap();
                let mut completions = Completions::new();
                run(&mut engine, Budget::OnePass, &mut completions);
                completions.into_values().next().unwrap().1
            };
            let whole = answer(None);
            let starts: Vec<usize> = whole.char_indices().map(|(at, _)| at).collect();
            for (from, to) in starts.iter().zip(starts.iter().skip(3)).step_by(5) {
                let stop = &whole[*from..*to];
                let end = whole.find(stop).unwrap();
                assert_eq!(answer(Some(stop)), whole[..end], "{kind}, {stop:?} in {whole:?}");
                stopped += 1;
            }
        }
        assert!(stopped > 20, "{kind}: {stopped}");
    }
}

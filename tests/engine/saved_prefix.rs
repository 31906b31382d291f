//! Prefixes travel from engine to engine as bytes, and running requests fork.

use crate::demo;
use crate::fake_runner;

use base::TokenId;
use base::error::{Error, Result};
use compute::batch::BatchLimits;
use engine::options::PrefixCache;
use engine::output::Output;
use engine::sampling_params::{Eos, Pinning, SamplingParams};
use engine::{Budget, Engine, EngineLimits, Prompt};
use fake_runner::oracle::{SEED, oracle};
use fake_runner::{Shape, load};
use runner::Device;
use std::ops::ControlFlow;
use text::tokenizer::{AddedTokens, Encoding, SpelledTokens};

const BLOCK_SIZE: usize = 4;

fn shape(blocks: usize, depth: usize) -> Shape {
    let limits = BatchLimits { tokens: 16, rows: 4, model_len: 64, block_size: BLOCK_SIZE, ..BatchLimits::NONE };
    Shape { limits, blocks, vocab: 24, stages: 2, depth, window: None, states: None, windowed: None }
}

fn open(shape: Shape) -> Engine {
    let limits = EngineLimits { max_queue: None, prefix_cache: PrefixCache::On, seed: SEED };
    Engine::with_runner(load(shape), limits)
}

fn params(max_tokens: u32) -> SamplingParams {
    SamplingParams { max_tokens: Some(max_tokens), eos: Eos::Ignored, ..SamplingParams::default() }
}

/// Tokens that no other `kind` begins with.
fn prompt(kind: u32, len: u32) -> Vec<TokenId> {
    (0..len).map(|i| 1 + (kind * 5 + i * i) % 23).collect()
}

fn answer(engine: &mut Engine, prompt: &[TokenId], params: &SamplingParams) -> Output {
    let prompts = [Prompt::Tokens(prompt)];
    engine.generate(&prompts, std::slice::from_ref(params), &mut |_| ControlFlow::Continue(())).unwrap().remove(0)
}

fn save(engine: &mut Engine, tokens: &[TokenId], salt: u64) -> Result<Vec<u8>> {
    let prefix = engine.find_prefix(tokens, salt)?;
    let mut bytes = vec![0xff; prefix.bytes()];
    engine.save_prefix(&prefix, &mut bytes)?;
    Ok(bytes)
}

/// The word that names what is wrong with saved bytes.
fn refusal(engine: &mut Engine, bytes: &[u8]) -> &'static str {
    match engine.restore_prefix(bytes) {
        Err(Error::SavedPrefix { what, .. }) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_prefix_goes_on_in_another_engine() {
    for depth in [1, 2] {
        let (mut here, mut there) = (open(shape(32, depth)), open(shape(32, depth)));
        let first = answer(&mut here, &prompt(0, 21), &params(10));
        // 31 tokens, of which the last was never computed: 7 full blocks.
        let conversation = [prompt(0, 21), first.token_ids].concat();
        let bytes = save(&mut here, &conversation, 0).unwrap();
        assert_eq!(there.restore_prefix(&bytes).unwrap(), 28, "depth {depth}");
        assert_eq!(there.handle().stats().kv_blocks_used, 0, "restored blocks are free");
        let next = [&conversation[..], &[3, 1, 2]].concat();
        let (again, anew) =
            (answer(&mut there, &next, &params(9)), oracle(1, 0, &next, &params(9), &shape(32, depth)).0);
        assert_eq!((again.cached_tokens, again.token_ids), (28, anew), "depth {depth}");
        assert_eq!(save(&mut there, &conversation, 0).unwrap(), bytes, "and from there back, byte for byte");
    }
}

#[test]
fn a_running_request_is_saved_as_far_as_it_has_come_and_others_go_on_meanwhile() {
    for depth in [1, 2] {
        let (mut here, mut there) = (open(shape(32, depth)), open(shape(32, depth)));
        let (handle, tokens) = (here.handle().clone(), prompt(1, 30));
        handle.add_request(Prompt::Tokens(&tokens), params(8)).unwrap();
        for _ in 0..2 {
            here.step(Budget::OnePass).unwrap();
        }
        let bytes = save(&mut here, &tokens, 0).unwrap();
        // There, too, something runs, and is in the middle of a pass.
        let id = there.handle().add_request(Prompt::Tokens(&prompt(2, 30)), params(20)).unwrap();
        there.step(Budget::Time(std::time::Duration::ZERO)).unwrap();
        assert_eq!(there.restore_prefix(&bytes).unwrap(), 28, "depth {depth}");
        let again = answer(&mut there, &tokens, &params(8));
        assert_eq!(again.token_ids, oracle(2, 0, &tokens, &params(8), &shape(32, depth)).0, "depth {depth}");
        assert_eq!(again.cached_tokens, 28, "depth {depth}");
        let mut other: Vec<TokenId> = Vec::new();
        while !there.handle().is_finished() {
            while let Some(output) = there.next_output() {
                other.extend(&output.token_ids);
            }
            there.step(Budget::OnePass).unwrap();
        }
        while let Some(output) = there.next_output() {
            other.extend(&output.token_ids);
        }
        assert_eq!(other, oracle(id, 0, &prompt(2, 30), &params(20), &shape(32, depth)).0, "depth {depth}");
    }
}

#[test]
fn what_is_there_already_is_kept_and_the_beginning_is_never_evicted_for_the_end() {
    let (mut here, mut there) = (open(shape(16, 1)), open(shape(16, 1)));
    let tokens = prompt(0, 60);
    answer(&mut here, &tokens, &params(1));
    let bytes = save(&mut here, &tokens, 0).unwrap();
    // The first blocks of the same prompt are the least recently used ones, and all others are taken by something else.
    answer(&mut there, &tokens[..12], &params(1));
    answer(&mut there, &prompt(1, 48), &params(1));
    assert_eq!(there.restore_prefix(&bytes).unwrap(), 60);
    let again = answer(&mut there, &tokens, &params(3));
    assert_eq!((again.cached_tokens, again.token_ids), (56, oracle(3, 0, &tokens, &params(3), &shape(16, 1)).0));
    assert_eq!(there.restore_prefix(&bytes[..]).unwrap(), 60, "once more changes nothing");
}

#[test]
fn a_prefix_that_finds_too_few_free_blocks_is_refused_without_a_trace() {
    let (mut here, mut there) = (open(shape(32, 1)), open(shape(20, 1)));
    let tokens = prompt(0, 61);
    answer(&mut here, &tokens, &params(1));
    let bytes = save(&mut here, &tokens, 0).unwrap();
    let pinned = SamplingParams { pinning: Pinning::Pinned, ..params(1) };
    answer(&mut there, &prompt(1, 16), &pinned);
    there.handle().add_request(Prompt::Tokens(&prompt(2, 10)), params(20)).unwrap();
    there.step(Budget::OnePass).unwrap();
    match there.restore_prefix(&bytes) {
        Err(Error::NoFreeBlocks { blocks, free }) => assert_eq!((blocks, free), (15, 20 - 4 - 3)),
        other => panic!("{other:?}"),
    }
    assert_eq!(there.handle().stats().prefix_cache.evictions, 0);
    there.handle().release_prefix(1).unwrap();
    assert_eq!(there.restore_prefix(&bytes).unwrap(), 60, "what was released makes room");
}

#[test]
fn salts_travel_along() {
    let (mut here, mut there) = (open(shape(32, 1)), open(shape(32, 1)));
    let salted = SamplingParams { cache_salt: 7, ..params(1) };
    answer(&mut here, &prompt(0, 12), &salted);
    assert!(matches!(save(&mut here, &prompt(0, 12), 0), Err(Error::NotCached { tokens: 12, block_size: 4 })));
    let bytes = save(&mut here, &prompt(0, 12), 7).unwrap();
    there.restore_prefix(&bytes).unwrap();
    assert_eq!(answer(&mut there, &prompt(0, 12), &params(1)).cached_tokens, 0, "another salt");
    assert_eq!(answer(&mut there, &prompt(0, 12), &salted).cached_tokens, 8);
}

#[test]
fn damaged_bytes_are_refused_with_the_reason() {
    let (mut here, mut there) = (open(shape(32, 1)), open(shape(32, 1)));
    answer(&mut here, &prompt(0, 12), &params(1));
    let bytes = save(&mut here, &prompt(0, 12), 0).unwrap();
    assert_eq!(bytes.len(), 64 + 3 * BLOCK_SIZE * (4 + 8));
    for len in 0..bytes.len() {
        assert_eq!(refusal(&mut there, &bytes[..len]), "length", "{len} bytes");
    }
    assert_eq!(refusal(&mut there, &[&bytes[..], &[0]].concat()), "length", "a byte too many");
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let expected = match at {
            0..8 => "beginning",
            8..12 => "version",
            12..16 => "KV cache format",
            16..20 => "number of layers",
            20..24 => "number of KV heads",
            24..28 => "size of a head",
            28..32 => "kv_block_size",
            32..40 => "fingerprint of the model",
            48..56 => "length",
            _ => "checksum",
        };
        assert_eq!(refusal(&mut there, &damaged), expected, "byte {at}");
    }
    assert_eq!(answer(&mut there, &prompt(0, 12), &params(1)).cached_tokens, 0, "nothing of it was taken up");
    assert_eq!(there.restore_prefix(&bytes).unwrap(), 12);
}

#[test]
fn bytes_of_another_model_or_block_size_are_refused() {
    let mut here = open(shape(32, 1));
    answer(&mut here, &prompt(0, 12), &params(1));
    let bytes = save(&mut here, &prompt(0, 12), 0).unwrap();
    let mut other_model = open(Shape { vocab: 25, ..shape(32, 1) });
    assert_eq!(refusal(&mut other_model, &bytes), "fingerprint of the model");
    let limits = BatchLimits { block_size: 8, ..shape(32, 1).limits };
    let message = open(Shape { limits, ..shape(32, 1) }).restore_prefix(&bytes).unwrap_err().to_string();
    assert_eq!(
        message,
        "the saved prefix cannot be restored: its kv_block_size is 4, but must be 8, as in this engine"
    );
}

#[test]
fn without_a_prefix_cache_nothing_is_saved_or_restored() {
    let limits = EngineLimits { max_queue: None, prefix_cache: PrefixCache::Off, seed: SEED };
    let mut engine = Engine::with_runner(load(shape(8, 1)), limits);
    assert!(matches!(engine.find_prefix(&[1; 8], 0).err(), Some(Error::Unsupported { .. })));
    assert!(matches!(engine.restore_prefix(&[]), Err(Error::Unsupported { .. })));
}

#[test]
fn a_fork_begins_with_all_that_a_request_has_so_far() {
    for (prefix_cache, depth) in [(PrefixCache::On, 1), (PrefixCache::On, 2), (PrefixCache::Off, 2)] {
        let name = format!("{prefix_cache:?}, depth {depth}");
        let shape = shape(64, depth);
        let mut engine = Engine::with_runner(load(shape), EngineLimits { max_queue: None, prefix_cache, seed: SEED });
        let handle = engine.handle().clone();
        let original = SamplingParams { completions: 2, cache_salt: 5, ..params(20) };
        let id = handle.add_request(Prompt::Tokens(&prompt(0, 9)), original).unwrap();
        let mut heard = std::collections::HashMap::<(u64, u32), Vec<TokenId>>::new();
        let mut poll = |engine: &mut Engine| {
            while let Some(output) = engine.next_output() {
                heard.entry((output.request_id, output.index)).or_default().extend(&output.token_ids);
            }
            heard.clone()
        };
        for _ in 0..8 {
            engine.step(Budget::OnePass).unwrap();
        }
        let so_far = [prompt(0, 9), poll(&mut engine)[&(id, 1)].clone()].concat();
        assert!(so_far.len() > 12, "{name}: {so_far:?}");
        let fork = engine.fork(id, 1, SamplingParams { temperature: 0.7, ..params(6) }).unwrap();
        assert!(
            matches!(engine.fork(id, 2, params(1)), Err(Error::UnknownRequest { .. })),
            "{name}: no such completion"
        );
        let other_salt = engine.fork(id, 0, SamplingParams { cache_salt: 6, ..params(1) });
        assert!(matches!(other_salt, Err(Error::Option { field: "cache_salt", .. })), "{name}");
        while !handle.is_finished() {
            engine.step(Budget::OnePass).unwrap();
            poll(&mut engine);
        }
        let wanted = oracle(fork, 0, &so_far, &SamplingParams { temperature: 0.7, ..params(6) }, &shape).0;
        let heard = poll(&mut engine);
        assert_eq!(heard[&(fork, 0)], wanted, "{name}");
        assert_eq!(
            heard[&(id, 1)],
            oracle(id, 1, &prompt(0, 9), &params(20), &shape).0,
            "{name}: the original goes on"
        );
        let hits = if prefix_cache == PrefixCache::On { 3 * BLOCK_SIZE } else { 0 };
        assert!(handle.stats().prefix_cache.hits as usize >= hits, "{name}");
        assert!(matches!(engine.fork(id, 0, params(1)), Err(Error::UnknownRequest { .. })), "{name}: it has ended");
    }
}

#[test]
fn a_request_that_waits_or_was_just_added_can_be_forked_and_a_cancelled_one_not() {
    let mut engine = open(shape(32, 1));
    let handle = engine.handle().clone();
    let id = handle.add_request(Prompt::Tokens(&prompt(0, 9)), params(4)).unwrap();
    let fork = engine.fork(id, 0, params(4)).unwrap();
    handle.cancel(id).unwrap();
    assert!(matches!(engine.fork(id, 0, params(1)), Err(Error::UnknownRequest { .. })));
    let mut tokens: Vec<TokenId> = Vec::new();
    while !handle.is_finished() {
        engine.step(Budget::OnePass).unwrap();
        while let Some(output) = engine.next_output() {
            assert!(output.request_id == fork || output.token_ids.is_empty());
            tokens.extend(&output.token_ids);
        }
    }
    assert_eq!(tokens, oracle(fork, 0, &prompt(0, 9), &params(4), &shape(32, 1)).0);
}

/// The same bytes of keys and values, so the same logits: greedy answers of a trained model are equal to the last token.
#[test]
fn the_demo_model_goes_on_with_equal_tokens() {
    let open = || Engine::open(&demo::options(Device::Cpu), &mut |_| ControlFlow::Continue(())).unwrap();
    let text = r#"[{"role": "user", "content": "list all prime numbers within 90"}]"#;
    let (mut here, mut there) = (open(), open());
    let prompt = here.handle().chat_template().unwrap().render(text, "").unwrap();
    let whole = demo::greedy(0);
    let first = answer_text(&mut here, &prompt, &whole);
    let id = here.handle().add_request(Prompt::Text(&prompt), whole.clone()).unwrap();
    let mut tokens: Vec<TokenId> = Vec::new();
    while tokens.len() < 40 {
        here.step(Budget::OnePass).unwrap();
        while let Some(output) = here.next_output() {
            tokens.extend(&output.token_ids);
        }
    }
    here.handle().cancel(id).unwrap();
    let (encoding, handle) =
        (Encoding { added: AddedTokens::Add, spelled: SpelledTokens::Parse }, there.handle().clone());
    let before = [handle.tokenizer().unwrap().encode(&prompt, encoding).unwrap(), tokens.clone()].concat();
    let bytes = save(&mut here, &before, 0).unwrap();
    let restored = there.restore_prefix(&bytes).unwrap();
    assert!(restored >= before.len() - demo::BLOCK_SIZE && restored.is_multiple_of(demo::BLOCK_SIZE));
    let rest = answer(&mut there, &before, &whole);
    assert_eq!(rest.cached_tokens as usize, restored);
    assert_eq!([tokens, rest.token_ids].concat(), first.token_ids);
}

fn answer_text(engine: &mut Engine, prompt: &str, params: &SamplingParams) -> Output {
    let prompts = [Prompt::Text(prompt)];
    engine.generate(&prompts, std::slice::from_ref(params), &mut |_| ControlFlow::Continue(())).unwrap().remove(0)
}

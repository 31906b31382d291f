//! An engine over a model with recurrent layers: whatever is shared, evicted, preempted, forked, saved and cut, each request gets the answer that it gets
//! alone.

use crate::driver;
use crate::gguf_file::GgufFile;
use crate::schedules::{answers, ask};
use crate::scratch_folder::Folder;

use base::TokenId;
use base::error::Error;
use driver::golden;
use engine::options::{EngineOptions, PrefixCache};
use engine::sampling_params::{Eos, Pinning, SamplingParams};
use engine::{Budget, Engine, Prompt};
use runner::Device;
use std::ops::ControlFlow;
use std::time::Duration;

/// One of each kind of recurrent layer, in layers of two sublayers, of one, beside attention, and without any.
const MODELS: [&str; 8] = [
    "qwen3_5-f32",
    "lfm2-f32",
    "lfm3-f32",
    "granitemoehybrid-f32-mamba",
    "nemotron_h-f32",
    "falcon_h1-f32-norm",
    "mamba2-f32",
    "falcon_h1-f32-one-group",
];

/// Models that four ranks divide, of which some share a group of a selective scan.
const SHARED_GROUPS: [&str; 2] = ["falcon_h1-f32-one-group", "granitemoehybrid-f32-seven-experts"];

fn options(change: impl Fn(&mut EngineOptions)) -> EngineOptions {
    options_of(MODELS[0], change)
}

fn options_of(model: &str, change: impl Fn(&mut EngineOptions)) -> EngineOptions {
    let mut options = EngineOptions::new(golden(model));
    options.device = Device::Cpu;
    options.num_threads = Some(2);
    options.kv_block_size = Some(4);
    options.max_num_seqs = Some(6);
    options.kv_cache_bytes = Some(8 << 20);
    options.state_interval = Some(16);
    options.seed = Some(3);
    change(&mut options);
    options
}

fn open(change: impl Fn(&mut EngineOptions)) -> Engine {
    Engine::open(&options(change), &mut |_| ControlFlow::Continue(())).unwrap()
}

#[test]
fn whatever_the_schedule_each_request_gets_the_bits_that_it_gets_alone() {
    MODELS.into_iter().for_each(each_request_gets_the_bits_that_it_gets_alone);
}

fn each_request_gets_the_bits_that_it_gets_alone(model: &str) {
    let open = |change: &dyn Fn(&mut EngineOptions)| {
        Engine::open(&options_of(model, change), &mut |_| ControlFlow::Continue(())).unwrap()
    };
    let alone = |options: &mut EngineOptions| options.prefix_cache = PrefixCache::Off;
    let wanted = answers(&mut open(&alone), Budget::OnePass, 1);
    let info = open(&|_| ()).handle().model_info().clone();
    // Where layers with a window have block tables of their own, a sequence takes blocks in each.
    let tables = if info.windowed.is_some() { 2 } else { 1 };
    let (state, block) = (info.states.bytes as u64, tables * info.kv_layout.block_bytes() as u64);
    // The states of six sequences, and one more and few blocks, or fewer blocks and none.
    let few_states = 6 * state + (4 * state).max(60 * block);
    // Where a state is small beside a block, more of the memory becomes checkpoints.
    let few_blocks = 6 * state + if state > 8 * block { 31 } else { 40 } * block;
    type Change<'a> = &'a dyn Fn(&mut EngineOptions);
    let cases: [(&str, Change, Budget, usize); 7] = [
        ("one after another, sharing prefixes", &|_| (), Budget::OnePass, 1),
        ("all at once", &|_| (), Budget::OnePass, 100),
        ("one checkpoint", &|o| o.kv_cache_bytes = Some(few_states), Budget::OnePass, 100),
        (
            "few blocks",
            &|o| (o.max_batched_tokens, o.kv_cache_bytes) = (Some(16), Some(few_blocks)),
            Budget::OnePass,
            100,
        ),
        ("small chunks", &|o| (o.max_batched_tokens, o.max_num_seqs) = (Some(7), Some(3)), Budget::OnePass, 100),
        ("passes cut in the middle", &|o| o.num_threads = Some(1), Budget::Time(Duration::ZERO), 5),
        ("two ranks", &|o| o.tensor_parallel_size = 2, Budget::OnePass, 100),
    ];
    let mut preempted = 0;
    for (name, change, budget, at_once) in cases {
        let mut engine = open(change);
        let found = answers(&mut engine, budget, at_once);
        for (request, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            assert_eq!(found, wanted, "{model}, {name}, request {request}");
        }
        preempted += engine.handle().stats().preemptions;
    }
    // Without attention no sequence needs a block that there is not.
    assert!(preempted > 0 || model == "mamba2-f32", "{model}: nothing was preempted");
}

/// The value heads of a key head are not neighbours in such a file.
#[test]
fn ranks_of_a_gguf_file_give_the_bits_of_one() {
    let file = GgufFile::assemble("qwen3_5-f32", "ranks");
    let answer = |ranks| {
        let mut options = options(|o| o.tensor_parallel_size = ranks);
        options.model_path = file.path.clone();
        let mut engine = Engine::open(&options, &mut |_| ControlFlow::Continue(())).unwrap();
        answers(&mut engine, Budget::OnePass, 100)
    };
    assert_eq!(answer(2), answer(1));
}

#[test]
fn a_turn_of_a_conversation_computes_no_more_than_what_is_new_and_an_interval() {
    let mut engine = open(|_| ());
    let mut text: Vec<TokenId> = Vec::new();
    for turn in 0..8 {
        let known = text.len();
        text.extend((0..13).map(|i| 3 + (turn * 31 + i * 7) % 80));
        let (answer, cached) = ask(&mut engine, &text, 9);
        let again = known as u32 - cached.min(known as u32);
        assert!(again < 16 + 4, "turn {turn} computes {again} of {known} known tokens again");
        text.extend(answer);
    }
}

/// 20 turns of 500 tokens, of which 60 are the model's: what is computed again in a turn is less than an interval. The engine says it itself.
#[test]
fn a_long_conversation_computes_less_than_an_interval_again_in_each_turn() {
    const INTERVAL: u64 = 128;
    let folder = Folder::copy(MODELS[0], "long-conversation");
    folder.edit_json("config.json", |config| config["max_position_embeddings"] = 16_384.into());
    let open = |sequences| {
        let mut options = options(|o| {
            o.state_interval = Some(INTERVAL as usize);
            o.max_num_seqs = Some(sequences);
            o.kv_cache_bytes = Some(64 << 20);
        });
        options.model_path = folder.path.clone();
        Engine::open(&options, &mut |_| ControlFlow::Continue(())).unwrap()
    };
    let (mut engine, mut other) = (open(2), open(2));
    let mut text: Vec<TokenId> = Vec::new();
    for turn in 0..20 {
        let (known, before) = (text.len(), engine.handle().stats().prefix_cache);
        text.extend((0..440).map(|i| 3 + (turn * 31 + i * i * 7) % 80));
        let (answer, cached) = ask(&mut engine, &text, 60);
        let recomputed = engine.handle().stats().prefix_cache.recomputed - before.recomputed;
        assert!(recomputed < INTERVAL, "turn {turn}: {recomputed}");
        // The last token of an answer was not computed when it ended, nor was a block that is not full.
        assert!(known.saturating_sub(cached as usize) < INTERVAL as usize + 5, "turn {turn}: {cached} of {known}");
        if turn == 10 {
            let prefix = engine.find_prefix(&text, 0).unwrap();
            assert!(text.len() - prefix.tokens() < INTERVAL as usize);
            let mut bytes = vec![0; prefix.bytes()];
            engine.save_prefix(&prefix, &mut bytes).unwrap();
            other.restore_prefix(&bytes).unwrap();
            let (restored, cached) = ask(&mut other, &text, 60);
            assert_eq!((restored, cached as usize), (answer.clone(), prefix.tokens()), "in another engine");
        }
        text.extend(answer);
    }
    assert_eq!(text.len(), 10_000);
    // A fork of the conversation, cut where a turn ended, has that turn's checkpoint.
    let before = engine.handle().stats().prefix_cache.recomputed;
    let (_, cached) = ask(&mut engine, &text[..9_440], 2);
    assert!(9_440 - cached < INTERVAL as u32 && engine.handle().stats().prefix_cache.recomputed - before < INTERVAL);
}

#[test]
fn a_saved_prefix_goes_on_in_another_engine() {
    let mut engine = open(|_| ());
    let prompt: Vec<TokenId> = (0..50).map(|i| 3 + i * 7 % 80).collect();
    let (answer, _) = ask(&mut engine, &prompt, 10);
    let prefix = engine.find_prefix(&prompt, 0).unwrap();
    assert_eq!(prefix.tokens(), 48, "the last full block of the prompt");
    let mut bytes = vec![0; prefix.bytes()];
    engine.save_prefix(&prefix, &mut bytes).unwrap();

    let mut other = open(|_| ());
    assert_eq!(other.restore_prefix(&bytes).unwrap(), 48);
    assert_eq!(ask(&mut other, &prompt, 10), (answer, 48));

    let mut dense = EngineOptions::new(golden("qwen3-f32-embedding"));
    (dense.device, dense.kv_block_size, dense.kv_cache_bytes) = (Device::Cpu, Some(4), Some(1 << 20));
    let mut dense = Engine::open(&dense, &mut |_| ControlFlow::Continue(())).unwrap();
    let message = dense.restore_prefix(&bytes).unwrap_err().to_string();
    assert!(message.contains("the saved prefix has a recurrent state, and this model keeps none"), "{message}");
    bytes[8] = 1;
    let message = other.restore_prefix(&bytes).unwrap_err().to_string();
    assert!(message.contains("this model keeps recurrent state, and the saved prefix has none"), "{message}");
}

/// Whoever has a head writes it, and whoever needs it gets it: the bytes do not depend on how many ranks there are.
#[test]
fn a_state_that_several_ranks_save_is_that_of_one() {
    let prompt: Vec<TokenId> = (0..50).map(|i| 3 + i * 7 % 80).collect();
    let tiled = GgufFile::assemble("qwen3_5-f32", "saved-by-ranks");
    let folders = MODELS.iter().map(|model| (golden(model), 2)).chain([(tiled.path.clone(), 2)]);
    let shared = SHARED_GROUPS.iter().flat_map(|model| [3, 4].map(|ranks| (golden(model), ranks)));
    for (path, ranks) in folders.chain(shared) {
        let open = |ranks| {
            let mut options = options(|o| o.tensor_parallel_size = ranks);
            options.model_path = path.clone();
            Engine::open(&options, &mut |_| ControlFlow::Continue(())).unwrap()
        };
        let save = |engine: &mut Engine| {
            let (answer, _) = ask(engine, &prompt, 10);
            let prefix = engine.find_prefix(&prompt, 0).unwrap();
            let mut bytes = vec![0; prefix.bytes()];
            engine.save_prefix(&prefix, &mut bytes).unwrap();
            (answer, bytes)
        };
        let (mut one, mut several) = (open(1), open(ranks));
        let ((answer, of_one), (same, of_several)) = (save(&mut one), save(&mut several));
        let what = path.display();
        assert!((&answer, &of_one) == (&same, &of_several), "{what}, {ranks} ranks");
        for (ranks, bytes) in [(1, &of_several), (ranks, &of_one)] {
            let mut other = open(ranks);
            assert_eq!(other.restore_prefix(bytes).unwrap(), 48, "{what}, {ranks} ranks");
            assert_eq!(ask(&mut other, &prompt, 10), (answer.clone(), 48), "{what}, {ranks} ranks");
        }
    }
}

#[test]
fn a_pinned_prompt_is_continued_after_all_others_were_evicted() {
    let mut engine = open(|o| (o.max_num_seqs, o.kv_cache_bytes) = (Some(1), Some(600_000)));
    let states = engine.handle().model_info().states;
    assert!(states.slots >= 3, "{states:?}");
    let pinned: Vec<TokenId> = (0..41).map(|i| 3 + i * 7 % 80).collect();
    let params = SamplingParams {
        max_tokens: Some(2),
        eos: Eos::Ignored,
        pinning: Pinning::Pinned,
        ..SamplingParams::default()
    };
    engine.handle().add_request(Prompt::Tokens(&pinned), params).unwrap();
    while !engine.handle().is_finished() {
        engine.step(Budget::OnePass).unwrap();
        while engine.next_output().is_some() {}
    }
    for other in 0..2 * states.slots as TokenId {
        let prompt: Vec<TokenId> = (0..40).map(|i| 3 + (other * 13 + i * 11) % 80).collect();
        ask(&mut engine, &prompt, 2);
    }
    assert_eq!(ask(&mut engine, &pinned, 2).1, 40);
}

#[test]
fn more_sequences_than_their_states_have_room_are_refused_with_the_number_that_fits() {
    let state = open(|_| ()).handle().model_info().states.bytes as u64;
    let bytes = 4 * state + state / 2;
    let options = options(|o| o.kv_cache_bytes = Some(bytes));
    match Engine::open(&options, &mut |_| ControlFlow::Continue(())) {
        Err(Error::StatesTooLarge { sequences: 6, fits: 4, .. }) => (),
        other => panic!("{:?}", other.err()),
    }
    // Where nobody asked for a number, fewer run.
    let engine = open(|o| (o.max_num_seqs, o.kv_cache_bytes) = (None, Some(bytes)));
    assert_eq!(engine.handle().model_info().limits.rows, 2);
}

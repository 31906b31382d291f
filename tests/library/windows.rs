//! An engine over a model in which some layers have a sliding window and some have none. The blocks before a window are given back. Whatever is shared,
//! evicted, preempted, forked, saved and cut, each request gets the answer that it gets alone.

use crate::driver;
use crate::schedules::{answers, ask};
use crate::scratch_folder::Folder;

use base::TokenId;
use driver::golden;
use engine::options::{EngineOptions, PrefixCache};
use engine::sampling_params::{Eos, Pinning, SamplingParams};
use engine::{Budget, Engine, Prompt};
use runner::Device;
use std::ops::ControlFlow;
use std::time::Duration;

/// Windows in two of three layers, and in every second one; in the last three with heads of two sizes.
const MODELS: [&str; 6] = [
    "gemma3-f32",
    "cohere2-f32",
    "gemma2-f32",
    // Of these, layers without a window have half, twice and as many numbers as the others.
    "gemma4_text-f32-wide-windows",
    "gemma4_text-bf16-per-layer",
    "gemma4_unified-bf16-head512",
];

fn open_in(model: &str, change: impl Fn(&mut EngineOptions)) -> Engine {
    let mut options = EngineOptions::new(golden(model));
    options.device = Device::Cpu;
    options.num_threads = Some(2);
    options.kv_block_size = Some(4);
    options.max_num_seqs = Some(6);
    options.kv_cache_bytes = Some(8 << 20);
    options.seed = Some(3);
    change(&mut options);
    Engine::open(&options, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn open(change: impl Fn(&mut EngineOptions)) -> Engine {
    open_in(MODELS[0], change)
}

#[test]
fn whatever_the_schedule_each_request_gets_the_bits_that_it_gets_alone() {
    MODELS.into_iter().for_each(each_request_gets_the_bits_that_it_gets_alone);
}

fn each_request_gets_the_bits_that_it_gets_alone(model: &str) {
    let alone = |options: &mut EngineOptions| options.prefix_cache = PrefixCache::Off;
    let mut wanted = open_in(model, alone);
    let info = wanted.handle().model_info().clone();
    let windowed = info.windowed.expect("a model with groups");
    let wanted = answers(&mut wanted, Budget::OnePass, 1);
    // Room for the longest request and a half.
    let few = info.blocks_of(102) * 3 / 2 * info.kv_layout.block_bytes();
    assert!(windowed.window < 90, "{windowed:?}");
    type Change<'a> = &'a dyn Fn(&mut EngineOptions);
    let cases: [(&str, Change, Budget, usize); 6] = [
        ("one after another, sharing prefixes", &|_| (), Budget::OnePass, 1),
        ("all at once", &|_| (), Budget::OnePass, 100),
        (
            "few blocks",
            &|o| (o.max_batched_tokens, o.kv_cache_bytes) = (Some(16), Some(few as u64)),
            Budget::OnePass,
            100,
        ),
        ("small chunks", &|o| (o.max_batched_tokens, o.max_num_seqs) = (Some(7), Some(3)), Budget::OnePass, 100),
        ("passes cut in the middle", &|o| o.num_threads = Some(1), Budget::Time(Duration::ZERO), 5),
        ("two ranks", &|o| o.tensor_parallel_size = 2, Budget::OnePass, 100),
    ];
    let mut preempted = 0;
    for (name, change, budget, at_once) in cases {
        let mut engine = open_in(model, change);
        let found = answers(&mut engine, budget, at_once);
        for (request, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            assert_eq!(found, wanted, "{model}, {name}, request {request}");
        }
        preempted += engine.handle().stats().preemptions;
    }
    assert!(preempted > 0, "{model}: nothing was preempted");
}

/// Without groups, each layer keeps all blocks: the answers must not tell.
#[test]
fn groups_of_layers_change_no_bit() {
    MODELS.into_iter().for_each(groups_change_no_bit);
}

fn groups_change_no_bit(model: &str) {
    let folder = Folder::copy(model, &format!("one-table-{model}"));
    let window = open_in(model, |_| ()).handle().model_info().windowed.unwrap().window;
    let open = |len| open(|o| (o.model_path, o.max_model_len) = (folder.path.clone(), Some(len)));
    // As long as the window and a little more: groups save too little.
    let longest = (window + 1..4 * window).take_while(|&len| open(len).handle().model_info().windowed.is_none()).last();
    let longest = longest.expect("a sequence beyond the window in one table");
    let prompt: Vec<TokenId> = (0..longest as TokenId - 3).map(|i| 3 + i * 7 % 80).collect();
    let (mut one, mut groups) = (open(longest), open(60));
    assert!(one.handle().model_info().windowed.is_none() && groups.handle().model_info().windowed.is_some());
    assert_eq!(ask(&mut one, &prompt, 3), ask(&mut groups, &prompt, 3), "{model}");
}

#[test]
fn a_long_sequence_holds_the_blocks_of_its_windows_alone() {
    let folder = Folder::copy(MODELS[0], "long-windows");
    folder.edit_json("config.json", |config| config["max_position_embeddings"] = 4096.into());
    let mut engine = open(|o| {
        (o.model_path, o.max_batched_tokens) = (folder.path.clone(), Some(16));
        o.kv_cache_bytes = Some(16 << 20);
    });
    let info = engine.handle().model_info().clone();
    let windowed = info.windowed.unwrap();
    let prompt: Vec<TokenId> = (0..1000).map(|i| 3 + i * i * 7 % 80).collect();
    let params = SamplingParams { max_tokens: Some(40), eos: Eos::Ignored, ..SamplingParams::default() };
    engine.handle().add_request(Prompt::Tokens(&prompt), params).unwrap();
    let mut most = 0;
    while !engine.handle().is_finished() {
        engine.step(Budget::OnePass).unwrap();
        while engine.next_output().is_some() {}
        most = most.max(engine.handle().stats().kv_blocks_used as usize);
    }
    // 1040 tokens in blocks of 4, and in each window table those of the window and of a chunk.
    assert!(most <= 260 + windowed.tables * windowed.blocks(16, 4), "{most} blocks, {windowed:?}");
    assert!(most < 260 * (1 + windowed.tables) / 2, "{most} blocks");
}

#[test]
fn a_conversation_continues_what_it_has_computed() {
    let mut engine = open(|_| ());
    let mut text: Vec<TokenId> = Vec::new();
    for turn in 0..8 {
        let known = text.len();
        text.extend((0..13).map(|i| 3 + (turn * 31 + i * 7) % 80));
        let (answer, cached) = ask(&mut engine, &text, 9);
        // A block that is not full, and the last token of an answer, which was not computed.
        assert!(known as u32 - cached.min(known as u32) < 5, "turn {turn}: {cached} of {known}");
        text.extend(answer);
    }
}

#[test]
fn a_saved_prefix_goes_on_in_another_engine() {
    let mut engine = open(|_| ());
    let prompt: Vec<TokenId> = (0..70).map(|i| 3 + i * 7 % 80).collect();
    let (answer, _) = ask(&mut engine, &prompt, 10);
    let prefix = engine.find_prefix(&prompt, 0).unwrap();
    assert_eq!(prefix.tokens(), 68, "full blocks of 4");
    let mut bytes = vec![0; prefix.bytes()];
    engine.save_prefix(&prefix, &mut bytes).unwrap();
    for ranks in [1, 2] {
        let mut other = open(|o| o.tensor_parallel_size = ranks);
        assert_eq!(other.restore_prefix(&bytes).unwrap(), 68);
        assert_eq!(ask(&mut other, &prompt, 10), (answer.clone(), 68), "{ranks} ranks");
        // Once more, into a cache that has it.
        assert_eq!(other.restore_prefix(&bytes).unwrap(), 68);
        assert_eq!(other.handle().stats().kv_blocks_used, 0);
    }
    let window = engine.handle().model_info().windowed.unwrap().window;
    let message = open(|o| o.max_model_len = Some(window)).restore_prefix(&bytes).unwrap_err().to_string();
    assert!(message.contains("set max_model_len as in the engine that saved it"), "{message}");
    bytes[8] = 1;
    let message = open(|_| ()).restore_prefix(&bytes).unwrap_err().to_string();
    assert!(message.contains("keeps the blocks of layers with a window apart"), "{message}");
}

#[test]
fn a_pinned_prompt_is_continued_after_all_others_were_evicted() {
    let blocks = |engine: &Engine| engine.handle().model_info().num_kv_blocks;
    let longest = open(|_| ()).handle().model_info().blocks_of(60);
    let block = open(|_| ()).handle().model_info().kv_layout.block_bytes();
    let mut engine = open(|o| {
        (o.max_num_seqs, o.max_model_len, o.kv_cache_bytes) = (Some(1), Some(60), Some((2 * longest * block) as u64));
    });
    let pinned: Vec<TokenId> = (0..45).map(|i| 3 + i * 7 % 80).collect();
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
    for other in 0..blocks(&engine) as TokenId {
        let prompt: Vec<TokenId> = (0..50).map(|i| 3 + (other * 13 + i * 11) % 80).collect();
        ask(&mut engine, &prompt, 2);
    }
    assert_eq!(ask(&mut engine, &pinned, 2).1, 44);
}

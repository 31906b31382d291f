//! An engine on several ranks gives the answers of one rank, to requests of every kind, and its state goes from one to the other.

use crate::demo;
use crate::driver;
use crate::random_requests;

use base::TokenId;
use base::error::Error;
use driver::golden;
use engine::beam_search::{BeamParams, EarlyStopping};
use engine::options::EngineOptions;
use engine::output::Output;
use engine::sampling_params::{Pinning, Pooling, SamplingParams};
use engine::{Budget, Engine, Prompt};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use runner::{Device, KvCacheDtype};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use text::structure::Structure;

/// Families and number types with different ways to divide them, and their query heads.
const MODELS: &[(&str, usize)] = &[
    ("llama-bf16-sharded-gqa8", 8),
    ("qwen3-f32-untied-gqa8", 8),
    ("qwen2-bf16-head96-gqa7", 7),
    ("qwen2-f16-old-keys", 4),
    ("gemma3-f32", 2),
    ("olmo2-f32", 2),
    ("cohere2-f32", 2),
    ("gemma4-f32-keys-are-values", 4),
    ("muse_glimmer-f32", 2),
];

fn open(folder: &Path, ranks: usize, change: impl Fn(&mut EngineOptions)) -> Engine {
    let mut options = EngineOptions::new(folder);
    options.device = Device::Cpu;
    options.num_threads = Some(2);
    options.kv_block_size = Some(4);
    options.kv_cache_bytes = Some(16 << 20);
    options.seed = Some(3);
    options.tensor_parallel_size = ranks;
    change(&mut options);
    let engine = Engine::open(&options, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(engine.handle().model_info().num_ranks, ranks);
    engine
}

/// Requests of all kinds that a golden model can serve.
fn requests() -> Vec<(Vec<TokenId>, SamplingParams)> {
    let mut runner = TestRunner::deterministic();
    let strategy = (random_requests::prompts(), random_requests::params());
    let mut requests: Vec<_> = (0..24).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect();
    requests.retain(|(prompt, _)| !prompt.is_empty());
    for (_, params) in &mut requests {
        params.max_tokens = Some(params.max_tokens.unwrap_or(12).min(12));
        params.min_tokens = params.min_tokens.min(12);
        params.pinning = Pinning::Evictable;
    }
    let long: Vec<TokenId> = (0..60).map(|i| 1 + i * i % 23).collect();
    let plain = || SamplingParams { max_tokens: Some(8), ..SamplingParams::default() };
    let beams = BeamParams { width: 3, length_penalty: 1.0, early_stopping: EarlyStopping::WhenUnlikely };
    requests.push((long.clone(), SamplingParams { beams: Some(beams), ..plain() }));
    requests.push((long.clone(), SamplingParams { num_logprobs: 4, num_prompt_logprobs: 3, ..plain() }));
    requests.push((long.clone(), SamplingParams { pooling: Pooling::Mean, ..plain() }));
    requests.push((long, SamplingParams { pooling: Pooling::Last, ..plain() }));
    requests
}

/// Everything that outputs say, but for times and what the prefix cache had.
fn answers(engine: &mut Engine, budget: Budget) -> Vec<BTreeMap<u32, String>> {
    let handle = engine.handle().clone();
    let requests = requests();
    for (tag, (prompt, params)) in requests.iter().enumerate() {
        let params = SamplingParams { tag: tag as u64, ..params.clone() };
        handle.add_request(Prompt::Tokens(prompt), params).unwrap();
    }
    let mut said = vec![BTreeMap::<u32, String>::new(); requests.len()];
    while !handle.is_finished() {
        engine.step(budget).unwrap();
        while let Some(output) = engine.next_output() {
            let Output { tag, index, token_ids, text, embedding, finish, logprobs, prompt_logprobs, score, .. } =
                output;
            *said[*tag as usize].entry(*index).or_default() +=
                &format!("{token_ids:?} {text} {embedding:?} {finish:?} {logprobs:?} {prompt_logprobs:?} {score}\n");
        }
    }
    assert!(said.iter().all(|said| !said.is_empty()));
    said
}

#[test]
fn requests_of_every_kind_get_the_answers_of_one_rank_bit_for_bit() {
    let mut preempted = 0;
    let int8: &[_] = &[("llama-bf16-sharded-gqa8", 8), ("qwen2-f16-old-keys", 4), ("gemma3-f32", 2)];
    let plain = MODELS.iter().map(|model| (model, KvCacheDtype::Auto));
    for (&(name, heads), format) in plain.chain(int8.iter().map(|model| (model, KvCacheDtype::Int8))) {
        let mut alone = open(&golden(name), 1, |o| o.kv_cache_dtype = format);
        let info = alone.handle().model_info().clone();
        let wanted = answers(&mut alone, Budget::OnePass);
        // Bytes of the 30 blocks that hold the longest request and little more, where two ranks may share a KV head.
        let shared = if info.kv_layout.layers[0].kv_heads < 2 { 2 } else { 1 };
        let tight = 30 * shared * (info.kv_layout.block_bytes() as u64);
        type Change<'a> = &'a dyn Fn(&mut EngineOptions);
        let cases: [(usize, Change, Budget); 4] = [
            (2, &|_| (), Budget::OnePass),
            (2, &|o| (o.max_batched_tokens, o.kv_cache_bytes) = (Some(16), Some(tight)), Budget::OnePass),
            (heads.min(3), &|o| o.num_threads = Some(1), Budget::Time(Duration::from_micros(100))),
            (heads, &|o| o.max_num_seqs = Some(3), Budget::Time(Duration::ZERO)),
        ];
        for (ranks, change, budget) in cases {
            let mut engine = open(&golden(name), ranks, |options| {
                options.kv_cache_dtype = format;
                change(options);
            });
            let found = answers(&mut engine, budget);
            for (request, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                assert_eq!(found, wanted, "{name} on {ranks} ranks, {format:?}, request {request}");
            }
            preempted += usize::from(engine.handle().stats().preemptions > 0);
        }
    }
    assert!(preempted >= 4, "models whose sequences were preempted: {preempted}");
}

#[test]
fn a_structure_and_a_chat_are_those_of_one_rank() {
    let ask = |ranks| {
        let mut options = demo::options(Device::Cpu);
        options.tensor_parallel_size = ranks;
        let mut engine = Engine::open(&options, &mut |_| ControlFlow::Continue(())).unwrap();
        let structure = Structure::Regex("(one|two|three)( [0-9]{2}){3}".to_owned());
        let params =
            SamplingParams { structure: Some(Arc::new(structure)), temperature: 1.0, seed: Some(5), ..demo::greedy(0) };
        let prompts = [Prompt::Text("count from 3 to 23")];
        engine.generate(&prompts, &[params], &mut |_| ControlFlow::Continue(())).unwrap().remove(0).token_ids
    };
    let wanted = ask(1);
    assert!(!wanted.is_empty());
    for ranks in 2..=4 {
        assert_eq!(ask(ranks), wanted, "{ranks} ranks");
    }
}

#[test]
fn a_prefix_that_was_saved_on_some_ranks_is_restored_on_others() {
    let prompt: Vec<TokenId> = (0..40).map(|i| 1 + i * i % 23).collect();
    let params = SamplingParams { max_tokens: Some(10), ..SamplingParams::default() };
    let ask = |engine: &mut Engine| {
        let prompts = [Prompt::Tokens(&prompt)];
        let output = engine.generate(&prompts, std::slice::from_ref(&params), &mut |_| ControlFlow::Continue(()));
        let output = output.unwrap().remove(0);
        (output.token_ids, output.cached_tokens)
    };
    let save = |engine: &mut Engine| {
        let prefix = engine.find_prefix(&prompt, 0).unwrap();
        let mut bytes = vec![0; prefix.bytes()];
        engine.save_prefix(&prefix, &mut bytes).unwrap();
        bytes
    };
    let formats = || [KvCacheDtype::Auto, KvCacheDtype::Int8];
    for (&(name, heads), format) in MODELS.iter().flat_map(|model| formats().map(|format| (model, format))) {
        let of_format = |options: &mut EngineOptions| options.kv_cache_dtype = format;
        let mut alone = open(&golden(name), 1, of_format);
        let (wanted, _) = ask(&mut alone);
        let saved = save(&mut alone);
        for ranks in [2, heads.min(3), heads] {
            let mut together = open(&golden(name), ranks, of_format);
            assert_eq!(together.restore_prefix(&saved).unwrap(), 40);
            // The last token of a prompt is always computed, and its block with it.
            assert_eq!(ask(&mut together), (wanted.clone(), 36), "{name} on {ranks} ranks, {format:?}");
            assert!(save(&mut together) == saved, "{name}: {ranks} ranks save other bytes");
        }
    }
}

#[test]
fn a_prefix_is_saved_and_restored_in_the_middle_of_a_pass() {
    // A call that waits for ever fails the test, and does not hold it up.
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        [1, 2, 4].into_iter().for_each(save_and_restore_within_passes);
        done.send(()).unwrap();
    });
    let ended = is_done.recv_timeout(Duration::from_secs(120));
    assert!(ended.is_ok(), "{ended:?}: a call waits for ever, or the thread says above what was wrong");
}

fn save_and_restore_within_passes(ranks: usize) {
    let saved_prompt: Vec<TokenId> = (0..40).map(|i| 1 + i * i % 23).collect();
    let other_prompt: Vec<TokenId> = (0..30).map(|i| 2 + i * i % 19).collect();
    let params = SamplingParams { max_tokens: Some(10), ..SamplingParams::default() };
    let ask = |engine: &mut Engine, prompt: &[TokenId]| {
        let prompts = [Prompt::Tokens(prompt)];
        let answers =
            engine.generate(&prompts, std::slice::from_ref(&params), &mut |_| ControlFlow::Continue(())).unwrap();
        answers[0].token_ids.clone()
    };
    let save = |engine: &mut Engine| {
        let prefix = engine.find_prefix(&saved_prompt, 0).unwrap();
        let mut bytes = vec![0; prefix.bytes()];
        engine.save_prefix(&prefix, &mut bytes).unwrap();
        bytes
    };
    let mut engine = open(&golden("qwen3-f32-untied-gqa8"), ranks, |_| ());
    let handle = engine.handle().clone();
    let wanted = [ask(&mut engine, &saved_prompt), ask(&mut engine, &other_prompt)];
    let saved = save(&mut engine);
    let mut within = 0;
    for stages in 1..16 {
        let at = format!("{ranks} ranks, {stages} stages");
        engine.reset_prefix_cache();
        assert_eq!(engine.restore_prefix(&saved).unwrap(), 40);
        handle.add_request(Prompt::Tokens(&other_prompt), params.clone()).unwrap();
        let reports = (0..stages).map(|_| engine.step(Budget::Time(Duration::ZERO)).unwrap());
        within += reports.last().unwrap().in_flight;
        assert!(save(&mut engine) == saved, "{at}: other bytes");
        engine.reset_prefix_cache();
        assert_eq!(engine.restore_prefix(&saved).unwrap(), 40);
        let mut tokens = Vec::new();
        while !handle.is_finished() {
            engine.step(Budget::Time(Duration::ZERO)).unwrap();
            while let Some(output) = engine.next_output() {
                tokens.extend_from_slice(&output.token_ids);
            }
        }
        assert_eq!([ask(&mut engine, &saved_prompt), tokens], wanted, "{at}");
    }
    assert!(within > 4, "{ranks} ranks: {within} prefixes were saved within a pass");
}

#[test]
fn more_ranks_than_query_heads_are_refused_before_anything_is_loaded() {
    let mut options = EngineOptions::new(golden("gemma3-f32"));
    options.device = Device::Cpu;
    options.tensor_parallel_size = 3;
    match Engine::open(&options, &mut |_| ControlFlow::Continue(())) {
        Err(error @ Error::Option { field: "tensor_parallel_size", .. }) => {
            assert_eq!(
                error.to_string(),
                "tensor_parallel_size is 3, and the model has 2 query heads, but must be at most the number of query heads"
            );
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it opened"),
    }
}

#[test]
fn an_open_that_is_cancelled_or_lacks_memory_ends_every_rank() {
    let mut options = EngineOptions::new(golden("qwen3-bf16-head128"));
    (options.device, options.tensor_parallel_size) = (Device::Cpu, 2);
    for _ in 0..20 {
        let cancelled = Engine::open(&options, &mut |_| ControlFlow::Break(()));
        assert!(matches!(cancelled, Err(Error::Cancelled)));
    }
    options.kv_cache_bytes = Some(100);
    assert!(matches!(
        Engine::open(&options, &mut |_| ControlFlow::Continue(())),
        Err(Error::KvCacheTooSmall { bytes: 100, .. })
    ));
    // An engine that is freed within a pass does not wait for the others.
    options.kv_cache_bytes = None;
    for _ in 0..20 {
        let mut engine = Engine::open(&options, &mut |_| ControlFlow::Continue(())).unwrap();
        engine.handle().add_request(Prompt::Tokens(&[1, 2, 3]), SamplingParams::default()).unwrap();
        engine.step(Budget::Time(Duration::ZERO)).unwrap();
    }
}

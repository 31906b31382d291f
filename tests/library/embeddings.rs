//! Prompts become embeddings: the numbers of transformers, whatever else runs and however a prompt is cut.

use crate::driver;
use crate::fake_runner;
use crate::reference;
use crate::scratch_folder;

use base::TokenId;
use compute::batch::{BatchLimits, MAX_POOLED_ROWS};
use driver::{dtype_of, golden};
use engine::options::{EngineOptions, PrefixCache};
use engine::output::{Finish, Output};
use engine::sampling_params::{Eos, Pooling, SamplingParams};
use engine::{Budget, Engine, EngineLimits, Prompt};
use fake_runner::oracle::{SEED, oracle};
use fake_runner::{Shape, digest, load};
use formats::DType;
use reference::{HALF_PRECISION, Reference, SINGLE_PRECISION, distance};
use runner::Device;
use scratch_folder::Folder;
use serde_json::json;
use std::collections::HashMap;
use std::ops::ControlFlow;

const KINDS: [(&str, Pooling); 2] = [("last", Pooling::Last), ("mean", Pooling::Mean)];

fn pooled(pooling: Pooling) -> SamplingParams {
    SamplingParams { pooling, ..SamplingParams::default() }
}

/// Runs prompts together.
fn embed(engine: &mut Engine, prompts: &[&[TokenId]], params: &[SamplingParams]) -> Vec<Output> {
    let prompts: Vec<Prompt> = prompts.iter().map(|tokens| Prompt::Tokens(tokens)).collect();
    engine.generate(&prompts, params, &mut |_| ControlFlow::Continue(())).unwrap()
}

// ---- against transformers ----

fn open_golden(name: &str, max_batched_tokens: usize, dtype: Option<DType>) -> Engine {
    let mut options = EngineOptions::new(golden(name));
    options.device = Device::Cpu;
    options.dtype = dtype;
    options.num_threads = Some(2);
    options.kv_block_size = Some(4);
    options.kv_cache_bytes = Some(4 << 20);
    options.max_num_seqs = Some(4);
    options.max_batched_tokens = Some(max_batched_tokens);
    Engine::open(&options, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// What transformers writes of `Qwen3Model`: no head, and no prefix. It makes embeddings, and says that it generates nothing.
#[test]
fn a_checkpoint_without_a_head_makes_embeddings_alone() {
    let folder = Folder::copy("qwen3-f32-yarn", "headless");
    folder.edit_tensors(|tensors| {
        let named = |(name, tensor): (String, _)| Some((name.strip_prefix("model.")?.to_owned(), tensor));
        *tensors = std::mem::take(tensors).into_iter().filter_map(named).collect();
    });
    folder.edit_json("config.json", |config| config["architectures"] = json!(["Qwen3Model"]));
    let mut options = EngineOptions::new(&folder.path);
    options.device = Device::Cpu;
    options.kv_cache_bytes = Some(4 << 20);
    let mut engine = Engine::open(&options, &mut |_| ControlFlow::Continue(())).unwrap();
    let reference = Reference::read("qwen3-f32-yarn");
    let refused = engine.handle().add_request(Prompt::Tokens(&reference.prompt), SamplingParams::default());
    assert!(refused.unwrap_err().to_string().contains("the model has no head"));
    for (kind, pooling) in KINDS {
        let made = embed(&mut engine, &[&reference.prompt], &[pooled(pooling)]);
        assert!(distance(&made[0].embedding, &Reference::embedding("qwen3-f32-yarn", kind)) < SINGLE_PRECISION);
    }
}

#[test]
fn embeddings_are_those_of_transformers() {
    let cases = [
        ("llama-f32-llama3", None),
        ("llama-bf16-sharded-gqa8", None),
        ("mistral-f32-window16", None),
        ("qwen2-f16-head128", None),
        ("qwen2-f32-tied-sharded", None),
        ("qwen3-bf16-tied-gqa2", None),
        ("qwen3-bf16-tied-gqa2", Some(DType::F32)),
        ("qwen3-f16-wide-heads", None),
        ("qwen3-f32-yarn", None),
        ("qwen3-f32-embedding", None),
        ("gemma3-f32-wrapped", None),
        ("olmo2-f32", None),
    ];
    for (name, dtype) in cases {
        let reference = Reference::read(name);
        let limit = if dtype.unwrap_or(dtype_of(name)) == DType::F32 { SINGLE_PRECISION } else { HALF_PRECISION };
        for (kind, pooling) in KINDS {
            let results: Vec<Output> = [512, 7, 4]
                .map(|cut| {
                    let mut engine = open_golden(name, cut, dtype);
                    embed(&mut engine, &[&reference.prompt], &[pooled(pooling)]).remove(0)
                })
                .into();
            let apart = distance(&results[0].embedding, &Reference::embedding(name, kind));
            assert!(apart <= limit, "{name}, {dtype:?}, {kind}: {apart} apart, {limit} allowed");
            assert!(matches!(results[0].finish, Some(Finish::Stop)), "{name}, {kind}");
            for cut in &results[1..] {
                assert_eq!(cut.embedding, results[0].embedding, "{name}, {kind}: however the prompt is cut");
            }
        }
    }
}

#[test]
fn an_embedding_is_the_same_with_a_warm_cache_and_in_company() {
    let name = "qwen3-bf16-tied-gqa2";
    let prompt = Reference::read(name).prompt;
    let mut engine = open_golden(name, 32, None);
    let alone = KINDS.map(|(_, pooling)| embed(&mut engine, &[&prompt], &[pooled(pooling)]).remove(0));
    let generating = SamplingParams { max_tokens: Some(20), ..SamplingParams::default() };
    let others: [&[TokenId]; 4] = [&prompt[..9], &prompt, &prompt, &prompt[3..]];
    let options = [generating.clone(), pooled(Pooling::Last), pooled(Pooling::Mean), generating];
    let together = embed(&mut engine, &others, &options);
    for (alone, together) in alone.iter().zip(&together[1..3]) {
        assert_eq!(alone.embedding, together.embedding);
    }
    assert!(together[0].embedding.is_empty() && together[0].completion_tokens > 0, "the others generate");
    assert_eq!(
        (together[1].cached_tokens, together[2].cached_tokens),
        (36, 0),
        "a mean needs the state of every token"
    );
}

// ---- over a fake runner, whose hidden states are one number ----

fn open_fake(tokens: usize, rows: usize, blocks: usize, depth: usize) -> (Engine, Shape) {
    let limits = BatchLimits { tokens, rows, model_len: 2048, block_size: 4, ..BatchLimits::NONE };
    let shape = Shape { limits, blocks, vocab: 24, stages: 2, depth, window: None, states: None, windowed: None };
    let limits = EngineLimits { max_queue: None, prefix_cache: PrefixCache::On, seed: SEED };
    (Engine::with_runner(load(shape), limits), shape)
}

fn prompt(kind: u32, len: u32) -> Vec<TokenId> {
    (0..len).map(|i| 1 + (kind * 7 + i * i) % 23).collect()
}

fn expected(prompt: &[TokenId], pooling: Pooling) -> Vec<f32> {
    let mut slot = 0;
    let states: Vec<f64> = prompt
        .iter()
        .map(|&token| {
            slot = digest(slot, token);
            f64::from(fake_runner::hidden(slot))
        })
        .collect();
    match pooling {
        Pooling::None | Pooling::First | Pooling::Auto => Vec::new(),
        Pooling::Last => vec![states[states.len() - 1] as f32],
        Pooling::Mean => vec![(states.iter().sum::<f64>() / states.len() as f64) as f32],
    }
}

#[test]
fn prompts_longer_than_a_pass_brings_states_are_cut() {
    for depth in [1, 2] {
        let (mut engine, _) = open_fake(1024, 4, 600, depth);
        let long = prompt(1, 3 * MAX_POOLED_ROWS as u32 + 5);
        let results = embed(&mut engine, &[&long, &long], &KINDS.map(|(_, pooling)| pooled(pooling)));
        for (result, (kind, pooling)) in results.iter().zip(KINDS) {
            assert_eq!(result.embedding, expected(&long, pooling), "{kind}, depth {depth}");
            assert_eq!(result.completion_tokens, 0, "{kind}");
        }
    }
}

/// Embeddings and answers that want more blocks than there are, so that sequences are preempted in the middle of their sums.
#[test]
fn embeddings_and_answers_share_a_tight_engine() {
    let mut preempted = 0;
    for (depth, blocks, tokens, rows) in [(1, 16, 5, 4), (2, 16, 5, 4), (2, 14, 1, 3), (1, 40, 64, 8), (2, 17, 8, 2)] {
        let name = format!("depth {depth}, {blocks} blocks, {tokens} tokens, {rows} rows");
        let (mut engine, shape) = open_fake(tokens, rows, blocks, depth);
        let handle = engine.handle().clone();
        let mut wanted = HashMap::new();
        for i in 0..24 {
            let tokens = prompt(i % 3, 1 + i * 7 % 29);
            let pooling = [Pooling::None, Pooling::Last, Pooling::Mean][(i % 7 % 3) as usize];
            let params = SamplingParams { max_tokens: Some(12 + i % 18), eos: Eos::Ignored, ..pooled(pooling) };
            let id = handle.add_request(Prompt::Tokens(&tokens), params.clone()).unwrap();
            let answer = match pooling {
                Pooling::None => oracle(id, 0, &tokens, &params, &shape).0,
                _ => Vec::new(),
            };
            wanted.insert(id, (answer, expected(&tokens, pooling)));
        }
        let mut heard: HashMap<u64, (Vec<TokenId>, Vec<f32>)> = HashMap::new();
        let mut steps = 0;
        while !handle.is_finished() {
            engine.step(Budget::OnePass).unwrap();
            while let Some(output) = engine.next_output() {
                let (tokens, embedding) = heard.entry(output.request_id).or_default();
                tokens.extend(&output.token_ids);
                embedding.extend(&output.embedding);
            }
            steps += 1;
            assert!(steps < 10_000, "{name}: somebody starves");
        }
        assert_eq!(heard, wanted, "{name}");
        assert_eq!(handle.stats().kv_blocks_used, 0, "{name}");
        preempted += usize::from(handle.stats().preemptions > 0);
    }
    assert!(preempted >= 2, "{preempted} of the cases are tight");
}

#[test]
fn a_prompt_has_one_embedding() {
    let (engine, _) = open_fake(8, 4, 16, 1);
    let params = SamplingParams { completions: 2, ..pooled(Pooling::Last) };
    let error = engine.handle().add_request(Prompt::Tokens(&[1]), params).unwrap_err();
    assert_eq!(error.to_string(), "n is 2, but must be 1 with pooling");
}

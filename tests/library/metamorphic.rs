//! The same request gives the same bits, however it is computed.

use crate::driver;

use base::TokenId;
use compute::batch::{Batch, BatchLimits};
use compute::cpu::{Cpu, Isa};
use driver::{Sequence, config, golden, greedy, logits, open, pass};
use runner::options::EngineOptions;
use runner::pass_runner::PassRunner;
use runner::{KvCacheDtype, Runner};
use std::time::{Duration, Instant};

/// One of each number type and family, so that every kernel's rounding is in it.
const MODELS: &[&str] = &[
    "qwen3-bf16-head128",
    "qwen2-f16-old-keys",
    "llama-f32-llama3",
    "mistral-f32-window16",
    "gemma3-f32",
    "cohere2-f32",
    "gemma4-f32-keys-are-values",
    "gemma4-f32-per-layer",
    "gemma4-f32-experts",
    "muse_glimmer-f32",
    "qwen3_5-f32",
    "lfm2-f32",
    "lfm3-f32",
    "granitemoehybrid-f32-mamba",
    "nemotron_h-f32",
    "falcon_h1-f32",
    "bamba-f32",
    "mamba2-f32",
    "qwen3_moe-f32",
    "glm4_moe-f32-groups",
    "glm4_moe_lite-f32-groups",
    "deepseek_v3-f32-yarn",
    "qwen3_5_moe-bf16-wrapped",
    "gpt_oss-f32",
];
const TOKENS: usize = 12;

fn prompt(len: usize, seed: u32) -> Vec<TokenId> {
    (0..len as u32).map(|i| (i * 37 + seed * 11 + 5) % 89).collect()
}

/// Blocks for 64 sequences of every model.
fn roomy() -> EngineOptions {
    EngineOptions { kv_cache_bytes: Some(64 << 20), ..config() }
}

/// Every model with every instruction set and KV cache, and what a prompt of 70 tokens gives when it runs alone and whole.
fn for_each_model(mut check: impl FnMut(&str, &mut PassRunner<Cpu>, &BatchLimits, &[TokenId], &[Vec<f32>])) {
    let kinds = MODELS.iter().flat_map(|name| [KvCacheDtype::Auto, KvCacheDtype::Int8].map(|format| (name, format)));
    for (&isa, (name, kv_cache_dtype)) in
        Isa::available().iter().flat_map(|isa| kinds.clone().map(move |kind| (isa, kind)))
    {
        let config = EngineOptions { kv_cache_dtype, ..roomy() };
        let (mut runner, info) = open(&golden(name), &config, isa).unwrap();
        let (tokens, rows) = greedy(&mut runner, &info.limits, &prompt(70, 0), TOKENS);
        check(&format!("{name}, {isa:?}, {kv_cache_dtype:?}"), &mut runner, &info.limits, &tokens, &rows);
    }
}

/// Decodes one row of a batch whose other rows come along, and compares its logits bit by bit.
fn decode_on(
    name: &str,
    runner: &mut PassRunner<Cpu>,
    limits: &BatchLimits,
    sequences: &mut [Sequence],
    watched: usize,
    (tokens, rows): (&[TokenId], &[Vec<f32>]),
) {
    let mut batch = Batch::with_limits(limits);
    for step in 0..TOKENS {
        batch.clear();
        for sequence in sequences.iter_mut() {
            sequence.bring(sequence.pending(), limits, &mut batch);
        }
        let chosen = pass(runner, &batch);
        assert_eq!(chosen[watched], tokens[step], "{name}, step {step}");
        assert!(logits(runner, watched) == rows[step], "{name}, step {step}: logits differ in some bits");
        for (sequence, token) in sequences.iter_mut().zip(chosen) {
            sequence.tokens.push(token);
        }
    }
}

#[test]
fn a_row_does_not_depend_on_the_other_rows_of_its_batch() {
    for_each_model(|name, runner, limits, tokens, rows| {
        for (neighbours, watched) in [(1, 0), (2, 2), (16, 5), (63, 40)] {
            let width = 24;
            let mut sequences: Vec<Sequence> = (0..=neighbours as u32)
                .map(|i| Sequence::new(&prompt(1 + (i as usize * 5) % 6, i), i * width..(i + 1) * width).of(runner, i))
                .collect();
            sequences[watched].tokens = prompt(70, 0);
            let name = format!("{name}, row {watched} of {}", neighbours + 1);
            decode_on(&name, runner, limits, &mut sequences, watched, (tokens, rows));
        }
    });
}

#[test]
fn a_prompt_may_be_cut_into_chunks_of_any_size() {
    for_each_model(|name, runner, limits, tokens, rows| {
        for chunk in [1, 7, 64, 70] {
            let mut sequence = Sequence::new(&prompt(70, 0), 0..24).of(runner, 0);
            let mut batch = Batch::with_limits(limits);
            while sequence.pending() > chunk {
                batch.clear();
                sequence.bring(chunk, limits, &mut batch);
                assert!(pass(runner, &batch).is_empty(), "a chunk that is not the last asks for no token");
            }
            let name = format!("{name}, chunks of {chunk}");
            decode_on(&name, runner, limits, &mut [sequence], 0, (tokens, rows));
        }
    });
}

#[test]
fn blocks_may_lie_anywhere_and_be_used_again() {
    for_each_model(|name, runner, limits, tokens, rows| {
        for (order, blocks) in [
            ("backwards", (0..24).rev().collect::<Vec<u32>>()),
            ("scattered", (0..24).map(|i| i * 7 % 101 + 3).collect()),
        ] {
            let sequence = Sequence::new(&prompt(70, 0), blocks).of(runner, 1);
            decode_on(&format!("{name}, {order}"), runner, limits, &mut [sequence], 0, (tokens, rows));
        }
    });
}

#[test]
fn a_sequence_that_lost_its_blocks_is_computed_again_to_the_same_bits() {
    for_each_model(|name, runner, limits, tokens, rows| {
        let mut again = prompt(70, 0);
        again.extend(&tokens[..5]);
        let sequence = Sequence::new(&again, 30..60).of(runner, 2);
        let mut batch = Batch::with_limits(limits);
        let mut sequence = sequence;
        sequence.bring(sequence.pending(), limits, &mut batch);
        assert_eq!(pass(runner, &batch), [tokens[5]], "{name}");
        assert!(logits(runner, 0) == rows[5], "{name}: logits differ in some bits");
    });
}

#[test]
fn a_pass_that_was_left_after_every_stage_ends_the_same() {
    for_each_model(|name, runner, limits, tokens, rows| {
        let past = Instant::now() - Duration::from_secs(1);
        let mut sequence = Sequence::new(&prompt(70, 0), 0..24).of(runner, 0);
        let mut batch = Batch::with_limits(limits);
        for step in 0..TOKENS {
            batch.clear();
            sequence.bring(sequence.pending(), limits, &mut batch);
            runner.submit(&batch).unwrap();
            let mut calls = 1;
            let chosen = loop {
                match runner.collect(Some(past)).unwrap() {
                    Some(chosen) => break chosen.tokens.to_vec(),
                    None => calls += 1,
                }
            };
            assert_eq!(calls, runner.stages(), "{name}: one stage per call");
            assert_eq!(chosen, [tokens[step]], "{name}, step {step}");
            assert!(logits(runner, 0) == rows[step], "{name}, step {step}: logits differ in some bits");
            sequence.tokens.extend(chosen);
        }
    });
}

#[test]
fn the_number_of_threads_changes_nothing() {
    for name in MODELS {
        for &isa in Isa::available() {
            let run = |threads| {
                let config = EngineOptions { num_threads: Some(threads), ..config() };
                let (mut runner, info) = open(&golden(name), &config, isa).unwrap();
                greedy(&mut runner, &info.limits, &prompt(70, 0), TOKENS)
            };
            let alone = run(1);
            assert!(alone == run(2) && alone == run(3), "{name}, {isa:?}");
        }
    }
}

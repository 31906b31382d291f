//! Decoders as classifiers and rerankers: by a head of labels on the state of the last token, and by the probabilities of tokens after a prompt.
//!
//! `tests/golden/make_encoders.py` made the folders of classifiers.

use crate::encoders::{limit, opened, options, pooled, refusal, run, texts_of};
use crate::reference;
use crate::scratch_folder::Folder;

use crate::driver::golden;
use base::TokenId;
use engine::output::{Finish, Output};
use engine::sampling_params::{Pooling, SamplingParams};
use engine::{Engine, Prompt};
use reference::Reference;
use serde_json::json;
use std::ops::ControlFlow;

const CASES: &[&str] =
    &["gemma3_text-bf16-reranker", "llama-bf16-reranker", "qwen2-f32-classifier", "qwen3-f32-reranker"];

#[test]
fn every_folder_of_a_classifier_is_a_case() {
    let entries = std::fs::read_dir(golden("classifiers")).unwrap();
    let mut found: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    found.sort();
    assert_eq!(found, CASES);
}

/// Whatever passes a text is computed in, and with a prefix that others share.
#[test]
fn logits_of_decoders_are_those_of_transformers() {
    for name in CASES {
        let copy = Folder::copy(&format!("classifiers/{name}"), "decoders");
        copy.edit_json("config.json", |config| {
            config["sentence_transformers"] = json!({"activation_fn": "torch.nn.modules.linear.Identity"});
        });
        let texts = texts_of(&golden("classifiers").join(name));
        let tokens: Vec<&[TokenId]> = texts.iter().map(|text| &text.tokens[..]).collect();
        let mut alone: Vec<Output> = Vec::new();
        for (batched, block) in [(64, 4), (64, 8), (9, 4)] {
            let mut options = options(&copy.path);
            options.max_batched_tokens = Some(batched);
            options.kv_block_size = Some(block);
            let mut engine = opened(&options);
            let many: Vec<&[TokenId]> = tokens.iter().cycle().take(9).copied().collect();
            let outputs = run(&mut engine, &many, &pooled(Pooling::Auto));
            for (index, output) in outputs.iter().enumerate() {
                let wanted = &texts[index % 4].scores;
                // A logit may be near 0, and one of bf16 is the sum of roundings of both layers.
                let apart = output.scores.iter().zip(wanted).map(|(a, b)| (a - b).abs() / b.abs().max(1.0));
                assert!(
                    apart.fold(0.0, f32::max) <= if name.contains("bf16") { 4e-2 } else { limit(name) },
                    "{name}, text {index}: {:?} and {wanted:?}",
                    output.scores
                );
                assert!(matches!(output.finish, Some(Finish::Stop)) && output.embedding.is_empty());
                if let Some(alone) = alone.get(index) {
                    assert_eq!(output.scores, alone.scores, "{name}, text {index}, {batched} tokens in a pass");
                }
            }
            alone = outputs;
        }
    }
}

#[test]
fn a_classifier_is_asked_for_scores_alone() {
    let engine = opened(&options(&golden("classifiers/qwen3-f32-reranker")));
    let prompt = Prompt::Tokens(&[5, 6]);
    assert!(
        refusal(&engine, prompt, SamplingParams::default()).contains("the model has no head and generates nothing")
    );
    assert!(refusal(&engine, prompt, pooled(Pooling::Last)).contains("the model is a classifier and gives scores"));
    let tokens = SamplingParams { score_tokens: vec![1], ..SamplingParams::default() };
    assert!(refusal(&engine, prompt, tokens).contains("gives tokens no probabilities: leave score_tokens empty"));
    assert_eq!(engine.handle().model_info().pooled.scores.as_ref().unwrap().labels, ["LABEL_0"]);
}

fn scoring(tokens: &[TokenId]) -> SamplingParams {
    SamplingParams { score_tokens: tokens.to_vec(), ..SamplingParams::default() }
}

#[test]
fn scores_of_tokens_are_their_probabilities_after_the_prompt() {
    for model in ["qwen3-bf16-reranker", "qwen3-f32-yarn"] {
        let mut options = options(&golden(model));
        options.kv_cache_bytes = Some(4 << 20);
        let mut engine = opened(&options);
        let Reference { prompt, logits, .. } = Reference::read(model);
        let near = if model.contains("bf16") { 0.02 } else { 1e-4 };
        let mut generate = |prompts: &[&[TokenId]], params: SamplingParams| {
            let prompts: Vec<Prompt> = prompts.iter().map(|tokens| Prompt::Tokens(tokens)).collect();
            let params = vec![params; prompts.len()];
            engine.generate(&prompts, &params, &mut |_| ControlFlow::Continue(())).unwrap()
        };
        for tokens in [&[3, 7][..], &[0], &[9, 1, 4, 8, 2], &(0..64).collect::<Vec<_>>()] {
            let greatest = tokens.iter().map(|&token| logits[0][token as usize]).fold(f32::NEG_INFINITY, f32::max);
            let shares: Vec<f32> = tokens.iter().map(|&token| (logits[0][token as usize] - greatest).exp()).collect();
            let (sum, all) = (
                shares.iter().sum::<f32>(),
                logits[0].iter().map(|logit| f64::from(logit - greatest).exp()).sum::<f64>() as f32,
            );
            let outputs = generate(&[&prompt, &prompt[..3], &prompt], scoring(tokens));
            for output in [&outputs[0], &outputs[2]] {
                assert!(matches!(output.finish, Some(Finish::Stop)) && output.token_ids.is_empty());
                assert!((output.scores.iter().sum::<f32>() - 1.0).abs() < 1e-5 && output.scores.len() == tokens.len());
                for (found, share) in output.scores.iter().zip(&shares) {
                    assert!((found - share / sum).abs() < near, "{model}: {found} and {}", share / sum);
                }
                let together = output.cumulative_logprob.exp();
                assert!((together - sum / all).abs() < near, "{model}: {together} and {}", sum / all);
            }
            assert_eq!(outputs[0].scores, outputs[2].scores);
        }
        // The probability of a token that is generated.
        let generated = SamplingParams { max_tokens: Some(1), num_logprobs: 2, ..SamplingParams::default() };
        let generated = generate(&[&prompt], generated).remove(0).logprobs;
        let scored = generate(&[&prompt], scoring(&generated.top_tokens)).remove(0);
        let logprob = scored.scores[0].ln() + scored.cumulative_logprob;
        assert!((logprob - generated.logprobs[0]).abs() < 1e-5, "{logprob} and {}", generated.logprobs[0]);
    }
}

/// Beside requests that generate, embed and score their prompts, in passes of few tokens, and after a preemption.
#[test]
fn scores_of_tokens_have_the_same_bits_whatever_runs_beside_them() {
    let prompts: Vec<Vec<TokenId>> = (0..9).map(|i| (0..5 + 4 * i).map(|t| (t * 7 + i) % 100).collect()).collect();
    let asked = |index: usize| match index % 3 {
        0 => scoring(&(0..=index as TokenId * 7).collect::<Vec<_>>()),
        1 => SamplingParams { max_tokens: Some(6), num_prompt_logprobs: 1, ..SamplingParams::default() },
        _ => pooled(Pooling::Mean),
    };
    let mut alone: Vec<Vec<f32>> = Vec::new();
    for (batched, rows, cache) in [(512, 1, 4 << 20), (512, 9, 4 << 20), (80, 4, 4 << 20), (80, 9, 128 << 10)] {
        let mut options = options(&golden("qwen3-f32-yarn"));
        options.max_batched_tokens = Some(batched);
        options.max_num_seqs = Some(rows);
        options.kv_cache_bytes = Some(cache);
        options.max_model_len = Some(64);
        let mut engine: Engine = opened(&options);
        let given: Vec<Prompt> = prompts.iter().map(|tokens| Prompt::Tokens(tokens)).collect();
        let params: Vec<_> = (0..9).map(asked).collect();
        let outputs = engine.generate(&given, &params, &mut |_| ControlFlow::Continue(())).unwrap();
        let scores: Vec<Vec<f32>> = outputs.into_iter().map(|output| output.scores).collect();
        assert!((0..9).all(|index| scores[index].len() == if index % 3 == 0 { index * 7 + 1 } else { 0 }));
        if !alone.is_empty() {
            assert_eq!(scores, alone, "{batched} tokens and {rows} rows in a pass");
        }
        alone = scores;
    }
}

#[test]
fn tokens_that_cannot_be_scored_are_refused_by_name() {
    let mut options = options(&golden("qwen3-f32-yarn"));
    options.max_batched_tokens = Some(8);
    let engine = opened(&options);
    let prompt = Prompt::Tokens(&[5, 6]);
    let with = |change: fn(&mut SamplingParams)| {
        let mut params = scoring(&[1, 2]);
        change(&mut params);
        refusal(&engine, prompt, params)
    };
    for (said, words) in [
        (with(|p| p.score_tokens = vec![3, 4, 3]), "score_tokens is a list with token 3 twice"),
        (with(|p| p.score_tokens = vec![1 << 20]), "token 1048576 at index 0 is beyond the vocabulary"),
        (
            with(|p| p.score_tokens = (0..65).collect()),
            "num_score_tokens is 65, but must be at most 64 (NVLLM_MAX_SCORE_TOKENS)",
        ),
        (with(|p| p.score_tokens = (0..6).collect()), "num_score_tokens is 6, and a pass computes 5 of one request"),
        (with(|p| p.pooling = Pooling::Last), "pooling is set, but must be NVLLM_POOLING_NONE with score_tokens"),
        (with(|p| p.completions = 2), "n is set, but must be 1 with score_tokens"),
        (with(|p| p.num_prompt_logprobs = 1), "num_prompt_logprobs is set, but must be 0 with score_tokens"),
    ] {
        assert!(said.contains(words), "{said} and {words}");
    }
}

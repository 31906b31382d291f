//! Penalties, log-probabilities and beam search on small checkpoints give what Hugging Face transformers gives.
//!
//! `tests/golden/make_golden.py` made `tests/golden/asked.json` and says what is in it.

use base::TokenId;
use engine::beam_search::{BeamParams, EarlyStopping};
use engine::logprobs::Logprobs;
use engine::options::{EngineOptions, PrefixCache};
use engine::output::{Finish, Output};
use engine::sampling_params::{Eos, SamplingParams, StopToken};
use engine::{Engine, Prompt};
use runner::Device;
use serde::Deserialize;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// How far log-probabilities and scores may be from the reference, which is rounded to six digits.
const NEAR: f32 = 2e-4;

#[derive(Deserialize)]
struct Asked {
    penalties: Vec<Penalized>,
    logprobs: Vec<Scored>,
    beams: Vec<Searched>,
}

#[derive(Deserialize)]
struct Penalized {
    model: String,
    prompt: Vec<TokenId>,
    repetition: f32,
    presence: f32,
    frequency: f32,
    tokens: Vec<TokenId>,
}

#[derive(Deserialize)]
struct Scored {
    model: String,
    prompt: Vec<TokenId>,
    tokens: Vec<TokenId>,
    alternatives: u32,
    of_prompt: Vec<Ranked>,
    of_tokens: Vec<Ranked>,
}

#[derive(Deserialize)]
struct Ranked {
    logprob: f32,
    top_tokens: Vec<TokenId>,
    top_logprobs: Vec<f32>,
}

#[derive(Deserialize)]
struct Searched {
    model: String,
    prompt: Vec<TokenId>,
    width: u32,
    length_penalty: f32,
    early_stopping: String,
    end_tokens: Vec<TokenId>,
    max_tokens: u32,
    answers: Vec<Answer>,
}

#[derive(Deserialize)]
struct Answer {
    tokens: Vec<TokenId>,
    score: f32,
}

fn golden() -> PathBuf {
    crate::tree::root().join("tests/golden")
}

fn asked() -> Asked {
    serde_json::from_slice(&std::fs::read(golden().join("asked.json")).unwrap()).unwrap()
}

/// An engine with small blocks, so that beams fork in the middle of them.
fn open(model: &str) -> Engine {
    let mut options = EngineOptions::new(golden().join(model));
    options.device = Device::Cpu;
    options.num_threads = Some(2);
    options.kv_block_size = Some(4);
    options.kv_cache_bytes = Some(4 << 20);
    options.max_num_seqs = Some(16);
    options.prefix_cache = PrefixCache::Off;
    Engine::open(&options, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn generate(engine: &mut Engine, prompts: &[Prompt], params: &[SamplingParams]) -> Vec<Output> {
    engine.generate(prompts, params, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn params(tokens: usize) -> SamplingParams {
    SamplingParams { max_tokens: Some(tokens as u32), eos: Eos::Ignored, ..SamplingParams::default() }
}

fn near(found: f32, wanted: f32, what: &str) {
    assert!((found - wanted).abs() <= NEAR * wanted.abs().max(1.0), "{what}: {found} instead of {wanted}");
}

#[test]
fn penalized_tokens_are_those_of_transformers_and_of_the_definition() {
    let cases = asked().penalties;
    for model in models(cases.iter().map(|case| &case.model)) {
        let cases: Vec<&Penalized> = cases.iter().filter(|case| case.model == model).collect();
        let prompts: Vec<Prompt> = cases.iter().map(|case| Prompt::Tokens(&case.prompt)).collect();
        let each: Vec<SamplingParams> = cases
            .iter()
            .map(|case| SamplingParams {
                repetition_penalty: case.repetition,
                presence_penalty: case.presence,
                frequency_penalty: case.frequency,
                ..params(case.tokens.len())
            })
            .collect();
        let found = generate(&mut open(&model), &prompts, &each);
        for (case, found) in cases.iter().zip(found) {
            let Penalized { repetition, presence, frequency, .. } = case;
            assert_eq!(found.token_ids, case.tokens, "{model}: {repetition}, {presence}, {frequency}");
        }
    }
}

#[test]
fn a_bias_makes_a_token_come_always_or_never() {
    let cases = asked().logprobs;
    let Scored { model, prompt, tokens, .. } = &cases[0];
    let never = SamplingParams { logit_bias: vec![(tokens[0], f32::NEG_INFINITY)], ..params(12) };
    let always = SamplingParams { logit_bias: vec![(3, 1000.0)], ..params(5) };
    let found = generate(&mut open(model), &[Prompt::Tokens(prompt); 2], &[never, always]);
    assert!(!found[0].token_ids.contains(&tokens[0]));
    assert_eq!(found[1].token_ids, [3; 5]);
}

#[test]
fn log_probabilities_are_those_of_transformers_whatever_else_is_asked() {
    for case in asked().logprobs {
        let mut engine = open(&case.model);
        let plain = SamplingParams {
            num_logprobs: case.alternatives,
            num_prompt_logprobs: case.alternatives,
            ..params(case.tokens.len())
        };
        // The first token is forced by its bias: what is reported is what the model itself says.
        let biased = SamplingParams { logit_bias: vec![(case.tokens[0], 500.0)], max_tokens: Some(1), ..plain.clone() };
        let found = generate(&mut engine, &[Prompt::Tokens(&case.prompt); 2], &[plain, biased]);
        assert_eq!(found[0].token_ids, case.tokens, "{}", case.model);
        check(&found[0].logprobs, &case.of_tokens, &case);
        check(&found[1].logprobs, &case.of_tokens[..1], &case);
        for output in &found {
            check(&output.prompt_logprobs, &case.of_prompt, &case);
            near(output.cumulative_logprob, output.logprobs.logprobs.iter().sum(), &case.model);
        }
    }
}

fn check(found: &Logprobs, wanted: &[Ranked], case: &Scored) {
    let alternatives = case.alternatives as usize;
    assert_eq!((found.len(), found.alternatives), (wanted.len(), alternatives), "{}", case.model);
    for (at, wanted) in wanted.iter().enumerate() {
        let what = format!("{}, token {at}", case.model);
        near(found.logprobs[at], wanted.logprob, &what);
        let ranked = at * alternatives..(at + 1) * alternatives;
        assert_eq!(found.top_tokens[ranked.clone()], wanted.top_tokens, "{what}");
        for (found, wanted) in found.top_logprobs[ranked].iter().zip(&wanted.top_logprobs) {
            near(*found, *wanted, &what);
        }
    }
}

#[test]
fn beams_are_those_of_transformers() {
    let cases = asked().beams;
    let mut stopped = 0;
    for model in models(cases.iter().map(|case| &case.model)) {
        let cases: Vec<&Searched> = cases.iter().filter(|case| case.model == model).collect();
        let prompts: Vec<Prompt> = cases.iter().map(|case| Prompt::Tokens(&case.prompt)).collect();
        let each: Vec<SamplingParams> = cases.iter().map(|case| searching(case)).collect();
        // All at once, so that searches meet in one batch, and have to wait for rows.
        let mut found = generate(&mut open(&model), &prompts, &each).into_iter();
        for case in cases {
            let Searched { width, length_penalty, early_stopping, end_tokens, .. } = case;
            let name = format!("{model}: {width}, {length_penalty}, {early_stopping}, {end_tokens:?}");
            for (index, wanted) in case.answers.iter().enumerate() {
                let answer = found.next().expect("as many answers as beams");
                assert_eq!(answer.token_ids, wanted.tokens, "{name}, answer {index}");
                near(answer.score, wanted.score, &name);
                let factor = (wanted.tokens.len() as f32).powf(*length_penalty);
                near(answer.cumulative_logprob / factor, answer.score, &name);
                let stops = end_tokens.contains(wanted.tokens.last().unwrap());
                assert_eq!(matches!(answer.finish, Some(Finish::Stop)), stops, "{name}, answer {index}");
                stopped += usize::from(stops);
            }
        }
        assert!(found.next().is_none());
    }
    assert!(stopped > 20, "{stopped} answers met an end token");
}

fn searching(case: &Searched) -> SamplingParams {
    SamplingParams {
        beams: Some(BeamParams {
            width: case.width,
            length_penalty: case.length_penalty,
            early_stopping: match &case.early_stopping[..] {
                "False" => EarlyStopping::WhenUnlikely,
                "True" => EarlyStopping::WhenFull,
                "never" => EarlyStopping::Never,
                other => panic!("{other}"),
            },
        }),
        completions: case.width,
        stop_tokens: case.end_tokens.clone(),
        stop_token: StopToken::Kept,
        ..params(case.max_tokens as usize)
    }
}

/// Each name once.
fn models<'a>(names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut names: Vec<String> = names.cloned().collect();
    names.dedup();
    names
}

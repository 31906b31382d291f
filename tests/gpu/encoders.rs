//! Encoders on a GPU: the states and scores of transformers, up to the rounding of bf16.

use crate::driver::golden;
use crate::reference::distance;
use base::TokenId;
use engine::options::EngineOptions;
use engine::output::Output;
use engine::sampling_params::{Pooling, SamplingParams};
use engine::{Engine, Prompt};
use runner::Device;
use safetensors::SafeTensors;
use std::fs;
use std::iter;
use std::ops::ControlFlow;

/// Of the folders in tests/golden/encoders those whose heads the kernels know.
const CASES: &[&str] = &["gemma3_text-bf16", "gemma3_text-f32", "gte-bf16-no-types", "nomic_bert-bf16"];
/// As far as transformers' own states in bf16 are from those in f32, and half more.
const LIMIT: f32 = 3e-2;

/// The numbers of a tensor of a reference, or none.
fn words(file: &SafeTensors, name: &str) -> Vec<[u8; 4]> {
    file.tensor(name).map_or(Vec::new(), |tensor| tensor.data().as_chunks().0.to_vec())
}

fn numbers(file: &SafeTensors, name: &str) -> Vec<f32> {
    words(file, name).into_iter().map(f32::from_le_bytes).collect()
}

fn run(engine: &mut Engine, texts: &[Vec<TokenId>], pooling: Pooling) -> Vec<Output> {
    let prompts: Vec<Prompt> = texts.iter().map(|tokens| Prompt::Tokens(tokens)).collect();
    let params = SamplingParams { pooling, ..SamplingParams::default() };
    let params: Vec<_> = iter::repeat_n(params, texts.len()).collect();
    engine.generate(&prompts, &params, &mut |_| ControlFlow::Continue(())).unwrap()
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn states_and_scores_are_those_of_transformers_alone_and_among_others() {
    for name in CASES {
        let folder = golden("encoders").join(name);
        let bytes = fs::read(folder.join("reference.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        // The types of a pair are those of its text, which tokens do not say.
        let is_pair = |index: &usize| words(&file, &format!("types.{index}")).into_iter().any(|kind| kind != [0; 4]);
        let indices: Vec<usize> = (0..4).filter(|index| !is_pair(index)).collect();
        let texts: Vec<Vec<TokenId>> = indices
            .iter()
            .map(|index| words(&file, &format!("tokens.{index}")).into_iter().map(TokenId::from_le_bytes).collect())
            .collect();
        let scores: Vec<Vec<f32>> = indices.iter().map(|index| numbers(&file, &format!("scores.{index}"))).collect();
        let is_classifier = !scores[0].is_empty();
        let options = EngineOptions {
            device: Device::Cuda { index: 0 },
            kv_block_size: Some(16),
            max_num_seqs: Some(4),
            ..EngineOptions::new(&folder)
        };
        let mut engine = Engine::open(&options, &mut |_| ControlFlow::Continue(())).unwrap();
        let pooling = if is_classifier { Pooling::Auto } else { Pooling::First };
        let together = run(&mut engine, &texts, pooling);
        for (at, index) in indices.iter().enumerate() {
            let alone = run(&mut engine, &texts[at..=at], pooling).remove(0);
            for (what, output) in [("alone", &alone), ("among others", &together[at])] {
                let apart = if is_classifier {
                    output.scores.iter().zip(&scores[at]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
                } else {
                    let states = numbers(&file, &format!("states.{index}"));
                    distance(&output.embedding, &states[..states.len() / texts[at].len()])
                };
                println!("{name}, text {index}, {what}: {apart:.2e} apart");
                assert!(apart <= LIMIT, "{name}, text {index}, {what}: {apart} apart");
            }
        }
    }
}

//! Tokens of experts are counted in engines that were asked to: each computed token once for each of its experts, however passes were cut.

use crate::driver::golden;
use base::TokenId;
use engine::options::{EngineOptions, ExpertCounting};
use engine::sampling_params::SamplingParams;
use engine::{Engine, Prompt};
use runner::Device;
use std::ops::ControlFlow;

const MODEL: &str = "qwen3_moe-f32";

fn opened(model: &str, change: impl FnOnce(&mut EngineOptions)) -> Engine {
    let mut options = EngineOptions::new(golden(model));
    (options.device, options.num_threads, options.kv_cache_bytes) = (Device::Cpu, Some(1), Some(4 << 20));
    options.expert_counting = ExpertCounting::On;
    change(&mut options);
    Engine::open(&options, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// Counts of all layers after some prompts, each with a token generated.
fn counted(mut engine: Engine, prompts: &[Vec<TokenId>]) -> Vec<Vec<u64>> {
    let params = SamplingParams { max_tokens: Some(1), ..SamplingParams::default() };
    let all: Vec<_> = prompts.iter().map(|prompt| Prompt::Tokens(prompt)).collect();
    engine.generate(&all, &vec![params; all.len()], &mut |_| ControlFlow::Continue(())).unwrap();
    let layers = engine.handle().model_info().num_layers;
    (0..layers).map(|layer| engine.expert_tokens(layer).unwrap()).collect()
}

fn prompts() -> Vec<Vec<TokenId>> {
    [5, 9, 14].into_iter().map(|len| (0..len).map(|i| 1 + (i * i + len) % 23).collect()).collect()
}

#[test]
fn each_computed_token_counts_for_each_of_its_experts() {
    let counts = counted(opened(MODEL, |_| ()), &prompts());
    let tokens: usize = prompts().iter().map(Vec::len).sum();
    let with_experts: Vec<_> = counts.iter().filter(|counts| !counts.is_empty()).collect();
    assert!(!with_experts.is_empty(), "{counts:?}");
    for counts in with_experts {
        assert_eq!((counts.len(), counts.iter().sum::<u64>()), (6, 2 * tokens as u64), "{counts:?}");
    }
}

#[test]
fn counts_do_not_depend_on_passes_and_ranks() {
    let wanted = counted(opened(MODEL, |_| ()), &prompts());
    assert_eq!(counted(opened(MODEL, |options| options.max_batched_tokens = Some(4)), &prompts()), wanted);
    assert_eq!(counted(opened(MODEL, |options| options.num_threads = Some(3)), &prompts()), wanted);
    assert_eq!(counted(opened(MODEL, |options| options.tensor_parallel_size = 2), &prompts()), wanted);
}

#[test]
fn layers_without_experts_have_no_counts() {
    assert!(counted(opened("qwen3-f32-yarn", |_| ()), &prompts()).iter().all(Vec::is_empty));
}

#[test]
fn what_is_not_counted_is_refused_by_name() {
    let mut off = opened(MODEL, |options| options.expert_counting = ExpertCounting::Off);
    let said = off.expert_tokens(0).unwrap_err().to_string();
    assert!(said.starts_with("expert_statistics is 0, but must be 1"), "{said}");
    let said = opened(MODEL, |_| ()).expert_tokens(99).unwrap_err().to_string();
    assert!(said.starts_with("layer is 99, and the model has 6 layers"), "{said}");
}

//! State on two GPUs: blocks that travel between one GPU and two, and memory that grows while passes are in flight.

use super::models::{alone, config, together};
use super::within;
use crate::driver::{Sequence, pass};
use crate::scene::Random;
use base::TokenId;
use compute::batch::{Batch, BatchLimits, BlockId};
use engine::options::PrefixCache;
use engine::output::{Finish, Output};
use engine::sampling_params::{Eos, Pooling, SamplingParams};
use engine::{Budget, Engine, EngineLimits, Prompt};
use runner::options::EngineOptions;
use runner::{Device, Loaded, Rounding, Runner};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const BLOCKS: [BlockId; 4] = [2, 0, 5, 3];

/// The blocks of a prompt of 64 tokens, once it is computed.
fn computed(runner: &mut impl Runner, limits: &BatchLimits, bytes: usize) -> Vec<u8> {
    let prompt: Vec<TokenId> = (0..64).map(|i| (i * 37 + 5) % 89).collect();
    let mut batch = Batch::with_limits(limits);
    let mut sequence = Sequence::new(&prompt, BLOCKS);
    sequence.bring(64, limits, &mut batch);
    pass(runner, &batch);
    let mut blocks = vec![0; bytes];
    runner.read_blocks(&BLOCKS, &mut blocks).unwrap();
    blocks
}

#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn blocks_have_one_form_on_one_and_on_two_gpus() {
    for name in ["qwen3-bf16-head128", "llama-bf16-head80-gqa1", "qwen2-bf16-head96-gqa7", "olmo2-f16"] {
        within(LIMIT, || {
            let config = EngineOptions { rounding: Rounding::BatchInvariant, ..config(name) };
            let (mut one, limits) = alone(name, &config);
            let (mut two, _) = together(name, &config);
            let block = {
                let source = formats::source::Source::open(&crate::driver::golden(name)).unwrap();
                let loaded = runner::cuda::open(&source, &config, 0, &mut |_| ControlFlow::Continue(())).unwrap();
                loaded.1.kv_layout.block_bytes()
            };
            let bytes = block * BLOCKS.len();
            let wanted = computed(&mut one, &limits, bytes);
            let found = computed(&mut two, &limits, bytes);
            assert!(found == wanted, "{name}: other blocks");
            let mut random = Random(1);
            let values: Vec<u8> = (0..bytes).map(|_| random.below(256) as u8).collect();
            let mut back = vec![0; bytes];
            two.write_blocks(&BLOCKS, &values).unwrap();
            two.read_blocks(&BLOCKS, &mut back).unwrap();
            assert!(back == values, "{name}: there and back");
            two.write_blocks(&[1, 4, 6, 7], &wanted).unwrap();
            two.read_blocks(&[1, 4, 6, 7], &mut back).unwrap();
            assert!(back == wanted, "{name}: what one GPU computed");
        });
    }
}

/// Tokens, log-probabilities and embedding of each request.
type Answers = BTreeMap<u64, (Vec<TokenId>, Vec<f32>, Vec<f32>)>;

/// Requests whose adjustments, log-probabilities and hidden states need memory that grows.
fn answers(loaded: Loaded) -> Answers {
    let limits = EngineLimits { max_queue: None, prefix_cache: PrefixCache::On, seed: 3 };
    let mut engine = Engine::with_runner(loaded, limits);
    let handle = engine.handle().clone();
    let mut answers = Answers::new();
    let note = |output: &Output, answers: &mut Answers| {
        assert!(!matches!(output.finish, Some(Finish::Error(_) | Finish::Cancelled)), "{:?}", output.finish);
        let (tokens, logprobs, embedding) = answers.entry(output.tag).or_default();
        tokens.extend(&output.token_ids);
        logprobs.extend(&output.logprobs.logprobs);
        embedding.extend(&output.embedding);
    };
    for wave in 0..3usize {
        for i in 0..40usize {
            let prompt: Vec<TokenId> = (0..30 + 4 * i).map(|t| ((t * 7 + i * 31 + wave) % 89) as TokenId).collect();
            let params = SamplingParams {
                tag: (100 * wave + i) as u64,
                max_tokens: Some(12 + (i % 5) as u32),
                temperature: if i % 3 == 0 { 0.0 } else { 0.8 },
                seed: Some(i as u64),
                repetition_penalty: if wave > 0 { 1.2 } else { 1.0 },
                logit_bias: if wave == 2 { (0..89).map(|t| (t, 0.1 * t as f32)).collect() } else { Vec::new() },
                num_logprobs: (i % 4) as u32,
                pooling: if i % 7 == 6 { Pooling::Last } else { Pooling::None },
                eos: Eos::Ignored,
                ..SamplingParams::default()
            };
            handle.add_request(Prompt::Tokens(&prompt), params).unwrap();
            // Passes are in flight when more comes.
            engine.step(Budget::Time(Duration::ZERO)).unwrap();
            while let Some(output) = engine.next_output() {
                note(output, &mut answers);
            }
        }
    }
    while !handle.is_finished() {
        engine.step(Budget::OnePass).unwrap();
        while let Some(output) = engine.next_output() {
            note(output, &mut answers);
        }
    }
    answers
}

#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn memory_that_grows_under_load_neither_stops_nor_changes_an_answer() {
    for name in ["qwen3-bf16-head128", "qwen2-f16-head128"] {
        within(Duration::from_secs(120), || {
            let open = |ranks: usize| {
                let config = EngineOptions {
                    device: Device::Cuda { index: 0 },
                    rounding: Rounding::BatchInvariant,
                    max_num_seqs: Some(64),
                    tensor_parallel_size: ranks,
                    ..config(name)
                };
                let source = formats::source::Source::open(&crate::driver::golden(name)).unwrap();
                runner::load(&source, &config, &mut |_| ControlFlow::Continue(())).unwrap()
            };
            let wanted = answers(open(1));
            let found = answers(open(2));
            assert_eq!(wanted.len(), 120);
            for (tag, wanted) in &wanted {
                assert!(&found[tag] == wanted, "{name}, request {tag}: {:?} and not {wanted:?}", found[tag]);
            }
        });
    }
}

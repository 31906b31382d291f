//! Sequences of a model whose layers all have a sliding window release the blocks before it.

use crate::fake_runner;

use base::TokenId;
use compute::batch::BatchLimits;
use engine::options::PrefixCache;
use engine::sampling_params::{Eos, SamplingParams};
use engine::{Budget, Engine, EngineLimits, Prompt};
use fake_runner::oracle::{SEED, oracle};
use fake_runner::{Shape, load};

#[test]
fn a_model_of_windows_alone_holds_the_blocks_of_its_window() {
    // 200 tokens would take 50 blocks of 4; a window of 10 tokens spans 4 blocks at most, and the next token may need one more.
    for (depth, prefix_cache) in [(1, PrefixCache::On), (2, PrefixCache::On), (1, PrefixCache::Off)] {
        let limits = BatchLimits { tokens: 16, rows: 4, model_len: 200, block_size: 4, ..BatchLimits::NONE };
        let shape =
            Shape { limits, blocks: 50, vocab: 24, stages: 3, depth, window: Some(10), states: None, windowed: None };
        let mut engine = Engine::with_runner(load(shape), EngineLimits { max_queue: None, prefix_cache, seed: SEED });
        let prompt: Vec<TokenId> = (0..60).map(|i| 1 + i % 20).collect();
        let params = SamplingParams { max_tokens: Some(130), eos: Eos::Ignored, ..SamplingParams::default() };
        let id = engine.handle().add_request(Prompt::Tokens(&prompt), params.clone()).unwrap();
        let (mut answer, mut steps) = (Vec::new(), 0);
        while !engine.handle().is_finished() {
            engine.step(Budget::OnePass).unwrap();
            while let Some(output) = engine.next_output() {
                answer.extend_from_slice(&output.token_ids);
            }
            steps += 1;
            let used = engine.handle().stats().kv_blocks_used;
            assert!(steps < 10 || used <= 4 + 1, "step {steps}: {used} blocks");
        }
        assert_eq!(answer, oracle(id, 0, &prompt, &params, &shape).0, "depth {depth}, {prefix_cache:?}");
        assert_eq!(engine.handle().stats().kv_blocks_used, 0);
    }
}

//! The scores of a reranker, by the recipe of docs/embeddings.md: from the log-probabilities of the answers "yes" and "no".

use crate::driver;
use crate::reference;

use base::TokenId;
use driver::golden;
use engine::options::EngineOptions;
use engine::output::Output;
use engine::sampling_params::{Eos, SamplingParams};
use engine::{Engine, Prompt};
use reference::Reference;
use runner::Device;
use std::ops::ControlFlow;

const MODEL: &str = "qwen3-bf16-reranker";

fn generate(engine: &mut Engine, prompt: &[TokenId], params: SamplingParams) -> Output {
    let params = SamplingParams { max_tokens: Some(1), eos: Eos::Ignored, ..params };
    engine.generate(&[Prompt::Tokens(prompt)], &[params], &mut |_| ControlFlow::Continue(())).unwrap().remove(0)
}

/// The log-probability of `token` after the prompt, however unlikely it is.
fn forced_logprob(engine: &mut Engine, prompt: &[TokenId], token: TokenId) -> (f32, u32) {
    let params = SamplingParams { logit_bias: vec![(token, 1000.0)], num_logprobs: 1, ..SamplingParams::default() };
    let output = generate(engine, prompt, params);
    assert_eq!(output.token_ids, [token]);
    (output.logprobs.logprobs[0], output.cached_tokens)
}

fn score(yes: f32, no: f32) -> f32 {
    1.0 / (1.0 + (no - yes).exp())
}

#[test]
fn a_score_is_the_share_of_yes_in_the_logits_of_yes_and_no() {
    let mut options = EngineOptions::new(golden(MODEL));
    options.device = Device::Cpu;
    options.num_threads = Some(2);
    options.kv_block_size = Some(4);
    options.kv_cache_bytes = Some(4 << 20);
    let mut engine = Engine::open(&options, &mut |_| ControlFlow::Continue(())).unwrap();
    let Reference { prompt, logits, .. } = Reference::read(MODEL);
    let mut order: Vec<TokenId> = (0..logits[0].len() as TokenId).collect();
    order.sort_by(|a, b| logits[0][*b as usize].total_cmp(&logits[0][*a as usize]));
    // Likely, less likely, and the least likely of all.
    for (yes, no) in [(order[0], order[1]), (order[7], order[3]), (order[order.len() - 1], order[20])] {
        let wanted = score(logits[0][yes as usize], logits[0][no as usize]);
        let ((of_yes, _), (of_no, cached)) =
            (forced_logprob(&mut engine, &prompt, yes), forced_logprob(&mut engine, &prompt, no));
        assert!(cached >= 36, "the second request reads the prompt from the cache: {cached} tokens");
        let found = score(of_yes, of_no);
        assert!((found - wanted).abs() < 0.01, "{yes} and {no}: {found} instead of {wanted}");
        let params = SamplingParams { num_logprobs: 64, ..SamplingParams::default() };
        let likeliest = generate(&mut engine, &prompt, params).logprobs;
        let place = |token| likeliest.top_tokens.iter().position(|found| *found == token);
        if let (Some(yes), Some(no)) = (place(yes), place(no)) {
            let in_one = score(likeliest.top_logprobs[yes], likeliest.top_logprobs[no]);
            assert!((in_one - found).abs() < 1e-5, "one request gives {in_one}, two give {found}");
        }
    }
}

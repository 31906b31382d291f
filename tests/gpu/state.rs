//! State on a GPU: embeddings, saved prefixes that travel between devices, and forks.
//!
//! The tests need a GPU, so they are ignored unless `--include-ignored` asks for them.
//! `NVLLM_TEST_REFERENCE` names a folder that `tests/golden/make_golden.py --large` made.
use crate::demo;
use crate::driver;
use crate::reference;

use base::TokenId;
use driver::golden;
use engine::options::EngineOptions;
use engine::output::Output;
use engine::sampling_params::{Eos, Pooling, SamplingParams};
use engine::{Budget, Engine, Prompt};
use reference::{HALF_PRECISION, Reference, distance};
use runner::Device;
use std::ops::ControlFlow;
use std::time::Instant;

const GPU: Device = Device::Cuda { index: 0 };

fn open(options: &EngineOptions) -> Engine {
    Engine::open(options, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn run(engine: &mut Engine, prompts: &[&[TokenId]], params: &[SamplingParams]) -> Vec<Output> {
    let prompts: Vec<Prompt> = prompts.iter().map(|tokens| Prompt::Tokens(tokens)).collect();
    engine.generate(&prompts, params, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn pooled(pooling: Pooling) -> SamplingParams {
    SamplingParams { pooling, ..SamplingParams::default() }
}

fn greedy(max_tokens: u32) -> SamplingParams {
    SamplingParams { max_tokens: Some(max_tokens), eos: Eos::Ignored, ..SamplingParams::default() }
}

fn save(engine: &mut Engine, tokens: &[TokenId]) -> Vec<u8> {
    let prefix = engine.find_prefix(tokens, 0).unwrap();
    let mut bytes = vec![0; prefix.bytes()];
    engine.save_prefix(&prefix, &mut bytes).unwrap();
    bytes
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn embeddings_are_those_of_transformers_alone_and_among_answers() {
    for name in ["qwen3-bf16-head128", "qwen2-f16-head128", "llama-bf16-head80-gqa1", "qwen2-bf16-head96-gqa7"] {
        let mut options = EngineOptions::new(golden(name));
        (options.device, options.kv_block_size, options.kv_cache_bytes) = (GPU, Some(16), Some(64 << 20));
        let prompt = Reference::read(name).prompt;
        for cut in [None, Some(16)] {
            (options.max_batched_tokens, options.max_num_seqs) = (cut, Some(8));
            let mut engine = open(&options);
            let params = [greedy(30), pooled(Pooling::Last), greedy(9), pooled(Pooling::Mean), pooled(Pooling::Last)];
            let results = run(&mut engine, &[&prompt[..5], &prompt, &prompt[1..], &prompt, &prompt], &params);
            for (i, kind) in [(1, "last"), (3, "mean"), (4, "last")] {
                let apart = distance(&results[i].embedding, &Reference::embedding(name, kind));
                assert!(apart <= HALF_PRECISION, "{name}, {kind}, cut at {cut:?}: {apart} apart");
            }
            assert_eq!((results[0].token_ids.len(), results[2].token_ids.len()), (30, 9), "{name}");
        }
    }
}

/// Keys and values have one form on every device, and the demo model is sure of its answers.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_prefix_goes_on_on_the_same_and_on_another_device() {
    let text = r#"[{"role": "user", "content": "list all prime numbers within 90"}]"#;
    for (from, to) in [(GPU, GPU), (GPU, Device::Cpu), (Device::Cpu, GPU)] {
        let (mut here, mut there) = (open(&demo::options(from)), open(&demo::options(to)));
        let prompt = here.handle().chat_template().unwrap().render(text, "").unwrap();
        let prompts = [Prompt::Text(&prompt)];
        let whole = here.generate(&prompts, &[demo::greedy(0)], &mut |_| ControlFlow::Continue(())).unwrap().remove(0);
        let encoding = text::tokenizer::Encoding {
            added: text::tokenizer::AddedTokens::Add,
            spelled: text::tokenizer::SpelledTokens::Parse,
        };
        let prompt = here.handle().tokenizer().unwrap().encode(&prompt, encoding).unwrap();
        let begun = [&prompt[..], &whole.token_ids[..40]].concat();
        let bytes = save(&mut here, &begun);
        // Something else runs there already, one pass ahead.
        let other: Vec<TokenId> = prompt.iter().rev().copied().collect();
        there.handle().add_request(Prompt::Tokens(&other), greedy(60)).unwrap();
        for _ in 0..3 {
            there.step(Budget::Time(std::time::Duration::ZERO)).unwrap();
        }
        let restored = there.restore_prefix(&bytes).unwrap();
        assert!(save(&mut there, &begun) == bytes, "{from:?} to {to:?}: and back, byte for byte");
        let rest = run(&mut there, &[&begun], &[demo::greedy(0)]).remove(0);
        assert_eq!(rest.cached_tokens as usize, restored, "{from:?} to {to:?}");
        assert_eq!(rest.token_ids, whole.token_ids[40..], "{from:?} to {to:?}");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_fork_says_what_the_original_says() {
    let mut engine = open(&demo::options(GPU));
    let handle = engine.handle().clone();
    let id = handle.add_request(Prompt::Tokens(&[5, 6, 7]), greedy(60)).unwrap();
    let mut texts = [Vec::new(), Vec::new()];
    let poll = |engine: &mut Engine, texts: &mut [Vec<TokenId>; 2]| {
        while let Some(output) = engine.next_output() {
            texts[usize::from(output.request_id != id)].extend(&output.token_ids);
        }
    };
    while texts[0].len() < 30 {
        engine.step(Budget::OnePass).unwrap();
        poll(&mut engine, &mut texts);
    }
    engine.fork(id, 0, greedy(20)).unwrap();
    let begun = texts[0].len();
    while !handle.is_finished() {
        engine.step(Budget::OnePass).unwrap();
        poll(&mut engine, &mut texts);
    }
    assert_eq!(texts[1], texts[0][begun..begun + 20]);
    assert!(handle.stats().prefix_cache.hits >= 16, "its full blocks are shared");
}

/// How long a large prefix takes is printed: `--nocapture` shows it.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_large_prefix_goes_on_with_equal_tokens() {
    let folder = std::env::var_os("NVLLM_TEST_REFERENCE").expect("NVLLM_TEST_REFERENCE names a folder");
    let mut options = EngineOptions::new(folder);
    (options.device, options.kv_cache_bytes) = (GPU, Some(4 << 30));
    // The last block is not filled: one that were would be replaced by its twin of the first run here, whose numbers were rounded in a larger pass.
    let prompt: Vec<TokenId> = (0..3460).map(|i| 7 + (i * i + 13 * i) % 9000).collect();
    let (mut here, mut there) = (open(&options), open(&options));
    let begun = Instant::now();
    let whole = run(&mut here, &[&prompt], &[greedy(40)]).remove(0);
    println!("computed in {} ms", begun.elapsed().as_millis());
    let begun = Instant::now();
    let bytes = save(&mut here, &prompt);
    println!("{} bytes saved in {} ms, memory for them included", bytes.len(), begun.elapsed().as_millis());
    let begun = Instant::now();
    let restored = there.restore_prefix(&bytes).unwrap();
    println!("{restored} tokens restored in {} ms", begun.elapsed().as_millis());
    // Here, too, the prompt is found and its end computed as one chunk: products of equal sizes round alike.
    let (again, moved) =
        (run(&mut here, &[&prompt], &[greedy(40)]).remove(0), run(&mut there, &[&prompt], &[greedy(40)]).remove(0));
    assert_eq!((again.cached_tokens, moved.cached_tokens as usize), (moved.cached_tokens, restored));
    assert_eq!(again.token_ids, moved.token_ids);
    println!(
        "{} of 40 tokens are those of the first run",
        again.token_ids.iter().zip(&whole.token_ids).filter(|(a, b)| a == b).count()
    );
    let mean = run(&mut there, &[&prompt], &[pooled(Pooling::Mean)]).remove(0);
    assert!(mean.embedding.iter().all(|x| x.is_finite()));
}

//! A step that only decodes allocates nothing on the host: memory is found when requests begin to run.

mod fake_runner;

use fake_runner::{Shape, load};
use nanovllm::batch::{BatchLimits, TokenId};
use nanovllm::engine::options::PrefixCache;
use nanovllm::engine::sampling_params::{Eos, SamplingParams};
use nanovllm::engine::{Budget, Engine, EngineLimits, Prompt};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting the calls of each thread.
struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; counting neither allocates nor touches the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` above, so from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_hundred_steady_steps_allocate_nothing() {
    let plain = SamplingParams { eos: Eos::Ignored, ..SamplingParams::default() };
    let asking = SamplingParams {
        repetition_penalty: 1.2,
        frequency_penalty: 0.5,
        logit_bias: vec![(7, 1.0)],
        num_logprobs: 5,
        num_prompt_logprobs: 2,
        ..plain.clone()
    };
    for depth in [1, 2] {
        steady_steps(depth, &plain, 20);
        // Until each of the tokens has come in each answer, the list of those that have come grows.
        steady_steps(depth, &asking, 600);
    }
}

/// With `depth` passes in flight, after `warm_up` steps.
fn steady_steps(depth: usize, params: &SamplingParams, warm_up: usize) {
    let limits = BatchLimits { tokens: 512, rows: 32, model_len: 1024, block_size: 16 };
    let settings = EngineLimits { max_queue: None, prefix_cache: PrefixCache::On, seed: 1 };
    let mut engine =
        Engine::with_runner(load(Shape { limits, blocks: 2048, vocab: 100, stages: 1, depth, window: None }), settings);
    for request in 0..40 {
        let prompt: Vec<TokenId> = (0..20 + request).map(|i| 1 + i % 50).collect();
        engine.handle().add_request(Prompt::Tokens(&prompt), params.clone()).unwrap();
    }
    let poll = |engine: &mut Engine| {
        let mut tokens = 0;
        engine.step(Budget::OnePass).unwrap();
        while let Some(output) = engine.next_output() {
            tokens += output.token_ids.len();
        }
        tokens
    };
    for _ in 0..warm_up {
        poll(&mut engine);
    }
    let before = ALLOCATIONS.get();
    assert!(before > 0, "the counter counts");
    for _ in 0..100 {
        assert_eq!(poll(&mut engine), 32);
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
}

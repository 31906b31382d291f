//! A step that only decodes allocates nothing on the host: memory is found when requests begin to run.

mod driver;
mod fake_runner;
mod tree;

use base::TokenId;
use compute::batch::BatchLimits;
use engine::options::{EngineOptions, PrefixCache};
use engine::sampling_params::{Eos, SamplingParams};
use engine::{Budget, Engine, EngineLimits, Opened, Prompt};
use fake_runner::{Shape, load};
use os::socket::Address;
use runner::{Device, Processes};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Calls of all threads.
static ALLOCATIONS_OF_ALL: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, counting the calls of each thread.
struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; counting neither allocates nor touches the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        ALLOCATIONS_OF_ALL.fetch_add(1, Ordering::Relaxed);
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
    let dry = SamplingParams { dry_multiplier: 0.8, dry_allowed_length: 1, top_n_sigma: 1.0, ..plain.clone() };
    // A step whose lists of repetitions are longer than all before allocates: with a window, they soon are as long as they get.
    steady_steps(1, &SamplingParams { dry_penalty_last_n: Some(64), ..dry }, 600);
    for depth in [1, 2] {
        steady_steps(depth, &plain, 20);
        // Until each of the tokens has come in each answer, the list of those that have come grows.
        steady_steps(depth, &asking, 600);
    }
    steady_steps_of_ranks(&options());
    // Experts, of which each token has others.
    steady_steps_of_ranks(&options_of("glm4_moe-f32-groups"));
    steady_steps_of_processes();
}

fn options() -> EngineOptions {
    options_of("qwen2-f16-old-keys")
}

fn options_of(model: &str) -> EngineOptions {
    let mut options = EngineOptions::new(driver::golden(model));
    options.device = Device::Cpu;
    (options.num_threads, options.tensor_parallel_size) = (Some(2), 2);
    (options.kv_block_size, options.kv_cache_bytes) = (Some(64), Some(4 << 20));
    options
}

/// A leader and a follower, which are processes elsewhere and threads here, so that both are counted.
fn steady_steps_of_processes() {
    let path = std::env::temp_dir().join(format!("nvllm-steady-{}", std::process::id()));
    let rendezvous = Address::parse("rendezvous", &format!("unix:{}", path.display())).unwrap();
    let of_process = |index| {
        let processes = Some(Processes { count: 2, index, rendezvous: rendezvous.clone() });
        EngineOptions { processes, ..options() }
    };
    let (leader, follower) = (of_process(0), of_process(1));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let opened = Opened::new(&follower, &mut |_| ControlFlow::Continue(())).unwrap();
            let Opened::Follower(mut engine) = opened else { panic!("process 1 follows") };
            while !engine.step(Budget::OnePass).unwrap().is_closed {}
        });
        steady_steps_of_ranks(&leader);
    });
}

/// Two ranks of a model, whose threads are counted too.
fn steady_steps_of_ranks(options: &EngineOptions) {
    let mut engine = Engine::open(options, &mut |_| ControlFlow::Continue(())).unwrap();
    let params = SamplingParams { eos: Eos::Ignored, temperature: 1.0, num_logprobs: 2, ..SamplingParams::default() };
    for request in 0..8 {
        let prompt: Vec<TokenId> = (0..5 + request).collect();
        engine.handle().add_request(Prompt::Tokens(&prompt), params.clone()).unwrap();
    }
    let mut tokens = 0;
    let mut poll = |steps| {
        for _ in 0..steps {
            engine.step(Budget::OnePass).unwrap();
            while let Some(output) = engine.next_output() {
                tokens += output.token_ids.len();
            }
        }
        (ALLOCATIONS_OF_ALL.load(Ordering::Relaxed), tokens)
    };
    let (before, tokens) = poll(20);
    assert_eq!(poll(30), (before, tokens + 30 * 8), "allocations and tokens of 30 steps");
}

/// With `depth` passes in flight, after `warm_up` steps.
fn steady_steps(depth: usize, params: &SamplingParams, warm_up: usize) {
    let limits = BatchLimits { tokens: 512, rows: 32, model_len: 1024, block_size: 16, ..BatchLimits::NONE };
    let settings = EngineLimits { max_queue: None, prefix_cache: PrefixCache::On, seed: 1 };
    let mut engine = Engine::with_runner(
        load(Shape { limits, blocks: 2048, vocab: 100, stages: 1, depth, window: None, states: None, windowed: None }),
        settings,
    );
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

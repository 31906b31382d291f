//! The engine over a fake runner: thousands of random schedules against an oracle that knows no batching, and the
//! behaviour of its public side, case by case.

use crate::fake_runner;
use crate::random_requests;

use base::TokenId;
use base::error::Error;
use compute::Windowed;
use compute::batch::BatchLimits;
use engine::logprobs::Logprobs;
use engine::options::PrefixCache;
use engine::output::{Finish, Output};
use engine::sampling_params::{Eos, Pinning, SamplingParams, StopToken};
use engine::{Budget, Engine, EngineHandle, EngineLimits, Prompt};
use fake_runner::oracle::{SEED, logprobs, oracle};
use fake_runner::{Shape, load, load_beside, refusal};
use proptest::prelude::*;
use random_requests::{VOCAB, params, prompts};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

fn limits() -> EngineLimits {
    EngineLimits { max_queue: None, prefix_cache: PrefixCache::On, seed: SEED }
}

fn shape(tokens: usize, rows: usize, model_len: usize, blocks: usize) -> Shape {
    let limits = BatchLimits { tokens, rows, model_len, block_size: 4, ..BatchLimits::NONE };
    Shape { limits, blocks, vocab: VOCAB, stages: 3, depth: 1, window: None, states: None, windowed: None }
}

fn engine() -> Engine {
    Engine::with_runner(load(shape(16, 4, 64, 32)), limits())
}

// ---- random schedules ----

#[derive(Clone, Debug)]
struct World {
    shape: Shape,
    prefix_cache: PrefixCache,
    max_queue: Option<usize>,
    actions: Vec<Action>,
}

#[derive(Clone, Debug)]
enum Action {
    Add {
        prompt: Vec<TokenId>,
        params: Box<SamplingParams>,
    },
    /// Cancels the request that was added this many requests ago.
    Cancel(usize),
    /// Releases its prefix.
    Release(usize),
    Step(Budget),
    /// Polls at most this many outputs.
    Poll(usize),
    /// Gives memory of the KV cache back, of which others take this share.
    Trim(f64),
    /// Others leave memory for this many blocks.
    Leave(usize),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let budgets = prop::sample::select(vec![
        Budget::OnePass,
        Budget::Time(Duration::ZERO),
        Budget::Time(Duration::from_micros(20)),
        Budget::Time(Duration::from_secs(3600)),
    ]);
    let action = prop_oneof![
        4 => (prompts(), params()).prop_map(|(prompt, params)| Action::Add { prompt, params: Box::new(params) }),
        1 => (0..8usize).prop_map(Action::Cancel),
        1 => (0..8usize).prop_map(Action::Release),
        8 => budgets.prop_map(Action::Step),
        1 => (1..20usize).prop_map(Action::Poll),
        1 => prop::sample::select(vec![0.0, 0.0, 0.5, 1.0]).prop_map(Action::Trim),
        1 => (0..8usize).prop_map(Action::Leave),
    ];
    prop::collection::vec(action, 1..60)
}

fn worlds() -> impl Strategy<Value = World> {
    let limits = (1..24usize, 1..7usize, 6..56usize, 1..5usize, 0..4usize);
    // Checkpoints besides the states of the rows, and tokens between them. A model with recurrent state has no window.
    let state = prop::option::weighted(0.5, (0..6usize, 1..20usize));
    // Tables of layers with a window, and that window.
    let windowed = prop::option::weighted(0.5, (1..4usize, 1..12usize));
    let runner = (1..4usize, 1..3usize, prop::option::weighted(0.4, 2..12usize), windowed, state);
    let cache = prop::sample::select(vec![PrefixCache::On, PrefixCache::On, PrefixCache::Off]);
    (limits, 2..24usize, runner, cache, prop::option::weighted(0.2, 1..5usize), actions()).prop_map(
        |(
            (tokens, rows, model_len, block_size, extra_samples),
            blocks,
            (stages, depth, window, windowed, state),
            prefix_cache,
            max_queue,
            actions,
        )| {
            World {
                shape: Shape {
                    limits: BatchLimits {
                        tokens,
                        rows,
                        model_len,
                        block_size,
                        extra_samples,
                        window_tables: windowed.map_or(0, |(tables, _)| tables),
                        whole_rows: false,
                        token_states: false,
                    },
                    blocks: blocks * windowed.map_or(1, |(tables, _)| 1 + tables),
                    vocab: VOCAB,
                    stages,
                    depth,
                    window: window.filter(|_| state.is_none() && windowed.is_none()),
                    windowed: windowed.map(|(tables, window)| Windowed { tables, window }),
                    states: state.map(|(checkpoints, interval)| (rows + checkpoints, interval)),
                },
                prefix_cache,
                max_queue,
                actions,
            }
        },
    )
}

/// What is known of a completion in a random schedule.
#[derive(Clone)]
struct Seen {
    prompt: Vec<TokenId>,
    params: SamplingParams,
    tokens: Vec<TokenId>,
    logprobs: Logprobs,
    prompt_logprobs: Logprobs,
    cumulative_logprob: f32,
    finish: Option<Finish>,
}

#[derive(Default)]
struct Story {
    /// By request and index.
    seen: HashMap<(u64, u32), Seen>,
    /// Requests in the order of the first tokens of their first completions.
    begun: Vec<u64>,
}

impl Story {
    fn hear(&mut self, output: &Output) {
        let seen = self.seen.get_mut(&(output.request_id, output.index)).expect("a request that was added");
        assert!(seen.finish.is_none(), "nothing comes after the end of {}", output.request_id);
        assert!(!output.token_ids.is_empty() || output.finish.is_some(), "an output is news");
        let cancelled = matches!(output.finish, Some(Finish::Cancelled | Finish::Error(_)));
        if seen.tokens.is_empty() && !cancelled && output.index == 0 {
            self.begun.push(output.request_id);
        }
        let wanted = |num_logprobs: u32| if num_logprobs > 0 { output.token_ids.len() } else { 0 };
        assert_eq!(output.logprobs.len(), wanted(seen.params.num_logprobs));
        assert_eq!(output.logprobs.alternatives, seen.params.num_logprobs as usize);
        let is_first = output.completion_tokens == 1 && !cancelled;
        let brings_prompt = is_first && output.index == 0 && seen.params.num_prompt_logprobs > 0;
        assert_eq!(output.prompt_logprobs.len(), if brings_prompt { seen.prompt.len() - 1 } else { 0 });
        seen.logprobs.extend(&output.logprobs);
        seen.prompt_logprobs.extend(&output.prompt_logprobs);
        seen.cumulative_logprob = output.cumulative_logprob;
        seen.tokens.extend_from_slice(&output.token_ids);
        assert_eq!(output.prompt_tokens as usize, seen.prompt.len());
        assert!(output.cached_tokens < output.prompt_tokens, "the last token of a prompt is computed");
        let dropped = matches!(output.finish, Some(Finish::Stop)) && seen.params.stop_token == StopToken::Dropped;
        assert_eq!(output.completion_tokens as usize, seen.tokens.len() + usize::from(dropped));
        seen.finish = match &output.finish {
            Some(Finish::Expired) => panic!("nothing was to expire"),
            // Others took the memory that it gave back.
            Some(Finish::Error(error)) if matches!(**error, Error::OutOfMemory { .. }) => Some(Finish::Cancelled),
            Some(Finish::Error(error)) => panic!("{error}"),
            finish => finish.clone(),
        };
    }

    fn poll(&mut self, engine: &mut Engine, outputs: usize) {
        for _ in 0..outputs {
            let Some(output) = engine.next_output() else { return };
            self.hear(output);
        }
    }
}

fn run(world: World) {
    let World { shape, prefix_cache, max_queue, actions } = world;
    let (memory_left, block_bytes) = (Arc::new(AtomicUsize::new(0)), (8 * shape.limits.block_size) as u64);
    let loaded = load_beside(shape, memory_left.clone());
    let mut engine = Engine::with_runner(loaded, EngineLimits { max_queue, prefix_cache, seed: SEED });
    let handle = engine.handle().clone();
    let mut story = Story::default();
    let mut ids = Vec::new();
    for action in actions {
        match action {
            Action::Add { prompt, params } => {
                let mut params = *params;
                if prefix_cache == PrefixCache::Off {
                    params.pinning = Pinning::Evictable;
                }
                let waiting = handle.stats().waiting as usize;
                match (handle.add_request(Prompt::Tokens(&prompt), params.clone()), refusal(&prompt, &params, &shape)) {
                    (Ok(id), None) => {
                        assert!(max_queue.is_none_or(|max| waiting + params.sequences() as usize <= max));
                        assert!(ids.iter().all(|&other| other < id));
                        ids.push(id);
                        let completions = params.completions;
                        let seen = Seen {
                            prompt,
                            params,
                            tokens: Vec::new(),
                            logprobs: Logprobs::default(),
                            prompt_logprobs: Logprobs::default(),
                            cumulative_logprob: 0.0,
                            finish: None,
                        };
                        story.seen.extend((0..completions).map(|index| ((id, index), seen.clone())));
                    }
                    (Err(Error::PromptEmpty), Some("empty")) => {}
                    (Err(Error::PromptTooLong { .. }), Some("too long")) => {}
                    (Err(Error::RequestTooLarge { .. }), Some("too large")) => {}
                    (Err(Error::QueueFull { limit, waiting: counted, wanted }), None) => {
                        assert_eq!((Some(limit), counted, wanted), (max_queue, waiting, params.sequences() as usize));
                        assert!(waiting + wanted > limit);
                    }
                    (Err(Error::Limit { found, limit, .. }), None) => {
                        assert!(Some(limit) == max_queue && found == params.sequences() as usize && found > limit);
                    }
                    (Err(Error::PinsFull { blocks, pinned, limit }), None) => assert!(pinned + blocks > limit),
                    (answer, expected) => panic!("{answer:?} where {expected:?} was expected"),
                }
            }
            Action::Cancel(ago) => {
                let Some(&id) = ids.iter().rev().nth(ago) else { continue };
                if handle.cancel(id).is_ok() {
                    assert!(matches!(handle.cancel(id), Err(Error::UnknownRequest { .. })), "cancelled twice");
                }
            }
            Action::Release(ago) => {
                let Some(&id) = ids.iter().rev().nth(ago) else { continue };
                if handle.release_prefix(id).is_ok() {
                    assert!(matches!(handle.release_prefix(id), Err(Error::UnknownPin { .. })), "released twice");
                }
            }
            Action::Step(budget) => {
                let report = engine.step(budget).unwrap();
                let stats = handle.stats();
                assert!(report.running <= shape.limits.rows && stats.kv_blocks_used <= stats.kv_blocks_total);
                assert!(budget != Budget::OnePass || (report.passes <= 1 && (report.in_flight as usize) < shape.depth));
                assert!(report.running == 0 || report.passes + report.in_flight > 0, "progress is always made");
            }
            Action::Poll(outputs) => story.poll(&mut engine, outputs),
            Action::Trim(taken) => {
                let before = handle.stats();
                let (bytes, stats) = (engine.trim().unwrap(), handle.stats());
                assert_eq!(before.kv_cache_bytes_mapped - stats.kv_cache_bytes_mapped, bytes);
                assert!(stats.kv_cache_bytes_mapped >= u64::from(stats.kv_blocks_used) * block_bytes);
                assert_eq!(engine.trim().unwrap(), 0, "there is nothing left");
                memory_left.fetch_sub((memory_left.load(Relaxed) as f64 * taken) as usize, Relaxed);
            }
            Action::Leave(blocks) => {
                let mapped = (handle.stats().kv_cache_bytes_mapped / block_bytes) as usize;
                memory_left.store((memory_left.load(Relaxed) + blocks).min(shape.blocks - mapped), Relaxed);
            }
        }
    }
    let mut steps = 0;
    while !handle.is_finished() {
        engine.step(Budget::OnePass).unwrap();
        story.poll(&mut engine, usize::MAX);
        steps += 1;
        assert!(steps < 20_000, "somebody starves");
    }
    let pins = ids.iter().filter(|&&id| handle.release_prefix(id).is_ok()).count();
    engine.step(Budget::OnePass).unwrap();
    let stats = handle.stats();
    assert_eq!(
        (stats.running, stats.waiting, stats.kv_blocks_used),
        (0, 0, 0),
        "nothing is left behind of {pins} pins"
    );
    // The last request may have ended while a pass for its next token was on its way.
    engine.step(Budget::OnePass).unwrap();
    assert_eq!(engine.step(Budget::OnePass).unwrap().in_flight, 0);

    for (&(id, index), seen) in &story.seen {
        let (answer, stopped) = oracle(id, index, &seen.prompt, &seen.params, &shape);
        let text = [&seen.prompt[..], &seen.tokens].concat();
        if seen.params.num_logprobs > 0 {
            let wanted = logprobs(&text, seen.prompt.len(), seen.params.num_logprobs, &shape);
            assert_eq!(seen.logprobs, wanted, "request {id}");
            assert_eq!(seen.cumulative_logprob, wanted.logprobs.iter().sum::<f32>(), "request {id}");
        }
        if seen.params.num_prompt_logprobs > 0 && index == 0 && !seen.tokens.is_empty() {
            let wanted = logprobs(&seen.prompt, 1, seen.params.num_prompt_logprobs, &shape);
            assert_eq!(seen.prompt_logprobs, wanted, "request {id}");
        }
        match seen.finish.as_ref().expect("every request ends") {
            Finish::Cancelled => assert!(answer.starts_with(&seen.tokens), "{id}: {:?} of {answer:?}", seen.tokens),
            finish => {
                assert_eq!(seen.tokens, answer, "request {id}");
                assert_eq!(matches!(finish, Finish::Stop), stopped, "request {id}");
            }
        }
    }
    for priority in -1..2 {
        let order: Vec<u64> =
            story.begun.iter().copied().filter(|id| story.seen[&(*id, 0)].params.priority == priority).collect();
        assert!(order.is_sorted(), "first come, first served: {order:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12_000, max_shrink_iters: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_schedule_each_request_gets_its_own_answer(world in worlds()) {
        run(world);
    }
}

// ---- case by case ----

fn greedy(max_tokens: u32) -> SamplingParams {
    SamplingParams { max_tokens: Some(max_tokens), eos: Eos::Ignored, ..SamplingParams::default() }
}

/// The log-probabilities of a prompt take a sample per token, of which a pass has more than one per sequence.
#[test]
fn log_probabilities_of_a_long_prompt_take_few_passes() {
    let passes = |extra_samples| {
        let limits =
            BatchLimits { tokens: 256, rows: 2, model_len: 2100, block_size: 4, extra_samples, ..BatchLimits::NONE };
        let mut engine = Engine::with_runner(load(Shape { limits, ..shape(256, 2, 2100, 600) }), self::limits());
        let prompt: Vec<TokenId> = (0..2000).map(|i| 1 + i % 20).collect();
        let params = SamplingParams { num_prompt_logprobs: 1, ..greedy(1) };
        engine.handle().add_request(Prompt::Tokens(&prompt), params).unwrap();
        let (mut passes, mut scored) = (0, 0);
        while !engine.handle().is_finished() {
            passes += engine.step(Budget::OnePass).unwrap().passes;
            while let Some(output) = engine.next_output() {
                scored += output.prompt_logprobs.len();
            }
        }
        assert_eq!(scored, 1999);
        passes
    };
    assert_eq!((passes(0), passes(64)), (1000, 31));
}

/// Runs all requests to their end and joins the outputs of each.
fn finish(engine: &mut Engine) -> HashMap<u64, (Vec<TokenId>, Option<String>)> {
    let mut all: HashMap<u64, (Vec<TokenId>, Option<String>)> = HashMap::new();
    while !engine.handle().is_finished() {
        engine.step(Budget::OnePass).unwrap();
        while let Some(output) = engine.next_output() {
            let (tokens, finish) = all.entry(output.request_id).or_default();
            tokens.extend_from_slice(&output.token_ids);
            *finish = output.finish.as_ref().map(|finish| format!("{finish:?}"));
        }
    }
    all
}

#[test]
fn each_bad_request_is_refused_with_its_own_words_and_a_good_one_follows() {
    type Spoil = fn(&mut SamplingParams);
    const FINE: Spoil = |_| {};
    let cases: &[(&str, &[TokenId], Spoil)] = &[
        ("the prompt has no tokens", &[], FINE),
        ("prompt has 60 tokens, but max_model_len is 60", &[1; 60], FINE),
        ("token 24 at index 1 is beyond the vocabulary of 24", &[1, 24], FINE),
        ("token 99 at index 0 is beyond the vocabulary of 24", &[1], |p| p.stop_tokens = vec![99]),
        ("max_tokens is 0", &[1], |p| p.max_tokens = Some(0)),
        ("min_tokens is 9, but must be at most max_tokens", &[1], |p| p.min_tokens = 9),
        ("temperature is NaN", &[1], |p| p.temperature = f32::NAN),
        ("top_p is 0", &[1], |p| p.top_p = 0.0),
        ("min_p is 2", &[1], |p| p.min_p = 2.0),
        ("request may reach 50 tokens, but the whole KV cache holds 48", &[1; 46], FINE),
        ("request may reach 49 tokens, but", &[1; 48], |p| p.max_tokens = None),
        ("the model folder has no tokenizer.json", &[1], |p| p.stop_strings = vec!["x".into()]),
        ("stop_tokens is with the tokens that a bias forbids all 24 tokens, but", &[1], |p| {
            (p.min_tokens, p.stop_tokens) = (1, (0..20).collect());
            p.logit_bias = (18..24).map(|token| (token, f32::NEG_INFINITY)).collect();
        }),
        ("bias_values is minus infinity for all 24 tokens, but", &[1], |p| {
            p.logit_bias = (0..24).map(|token| (token, f32::NEG_INFINITY)).collect();
        }),
    ];
    let shape = shape(16, 4, 60, 12);
    let mut engine = Engine::with_runner(load(shape), limits());
    for (words, prompt, spoil) in cases {
        let mut params = greedy(4);
        spoil(&mut params);
        let error = engine.handle().add_request(Prompt::Tokens(prompt), params).expect_err(words).to_string();
        assert!(error.starts_with(words), "{error}");
        assert!(engine.handle().is_finished(), "a refused request leaves no trace");
        let id = engine.handle().add_request(Prompt::Tokens(&[3, 4]), greedy(4)).unwrap();
        let expected = oracle(id, 0, &[3, 4], &greedy(4), &shape).0;
        assert_eq!(finish(&mut engine)[&id], (expected, Some("Length".into())), "after {words}");
    }
    let text = engine.handle().add_request(Prompt::Text("hello"), greedy(4));
    assert!(matches!(text, Err(Error::NoTokenizer)));
}

#[test]
fn without_max_tokens_the_model_or_the_pool_is_the_limit() {
    for (name, model_len, blocks, expected) in [("model_len", 20, 12, 20), ("pool", 60, 4, 16)] {
        let mut engine = Engine::with_runner(load(shape(16, 4, model_len, blocks)), limits());
        let params = SamplingParams { max_tokens: None, ..greedy(1) };
        let id = engine.handle().add_request(Prompt::Tokens(&[1; 5]), params).unwrap();
        let (tokens, finish) = &finish(&mut engine)[&id];
        assert_eq!((5 + tokens.len(), finish.as_deref()), (expected, Some("Length")), "{name}");
    }
}

#[test]
fn a_full_queue_refuses_until_a_step_makes_room() {
    let limits = EngineLimits { max_queue: Some(2), ..limits() };
    let mut engine = Engine::with_runner(load(shape(16, 4, 64, 32)), limits);
    let add = |engine: &Engine| engine.handle().add_request(Prompt::Tokens(&[1, 2]), greedy(3));
    add(&engine).unwrap();
    add(&engine).unwrap();
    assert!(matches!(add(&engine), Err(Error::QueueFull { limit: 2, .. })));
    engine.step(Budget::OnePass).unwrap();
    add(&engine).unwrap();
    assert_eq!(finish(&mut engine).len(), 3);

    let two = SamplingParams { completions: 2, ..greedy(3) };
    engine.handle().add_request(Prompt::Tokens(&[1, 2]), two).unwrap();
    assert!(matches!(add(&engine), Err(Error::QueueFull { limit: 2, .. })), "each completion counts");
    finish(&mut engine);
}

#[test]
fn ids_start_at_one_and_an_idle_step_returns_at_once() {
    let mut engine = engine();
    for budget in [Budget::OnePass, Budget::Time(Duration::from_secs(3600))] {
        let report = engine.step(budget).unwrap();
        assert_eq!((report.passes, report.in_flight, report.outputs), (0, 0, 0));
    }
    assert!(engine.handle().is_finished() && engine.next_output().is_none());
    assert_eq!(engine.handle().add_request(Prompt::Tokens(&[1]), greedy(1)).unwrap(), 1);
    assert!(!engine.handle().is_finished());
    engine.step(Budget::OnePass).unwrap();
    assert!(!engine.handle().is_finished(), "an output waits");
    assert_eq!(engine.next_output().unwrap().request_id, 1);
    assert!(engine.handle().is_finished());
}

#[test]
fn a_pass_cut_by_the_budget_is_taken_up_by_the_next_call() {
    let mut engine = engine();
    engine.handle().add_request(Prompt::Tokens(&[1, 2, 3]), greedy(1)).unwrap();
    let mut reports = Vec::new();
    while !engine.handle().is_finished() {
        let report = engine.step(Budget::Time(Duration::ZERO)).unwrap();
        reports.push((report.passes, report.in_flight, report.prefill_tokens, report.decode_tokens));
        while engine.next_output().is_some() {}
    }
    assert_eq!(reports, [(0, 1, 0, 0), (0, 1, 0, 0), (1, 0, 3, 1)]);
}

#[test]
fn one_whole_pass_finishes_the_one_in_flight() {
    let mut engine = engine();
    engine.handle().add_request(Prompt::Tokens(&[1, 2, 3]), greedy(9)).unwrap();
    assert_eq!(engine.step(Budget::Time(Duration::ZERO)).unwrap().in_flight, 1);
    let report = engine.step(Budget::OnePass).unwrap();
    assert_eq!((report.passes, report.in_flight, report.prefill_tokens, report.decode_tokens), (1, 0, 3, 1));
}

#[test]
fn a_request_cancelled_in_flight_drops_its_token_and_frees_its_blocks_with_the_pass() {
    let mut engine = engine();
    let handle = engine.handle().clone();
    let id = handle.add_request(Prompt::Tokens(&[1; 9]), greedy(9)).unwrap();
    engine.step(Budget::Time(Duration::ZERO)).unwrap();
    handle.cancel(id).unwrap();
    engine.step(Budget::Time(Duration::ZERO)).unwrap();
    assert_eq!(handle.stats().kv_blocks_used, 3);
    engine.step(Budget::OnePass).unwrap();
    let output = engine.next_output().unwrap();
    assert!(matches!(output.finish, Some(Finish::Cancelled)) && output.token_ids.is_empty());
    assert_eq!(handle.stats().kv_blocks_used, 0);
    assert!(matches!(handle.cancel(id), Err(Error::UnknownRequest { id: 1 })));
    assert!(matches!(handle.cancel(77), Err(Error::UnknownRequest { id: 77 })));
    engine.next_output();
    assert!(handle.is_finished());
}

#[test]
fn a_sink_hears_every_output_and_may_cancel() {
    let mut engine = engine();
    let first = engine.handle().add_request(Prompt::Tokens(&[1, 2]), greedy(8)).unwrap();
    let second = engine.handle().add_request(Prompt::Tokens(&[3]), greedy(8)).unwrap();
    engine.step(Budget::OnePass).unwrap();
    let mut heard: HashMap<u64, Vec<String>> = HashMap::new();
    while !engine.handle().is_finished() {
        let report = engine.step_with(Budget::OnePass, &mut |output| {
            let list = heard.entry(output.request_id).or_default();
            list.push(output.finish.as_ref().map_or("-".into(), |finish| format!("{finish:?}")));
            if output.request_id == second && list.len() == 2 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        assert_eq!(report.unwrap().outputs, 0, "the queue stays empty");
    }
    assert_eq!(heard[&first], ["-", "-", "-", "-", "-", "-", "-", "Length"]);
    assert_eq!(heard[&second], ["-", "-", "Cancelled"]);
}

#[test]
fn an_engine_may_move_between_threads_and_its_front_be_shared() {
    fn may_move<T: Send>() {}
    fn may_be_shared<T: Send + Sync>() {}
    may_move::<Engine>();
    may_be_shared::<EngineHandle>();
}

#[test]
fn an_engine_may_be_dropped_with_requests_in_flight() {
    let mut engine = engine();
    let handle = engine.handle().clone();
    handle.add_request(Prompt::Tokens(&[1; 30]), greedy(9)).unwrap();
    engine.step(Budget::Time(Duration::ZERO)).unwrap();
    drop(engine);
    assert!(handle.add_request(Prompt::Tokens(&[1]), greedy(1)).is_ok(), "what nobody steps only waits");
}

#[test]
fn eight_threads_add_and_cancel_while_one_steps() {
    let mut engine = engine();
    let handle = engine.handle().clone();
    let threads: Vec<_> = (0..8u32)
        .map(|thread| {
            let handle = handle.clone();
            std::thread::spawn(move || {
                for i in 0..50 {
                    let prompt: Vec<TokenId> = (0..=i % 7).map(|j| 1 + (thread + j) % 20).collect();
                    let id = handle.add_request(Prompt::Tokens(&prompt), greedy(1 + i % 5)).unwrap();
                    if i % 10 == 0 {
                        let _ = handle.cancel(id);
                    }
                }
            })
        })
        .collect();
    let mut ended = 0;
    while ended < 400 {
        engine.step(Budget::Time(Duration::from_micros(100))).unwrap();
        while let Some(output) = engine.next_output() {
            ended += usize::from(output.finish.is_some());
        }
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(handle.is_finished());
    assert_eq!(handle.stats().kv_blocks_used, 0);
}

// ---- generate ----

#[test]
fn generate_answers_in_the_order_of_the_prompts_and_skips_bad_ones() {
    let shape = shape(16, 4, 64, 32);
    let mut engine = Engine::with_runner(load(shape), EngineLimits { max_queue: Some(2), ..limits() });
    let prompts: Vec<Vec<TokenId>> = (0..12).map(|i| if i == 5 { vec![] } else { vec![1 + i, 2, 3] }).collect();
    let params: Vec<_> = (0..12u32).map(|i| SamplingParams { tag: 100 + u64::from(i), ..greedy(12 - i) }).collect();
    let views: Vec<Prompt> = prompts.iter().map(|prompt| Prompt::Tokens(prompt)).collect();
    let mut last = None;
    let results = engine
        .generate(&views, &params, &mut |progress| {
            assert!(last.is_none_or(|before| before <= progress.finished) && progress.total == 12);
            last = Some(progress.finished);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(last, Some(12));
    for (i, result) in results.iter().enumerate() {
        assert_eq!(result.tag, 100 + i as u64);
        if i == 5 {
            assert!(matches!(&result.finish, Some(Finish::Error(error)) if matches!(**error, Error::PromptEmpty)));
        } else {
            assert_eq!(result.token_ids, oracle(0, 0, &prompts[i], &params[i], &shape).0, "prompt {i}");
            assert_eq!(result.completion_tokens as usize, 12 - i);
        }
    }
    assert!(engine.handle().is_finished());
}

#[test]
fn generate_lets_other_requests_run_along_and_keeps_their_outputs() {
    let mut engine = engine();
    let other = engine.handle().add_request(Prompt::Tokens(&[9, 9]), greedy(3)).unwrap();
    engine.step(Budget::OnePass).unwrap();
    let results = engine.generate(&[Prompt::Tokens(&[1, 2])], &[greedy(6)], &mut |_| ControlFlow::Continue(()));
    assert_eq!(results.unwrap()[0].token_ids.len(), 6);
    assert!(!engine.handle().is_finished());
    let mut tokens = 0;
    while let Some(output) = engine.next_output() {
        assert_eq!(output.request_id, other);
        tokens += output.token_ids.len();
    }
    assert_eq!(tokens, 3);
    assert!(engine.handle().is_finished());
}

#[test]
fn generate_stopped_by_its_progress_keeps_what_there_is() {
    for depth in [1, 2] {
        let mut engine = Engine::with_runner(
            load(Shape { depth, ..shape(16, 4, 64, 32) }),
            EngineLimits { max_queue: Some(1), ..limits() },
        );
        let prompts = [Prompt::Tokens(&[1, 2]); 6];
        let mut calls = 0;
        let results = engine
            .generate(&prompts, &[greedy(9)], &mut |_| {
                calls += 1;
                if calls == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap();
        assert_eq!(results.len(), 6);
        assert!(results.iter().all(|result| matches!(result.finish, Some(Finish::Cancelled))));
        assert_eq!(results[0].token_ids.len(), 3);
        assert!(engine.handle().is_finished());
        let again = engine.generate(&prompts[..1], &[greedy(2)], &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(again[0].token_ids.len(), 2);
    }
}

#[test]
fn generate_refuses_another_number_of_options() {
    let mut engine = engine();
    let prompts = [Prompt::Tokens(&[1]); 3];
    let error = engine.generate(&prompts, &[greedy(1), greedy(2)], &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert_eq!(error.to_string(), "num_options is 2, but must be 0, 1 or the number of prompts");
    assert!(engine.generate(&[], &[], &mut |_| ControlFlow::Continue(())).unwrap().is_empty());
}

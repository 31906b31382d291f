//! Beam search: the answers and scores of a search over whole texts, whatever becomes of blocks, rows and passes.

use crate::fake_runner;

use base::TokenId;
use base::error::Error;
use compute::Windowed;
use compute::batch::BatchLimits;
use engine::beam_search::{BeamParams, EarlyStopping};
use engine::options::PrefixCache;
use engine::output::{Finish, Output};
use engine::sampling_params::{Eos, SamplingParams, StopToken};
use engine::{Budget, Engine, EngineLimits, Prompt};
use fake_runner::beams::{Found, beam_search, ending_tokens};
use fake_runner::oracle::{SEED, logprobs, oracle};
use fake_runner::{Shape, load};
use proptest::prelude::*;
use std::collections::HashMap;
use std::time::Duration;

const VOCAB: usize = 24;

fn shape(rows: usize, blocks: usize) -> Shape {
    let limits = BatchLimits { tokens: 64, rows, model_len: 64, block_size: 4, ..BatchLimits::NONE };
    Shape { limits, blocks, vocab: VOCAB, stages: 1, depth: 1, window: None, states: None, windowed: None }
}

fn open(shape: Shape, prefix_cache: PrefixCache) -> Engine {
    Engine::with_runner(load(shape), EngineLimits { max_queue: None, prefix_cache, seed: SEED })
}

fn params(width: u32, max_tokens: u32) -> SamplingParams {
    let beams = BeamParams { width, length_penalty: 1.0, early_stopping: EarlyStopping::WhenUnlikely };
    SamplingParams { beams: Some(beams), completions: width, max_tokens: Some(max_tokens), ..SamplingParams::default() }
}

fn prompt(len: u32) -> Vec<TokenId> {
    (0..len).map(|i| 1 + i * i % 23).collect()
}

/// What a request with beams brought: each of its completions once, by their index.
type Answers = HashMap<u64, Vec<Option<Output>>>;

/// A copy of an output as far as it is compared.
fn copy(output: &Output) -> Output {
    Output {
        token_ids: output.token_ids.clone(),
        finish: output.finish.clone(),
        embedding: output.embedding.clone(),
        scores: output.scores.clone(),
        prompt_logprobs: output.prompt_logprobs.clone(),
        logprobs: output.logprobs.clone(),
        text: output.text.clone(),
        ..*output
    }
}

fn poll(engine: &mut Engine, answers: &mut Answers) {
    while let Some(output) = engine.next_output() {
        let of_request = answers.entry(output.request_id).or_default();
        let index = output.index as usize;
        of_request.resize_with(of_request.len().max(index + 1), || None);
        assert!(of_request[index].is_none(), "all at the end, and once");
        of_request[index] = Some(copy(output));
    }
}

fn run_to_end(engine: &mut Engine, budget: Budget, answers: &mut Answers) {
    let mut steps = 0;
    while !engine.handle().is_finished() {
        engine.step(budget).unwrap();
        poll(engine, answers);
        steps += 1;
        assert!(steps < 20_000, "somebody starves");
    }
}

/// Compares the answers of a request with those of a search over whole texts.
fn check(name: &str, answers: &[Option<Output>], prompt: &[TokenId], params: &SamplingParams, shape: &Shape) {
    let wanted = beam_search(prompt, params, shape);
    assert_eq!(answers.len(), params.completions as usize, "{name}");
    for (index, (answer, wanted)) in answers.iter().zip(&wanted).enumerate() {
        let answer = answer.as_ref().expect("each index has an answer");
        let Found { tokens, logprob, score } = wanted;
        let stops = ending_tokens(params).contains(tokens.last().unwrap());
        assert_eq!(matches!(answer.finish, Some(Finish::Stop)), stops, "{name}, answer {index}");
        let dropped = usize::from(stops && params.stop_token == StopToken::Dropped);
        assert_eq!(answer.token_ids, tokens[..tokens.len() - dropped], "{name}, answer {index}");
        assert_eq!((answer.score, answer.cumulative_logprob), (*score, *logprob), "{name}, answer {index}");
        assert_eq!(answer.completion_tokens as usize, tokens.len(), "{name}, answer {index}");
    }
}

#[test]
fn answers_are_those_of_a_search_over_whole_texts() {
    let stoppings = [EarlyStopping::WhenUnlikely, EarlyStopping::WhenFull, EarlyStopping::Never];
    let shape = shape(8, 256);
    let mut stopped = 0;
    for width in [2, 3, 4, 8] {
        for length_penalty in [-1.0, 0.0, 0.7, 1.0, 2.0] {
            for early_stopping in stoppings {
                for (stop_tokens, min_tokens) in [(vec![], 0), (vec![3, 9, 17], 0), (vec![5], 4)] {
                    let beams = Some(BeamParams { width, length_penalty, early_stopping });
                    let params = SamplingParams { beams, stop_tokens, min_tokens, ..params(width, 12) };
                    let name = format!("{params:?}");
                    let mut engine = open(shape, PrefixCache::On);
                    let id = engine.handle().add_request(Prompt::Tokens(&prompt(7)), params.clone()).unwrap();
                    let mut answers = Answers::new();
                    run_to_end(&mut engine, Budget::OnePass, &mut answers);
                    check(&name, &answers[&id], &prompt(7), &params, &shape);
                    assert_eq!(engine.handle().stats().kv_blocks_used, 0, "{name}");
                    assert_eq!(engine.handle().stats().preemptions, 0, "{name}");
                    let best = answers[&id][0].as_ref().unwrap();
                    stopped += usize::from(matches!(best.finish, Some(Finish::Stop)));
                }
            }
        }
    }
    assert!((40..170).contains(&stopped), "{stopped} of 180: answers end in both ways");
}

#[test]
fn beams_share_full_blocks_and_copy_the_last_one() {
    let shape = shape(8, 256);
    for cache in [PrefixCache::On, PrefixCache::Off] {
        let mut engine = open(shape, cache);
        let params = SamplingParams { eos: Eos::Ignored, ..params(4, 20) };
        engine.handle().add_request(Prompt::Tokens(&prompt(41)), params).unwrap();
        let mut peak = 0;
        let mut computed = Vec::new();
        while !engine.handle().is_finished() {
            let report = engine.step(Budget::OnePass).unwrap();
            computed.push(report.prefill_tokens);
            peak = peak.max(engine.handle().stats().kv_blocks_used);
            while engine.next_output().is_some() {}
        }
        assert_eq!(computed.iter().sum::<u32>(), 41, "{cache:?}: the prompt is computed once");
        // Ten full blocks of the prompt, and 20 more tokens in 5 blocks for each beam at most.
        assert!(peak <= 10 + 4 * 5, "{cache:?}: {peak} blocks");
        let stats = engine.handle().stats();
        assert_eq!((stats.generated_tokens, stats.kv_blocks_used), (1 + 4 * 19, 0), "{cache:?}");
    }
}

#[test]
fn fewer_answers_than_beams_may_be_asked_for_and_the_prompt_be_scored() {
    let shape = shape(8, 256);
    let mut engine = open(shape, PrefixCache::On);
    let params = SamplingParams { completions: 2, num_prompt_logprobs: 3, tag: 9, ..params(5, 6) };
    let id = engine.handle().add_request(Prompt::Tokens(&prompt(9)), params.clone()).unwrap();
    let mut answers = Answers::new();
    run_to_end(&mut engine, Budget::OnePass, &mut answers);
    check("two of five", &answers[&id], &prompt(9), &params, &shape);
    let [Some(first), Some(second)] = &answers[&id][..] else { panic!("two answers") };
    assert_eq!(first.prompt_logprobs, logprobs(&prompt(9), 1, 3, &shape));
    assert!(second.prompt_logprobs.is_empty());
    assert_eq!((first.tag, first.prompt_tokens, first.index, second.index), (9, 9, 0, 1));
    assert!(first.score >= second.score);
}

#[test]
fn a_cancelled_search_ends_all_of_its_beams_and_each_answer_once() {
    for depth in [1, 2] {
        for steps in [0, 1, 2, 5] {
            let shape = Shape { depth, stages: 2, ..shape(3, 64) };
            let mut engine = open(shape, PrefixCache::Off);
            let handle = engine.handle().clone();
            let other = handle.add_request(Prompt::Tokens(&[9; 5]), SamplingParams { ..greedy(20) }).unwrap();
            let params = SamplingParams { completions: 2, eos: Eos::Ignored, ..params(4, 30) };
            let id = handle.add_request(Prompt::Tokens(&prompt(9)), params).unwrap();
            let mut answers = Answers::new();
            for _ in 0..steps {
                engine.step(Budget::Time(Duration::ZERO)).unwrap();
            }
            handle.cancel(id).unwrap();
            assert!(matches!(handle.cancel(id), Err(Error::UnknownRequest { .. })));
            while !handle.is_finished() {
                engine.step(Budget::OnePass).unwrap();
                while let Some(output) = engine.next_output() {
                    if output.request_id == other {
                        continue;
                    }
                    let of_request = answers.entry(output.request_id).or_default();
                    of_request.push(Some(copy(output)));
                }
            }
            let ended: Vec<_> = answers[&id].iter().flatten().map(|output| output.index).collect();
            assert_eq!(ended.len(), 2, "{steps} steps, {depth} in flight: {ended:?}");
            let cancelled = |output: &&Output| matches!(output.finish, Some(Finish::Cancelled));
            assert_eq!(answers[&id].iter().flatten().filter(cancelled).count(), 2);
            assert_eq!((handle.stats().kv_blocks_used, handle.stats().running, handle.stats().waiting), (0, 0, 0));
        }
    }
}

#[test]
fn a_search_may_expire_before_it_runs() {
    let mut engine = open(shape(1, 64), PrefixCache::On);
    let handle = engine.handle().clone();
    handle.add_request(Prompt::Tokens(&[9; 5]), greedy(8)).unwrap();
    engine.step(Budget::OnePass).unwrap();
    let params = SamplingParams { max_wait: Some(Duration::from_nanos(1)), completions: 2, ..params(4, 6) };
    let id = handle.add_request(Prompt::Tokens(&prompt(9)), params).unwrap();
    engine.step(Budget::OnePass).unwrap();
    let mut expired = 0;
    while let Some(output) = engine.next_output() {
        expired += usize::from(output.request_id == id && matches!(output.finish, Some(Finish::Expired)));
    }
    assert_eq!((expired, handle.stats().waiting), (2, 0));
}

#[test]
fn too_many_candidates_are_refused_and_a_good_search_follows() {
    let shape = shape(8, 64);
    let mut engine = open(shape, PrefixCache::On);
    // With the end token of the model there are four: five times as many candidates as beams.
    let wide = SamplingParams { stop_tokens: vec![1, 2, 3], ..params(13, 4) };
    let error = engine.handle().add_request(Prompt::Tokens(&[1]), wide.clone()).unwrap_err().to_string();
    assert!(error.starts_with("beam_width is 13, but must be small enough for 64 candidates"), "{error}");
    let narrow =
        SamplingParams { beams: wide.beams.map(|beams| BeamParams { width: 12, ..beams }), completions: 12, ..wide };
    let id = engine.handle().add_request(Prompt::Tokens(&[1]), narrow.clone()).unwrap();
    let mut answers = Answers::new();
    run_to_end(&mut engine, Budget::OnePass, &mut answers);
    check("twelve", &answers[&id], &[1], &narrow, &shape);
}

fn greedy(max_tokens: u32) -> SamplingParams {
    SamplingParams { max_tokens: Some(max_tokens), eos: Eos::Ignored, ..SamplingParams::default() }
}

// ---- random schedules ----

#[derive(Clone, Debug)]
struct World {
    shape: Shape,
    prefix_cache: PrefixCache,
    budget: Budget,
    /// Each with the steps that are made before it comes, and before it is cancelled if it is.
    requests: Vec<(Vec<TokenId>, SamplingParams, usize, Option<usize>)>,
}

fn worlds() -> impl Strategy<Value = World> {
    let limits = (1..24usize, 1..7usize, 12..40usize, 1..5usize, 0..4usize);
    let state = prop::option::weighted(0.5, (0..6usize, 1..20usize));
    let runner = (1..3usize, 1..3usize, 3..30usize, prop::option::weighted(0.4, 2..12usize), state);
    let windowed = prop::option::weighted(0.5, (1..4usize, 1..12usize));
    let cache = prop::sample::select(vec![PrefixCache::On, PrefixCache::Off]);
    let budget = prop::sample::select(vec![Budget::OnePass, Budget::Time(Duration::ZERO)]);
    let requests = prop::collection::vec(requests(), 1..6);
    (limits, runner, windowed, cache, budget, requests).prop_map(
        |(
            (tokens, rows, model_len, block_size, extra_samples),
            (stages, depth, blocks, window, state),
            windowed,
            prefix_cache,
            budget,
            requests,
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
                budget,
                requests,
            }
        },
    )
}

fn requests() -> impl Strategy<Value = (Vec<TokenId>, SamplingParams, usize, Option<usize>)> {
    let beams = prop::option::weighted(0.7, (2..6u32, prop::sample::select(vec![-0.5, 0.0, 1.0, 1.5]), 0..3usize));
    let lengths = (1..11u32, 1..16u32, 0..4u32, 1..6u32);
    let ends = (prop::collection::vec(0..VOCAB as TokenId, 0..3), 0..2u32, -1..2i32);
    let times = (0..8usize, prop::option::weighted(0.2, 0..10usize));
    (beams, lengths, ends, times).prop_map(
        |(beams, (len, max, min, answers), (stop_tokens, ignored, priority), times)| {
            let stoppings = [EarlyStopping::WhenUnlikely, EarlyStopping::WhenFull, EarlyStopping::Never];
            let beams = beams.map(|(width, length_penalty, early)| BeamParams {
                width,
                length_penalty,
                early_stopping: stoppings[early],
            });
            let params = SamplingParams {
                completions: beams.map_or(1, |beams| answers.min(beams.width)),
                beams,
                max_tokens: Some(max),
                min_tokens: min.min(max),
                stop_tokens,
                eos: if ignored == 1 { Eos::Ignored } else { Eos::Stops },
                priority,
                ..SamplingParams::default()
            };
            (prompt(len), params, times.0, times.1)
        },
    )
}

fn run(world: World) {
    let World { shape, prefix_cache, budget, requests } = world;
    let mut engine = open(shape, prefix_cache);
    let handle = engine.handle().clone();
    let mut outputs: HashMap<u64, Vec<Output>> = HashMap::new();
    let mut added = Vec::new();
    let mut cancels: Vec<(usize, u64)> = Vec::new();
    let mut requests = requests.into_iter().peekable();
    let mut steps_since = 0;
    let mut steps = 0;
    while requests.peek().is_some() || !handle.is_finished() {
        if let Some((prompt, params, _, cancel)) = requests.next_if(|next| next.2 <= steps_since) {
            steps_since = 0;
            let pool = shape.pool_tokens();
            let reach = shape.limits.model_len.min(prompt.len() + params.max_tokens.unwrap() as usize);
            match handle.add_request(Prompt::Tokens(&prompt), params.clone()) {
                Ok(id) => {
                    cancels.extend(cancel.map(|after| (steps + after, id)));
                    added.push((id, prompt, params));
                }
                Err(Error::RequestTooLarge { .. }) => assert!(reach > pool),
                Err(error) => panic!("{error}"),
            }
        }
        for (_, id) in cancels.extract_if(.., |cancel| cancel.0 <= steps) {
            // It may have ended before.
            let _ = handle.cancel(id);
        }
        let report = engine.step(budget).unwrap();
        let idle = report.passes + report.in_flight == 0;
        assert!(!idle || report.running + report.waiting == 0, "progress is always made");
        while let Some(output) = engine.next_output() {
            outputs.entry(output.request_id).or_default().push(copy(output));
        }
        (steps, steps_since) = (steps + 1, steps_since + 1);
        assert!(steps < 20_000, "somebody starves");
    }
    let stats = handle.stats();
    assert_eq!((stats.running, stats.waiting, stats.kv_blocks_used), (0, 0, 0), "nothing is left behind");
    for (id, prompt, params) in added {
        let mine = outputs.remove(&id).expect("every request ends");
        let cancelled = mine.iter().any(|output| matches!(output.finish, Some(Finish::Cancelled)));
        if params.beams.is_none() {
            let tokens: Vec<TokenId> = mine.iter().flat_map(|output| output.token_ids.clone()).collect();
            let (wanted, _) = oracle(id, 0, &prompt, &params, &shape);
            assert!(tokens == wanted || (cancelled && wanted.starts_with(&tokens)), "{tokens:?} is not {wanted:?}");
            continue;
        }
        assert_eq!(mine.len(), params.completions as usize, "each answer once");
        if !cancelled {
            assert!(mine.is_sorted_by_key(|output| output.index));
            let answers: Vec<Option<Output>> = mine.into_iter().map(Some).collect();
            check("a random schedule", &answers, &prompt, &params, &shape);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8_000, max_shrink_iters: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_schedule_a_search_finds_its_own_answers(world in worlds()) {
        run(world);
    }
}

//! A rank that fails: the engine ends with its error within the time that ranks wait, and another engine opens afterwards.

use super::models::{MANY_HEADS, config, together, together_by};
use super::{PATIENCE, within};
use crate::driver::{Sequence, golden, greedy, pass};
use base::TokenId;
use base::error::Error;
use compute::batch::Batch;
use compute::cuda::{Cuda, Fault, Transport};
use formats::source::Source;
use runner::options::EngineOptions;
use runner::parallel::ParallelRunner;
use runner::{Launching, Runner};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

const NAME: &str = MANY_HEADS;
const PROMPT: [TokenId; 9] = [3, 1, 4, 1, 5, 9, 2, 6, 5];

/// Passes until one fails, two in flight. The caller looks every millisecond, as an engine with a budget does.
fn run_until_it_fails(runner: &mut ParallelRunner<Cuda>, config: &EngineOptions) -> Error {
    let limits = compute::batch::BatchLimits {
        tokens: config.max_batched_tokens.unwrap(),
        rows: config.max_num_seqs.unwrap(),
        model_len: 256,
        block_size: 16,
        ..compute::batch::BatchLimits::NONE
    };
    let mut batch = Batch::with_limits(&limits);
    let mut sequence = Sequence::new(&PROMPT, 0..16);
    for _ in 0..40 {
        batch.clear();
        batch.table_width = limits.table_width();
        let pending = sequence.pending();
        sequence.bring(pending, &limits, &mut batch);
        sequence.tokens.push(7);
        if let Err(error) = runner.submit(&batch) {
            return error;
        }
        loop {
            match runner.collect(Some(Instant::now() + Duration::from_millis(1))) {
                Ok(Some(_)) => break,
                Ok(None) => {}
                Err(error) => return error,
            }
        }
    }
    panic!("no pass failed");
}

#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn a_rank_that_fails_ends_the_engine_in_time_and_another_one_opens() {
    end_in_time(None, &[0, 1, 7]);
}

/// Ranks that fail after each of `numbers` exchanges.
pub fn end_in_time(transport: Option<Transport>, numbers: &[u32]) {
    let mut wanted = None;
    for launching in [Launching::Graphs, Launching::Eager] {
        for (rank, fault) in
            [(1, Fault::Silence), (1, Fault::Error), (0, Fault::Error), (1, Fault::Panic), (0, Fault::Panic)]
        {
            for &exchanges in numbers {
                within(Duration::from_secs(60), || {
                    let what = format!("{launching:?}, rank {rank}, {fault:?} after {exchanges}");
                    let config = EngineOptions { launching, max_num_seqs: Some(2), ..config(NAME) };
                    let (mut runner, limits) = together_by(transport, NAME, &config);
                    let found = greedy(&mut runner, &limits, &PROMPT, 3).0;
                    assert_eq!(*wanted.get_or_insert(found.clone()), found, "{what}");
                    runner.first().peers().unwrap().inject(rank, exchanges, fault);
                    let begun = Instant::now();
                    let failed = catch_unwind(AssertUnwindSafe(|| run_until_it_fails(&mut runner, &config)));
                    let took = begun.elapsed();
                    match (fault, failed) {
                        (Fault::Silence, Ok(Error::RankLost)) => assert!(took >= PATIENCE, "{what}: after {took:?}"),
                        (Fault::Error, Ok(Error::Device { .. })) | (Fault::Panic, Err(_)) => {}
                        (_, Ok(error)) => panic!("{what}: {error}"),
                        (_, Err(_)) => panic!("{what}: a panic"),
                    }
                    assert!(took < PATIENCE + Duration::from_secs(3), "{what}: after {took:?}");
                    let begun = Instant::now();
                    drop(runner);
                    assert!(begun.elapsed() < Duration::from_secs(3), "{what}: dropped in {:?}", begun.elapsed());
                });
            }
        }
    }
}

#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn an_engine_goes_with_passes_in_flight() {
    go_with_passes_in_flight(None);
}

pub fn go_with_passes_in_flight(transport: Option<Transport>) {
    for _ in 0..5 {
        within(Duration::from_secs(60), || {
            let config = config(NAME);
            let (mut runner, limits) = together_by(transport, NAME, &config);
            let mut batch = Batch::with_limits(&limits);
            let mut sequence = Sequence::new(&PROMPT, 0..limits.table_width() as u32);
            let pending = sequence.pending();
            sequence.bring(pending, &limits, &mut batch);
            pass(&mut runner, &batch);
            sequence.tokens.push(5);
            for _ in 0..2 {
                batch.clear();
                let pending = sequence.pending();
                sequence.bring(pending, &limits, &mut batch);
                runner.submit(&batch).unwrap();
                sequence.tokens.push(5);
            }
        });
    }
}

#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn devices_that_cannot_serve_are_refused() {
    let source = Source::open(&golden(NAME)).unwrap();
    let refusal = |devices: &[usize]| {
        let config = EngineOptions { tensor_parallel_size: devices.len(), ..config(NAME) };
        runner::cuda::open_ranks(&source, &config, devices, &mut |_| ControlFlow::Continue(())).err().expect("refused")
    };
    let error = refusal(&[0, 0]);
    assert!(matches!(&error, Error::Option { field: "device_indices", .. }), "{error}");
    let error = refusal(&[0, 99]);
    assert!(matches!(&error, Error::Option { field: "tensor_parallel_size", .. }), "{error}");
    // More ranks than query heads.
    let error = refusal(&(0..200).collect::<Vec<_>>());
    assert!(matches!(&error, Error::Option { field: "tensor_parallel_size", .. }), "{error}");
    // And an ordinary engine still opens.
    let (mut runner, limits) = together(NAME, &config(NAME));
    greedy(&mut runner, &limits, &PROMPT, 2);
}

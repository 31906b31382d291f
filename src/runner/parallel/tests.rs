//! Ranks that fail, at every place where one can.

use super::*;
use crate::checkpoint::Checkpoint;
use crate::options::EngineOptions;
use crate::{Device, Switches};
use compute::cpu::{Cpu, Isa, Team};
use formats::DType;
use formats::source::Source;
use std::path::Path;
use std::sync::atomic::AtomicUsize;

const RANKS: usize = 2;

/// What goes wrong on rank 1.
#[derive(Clone, Copy)]
enum Fault {
    None,
    /// It cannot be opened.
    Refused,
    /// Opening it panics.
    OpenPanics,
    /// A pass panics after this number of exchanges.
    PassPanics(usize),
}

fn config() -> EngineOptions {
    EngineOptions {
        device: Device::Cpu,
        dtype: Some(DType::F32),
        num_threads: Some(RANKS),
        max_model_len: Some(64),
        max_num_seqs: Some(4),
        max_batched_tokens: Some(16),
        kv_block_size: Some(4),
        kv_cache_bytes: Some(1 << 20),
        tensor_parallel_size: RANKS,
        ..EngineOptions::new("")
    }
}

fn open(fault: Fault, progress: &mut dyn FnMut(f32) -> ControlFlow<()>) -> Result<ParallelRunner<Cpu>> {
    let source =
        Source::open(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/qwen2-f16-old-keys"))).unwrap();
    let checkpoint = Checkpoint::open::<Cpu>(&source, &config()).unwrap();
    let members = Mutex::new(Team::of(RANKS).into_iter().map(Some).collect::<Vec<_>>());
    let open = move |rank: &Rank, progress: &mut dyn FnMut(f32) -> ControlFlow<()>| {
        let mut member = members.lock()[rank.index].take().unwrap();
        match fault {
            Fault::Refused if rank.index == 1 => return Err(Error::Unsupported { what: "a refusal".to_owned() }),
            Fault::OpenPanics if rank.index == 1 => panic!("a panic on opening"),
            Fault::PassPanics(sound) if rank.index == 1 => member.sound_exchanges = Some(AtomicUsize::new(sound)),
            _ => {}
        }
        let cpu = Cpu::in_team(1, Isa::Portable, member, None).unwrap();
        PassRunner::open(
            &Switches::NONE,
            checkpoint.clone(),
            &config(),
            Device::Cpu,
            rank,
            |_, _, _, _| Ok(cpu),
            progress,
        )
    };
    ParallelRunner::open(Rank::of(RANKS), open, progress).map(|(runner, _)| runner)
}

fn go_on(_: f32) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// A row of three tokens, of which the last is sampled.
fn batch() -> Batch {
    let mut batch = Batch { table_width: 1, row_starts: vec![0, 3], ..Batch::default() };
    (batch.token_ids, batch.positions, batch.slots) = (vec![1, 2, 3], vec![0, 1, 2], vec![0, 1, 2]);
    (batch.context_lens, batch.block_tables) = (vec![3], vec![0]);
    (batch.sampled_tokens, batch.sampling) = (vec![2], vec![compute::batch::Sampling::GREEDY]);
    batch
}

/// The message of a panic.
fn message(panic: Box<dyn std::any::Any + Send>) -> String {
    panic.downcast::<&str>().map_or_else(|panic| *panic.downcast::<String>().unwrap(), |said| said.to_string())
}

#[test]
fn a_rank_that_cannot_be_opened_ends_the_open_with_its_error() {
    match open(Fault::Refused, &mut go_on) {
        Err(Error::Unsupported { what }) => assert_eq!(what, "a refusal"),
        _ => panic!("another error"),
    }
    let panicked = catch_unwind(AssertUnwindSafe(|| open(Fault::OpenPanics, &mut go_on).err()));
    assert_eq!(message(panicked.expect_err("it goes on here")), "a panic on opening");
}

#[test]
fn a_panic_of_a_rank_at_any_exchange_goes_on_at_the_caller() {
    let mut passes = 0;
    for sound in 0.. {
        let mut runner = open(Fault::PassPanics(sound), &mut go_on).unwrap();
        let batch = batch();
        let computed = catch_unwind(AssertUnwindSafe(|| {
            runner.submit(&batch)?;
            runner.collect(None).map(|sampled| sampled.unwrap().tokens.len())
        }));
        match computed {
            Ok(tokens) => {
                // The pass has fewer exchanges. The next one notices.
                assert_eq!((tokens.unwrap(), sound), (1, passes));
                break;
            }
            Err(panic) => assert_eq!(message(panic), "an exchange that a test forbids"),
        }
        passes += 1;
    }
    assert!(passes > 8, "a pass of two layers has four exchanges in each, and one of the logits: {passes}");
    let mut runner = open(Fault::None, &mut go_on).unwrap();
    runner.submit(&batch()).unwrap();
    assert!(runner.collect(None).unwrap().is_some(), "another engine is not affected");
}

#[test]
fn blocks_are_not_waited_for_when_their_rank_has_failed() {
    let mut runner = open(Fault::PassPanics(0), &mut go_on).unwrap();
    runner.submit(&batch()).unwrap();
    let mut bytes = vec![0; runner.kv_layout.block_bytes()];
    let read = catch_unwind(AssertUnwindSafe(|| runner.read_blocks(&[0], &mut bytes)));
    assert_eq!(message(read.expect_err("it goes on here")), "an exchange that a test forbids");
}

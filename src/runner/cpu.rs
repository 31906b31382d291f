//! The CPU as a device: threads of this process.

use super::checkpoint::Checkpoint;
use super::meeting::Seat;
use super::parallel::ParallelRunner;
use super::pass_runner::PassRunner;
use super::source::Source;
use super::{Device, Loaded, ModelInfo, RunnerConfig};
use crate::backend::cpu::{Cpu, Isa, Node, Nodes, Team};
use crate::backend::lock::Mutex;
use crate::error::Result;
use crate::model::shard::{Sharding, Sums};
use std::num::NonZero;
use std::ops::ControlFlow;
use std::thread::available_parallelism;

/// Loads the model of `source` for as many threads as `config` says.
pub fn load(
    source: &Source,
    config: &RunnerConfig,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<Loaded> {
    let threads = config.threads.unwrap_or_else(|| available_parallelism().map_or(1, NonZero::get));
    if config.ranks > 1 {
        let (runner, info) = open_ranks(source, config, threads, Isa::detect()?, progress)?;
        return Ok(Loaded { runner: Box::new(runner), info });
    }
    let (runner, info) = open(source, config, Cpu::new(threads, Isa::detect()?), progress)?;
    Ok(Loaded { runner: Box::new(runner), info })
}

/// Loads the model of `source` for a CPU that is there already.
pub fn open(
    source: &Source,
    config: &RunnerConfig,
    cpu: Cpu,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(PassRunner<Cpu>, ModelInfo)> {
    let checkpoint = Checkpoint::open::<Cpu>(source, config)?;
    PassRunner::open(checkpoint, config, Device::Cpu, &Seat::alone(), |_, _, _| Ok(cpu), progress)
}

/// Loads the model of `source` for `config.ranks` ranks that share `threads` threads.
pub fn open_ranks(
    source: &Source,
    config: &RunnerConfig,
    threads: usize,
    isa: Isa,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(ParallelRunner<Cpu>, ModelInfo)> {
    let checkpoint = Checkpoint::open::<Cpu>(source, config)?;
    // Refused before any thread is started.
    Sharding::new(&checkpoint.model.spec, 0, config.ranks, Sums::Gathered)?;
    let nodes = Nodes::detect();
    let members: Vec<_> = Team::of(config.ranks).into_iter().map(Some).collect();
    let (members, seats, config) = (Mutex::new(members), Seat::of(config.ranks), config.clone());
    let open = move |seat: &Seat, progress: &mut dyn FnMut(f32) -> ControlFlow<()>| {
        let member = members.lock()[seat.rank].take().expect("each rank opens once");
        let node = nodes.of_rank(seat.rank, seat.ranks);
        // The first rank has the caller's thread, which stays where its host wants it.
        if seat.rank > 0 {
            node.into_iter().for_each(Node::bind_this_thread);
        }
        let cpu = Cpu::in_team(threads_of(seat.rank, seat.ranks, threads), isa, member, node);
        PassRunner::open(checkpoint.clone(), &config, Device::Cpu, seat, |_, _, _| Ok(cpu), progress)
    };
    ParallelRunner::open(seats, open, progress)
}

/// Threads of a rank: all have as many, but for the remainder, and at least one.
fn threads_of(rank: usize, ranks: usize, threads: usize) -> usize {
    (threads / ranks + usize::from(rank < threads % ranks)).max(1)
}

//! The CPU as a device: threads of this process.

use super::checkpoint::Checkpoint;
use super::follower::Follower;
use super::options::EngineOptions;
use super::parallel::ParallelRunner;
use super::pass_runner::PassRunner;
use super::peers::{Connection, Group, Peers};
use super::rank_barrier::Rank;
use super::rendezvous::{self, Processes};
use super::{Device, Loaded, ModelInfo, Switches};
use base::error::Result;
use compute::cpu::{Activations, Cpu, Isa, Links, Node, Nodes, Team};
use formats::DType;
use formats::source::Source;
use model::shard::{Sharding, Sums};
use os::lock::Mutex;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::thread::available_parallelism;

/// Loads the model of `source` for as many threads as `config` says.
pub fn load(
    switches: &Switches,
    source: &Source,
    config: &EngineOptions,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<Loaded> {
    let (threads, isa) = (threads(config), Isa::detect()?);
    if config.tensor_parallel_size > 1 {
        let (runner, info) = open_ranks_with(switches, source, config, threads, isa, progress)?;
        return Ok(Loaded { runner: Box::new(runner), info });
    }
    let (runner, info) = open(source, config, Cpu::open(threads, isa)?, progress)?;
    Ok(Loaded { runner: Box::new(runner), info })
}

/// Loads the ranks of this process, which follows another one.
pub fn follow(
    source: &Source,
    config: &EngineOptions,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(Follower, ModelInfo)> {
    let (runner, info) = open_ranks(source, config, threads(config), Isa::detect()?, progress)?;
    Ok((runner.into_follower(&info)?, info))
}

fn threads(config: &EngineOptions) -> usize {
    config.num_threads.unwrap_or_else(cores)
}

fn cores() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

/// Threads that compute beside a device. One more waits for that.
pub fn threads_beside(config: &EngineOptions) -> usize {
    config.num_threads.unwrap_or_else(|| cores().saturating_sub(1).max(1))
}

/// A caller who asks for f32 gets f32: the types of the weights in the files do not change that.
fn activations(config: &EngineOptions) -> Activations {
    if config.dtype == Some(DType::F32) { Activations::F32 } else { Activations::Rounded }
}

/// Loads the model of `source` for a CPU that is there already.
pub fn open(
    source: &Source,
    config: &EngineOptions,
    cpu: Cpu,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(PassRunner<Cpu>, ModelInfo)> {
    open_with(&Switches::NONE, source, config, cpu, progress)
}

/// [`open`] with what a test sets.
#[doc(hidden)]
pub fn open_with(
    switches: &Switches,
    source: &Source,
    config: &EngineOptions,
    cpu: Cpu,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(PassRunner<Cpu>, ModelInfo)> {
    let checkpoint = Checkpoint::open::<Cpu>(source, config)?;
    let (rank, cpu) = (Rank::alone(), cpu.with_activations(activations(config)));
    PassRunner::open(switches, checkpoint, config, Device::Cpu, &rank, |_, _, _, _| Ok(cpu), progress)
}

/// Loads the model of `source` for the ranks of this process, of `config.tensor_parallel_size`, which share `threads` threads.
pub fn open_ranks(
    source: &Source,
    config: &EngineOptions,
    threads: usize,
    isa: Isa,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(ParallelRunner<Cpu>, ModelInfo)> {
    open_ranks_with(&Switches::NONE, source, config, threads, isa, progress)
}

/// [`open_ranks`] with what a test sets.
#[doc(hidden)]
pub fn open_ranks_with(
    switches: &Switches,
    source: &Source,
    config: &EngineOptions,
    threads: usize,
    isa: Isa,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(ParallelRunner<Cpu>, ModelInfo)> {
    let checkpoint = Checkpoint::open::<Cpu>(source, config)?;
    // Refused before any thread is started, and before any process is waited for.
    let spec = &checkpoint.model.spec;
    Sharding::new(spec, 0, config.tensor_parallel_size, Sums::Gathered)?.with_experts(spec, config.expert_division)?;
    let nodes = Nodes::detect();
    let group = config.processes.as_ref().map(|processes| meet(processes, config, &checkpoint, isa, progress));
    let group = group.transpose()?;
    let (members, own) = match group {
        None => (Team::of(config.tensor_parallel_size), Rank::of(config.tensor_parallel_size)),
        Some(group) => {
            let world = group.peers().world();
            let members = Team::spanning(world.ranks, world.ranks_of(world.process), links(group.peers()));
            (members, Rank::spanning(group))
        }
    };
    let members: Vec<_> = members.into_iter().map(Some).collect();
    let (members, config, switches) = (Mutex::new(members), config.clone(), *switches);
    let open = move |rank: &Rank, progress: &mut dyn FnMut(f32) -> ControlFlow<()>| {
        let (at, ranks) = (rank.index - rank.own().start, rank.own().len());
        let member = members.lock()[at].take().expect("each rank opens once");
        let node = nodes.of_rank(at, ranks);
        // The first rank has the caller's thread, which stays where its host wants it.
        if !rank.is_first() {
            node.into_iter().for_each(Node::bind_this_thread);
        }
        let cpu = Cpu::in_team(threads_of(at, ranks, threads), isa, member, node)?;
        let cpu = cpu.with_activations(activations(&config));
        PassRunner::open(&switches, checkpoint.clone(), &config, Device::Cpu, rank, |_, _, _, _| Ok(cpu), progress)
    };
    ParallelRunner::open(own, open, progress)
}

/// Connects this process with the others, which must have the same model and options, and processors that compute the same bits.
fn meet(
    processes: &Processes,
    config: &EngineOptions,
    checkpoint: &Checkpoint,
    isa: Isa,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<Group> {
    let facts = checkpoint
        .facts(processes.count, config)
        .with("device", "the CPU")
        .with("instruction set (NVLLM_CPU_ISA)", isa.name());
    let (timeout, max_bytes) = (config.peer_timeout(), checkpoint.frame_bytes());
    let met = rendezvous::meet(
        processes,
        config.tensor_parallel_size,
        timeout,
        &facts,
        max_bytes,
        &|| Ok(Vec::new()),
        progress,
    );
    met.map(|(group, _)| group)
}

/// The streams to other processes on which numbers travel.
fn links(peers: &Peers) -> Links {
    let data = |connection: &Connection| connection.data.clone();
    match peers.world().process {
        0 => {
            let ranks = |connection: &Connection| peers.world().ranks_of(connection.process);
            Links::Followers(peers.connections().iter().map(|other| (ranks(other), data(other))).collect())
        }
        _ => Links::Leader(data(&peers.connections()[0])),
    }
}

/// Threads of a rank: all have as many, but for the remainder, and at least one.
fn threads_of(rank: usize, ranks: usize, threads: usize) -> usize {
    (threads / ranks + usize::from(rank < threads % ranks)).max(1)
}

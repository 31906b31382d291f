//! An NVIDIA GPU as a device.

use super::checkpoint::Checkpoint;
use super::explain::Machine;
use super::follower::Follower;
use super::options::EngineOptions;
use super::parallel::ParallelRunner;
use super::pass_runner::PassRunner;
use super::peers::Group;
use super::rank_barrier::Rank;
use super::rendezvous::{self, Processes};
use super::{Device, Launching, Loaded, ModelInfo, Switches, cpu};
use base::error::{Error, Result};
use compute::cpu::{Activations, Isa};
pub use compute::cuda::are_built;
use compute::cuda::explain::Target;
use compute::cuda::gpus::GpuModel;
use compute::cuda::{
    ContextGuard, Cuda, FreeBefore, HostThreads, Member, Peers, Transport, UniqueId, check_ordinal, check_rotary,
    device_count, nccl_version,
};
use compute::explain::{Explained, Pass, Work};
use compute::{KvGroups, KvLayout, Rounding};
use formats::DType;
use formats::source::Source;
use model::shard::{Sharding, Sums};
use model::spec::DecoderSpec;
use os::lock::Mutex;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// How much longer than [`peer_timeout`](EngineOptions::peer_timeout) an exchange with another process may stand still, at most. A process
/// that is missed by its signs of life has a name, which an exchange does not know.
const LONGER: Duration = Duration::from_secs(2);

/// Refuses a device that the driver does not show.
pub fn check(index: usize) -> Result<()> {
    check_ordinal(index)
}

/// Loads the model of `source` onto the devices that `config` names, or else onto device `index` and those after it, one for each rank.
pub fn load(
    switches: &Switches,
    source: &Source,
    config: &EngineOptions,
    index: usize,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<Loaded> {
    let devices = devices(config, index);
    if devices.len() > 1 || config.processes.is_some() {
        let (runner, info) = open_ranks_by(None, switches, source, config, &devices, progress)?;
        return Ok(Loaded { runner: Box::new(runner), info });
    }
    let (runner, info) = open_with(switches, source, config, devices[0], progress)?;
    Ok(Loaded { runner: Box::new(runner), info })
}

/// Loads the ranks of this process, which follows another one.
pub fn follow(
    source: &Source,
    config: &EngineOptions,
    index: usize,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(Follower, ModelInfo)> {
    let (runner, info) = open_ranks(source, config, &devices(config, index), progress)?;
    Ok((runner.into_follower(&info)?, info))
}

/// The GPU of each rank of this process.
fn devices(config: &EngineOptions, index: usize) -> Vec<usize> {
    let here = config.tensor_parallel_size / config.processes.as_ref().map_or(1, |processes| processes.count);
    match config.devices.is_empty() {
        true => (index..index + here).collect(),
        false => config.devices.clone(),
    }
}

/// As [`load`] on one device, with the runner's own type.
pub fn open(
    source: &Source,
    config: &EngineOptions,
    index: usize,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(PassRunner<Cuda>, ModelInfo)> {
    open_with(&Switches::NONE, source, config, index, progress)
}

/// [`open`] with what a test sets.
#[doc(hidden)]
pub fn open_with(
    switches: &Switches,
    source: &Source,
    config: &EngineOptions,
    index: usize,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(PassRunner<Cuda>, ModelInfo)> {
    check_ordinal(index)?;
    let _context = ContextGuard::push()?;
    let free = free_before(config, index)?;
    let checkpoint = Checkpoint::open::<Cuda>(source, config)?;
    open_rank(switches, checkpoint, config, index, RankDevice { free, member: None }, &Rank::alone(), progress)
}

/// Loads the model of `source` for one rank on each of `devices`, which are all ranks, or those of this process. A rank that waits for
/// another one longer than [`peer_timeout`](EngineOptions::peer_timeout) gives up.
///
/// # Errors
///
/// Also where a device does not exist or is named twice, and where the devices differ or cannot reach each other.
pub fn open_ranks(
    source: &Source,
    config: &EngineOptions,
    devices: &[usize],
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(ParallelRunner<Cuda>, ModelInfo)> {
    open_ranks_by(None, &Switches::NONE, source, config, devices, progress)
}

/// As [`open_ranks`], with what a test or a bench sets; `transport` is the way of exchange.
#[doc(hidden)]
pub fn open_ranks_by(
    transport: Option<Transport>,
    switches: &Switches,
    source: &Source,
    config: &EngineOptions,
    devices: &[usize],
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(ParallelRunner<Cuda>, ModelInfo)> {
    let ranks = config.processes.as_ref().map_or(devices.len(), |_| config.tensor_parallel_size);
    check_devices(devices, ranks)?;
    let _context = ContextGuard::push()?;
    let free = devices.iter().map(|&device| free_before(config, device)).collect::<Result<Vec<_>>>()?;
    let (members, processes) = match &config.processes {
        None => (None, None),
        // Opened before anything is loaded, and before any process is waited for.
        Some(processes) => {
            let patience = config.peer_timeout() + config.peer_timeout().min(LONGER);
            let members = Peers::open_some(devices, processes.index * devices.len(), ranks, patience)?;
            (Some(members), Some(processes))
        }
    };
    let checkpoint = Checkpoint::open::<Cuda>(source, config)?;
    // Refused before any thread is started.
    let spec = &checkpoint.model.spec;
    Sharding::new(spec, 0, ranks, Sums::Gathered)?.with_experts(spec, config.expert_division)?;
    let (members, own) = match members.zip(processes) {
        None => (Peers::open_by(transport, devices, config.peer_timeout())?, Rank::of(ranks)),
        Some((members, processes)) => {
            let group = meet(processes, config, &checkpoint, &members[0], progress)?;
            (members, Rank::spanning(group))
        }
    };
    let places = free.into_iter().zip(members).map(|(free, member)| Some(RankDevice { free, member: Some(member) }));
    let (places, config, switches) = (Mutex::new(places.collect::<Vec<_>>()), config.clone(), *switches);
    let devices = devices.to_vec();
    let open = move |rank: &Rank, progress: &mut dyn FnMut(f32) -> ControlFlow<()>| {
        let at = rank.index - rank.own().start;
        let place = places.lock()[at].take().expect("each rank opens once");
        open_rank(&switches, checkpoint.clone(), &config, devices[at], place, rank, progress)
    };
    ParallelRunner::open(own, open, progress)
}

/// Connects this process with the others, which must have the same model and options, and GPUs of one kind. `member` is one of its ranks.
fn meet(
    processes: &Processes,
    config: &EngineOptions,
    checkpoint: &Checkpoint,
    member: &Member,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<Group> {
    let is_set = |is_set: bool| u32::from(is_set);
    let facts = checkpoint
        .facts(processes.count, config)
        .with("device", "CUDA")
        .with("compute capability", member.capability())
        .with("NCCL release", nccl_version())
        .with("batch_invariant", is_set(config.rounding == Rounding::BatchInvariant))
        .with("enforce_eager", is_set(config.launching == Launching::Eager));
    let (timeout, max_bytes) = (config.peer_timeout(), checkpoint.frame_bytes());
    // Made when all are there, because it stands for a thread of NCCL that waits for them.
    let greet = || UniqueId::new().map(|id| id.as_bytes().to_vec());
    let (group, greeting) =
        rendezvous::meet(processes, config.tensor_parallel_size, timeout, &facts, max_bytes, &greet, progress)?;
    let Some(id) = UniqueId::from_bytes(&greeting) else {
        let reason = format!("welcomed the others with {} bytes, which are no name of NCCL", greeting.len());
        group.peers().fail(0, &reason);
        return Err(Error::Peer { process: 0, reason });
    };
    member.peers().find_by(id);
    // Whoever has lost another process does not wait for its GPUs.
    let team = member.peers().team().clone();
    group.peers().at_end(move || team.break_up());
    Ok(group)
}

/// Refuses a GPU that a rank of another process has, too. All ranks call it at the same time.
fn check_own(member: &Member, index: usize, rank: &Rank) -> Result<()> {
    let gpu = member.gpu()?;
    let ranks_with_it = rank.all_gather(gpu)?.into_iter().filter(|other| *other == gpu).count();
    match ranks_with_it {
        1 => Ok(()),
        _ => Err(Error::Option {
            field: "device_indices",
            value: format!("GPU {index}, which another process of the engine has, too"),
            wanted: "a GPU of its own for each rank",
        }),
    }
}

/// Refuses devices that the driver does not show. Devices that are missing are no reason to compute on the CPU: a caller who asks for
/// several ranks on a machine with a GPU would not expect it.
fn check_devices(devices: &[usize], ranks: usize) -> Result<()> {
    match device_count()? {
        0 => check_ordinal(devices[0]),
        shown if devices.iter().all(|&device| device < shown) => Ok(()),
        shown => Err(Error::Option {
            field: "tensor_parallel_size",
            value: format!("{ranks}, for which GPUs {devices:?} are needed, and the driver shows {shown}"),
            wanted: "at most the number of GPUs",
        }),
    }
}

/// Where a rank computes.
struct RankDevice {
    /// What was free on its GPU before that was opened.
    free: Option<FreeBefore>,
    /// Its connection with the others, if there are others.
    member: Option<Member>,
}

/// What is free on a GPU that is about to be opened. Measured only for a budget, because the library that knows it takes its time to start.
fn free_before(config: &EngineOptions, index: usize) -> Result<Option<FreeBefore>> {
    match config.gpu_memory_bytes {
        Some(_) => FreeBefore::measure(index),
        None => Ok(None),
    }
}

fn open_rank(
    switches: &Switches,
    checkpoint: Checkpoint,
    config: &EngineOptions,
    index: usize,
    RankDevice { free, member }: RankDevice,
    rank: &Rank,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(PassRunner<Cuda>, ModelInfo)> {
    let (dtype, tokens) = (checkpoint.weights.dtype(), checkpoint.limits.tokens);
    let open_backend = |spec: &DecoderSpec, sharding: &Sharding, kv_layout: &KvLayout, groups: &KvGroups| {
        let mut ropes = spec.ropes.iter().enumerate();
        ropes.try_for_each(|(index, rope)| check_rotary(rope.rotary(spec.rope_head_dim(index))))?;
        if let Some(member) = member.as_ref().filter(|_| rank.group().is_some()) {
            check_own(member, index, rank)?;
        }
        let mut cuda = match member {
            Some(member) => Cuda::open_member(member, dtype)?,
            None => Cuda::open(index, dtype)?,
        };
        cuda.check_cache(kv_layout)?;
        let kinds = kv_layout.kinds();
        let layers = spec.attentions().zip(spec.kv_layers()).map(|(attention, kv_layer)| {
            let heads = sharding.heads(attention.scores.heads, attention.kv_heads).own_heads().len();
            let shape = kv_layout.shape_at(groups.places[kv_layer]);
            let kind = kinds.iter().position(|kind| *kind == shape).expect("kinds are those of layers");
            (heads, kind, attention.scores.window)
        });
        let layers: Vec<_> = layers.collect();
        layers.iter().try_for_each(|&(heads, kind, _)| cuda.check_heads(&kinds[kind], heads))?;
        cuda.set_free_before(free);
        cuda.set_rounding(config.rounding);
        cuda.set_layer_windows(layers.iter().map(|&(_, kind, window)| (kind, window)));
        if let Some(&(heads, ..)) = layers.first().filter(|(heads, ..)| layers.iter().all(|layer| layer.0 == *heads)) {
            cuda.set_query_heads(heads);
        }
        cuda.set_shared_prefixes(switches.shared_prefixes);
        // Where a processor has none, only the experts that are on the host are missed.
        if let Ok(isa) = Isa::detect() {
            let (threads, activations) = (cpu::threads_beside(config), Activations::Rounded);
            cuda.set_host_threads(HostThreads { threads, isa, activations, tokens });
        }
        // Nobody reads what the passes give that run while the engine opens.
        cuda.set_host_idle(true);
        Ok(cuda)
    };
    let device = Device::Cuda { index };
    let (mut runner, info) = PassRunner::open(switches, checkpoint, config, device, rank, open_backend, progress)?;
    runner.backend.settle();
    runner.backend.set_host_idle(false);
    Ok((runner, info))
}

/// The GPU `name` without its driver, and a model as it would be opened on it.
pub(super) fn machine(name: &str, source: &Source, options: &EngineOptions) -> Result<(Checkpoint, Machine)> {
    let gpu = gpu(name)?;
    let checkpoint = Checkpoint::open::<Cuda>(source, options)?;
    let dtype = checkpoint.weights.dtype();
    let (bandwidth, flops) = (gpu.bandwidth, gpu.flops);
    let title = format!(
        "{} ({} multiprocessors, {} GB/s, {} TFLOP/s), {dtype:?}, with cuBLASLt",
        gpu.title,
        gpu.processors(),
        bandwidth / 1_000_000_000,
        flops / 1_000_000_000_000
    );
    Ok((checkpoint, Machine { title, speed: Some([bandwidth, flops]), dtype }))
}

/// How work is computed on the GPU `name`.
pub(super) fn explain(
    name: &str,
    work: &[Work],
    pass: &Pass,
    dtype: DType,
    rounding: Rounding,
) -> Result<Vec<Explained>> {
    compute::cuda::explain::explain(work, pass, Target { model: gpu(name)?, dtype, rounding })
}

fn gpu(name: &str) -> Result<&'static GpuModel> {
    GpuModel::find(name).ok_or_else(|| Error::Option {
        field: "gpu",
        value: format!("{name:.40}"),
        wanted: "h100, h200, a100 or rtx4090",
    })
}

impl PassRunner<Cuda> {
    /// Columns of the logits.
    pub fn vocab_size(&self) -> usize {
        self.logits().cols()
    }

    /// Kernels that a decode pass of one row launches up to its logits. `None` where there are no graphs.
    pub fn launches_of_decode(&self) -> Result<Option<usize>> {
        self.graphs.smallest().map(|graph| graph.launches()).transpose()
    }

    /// What the ranks share, for tests. `None` where there is one rank.
    #[doc(hidden)]
    pub fn peers(&self) -> Option<Arc<Peers>> {
        self.backend.peers()
    }

    /// A copy of [`logits`](PassRunner::logits). `[samples, vocab]`
    pub fn read_logits(&self) -> Result<Vec<f32>> {
        self.backend.read(self.logits())
    }
}

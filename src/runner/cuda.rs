//! An NVIDIA GPU as a device.

use super::checkpoint::Checkpoint;
use super::meeting::Seat;
use super::parallel::ParallelRunner;
use super::pass_runner::PassRunner;
use super::source::Source;
use super::{Device, Loaded, ModelInfo, RunnerConfig};
use crate::backend::KvShape;
use crate::backend::cuda::{ContextGuard, Cuda, Member, Peers, Transport, check_ordinal, check_rotary, device_count};
use crate::backend::lock::Mutex;
use crate::error::{Error, Result};
use crate::model::shard::{Sharding, Sums};
use crate::model::spec::DecoderSpec;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Refuses a device that the driver does not show.
pub fn check(index: usize) -> Result<()> {
    check_ordinal(index)
}

/// Loads the model of `source` onto the devices that `config` names, or else onto device `index` and those after it, one for each rank.
pub fn load(
    source: &Source,
    config: &RunnerConfig,
    index: usize,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<Loaded> {
    let named = Some(config.devices.clone()).filter(|devices| !devices.is_empty());
    let devices = named.unwrap_or_else(|| (index..index + config.ranks).collect());
    if devices.len() > 1 {
        let (runner, info) = open_ranks(source, config, &devices, progress)?;
        return Ok(Loaded { runner: Box::new(runner), info });
    }
    let (runner, info) = open(source, config, devices[0], progress)?;
    Ok(Loaded { runner: Box::new(runner), info })
}

/// As [`load`] on one device, with the runner's own type.
pub fn open(
    source: &Source,
    config: &RunnerConfig,
    index: usize,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(PassRunner<Cuda>, ModelInfo)> {
    check_ordinal(index)?;
    let _context = ContextGuard::push()?;
    let checkpoint = Checkpoint::open::<Cuda>(source, config)?;
    open_rank(checkpoint, config, index, None, &Seat::alone(), progress)
}

/// Loads the model of `source` for one rank on each of `devices`. A rank that waits for another one longer than
/// [`peer_timeout`](RunnerConfig::peer_timeout) gives up.
///
/// # Errors
///
/// Also where a device does not exist or is named twice, and where the devices differ or cannot reach each other.
pub fn open_ranks(
    source: &Source,
    config: &RunnerConfig,
    devices: &[usize],
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(ParallelRunner<Cuda>, ModelInfo)> {
    open_ranks_by(None, source, config, devices, progress)
}

/// As [`open_ranks`], by the way of exchange that a test names.
#[doc(hidden)]
pub fn open_ranks_by(
    transport: Option<Transport>,
    source: &Source,
    config: &RunnerConfig,
    devices: &[usize],
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(ParallelRunner<Cuda>, ModelInfo)> {
    check_devices(devices)?;
    let _context = ContextGuard::push()?;
    let checkpoint = Checkpoint::open::<Cuda>(source, config)?;
    // Refused before any thread is started.
    Sharding::new(&checkpoint.model.spec, 0, devices.len(), Sums::Gathered)?;
    let members: Vec<_> = Peers::open_by(transport, devices, config.peer_timeout)?.into_iter().map(Some).collect();
    let (members, seats, config) = (Mutex::new(members), Seat::of(devices.len()), config.clone());
    let devices = devices.to_vec();
    let open = move |seat: &Seat, progress: &mut dyn FnMut(f32) -> ControlFlow<()>| {
        let member = members.lock()[seat.rank].take().expect("each rank opens once");
        open_rank(checkpoint.clone(), &config, devices[seat.rank], Some(member), seat, progress)
    };
    ParallelRunner::open(seats, open, progress)
}

/// Refuses devices that the driver does not show. Devices that are missing are no reason to compute on the CPU: a caller who asks for
/// several ranks on a machine with a GPU would not expect it.
fn check_devices(devices: &[usize]) -> Result<()> {
    match device_count()? {
        0 => check_ordinal(devices[0]),
        shown if devices.iter().all(|&device| device < shown) => Ok(()),
        shown => Err(Error::Option {
            field: "tensor_parallel_size",
            value: format!("{}, for which GPUs {devices:?} are needed, and the driver shows {shown}", devices.len()),
            wanted: "at most the number of GPUs",
        }),
    }
}

fn open_rank(
    checkpoint: Checkpoint,
    config: &RunnerConfig,
    index: usize,
    member: Option<Member>,
    seat: &Seat,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(PassRunner<Cuda>, ModelInfo)> {
    let open_backend = |spec: &DecoderSpec, sharding: &Sharding, kv_shape: &KvShape| {
        spec.ropes.iter().try_for_each(|rope| check_rotary(rope.rotary(kv_shape.head_dim)))?;
        let mut cuda = match member {
            Some(member) => Cuda::open_member(member, kv_shape.dtype)?,
            None => Cuda::open(index, kv_shape.dtype)?,
        };
        Cuda::check_heads(kv_shape, sharding.own_heads().len())?;
        cuda.set_rounding(config.rounding);
        cuda.set_windows(spec.windows());
        Ok(cuda)
    };
    let device = Device::Cuda { index };
    let (mut runner, info) = PassRunner::open(checkpoint, config, device, seat, open_backend, progress)?;
    runner.backend.settle();
    Ok((runner, info))
}

impl PassRunner<Cuda> {
    /// Columns of the logits.
    pub fn vocab_size(&self) -> usize {
        self.logits().cols()
    }

    /// Kernels that a decode pass of one row launches up to its logits. `None` where there are no graphs.
    pub fn launches_of_decode(&self) -> Result<Option<usize>> {
        self.graphs.by_rows.first().map(|(_, graph)| graph.launches()).transpose()
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

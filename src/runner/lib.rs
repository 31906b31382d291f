//! Turns a [`Batch`] into tokens on a device.
//!
//! One [`PassRunner`](pass_runner::PassRunner) drives every device: what differs between devices lies behind
//! [`Backend`](compute::Backend). A device has a variant of [`Device`] and a module here that opens its backend.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod checkpoint;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "no_cuda.rs"]
mod cuda;
pub mod explain;
pub mod follower;
mod frame;
mod graphs;
mod host_experts;
mod leader;
mod memory;
pub mod options;
pub mod parallel;
pub mod pass_runner;
mod peers;
mod rank_barrier;
mod rendezvous;
pub mod wire;

use base::TokenId;
use base::error::{Error, Result};
use base::log::{Level, log};
use compute::batch::{Batch, BatchLimits, BlockId, Sampled, StateSlot};
pub use compute::{KvCacheDtype, Rounding, SharedPrefixes};
use compute::{KvLayout, Windowed};
use follower::Follower;
pub use formats::source;
use formats::{DType, WeightFormat};
pub use host_experts::HostExperts;
use model::description::Description;
pub use model::pooled::{Pool, Pooled, ScoreCurve};
pub use model::quantization::{OnLoad, quantize_folder};
pub use model::shard::{ExpertDivision, Sums};
use model::spec::HeadWeights;
pub use model::weight_summary::WeightPart;
use model::weights::Weights;
use options::EngineOptions;
pub use os::Loading;
pub use peers::{Due, Peers};
pub use rendezvous::Processes;
use source::Source;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Whether this build has kernels for NVIDIA GPUs.
pub fn has_kernels_for_gpus() -> bool {
    cuda::are_built()
}

/// Computes batches, one after another.
pub trait Runner: Send {
    /// Begins a pass over `batch`, of which the runner copies what it needs. Passes are computed in the order in which they
    /// are submitted.
    ///
    /// # Errors
    ///
    /// [`Error::Device`], and [`Error::OutOfMemory`] where the batch needs memory that could not be reserved when the runner
    /// was opened. After an error here or in [`collect`](Self::collect), the runner cannot be used any more.
    ///
    /// # Panics
    ///
    /// If [`depth`](Self::depth) passes are in flight already.
    fn submit(&mut self, batch: &Batch) -> Result<()>;

    /// Works on the oldest pass in flight and returns what its batch asked for.
    ///
    /// `None`: the deadline came first, and the next call continues. Without a deadline the pass runs to its end. Each call
    /// computes at least one stage, so that a deadline in the past cannot stop the work for ever.
    fn collect(&mut self, deadline: Option<Instant>) -> Result<Option<Sampled<'_>>>;

    /// Passes that may be in flight at once. With more than one, a batch may refer to tokens of the pass before it by
    /// [`FROM_PREVIOUS`](compute::batch::FROM_PREVIOUS).
    fn depth(&self) -> usize;

    /// Stages of a pass. It can be suspended and resumed between any two of them.
    fn stages(&self) -> usize;

    /// How long the device worked on the pass that was collected last.
    fn pass_time(&self) -> Duration;

    /// Copies the keys and values of blocks that are full and of no pass that has not been collected.
    /// `[blocks][layer][kv_head]`, each as [`KvFormat`](compute::KvFormat) says; the runner of a follower has the heads of its own ranks alone, rank after
    /// rank in this form.
    fn read_blocks(&mut self, blocks: &[BlockId], to: &mut [u8]) -> Result<()>;

    /// Sets the keys and values of blocks that nobody reads, after what the passes in flight may write to them. The same form.
    fn write_blocks(&mut self, blocks: &[BlockId], from: &[u8]) -> Result<()>;

    /// Copies the recurrent state in a slot that no pass writes that has not been collected. `[StateInfo::bytes]`
    fn read_state(&mut self, slot: StateSlot, to: &mut [u8]) -> Result<()> {
        let _ = (slot, to);
        unreachable!("the model keeps no recurrent state");
    }

    /// Sets the recurrent state in a slot that nobody reads, after what the passes in flight may write to it. The same form.
    fn write_state(&mut self, slot: StateSlot, from: &[u8]) -> Result<()> {
        let _ = (slot, from);
        unreachable!("the model keeps no recurrent state");
    }

    /// Gives memory of the blocks that `unused` names back to the system, once the passes in flight do not read them any more; returns the
    /// bytes. 0: nothing has changed. Otherwise all these blocks have lost what they held. `[blocks]`
    ///
    /// A runner whose cache keeps its memory has nothing to do here and in the next two functions.
    fn release_blocks(&mut self, unused: &[bool]) -> Result<u64> {
        let _ = unused;
        Ok(0)
    }

    /// Gets memory for blocks that [`release_blocks`](Self::release_blocks) named, before a batch does. What they hold is not defined.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]: there is none for all of them now. Nothing has changed, and the runner can be used on.
    fn restore_blocks(&mut self, blocks: &[BlockId]) -> Result<()> {
        let _ = blocks;
        Ok(())
    }

    /// The other processes that compute the same model, if there are any.
    fn peers(&self) -> Option<&Arc<Peers>> {
        None
    }

    /// How often each expert of a layer was chosen since the runner was opened; none for a layer without experts. `None`: the runner does not count.
    ///
    /// # Errors
    ///
    /// [`Error::Device`].
    ///
    /// # Panics
    ///
    /// If there is no such layer.
    fn expert_counts(&self, layer: usize) -> Result<Option<Vec<u64>>> {
        let _ = layer;
        Ok(None)
    }

    /// Bytes of the KV cache that have memory, in all ranks.
    fn kv_bytes_mapped(&self) -> u64 {
        0
    }
}

/// What tests and benches set that no option does.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Switches {
    /// How sums are divided among ranks; `None` as the device does it by itself.
    pub sums: Option<Sums>,
    /// When a GPU reads the keys of a prefix once for several rows.
    pub shared_prefixes: SharedPrefixes,
    /// The layer from which on a CPU computes experts as it does for a GPU; `None` is none.
    pub host_experts_from: Option<usize>,
}

impl Switches {
    /// As an engine is opened.
    pub const NONE: Switches =
        Switches { sums: None, shared_prefixes: SharedPrefixes::WhereItPays, host_experts_from: None };
}

/// Where to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// An NVIDIA GPU, if there is one that can run the model, else the CPU.
    Auto {
        /// Which GPU of those that the driver shows.
        index: usize,
    },
    /// Threads of this process.
    Cpu,
    /// An NVIDIA GPU.
    Cuda {
        /// Which of those that the driver shows.
        index: usize,
    },
}

/// How decode passes reach a GPU. Without effect on the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launching {
    /// As graphs that are captured when the runner opens or when a batch of their size first comes.
    Graphs,
    /// Kernel by kernel.
    Eager,
}

/// How much memory the KV cache may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KvBudget {
    /// This many bytes.
    Bytes(u64),
    /// What this share of the device's memory leaves after the weights, but no more than all sequences can use. On the CPU it
    /// is a share of the free memory; on a GPU of all of it, less what others hold.
    MemoryShare(f32),
    /// The device's default share.
    Default,
}

/// A runner that is ready, and what it turned out to be.
pub struct Loaded {
    /// The runner.
    pub runner: Box<dyn Runner>,
    /// The model and its sizes.
    pub info: ModelInfo,
}

/// The recurrent states of a model. All are 0 where it keeps none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateInfo {
    /// States that there is memory for: one per sequence that runs, and checkpoints of cached prefixes.
    pub slots: usize,
    /// Bytes of one as a rank alone would have it. Several ranks have all of it together, and some of its numbers more than once.
    pub bytes: usize,
    /// Tokens after which a state is kept as a checkpoint, besides the one at the end of a prompt.
    pub interval: usize,
}

/// Facts about a loaded model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelInfo {
    /// Where it computes: not [`Device::Auto`].
    pub device: Device,
    /// Tokens that the embedding table knows.
    pub vocab_size: usize,
    /// Layers.
    pub num_layers: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Whether it has a head. Without one it makes embeddings and generates nothing.
    pub has_head: bool,
    /// The token that begins a text, by config.json.
    pub bos_token: Option<TokenId>,
    /// Tokens that end an answer, by config.json; generation_config.json overrides them.
    pub eos_tokens: Vec<TokenId>,
    /// Weights, tied ones counted once.
    pub num_parameters: u64,
    /// Bytes of these.
    pub weight_bytes: u64,
    /// Bytes of the KV cache.
    pub kv_cache_bytes: u64,
    /// Blocks of the KV cache.
    pub num_kv_blocks: usize,
    /// Bytes of its GPU that the rank with most of them took, or set aside for graphs, everything included; 0 on the CPU.
    pub gpu_bytes: u64,
    /// The largest batch, by which all buffers are sized.
    pub limits: BatchLimits,
    /// Form of the KV cache, that of all ranks together.
    pub kv_layout: KvLayout,
    /// Its recurrent states.
    pub states: StateInfo,
    /// The experts that the host computes beside a GPU.
    pub host_experts: HostExperts,
    /// How many ranks compute the model together.
    pub num_ranks: usize,
    /// Which of the processes that compute it this is.
    pub process: usize,
    /// Tokens that a token attends to at most, itself included, if every layer has a sliding window: that of the widest one.
    pub window: Option<usize>,
    /// The block tables of layers with a window, where others have none and keep their blocks.
    pub windowed: Option<Windowed>,
    /// Stands for the decoder and its weights: models that differ have different ones.
    pub fingerprint: u64,
    /// What becomes of the states of a text.
    pub pooled: Pooled,
    /// Numbers of an embedding, or scores of a text.
    pub pooled_width: usize,
    /// The coding of most bytes of each part, and all bytes of it in all ranks, in the order of [`WeightPart::ALL`].
    pub parts: [(Option<WeightFormat>, u64); 4],
}

impl ModelInfo {
    fn new(
        model: &Description,
        weights: &Weights,
        kv_layout: &KvLayout,
        blocks: usize,
        limits: BatchLimits,
        device: Device,
    ) -> ModelInfo {
        let spec = &model.spec;
        ModelInfo {
            device,
            vocab_size: spec.vocab,
            num_layers: spec.layers.len(),
            hidden_size: spec.hidden,
            has_head: spec.head.weights != HeadWeights::Missing,
            bos_token: model.bos_token,
            eos_tokens: model.eos_tokens.clone(),
            num_parameters: weights.parameters(),
            weight_bytes: weights.bytes(),
            kv_cache_bytes: blocks as u64 * kv_layout.block_bytes() as u64,
            num_kv_blocks: blocks,
            gpu_bytes: 0,
            limits,
            kv_layout: kv_layout.clone(),
            states: StateInfo::default(),
            host_experts: HostExperts::default(),
            num_ranks: 1,
            process: 0,
            window: spec.window(),
            windowed: spec.kv_groups(&limits).windowed,
            fingerprint: weights.fingerprint(&model.spec),
            pooled: model.pooled.clone(),
            pooled_width: model.pooled.width(spec),
            parts: WeightPart::ALL.map(|part| (weights.summary().coding(part), weights.summary().bytes(part))),
        }
    }

    /// Blocks that a sequence of `tokens` tokens needs, if it runs alone.
    pub fn blocks_of(&self, tokens: usize) -> usize {
        blocks_of(tokens, self.limits.block_size, self.windowed)
    }

    /// Tokens of a sequence that runs alone in all blocks.
    pub fn pool_tokens(&self) -> usize {
        let (blocks, block_size) = (self.num_kv_blocks, self.limits.block_size);
        let own = self.windowed.map_or(blocks, |windowed| {
            let window = windowed.blocks(1, block_size);
            (blocks / (1 + windowed.tables)).max(blocks.saturating_sub(windowed.tables * window))
        });
        own * block_size
    }

    /// The coding of most bytes of a part; `None` where the model has no such part.
    pub fn coding(&self, part: WeightPart) -> Option<WeightFormat> {
        self.parts[part as usize].0
    }

    /// Bytes of a part, in all ranks.
    pub fn bytes_of(&self, part: WeightPart) -> u64 {
        self.parts[part as usize].1
    }
}

/// Blocks that a sequence of `tokens` tokens needs at once, if it runs alone.
pub fn blocks_of(tokens: usize, block_size: usize, windowed: Option<Windowed>) -> usize {
    let blocks = tokens.div_ceil(block_size);
    blocks + windowed.map_or(0, |windowed| windowed.tables * blocks.min(windowed.blocks(1, block_size)))
}

/// Whether this build and this machine have a device of that kind, so that a device that is missing is refused before anything is loaded.
pub fn check_device(device: Device) -> Result<()> {
    match device {
        Device::Cuda { index } => cuda::check(index),
        Device::Auto { .. } | Device::Cpu => Ok(()),
    }
}

/// Loads the model of `source`, telling `progress` a fraction from 0 to 1 as it goes; `Break` cancels the load.
pub fn load(
    source: &Source,
    options: &EngineOptions,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<Loaded> {
    load_with(&Switches::NONE, source, options, progress)
}

/// [`load`] with what a test or a bench sets.
#[doc(hidden)]
pub fn load_with(
    switches: &Switches,
    source: &Source,
    config: &EngineOptions,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<Loaded> {
    let device = match config.processes {
        Some(_) => device_of_processes(config),
        None => config.device,
    };
    match device {
        Device::Cpu => cpu::load(switches, source, config, progress),
        Device::Cuda { index } => cuda::load(switches, source, config, index, progress),
        Device::Auto { .. } if config.dtype == Some(DType::F32) => cpu::load(switches, source, config, progress),
        Device::Auto { index } => match cuda::load(switches, source, config, index, progress) {
            Err(reason @ (Error::Unsupported { .. } | Error::UnsupportedModel { .. })) => {
                log(Level::Info, format_args!("computing on the CPU: {reason}"));
                cpu::load(switches, source, config, progress)
            }
            loaded => loaded,
        },
    }
}

/// Loads what this process computes of the model of `source`, which another process schedules.
///
/// # Errors
///
/// As [`load`].
pub fn follow(
    source: &Source,
    config: &EngineOptions,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(Follower, ModelInfo)> {
    match device_of_processes(config) {
        Device::Cuda { index } => cuda::follow(source, config, index, progress),
        Device::Cpu | Device::Auto { .. } => cpu::follow(source, config, progress),
    }
}

/// Where the ranks of one of several processes compute: a GPU if there is one. What turns out later does not change it, because the other
/// processes would not follow.
fn device_of_processes(config: &EngineOptions) -> Device {
    match config.device {
        Device::Auto { index } if config.dtype != Some(DType::F32) && cuda::check(index).is_ok() => {
            Device::Cuda { index }
        }
        Device::Auto { .. } => Device::Cpu,
        named => named,
    }
}

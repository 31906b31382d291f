//! Turns a [`Batch`] into tokens on one or several devices.

#[cfg(nvllm_cuda)]
pub mod cuda;
#[cfg(nvllm_cuda)]
mod graphs;
mod memory;
pub mod single;

use crate::backend::cpu::{Cpu, Isa};
use crate::backend::{DType, KvShape};
pub use crate::backend::{Loading, Rounding};
use crate::batch::{Batch, BatchLimits, BlockId, Sampled, TokenId};
use crate::error::{Error, Result};
use crate::log::{Level, log};
use crate::model::description::Description;
pub use crate::model::source;
use crate::model::weights::Weights;
use single::SingleRunner;
use source::Source;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// Computes batches, one after another.
pub trait Runner: Send {
    /// Begins a pass over `batch`, of which the runner copies what it needs. Passes are computed in the order in which they
    /// are submitted.
    ///
    /// # Panics
    ///
    /// If [`depth`](Self::depth) passes are in flight already.
    fn submit(&mut self, batch: &Batch) -> Result<()>;

    /// Works on the oldest pass in flight and returns what its batch asked for.
    ///
    /// `None` means that the deadline came first; call again to go on. Without a deadline the pass runs to its end. At
    /// least one stage is made in a call, so that a deadline in the past cannot stop the work for ever.
    fn collect(&mut self, deadline: Option<Instant>) -> Result<Option<Sampled<'_>>>;

    /// Passes that may be in flight at once. With more than one, a batch may refer to tokens of the pass before it by
    /// [`FROM_PREVIOUS`](crate::batch::FROM_PREVIOUS).
    fn depth(&self) -> usize;

    /// Stages of a pass: it can be left and taken up again between any two of them.
    fn stages(&self) -> usize;

    /// How long the device worked on the pass that was collected last.
    fn pass_time(&self) -> Duration;

    /// Copies the keys and values of blocks that are full and of no pass that has not been collected.
    /// `[blocks][layer][kv_head][K|V][block_size][head_dim]`
    fn read_blocks(&mut self, blocks: &[BlockId], to: &mut [u8]) -> Result<()>;

    /// Sets the keys and values of blocks that nobody reads, after what the passes in flight may write to them. The same form.
    fn write_blocks(&mut self, blocks: &[BlockId], from: &[u8]) -> Result<()>;
}

/// What a runner is opened with, resolved and checked by the engine.
pub struct RunnerConfig {
    /// Which device computes.
    pub device: Device,
    /// Number type of weights and KV cache; `None` keeps the file's.
    pub dtype: Option<DType>,
    /// Threads that compute, the caller's included; `None` takes all cores.
    pub threads: Option<usize>,
    /// Tokens of one sequence; `None` takes the model's maximum.
    pub max_model_len: Option<usize>,
    /// The largest batch; `None` takes the device's default.
    pub max_num_seqs: Option<usize>,
    /// New tokens in one pass; `None` takes the device's default.
    pub max_batched_tokens: Option<usize>,
    /// Tokens of a KV block; `None` takes the device's default.
    pub kv_block_size: Option<usize>,
    /// Memory for the KV cache.
    pub kv_budget: KvBudget,
    /// How decode passes reach a GPU.
    pub launching: Launching,
    /// What a row's logits may depend on.
    pub rounding: Rounding,
    /// How the weights come into memory.
    pub loading: Loading,
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

/// How decode passes reach a GPU. The CPU knows no difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launching {
    /// As graphs that are captured when the runner opens.
    Graphs,
    /// Kernel by kernel.
    Eager,
}

/// How much memory the KV cache may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KvBudget {
    /// So many bytes.
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
    /// The largest batch, by which all buffers are sized.
    pub limits: BatchLimits,
    /// Form of the KV cache.
    pub kv_shape: KvShape,
    /// Stands for the decoder and its weights: models that differ have different ones.
    pub fingerprint: u64,
}

impl ModelInfo {
    fn new(
        model: &Description,
        weights: &Weights,
        kv_shape: &KvShape,
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
            bos_token: model.bos_token,
            eos_tokens: model.eos_tokens.clone(),
            num_parameters: weights.parameters(),
            weight_bytes: weights.bytes(),
            kv_cache_bytes: blocks as u64 * kv_shape.block_bytes() as u64,
            num_kv_blocks: blocks,
            limits,
            kv_shape: *kv_shape,
            // The debug format names every field of the spec, also those that a later version adds.
            fingerprint: weights.fingerprint(&format!("{spec:?}")),
        }
    }
}

/// Whether this build and this machine have a device of that kind, so that a wish that cannot be met is refused at once.
pub fn check_device(device: Device) -> Result<()> {
    match device {
        Device::Cuda { index } => check_cuda(index),
        Device::Auto { .. } | Device::Cpu => Ok(()),
    }
}

#[cfg(nvllm_cuda)]
fn check_cuda(index: usize) -> Result<()> {
    crate::backend::cuda::check_ordinal(index)
}

#[cfg(not(nvllm_cuda))]
fn check_cuda(index: usize) -> Result<()> {
    Err(not_in_this_build(index))
}

#[cfg(not(nvllm_cuda))]
fn not_in_this_build(index: usize) -> Error {
    let what = format!("CUDA device {index} is not in this build, which was made without nvcc: use device CPU or AUTO");
    Error::Unsupported { what }
}

/// Loads the model of `source`, telling `progress` a fraction from 0 to 1 as it goes; `Break` cancels the load.
pub fn load(
    source: &Source,
    config: &RunnerConfig,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<Loaded> {
    match config.device {
        Device::Cpu => load_on_cpu(source, config, progress),
        Device::Cuda { index } => load_on_cuda(source, config, index, progress),
        Device::Auto { .. } if config.dtype == Some(DType::F32) => load_on_cpu(source, config, progress),
        Device::Auto { index } => match load_on_cuda(source, config, index, progress) {
            Err(reason @ (Error::Unsupported { .. } | Error::UnsupportedModel { .. })) => {
                log(Level::Info, format_args!("computing on the CPU: {reason}"));
                load_on_cpu(source, config, progress)
            }
            loaded => loaded,
        },
    }
}

fn load_on_cpu(
    source: &Source,
    config: &RunnerConfig,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<Loaded> {
    let threads = config.threads.unwrap_or_else(|| available_parallelism().map_or(1, NonZero::get));
    let (runner, info) = SingleRunner::open(source, config, Cpu::new(threads, Isa::detect()?), progress)?;
    Ok(Loaded { runner: Box::new(runner), info })
}

#[cfg(nvllm_cuda)]
fn load_on_cuda(
    source: &Source,
    config: &RunnerConfig,
    index: usize,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<Loaded> {
    let (runner, info) = cuda::CudaRunner::open(source, config, index, progress)?;
    Ok(Loaded { runner: Box::new(runner), info })
}

#[cfg(not(nvllm_cuda))]
fn load_on_cuda(
    _source: &Source,
    _config: &RunnerConfig,
    index: usize,
    _progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<Loaded> {
    Err(not_in_this_build(index))
}

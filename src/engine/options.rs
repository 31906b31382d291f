//! What an engine is opened with.

use crate::backend::DType;
use std::path::PathBuf;

/// What the caller asked for. `None` is "the default".
#[derive(Clone, Debug, PartialEq)]
pub struct EngineOptions {
    /// The model folder.
    pub model_path: PathBuf,
    /// Where to compute.
    pub device: DeviceChoice,
    /// Number type of weights and KV cache; `None` keeps the file's.
    pub dtype: Option<DType>,
    /// Threads that compute, the caller's included; `None` takes all cores.
    pub num_threads: Option<usize>,
    /// Tokens of one sequence, prompt and completion; `None` takes the model's maximum.
    pub max_model_len: Option<usize>,
    /// Sequences that run at once.
    pub max_num_seqs: Option<usize>,
    /// New tokens in one pass.
    pub max_batched_tokens: Option<usize>,
    /// Requests that may wait; `None` is no limit.
    pub max_queue: Option<usize>,
    /// Tokens of a KV block.
    pub kv_block_size: Option<usize>,
    /// Whether blocks are shared between requests with the same prefix.
    pub prefix_cache: PrefixCache,
    /// Bytes for the KV cache; `None` goes by `memory_utilization`.
    pub kv_cache_bytes: Option<u64>,
    /// Share of the free memory this engine may hold; `None` takes the device's default.
    pub memory_utilization: Option<f32>,
    /// Seed of requests that bring none; `None` draws one.
    pub seed: Option<u64>,
}

impl EngineOptions {
    /// The defaults for a model folder.
    pub fn new(model_path: impl Into<PathBuf>) -> EngineOptions {
        EngineOptions {
            model_path: model_path.into(),
            device: DeviceChoice::Cpu,
            dtype: None,
            num_threads: None,
            max_model_len: None,
            max_num_seqs: None,
            max_batched_tokens: None,
            max_queue: None,
            kv_block_size: None,
            prefix_cache: PrefixCache::On,
            kv_cache_bytes: None,
            memory_utilization: None,
            seed: None,
        }
    }
}

/// Where to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The best there is.
    Auto,
    /// Threads of this process.
    Cpu,
    /// An NVIDIA GPU.
    Cuda {
        /// Which one.
        index: usize,
    },
}

/// Whether blocks are shared between requests with the same prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixCache {
    /// A prompt takes over the blocks of an earlier one as far as the tokens are equal.
    On,
    /// Every prompt is computed whole.
    Off,
}

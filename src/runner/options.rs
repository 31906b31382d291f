//! What is an engine opened with, and how is it checked?
//!
//! Invariant: the bounds are those of `src/base/limits.rs`, and the runner gets no option that is outside of them: an engine checks its options first.

use crate::{Device, KvBudget, Launching, Processes};
use base::error::{Error, Result};
use base::limits::{BLOCK_TOKENS, MODEL_LEN, PASS_TOKENS, RANKS, RUNNING_SEQUENCES, THREADS};
use compute::{KvCacheDtype, Rounding};
use formats::DType;
use model::quantization::OnLoad;
use model::shard::ExpertDivision;
use os::{Files, Loading};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The options of an engine. `None` is the default.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineOptions {
    /// The model: a folder, or a GGUF file.
    pub model_path: PathBuf,
    /// Where `model_path` is.
    pub files: Files,
    /// The device that computes.
    pub device: Device,
    /// Data type of the weights, and of the KV cache where `kv_cache_dtype` does not say otherwise; `None` keeps that of the files.
    pub dtype: Option<DType>,
    /// Number of threads that compute, the caller's included; `None` is one per core.
    pub num_threads: Option<usize>,
    /// Maximum length of a sequence in tokens, prompt and completion together; `None` is the model's maximum, but at most
    /// [`UNASKED_MODEL_LEN`](base::limits::UNASKED_MODEL_LEN).
    pub max_model_len: Option<usize>,
    /// Maximum number of sequences that run at once.
    pub max_num_seqs: Option<usize>,
    /// Maximum number of new tokens per pass.
    pub max_batched_tokens: Option<usize>,
    /// Maximum number of waiting requests, each of their completions counted; `None` is the limit of the library.
    pub max_queue: Option<usize>,
    /// Tokens per KV block.
    pub kv_block_size: Option<usize>,
    /// Whether blocks are shared between requests with the same prefix.
    pub prefix_cache: PrefixCache,
    /// Size of the KV cache in bytes; `None` is determined by `memory_utilization`.
    pub kv_cache_bytes: Option<u64>,
    /// Fraction of the device's memory (on the CPU: of the free memory) that the engine may use; `None` is the device's default.
    pub memory_utilization: Option<f32>,
    /// How decode passes are launched on a GPU.
    pub launching: Launching,
    /// Whether a row's logits may depend on the batch.
    pub rounding: Rounding,
    /// Seed of the requests that have none; `None` draws one.
    pub seed: Option<u64>,
    /// How the weights are loaded into memory.
    pub loading: Loading,
    /// Ranks that compute the model together, in all processes.
    pub tensor_parallel_size: usize,
    /// The GPU of each rank of this process. Empty: the device's and those after it.
    pub devices: Vec<usize>,
    /// The processes that compute the model together; `None` is this one alone.
    pub processes: Option<Processes>,
    /// How long another rank or process may be silent; `None` is [`PEER_TIMEOUT`].
    pub peer_timeout: Option<Duration>,
    /// Encoding of keys and values in the KV cache.
    pub kv_cache_dtype: KvCacheDtype,
    /// How the engine quantizes weights that are not quantized yet.
    pub on_load: OnLoad,
    /// Most bytes of a GPU that the engine takes, everything included; `None` is no such limit.
    pub gpu_memory_bytes: Option<u64>,
    /// Layers whose experts stay in the host's memory, where the CPU computes them beside a GPU: the last ones of those that have experts. `None` are as few
    /// as the GPU has no room for.
    pub host_expert_layers: Option<usize>,
    /// Tokens after which a recurrent state is kept for later requests to continue from, besides the one at the end of a prompt; `None` is
    /// [`STATE_INTERVAL`].
    pub state_interval: Option<usize>,
    /// Whether the tokens of each expert are counted.
    pub expert_counting: ExpertCounting,
    /// How several ranks divide the experts of a model.
    pub expert_division: ExpertDivision,
}

/// Tokens between checkpoints of recurrent state, where nobody says otherwise.
pub const STATE_INTERVAL: usize = 1024;

/// How long another rank or process may be silent, where nobody says otherwise.
pub const PEER_TIMEOUT: Duration = Duration::from_secs(10);

impl EngineOptions {
    /// The defaults for a model folder.
    pub fn new(model_path: impl Into<PathBuf>) -> EngineOptions {
        EngineOptions {
            model_path: model_path.into(),
            files: Files::OnDisk,
            device: Device::Auto { index: 0 },
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
            launching: Launching::Graphs,
            rounding: Rounding::Fastest,
            seed: None,
            loading: Loading::Map,
            tensor_parallel_size: 1,
            devices: Vec::new(),
            processes: None,
            peer_timeout: None,
            kv_cache_dtype: KvCacheDtype::Auto,
            on_load: OnLoad::None,
            gpu_memory_bytes: None,
            host_expert_layers: None,
            state_interval: None,
            expert_counting: ExpertCounting::Off,
            expert_division: ExpertDivision::ByWidth,
        }
    }
}

impl From<&str> for EngineOptions {
    fn from(model_path: &str) -> EngineOptions {
        EngineOptions::new(model_path)
    }
}

impl From<&Path> for EngineOptions {
    fn from(model_path: &Path) -> EngineOptions {
        EngineOptions::new(model_path)
    }
}

impl From<PathBuf> for EngineOptions {
    fn from(model_path: PathBuf) -> EngineOptions {
        EngineOptions::new(model_path)
    }
}

impl EngineOptions {
    /// Whether another process schedules what this one computes.
    pub fn follows(&self) -> bool {
        self.processes.as_ref().is_some_and(|processes| processes.index > 0)
    }

    /// Refuses values that no engine can have. What depends on the model is checked when that is loaded.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] names the field.
    pub fn check(&self) -> Result<()> {
        let counts: [(_, _, RangeInclusive<usize>, _); 7] = [
            ("state_checkpoint_interval", self.state_interval, 1..=MODEL_LEN, "from 1 to 268435456, or 0 for 1024"),
            ("num_threads", self.num_threads, 1..=THREADS, "from 1 to 4096, or 0 for all cores"),
            // One token of prompt and one of completion.
            ("max_model_len", self.max_model_len, 2..=MODEL_LEN, "from 2 to 268435456, or 0 for the model's own"),
            ("max_num_seqs", self.max_num_seqs, 1..=RUNNING_SEQUENCES, "from 1 to 65536, or 0 for the default"),
            ("max_batched_tokens", self.max_batched_tokens, 1..=PASS_TOKENS, "from 1 to 1048576, or 0 for the default"),
            ("max_queue", self.max_queue, 1..=usize::MAX, "at least 1, or 0 for no limit"),
            ("kv_block_size", self.kv_block_size, 1..=BLOCK_TOKENS, "a power of two up to 1024, or 0 for the default"),
        ];
        for (field, value, range, wanted) in counts {
            if let Some(value) = value.filter(|value| !range.contains(value)) {
                return Err(refusal(field, value, wanted));
            }
        }
        if let Some(size) = self.kv_block_size.filter(|size| !size.is_power_of_two()) {
            return Err(refusal("kv_block_size", size, "a power of two up to 1024, or 0 for the default"));
        }
        if self.kv_cache_bytes == Some(0) {
            return Err(refusal("kv_cache_bytes", 0, "at least the bytes of one block"));
        }
        if let Some(share) = self.memory_utilization.filter(|share| !(*share > 0.0 && *share <= 1.0)) {
            return Err(refusal("memory_utilization", share, "above 0 and at most 1"));
        }
        if let Some(layers) = self.host_expert_layers.filter(|&layers| layers > 0) {
            const FIELD: &str = "host_expert_layers";
            let ranks = self.tensor_parallel_size;
            if self.device == Device::Cpu {
                return Err(refusal(FIELD, layers, "0 or -1 on the CPU, which computes all experts"));
            }
            if ranks > 1 {
                return Err(refusal(FIELD, format!("{layers}, with {ranks} ranks"), "0 or -1 with several ranks"));
            }
        }
        self.check_ranks()
    }

    /// Tokens between checkpoints of recurrent state.
    pub fn state_interval(&self) -> usize {
        self.state_interval.unwrap_or(STATE_INTERVAL)
    }

    /// Memory for the KV cache.
    pub fn kv_budget(&self) -> KvBudget {
        match (self.kv_cache_bytes, self.memory_utilization) {
            (Some(bytes), _) => KvBudget::Bytes(bytes),
            (None, Some(share)) => KvBudget::MemoryShare(share),
            (None, None) => KvBudget::Default,
        }
    }

    /// How long another rank or process may be silent.
    pub fn peer_timeout(&self) -> Duration {
        self.peer_timeout.unwrap_or(PEER_TIMEOUT)
    }

    /// Checks who computes. The number of query heads is checked when the model is known.
    fn check_ranks(&self) -> Result<()> {
        let (ranks, devices) = (self.tensor_parallel_size, &self.devices);
        if !(1..=RANKS).contains(&ranks) {
            return Err(refusal("tensor_parallel_size", ranks, "from 1 to 1024, or 0 for 1"));
        }
        let here = match &self.processes {
            None => ranks,
            Some(Processes { count, .. }) if ranks % count == 0 => ranks / count,
            Some(Processes { count, .. }) => {
                let found = format!("{ranks}, with {count} processes");
                return Err(refusal("tensor_parallel_size", found, "a multiple of num_processes"));
            }
        };
        // Signs of life come several times within it, from threads that may have to wait for a processor.
        let short = self.peer_timeout.filter(|timeout| self.processes.is_some() && timeout.as_millis() < 100);
        if let Some(timeout) = short {
            let wanted = "at least 100 with several processes, or 0 for 10000";
            return Err(refusal("peer_timeout_ms", timeout.as_millis(), wanted));
        }
        if devices.is_empty() {
            return Ok(());
        }
        if self.device == Device::Cpu {
            return Err(refusal("num_device_indices", devices.len(), "0 on the CPU"));
        }
        if devices.len() != here {
            let found = format!("{}, with {here} ranks", devices.len());
            return Err(refusal("num_device_indices", found, "the number of ranks of this process, or 0"));
        }
        match devices.iter().enumerate().find(|(at, device)| devices[..*at].contains(device)) {
            Some((_, twice)) => {
                Err(refusal("device_indices", format!("{twice} twice"), "a GPU of its own for each rank"))
            }
            None => Ok(()),
        }
    }
}

fn refusal(field: &'static str, value: impl ToString, wanted: &'static str) -> Error {
    Error::Option { field, value: value.to_string(), wanted }
}

/// Whether the tokens of each expert of a model are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertCounting {
    /// They are not.
    Off,
    /// They are, by one more kernel per layer on a GPU.
    On,
}

/// Whether blocks are shared between requests with the same prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixCache {
    /// A prompt uses the blocks of an earlier one as far as the tokens are equal.
    On,
    /// Every prompt is computed in full.
    Off,
}

#[cfg(test)]
mod tests {
    use super::*;
    use os::socket::Address;

    #[test]
    fn the_defaults_are_accepted_and_leave_sizes_to_the_runner() {
        let options = EngineOptions::new("model");
        options.check().unwrap();
        assert_eq!((options.device, options.kv_budget()), (Device::Auto { index: 0 }, KvBudget::Default));
        assert_eq!((options.num_threads, options.max_num_seqs, options.kv_block_size), (None, None, None));
    }

    #[test]
    fn a_budget_in_bytes_comes_before_a_share() {
        let mut options = EngineOptions::new("model");
        (options.kv_cache_bytes, options.memory_utilization) = (Some(4096), Some(0.9));
        assert_eq!(options.kv_budget(), KvBudget::Bytes(4096));
    }

    fn processes(count: usize) -> Option<Processes> {
        let rendezvous = Address::parse("rendezvous", "unix:/tmp/rendezvous").unwrap();
        Some(Processes { count, index: 0, rendezvous })
    }

    #[test]
    fn each_absurd_value_is_refused_by_its_name() {
        type Spoil = fn(&mut EngineOptions);
        const CASES: &[(&str, Spoil)] = &[
            ("num_threads is 5000, but must be from 1 to 4096", |o| o.num_threads = Some(5000)),
            ("num_threads is 0, but", |o| o.num_threads = Some(0)),
            ("max_model_len is 1, but must be from 2", |o| o.max_model_len = Some(1)),
            ("max_num_seqs is 65537, but", |o| o.max_num_seqs = Some(65537)),
            ("max_batched_tokens is 4294967295, but", |o| o.max_batched_tokens = Some(u32::MAX as usize)),
            ("max_queue is 0, but", |o| o.max_queue = Some(0)),
            ("kv_block_size is 48, but must be a power of two", |o| o.kv_block_size = Some(48)),
            ("kv_block_size is 2048, but", |o| o.kv_block_size = Some(2048)),
            ("kv_cache_bytes is 0, but", |o| o.kv_cache_bytes = Some(0)),
            ("memory_utilization is 0, but", |o| o.memory_utilization = Some(0.0)),
            ("memory_utilization is 1.5, but", |o| o.memory_utilization = Some(1.5)),
            ("memory_utilization is NaN, but", |o| o.memory_utilization = Some(f32::NAN)),
            ("host_expert_layers is 3, but must be 0 or -1 on the CPU", |o| {
                (o.device, o.host_expert_layers) = (Device::Cpu, Some(3));
            }),
            ("host_expert_layers is 3, with 2 ranks, but must be 0 or -1", |o| {
                (o.tensor_parallel_size, o.host_expert_layers) = (2, Some(3));
            }),
            ("tensor_parallel_size is 0, but must be from 1 to 1024", |o| o.tensor_parallel_size = 0),
            ("tensor_parallel_size is 1025, but", |o| o.tensor_parallel_size = 1025),
            ("tensor_parallel_size is 3, with 2 processes, but must be a multiple of num_processes", |o| {
                (o.tensor_parallel_size, o.processes) = (3, processes(2));
            }),
            ("peer_timeout_ms is 99, but must be at least 100 with several processes", |o| {
                (o.tensor_parallel_size, o.processes) = (2, processes(2));
                o.peer_timeout = Some(Duration::from_millis(99));
            }),
            ("num_device_indices is 4, with 2 ranks, but must be the number of ranks", |o| {
                (o.tensor_parallel_size, o.processes, o.devices) = (4, processes(2), vec![0, 1, 2, 3]);
            }),
            ("num_device_indices is 1, but must be 0 on the CPU", |o| (o.device, o.devices) = (Device::Cpu, vec![0])),
            ("num_device_indices is 2, with 1 ranks, but must be the number of ranks", |o| o.devices = vec![0, 1]),
            ("device_indices is 3 twice, but must be a GPU of its own", |o| {
                (o.tensor_parallel_size, o.devices) = (3, vec![3, 1, 3]);
            }),
        ];
        for (message, spoil) in CASES {
            let mut options = EngineOptions::new("model");
            spoil(&mut options);
            let error = options.check().expect_err(message).to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}

//! How, on which devices and in which processes a model is computed: options of every command that opens an engine.

use crate::numbers::{self, Indices};
use clap::{Args, ValueEnum};

const ENGINE: &str = "Engine options";
const PROCESSES: &str = "Several processes";

#[derive(Args, Debug, Default)]
pub struct EngineOptions {
    /// Where the model is computed; default: a GPU if there is one that the library can use
    #[arg(long, global = true, value_name = "DEVICE", help_heading = ENGINE, hide_short_help = true)]
    pub device: Option<Device>,
    /// GPUs of the ranks of this process
    #[arg(long, global = true, value_name = "I,J,...", help_heading = ENGINE, hide_short_help = true)]
    #[arg(allow_hyphen_values = true)]
    pub devices: Option<Indices>,
    /// CPU threads that compute; default: one per core
    #[arg(long, global = true, value_name = "N", help_heading = ENGINE, hide_short_help = true)]
    #[arg(value_parser = numbers::count)]
    pub threads: Option<u32>,
    /// Data type of the weights; default: that of the model's files
    #[arg(long, global = true, value_name = "TYPE", help_heading = ENGINE, hide_short_help = true)]
    pub dtype: Option<Dtype>,
    /// How weights that are not quantized yet are quantized
    #[arg(long, global = true, value_name = "BITS", help_heading = ENGINE, hide_short_help = true)]
    pub quantization: Option<Quantization>,
    /// How keys and values are stored
    #[arg(long, global = true, value_name = "TYPE", help_heading = ENGINE, hide_short_help = true)]
    pub kv_cache_dtype: Option<KvCacheDtype>,
    /// Size of the KV cache, such as 512MiB
    #[arg(long, alias = "kv-cache-memory", global = true, value_name = "SIZE", help_heading = ENGINE)]
    #[arg(hide_short_help = true, value_parser = numbers::bytes)]
    pub kv_cache_bytes: Option<u64>,
    /// Fraction of the device's memory that may be used; default: 0.5 of the free memory on the CPU, 0.9 on a GPU
    #[arg(long, global = true, value_name = "FRACTION", help_heading = ENGINE, hide_short_help = true)]
    #[arg(value_parser = numbers::share)]
    pub memory_utilization: Option<f32>,
    /// Memory of each GPU that may be used for everything, such as 20GiB
    #[arg(long, global = true, value_name = "SIZE", help_heading = ENGINE, hide_short_help = true)]
    #[arg(value_parser = numbers::bytes)]
    pub gpu_memory_bytes: Option<u64>,
    /// Layers whose experts stay in host memory, where the CPU computes them; default: as many as the GPU has no room for
    #[arg(long, alias = "n-cpu-moe", global = true, value_name = "N", help_heading = ENGINE, hide_short_help = true)]
    #[arg(value_parser = numbers::whole)]
    pub host_expert_layers: Option<u32>,
    /// Tokens of a sequence, prompt and answer together; default: the model's maximum
    #[arg(long, global = true, value_name = "N", help_heading = ENGINE, hide_short_help = true)]
    #[arg(value_parser = numbers::count)]
    pub max_model_len: Option<u32>,
    /// Sequences that run at once; default: by device
    #[arg(long, global = true, value_name = "N", help_heading = ENGINE, hide_short_help = true)]
    #[arg(value_parser = numbers::count)]
    pub max_num_seqs: Option<u32>,
    /// New tokens per forward pass; default: by device
    #[arg(long, global = true, value_name = "N", help_heading = ENGINE, hide_short_help = true)]
    #[arg(value_parser = numbers::count)]
    pub max_batched_tokens: Option<u32>,
    /// Computes the same bits whatever else is in the batch; slower on a GPU
    #[arg(long, global = true, help_heading = ENGINE, hide_short_help = true)]
    pub batch_invariant: bool,
    /// Prints what the library logs
    #[arg(long, short, global = true, help_heading = ENGINE, hide_short_help = true)]
    pub verbose: bool,

    /// Ranks that compute the model together, in all processes; default: one per process
    #[arg(long, global = true, value_name = "N", help_heading = PROCESSES, hide_short_help = true)]
    #[arg(value_parser = numbers::count)]
    pub tensor_parallel_size: Option<u32>,
    /// Gives each rank some experts whole, in place of a share of each
    #[arg(long, global = true, help_heading = PROCESSES, hide_short_help = true)]
    pub expert_parallel: bool,
    /// Processes that compute the model together, each with the same command line but for --process-index
    #[arg(long, global = true, value_name = "N", help_heading = PROCESSES, hide_short_help = true)]
    #[arg(value_parser = numbers::count)]
    pub num_processes: Option<u32>,
    /// Which of them this is: process 0 runs the command, and the others serve it
    #[arg(long, global = true, value_name = "I", help_heading = PROCESSES, hide_short_help = true)]
    #[arg(value_parser = numbers::whole)]
    pub process_index: Option<u32>,
    /// Where process 0 listens: HOST:PORT or unix:/PATH
    #[arg(long, global = true, value_name = "ADDRESS", help_heading = PROCESSES, hide_short_help = true)]
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub rendezvous: Option<String>,
    /// How long another process may be silent; default: 10000
    #[arg(long, global = true, value_name = "MS", help_heading = PROCESSES, hide_short_help = true)]
    #[arg(value_parser = numbers::whole)]
    pub peer_timeout_ms: Option<u32>,
    /// Takes number and index of the processes from torchrun, Open MPI, Slurm or LeaderWorkerSet
    #[arg(long, global = true, help_heading = PROCESSES, hide_short_help = true)]
    #[arg(conflicts_with_all = ["num_processes", "process_index"])]
    pub distributed: bool,
}

/// The ids by which clap knows these options.
pub(crate) fn ids() -> Vec<String> {
    let declared = EngineOptions::augment_args(clap::Command::new("engine"));
    declared.get_arguments().map(|arg| arg.get_id().to_string()).collect()
}

/// The values are those of nvllm_device.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    Auto = 0,
    Cpu = 1,
    Cuda = 2,
}

/// The values are those of nvllm_dtype.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    Auto = 0,
    F32 = 1,
    F16 = 2,
    Bf16 = 3,
}

/// The values are those of nvllm_kv_cache_dtype.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvCacheDtype {
    Auto = 0,
    Int8 = 1,
}

/// The values are those of nvllm_quantization.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantization {
    None = 0,
    Int8 = 1,
    Int4 = 2,
}

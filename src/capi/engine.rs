//! The engine: a model, its tokenizer, its KV cache, and a scheduler.
#![allow(unsafe_code, non_camel_case_types, clippy::missing_safety_doc)]

use super::guard::{guard, guard_value};
use super::handle::{self, Handle, visit};
use super::memory::{self, OutStruct, Versioned};
use super::refusal::Refusal;
use super::status::nvllm_status_code::{self, NVLLM_OK};
use super::status::{nvllm_error, nvllm_status};
use engine::Opened;
use os::Files;
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::ptr::NonNull;

/// An engine. Created by nvllm_engine_new, destroyed by nvllm_engine_free.
pub struct nvllm_engine(pub(super) Handle);

/// Where an engine computes.
#[repr(C)]
pub enum nvllm_device {
    /// An NVIDIA GPU if the library has kernels for it and for the model and finds a driver, else the CPU.
    NVLLM_DEVICE_AUTO = 0,
    /// Threads of this process.
    NVLLM_DEVICE_CPU = 1,
    /// An NVIDIA GPU.
    NVLLM_DEVICE_CUDA = 2,
}

/// Data types of weights and KV cache.
#[repr(C)]
pub enum nvllm_dtype {
    /// The data type of the model's files.
    NVLLM_DTYPE_AUTO = 0,
    /// IEEE 754, 32 bits.
    NVLLM_DTYPE_F32 = 1,
    /// IEEE 754, 16 bits.
    NVLLM_DTYPE_F16 = 2,
    /// bfloat16: the upper 16 bits of an F32.
    NVLLM_DTYPE_BF16 = 3,
}

/// How keys and values are stored in the KV cache.
#[repr(C)]
pub enum nvllm_kv_cache_dtype {
    /// In the data type of the weights.
    NVLLM_KV_CACHE_AUTO = 0,
    /// As 8-bit integers, with a 16-bit scale per token, layer and KV head for the key, and one for the value. A head of 128 numbers
    /// takes 130 bytes instead of 256. Each number is off by at most 0.4 % of the greatest one that shares its scale.
    NVLLM_KV_CACHE_INT8 = 1,
}

/// How the weights of a model are loaded into memory.
#[repr(C)]
pub enum nvllm_load_mode {
    /// The files are mapped, so that engines and processes share their pages. On the CPU the mapping is used until the
    /// engine is freed, unless dtype asks for a conversion; on CUDA until nvllm_engine_new returns. If another program
    /// writes into a file, the weights change. If a file is truncated, reading a weight beyond its end raises SIGBUS, which
    /// ends the process: replace the files of a model by renaming new ones over them, or choose NVLLM_LOAD_READ.
    /// Windows refuses to write, truncate, replace or delete a file while it is mapped.
    NVLLM_LOAD_MAP = 0,
    /// The files are copied into memory of the library, so that later changes to them have no effect. The copy is not shared
    /// between processes, and the system cannot evict it. NVLLM_ERR_OUT_OF_MEMORY if the weights do not fit into free
    /// memory, NVLLM_ERR_IO if a file is truncated during the copy.
    NVLLM_LOAD_READ = 1,
}

/// How weights that are not quantized yet are quantized while an engine opens.
#[repr(C)]
pub enum nvllm_quantization {
    /// Not at all: weights keep the form of their files.
    NVLLM_QUANTIZATION_NONE = 0,
    /// To 8 bits, with a scale for each group of 128, 64 or 32 weights: the largest that divides the width of a matrix. About half
    /// the bytes of 16-bit weights; completions rarely differ.
    NVLLM_QUANTIZATION_INT8 = 1,
    /// To 4 bits, with a scale for each group of 32 weights. About 0.28 of the bytes of 16-bit weights. Weights are rounded to the
    /// nearest code, so that a file that was quantized with calibration data answers better at the same size.
    NVLLM_QUANTIZATION_INT4 = 2,
}

/// How the weights of a part of a model are held.
#[repr(C)]
pub enum nvllm_coding {
    /// The model has no such part.
    NVLLM_CODING_NONE = 0,
    /// IEEE 754, 32 bits.
    NVLLM_CODING_F32 = 1,
    /// IEEE 754, 16 bits.
    NVLLM_CODING_F16 = 2,
    /// bfloat16.
    NVLLM_CODING_BF16 = 3,
    /// Integers of 8 bits with scales.
    NVLLM_CODING_INT8 = 4,
    /// Integers of 4 bits with scales.
    NVLLM_CODING_INT4 = 5,
    /// E4M3 floating point of 8 bits with scales.
    NVLLM_CODING_FP8 = 6,
    /// E2M1 floating point of 4 bits with scales.
    NVLLM_CODING_FP4 = 7,
    /// A block type of GGUF.
    NVLLM_CODING_Q8_0 = 8,
    /// A block type of GGUF.
    NVLLM_CODING_Q4_0 = 9,
    /// A block type of GGUF.
    NVLLM_CODING_Q4_1 = 10,
    /// A block type of GGUF.
    NVLLM_CODING_Q5_0 = 11,
    /// A block type of GGUF.
    NVLLM_CODING_Q5_1 = 12,
    /// A block type of GGUF.
    NVLLM_CODING_Q4_K = 13,
    /// A block type of GGUF.
    NVLLM_CODING_Q5_K = 14,
    /// A block type of GGUF.
    NVLLM_CODING_Q6_K = 15,
    /// A block type of GGUF.
    NVLLM_CODING_IQ4_NL = 16,
    /// A block type of GGUF.
    NVLLM_CODING_IQ4_XS = 17,
    /// A block type of GGUF.
    NVLLM_CODING_Q2_K = 18,
    /// A block type of GGUF.
    NVLLM_CODING_Q3_K = 19,
    /// A block type of GGUF.
    NVLLM_CODING_MXFP4 = 20,
    /// A block type of GGUF.
    NVLLM_CODING_IQ2_XXS = 21,
    /// A block type of GGUF.
    NVLLM_CODING_IQ2_XS = 22,
    /// A block type of GGUF.
    NVLLM_CODING_IQ2_S = 23,
    /// A block type of GGUF.
    NVLLM_CODING_IQ3_XXS = 24,
    /// A block type of GGUF.
    NVLLM_CODING_IQ3_S = 25,
    /// A block type of GGUF.
    NVLLM_CODING_IQ1_S = 26,
    /// A block type of GGUF.
    NVLLM_CODING_IQ1_M = 27,
    /// A block type of GGUF.
    NVLLM_CODING_TQ1_0 = 28,
    /// A block type of GGUF.
    NVLLM_CODING_TQ2_0 = 29,
}

/// Receives the fraction of the model that is loaded, from 0 to 1. Any return value other than 0 cancels loading.
pub type nvllm_progress_fn = Option<unsafe extern "C" fn(fraction: f32, user_data: *mut c_void) -> i32>;

/// Options of an engine. nvllm_engine_config_init sets the defaults; only model_path has none.
///
/// The files of the model are untrusted data: they are checked and bounded when the engine opens, and only regular
/// files are opened. By default the weights are mapped; load_mode describes the consequences.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nvllm_engine_config {
    /// sizeof(nvllm_engine_config), set by nvllm_engine_config_init.
    pub struct_size: usize,
    /// Path of the model: a folder in the layout of Hugging Face, or a GGUF file, of which the first part is given if it is split.
    /// NUL-terminated UTF-8. Required, except by nvllm_engine_new_from, which reads it as a name among its files.
    ///
    /// Of a GGUF file, a tokenizer.json, tokenizer_config.json, chat_template.jinja or generation_config.json in the same folder is read
    /// instead of what the file says about the same.
    pub model_path: *const c_char,
    /// NVLLM_DEVICE_*: where the engine computes. Default NVLLM_DEVICE_AUTO.
    pub device: i32,
    /// Index of the GPU among those that the driver reports. 0 on the CPU. Default 0.
    pub device_index: i32,
    /// NVLLM_DTYPE_*: data type of the weights, and of the KV cache unless kv_cache_dtype says otherwise. Default NVLLM_DTYPE_AUTO. Quantized weights stay
    /// quantized. On a CPU, NVLLM_DTYPE_F32 computes with their exact values and activations in f32; with any other type, activations are
    /// rounded where the processor multiplies integers or bf16 faster: see docs/performance.md.
    pub dtype: i32,
    /// Number of CPU threads that compute, the calling thread included. Default 0: one per core.
    pub num_threads: u32,
    /// Maximum length of a sequence in tokens, prompt and completion together. Default 0: the model's maximum, but at most
    /// 1048576.
    pub max_model_len: u32,
    /// Maximum number of sequences that run at once; others wait. Default 0: by device.
    pub max_num_seqs: u32,
    /// Maximum number of new tokens per forward pass. Default 0: by device.
    pub max_batched_tokens: u32,
    /// Maximum number of waiting requests, where each of their completions counts. A request whose n is greater can never be
    /// queued, and is refused. Default 0: NVLLM_MAX_QUEUED_COMPLETIONS.
    pub max_queue: u32,
    /// Tokens per KV block: a power of two, at most 1024. Default 0: by device.
    pub kv_block_size: u32,
    /// 0 or 1: whether prompts share the KV blocks of common prefixes. Default 1.
    pub enable_prefix_cache: u32,
    /// Size of the KV cache in bytes, that of all ranks together. Default 0: determined by memory_utilization.
    pub kv_cache_bytes: u64,
    /// Fraction of the device's memory (on the CPU: of the free memory) that this engine may use, above 0 and at most 1.
    /// Default 0: by device (CPU: 0.5, CUDA: 0.9).
    pub memory_utilization: f32,
    /// Number of ranks that compute the model together: GPUs, or on the CPU groups of threads, each bound to one NUMA node where
    /// there are several. At most the number of query heads of the model. Default 1.
    ///
    /// On the CPU, every number of ranks gives the same bits; on CUDA if batch_invariant is 1.
    pub tensor_parallel_size: u32,
    /// 0 or 1: whether CUDA graphs are disabled. No effect on the CPU. Default 0.
    ///
    /// Where the engine finds no CUDA context of its GPU in the process, graphs of more than 8 sequences may be recorded in a later step, when a batch of their
    /// size first comes. While a graph is recorded, CUDA refuses other threads to wait for the whole device (cudaDeviceSynchronize). A program
    /// that uses CUDA itself should begin to before it opens an engine, which then records all graphs while it opens.
    pub enforce_eager: u32,
    /// 0 or 1: whether the logits of a request are the same bit for bit whatever else is in the batch, and on however many
    /// GPUs of one kind. On the CPU they always are; on CUDA it selects slower kernels. Default 0.
    pub batch_invariant: u32,
    /// Seed of the requests that have none. Default 0: drawn from the system.
    pub seed: u64,
    /// Called only inside nvllm_engine_new. May be NULL.
    pub progress: nvllm_progress_fn,
    /// Passed to progress.
    pub progress_user_data: *mut c_void,
    /// NVLLM_LOAD_*: how the weights are loaded into memory. Default NVLLM_LOAD_MAP.
    pub load_mode: i32,
    /// The GPU of each rank of this process, as device_index counts them, each at most once. NULL takes device_index and those after
    /// it. Default NULL.
    pub device_indices: *const i32,
    /// Number of entries in device_indices: that of the ranks of this process, or 0 with NULL. Default 0.
    pub num_device_indices: u32,
    /// Number of processes that compute the model together, each opened with the same options except process_index and those of
    /// its devices and threads. tensor_parallel_size counts the ranks of all of them, and is a multiple. GPUs of several processes
    /// exchange through NCCL 2.18 or later, which must be installed: NVLLM_ERR_UNSUPPORTED without it. Default 0: this one alone.
    pub num_processes: u32,
    /// Which of them this is, from 0. Process 0 leads: requests go to it alone. The others are stepped to compute what process 0
    /// schedules, and their functions about requests, completions and cached prefixes return NVLLM_ERR_UNSUPPORTED. Default 0.
    pub process_index: u32,
    /// Time in milliseconds that another rank or process may be silent, or that data which it has sent may be missing, before the
    /// engine ends with an error. At least 100 milliseconds with several processes. Default 0: 10000.
    pub peer_timeout_ms: u32,
    /// Where process 0 listens and the others find it: "host:port", or "unix:" and an absolute path, which Windows refuses. The
    /// connections are neither encrypted nor authenticated: use a private network. Required with several processes. Default NULL.
    pub rendezvous: *const c_char,
    /// NVLLM_KV_CACHE_*: how keys and values are stored in the KV cache. A prefix can be restored only by an engine with the value of
    /// the one that saved it. Default NVLLM_KV_CACHE_AUTO.
    pub kv_cache_dtype: i32,
    /// NVLLM_QUANTIZATION_*: how weights that are not quantized yet are quantized while the engine opens, embedding table and head
    /// included. Matrices whose width is no multiple of 32 stay as they are, with a warning in the log. Default
    /// NVLLM_QUANTIZATION_NONE.
    pub quantization: i32,
    /// Maximum number of bytes that this engine takes on each of its GPUs: weights, KV cache, graphs, buffers, and the CUDA context if the
    /// process has none there yet. The KV cache gets what the rest leaves; memory_utilization remains a limit too. What the engine takes
    /// is measured with NVIDIA's management library, so that other programs should not allocate on the GPU while it opens; without that
    /// library the context is assumed to take 640 MiB. NVLLM_ERR_OUT_OF_MEMORY if the budget does not hold the weights and one KV
    /// block, or not kv_cache_bytes. No effect on the CPU. Default 0: no such limit.
    pub gpu_memory_bytes: u64,
    /// For models with recurrent layers: the recurrent state is kept in the prefix cache after each multiple of this number of tokens, and at the end of each
    /// prompt. Later requests with the same beginning continue from there. Rounded up to whole KV blocks. Fewer tokens are
    /// computed again with a smaller number, and more states are made. Default 0: 1024.
    pub state_checkpoint_interval: u64,
    /// For models with experts on a GPU: number of layers whose experts stay in host memory, the last ones that have any. The CPU computes them with
    /// num_threads threads, by default one less than there are cores. A number for which the GPU has too little memory is refused with
    /// NVLLM_ERR_OUT_OF_MEMORY, and the message says which one is sufficient. Not with several ranks. Default 0: as many as the GPU has no memory
    /// for. -1: none.
    pub host_expert_layers: i32,
    /// 0 or 1: whether nvllm_expert_tokens counts how many tokens each expert of a model with experts is chosen for. Default 0, because counting is one
    /// more kernel per layer on a GPU.
    pub expert_statistics: u32,
    /// 0 or 1: with several ranks, whether each rank holds some experts of every layer whole. With 0, each rank holds a share of the width of every expert.
    /// With 1, a rank computes the tokens of its own experts, and there must be at least as many experts as ranks. Refused for a model without experts.
    /// The results are those of 0, bit for bit, on the CPU and with batch_invariant. No effect with one rank. Default 0.
    pub expert_parallel: u32,
}

/// Properties of a loaded model and of the engine that runs it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nvllm_model_info {
    /// sizeof(nvllm_model_info), set by the caller or by nvllm_model_info_init.
    pub struct_size: usize,
    /// Rows of the embedding table.
    pub vocab_size: u32,
    /// Maximum length of a sequence in tokens, prompt and completion together.
    pub max_model_len: u32,
    /// Number of decoder layers.
    pub num_layers: u32,
    /// Width of the residual stream.
    pub hidden_size: u32,
    /// The token that begins a text; UINT32_MAX if there is none.
    pub bos_token: u32,
    /// The first of the tokens that end a completion; UINT32_MAX if there is none.
    pub eos_token: u32,
    /// Number of weights. Shared ones count once.
    pub num_parameters: u64,
    /// Size of the weights in bytes.
    pub weight_bytes: u64,
    /// Size of the KV cache in bytes.
    pub kv_cache_bytes: u64,
    /// Number of blocks of the KV cache.
    pub num_kv_blocks: u32,
    /// Tokens per KV block.
    pub kv_block_size: u32,
    /// NVLLM_DEVICE_CPU or NVLLM_DEVICE_CUDA, also where NVLLM_DEVICE_AUTO was asked for.
    pub device: i32,
    /// Index of the GPU; 0 on the CPU.
    pub device_index: i32,
    /// Maximum number of sequences that run at once.
    pub max_num_seqs: u32,
    /// Maximum number of new tokens per forward pass.
    pub max_batched_tokens: u32,
    /// Number of ranks that compute the model together, in all processes.
    pub tensor_parallel_size: u32,
    /// Which of the processes this is, from 0.
    pub process_index: u32,
    /// NVLLM_KV_CACHE_*: how keys and values are stored in the KV cache.
    pub kv_cache_dtype: i32,
    /// Size of the KV cache per token in bytes: keys and values of all layers and KV heads, scales included.
    pub kv_token_bytes: u32,
    /// NVLLM_CODING_*: how most bytes of the embedding table are held.
    pub embedding_coding: i32,
    /// NVLLM_CODING_*: how most bytes of the projections of attention are held.
    pub attention_coding: i32,
    /// NVLLM_CODING_*: how most bytes of the projections of the feed-forward parts are held.
    pub feed_forward_coding: i32,
    /// NVLLM_CODING_*: how most bytes of the output head are held. NVLLM_CODING_NONE if the embedding table serves as the head.
    pub head_coding: i32,
    /// Size of the embedding table in bytes, that of all ranks together, like the next three.
    pub embedding_bytes: u64,
    /// Size of the projections of attention in bytes.
    pub attention_bytes: u64,
    /// Size of the projections of the feed-forward parts in bytes.
    pub feed_forward_bytes: u64,
    /// Size of the output head in bytes; 0 if the embedding table serves as the head.
    pub head_bytes: u64,
    /// Numbers of an embedding with NVLLM_POOLING_AUTO: hidden_size, or what the model's folder makes of it. 0 for a classifier.
    pub embedding_size: u32,
    /// Labels of a classifier: see nvllm_label. 0 for other models.
    pub num_labels: u32,
    /// Size in bytes of the experts that stay in host memory beside a GPU; 0 if there are none.
    pub host_expert_bytes: u64,
    /// Number of layers whose experts stay in host memory beside a GPU: see host_expert_layers of nvllm_engine_config. 0 on the CPU.
    pub host_expert_layers: u32,
    /// 0 or 1: whether a classifier scores each token of a text, so that scores of nvllm_output has num_labels numbers per prompt token.
    pub scores_tokens: u32,
}

/// [any] Sets the defaults: nvllm_engine_config_init(&config, sizeof config). Writes at most struct_size bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvllm_engine_config_init(config: *mut nvllm_engine_config, struct_size: usize) {
    // SAFETY: the header asks for NULL or `struct_size` writable bytes.
    guard_value("nvllm_engine_config_init", (), || unsafe {
        memory::init(config, struct_size, nvllm_engine_config::DEFAULT)
    });
}

/// [any] Opens an engine on a model folder, and stores it in *engine. Most of the time is spent reading the files.
///
/// With several processes it returns when all have opened theirs: process 0 waits for the others, and they for it, for at most ten
/// minutes. progress is called about ten times per second meanwhile. NVLLM_ERR_PEER if a process does not come, fails, or was opened
/// with another model or other options.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_engine_new(
    config: *const nvllm_engine_config,
    engine: *mut *mut nvllm_engine,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_engine_new", error, || {
        // SAFETY: the same promises as here.
        unsafe { open(config, engine, |config| Ok((Files::OnDisk, config.path()?))) }
    })
}

/// Opens an engine on the model that `model` finds: where its files are, and its path.
///
/// # Safety
///
/// As the header says of nvllm_engine_new.
pub(super) unsafe fn open(
    config: *const nvllm_engine_config,
    engine: *mut *mut nvllm_engine,
    model: impl FnOnce(&nvllm_engine_config) -> Result<(Files, PathBuf), Refusal>,
) -> Result<nvllm_status_code, Refusal> {
    let engine = NonNull::new(engine).ok_or(Refusal::Null("engine"))?;
    let config = NonNull::new(config.cast_mut()).ok_or(Refusal::Null("config"))?;
    // SAFETY: the header asks for struct_size bytes; NULL was refused above.
    let config = unsafe { memory::read(config, nvllm_engine_config::DEFAULT)? };
    let (files, path) = model(&config)?;
    let options = config.options(files, path)?;
    let opened = Opened::new(&options, &mut |fraction| match config.progress {
        // SAFETY: the host gave the function with this type, to be called inside this call.
        Some(progress) if unsafe { progress(fraction, config.progress_user_data) } != 0 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })?;
    // SAFETY: not NULL by the check above; the header asks for a place to write.
    unsafe { engine.write(handle::into_pointer(Handle::new(opened))) };
    Ok(NVLLM_OK)
}

/// Destroys an engine with all its requests, and joins its threads. NULL is allowed.
///
/// Inside a callback of the same engine, or while another thread is inside a call, the engine is destroyed when that call
/// returns, and none of its callbacks is called again. In the child of a fork() nothing is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvllm_engine_free(engine: *mut nvllm_engine) {
    guard_value("nvllm_engine_free", (), || {
        if !engine.is_null() {
            // SAFETY: the header asks for a pointer from nvllm_engine_new that is not used again.
            unsafe { handle::release(engine) };
        }
    });
}

/// [any] Sets struct_size, and all else to 0: nvllm_model_info_init(&info, sizeof info). Writes at most struct_size bytes. Setting
/// struct_size alone is sufficient, because the call that takes the struct writes all other fields.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvllm_model_info_init(info: *mut nvllm_model_info, struct_size: usize) {
    // SAFETY: the header asks for NULL or `struct_size` writable bytes.
    guard_value("nvllm_model_info_init", (), || unsafe { memory::init_zeroed(info, struct_size) });
}

/// [any] Reads the properties of the model.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_engine_model_info(
    engine: *const nvllm_engine,
    info: *mut nvllm_model_info,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_engine_model_info", error, || {
        let info = NonNull::new(info).ok_or(Refusal::Null("info"))?;
        // SAFETY: the header asks for NULL or a live engine, and for struct_size bytes; NULL was refused above.
        let (engine, info) = unsafe { (visit(engine)?, OutStruct::new(info)?) };
        info.write(engine.handle().model_info().into());
        Ok(NVLLM_OK)
    })
}

// SAFETY: repr(C), struct_size first; integers, floats, pointers and a nullable function pointer. The fields after load_mode and
// kv_cache_dtype do not begin in what was padding at the end of the struct, and a field after host_expert_layers must not either.
unsafe impl Versioned for nvllm_engine_config {
    const NAME: &'static str = "nvllm_engine_config";
}

// SAFETY: repr(C), struct_size first; integers. A field after host_expert_layers must not begin in what is padding at the end of the struct.
unsafe impl Versioned for nvllm_model_info {
    const NAME: &'static str = "nvllm_model_info";
}

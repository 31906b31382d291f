//! Statistics.
#![allow(unsafe_code, non_camel_case_types, clippy::missing_safety_doc)]

use super::engine::nvllm_engine;
use super::guard::{guard, guard_value};
use super::handle::visit;
use super::memory::{self, Buffer, OutStruct, Versioned};
use super::refusal::Refusal;
use super::status::nvllm_status_code::NVLLM_OK;
use super::status::{nvllm_error, nvllm_status};
use super::text::terminated;
use base::log;
use engine::output::Stats;
use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Counters since the engine opened, and current gauges.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nvllm_stats {
    /// sizeof(nvllm_stats), set by the caller or by nvllm_stats_init.
    pub struct_size: usize,
    /// Forward passes that have finished. nanovllm_passes_total of nvllm_metrics_text is this number, and num_iterations of
    /// nvllm_step_result what one call of nvllm_step adds to it.
    pub steps: u64,
    /// Prompt tokens that were computed.
    pub prompt_tokens: u64,
    /// Prompt tokens that were taken from the prefix cache, or from another completion.
    pub cached_tokens: u64,
    /// Tokens that were generated.
    pub generated_tokens: u64,
    /// Preemptions: how often a sequence had to give up its KV blocks.
    pub preemptions: u64,
    /// Microseconds spent in forward passes.
    pub step_time_us: u64,
    /// Sequences that are running.
    pub running: u32,
    /// Requests that are waiting; each of their completions counts.
    pub waiting: u32,
    /// Blocks of the KV cache.
    pub kv_blocks_total: u32,
    /// Blocks of the KV cache that sequences use or that are pinned. If every layer of the model has a sliding window, a sequence
    /// releases the blocks before its window; if some layers have one, these have blocks of their own, and a sequence holds those of its last window.
    pub kv_blocks_used: u32,
    /// Log messages that were dropped because no call took them, in the whole process.
    pub log_messages_dropped: u64,
    /// Tokens that were looked up in the prefix cache: all tokens of a sequence each time it starts to run, so again after a
    /// preemption.
    pub prefix_cache_queries: u64,
    /// Tokens that were found in the prefix cache and need not be computed.
    pub prefix_cache_hits: u64,
    /// Blocks that were evicted from the prefix cache.
    pub prefix_cache_evictions: u64,
    /// Blocks reserved by pinned prompts; a block counts once per prompt that has it.
    pub kv_blocks_pinned: u32,
    /// Bytes of GPU memory that the engine took or set aside when it opened, everything included, on the GPU where they are most: see
    /// gpu_memory_bytes of nvllm_engine_config. Without such a budget, a CUDA context that the engine made counts as 640 MiB. 0 on the CPU.
    pub gpu_memory_bytes: u64,
    /// Bytes of the KV cache that have memory now. On a GPU all of it, but for what nvllm_trim gave back. On the CPU, the blocks that were
    /// used since the engine opened or since nvllm_trim; a block counts whole. 0 in a process that follows another one.
    pub kv_cache_bytes_mapped: u64,
    /// Tokens that were found in the prefix cache and are computed all the same, because the model has recurrent layers and no checkpoint
    /// of their state is behind these tokens: at most about state_checkpoint_interval each time a sequence starts to run. Or because some of its
    /// layers have a sliding window, and the blocks of the window before were reused. Not part of prefix_cache_hits. 0 for other models.
    pub prefix_cache_recomputed: u64,
}

/// [any] Sets struct_size, and all else to 0: nvllm_stats_init(&stats, sizeof stats). Writes at most struct_size bytes. Setting
/// struct_size alone is sufficient, because the call that takes the struct writes all other fields.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvllm_stats_init(stats: *mut nvllm_stats, struct_size: usize) {
    // SAFETY: the header asks for NULL or `struct_size` writable bytes.
    guard_value("nvllm_stats_init", (), || unsafe { memory::init_zeroed(stats, struct_size) });
}

/// [any] Reads the statistics.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_get_stats(
    engine: *const nvllm_engine,
    stats: *mut nvllm_stats,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_get_stats", error, || {
        let stats = NonNull::new(stats).ok_or(Refusal::Null("stats"))?;
        // SAFETY: the header asks for NULL or a live engine, and for struct_size bytes; NULL was refused above.
        let (engine, stats) = unsafe { (visit(engine)?, OutStruct::new(stats)?) };
        stats.write(engine.handle().stats().into());
        Ok(NVLLM_OK)
    })
}

/// [one] Copies how many tokens each expert of a layer, from 0, was chosen for since the engine opened. counts gets one number per expert; *needed
/// is 0 for a layer without experts. A token counts for each expert that computes it, so that the sum is the number of computed tokens times the
/// experts per token. The greatest number divided by the mean shows how uneven the load is.
///
/// NVLLM_ERR_INVALID_ARGUMENT if expert_statistics of nvllm_engine_config is 0, or for a layer that the model does not have. The buffer is used as by
/// nvllm_tokenize. Passes in flight may count already. With several ranks all choose alike, and the numbers are those of the whole model.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_expert_tokens(
    engine: *mut nvllm_engine,
    layer: usize,
    counts: *mut u64,
    capacity: usize,
    needed: *mut usize,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_expert_tokens", error, || {
        // SAFETY: the header asks for NULL or a live engine, and for room for capacity numbers.
        let (engine, buffer) = unsafe { (visit(engine)?, Buffer::new("counts", counts, capacity, needed)?) };
        let counted = engine.work(|work| Ok(work.engine()?.expert_tokens(layer)?))?;
        buffer.fill(&counted)?;
        Ok(NVLLM_OK)
    })
}

/// [any] Writes the statistics and more in the text format of Prometheus, version 0.0.4: how requests ended, and histograms
/// of the time to the first token, between tokens, in the queue and per pass, and of the number of sequences per pass.
///
/// The buffer is used as by nvllm_tokenize, with a NUL; 16 KiB always suffice. Names begin with nanovllm_. No name contains
/// the engine: a program with several engines serves each text under its own address. nanovllm_passes_total, the number of
/// forward passes, is `steps` of nvllm_stats. num_iterations of nvllm_step_result is what one call of nvllm_step adds to it.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_metrics_text(
    engine: *const nvllm_engine,
    text: *mut c_char,
    capacity: usize,
    needed: *mut usize,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_metrics_text", error, || {
        // SAFETY: the header asks for NULL or a live engine, and for room for capacity bytes.
        let (engine, buffer) = unsafe { (visit(engine)?, Buffer::new("text", text.cast::<u8>(), capacity, needed)?) };
        terminated(buffer, engine.handle().metrics_text())
    })
}

// SAFETY: repr(C), struct_size first; integers.
unsafe impl Versioned for nvllm_stats {
    const NAME: &'static str = "nvllm_stats";
}

impl From<Stats> for nvllm_stats {
    fn from(stats: Stats) -> nvllm_stats {
        nvllm_stats {
            struct_size: size_of::<nvllm_stats>(),
            steps: stats.steps,
            prompt_tokens: stats.prompt_tokens,
            cached_tokens: stats.cached_tokens,
            generated_tokens: stats.generated_tokens,
            preemptions: stats.preemptions,
            step_time_us: stats.step_time_us,
            running: stats.running,
            waiting: stats.waiting,
            kv_blocks_total: stats.kv_blocks_total,
            kv_blocks_used: stats.kv_blocks_used,
            log_messages_dropped: log::dropped(),
            prefix_cache_queries: stats.prefix_cache.queries,
            prefix_cache_hits: stats.prefix_cache.hits,
            prefix_cache_evictions: stats.prefix_cache.evictions,
            kv_blocks_pinned: stats.kv_blocks_pinned,
            gpu_memory_bytes: stats.gpu_memory_bytes,
            kv_cache_bytes_mapped: stats.kv_cache_bytes_mapped,
            prefix_cache_recomputed: stats.prefix_cache.recomputed,
        }
    }
}

//! What the program uses of the C API: its functions and structs, as `include/nanovllm.h` declares them.
//!
//! Invariant: every struct has the layout of that of `src/capi`, which a test compares field by field. The program calls the library through
//! these declarations alone, whether it is linked with it or loads it: docs/decisions/0080-the-program-speaks-the-c-api.md.
#![allow(unsafe_code, non_camel_case_types)]

#[cfg(feature = "static")]
use capi as _;
use std::ffi::{c_char, c_void};

pub type nvllm_status = i32;

pub const NO_OUTPUT: nvllm_status = 1;
pub const CLOSED: nvllm_status = 2;
pub const BUFFER_TOO_SMALL: nvllm_status = -2;
pub const NOT_FOUND: nvllm_status = -5;
pub const QUEUE_FULL: nvllm_status = -12;
pub const CONTEXT_LENGTH: nvllm_status = -13;

pub const TOKENIZE_PARSE_SPECIAL: u32 = 2;

/// An engine, of which a program sees pointers only.
#[repr(C)]
pub struct nvllm_engine {
    _opaque: [u8; 0],
}

pub type nvllm_progress_fn = Option<unsafe extern "C" fn(fraction: f32, user_data: *mut c_void) -> i32>;
pub type nvllm_log_fn =
    Option<unsafe extern "C" fn(level: i32, message: *const c_char, message_len: usize, user_data: *mut c_void)>;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct nvllm_error {
    pub status: nvllm_status,
    pub native_code: i32,
    pub message: [c_char; 504],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct nvllm_engine_config {
    pub struct_size: usize,
    pub model_path: *const c_char,
    pub device: i32,
    pub device_index: i32,
    pub dtype: i32,
    pub num_threads: u32,
    pub max_model_len: u32,
    pub max_num_seqs: u32,
    pub max_batched_tokens: u32,
    pub max_queue: u32,
    pub kv_block_size: u32,
    pub enable_prefix_cache: u32,
    pub kv_cache_bytes: u64,
    pub memory_utilization: f32,
    pub tensor_parallel_size: u32,
    pub enforce_eager: u32,
    pub batch_invariant: u32,
    pub seed: u64,
    pub progress: nvllm_progress_fn,
    pub progress_user_data: *mut c_void,
    pub load_mode: i32,
    pub device_indices: *const i32,
    pub num_device_indices: u32,
    pub num_processes: u32,
    pub process_index: u32,
    pub peer_timeout_ms: u32,
    pub rendezvous: *const c_char,
    pub kv_cache_dtype: i32,
    pub quantization: i32,
    pub gpu_memory_bytes: u64,
    pub state_checkpoint_interval: u64,
    pub host_expert_layers: i32,
    pub expert_statistics: u32,
    pub expert_parallel: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct nvllm_model_info {
    pub struct_size: usize,
    pub vocab_size: u32,
    pub max_model_len: u32,
    pub num_layers: u32,
    pub hidden_size: u32,
    pub bos_token: u32,
    pub eos_token: u32,
    pub num_parameters: u64,
    pub weight_bytes: u64,
    pub kv_cache_bytes: u64,
    pub num_kv_blocks: u32,
    pub kv_block_size: u32,
    pub device: i32,
    pub device_index: i32,
    pub max_num_seqs: u32,
    pub max_batched_tokens: u32,
    pub tensor_parallel_size: u32,
    pub process_index: u32,
    pub kv_cache_dtype: i32,
    pub kv_token_bytes: u32,
    pub embedding_coding: i32,
    pub attention_coding: i32,
    pub feed_forward_coding: i32,
    pub head_coding: i32,
    pub embedding_bytes: u64,
    pub attention_bytes: u64,
    pub feed_forward_bytes: u64,
    pub head_bytes: u64,
    pub embedding_size: u32,
    pub num_labels: u32,
    pub host_expert_bytes: u64,
    pub host_expert_layers: u32,
    pub scores_tokens: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct nvllm_explain_options {
    pub struct_size: usize,
    pub gpu: *const c_char,
    pub rows: u32,
    pub tokens: u32,
    pub context_len: u32,
    pub layer: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct nvllm_request_options {
    pub struct_size: usize,
    pub tag: u64,
    pub max_tokens: u32,
    pub min_tokens: u32,
    pub temperature: f32,
    pub top_p: f32,
    pub min_p: f32,
    pub top_k: u32,
    pub repetition_penalty: f32,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    pub seed: u64,
    pub ignore_eos: u32,
    pub priority: i32,
    pub stop: *const *const c_char,
    pub num_stop: usize,
    pub stop_tokens: *const u32,
    pub num_stop_tokens: usize,
    pub bias_tokens: *const u32,
    pub bias_values: *const f32,
    pub num_bias: usize,
    pub num_logprobs: u32,
    pub n: u32,
    pub beam_width: u32,
    pub length_penalty: f32,
    pub include_stop: u32,
    pub max_wait_us: u64,
    pub cache_salt: u64,
    pub pin_prompt: u32,
    pub pooling: u32,
    pub num_prompt_logprobs: u32,
    pub early_stopping: u32,
    pub structure: *const c_char,
    pub structure_kind: i32,
    pub reserved: u32,
    pub tools: *const c_char,
    pub tool_name: *const c_char,
    pub tool_choice: i32,
    pub parallel_tool_calls: u32,
    pub strict_tools: u32,
    pub keep_special_tokens: u32,
    pub max_thinking_tokens: u32,
    pub reserved_too: u32,
    pub dry_sequence_breakers: *const *const c_char,
    pub num_dry_sequence_breakers: usize,
    pub dry_multiplier: f32,
    pub dry_base: f32,
    pub dry_allowed_length: u32,
    pub dry_penalty_last_n: u32,
    pub top_n_sigma: f32,
    pub xtc_probability: f32,
    pub xtc_threshold: f32,
    pub reserved_last: u32,
    pub embedding_dimensions: u32,
    pub reserved_of_dimensions: u32,
    pub score_tokens: *const u32,
    pub num_score_tokens: usize,
    pub truncate_prompt_tokens: u32,
    pub reserved_of_truncation: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct nvllm_step_result {
    pub struct_size: usize,
    pub num_outputs: u32,
    pub num_running: u32,
    pub num_waiting: u32,
    pub num_iterations: u32,
    pub in_flight: u32,
    pub prefill_tokens: u32,
    pub decode_tokens: u32,
    pub elapsed_us: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct nvllm_output {
    pub struct_size: usize,
    pub request_id: u64,
    pub tag: u64,
    pub token_ids: *const u32,
    pub num_token_ids: usize,
    pub text: *const c_char,
    pub text_len: usize,
    pub index: u32,
    pub finish_reason: i32,
    pub status: nvllm_status,
    pub prompt_tokens: u32,
    pub cached_tokens: u32,
    pub completion_tokens: u32,
    pub time_to_first_token_us: u64,
    pub logprobs: *const f32,
    pub top_tokens: *const u32,
    pub top_logprobs: *const f32,
    pub cumulative_logprob: f32,
    pub error_message: *const c_char,
    pub embedding: *const f32,
    pub embedding_len: usize,
    pub num_logprobs: u32,
    pub num_prompt_logprobs: u32,
    pub prompt_logprobs: *const f32,
    pub prompt_top_tokens: *const u32,
    pub prompt_top_logprobs: *const f32,
    pub score: f32,
    pub reserved: u32,
    pub reasoning_tokens: u32,
    pub scores: *const f32,
    pub num_scores: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct nvllm_stats {
    pub struct_size: usize,
    pub steps: u64,
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    pub generated_tokens: u64,
    pub preemptions: u64,
    pub step_time_us: u64,
    pub running: u32,
    pub waiting: u32,
    pub kv_blocks_total: u32,
    pub kv_blocks_used: u32,
    pub log_messages_dropped: u64,
    pub prefix_cache_queries: u64,
    pub prefix_cache_hits: u64,
    pub prefix_cache_evictions: u64,
    pub kv_blocks_pinned: u32,
    pub gpu_memory_bytes: u64,
    pub kv_cache_bytes_mapped: u64,
    pub prefix_cache_recomputed: u64,
}

#[cfg_attr(not(feature = "static"), link(name = "nanovllm"))]
unsafe extern "C" {
    pub fn nvllm_status_name(status: nvllm_status) -> *const c_char;
    pub fn nvllm_build_info() -> *const c_char;
    pub fn nvllm_set_log_callback(callback: nvllm_log_fn, user_data: *mut c_void, max_level: i32);

    pub fn nvllm_engine_config_init(config: *mut nvllm_engine_config, struct_size: usize);
    pub fn nvllm_engine_new(
        config: *const nvllm_engine_config,
        engine: *mut *mut nvllm_engine,
        error: *mut nvllm_error,
    ) -> nvllm_status;
    pub fn nvllm_engine_free(engine: *mut nvllm_engine);
    pub fn nvllm_model_info_init(info: *mut nvllm_model_info, struct_size: usize);
    pub fn nvllm_engine_model_info(
        engine: *const nvllm_engine,
        info: *mut nvllm_model_info,
        error: *mut nvllm_error,
    ) -> nvllm_status;
    pub fn nvllm_quantize_folder(
        model_path: *const c_char,
        to: *const c_char,
        quantization: i32,
        progress: nvllm_progress_fn,
        progress_user_data: *mut c_void,
        error: *mut nvllm_error,
    ) -> nvllm_status;

    pub fn nvllm_explain_options_init(options: *mut nvllm_explain_options, struct_size: usize);
    pub fn nvllm_explain(
        config: *const nvllm_engine_config,
        options: *const nvllm_explain_options,
        text: *mut c_char,
        capacity: usize,
        needed: *mut usize,
        error: *mut nvllm_error,
    ) -> nvllm_status;

    pub fn nvllm_request_options_init(options: *mut nvllm_request_options, struct_size: usize);
    pub fn nvllm_default_options(
        engine: *const nvllm_engine,
        options: *mut nvllm_request_options,
        error: *mut nvllm_error,
    ) -> nvllm_status;
    pub fn nvllm_add_request(
        engine: *mut nvllm_engine,
        prompt: *const c_char,
        prompt_len: usize,
        options: *const nvllm_request_options,
        request_id: *mut u64,
        error: *mut nvllm_error,
    ) -> nvllm_status;
    pub fn nvllm_add_request_tokens(
        engine: *mut nvllm_engine,
        tokens: *const u32,
        num_tokens: usize,
        options: *const nvllm_request_options,
        request_id: *mut u64,
        error: *mut nvllm_error,
    ) -> nvllm_status;
    pub fn nvllm_cancel(engine: *mut nvllm_engine, request_id: u64) -> nvllm_status;

    pub fn nvllm_step_result_init(result: *mut nvllm_step_result, struct_size: usize);
    pub fn nvllm_step(
        engine: *mut nvllm_engine,
        budget_us: u64,
        result: *mut nvllm_step_result,
        error: *mut nvllm_error,
    ) -> nvllm_status;
    pub fn nvllm_is_finished(engine: *const nvllm_engine) -> i32;
    pub fn nvllm_output_init(output: *mut nvllm_output, struct_size: usize);
    pub fn nvllm_poll_output(
        engine: *mut nvllm_engine,
        output: *mut nvllm_output,
        error: *mut nvllm_error,
    ) -> nvllm_status;

    pub fn nvllm_save_prefix(
        engine: *mut nvllm_engine,
        tokens: *const u32,
        num_tokens: usize,
        cache_salt: u64,
        buffer: *mut u8,
        capacity: usize,
        needed: *mut usize,
        saved_tokens: *mut usize,
        error: *mut nvllm_error,
    ) -> nvllm_status;
    pub fn nvllm_restore_prefix(
        engine: *mut nvllm_engine,
        bytes: *const u8,
        num_bytes: usize,
        restored_tokens: *mut usize,
        error: *mut nvllm_error,
    ) -> nvllm_status;

    pub fn nvllm_tokenize(
        engine: *const nvllm_engine,
        text: *const c_char,
        text_len: usize,
        flags: u32,
        tokens: *mut u32,
        capacity: usize,
        needed: *mut usize,
        error: *mut nvllm_error,
    ) -> nvllm_status;
    pub fn nvllm_apply_chat_template(
        engine: *const nvllm_engine,
        messages_json: *const c_char,
        messages_len: usize,
        options_json: *const c_char,
        options_len: usize,
        text: *mut c_char,
        capacity: usize,
        needed: *mut usize,
        error: *mut nvllm_error,
    ) -> nvllm_status;

    pub fn nvllm_stats_init(stats: *mut nvllm_stats, struct_size: usize);
    pub fn nvllm_get_stats(
        engine: *const nvllm_engine,
        stats: *mut nvllm_stats,
        error: *mut nvllm_error,
    ) -> nvllm_status;
}

#[cfg(all(test, feature = "static"))]
mod tests {
    use core::mem::{align_of, offset_of, size_of};

    /// Compares a struct of this file with that of the library which has the same name.
    macro_rules! same_layout {
        ($library:ident :: $section:ident :: $name:ident { $($field:ident),* }) => {{
            type Theirs = $library::$section::$name;
            assert_eq!(size_of::<super::$name>(), size_of::<Theirs>(), "size of {}", stringify!($name));
            assert_eq!(align_of::<super::$name>(), align_of::<Theirs>(), "alignment of {}", stringify!($name));
            $(
                let (ours, theirs) = (offset_of!(super::$name, $field), offset_of!(Theirs, $field));
                assert_eq!(ours, theirs, "{}::{}", stringify!($name), stringify!($field));
            )*
            // Fields of equal offsets have the same types: each is copied from theirs to ours.
            let _same_types = |theirs: &Theirs| super::$name { $($field: theirs.$field),* };
        }};
    }

    #[test]
    fn every_struct_has_the_layout_of_the_library() {
        same_layout!(capi::status::nvllm_error { status, native_code, message });
        same_layout!(capi::engine::nvllm_engine_config {
            struct_size,
            model_path,
            device,
            device_index,
            dtype,
            num_threads,
            max_model_len,
            max_num_seqs,
            max_batched_tokens,
            max_queue,
            kv_block_size,
            enable_prefix_cache,
            kv_cache_bytes,
            memory_utilization,
            tensor_parallel_size,
            enforce_eager,
            batch_invariant,
            seed,
            progress,
            progress_user_data,
            load_mode,
            device_indices,
            num_device_indices,
            num_processes,
            process_index,
            peer_timeout_ms,
            rendezvous,
            kv_cache_dtype,
            quantization,
            gpu_memory_bytes,
            state_checkpoint_interval,
            host_expert_layers,
            expert_statistics,
            expert_parallel
        });
        same_layout!(capi::engine::nvllm_model_info {
            struct_size,
            vocab_size,
            max_model_len,
            num_layers,
            hidden_size,
            bos_token,
            eos_token,
            num_parameters,
            weight_bytes,
            kv_cache_bytes,
            num_kv_blocks,
            kv_block_size,
            device,
            device_index,
            max_num_seqs,
            max_batched_tokens,
            tensor_parallel_size,
            process_index,
            kv_cache_dtype,
            kv_token_bytes,
            embedding_coding,
            attention_coding,
            feed_forward_coding,
            head_coding,
            embedding_bytes,
            attention_bytes,
            feed_forward_bytes,
            head_bytes,
            embedding_size,
            num_labels,
            host_expert_bytes,
            host_expert_layers,
            scores_tokens
        });
        same_layout!(capi::explain::nvllm_explain_options { struct_size, gpu, rows, tokens, context_len, layer });
        same_layout!(capi::requests::nvllm_request_options {
            struct_size,
            tag,
            max_tokens,
            min_tokens,
            temperature,
            top_p,
            min_p,
            top_k,
            repetition_penalty,
            presence_penalty,
            frequency_penalty,
            seed,
            ignore_eos,
            priority,
            stop,
            num_stop,
            stop_tokens,
            num_stop_tokens,
            bias_tokens,
            bias_values,
            num_bias,
            num_logprobs,
            n,
            beam_width,
            length_penalty,
            include_stop,
            max_wait_us,
            cache_salt,
            pin_prompt,
            pooling,
            num_prompt_logprobs,
            early_stopping,
            structure,
            structure_kind,
            reserved,
            tools,
            tool_name,
            tool_choice,
            parallel_tool_calls,
            strict_tools,
            keep_special_tokens,
            max_thinking_tokens,
            reserved_too,
            dry_sequence_breakers,
            num_dry_sequence_breakers,
            dry_multiplier,
            dry_base,
            dry_allowed_length,
            dry_penalty_last_n,
            top_n_sigma,
            xtc_probability,
            xtc_threshold,
            reserved_last,
            embedding_dimensions,
            reserved_of_dimensions,
            score_tokens,
            num_score_tokens,
            truncate_prompt_tokens,
            reserved_of_truncation
        });
        same_layout!(capi::stepping::nvllm_step_result {
            struct_size,
            num_outputs,
            num_running,
            num_waiting,
            num_iterations,
            in_flight,
            prefill_tokens,
            decode_tokens,
            elapsed_us
        });
        same_layout!(capi::stepping::nvllm_output {
            struct_size,
            request_id,
            tag,
            token_ids,
            num_token_ids,
            text,
            text_len,
            index,
            finish_reason,
            status,
            prompt_tokens,
            cached_tokens,
            completion_tokens,
            time_to_first_token_us,
            logprobs,
            top_tokens,
            top_logprobs,
            cumulative_logprob,
            error_message,
            embedding,
            embedding_len,
            num_logprobs,
            num_prompt_logprobs,
            prompt_logprobs,
            prompt_top_tokens,
            prompt_top_logprobs,
            score,
            reserved,
            reasoning_tokens,
            scores,
            num_scores
        });
        same_layout!(capi::stats::nvllm_stats {
            struct_size,
            steps,
            prompt_tokens,
            cached_tokens,
            generated_tokens,
            preemptions,
            step_time_us,
            running,
            waiting,
            kv_blocks_total,
            kv_blocks_used,
            log_messages_dropped,
            prefix_cache_queries,
            prefix_cache_hits,
            prefix_cache_evictions,
            kv_blocks_pinned,
            gpu_memory_bytes,
            kv_cache_bytes_mapped,
            prefix_cache_recomputed
        });
    }

    #[test]
    fn every_number_is_that_of_the_library() {
        use capi::status::nvllm_status_code as status;
        use capi::text::nvllm_tokenize_flags as flags;
        let statuses = [
            (super::NO_OUTPUT, status::NVLLM_NO_OUTPUT),
            (super::CLOSED, status::NVLLM_CLOSED),
            (super::BUFFER_TOO_SMALL, status::NVLLM_ERR_BUFFER_TOO_SMALL),
            (super::NOT_FOUND, status::NVLLM_ERR_NOT_FOUND),
            (super::QUEUE_FULL, status::NVLLM_ERR_QUEUE_FULL),
            (super::CONTEXT_LENGTH, status::NVLLM_ERR_CONTEXT_LENGTH),
        ];
        for (ours, theirs) in statuses {
            assert_eq!(ours, theirs as i32);
        }
        assert_eq!(super::TOKENIZE_PARSE_SPECIAL, flags::NVLLM_TOKENIZE_PARSE_SPECIAL as u32);
    }
}

/* The ABI: every size, offset, value and prototype of nanovllm.h. scripts/header.sh appends to it and changes nothing that is
 * here: a line that no longer holds is a break of the ABI. layout.c gives the lines their meaning.
 */

SIZE(nvllm_error, 512)
FIELD(nvllm_error, status, 0)
FIELD(nvllm_error, native_code, 4)
FIELD(nvllm_error, message, 8)

SIZE(nvllm_engine_config, 184)
FIELD(nvllm_engine_config, struct_size, 0)
FIELD(nvllm_engine_config, model_path, 8)
FIELD(nvllm_engine_config, device, 16)
FIELD(nvllm_engine_config, device_index, 20)
FIELD(nvllm_engine_config, dtype, 24)
FIELD(nvllm_engine_config, num_threads, 28)
FIELD(nvllm_engine_config, max_model_len, 32)
FIELD(nvllm_engine_config, max_num_seqs, 36)
FIELD(nvllm_engine_config, max_batched_tokens, 40)
FIELD(nvllm_engine_config, max_queue, 44)
FIELD(nvllm_engine_config, kv_block_size, 48)
FIELD(nvllm_engine_config, enable_prefix_cache, 52)
FIELD(nvllm_engine_config, kv_cache_bytes, 56)
FIELD(nvllm_engine_config, memory_utilization, 64)
FIELD(nvllm_engine_config, tensor_parallel_size, 68)
FIELD(nvllm_engine_config, enforce_eager, 72)
FIELD(nvllm_engine_config, batch_invariant, 76)
FIELD(nvllm_engine_config, seed, 80)
FIELD(nvllm_engine_config, progress, 88)
FIELD(nvllm_engine_config, progress_user_data, 96)
FIELD(nvllm_engine_config, load_mode, 104)
FIELD(nvllm_engine_config, device_indices, 112)
FIELD(nvllm_engine_config, num_device_indices, 120)
FIELD(nvllm_engine_config, num_processes, 124)
FIELD(nvllm_engine_config, process_index, 128)
FIELD(nvllm_engine_config, peer_timeout_ms, 132)
FIELD(nvllm_engine_config, rendezvous, 136)
FIELD(nvllm_engine_config, kv_cache_dtype, 144)
FIELD(nvllm_engine_config, quantization, 148)
FIELD(nvllm_engine_config, gpu_memory_bytes, 152)
FIELD(nvllm_engine_config, state_checkpoint_interval, 160)
FIELD(nvllm_engine_config, host_expert_layers, 168)
FIELD(nvllm_engine_config, expert_statistics, 172)
FIELD(nvllm_engine_config, expert_parallel, 176)

SIZE(nvllm_model_info, 168)
FIELD(nvllm_model_info, struct_size, 0)
FIELD(nvllm_model_info, vocab_size, 8)
FIELD(nvllm_model_info, max_model_len, 12)
FIELD(nvllm_model_info, num_layers, 16)
FIELD(nvllm_model_info, hidden_size, 20)
FIELD(nvllm_model_info, bos_token, 24)
FIELD(nvllm_model_info, eos_token, 28)
FIELD(nvllm_model_info, num_parameters, 32)
FIELD(nvllm_model_info, weight_bytes, 40)
FIELD(nvllm_model_info, kv_cache_bytes, 48)
FIELD(nvllm_model_info, num_kv_blocks, 56)
FIELD(nvllm_model_info, kv_block_size, 60)
FIELD(nvllm_model_info, device, 64)
FIELD(nvllm_model_info, device_index, 68)
FIELD(nvllm_model_info, max_num_seqs, 72)
FIELD(nvllm_model_info, max_batched_tokens, 76)
FIELD(nvllm_model_info, tensor_parallel_size, 80)
FIELD(nvllm_model_info, process_index, 84)
FIELD(nvllm_model_info, kv_cache_dtype, 88)
FIELD(nvllm_model_info, kv_token_bytes, 92)
FIELD(nvllm_model_info, embedding_coding, 96)
FIELD(nvllm_model_info, attention_coding, 100)
FIELD(nvllm_model_info, feed_forward_coding, 104)
FIELD(nvllm_model_info, head_coding, 108)
FIELD(nvllm_model_info, embedding_bytes, 112)
FIELD(nvllm_model_info, attention_bytes, 120)
FIELD(nvllm_model_info, feed_forward_bytes, 128)
FIELD(nvllm_model_info, head_bytes, 136)
FIELD(nvllm_model_info, embedding_size, 144)
FIELD(nvllm_model_info, num_labels, 148)
FIELD(nvllm_model_info, host_expert_bytes, 152)
FIELD(nvllm_model_info, host_expert_layers, 160)
FIELD(nvllm_model_info, scores_tokens, 164)

SIZE(nvllm_model_file, 56)
FIELD(nvllm_model_file, struct_size, 0)
FIELD(nvllm_model_file, name, 8)
FIELD(nvllm_model_file, kind, 16)
FIELD(nvllm_model_file, reserved, 20)
FIELD(nvllm_model_file, data, 24)
FIELD(nvllm_model_file, descriptor, 32)
FIELD(nvllm_model_file, offset, 40)
FIELD(nvllm_model_file, size, 48)

SIZE(nvllm_explain_options, 32)
FIELD(nvllm_explain_options, struct_size, 0)
FIELD(nvllm_explain_options, gpu, 8)
FIELD(nvllm_explain_options, rows, 16)
FIELD(nvllm_explain_options, tokens, 20)
FIELD(nvllm_explain_options, context_len, 24)
FIELD(nvllm_explain_options, layer, 28)

SIZE(nvllm_request_options, 320)
FIELD(nvllm_request_options, struct_size, 0)
FIELD(nvllm_request_options, tag, 8)
FIELD(nvllm_request_options, max_tokens, 16)
FIELD(nvllm_request_options, min_tokens, 20)
FIELD(nvllm_request_options, temperature, 24)
FIELD(nvllm_request_options, top_p, 28)
FIELD(nvllm_request_options, min_p, 32)
FIELD(nvllm_request_options, top_k, 36)
FIELD(nvllm_request_options, repetition_penalty, 40)
FIELD(nvllm_request_options, presence_penalty, 44)
FIELD(nvllm_request_options, frequency_penalty, 48)
FIELD(nvllm_request_options, seed, 56)
FIELD(nvllm_request_options, ignore_eos, 64)
FIELD(nvllm_request_options, priority, 68)
FIELD(nvllm_request_options, stop, 72)
FIELD(nvllm_request_options, num_stop, 80)
FIELD(nvllm_request_options, stop_tokens, 88)
FIELD(nvllm_request_options, num_stop_tokens, 96)
FIELD(nvllm_request_options, bias_tokens, 104)
FIELD(nvllm_request_options, bias_values, 112)
FIELD(nvllm_request_options, num_bias, 120)
FIELD(nvllm_request_options, num_logprobs, 128)
FIELD(nvllm_request_options, n, 132)
FIELD(nvllm_request_options, beam_width, 136)
FIELD(nvllm_request_options, length_penalty, 140)
FIELD(nvllm_request_options, include_stop, 144)
FIELD(nvllm_request_options, max_wait_us, 152)
FIELD(nvllm_request_options, cache_salt, 160)
FIELD(nvllm_request_options, pin_prompt, 168)
FIELD(nvllm_request_options, pooling, 172)
FIELD(nvllm_request_options, num_prompt_logprobs, 176)
FIELD(nvllm_request_options, early_stopping, 180)
FIELD(nvllm_request_options, structure, 184)
FIELD(nvllm_request_options, structure_kind, 192)
FIELD(nvllm_request_options, reserved, 196)
FIELD(nvllm_request_options, tools, 200)
FIELD(nvllm_request_options, tool_name, 208)
FIELD(nvllm_request_options, tool_choice, 216)
FIELD(nvllm_request_options, parallel_tool_calls, 220)
FIELD(nvllm_request_options, strict_tools, 224)
FIELD(nvllm_request_options, keep_special_tokens, 228)
FIELD(nvllm_request_options, max_thinking_tokens, 232)
FIELD(nvllm_request_options, reserved_too, 236)
FIELD(nvllm_request_options, dry_sequence_breakers, 240)
FIELD(nvllm_request_options, num_dry_sequence_breakers, 248)
FIELD(nvllm_request_options, dry_multiplier, 256)
FIELD(nvllm_request_options, dry_base, 260)
FIELD(nvllm_request_options, dry_allowed_length, 264)
FIELD(nvllm_request_options, dry_penalty_last_n, 268)
FIELD(nvllm_request_options, top_n_sigma, 272)
FIELD(nvllm_request_options, xtc_probability, 276)
FIELD(nvllm_request_options, xtc_threshold, 280)
FIELD(nvllm_request_options, reserved_last, 284)
FIELD(nvllm_request_options, embedding_dimensions, 288)
FIELD(nvllm_request_options, reserved_of_dimensions, 292)
FIELD(nvllm_request_options, score_tokens, 296)
FIELD(nvllm_request_options, num_score_tokens, 304)
FIELD(nvllm_request_options, truncate_prompt_tokens, 312)
FIELD(nvllm_request_options, reserved_of_truncation, 316)

SIZE(nvllm_message, 16)
FIELD(nvllm_message, role, 0)
FIELD(nvllm_message, content, 8)

SIZE(nvllm_step_result, 48)
FIELD(nvllm_step_result, struct_size, 0)
FIELD(nvllm_step_result, num_outputs, 8)
FIELD(nvllm_step_result, num_running, 12)
FIELD(nvllm_step_result, num_waiting, 16)
FIELD(nvllm_step_result, num_iterations, 20)
FIELD(nvllm_step_result, in_flight, 24)
FIELD(nvllm_step_result, prefill_tokens, 28)
FIELD(nvllm_step_result, decode_tokens, 32)
FIELD(nvllm_step_result, elapsed_us, 40)

SIZE(nvllm_output, 208)
FIELD(nvllm_output, struct_size, 0)
FIELD(nvllm_output, request_id, 8)
FIELD(nvllm_output, tag, 16)
FIELD(nvllm_output, token_ids, 24)
FIELD(nvllm_output, num_token_ids, 32)
FIELD(nvllm_output, text, 40)
FIELD(nvllm_output, text_len, 48)
FIELD(nvllm_output, index, 56)
FIELD(nvllm_output, finish_reason, 60)
FIELD(nvllm_output, status, 64)
FIELD(nvllm_output, prompt_tokens, 68)
FIELD(nvllm_output, cached_tokens, 72)
FIELD(nvllm_output, completion_tokens, 76)
FIELD(nvllm_output, time_to_first_token_us, 80)
FIELD(nvllm_output, logprobs, 88)
FIELD(nvllm_output, top_tokens, 96)
FIELD(nvllm_output, top_logprobs, 104)
FIELD(nvllm_output, cumulative_logprob, 112)
FIELD(nvllm_output, error_message, 120)
FIELD(nvllm_output, embedding, 128)
FIELD(nvllm_output, embedding_len, 136)
FIELD(nvllm_output, num_logprobs, 144)
FIELD(nvllm_output, num_prompt_logprobs, 148)
FIELD(nvllm_output, prompt_logprobs, 152)
FIELD(nvllm_output, prompt_top_tokens, 160)
FIELD(nvllm_output, prompt_top_logprobs, 168)
FIELD(nvllm_output, score, 176)
FIELD(nvllm_output, reserved, 180)
FIELD(nvllm_output, reasoning_tokens, 184)
FIELD(nvllm_output, scores, 192)
FIELD(nvllm_output, num_scores, 200)

SIZE(nvllm_progress, 64)
FIELD(nvllm_progress, struct_size, 0)
FIELD(nvllm_progress, finished, 8)
FIELD(nvllm_progress, total, 16)
FIELD(nvllm_progress, prefill_tokens_per_s, 24)
FIELD(nvllm_progress, decode_tokens_per_s, 32)
FIELD(nvllm_progress, elapsed_us, 40)
FIELD(nvllm_progress, prompt_tokens, 48)
FIELD(nvllm_progress, generated_tokens, 56)

SIZE(nvllm_prompt, 72)
FIELD(nvllm_prompt, struct_size, 0)
FIELD(nvllm_prompt, text, 8)
FIELD(nvllm_prompt, text_len, 16)
FIELD(nvllm_prompt, tokens, 24)
FIELD(nvllm_prompt, num_tokens, 32)
FIELD(nvllm_prompt, messages, 40)
FIELD(nvllm_prompt, num_messages, 48)
FIELD(nvllm_prompt, template_options, 56)
FIELD(nvllm_prompt, options, 64)

SIZE(nvllm_answer_event, 24)
FIELD(nvllm_answer_event, kind, 0)
FIELD(nvllm_answer_event, call_index, 4)
FIELD(nvllm_answer_event, text, 8)
FIELD(nvllm_answer_event, text_len, 16)

SIZE(nvllm_stats, 136)
FIELD(nvllm_stats, struct_size, 0)
FIELD(nvllm_stats, steps, 8)
FIELD(nvllm_stats, prompt_tokens, 16)
FIELD(nvllm_stats, cached_tokens, 24)
FIELD(nvllm_stats, generated_tokens, 32)
FIELD(nvllm_stats, preemptions, 40)
FIELD(nvllm_stats, step_time_us, 48)
FIELD(nvllm_stats, running, 56)
FIELD(nvllm_stats, waiting, 60)
FIELD(nvllm_stats, kv_blocks_total, 64)
FIELD(nvllm_stats, kv_blocks_used, 68)
FIELD(nvllm_stats, log_messages_dropped, 72)
FIELD(nvllm_stats, prefix_cache_queries, 80)
FIELD(nvllm_stats, prefix_cache_hits, 88)
FIELD(nvllm_stats, prefix_cache_evictions, 96)
FIELD(nvllm_stats, kv_blocks_pinned, 104)
FIELD(nvllm_stats, gpu_memory_bytes, 112)
FIELD(nvllm_stats, kv_cache_bytes_mapped, 120)
FIELD(nvllm_stats, prefix_cache_recomputed, 128)

VALUE(NVLLM_OK, 0)
VALUE(NVLLM_NO_OUTPUT, 1)
VALUE(NVLLM_CLOSED, 2)
VALUE(NVLLM_TIMEOUT, 3)
VALUE(NVLLM_ERR_INVALID_ARGUMENT, -1)
VALUE(NVLLM_ERR_BUFFER_TOO_SMALL, -2)
VALUE(NVLLM_ERR_BUSY, -3)
VALUE(NVLLM_ERR_PANIC, -4)
VALUE(NVLLM_ERR_NOT_FOUND, -5)
VALUE(NVLLM_ERR_OUT_OF_MEMORY, -6)
VALUE(NVLLM_ERR_IO, -7)
VALUE(NVLLM_ERR_MODEL, -8)
VALUE(NVLLM_ERR_DEVICE, -9)
VALUE(NVLLM_ERR_CANCELLED, -10)
VALUE(NVLLM_ERR_UNSUPPORTED, -11)
VALUE(NVLLM_ERR_QUEUE_FULL, -12)
VALUE(NVLLM_ERR_CONTEXT_LENGTH, -13)
VALUE(NVLLM_ERR_PEER, -14)

VALUE(NVLLM_LOG_OFF, 0)
VALUE(NVLLM_LOG_ERROR, 1)
VALUE(NVLLM_LOG_WARN, 2)
VALUE(NVLLM_LOG_INFO, 3)
VALUE(NVLLM_LOG_DEBUG, 4)

VALUE(NVLLM_DEVICE_AUTO, 0)
VALUE(NVLLM_DEVICE_CPU, 1)
VALUE(NVLLM_DEVICE_CUDA, 2)

VALUE(NVLLM_DTYPE_AUTO, 0)
VALUE(NVLLM_DTYPE_F32, 1)
VALUE(NVLLM_DTYPE_F16, 2)
VALUE(NVLLM_DTYPE_BF16, 3)

VALUE(NVLLM_KV_CACHE_AUTO, 0)
VALUE(NVLLM_KV_CACHE_INT8, 1)

VALUE(NVLLM_LOAD_MAP, 0)
VALUE(NVLLM_LOAD_READ, 1)

VALUE(NVLLM_QUANTIZATION_NONE, 0)
VALUE(NVLLM_QUANTIZATION_INT8, 1)
VALUE(NVLLM_QUANTIZATION_INT4, 2)

VALUE(NVLLM_CODING_NONE, 0)
VALUE(NVLLM_CODING_F32, 1)
VALUE(NVLLM_CODING_F16, 2)
VALUE(NVLLM_CODING_BF16, 3)
VALUE(NVLLM_CODING_INT8, 4)
VALUE(NVLLM_CODING_INT4, 5)
VALUE(NVLLM_CODING_FP8, 6)
VALUE(NVLLM_CODING_FP4, 7)
VALUE(NVLLM_CODING_Q8_0, 8)
VALUE(NVLLM_CODING_Q4_0, 9)
VALUE(NVLLM_CODING_Q4_1, 10)
VALUE(NVLLM_CODING_Q5_0, 11)
VALUE(NVLLM_CODING_Q5_1, 12)
VALUE(NVLLM_CODING_Q4_K, 13)
VALUE(NVLLM_CODING_Q5_K, 14)
VALUE(NVLLM_CODING_Q6_K, 15)
VALUE(NVLLM_CODING_IQ4_NL, 16)
VALUE(NVLLM_CODING_IQ4_XS, 17)
VALUE(NVLLM_CODING_Q2_K, 18)
VALUE(NVLLM_CODING_Q3_K, 19)
VALUE(NVLLM_CODING_MXFP4, 20)
VALUE(NVLLM_CODING_IQ2_XXS, 21)
VALUE(NVLLM_CODING_IQ2_XS, 22)
VALUE(NVLLM_CODING_IQ2_S, 23)
VALUE(NVLLM_CODING_IQ3_XXS, 24)
VALUE(NVLLM_CODING_IQ3_S, 25)
VALUE(NVLLM_CODING_IQ1_S, 26)
VALUE(NVLLM_CODING_IQ1_M, 27)
VALUE(NVLLM_CODING_TQ1_0, 28)
VALUE(NVLLM_CODING_TQ2_0, 29)

VALUE(NVLLM_FILE_MEMORY, 0)
VALUE(NVLLM_FILE_RANGE, 1)

VALUE(NVLLM_POOLING_NONE, 0)
VALUE(NVLLM_POOLING_LAST, 1)
VALUE(NVLLM_POOLING_MEAN, 2)
VALUE(NVLLM_POOLING_CLS, 3)
VALUE(NVLLM_POOLING_AUTO, 4)

VALUE(NVLLM_EARLY_STOPPING_HEURISTIC, 0)
VALUE(NVLLM_EARLY_STOPPING_AT_ONCE, 1)
VALUE(NVLLM_EARLY_STOPPING_NEVER, 2)

VALUE(NVLLM_STRUCTURE_NONE, 0)
VALUE(NVLLM_STRUCTURE_JSON_SCHEMA, 1)
VALUE(NVLLM_STRUCTURE_REGEX, 2)
VALUE(NVLLM_STRUCTURE_LARK, 3)

VALUE(NVLLM_TOOL_CHOICE_AUTO, 0)
VALUE(NVLLM_TOOL_CHOICE_NONE, 1)
VALUE(NVLLM_TOOL_CHOICE_REQUIRED, 2)
VALUE(NVLLM_TOOL_CHOICE_NAMED, 3)

VALUE(NVLLM_FINISH_NONE, 0)
VALUE(NVLLM_FINISH_STOP, 1)
VALUE(NVLLM_FINISH_LENGTH, 2)
VALUE(NVLLM_FINISH_CANCELLED, 3)
VALUE(NVLLM_FINISH_ERROR, 4)
VALUE(NVLLM_FINISH_EXPIRED, 5)

VALUE(NVLLM_TOKENIZE_ADD_SPECIAL, 1)
VALUE(NVLLM_TOKENIZE_PARSE_SPECIAL, 2)

VALUE(NVLLM_ANSWER_CONTENT, 1)
VALUE(NVLLM_ANSWER_REASONING, 2)
VALUE(NVLLM_ANSWER_TOOL_CALL_BEGIN, 3)
VALUE(NVLLM_ANSWER_TOOL_CALL_ARGUMENTS, 4)
VALUE(NVLLM_ANSWER_TOOL_CALL_END, 5)
VALUE(NVLLM_ANSWER_TOOL_CALL_BROKEN, 6)

const char *nvllm_status_name(nvllm_status);
const char *nvllm_version(void);
uint32_t nvllm_abi_version(void);
const char *nvllm_build_info(void);
typedef void (*nvllm_log_fn)(int32_t, const char *, size_t, void *);
void nvllm_set_log_callback(nvllm_log_fn, void *, int32_t);
typedef int32_t (*nvllm_progress_fn)(float, void *);
void nvllm_engine_config_init(nvllm_engine_config *, size_t);
nvllm_status nvllm_engine_new(const nvllm_engine_config *, nvllm_engine **, nvllm_error *);
void nvllm_engine_free(nvllm_engine *);
void nvllm_model_info_init(nvllm_model_info *, size_t);
nvllm_status nvllm_engine_model_info(const nvllm_engine *, nvllm_model_info *, nvllm_error *);
void nvllm_model_file_init(nvllm_model_file *, size_t);
nvllm_status nvllm_engine_new_from(const nvllm_engine_config *, const nvllm_model_file *, size_t, nvllm_engine **, nvllm_error *);
nvllm_status nvllm_quantize_folder(const char *, const char *, int32_t, nvllm_progress_fn, void *, nvllm_error *);
void nvllm_explain_options_init(nvllm_explain_options *, size_t);
nvllm_status nvllm_explain(const nvllm_engine_config *, const nvllm_explain_options *, char *, size_t, size_t *, nvllm_error *);
void nvllm_request_options_init(nvllm_request_options *, size_t);
nvllm_status nvllm_default_options(const nvllm_engine *, nvllm_request_options *, nvllm_error *);
nvllm_status nvllm_add_request(nvllm_engine *, const char *, size_t, const nvllm_request_options *, uint64_t *, nvllm_error *);
nvllm_status nvllm_add_request_tokens(nvllm_engine *, const uint32_t *, size_t, const nvllm_request_options *, uint64_t *, nvllm_error *);
nvllm_status nvllm_cancel(nvllm_engine *, uint64_t);
nvllm_status nvllm_cancel_with_error(nvllm_engine *, uint64_t, nvllm_error *);
nvllm_status nvllm_add_chat(nvllm_engine *, const nvllm_message *, size_t, const char *, const nvllm_request_options *, uint64_t *, nvllm_error *);
nvllm_status nvllm_apply_chat_template_messages(const nvllm_engine *, const nvllm_message *, size_t, const char *, char *, size_t, size_t *, nvllm_error *);
typedef int32_t (*nvllm_output_fn)(const nvllm_output *, void *);
void nvllm_step_result_init(nvllm_step_result *, size_t);
nvllm_status nvllm_step(nvllm_engine *, uint64_t, nvllm_step_result *, nvllm_error *);
nvllm_status nvllm_wait(const nvllm_engine *, uint64_t, nvllm_error *);
nvllm_status nvllm_wake(const nvllm_engine *, nvllm_error *);
int32_t nvllm_is_finished(const nvllm_engine *);
void nvllm_output_init(nvllm_output *, size_t);
nvllm_status nvllm_poll_output(nvllm_engine *, nvllm_output *, nvllm_error *);
nvllm_status nvllm_set_output_callback(nvllm_engine *, nvllm_output_fn, void *, nvllm_error *);
typedef int32_t (*nvllm_generate_progress_fn)(const nvllm_progress *, void *);
nvllm_status nvllm_generate(nvllm_engine *, const char *const *, const size_t *, size_t, const nvllm_request_options *const *, size_t, nvllm_generate_progress_fn, void *, nvllm_result **, nvllm_error *);
nvllm_status nvllm_generate_tokens(nvllm_engine *, const uint32_t *const *, const size_t *, size_t, const nvllm_request_options *const *, size_t, nvllm_generate_progress_fn, void *, nvllm_result **, nvllm_error *);
void nvllm_prompt_init(nvllm_prompt *, size_t);
nvllm_status nvllm_generate_prompts(nvllm_engine *, const nvllm_prompt *, size_t, nvllm_generate_progress_fn, void *, nvllm_result **, nvllm_error *);
size_t nvllm_result_count(const nvllm_result *);
nvllm_status nvllm_result_get(const nvllm_result *, size_t, nvllm_output *);
nvllm_status nvllm_result_get_with_error(const nvllm_result *, size_t, nvllm_output *, nvllm_error *);
void nvllm_result_free(nvllm_result *);
nvllm_status nvllm_score(nvllm_engine *, const char *const *, const char *const *, size_t, const nvllm_request_options *const *, size_t, nvllm_generate_progress_fn, void *, nvllm_result **, nvllm_error *);
nvllm_status nvllm_add_request_pair(nvllm_engine *, const char *, const char *, const nvllm_request_options *, uint64_t *, nvllm_error *);
nvllm_status nvllm_label(const nvllm_engine *, size_t, char *, size_t, size_t *, nvllm_error *);
nvllm_status nvllm_named_prompt(const nvllm_engine *, const char *, char *, size_t, size_t *, nvllm_error *);
nvllm_status nvllm_reset_prefix_cache(nvllm_engine *, nvllm_error *);
nvllm_status nvllm_trim(nvllm_engine *, uint64_t *, nvllm_error *);
nvllm_status nvllm_release_prefix(nvllm_engine *, uint64_t);
nvllm_status nvllm_release_prefix_with_error(nvllm_engine *, uint64_t, nvllm_error *);
nvllm_status nvllm_save_prefix(nvllm_engine *, const uint32_t *, size_t, uint64_t, uint8_t *, size_t, size_t *, size_t *, nvllm_error *);
nvllm_status nvllm_restore_prefix(nvllm_engine *, const uint8_t *, size_t, size_t *, nvllm_error *);
nvllm_status nvllm_fork(nvllm_engine *, uint64_t, uint32_t, const nvllm_request_options *, uint64_t *, nvllm_error *);
nvllm_status nvllm_tokenize(const nvllm_engine *, const char *, size_t, uint32_t, uint32_t *, size_t, size_t *, nvllm_error *);
nvllm_status nvllm_detokenize(const nvllm_engine *, const uint32_t *, size_t, uint32_t, char *, size_t, size_t *, nvllm_error *);
nvllm_status nvllm_apply_chat_template(const nvllm_engine *, const char *, size_t, const char *, size_t, char *, size_t, size_t *, nvllm_error *);
nvllm_status nvllm_answer_parser_new(const nvllm_engine *, const char *, size_t, const char *, nvllm_answer_parser **, nvllm_error *);
nvllm_status nvllm_answer_parser_feed(nvllm_answer_parser *, const char *, size_t, const nvllm_answer_event **, size_t *, nvllm_error *);
nvllm_status nvllm_answer_parser_finish(nvllm_answer_parser *, const nvllm_answer_event **, size_t *, nvllm_error *);
nvllm_status nvllm_answer_parser_message(const nvllm_answer_parser *, char *, size_t, size_t *, nvllm_error *);
void nvllm_answer_parser_free(nvllm_answer_parser *);
void nvllm_stats_init(nvllm_stats *, size_t);
nvllm_status nvllm_get_stats(const nvllm_engine *, nvllm_stats *, nvllm_error *);
nvllm_status nvllm_expert_tokens(nvllm_engine *, size_t, uint64_t *, size_t, size_t *, nvllm_error *);
nvllm_status nvllm_metrics_text(const nvllm_engine *, char *, size_t, size_t *, nvllm_error *);

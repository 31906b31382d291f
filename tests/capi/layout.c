/* Pins every offset and every prototype of the header: a change here is a break of the ABI. Compiling it is the test.
 *
 * A new field goes behind the last one, on a new multiple of 8: padding at the end of a struct is not free to use, because an
 * older caller leaves anything there under the same struct_size.
 */
#include <nanovllm.h>
#include <stddef.h>

#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field " moved")
#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type " changed its size")

_Static_assert(sizeof(void *) == 8, "these offsets are those of 64-bit platforms");

SIZE(nvllm_error, 512);
AT(nvllm_error, status, 0);
AT(nvllm_error, native_code, 4);
AT(nvllm_error, message, 8);

SIZE(nvllm_engine_config, 112);
AT(nvllm_engine_config, struct_size, 0);
AT(nvllm_engine_config, model_path, 8);
AT(nvllm_engine_config, device, 16);
AT(nvllm_engine_config, device_index, 20);
AT(nvllm_engine_config, dtype, 24);
AT(nvllm_engine_config, num_threads, 28);
AT(nvllm_engine_config, max_model_len, 32);
AT(nvllm_engine_config, max_num_seqs, 36);
AT(nvllm_engine_config, max_batched_tokens, 40);
AT(nvllm_engine_config, max_queue, 44);
AT(nvllm_engine_config, kv_block_size, 48);
AT(nvllm_engine_config, enable_prefix_cache, 52);
AT(nvllm_engine_config, kv_cache_bytes, 56);
AT(nvllm_engine_config, memory_utilization, 64);
AT(nvllm_engine_config, tensor_parallel_size, 68);
AT(nvllm_engine_config, enforce_eager, 72);
AT(nvllm_engine_config, batch_invariant, 76);
AT(nvllm_engine_config, seed, 80);
AT(nvllm_engine_config, progress, 88);
AT(nvllm_engine_config, progress_user_data, 96);
AT(nvllm_engine_config, load_mode, 104);

SIZE(nvllm_model_info, 80);
AT(nvllm_model_info, struct_size, 0);
AT(nvllm_model_info, vocab_size, 8);
AT(nvllm_model_info, max_model_len, 12);
AT(nvllm_model_info, num_layers, 16);
AT(nvllm_model_info, hidden_size, 20);
AT(nvllm_model_info, bos_token, 24);
AT(nvllm_model_info, eos_token, 28);
AT(nvllm_model_info, num_parameters, 32);
AT(nvllm_model_info, weight_bytes, 40);
AT(nvllm_model_info, kv_cache_bytes, 48);
AT(nvllm_model_info, num_kv_blocks, 56);
AT(nvllm_model_info, kv_block_size, 60);
AT(nvllm_model_info, device, 64);
AT(nvllm_model_info, device_index, 68);
AT(nvllm_model_info, max_num_seqs, 72);
AT(nvllm_model_info, max_batched_tokens, 76);

SIZE(nvllm_request_options, 200);
AT(nvllm_request_options, struct_size, 0);
AT(nvllm_request_options, tag, 8);
AT(nvllm_request_options, max_tokens, 16);
AT(nvllm_request_options, min_tokens, 20);
AT(nvllm_request_options, temperature, 24);
AT(nvllm_request_options, top_p, 28);
AT(nvllm_request_options, min_p, 32);
AT(nvllm_request_options, top_k, 36);
AT(nvllm_request_options, repetition_penalty, 40);
AT(nvllm_request_options, presence_penalty, 44);
AT(nvllm_request_options, frequency_penalty, 48);
AT(nvllm_request_options, seed, 56);
AT(nvllm_request_options, ignore_eos, 64);
AT(nvllm_request_options, priority, 68);
AT(nvllm_request_options, stop, 72);
AT(nvllm_request_options, num_stop, 80);
AT(nvllm_request_options, stop_tokens, 88);
AT(nvllm_request_options, num_stop_tokens, 96);
AT(nvllm_request_options, bias_tokens, 104);
AT(nvllm_request_options, bias_values, 112);
AT(nvllm_request_options, num_bias, 120);
AT(nvllm_request_options, num_logprobs, 128);
AT(nvllm_request_options, n, 132);
AT(nvllm_request_options, beam_width, 136);
AT(nvllm_request_options, length_penalty, 140);
AT(nvllm_request_options, include_stop, 144);
AT(nvllm_request_options, max_wait_us, 152);
AT(nvllm_request_options, cache_salt, 160);
AT(nvllm_request_options, pin_prompt, 168);
AT(nvllm_request_options, pooling, 172);
AT(nvllm_request_options, num_prompt_logprobs, 176);
AT(nvllm_request_options, early_stopping, 180);
AT(nvllm_request_options, structure, 184);
AT(nvllm_request_options, structure_kind, 192);

SIZE(nvllm_step_result, 48);
AT(nvllm_step_result, struct_size, 0);
AT(nvllm_step_result, num_outputs, 8);
AT(nvllm_step_result, num_running, 12);
AT(nvllm_step_result, num_waiting, 16);
AT(nvllm_step_result, num_iterations, 20);
AT(nvllm_step_result, in_flight, 24);
AT(nvllm_step_result, prefill_tokens, 28);
AT(nvllm_step_result, decode_tokens, 32);
AT(nvllm_step_result, elapsed_us, 40);

SIZE(nvllm_output, 184);
AT(nvllm_output, struct_size, 0);
AT(nvllm_output, request_id, 8);
AT(nvllm_output, tag, 16);
AT(nvllm_output, token_ids, 24);
AT(nvllm_output, num_token_ids, 32);
AT(nvllm_output, text, 40);
AT(nvllm_output, text_len, 48);
AT(nvllm_output, index, 56);
AT(nvllm_output, finish_reason, 60);
AT(nvllm_output, status, 64);
AT(nvllm_output, prompt_tokens, 68);
AT(nvllm_output, cached_tokens, 72);
AT(nvllm_output, completion_tokens, 76);
AT(nvllm_output, time_to_first_token_us, 80);
AT(nvllm_output, logprobs, 88);
AT(nvllm_output, top_tokens, 96);
AT(nvllm_output, top_logprobs, 104);
AT(nvllm_output, cumulative_logprob, 112);
AT(nvllm_output, error_message, 120);
AT(nvllm_output, embedding, 128);
AT(nvllm_output, embedding_len, 136);
AT(nvllm_output, num_logprobs, 144);
AT(nvllm_output, num_prompt_logprobs, 148);
AT(nvllm_output, prompt_logprobs, 152);
AT(nvllm_output, prompt_top_tokens, 160);
AT(nvllm_output, prompt_top_logprobs, 168);
AT(nvllm_output, score, 176);

SIZE(nvllm_progress, 48);
AT(nvllm_progress, struct_size, 0);
AT(nvllm_progress, finished, 8);
AT(nvllm_progress, total, 16);
AT(nvllm_progress, prefill_tokens_per_s, 24);
AT(nvllm_progress, decode_tokens_per_s, 32);
AT(nvllm_progress, elapsed_us, 40);

SIZE(nvllm_stats, 112);
AT(nvllm_stats, struct_size, 0);
AT(nvllm_stats, steps, 8);
AT(nvllm_stats, prompt_tokens, 16);
AT(nvllm_stats, cached_tokens, 24);
AT(nvllm_stats, generated_tokens, 32);
AT(nvllm_stats, preemptions, 40);
AT(nvllm_stats, step_time_us, 48);
AT(nvllm_stats, running, 56);
AT(nvllm_stats, waiting, 60);
AT(nvllm_stats, kv_blocks_total, 64);
AT(nvllm_stats, kv_blocks_used, 68);
AT(nvllm_stats, log_messages_dropped, 72);
AT(nvllm_stats, prefix_cache_queries, 80);
AT(nvllm_stats, prefix_cache_hits, 88);
AT(nvllm_stats, prefix_cache_evictions, 96);
AT(nvllm_stats, kv_blocks_pinned, 104);

/* Every prototype: a changed parameter makes these pointers incompatible. */
static const char *(*const status_name)(nvllm_status) = nvllm_status_name;
static const char *(*const version)(void) = nvllm_version;
static uint32_t (*const abi_version)(void) = nvllm_abi_version;
static const char *(*const build_info)(void) = nvllm_build_info;
static void (*const set_log_callback)(nvllm_log_fn, void *, int32_t) = nvllm_set_log_callback;
static void (*const engine_config_init)(nvllm_engine_config *, size_t) = nvllm_engine_config_init;
static nvllm_status (*const engine_new)(const nvllm_engine_config *, nvllm_engine **, nvllm_error *) = nvllm_engine_new;
static void (*const engine_free)(nvllm_engine *) = nvllm_engine_free;
static nvllm_status (*const engine_model_info)(const nvllm_engine *, nvllm_model_info *, nvllm_error *) =
    nvllm_engine_model_info;
static void (*const request_options_init)(nvllm_request_options *, size_t) = nvllm_request_options_init;
static nvllm_status (*const add_request)(nvllm_engine *, const char *, size_t, const nvllm_request_options *, uint64_t *,
                                         nvllm_error *) = nvllm_add_request;
static nvllm_status (*const add_request_tokens)(nvllm_engine *, const uint32_t *, size_t, const nvllm_request_options *,
                                                uint64_t *, nvllm_error *) = nvllm_add_request_tokens;
static nvllm_status (*const cancel)(nvllm_engine *, uint64_t) = nvllm_cancel;
static nvllm_status (*const step)(nvllm_engine *, uint64_t, nvllm_step_result *, nvllm_error *) = nvllm_step;
static int32_t (*const is_finished)(const nvllm_engine *) = nvllm_is_finished;
static nvllm_status (*const poll_output)(nvllm_engine *, nvllm_output *, nvllm_error *) = nvllm_poll_output;
static nvllm_status (*const set_output_callback)(nvllm_engine *, nvllm_output_fn, void *, nvllm_error *) =
    nvllm_set_output_callback;
static nvllm_status (*const generate)(nvllm_engine *, const char *const *, const size_t *, size_t,
                                      const nvllm_request_options *const *, size_t, nvllm_generate_progress_fn, void *,
                                      nvllm_result **, nvllm_error *) = nvllm_generate;
static nvllm_status (*const generate_tokens)(nvllm_engine *, const uint32_t *const *, const size_t *, size_t,
                                             const nvllm_request_options *const *, size_t, nvllm_generate_progress_fn,
                                             void *, nvllm_result **, nvllm_error *) = nvllm_generate_tokens;
static size_t (*const result_count)(const nvllm_result *) = nvllm_result_count;
static nvllm_status (*const result_get)(const nvllm_result *, size_t, nvllm_output *) = nvllm_result_get;
static void (*const result_free)(nvllm_result *) = nvllm_result_free;
static nvllm_status (*const reset_prefix_cache)(nvllm_engine *, nvllm_error *) = nvllm_reset_prefix_cache;
static nvllm_status (*const release_prefix)(nvllm_engine *, uint64_t) = nvllm_release_prefix;
static nvllm_status (*const save_prefix)(nvllm_engine *, const uint32_t *, size_t, uint64_t, uint8_t *, size_t, size_t *,
                                         size_t *, nvllm_error *) = nvllm_save_prefix;
static nvllm_status (*const restore_prefix)(nvllm_engine *, const uint8_t *, size_t, size_t *, nvllm_error *) =
    nvllm_restore_prefix;
static nvllm_status (*const fork_request)(nvllm_engine *, uint64_t, uint32_t, const nvllm_request_options *, uint64_t *,
                                          nvllm_error *) = nvllm_fork;
static nvllm_status (*const tokenize)(const nvllm_engine *, const char *, size_t, uint32_t, uint32_t *, size_t, size_t *,
                                      nvllm_error *) = nvllm_tokenize;
static nvllm_status (*const detokenize)(const nvllm_engine *, const uint32_t *, size_t, uint32_t, char *, size_t, size_t *,
                                        nvllm_error *) = nvllm_detokenize;
static nvllm_status (*const apply_chat_template)(const nvllm_engine *, const char *, size_t, const char *, size_t, char *,
                                                 size_t, size_t *, nvllm_error *) = nvllm_apply_chat_template;
static nvllm_status (*const metrics_text)(const nvllm_engine *, char *, size_t, size_t *, nvllm_error *) = nvllm_metrics_text;
static nvllm_status (*const get_stats)(const nvllm_engine *, nvllm_stats *, nvllm_error *) = nvllm_get_stats;

int main(void) {
  return !(status_name && version && abi_version && build_info && set_log_callback && engine_config_init && engine_new &&
           engine_free && engine_model_info && request_options_init && add_request && add_request_tokens && cancel && step &&
           is_finished && poll_output && set_output_callback && generate && generate_tokens && result_count && result_get &&
           result_free && reset_prefix_cache && release_prefix && save_prefix &&
           restore_prefix && fork_request && tokenize && detokenize && apply_chat_template && metrics_text && get_stats);
}

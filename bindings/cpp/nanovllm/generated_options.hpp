// Generated from nanovllm.h by scripts/header.sh: change src/ffi, then run make header. Included by options.hpp.
#ifndef NANOVLLM_GENERATED_OPTIONS_HPP
#define NANOVLLM_GENERATED_OPTIONS_HPP

namespace nvllm {

/// Where an engine computes.
enum class device : int32_t {
  automatic = NVLLM_DEVICE_AUTO,
  cpu = NVLLM_DEVICE_CPU,
  cuda = NVLLM_DEVICE_CUDA,
};

/// Number types of weights and KV cache.
enum class dtype : int32_t {
  automatic = NVLLM_DTYPE_AUTO,
  f32 = NVLLM_DTYPE_F32,
  f16 = NVLLM_DTYPE_F16,
  bf16 = NVLLM_DTYPE_BF16,
};

/// How the weights of a model come into memory.
enum class load_mode : int32_t {
  map = NVLLM_LOAD_MAP,
  read = NVLLM_LOAD_READ,
};

/// What is made of a prompt's final hidden states, which are those after the model's last norm.
enum class pooling : uint32_t {
  none = NVLLM_POOLING_NONE,
  last = NVLLM_POOLING_LAST,
  mean = NVLLM_POOLING_MEAN,
};

/// What kind of text structure is.
enum class structure : int32_t {
  none = NVLLM_STRUCTURE_NONE,
  json_schema = NVLLM_STRUCTURE_JSON_SCHEMA,
  regex = NVLLM_STRUCTURE_REGEX,
  lark = NVLLM_STRUCTURE_LARK,
};

/// nvllm_engine_config: what is not set has the library's default, and model_path has none.
struct engine_options {
  /// The model folder as Hugging Face lays it out, NUL-terminated UTF-8. Required.
  std::string model_path = {};
  /// NVLLM_DEVICE_*; default NVLLM_DEVICE_AUTO.
  std::optional<nvllm::device> device = {};
  /// Which GPU of those the driver shows; 0 on the CPU.
  std::optional<int32_t> device_index = {};
  /// NVLLM_DTYPE_*; default NVLLM_DTYPE_AUTO.
  std::optional<nvllm::dtype> dtype = {};
  /// Threads that compute, the one that steps included; 0 = all cores.
  std::optional<uint32_t> num_threads = {};
  /// Tokens of one sequence, prompt and answer together; 0 = the model's maximum, but at most 1048576.
  std::optional<uint32_t> max_model_len = {};
  /// Sequences that run at once; others wait; 0 = default of the device.
  std::optional<uint32_t> max_num_seqs = {};
  /// New tokens in one forward pass; 0 = default of the device.
  std::optional<uint32_t> max_batched_tokens = {};
  /// Requests that may wait, each of their completions counted; 0 = NVLLM_MAX_QUEUED_COMPLETIONS. A request whose n is greater
  /// can never be queued, and is refused as such.
  std::optional<uint32_t> max_queue = {};
  /// Tokens of a KV block; 0 = default of the device.
  std::optional<uint32_t> kv_block_size = {};
  /// 0 or 1: prompts share the KV blocks of equal beginnings; default 1.
  std::optional<bool> enable_prefix_cache = {};
  /// Bytes for the KV cache; 0 = by memory_utilization.
  std::optional<uint64_t> kv_cache_bytes = {};
  /// Share of the device's memory (on the CPU: of the free memory) this engine may hold, up to 1; 0 = default of the
  /// device (CPU: 0.5, CUDA: 0.9).
  std::optional<float> memory_utilization = {};
  /// GPUs that share the work; default 1, and the CPU takes no other.
  std::optional<uint32_t> tensor_parallel_size = {};
  /// 0 or 1: no CUDA graphs. On the CPU it changes nothing.
  std::optional<bool> enforce_eager = {};
  /// 0 or 1: the same logits whatever else is in the batch, bit for bit. On the CPU it is always so; on CUDA it takes slower
  /// kernels.
  std::optional<bool> batch_invariant = {};
  /// Seed of requests that bring none; 0 = drawn from the system.
  std::optional<uint64_t> seed = {};
  /// Called inside nvllm_engine_new only; may be NULL.
  std::function<bool(float)> progress = {};
  /// NVLLM_LOAD_*; default NVLLM_LOAD_MAP.
  std::optional<nvllm::load_mode> load_mode = {};
};

/// nvllm_request_options: what is not set has the library's default, which is greedy and without limits. Where a function
/// takes no options, those of engine::default_options() hold, which the model recommends.
struct request_options {
  /// Echoed in every output: an index, a pointer, a handle.
  std::optional<uint64_t> tag = {};
  /// Tokens to generate at most, from 1; default UINT32_MAX, which is as far as max_model_len and the KV cache allow.
  std::optional<uint32_t> max_tokens = {};
  /// Tokens before which neither EOS nor a stop token nor the end of a stop string may come; default 0.
  std::optional<uint32_t> min_tokens = {};
  /// 0, the default, always takes the likeliest token; greater values vary more.
  std::optional<float> temperature = {};
  /// Sample from the likeliest tokens that together have this probability, above 0 and up to 1; default 1 = all.
  std::optional<float> top_p = {};
  /// Drop tokens less likely than this share of the likeliest one, 0 to 1; default 0 = none.
  std::optional<float> min_p = {};
  /// Sample from so many of the likeliest tokens; default 0 = all.
  std::optional<uint32_t> top_k = {};
  /// Divides the positive logits of tokens that the prompt or the answer has, and multiplies their negative ones: above 0,
  /// and more than 1 makes them rarer; default 1 = off. As in transformers.
  std::optional<float> repetition_penalty = {};
  /// Is taken from the logit of each token that the answer has; any finite number, default 0. As in the OpenAI API.
  std::optional<float> presence_penalty = {};
  /// Is taken from the logit of a token once for each time that the answer has it; any finite number, default 0.
  std::optional<float> frequency_penalty = {};
  /// The request's own random stream: the same seed, prompt and options give the same answer. 0, the default, draws from
  /// the engine's seed and the request's id.
  std::optional<uint64_t> seed = {};
  /// 0 or 1: the model's end tokens are tokens like any other; default 0.
  std::optional<bool> ignore_eos = {};
  /// Higher runs first; default 0.
  std::optional<int32_t> priority = {};
  /// Strings that end the answer, NUL-terminated UTF-8: its text ends before the first of them to be complete, also where
  /// tokens cut it. token_ids have all tokens, those that spell the string too. Needs a tokenizer.
  std::vector<std::string> stop = {};
  /// Tokens that end the answer, besides EOS.
  std::vector<uint32_t> stop_tokens = {};
  /// bias_values[i] is added to the logit of bias_tokens[i], after the penalties; each token once.
  std::vector<std::pair<uint32_t, float>> logit_bias = {};
  /// 0, the default, is none; else outputs bring the log-probability of each token and those of so many of the likeliest, up
  /// to 64. They are the model's own: before penalties, biases, temperature and filters.
  std::optional<uint32_t> num_logprobs = {};
  /// As num_logprobs, of the prompt: the output with the first token brings them, of completion 0 where n is more. All of the
  /// prompt is computed then, without the prefix cache, and max_num_seqs tokens of it in a pass at most.
  std::optional<uint32_t> num_prompt_logprobs = {};
  /// Completions of this prompt, 1 to NVLLM_MAX_COMPLETIONS; default 1. They share the KV blocks of the prompt, which is computed once, and
  /// each has its own outputs, told apart by index. Completion i draws as a request with seed + i does.
  std::optional<uint32_t> n = {};
  /// 0, the default, is sampling; from 2 on beam search with so many beams, whose n best answers come as completions 0 to
  /// n - 1, best first, all at the end. As transformers' num_beams. At most 32, and 64 / (1 + end tokens). It takes neither
  /// temperature, penalties, biases, stop strings nor num_logprobs.
  std::optional<uint32_t> beam_width = {};
  /// Answers of beam search are compared by the sum of their log-probabilities divided by their length to the power of this:
  /// more than 0 favours long ones; any finite number, default 1.
  std::optional<float> length_penalty = {};
  /// When beam search ends that has as many answers as beams: 0, the default, when the best beam, at its length, is no better
  /// than the worst of them; 1 at once; 2 when no beam can become better than the worst of them. As transformers'
  /// early_stopping False, True and "never".
  std::optional<uint32_t> early_stopping = {};
  /// 0 or 1: the token that stopped the answer is part of its tokens and text, or the string of its text; default 0.
  std::optional<bool> include_stop = {};
  /// How long the request may wait until it first runs: a step that finds it waiting after that ends it with
  /// NVLLM_FINISH_EXPIRED. 0, the default, is for ever.
  std::optional<uint64_t> max_wait_us = {};
  /// Requests with different salts share no KV blocks, so that no tenant can tell by time what another one has asked.
  /// Default 0, which is a salt like any other.
  std::optional<uint64_t> cache_salt = {};
  /// 0 or 1: the full KV blocks of the prompt stay in the prefix cache when the request has ended, until
  /// nvllm_release_prefix; default 0. All pins together may take what a sequence of max_model_len tokens leaves of the KV
  /// cache, so that no request waits for ever; beyond that the answer is NVLLM_ERR_OUT_OF_MEMORY.
  std::optional<bool> pin_prompt = {};
  /// One of NVLLM_STRUCTURE_*; default NVLLM_STRUCTURE_NONE. Of the tokens that the structure leaves, the other options
  /// choose. It may end the answer before min_tokens, where nothing can follow; stop strings, stop tokens and max_tokens
  /// may end it before it is complete. An answer that cannot go on ends with NVLLM_FINISH_ERROR. Needs a tokenizer.
  std::optional<nvllm::structure> structure_kind = {};
  /// What the text of the answer has to be, of the kind that structure_kind says, NUL-terminated UTF-8 of at most
  /// NVLLM_MAX_STRUCTURE_BYTES; default NULL. A refusal
  /// says what is wrong with it. A text that came before is not compiled again.
  std::string structure = {};
  /// NVLLM_POOLING_*; default NVLLM_POOLING_NONE. With another value the request generates nothing, and its one output has an
  /// embedding of the prompt and NVLLM_FINISH_STOP; n must be 1, beam_width 0, and what concerns generating is not looked at.
  std::optional<nvllm::pooling> pooling = {};
};

namespace detail {

/// Sets the numbers that `options` has, and leaves the others and every pointer as they are.
inline void assign_scalars(nvllm_engine_config& native, const engine_options& options) {
  assign(native.device, options.device);
  assign(native.device_index, options.device_index);
  assign(native.dtype, options.dtype);
  assign(native.num_threads, options.num_threads);
  assign(native.max_model_len, options.max_model_len);
  assign(native.max_num_seqs, options.max_num_seqs);
  assign(native.max_batched_tokens, options.max_batched_tokens);
  assign(native.max_queue, options.max_queue);
  assign(native.kv_block_size, options.kv_block_size);
  assign(native.enable_prefix_cache, options.enable_prefix_cache);
  assign(native.kv_cache_bytes, options.kv_cache_bytes);
  assign(native.memory_utilization, options.memory_utilization);
  assign(native.tensor_parallel_size, options.tensor_parallel_size);
  assign(native.enforce_eager, options.enforce_eager);
  assign(native.batch_invariant, options.batch_invariant);
  assign(native.seed, options.seed);
  assign(native.load_mode, options.load_mode);
}

/// Sets the numbers that `options` has, and leaves the others and every pointer as they are.
inline void assign_scalars(nvllm_request_options& native, const request_options& options) {
  assign(native.tag, options.tag);
  assign(native.max_tokens, options.max_tokens);
  assign(native.min_tokens, options.min_tokens);
  assign(native.temperature, options.temperature);
  assign(native.top_p, options.top_p);
  assign(native.min_p, options.min_p);
  assign(native.top_k, options.top_k);
  assign(native.repetition_penalty, options.repetition_penalty);
  assign(native.presence_penalty, options.presence_penalty);
  assign(native.frequency_penalty, options.frequency_penalty);
  assign(native.seed, options.seed);
  assign(native.ignore_eos, options.ignore_eos);
  assign(native.priority, options.priority);
  assign(native.num_logprobs, options.num_logprobs);
  assign(native.num_prompt_logprobs, options.num_prompt_logprobs);
  assign(native.n, options.n);
  assign(native.beam_width, options.beam_width);
  assign(native.length_penalty, options.length_penalty);
  assign(native.early_stopping, options.early_stopping);
  assign(native.include_stop, options.include_stop);
  assign(native.max_wait_us, options.max_wait_us);
  assign(native.cache_salt, options.cache_salt);
  assign(native.pin_prompt, options.pin_prompt);
  assign(native.structure_kind, options.structure_kind);
  assign(native.pooling, options.pooling);
}

/// The numbers of `native`, each set. Texts and lists stay empty.
inline request_options scalars_of(const nvllm_request_options& native) {
  request_options options;
  read(options.tag, native.tag);
  read(options.max_tokens, native.max_tokens);
  read(options.min_tokens, native.min_tokens);
  read(options.temperature, native.temperature);
  read(options.top_p, native.top_p);
  read(options.min_p, native.min_p);
  read(options.top_k, native.top_k);
  read(options.repetition_penalty, native.repetition_penalty);
  read(options.presence_penalty, native.presence_penalty);
  read(options.frequency_penalty, native.frequency_penalty);
  read(options.seed, native.seed);
  read(options.ignore_eos, native.ignore_eos);
  read(options.priority, native.priority);
  read(options.num_logprobs, native.num_logprobs);
  read(options.num_prompt_logprobs, native.num_prompt_logprobs);
  read(options.n, native.n);
  read(options.beam_width, native.beam_width);
  read(options.length_penalty, native.length_penalty);
  read(options.early_stopping, native.early_stopping);
  read(options.include_stop, native.include_stop);
  read(options.max_wait_us, native.max_wait_us);
  read(options.cache_salt, native.cache_salt);
  read(options.pin_prompt, native.pin_prompt);
  read(options.structure_kind, native.structure_kind);
  read(options.pooling, native.pooling);
  return options;
}

}  // namespace detail
}  // namespace nvllm

#endif

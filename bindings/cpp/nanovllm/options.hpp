// What an engine is opened with, and what a request asks for. A field that is not set has the default of nanovllm.h.
#ifndef NANOVLLM_OPTIONS_HPP
#define NANOVLLM_OPTIONS_HPP

#include <nanovllm.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

/// What is made of a prompt's final hidden states instead of generating.
enum class pooling : uint32_t {
  none = NVLLM_POOLING_NONE,
  last = NVLLM_POOLING_LAST,
  mean = NVLLM_POOLING_MEAN,
};

/// What kind of text a structure is.
enum class structure : int32_t {
  none = NVLLM_STRUCTURE_NONE,
  json_schema = NVLLM_STRUCTURE_JSON_SCHEMA,
  regex = NVLLM_STRUCTURE_REGEX,
  lark = NVLLM_STRUCTURE_LARK,
};

/// nvllm_engine_config: only model_path has no default.
struct engine_options {
  std::string model_path = {};
  std::optional<nvllm::device> device = {};
  std::optional<int32_t> device_index = {};
  std::optional<nvllm::dtype> dtype = {};
  std::optional<uint32_t> num_threads = {};
  std::optional<uint32_t> max_model_len = {};
  std::optional<uint32_t> max_num_seqs = {};
  std::optional<uint32_t> max_batched_tokens = {};
  std::optional<uint32_t> max_queue = {};
  std::optional<uint32_t> kv_block_size = {};
  std::optional<bool> enable_prefix_cache = {};
  std::optional<uint64_t> kv_cache_bytes = {};
  std::optional<float> memory_utilization = {};
  std::optional<uint32_t> tensor_parallel_size = {};
  std::optional<bool> enforce_eager = {};
  std::optional<bool> batch_invariant = {};
  std::optional<uint64_t> seed = {};
  /// Hears how much of the model is loaded, from 0 to 1; false cancels the load.
  std::function<bool(float)> progress = {};
  std::optional<nvllm::load_mode> load_mode = {};
};

/// nvllm_request_options. Where a function takes none, the model's own recommendation for sampling holds; with one,
/// what is not set is greedy and without limits.
struct request_options {
  std::optional<uint64_t> tag = {};
  std::optional<uint32_t> max_tokens = {};
  std::optional<uint32_t> min_tokens = {};
  std::optional<float> temperature = {};
  std::optional<float> top_p = {};
  std::optional<float> min_p = {};
  std::optional<uint32_t> top_k = {};
  std::optional<float> repetition_penalty = {};
  std::optional<float> presence_penalty = {};
  std::optional<float> frequency_penalty = {};
  std::optional<uint64_t> seed = {};
  std::optional<bool> ignore_eos = {};
  std::optional<int32_t> priority = {};
  std::vector<std::string> stop = {};
  std::vector<uint32_t> stop_tokens = {};
  /// Tokens, and what is added to their logits.
  std::vector<std::pair<uint32_t, float>> logit_bias = {};
  std::optional<uint32_t> num_logprobs = {};
  std::optional<uint32_t> num_prompt_logprobs = {};
  std::optional<uint32_t> n = {};
  std::optional<uint32_t> beam_width = {};
  std::optional<float> length_penalty = {};
  /// 0, 1 or 2.
  std::optional<uint32_t> early_stopping = {};
  std::optional<bool> include_stop = {};
  std::optional<uint64_t> max_wait_us = {};
  std::optional<uint64_t> cache_salt = {};
  std::optional<bool> pin_prompt = {};
  std::optional<nvllm::structure> structure_kind = {};
  /// The schema, expression or grammar.
  std::string structure = {};
  std::optional<nvllm::pooling> pooling = {};
};

namespace detail {

template <class Field, class Value>
void assign(Field& field, const std::optional<Value>& value) {
  if (value) field = static_cast<Field>(*value);
}

/// A text that the C API would take to end at a NUL byte inside it.
inline bool has_nul(const std::string& text) { return text.find('\0') != std::string::npos; }

/// The field whose text has a NUL byte; NULL when there is none.
inline const char* field_with_nul(const engine_options& options) {
  return has_nul(options.model_path) ? "model_path" : nullptr;
}
inline const char* field_with_nul(const request_options& options) {
  if (has_nul(options.structure)) return "structure";
  return std::any_of(options.stop.begin(), options.stop.end(), has_nul) ? "stop" : nullptr;
}

/// The struct of the C API, its callback not set. It points into `options`.
inline nvllm_engine_config native(const engine_options& options) {
  nvllm_engine_config config;
  nvllm_engine_config_init(&config, sizeof config);
  config.model_path = options.model_path.c_str();
  assign(config.device, options.device);
  assign(config.device_index, options.device_index);
  assign(config.dtype, options.dtype);
  assign(config.num_threads, options.num_threads);
  assign(config.max_model_len, options.max_model_len);
  assign(config.max_num_seqs, options.max_num_seqs);
  assign(config.max_batched_tokens, options.max_batched_tokens);
  assign(config.max_queue, options.max_queue);
  assign(config.kv_block_size, options.kv_block_size);
  assign(config.enable_prefix_cache, options.enable_prefix_cache);
  assign(config.kv_cache_bytes, options.kv_cache_bytes);
  assign(config.memory_utilization, options.memory_utilization);
  assign(config.tensor_parallel_size, options.tensor_parallel_size);
  assign(config.enforce_eager, options.enforce_eager);
  assign(config.batch_invariant, options.batch_invariant);
  assign(config.seed, options.seed);
  assign(config.load_mode, options.load_mode);
  return config;
}

/// The struct of the C API with the arrays that it points to. It points into `options` too.
class native_request {
 public:
  explicit native_request(const request_options& options) {
    for (const std::string& stop : options.stop) stop_.push_back(stop.c_str());
    for (const auto& bias : options.logit_bias) {
      bias_tokens_.push_back(bias.first);
      bias_values_.push_back(bias.second);
    }
    nvllm_request_options_init(&native_, sizeof native_);
    assign(native_.tag, options.tag);
    assign(native_.max_tokens, options.max_tokens);
    assign(native_.min_tokens, options.min_tokens);
    assign(native_.temperature, options.temperature);
    assign(native_.top_p, options.top_p);
    assign(native_.min_p, options.min_p);
    assign(native_.top_k, options.top_k);
    assign(native_.repetition_penalty, options.repetition_penalty);
    assign(native_.presence_penalty, options.presence_penalty);
    assign(native_.frequency_penalty, options.frequency_penalty);
    assign(native_.seed, options.seed);
    assign(native_.ignore_eos, options.ignore_eos);
    assign(native_.priority, options.priority);
    native_.stop = stop_.data();
    native_.num_stop = stop_.size();
    native_.stop_tokens = options.stop_tokens.data();
    native_.num_stop_tokens = options.stop_tokens.size();
    native_.bias_tokens = bias_tokens_.data();
    native_.bias_values = bias_values_.data();
    native_.num_bias = bias_tokens_.size();
    assign(native_.num_logprobs, options.num_logprobs);
    assign(native_.num_prompt_logprobs, options.num_prompt_logprobs);
    assign(native_.n, options.n);
    assign(native_.beam_width, options.beam_width);
    assign(native_.length_penalty, options.length_penalty);
    assign(native_.early_stopping, options.early_stopping);
    assign(native_.include_stop, options.include_stop);
    assign(native_.max_wait_us, options.max_wait_us);
    assign(native_.cache_salt, options.cache_salt);
    assign(native_.pin_prompt, options.pin_prompt);
    assign(native_.structure_kind, options.structure_kind);
    if (!options.structure.empty()) native_.structure = options.structure.c_str();
    assign(native_.pooling, options.pooling);
  }

  const nvllm_request_options* get() const noexcept { return &native_; }

 private:
  nvllm_request_options native_;
  // Moving a vector keeps its memory where it is, so that `native_` stays good.
  std::vector<const char*> stop_;
  std::vector<uint32_t> bias_tokens_;
  std::vector<float> bias_values_;
};

}  // namespace detail
}  // namespace nvllm

#endif

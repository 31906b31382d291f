// Options of an engine and of a request. A field that is not set has the default of nanovllm.h.
//
// The structs are generated from the header, with the conversion of their numbers. Texts and lists are converted here.
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
namespace detail {

template <class Field, class Value>
void assign(Field& field, const std::optional<Value>& value) {
  if (value) field = static_cast<Field>(*value);
}

template <class Value, class Field>
void read(std::optional<Value>& value, Field field) {
  value = static_cast<Value>(field);
}

}  // namespace detail
}  // namespace nvllm

#include "generated_options.hpp"

namespace nvllm {
namespace detail {

/// Whether a text contains a NUL, where the C API would take it to end.
inline bool has_nul(const std::string& text) { return text.find('\0') != std::string::npos; }

/// The name of the field whose text contains a NUL; NULL if there is none.
inline const char* field_with_nul(const engine_options& options) {
  if (has_nul(options.rendezvous)) return "rendezvous";
  return has_nul(options.model_path) ? "model_path" : nullptr;
}
inline const char* field_with_nul(const request_options& options) {
  if (has_nul(options.structure)) return "structure";
  if (has_nul(options.tools)) return "tools";
  if (has_nul(options.tool_name)) return "tool_name";
  if (std::any_of(options.stop.begin(), options.stop.end(), has_nul)) return "stop";
  const auto& breakers = options.dry_sequence_breakers;
  return breakers && std::any_of(breakers->begin(), breakers->end(), has_nul) ? "dry_sequence_breakers" : nullptr;
}

/// The struct of the C API, without its callback. It points into `options`.
inline nvllm_engine_config native(const engine_options& options) {
  nvllm_engine_config config;
  nvllm_engine_config_init(&config, sizeof config);
  assign_scalars(config, options);
  config.model_path = options.model_path.c_str();
  if (!options.device_indices.empty()) config.device_indices = options.device_indices.data();
  config.num_device_indices = static_cast<uint32_t>(options.device_indices.size());
  if (!options.rendezvous.empty()) config.rendezvous = options.rendezvous.c_str();
  return config;
}

/// The struct of the C API with the arrays that it points to. It points into `options` too.
class native_request {
 public:
  explicit native_request(const request_options& options) {
    for (const std::string& stop : options.stop) stop_.push_back(stop.c_str());
    // An empty list is not NULL, which would be the default.
    if (options.dry_sequence_breakers) {
      for (const std::string& breaker : *options.dry_sequence_breakers) breakers_.push_back(breaker.c_str());
      breakers_.push_back(nullptr);
    }
    for (const auto& bias : options.logit_bias) {
      bias_tokens_.push_back(bias.first);
      bias_values_.push_back(bias.second);
    }
    nvllm_request_options_init(&native_, sizeof native_);
    assign_scalars(native_, options);
    native_.stop = stop_.data();
    native_.num_stop = stop_.size();
    native_.stop_tokens = options.stop_tokens.data();
    native_.num_stop_tokens = options.stop_tokens.size();
    native_.score_tokens = options.score_tokens.data();
    native_.num_score_tokens = options.score_tokens.size();
    native_.bias_tokens = bias_tokens_.data();
    native_.bias_values = bias_values_.data();
    native_.num_bias = bias_tokens_.size();
    if (options.dry_sequence_breakers) {
      native_.dry_sequence_breakers = breakers_.data();
      native_.num_dry_sequence_breakers = options.dry_sequence_breakers->size();
    }
    if (!options.structure.empty()) native_.structure = options.structure.c_str();
    if (!options.tools.empty()) native_.tools = options.tools.c_str();
    if (!options.tool_name.empty()) native_.tool_name = options.tool_name.c_str();
  }

  const nvllm_request_options* get() const noexcept { return &native_; }

 private:
  nvllm_request_options native_;
  // Moving a vector keeps its memory in place, so that the pointers of `native_` stay valid.
  std::vector<const char*> stop_;
  std::vector<const char*> breakers_;
  std::vector<uint32_t> bias_tokens_;
  std::vector<float> bias_values_;
};

}  // namespace detail
}  // namespace nvllm

#endif

// The engine: a model, its tokenizer, its KV cache, and a scheduler.
#ifndef NANOVLLM_ENGINE_HPP
#define NANOVLLM_ENGINE_HPP

#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "answer.hpp"
#include "generator.hpp"
#include "inbox.hpp"
#include "message.hpp"
#include "model_file.hpp"
#include "options.hpp"
#include "output.hpp"
#include "output_range.hpp"
#include "result.hpp"

namespace nvllm {

/// How engine::tokenize and engine::detokenize treat special tokens: NVLLM_TOKENIZE_*.
enum class special_tokens : uint32_t {
  none = 0,
  add = NVLLM_TOKENIZE_ADD_SPECIAL,
  parse = NVLLM_TOKENIZE_PARSE_SPECIAL,
  add_and_parse = NVLLM_TOKENIZE_ADD_SPECIAL | NVLLM_TOKENIZE_PARSE_SPECIAL,
};

/// Receives the progress of generate(); false cancels it.
using generate_progress = std::function<bool(const nvllm_progress&)>;

/// [any] Returns the version of the loaded library, such as "0.1.0".
inline std::string_view version() { return nvllm_version(); }

/// [any] Returns a JSON object that describes the build and the machine.
inline std::string_view build_info() { return nvllm_build_info(); }

inline namespace NVLLM_CPP_MODE {

/// Owns an engine of the C API. Movable, not copyable.
///
/// [any] and [one] are those of nanovllm.h: [any] functions may be called from any thread at any time, [one] functions
/// by one thread at a time, or they fail with NVLLM_ERR_BUSY.
class engine {
 public:
#ifndef NVLLM_CPP_NO_EXCEPTIONS
  /// Opens a model folder or a GGUF file.
  explicit engine(const engine_options& options) : engine(open(options)) {}
  /// Opens a model whose files are given.
  engine(const engine_options& options, const std::vector<model_file>& files) : engine(open(options, files)) {}
#endif
  /// Opens a model folder or a GGUF file.
  static returned<engine> open(const engine_options& options) {
    return open_by(options, [](const nvllm_engine_config& config, nvllm_engine** opened, nvllm_error* error) {
      return nvllm_engine_new(&config, opened, error);
    });
  }
  /// Opens a model folder or a GGUF file with the library's defaults: engine::open("models/demo"). A template, so that
  /// open({"models/demo"}) stays the one with options. A constructor like it would make engine({"models/demo"}) ambiguous.
  template <class Path, class = std::enable_if_t<std::is_convertible_v<const Path&, std::string>>>
  static returned<engine> open(const Path& model_path) {
    engine_options options;
    options.model_path = model_path;
    return open(options);
  }
  /// Opens a model whose files are given. model_path is the name of a GGUF file or of a folder among them, or empty for the folder
  /// that all of them are in.
  static returned<engine> open(const engine_options& options, const std::vector<model_file>& files) {
    std::vector<nvllm_model_file> native;
    for (const model_file& file : files) {
      if (detail::has_nul(file.name())) return detail::fail<engine>(nul_refusal("name"));
      native.push_back(file.native());
    }
    return open_by(options, [&](nvllm_engine_config& config, nvllm_engine** opened, nvllm_error* error) {
      if (options.model_path.empty()) config.model_path = nullptr;
      return nvllm_engine_new_from(&config, native.data(), native.size(), opened, error);
    });
  }

  engine(engine&& other) noexcept = default;
  engine& operator=(engine&& other) noexcept {
    engine taken(std::move(other));
    // The engine that this object had is destroyed with `taken`.
    state_.swap(taken.state_);
    return *this;
  }
  /// Destroys the engine with all its requests, as nvllm_engine_free does.
  ~engine() {
    if (state_) state_->handle.reset();
  }

  /// [any] Reads the properties of the model.
  returned<nvllm_model_info> model_info() const { return filled<nvllm_model_info>(nvllm_engine_model_info); }

  /// [any] Reads the statistics: counters since the engine opened, and current gauges.
  returned<nvllm_stats> stats() const { return filled<nvllm_stats>(nvllm_get_stats); }

  /// [any] Returns the statistics and more in the text format of Prometheus.
  returned<std::string> metrics_text() const {
    return sized<std::string>(16 << 10, [&](char* to, std::size_t room, std::size_t* needed, nvllm_error* error) {
      return nvllm_metrics_text(native(), to, room, needed, error);
    });
  }

  // ---- requests ----

  /// [any] Returns the options that a request without options has: the library's defaults with the sampling that the
  /// model's generation_config.json recommends. A caller can then change one field and keep the rest.
  returned<request_options> default_options() const {
    nvllm_request_options native_options;
    native_options.struct_size = sizeof native_options;
    nvllm_error error;
    if (nvllm_default_options(native(), &native_options, &error) != NVLLM_OK)
      return detail::fail<request_options>(detail::failure_of(error));
    return detail::scalars_of(native_options);
  }

  /// [any] Queues a prompt with default_options(). Returns the id of the request.
  returned<uint64_t> add(std::string_view prompt) { return add(prompt, nullptr); }
  /// [any] Queues a prompt. Returns the id of the request.
  returned<uint64_t> add(std::string_view prompt, const request_options& options) {
    if (const char* field = detail::field_with_nul(options)) return detail::fail<uint64_t>(nul_refusal(field));
    return add(prompt, detail::native_request(options).get());
  }
  /// [any] Queues a prompt of tokens with default_options().
  returned<uint64_t> add_tokens(const std::vector<uint32_t>& tokens) { return add(tokens, nullptr); }
  /// [any] Queues a prompt of tokens.
  returned<uint64_t> add_tokens(const std::vector<uint32_t>& tokens, const request_options& options) {
    if (const char* field = detail::field_with_nul(options)) return detail::fail<uint64_t>(nul_refusal(field));
    return add(tokens, detail::native_request(options).get());
  }

  /// [any] As add(), by the name that the C API has for it.
  returned<uint64_t> add_request(std::string_view prompt) { return add(prompt); }
  returned<uint64_t> add_request(std::string_view prompt, const request_options& options) { return add(prompt, options); }
  /// [any] As add_tokens(), by the name that the C API has for it.
  returned<uint64_t> add_request_tokens(const std::vector<uint32_t>& tokens) { return add_tokens(tokens); }
  returned<uint64_t> add_request_tokens(const std::vector<uint32_t>& tokens, const request_options& options) {
    return add_tokens(tokens, options);
  }

  /// [any] Queues a conversation, to be answered by the model, with default_options(). See nvllm_add_chat; template_options is JSON.
  returned<uint64_t> add_chat(const std::vector<message>& messages, std::string_view template_options = {}) {
    return add_chat(messages, nullptr, std::string(template_options));
  }
  /// [any] Queues a conversation, to be answered by the model.
  returned<uint64_t> add_chat(const std::vector<message>& messages, const request_options& options,
                              std::string_view template_options = {}) {
    if (const char* field = detail::field_with_nul(options)) return detail::fail<uint64_t>(nul_refusal(field));
    return add_chat(messages, detail::native_request(options).get(), std::string(template_options));
  }

  /// [any] Begins to read an answer of this model. `prompt` is what the model writes after; `tools` is the JSON of the request's tools. The
  /// request needs request_options::keep_special_tokens.
  returned<answer_parser> make_answer_parser(std::string_view prompt = {}, const std::string& tools = {}) const {
    if (detail::has_nul(tools)) return detail::fail<answer_parser>(nul_refusal("tools"));
    nvllm_answer_parser* made = nullptr;
    nvllm_error error;
    if (nvllm_answer_parser_new(native(), prompt.data(), prompt.size(), tools.empty() ? nullptr : tools.c_str(), &made, &error) != NVLLM_OK)
      return detail::fail<answer_parser>(detail::failure_of(error));
    return answer_parser(made);
  }

  /// [any] Cancels a request. Returns false if it has ended or never existed.
  bool cancel(uint64_t request_id) noexcept { return nvllm_cancel(native(), request_id) == NVLLM_OK; }

  // ---- state ----

  /// [one] Removes all prefixes that no sequence uses and that are not pinned.
  returned<void> reset_prefix_cache() {
    detail::entry inside(state_);
    if (!inside) return detail::fail<void>(refusal());
    nvllm_error error;
    if (nvllm_reset_prefix_cache(native(), &error) != NVLLM_OK) return detail::fail<void>(detail::failure_of(error));
    return returned<void>();
  }

  /// [one] Gives memory of the KV cache back that no running request and no pinned prompt needs. Returns the number of bytes.
  returned<uint64_t> trim() {
    detail::entry inside(state_);
    if (!inside) return detail::fail<uint64_t>(refusal());
    uint64_t freed = 0;
    nvllm_error error;
    if (nvllm_trim(native(), &freed, &error) != NVLLM_OK) return detail::fail<uint64_t>(detail::failure_of(error));
    return returned<uint64_t>(freed);
  }

  /// [any] Releases the prompt that request_options::pin_prompt pinned. Returns false if that request pins nothing.
  bool release_prefix(uint64_t request_id) noexcept { return nvllm_release_prefix(native(), request_id) == NVLLM_OK; }

  /// [one] Returns the longest cached prefix of these tokens, as bytes for restore_prefix().
  returned<std::vector<uint8_t>> save_prefix(const std::vector<uint32_t>& tokens, uint64_t cache_salt = 0) {
    detail::entry inside(state_);
    if (!inside) return detail::fail<std::vector<uint8_t>>(refusal());
    return sized<std::vector<uint8_t>>(0, [&](uint8_t* to, std::size_t room, std::size_t* needed, nvllm_error* error) {
      return nvllm_save_prefix(native(), tokens.data(), tokens.size(), cache_salt, to, room, needed, nullptr, error);
    });
  }

  /// [one] How many tokens each expert of a layer was chosen for since an engine with expert_statistics was opened; none for a layer without experts.
  returned<std::vector<uint64_t>> expert_tokens(std::size_t layer) {
    detail::entry inside(state_);
    if (!inside) return detail::fail<std::vector<uint64_t>>(refusal());
    return sized<std::vector<uint64_t>>(
        128, [&](uint64_t* to, std::size_t room, std::size_t* needed, nvllm_error* error) {
          return nvllm_expert_tokens(native(), layer, to, room, needed, error);
        });
  }

  /// [one] Puts a saved prefix into the prefix cache. Returns its number of tokens.
  returned<std::size_t> restore_prefix(const std::vector<uint8_t>& bytes) {
    detail::entry inside(state_);
    if (!inside) return detail::fail<std::size_t>(refusal());
    nvllm_error error;
    std::size_t restored = 0;
    if (nvllm_restore_prefix(native(), bytes.data(), bytes.size(), &restored, &error) != NVLLM_OK)
      return detail::fail<std::size_t>(detail::failure_of(error));
    return restored;
  }

  /// [one] Adds a request whose prompt is the whole current text of a live one. Returns its id.
  returned<uint64_t> fork(uint64_t request_id, const request_options& options, uint32_t index = 0) {
    detail::entry inside(state_);
    if (!inside) return detail::fail<uint64_t>(refusal());
    if (const char* field = detail::field_with_nul(options)) return detail::fail<uint64_t>(nul_refusal(field));
    nvllm_error error;
    uint64_t id = 0;
    detail::native_request native_options(options);
    if (nvllm_fork(native(), request_id, index, native_options.get(), &id, &error) != NVLLM_OK)
      return detail::fail<uint64_t>(detail::failure_of(error));
    return id;
  }

  // ---- stepping, and outputs ----

  /// [one] Runs one forward pass, or as many as fit into `budget`. A budget below 0 counts as 1 microsecond.
  returned<nvllm_step_result> step(std::chrono::microseconds budget = std::chrono::microseconds(0)) {
    detail::entry inside(state_);
    if (!inside) return detail::fail<nvllm_step_result>(refusal());
    nvllm_step_result done;
    done.struct_size = sizeof done;
    nvllm_error error;
    uint64_t budget_us = budget.count() < 0 ? 1 : static_cast<uint64_t>(budget.count());
    nvllm_status status = nvllm_step(native(), budget_us, &done, &error);
    detail::rethrow(inside->thrown);
    if (status == NVLLM_CLOSED)
      return detail::fail<nvllm_step_result>(detail::failure_of(status, "process 0 has closed its engine"));
    if (status != NVLLM_OK) return detail::fail<nvllm_step_result>(detail::failure_of(error));
    done.num_outputs += static_cast<uint32_t>(inside->num_unclaimed);
    done.num_outputs -= inside->drop_left();
    return done;
  }

  /// [one] In a process that follows (process_index above 0): computes what process 0 schedules, as step() does. Whether there may be
  /// more; false once process 0 has closed its engine.
  returned<bool> serve(std::chrono::microseconds budget = std::chrono::microseconds(0)) {
    detail::entry inside(state_);
    if (!inside) return detail::fail<bool>(refusal());
    nvllm_error error;
    uint64_t budget_us = budget.count() < 0 ? 1 : static_cast<uint64_t>(budget.count());
    nvllm_status status = nvllm_step(native(), budget_us, nullptr, &error);
    detail::rethrow(inside->thrown);
    if (status < 0) return detail::fail<bool>(detail::failure_of(error));
    return status != NVLLM_CLOSED;
  }

  /// [any] Waits until step() has work or poll() has an output, for at most `timeout`; by default without a limit. Returns whether
  /// there is something to do: false if the time is over, or if wake() was called. A timeout below 0 only looks.
  returned<bool> wait(std::chrono::microseconds timeout = std::chrono::microseconds::max()) const {
    // Outputs that were polled for others and belong to no stream.
    if (state_ && state_->num_unclaimed > 0) return true;
    nvllm_error error;
    uint64_t timeout_us = timeout.count() < 0 ? 0 : static_cast<uint64_t>(timeout.count());
    nvllm_status status = nvllm_wait(native(), timeout_us, &error);
    if (status < 0) return detail::fail<bool>(detail::failure_of(error));
    // NVLLM_CLOSED is something that serve() reports.
    return status != NVLLM_TIMEOUT;
  }

  /// [any] Ends every wait() that is in progress, and the next one that begins, unless there is something to do.
  void wake() const noexcept { static_cast<void>(nvllm_wake(native(), nullptr)); }

  /// [any] Whether no request is waiting or running and no output is waiting to be polled. False until outputs are polled, so a
  /// loop of step() alone never ends; true for an engine that can no longer be used, of which step() reports the error.
  bool is_finished() const noexcept {
    return nvllm_is_finished(native()) != 0 && (!state_ || state_->num_unclaimed == 0);
  }

  /// [one] Takes the oldest output that belongs to no stream; nothing if none is waiting.
  returned<std::optional<output>> poll() {
    detail::entry inside(state_);
    if (!inside) return detail::fail<std::optional<output>>(refusal());
    std::optional<output> taken;
    nvllm_error error;
    if (inside->take(nullptr, taken, error) != NVLLM_OK)
      return detail::fail<std::optional<output>>(detail::failure_of(error));
    return taken;
  }

  /// [one] The outputs that are waiting: `for (const nvllm::output& output : engine.outputs())`.
  output_range outputs() { return output_range(*this); }

  /// [one] Delivers outputs to `callback` inside step() and generate() instead of the queue; false cancels that
  /// request. An empty function returns to polling. Refused while a stream is read, which polls its outputs.
  returned<void> set_output_callback(std::function<bool(const output&)> callback) {
    detail::entry inside(state_);
    if (!inside) return detail::fail<void>(refusal());
    if (callback && inside->any_stream(false))
      return detail::fail<void>(detail::failure_of(
          NVLLM_ERR_INVALID_ARGUMENT, "streams are being read, which poll their outputs: end or destroy them first"));
    nvllm_error error;
    nvllm_output_fn push = callback ? &hear_output : nullptr;
    if (nvllm_set_output_callback(native(), push, state_.get(), &error) != NVLLM_OK)
      return detail::fail<void>(detail::failure_of(error));
    inside->on_output = std::move(callback);
    return returned<void>();
  }

#ifdef NVLLM_CPP_COROUTINES
  /// [one] Queues a prompt immediately, and steps whenever the generator needs its next output:
  ///
  ///   for (const nvllm::output& delta : engine.stream(prompt)) std::cout << delta.text();
  ///
  /// Several streams of one engine may be read alternately, and share its batch. Destroying a generator before its end
  /// cancels the request, whose last outputs step() drops; any thread may do it. A generator that outlives its engine
  /// fails with NVLLM_ERR_INVALID_ARGUMENT.
  generator<output> stream(std::string_view prompt) { return follow(prompt, nullptr); }
  generator<output> stream(std::string_view prompt, const request_options& options) { return follow(prompt, &options); }
#endif

  // ---- many prompts in one call ----

  /// [one] Generates for all prompts with default_options(). Prompts is any container of texts.
  template <class Prompts = std::initializer_list<std::string_view>>
  returned<results> generate(const Prompts& prompts, const generate_progress& progress = {}) {
    return generate_all(texts(prompts), nullptr, 0, progress);
  }
  /// [one] Generates for all prompts.
  template <class Prompts = std::initializer_list<std::string_view>>
  returned<results> generate(const Prompts& prompts, const request_options& options,
                             const generate_progress& progress = {}) {
    return generate_all(texts(prompts), &options, 1, progress);
  }
  /// [one] Generates for all prompts, each with its own options.
  template <class Prompts = std::initializer_list<std::string_view>>
  returned<results> generate(const Prompts& prompts, const std::vector<request_options>& options,
                             const generate_progress& progress = {}) {
    return generate_all(texts(prompts), options.data(), options.size(), progress);
  }
  /// [one] Generates for all prompts of tokens, with one request_options for all or one per prompt; with none,
  /// default_options().
  returned<results> generate_tokens(const std::vector<std::vector<uint32_t>>& prompts,
                                    const std::vector<request_options>& options = {},
                                    const generate_progress& progress = {}) {
    return generate_all(prompts, options.data(), options.size(), progress);
  }

  // ---- classifiers and rerankers ----

  /// [one] Scores texts, or pairs of each text and the one of `seconds` with the same index, with a classifier or a reranker: see output::scores().
  /// `seconds` is empty, or has as many. Otherwise as generate().
  returned<results> score(const std::vector<std::string>& texts, const std::vector<std::string>& seconds = {},
                          const generate_progress& progress = {}) {
    return score_all(texts, seconds, nullptr, progress);
  }
  /// [one] As the other, with options for all texts: with score_tokens, a model that generates gives texts one score per token.
  returned<results> score(const std::vector<std::string>& texts, const std::vector<std::string>& seconds,
                          const request_options& options, const generate_progress& progress = {}) {
    return score_all(texts, seconds, &options, progress);
  }

  /// [any] The name of a label of a classifier, of num_labels in model_info().
  returned<std::string> label(std::size_t index) const {
    return sized<std::string>(64, [&](char* to, std::size_t room, std::size_t* needed, nvllm_error* error) {
      return nvllm_label(native(), index, to, room, needed, error);
    });
  }

  /// [any] What stands before texts of a kind, such as "query", by the model's folder, or with "" by its default; empty where it names none.
  returned<std::string> named_prompt(const std::string& name = {}) const {
    return sized<std::string>(256, [&](char* to, std::size_t room, std::size_t* needed, nvllm_error* error) {
      return nvllm_named_prompt(native(), name.empty() ? nullptr : name.c_str(), to, room, needed, error);
    });
  }

  // ---- tokenizer and chat template ----

  /// [any] Converts text to tokens.
  returned<std::vector<uint32_t>> tokenize(std::string_view text, special_tokens special = special_tokens::none) const {
    return sized<std::vector<uint32_t>>(
        text.size() + 16, [&](uint32_t* to, std::size_t room, std::size_t* needed, nvllm_error* error) {
          return nvllm_tokenize(native(), text.data(), text.size(), static_cast<uint32_t>(special), to, room, needed,
                                error);
        });
  }

  /// [any] Converts tokens to text.
  returned<std::string> detokenize(const std::vector<uint32_t>& tokens,
                                   special_tokens special = special_tokens::none) const {
    return sized<std::string>(8 * tokens.size() + 16,
                              [&](char* to, std::size_t room, std::size_t* needed, nvllm_error* error) {
                                return nvllm_detokenize(native(), tokens.data(), tokens.size(),
                                                        static_cast<uint32_t>(special), to, room, needed, error);
                              });
  }

  /// [any] Renders the prompt of a conversation in JSON with the model's chat template. See nvllm_apply_chat_template.
  returned<std::string> apply_chat_template(std::string_view messages_json, std::string_view options_json = {}) const {
    return sized<std::string>(2 * messages_json.size() + 256,
                              [&](char* to, std::size_t room, std::size_t* needed, nvllm_error* error) {
                                return nvllm_apply_chat_template(native(), messages_json.data(), messages_json.size(),
                                                                 options_json.empty() ? nullptr : options_json.data(),
                                                                 options_json.size(), to, room, needed, error);
                              });
  }
  /// [any] Renders the prompt of a conversation with the model's chat template.
  returned<std::string> apply_chat_template(const std::vector<message>& messages,
                                            std::string_view options_json = {}) const {
    return apply_chat_template(messages_json(messages), options_json);
  }

  /// The handle of the C API, which this object keeps owning. NULL after a move.
  nvllm_engine* native() const noexcept { return state_ ? state_->handle.get() : nullptr; }

 private:
  struct loading {
    const std::function<bool(float)>& progress;
    std::exception_ptr thrown;
  };
  struct generating {
    const generate_progress& progress;
    std::exception_ptr thrown;
  };

  explicit engine(nvllm_engine* opened) : state_(std::make_shared<detail::engine_state>(opened)) {}

  template <class Open>
  static returned<engine> open_by(const engine_options& options, const Open& open) {
    if (const char* field = detail::field_with_nul(options)) return detail::fail<engine>(nul_refusal(field));
    loading load{options.progress, nullptr};
    nvllm_engine_config config = detail::native(options);
    if (options.progress) {
      config.progress = &hear_loading;
      config.progress_user_data = &load;
    }
    nvllm_engine* opened = nullptr;
    nvllm_error error;
    nvllm_status status = open(config, &opened, &error);
    detail::rethrow(load.thrown);
    if (status != NVLLM_OK) return detail::fail<engine>(detail::failure_of(error));
    return engine(opened);
  }

  static int32_t hear_loading(float fraction, void* user_data) noexcept {
    auto& load = *static_cast<loading*>(user_data);
    return detail::contained(load.thrown, 1, [&] { return load.progress(fraction) ? 0 : 1; });
  }
  static int32_t hear_generating(const nvllm_progress* progress, void* user_data) noexcept {
    auto& run = *static_cast<generating*>(user_data);
    return detail::contained(run.thrown, 1, [&] { return run.progress(*progress) ? 0 : 1; });
  }
  static int32_t hear_output(const nvllm_output* news, void* user_data) noexcept {
    auto& state = *static_cast<detail::engine_state*>(user_data);
    // A stream that was left: one that is read excludes callbacks.
    if (state.owner_of(*news)) return 0;
    return detail::contained(state.thrown, 1, [&] { return state.on_output(output(*news)) ? 0 : 1; });
  }

  /// Why a [one] function may not be entered.
  failure refusal() const {
    if (!state_) return detail::failure_of(NVLLM_ERR_INVALID_ARGUMENT, "the engine was moved away from this object");
    return busy();
  }
  static failure busy() {
    return detail::failure_of(NVLLM_ERR_BUSY, "another call that steps, polls or generates is inside this engine");
  }

  /// The refusal of a text that the C API would cut at a NUL.
  static failure nul_refusal(const char* field) {
    return {NVLLM_ERR_INVALID_ARGUMENT, 0, std::string(field) + " has a NUL byte, but it must have none"};
  }

  returned<uint64_t> add(std::string_view prompt, const nvllm_request_options* options) {
    nvllm_error error;
    uint64_t id = 0;
    if (nvllm_add_request(native(), prompt.data(), prompt.size(), options, &id, &error) != NVLLM_OK)
      return detail::fail<uint64_t>(detail::failure_of(error));
    return id;
  }
  returned<uint64_t> add_chat(const std::vector<message>& messages, const nvllm_request_options* options,
                              const std::string& template_options) {
    std::vector<nvllm_message> native_messages;
    for (const message& turn : messages) {
      if (detail::has_nul(turn.role)) return detail::fail<uint64_t>(nul_refusal("role"));
      if (detail::has_nul(turn.content)) return detail::fail<uint64_t>(nul_refusal("content"));
      native_messages.push_back({turn.role.c_str(), turn.content.c_str()});
    }
    if (detail::has_nul(template_options)) return detail::fail<uint64_t>(nul_refusal("template_options"));
    nvllm_error error;
    uint64_t id = 0;
    if (nvllm_add_chat(native(), native_messages.data(), native_messages.size(), template_options.c_str(), options, &id, &error) !=
        NVLLM_OK)
      return detail::fail<uint64_t>(detail::failure_of(error));
    return id;
  }
  returned<uint64_t> add(const std::vector<uint32_t>& tokens, const nvllm_request_options* options) {
    nvllm_error error;
    uint64_t id = 0;
    if (nvllm_add_request_tokens(native(), tokens.data(), tokens.size(), options, &id, &error) != NVLLM_OK)
      return detail::fail<uint64_t>(detail::failure_of(error));
    return id;
  }

  template <class Struct, class Call>
  returned<Struct> filled(const Call& call) const {
    Struct facts;
    facts.struct_size = sizeof facts;
    nvllm_error error;
    if (call(native(), &facts, &error) != NVLLM_OK) return detail::fail<Struct>(detail::failure_of(error));
    return facts;
  }

  /// Calls with an estimate of the size, and once more if it was too small.
  template <class Buffer, class Call>
  static returned<Buffer> sized(std::size_t guess, const Call& call) {
    Buffer buffer;
    nvllm_error error;
    std::size_t needed = guess;
    nvllm_status status;
    do {
      buffer.resize(needed);
      status = call(buffer.data(), buffer.size(), &needed, &error);
    } while (status == NVLLM_ERR_BUFFER_TOO_SMALL);
    if (status != NVLLM_OK) return detail::fail<Buffer>(detail::failure_of(error));
    // A text's NUL is counted, and a std::string has one of its own.
    buffer.resize(std::is_same_v<Buffer, std::string> && needed > 0 ? needed - 1 : needed);
    return buffer;
  }

  static nvllm_status generate_native(nvllm_engine* engine, const char* const* prompts, const std::size_t* lens,
                                      std::size_t count, const nvllm_request_options* const* options,
                                      std::size_t num_options, nvllm_generate_progress_fn progress, void* user_data,
                                      nvllm_result** made, nvllm_error* error) {
    return nvllm_generate(engine, prompts, lens, count, options, num_options, progress, user_data, made, error);
  }
  static nvllm_status generate_native(nvllm_engine* engine, const uint32_t* const* prompts, const std::size_t* lens,
                                      std::size_t count, const nvllm_request_options* const* options,
                                      std::size_t num_options, nvllm_generate_progress_fn progress, void* user_data,
                                      nvllm_result** made, nvllm_error* error) {
    return nvllm_generate_tokens(engine, prompts, lens, count, options, num_options, progress, user_data, made, error);
  }

  template <class Prompts>
  static std::vector<std::string_view> texts(const Prompts& prompts) {
    return std::vector<std::string_view>(std::begin(prompts), std::end(prompts));
  }

  returned<results> score_all(const std::vector<std::string>& texts, const std::vector<std::string>& seconds,
                              const request_options* options, const generate_progress& progress) {
    detail::entry inside(state_);
    if (!inside) return detail::fail<results>(refusal());
    if (options)
      if (const char* field = detail::field_with_nul(*options)) return detail::fail<results>(nul_refusal(field));
    if (!seconds.empty() && seconds.size() != texts.size())
      return detail::fail<results>(
          detail::failure_of(NVLLM_ERR_INVALID_ARGUMENT, "seconds must be empty, or have as many texts as there are"));
    std::vector<const char*> first, second;
    for (const std::string& text : texts) {
      if (detail::has_nul(text)) return detail::fail<results>(nul_refusal("a text"));
      first.push_back(text.c_str());
    }
    for (const std::string& text : seconds) {
      if (detail::has_nul(text)) return detail::fail<results>(nul_refusal("a second text"));
      second.push_back(text.c_str());
    }
    std::optional<detail::native_request> request;
    if (options) request.emplace(*options);
    const nvllm_request_options* shared = request ? request->get() : nullptr;
    generating run{progress, nullptr};
    nvllm_result* made = nullptr;
    nvllm_error error;
    nvllm_status status =
        nvllm_score(native(), first.data(), second.empty() ? nullptr : second.data(), first.size(), &shared, 1,
                    progress ? &hear_generating : nullptr, &run, &made, &error);
    results owned(made);
    std::exception_ptr of_outputs = std::exchange(inside->thrown, nullptr);
    detail::rethrow(run.thrown);
    detail::rethrow(of_outputs);
    if (status != NVLLM_OK) return detail::fail<results>(detail::failure_of(error));
    return owned;
  }

  template <class Prompt>
  returned<results> generate_all(const std::vector<Prompt>& prompts, const request_options* options,
                                 std::size_t num_options, const generate_progress& progress) {
    detail::entry inside(state_);
    if (!inside) return detail::fail<results>(refusal());
    for (std::size_t i = 0; i < num_options; i++)
      if (const char* field = detail::field_with_nul(options[i])) return detail::fail<results>(nul_refusal(field));
    // The data() of an empty container may be NULL, which the C API refuses.
    static constexpr typename Prompt::value_type nothing = 0;
    std::vector<const typename Prompt::value_type*> starts;
    std::vector<std::size_t> lens;
    for (const Prompt& prompt : prompts) {
      starts.push_back(prompt.empty() ? &nothing : prompt.data());
      lens.push_back(prompt.size());
    }
    std::vector<detail::native_request> requests;
    std::vector<const nvllm_request_options*> pointers;
    for (std::size_t i = 0; i < num_options; i++) requests.emplace_back(options[i]);
    for (const detail::native_request& request : requests) pointers.push_back(request.get());

    generating run{progress, nullptr};
    nvllm_result* made = nullptr;
    nvllm_error error;
    nvllm_status status = generate_native(native(), starts.data(), lens.data(), prompts.size(), pointers.data(),
                                          pointers.size(), progress ? &hear_generating : nullptr, &run, &made, &error);
    results owned(made);
    // If both have thrown, a later call is not to throw the second one.
    std::exception_ptr of_outputs = std::exchange(inside->thrown, nullptr);
    detail::rethrow(run.thrown);
    detail::rethrow(of_outputs);
    if (status != NVLLM_OK) return detail::fail<results>(detail::failure_of(error));
    return owned;
  }

#ifdef NVLLM_CPP_COROUTINES
  /// A stream's ownership of its request: destroyed early, it cancels the request.
  struct claim {
    claim(std::shared_ptr<detail::engine_state> of, uint64_t id, uint32_t completions)
        : state(std::move(of)), request(id), stream(std::make_shared<detail::engine_state::followed>(completions)) {}
    claim(claim&& other) noexcept = default;
    claim(const claim&) = delete;
    claim& operator=(const claim&) = delete;
    ~claim() {
      if (state == nullptr) return;
      stream->left = true;
      // It may have ended meanwhile; then there is nothing to cancel.
      static_cast<void>(nvllm_cancel(state->handle.get(), request));
    }

    std::shared_ptr<detail::engine_state> state;
    uint64_t request;
    std::shared_ptr<detail::engine_state::followed> stream;
  };

  generator<output> follow(std::string_view prompt, const request_options* options) {
    // Inside, so that no other thread polls an output before its stream is known.
    detail::entry inside(state_);
    if (!inside) detail::fail<void>(refusal());
    if (inside->on_output)
      detail::fail<void>(
          detail::failure_of(NVLLM_ERR_INVALID_ARGUMENT, "an output callback takes the outputs that a stream needs"));
    uint64_t request = options != nullptr ? add(prompt, *options) : add(prompt);
    uint32_t completions = options != nullptr ? options->n.value_or(1) : 1;
    claim held(state_, request, completions);
    inside->streams.emplace(request, held.stream);
    return follow(std::move(held), completions);
  }

  static generator<output> follow(claim held, uint32_t completions) {
    while (completions > 0) {
      std::optional<output> news;
      {
        detail::entry inside(held.state);
        nvllm_error error;
        if (!inside) detail::fail<void>(busy());
        nvllm_status status = inside->take(held.stream.get(), news, error);
        bool gone = !news && nvllm_is_finished(inside->handle.get()) != 0;
        if (status == NVLLM_OK && !news) status = nvllm_step(inside->handle.get(), 0, nullptr, &error);
        if (status != NVLLM_OK) detail::fail<void>(detail::failure_of(error));
        if (gone)
          detail::fail<void>(detail::failure_of(
              NVLLM_ERR_NOT_FOUND, "the request has ended, and its outputs were polled by nvllm_poll_output"));
      }
      if (!news) continue;
      if (news->finish()) completions--;
      co_yield *news;
    }
  }
#endif

  std::shared_ptr<detail::engine_state> state_;
};

inline void output_range::poll() {
#ifdef NVLLM_CPP_NO_EXCEPTIONS
  returned<std::optional<output>> polled = engine_->poll();
  current_ = polled ? *polled : std::nullopt;
  if (!polled) failure_ = polled.error();
#else
  current_ = engine_->poll();
#endif
}

}  // namespace NVLLM_CPP_MODE

namespace detail {

/// The log callback of the process. Kept here because the C API holds a pointer to it.
inline std::function<void(int32_t, std::string_view)>& log_callback() {
  static std::function<void(int32_t, std::string_view)> callback;
  return callback;
}

}  // namespace detail

/// Sends messages with a level of at most `max_level` (NVLLM_LOG_*) to `callback`, on the threads that make calls. An
/// empty function disables logging. The callback must not throw, and only one thread may set it at a time.
inline void set_log_callback(std::function<void(int32_t level, std::string_view message)> callback, int32_t max_level) {
  // When this has returned, the previous callback is no longer running and can be replaced.
  nvllm_set_log_callback(nullptr, nullptr, NVLLM_LOG_OFF);
  detail::log_callback() = std::move(callback);
  if (!detail::log_callback()) return;
  nvllm_set_log_callback([](int32_t level, const char* message, std::size_t len,
                            void*) noexcept { detail::log_callback()(level, std::string_view(message, len)); },
                         nullptr, max_level);
}

}  // namespace nvllm

#endif

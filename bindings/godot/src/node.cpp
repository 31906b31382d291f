#include "node.hpp"

#include "model.hpp"

#include <algorithm>

using godot::Value;

namespace {

const double STEP_BUDGET_MS_MAX = 10000;

const char* finish_name(int32_t reason) {
    switch (reason) {
        case NVLLM_FINISH_STOP: return "stop";
        case NVLLM_FINISH_LENGTH: return "length";
        case NVLLM_FINISH_CANCELLED: return "cancelled";
        case NVLLM_FINISH_EXPIRED: return "expired";
        default: return "unknown";
    }
}

// Whether a property is from 0 to `most`.
bool check(const char* name, int64_t value, int64_t most, std::string& message) {
    if (value >= 0 && value <= most) return true;
    message = std::string(name) + " must be from 0 to " + std::to_string(most) + ", but is " + std::to_string(value);
    return false;
}

}  // namespace

void Node::set_step_budget_ms(double value) {
    // Also refuses NaN. A budget of 0 would run a whole forward pass, however long it takes.
    if (!(value > 0 && value <= STEP_BUDGET_MS_MAX)) {
        godot::print_error("step_budget_ms must be above 0 and at most 10000, but is " + Value::of(value).to_text() + ": it stays " +
                           Value::of(step_budget_ms_).to_text());
        return;
    }
    step_budget_ms_ = value;
}

std::string Node::open() {
    last_error_ = open_engine();
    return last_error_;
}

std::string Node::open_engine() {
    if (engine_) return "the engine is open: call close() before open()";
    if (model_path.empty()) return "model_path is empty: it must be the path of a model folder or of a GGUF file";
    nvllm_engine_config config;
    nvllm_engine_config_init(&config, sizeof config);
    std::string message;
    if (!check("device", device, NVLLM_DEVICE_CUDA, message) || !check("max_model_len", max_model_len, UINT32_MAX, message) ||
        !check("max_num_seqs", max_num_seqs, UINT32_MAX, message) || !check("num_threads", num_threads, UINT32_MAX, message) ||
        !check("kv_cache_bytes", kv_cache_bytes, INT64_MAX, message) || !check("gpu_memory_bytes", gpu_memory_bytes, INT64_MAX, message)) {
        return message;
    }
    config.device = static_cast<int32_t>(device);
    config.max_model_len = static_cast<uint32_t>(max_model_len);
    config.max_num_seqs = static_cast<uint32_t>(max_num_seqs);
    config.num_threads = static_cast<uint32_t>(num_threads);
    config.kv_cache_bytes = static_cast<uint64_t>(kv_cache_bytes);
    config.gpu_memory_bytes = static_cast<uint64_t>(gpu_memory_bytes);
    config.host_expert_layers = static_cast<int32_t>(std::clamp<int64_t>(host_expert_layers, INT32_MIN, INT32_MAX));
    engine_ = open_model(model_path, config, files_, message);
    if (!engine_) files_ = Value();
    ids_before_ = last_id_;
    return message;
}

std::set<int64_t> Node::end_all() {
    std::set<int64_t> ended;
    for (const auto& one : live_) ended.insert(one.first);
    live_.clear();
    return ended;
}

void Node::close() {
    std::set<int64_t> ended = end_all();
    nvllm_engine_free(engine_);
    engine_ = nullptr;
    files_ = Value();
    for (int64_t id : ended) emit("finished", id, "cancelled");
}

void Node::free() {
    object_ = nullptr;
    close();
}

int64_t Node::refuse(const std::string& message) {
    last_error_ = message;
    emit("failed", 0, message);
    return 0;
}

int64_t Node::add(const std::string& prompt, const RequestOptions& options) {
    uint64_t id = 0;
    nvllm_error error;
    std::shared_ptr<Answer> answer;
    std::string message;
    if (options.is_parsed()) {
        answer = Answer::make(engine_, prompt, options.native()->tools, message);
        if (!answer) return refuse(message);
    }
    if (nvllm_add_request(engine_, prompt.data(), prompt.size(), options.native(), &id, &error) != NVLLM_OK) return refuse(error.message);
    last_id_ = ids_before_ + static_cast<int64_t>(id);
    live_[last_id_] = answer;
    return last_id_;
}

int64_t Node::generate(const std::string& prompt, const Value& options) {
    if (!engine_) return refuse("the engine is closed: call open() before generate()");
    std::string message;
    RequestOptions request;
    if (!request.read(engine_, options, false, message)) return refuse(message);
    return add(prompt, request);
}

int64_t Node::generate_chat(const Value& messages, const Value& options) {
    if (!engine_) return refuse("the engine is closed: call open() before generate_chat()");
    std::string message, json;
    for (int64_t i = 0, size = messages.size(); i < size; i++) {
        Value one = messages.at(i);
        std::string name = "messages[" + std::to_string(i) + "]";
        if (one.type() != GDEXTENSION_VARIANT_TYPE_DICTIONARY) {
            return refuse(name + " must be a Dictionary with role and content, but is " + one.type_name());
        }
        Value role = one.get(Value::of(std::string("role")));
        if (!role.is_text()) return refuse(name + " needs a role, which must be a String, but is " + role.type_name());
    }
    RequestOptions request;
    if (!append_json(messages, "messages", json, message) || !request.read(engine_, options, true, message)) return refuse(message);
    const std::string& template_options = request.template_options();
    const char* template_json = template_options.empty() ? nullptr : template_options.c_str();
    std::string prompt;
    size_t needed = 0;
    nvllm_error error;
    // The first call asks for the size, which includes a NUL.
    nvllm_status status = nvllm_apply_chat_template(engine_, json.data(), json.size(), template_json, template_options.size(), nullptr, 0,
                                                    &needed, &error);
    if (status == NVLLM_ERR_BUFFER_TOO_SMALL) {
        prompt.resize(needed);
        status = nvllm_apply_chat_template(engine_, json.data(), json.size(), template_json, template_options.size(), &prompt[0],
                                           prompt.size(), &needed, &error);
    }
    if (status != NVLLM_OK) return refuse(error.message);
    prompt.resize(needed - 1);
    return add(prompt, request);
}

bool Node::cancel(int64_t id) {
    return live_.count(id) == 1 && nvllm_cancel(engine_, static_cast<uint64_t>(id - ids_before_)) == NVLLM_OK;
}

int64_t Node::trim() {
    uint64_t freed = 0;
    if (engine_ && nvllm_trim(engine_, &freed, nullptr) != NVLLM_OK) return 0;
    return static_cast<int64_t>(freed);
}

Value Node::stats() const {
    Value result = Value::dictionary();
    nvllm_stats stats = {};
    stats.struct_size = sizeof stats;
    if (!engine_ || nvllm_get_stats(engine_, &stats, nullptr) != NVLLM_OK) return result;
#define ENTRY(name) result.set(Value::of(std::string(#name)), Value::of(static_cast<int64_t>(stats.name)))
    ENTRY(steps);
    ENTRY(prompt_tokens);
    ENTRY(cached_tokens);
    ENTRY(generated_tokens);
    ENTRY(preemptions);
    ENTRY(step_time_us);
    ENTRY(running);
    ENTRY(waiting);
    ENTRY(kv_blocks_total);
    ENTRY(kv_blocks_used);
    ENTRY(kv_blocks_pinned);
    ENTRY(prefix_cache_queries);
    ENTRY(prefix_cache_hits);
    ENTRY(prefix_cache_evictions);
    ENTRY(gpu_memory_bytes);
    ENTRY(kv_cache_bytes_mapped);
    ENTRY(prefix_cache_recomputed);
#undef ENTRY
    return result;
}

void Node::ready() {
    // Unlike _process, internal processing remains when a script on this node has a _process of its own.
    Value on = Value::of(true);
    Value::of_object(object_).call("set_process_internal", {&on});
    if (!autostart || engine_) return;
    std::string message = open();
    if (!message.empty()) refuse(message);
}

void Node::fail_all(const std::string& message) {
    std::set<int64_t> ended = end_all();
    last_error_ = message;
    // The engine cannot be used any more.
    close();
    for (int64_t id : ended) emit("failed", id, message);
}

void Node::step() {
    // An engine that a call found unusable is finished too: the step returns its error, which the live requests get.
    if (!engine_ || (live_.empty() && is_finished())) return;
    nvllm_error error;
    uint64_t budget_us = static_cast<uint64_t>(step_budget_ms_ * 1000);
    if (nvllm_step(engine_, budget_us > 0 ? budget_us : 1, nullptr, &error) < 0) return fail_all(error.message);
    // Polls again after each signal: its handler may have closed the engine, or opened another one.
    while (engine_) {
        nvllm_output output = {};
        output.struct_size = sizeof output;
        nvllm_status status = nvllm_poll_output(engine_, &output, &error);
        if (status == NVLLM_NO_OUTPUT) return;
        if (status < 0) return fail_all(error.message);
        emit_output(output);
    }
}

void Node::emit_output(const nvllm_output& output) {
    // What the output points to is valid until a handler calls the engine.
    int64_t id = ids_before_ + static_cast<int64_t>(output.request_id);
    int32_t reason = output.finish_reason;
    std::string text(output.text ? output.text : "", output.text ? output.text_len : 0);
    std::string message = output.error_message ? output.error_message : "";
    auto found = live_.find(id);
    // A request that has failed, as in emit_parts.
    if (found == live_.end()) return;
    std::shared_ptr<Answer> answer = found->second;
    if (answer) {
        if (!emit_parts(id, *answer, text, reason != NVLLM_FINISH_NONE)) return;
    } else if (!text.empty()) {
        emit("text_generated", id, text);
    }
    // close() in the handler has ended the request already.
    if (reason == NVLLM_FINISH_NONE || live_.erase(id) == 0) return;
    if (reason == NVLLM_FINISH_ERROR) {
        last_error_ = message;
        return emit("failed", id, message);
    }
    if (answer) {
        Value of = Value::of(id), whole = answer->message();
        emit("message_completed", {&of, &whole});
    }
    emit("finished", id, finish_name(reason));
}

bool Node::emit_parts(int64_t id, Answer& answer, const std::string& text, bool is_end) {
    std::vector<AnswerPart> parts;
    std::string message;
    bool is_read = answer.read(text, is_end, parts, message);
    for (const AnswerPart& part : parts) {
        if (part.kind == AnswerPart::Kind::call) {
            Value of = Value::of(id), name = Value::of(part.text);
            emit("tool_called", {&of, &name, &part.arguments});
        } else {
            emit(part.kind == AnswerPart::Kind::content ? "text_generated" : "reasoning_generated", id, part.text);
        }
        if (live_.count(id) == 0) return false;
    }
    if (is_read) return true;
    cancel(id);
    live_.erase(id);
    last_error_ = message;
    emit("failed", id, message);
    return false;
}

void Node::emit(const char* signal, std::vector<const Value*> arguments) {
    if (!object_) return;
    Value name = Value::of(std::string(signal));
    arguments.insert(arguments.begin(), &name);
    Value::of_object(object_).call("emit_signal", arguments);
}

void Node::emit(const char* signal, int64_t id, const std::string& text) {
    Value first = Value::of(id), second = Value::of(text);
    emit(signal, {&first, &second});
}

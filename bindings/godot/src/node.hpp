// What is a NanovllmEngine? An engine that its node steps once per frame, and whose outputs become signals.
//
// All of it happens on the thread that calls: the node has no thread of its own, so that a handler of a signal may do anything, also close
// the engine or free the node. Invariant: an id is in `live_` from its request until the signal that ends it.
#pragma once

#include <nanovllm.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "answer.hpp"
#include "godot.hpp"
#include "options.hpp"

class Node {
public:
    explicit Node(GDExtensionObjectPtr object) : object_(object) {}
    ~Node() { nvllm_engine_free(engine_); }
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    // Properties. Those of the engine take effect when it opens, step_budget_ms at once.
    std::string model_path;
    int64_t device = NVLLM_DEVICE_AUTO;
    int64_t max_model_len = 0;
    int64_t max_num_seqs = 0;
    int64_t num_threads = 0;
    int64_t kv_cache_bytes = 0;
    int64_t gpu_memory_bytes = 0;
    int64_t host_expert_layers = 0;
    bool autostart = false;
    double step_budget_ms() const { return step_budget_ms_; }
    void set_step_budget_ms(double value);

    // Opens the model, which takes as long as reading its files. Returns the error, or an empty text.
    std::string open();
    // Frees the engine. The requests that it had end with finished(id, "cancelled"). Without an engine it does nothing.
    void close();
    bool is_open() const { return engine_ != nullptr; }

    // The id of the new request; 0 if it is refused, after failed(0, message).
    int64_t generate(const std::string& prompt, const godot::Value& options);
    int64_t generate_chat(const godot::Value& messages, const godot::Value& options);
    // False if the request has ended or never existed.
    bool cancel(int64_t id);

    // Gives memory of the KV cache back that no request needs, and returns the number of bytes: 0 without an engine.
    int64_t trim();
    bool is_finished() const { return !engine_ || nvllm_is_finished(engine_) == 1; }
    const std::string& last_error() const { return last_error_; }
    godot::Value stats() const;

    void ready();
    // Steps within the budget, and emits what is new. A handler may free the node: the caller holds it by a shared_ptr.
    void step();
    // The object is being freed, and emits nothing any more.
    void free();

private:
    std::string open_engine();
    int64_t add(const std::string& prompt, const RequestOptions& options);
    int64_t refuse(const std::string& message);
    void fail_all(const std::string& message);
    // The ids of all live requests, which are none any more.
    std::set<int64_t> end_all();
    void emit(const char* signal, std::vector<const godot::Value*> arguments);
    void emit(const char* signal, int64_t id, const std::string& text);
    void emit_output(const nvllm_output& output);
    // False if a handler has ended the request, or if what the model wrote cannot be read, which is then failed.
    bool emit_parts(int64_t id, Answer& answer, const std::string& text, bool is_end);

    GDExtensionObjectPtr object_;
    nvllm_engine* engine_ = nullptr;
    // The files of a model that is in a pack file, which the engine reads.
    godot::Value files_;
    // By id: what reads the answer, or null if its text is passed on as it is.
    std::map<int64_t, std::shared_ptr<Answer>> live_;
    // The ids of an engine start at 1. Those of the node go on when it opens another one, so that no two of its requests share one.
    int64_t ids_before_ = 0;
    int64_t last_id_ = 0;
    std::string last_error_;
    double step_budget_ms_ = 4;
};

// How do a Dictionary of options and an Array of messages become what the C API takes?
//
// Nothing is ignored: a key that is unknown and a value that its option cannot hold are errors that name the key.
#pragma once

#include <nanovllm.h>

#include <optional>
#include <string>
#include <vector>

#include "godot.hpp"

// Options of a request, and the texts and numbers to which their pointers lead.
class RequestOptions {
public:
    // Starts from the options that the model recommends. On an error, returns false with a message.
    // `is_chat`: whether "template_options" is accepted.
    bool read(const nvllm_engine* engine, const godot::Value& dictionary, bool is_chat, std::string& message);

    const nvllm_request_options* native() const { return &options_; }
    // The object of "template_options" as JSON; empty if there is none.
    const std::string& template_options() const { return template_options_; }
    // Whether the answer becomes content, reasoning and tool calls.
    bool is_parsed() const { return is_parsed_; }

private:
    bool set(const std::string& key, const godot::Value& value, bool is_chat, std::string& message);
    bool set_tools(const godot::Value& value, std::string& message);
    bool set_tool_name(const godot::Value& value, std::string& message);
    bool set_template_options(const godot::Value& value, bool is_chat, std::string& message);
    bool set_structure(const std::string& key, const godot::Value& value, std::string& message);
    bool set_stop(const godot::Value& value, std::string& message);
    bool set_breakers(const godot::Value& value, std::string& message);
    bool set_stop_tokens(const godot::Value& value, std::string& message);
    // What depends on several options.
    bool conclude(bool is_chat, std::string& message);

    nvllm_request_options options_;
    std::string structure_key_;
    std::string structure_;
    std::string tools_;
    std::string tool_name_;
    std::string template_options_;
    bool has_tools_of_template_ = false;
    std::optional<bool> parse_answer_;
    std::optional<bool> keep_special_tokens_;
    bool is_parsed_ = false;
    std::vector<std::string> stop_;
    std::vector<const char*> stop_pointers_;
    std::vector<std::string> breakers_;
    std::vector<const char*> breaker_pointers_;
    std::vector<uint32_t> stop_tokens_;
};

// Appends a value as JSON: null, bool, int, finite float, text, lists, and dictionaries with keys of text, in their order. `where`
// names the value in the message.
bool append_json(const godot::Value& value, const std::string& where, std::string& json, std::string& message);

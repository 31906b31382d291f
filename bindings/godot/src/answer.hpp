// What does an answer consist of? Content, reasoning and tool calls, while it is written, as values of Godot.
//
// What became known is copied before a signal tells it, because its handler may close the engine and so free the Answer.
#pragma once

#include <nanovllm.h>

#include <memory>
#include <string>
#include <vector>

#include "godot.hpp"

// A piece of an answer, or a call that is complete.
struct AnswerPart {
    enum class Kind { content, reasoning, call };
    Kind kind;
    // Of a call: the name of the tool.
    std::string text;
    // Of a call: a Dictionary.
    godot::Value arguments;
};

// Reads one answer. It does not need the engine after make().
class Answer {
public:
    // `prompt` is what the model writes after; `tools` is JSON, or null. Returns null with a message if the model's format cannot be read.
    static std::shared_ptr<Answer> make(const nvllm_engine* engine, const std::string& prompt, const char* tools, std::string& message);
    ~Answer() { nvllm_answer_parser_free(parser_); }
    Answer(const Answer&) = delete;
    Answer& operator=(const Answer&) = delete;

    // Appends what became known by a further text, and where the answer ends, what its end says. On an error, returns false with a message.
    bool read(const std::string& text, bool is_end, std::vector<AnswerPart>& parts, std::string& message);
    // The message so far, for generate_chat: role, content, and where there are some reasoning_content and tool_calls.
    godot::Value message() const;

private:
    explicit Answer(nvllm_answer_parser* parser) : parser_(parser) {}
    void append(const nvllm_answer_event* events, size_t count, std::vector<AnswerPart>& parts);

    nvllm_answer_parser* parser_;
    // Of the call that is being written.
    std::string name_;
    std::string arguments_;
};

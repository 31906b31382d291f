#include "answer.hpp"

using godot::Value;

std::shared_ptr<Answer> Answer::make(const nvllm_engine* engine, const std::string& prompt, const char* tools, std::string& message) {
    nvllm_answer_parser* parser = nullptr;
    nvllm_error error;
    if (nvllm_answer_parser_new(engine, prompt.data(), prompt.size(), tools, &parser, &error) == NVLLM_OK) {
        return std::shared_ptr<Answer>(new Answer(parser));
    }
    message = error.message;
    return nullptr;
}

bool Answer::read(const std::string& text, bool is_end, std::vector<AnswerPart>& parts, std::string& message) {
    const nvllm_answer_event* events = nullptr;
    size_t count = 0;
    nvllm_error error;
    nvllm_status status = nvllm_answer_parser_feed(parser_, text.data(), text.size(), &events, &count, &error);
    if (status == NVLLM_OK) append(events, count, parts);
    if (status == NVLLM_OK && is_end) {
        status = nvllm_answer_parser_finish(parser_, &events, &count, &error);
        if (status == NVLLM_OK) append(events, count, parts);
    }
    if (status != NVLLM_OK) message = error.message;
    return status == NVLLM_OK;
}

void Answer::append(const nvllm_answer_event* events, size_t count, std::vector<AnswerPart>& parts) {
    for (size_t i = 0; i < count; i++) {
        std::string text(events[i].text, events[i].text_len);
        switch (events[i].kind) {
            case NVLLM_ANSWER_CONTENT:
                parts.push_back({AnswerPart::Kind::content, text, Value()});
                break;
            case NVLLM_ANSWER_REASONING:
                parts.push_back({AnswerPart::Kind::reasoning, text, Value()});
                break;
            case NVLLM_ANSWER_TOOL_CALL_BEGIN:
                name_ = text;
                arguments_.clear();
                break;
            case NVLLM_ANSWER_TOOL_CALL_ARGUMENTS:
                arguments_ += text;
                break;
            case NVLLM_ANSWER_TOOL_CALL_END:
                parts.push_back({AnswerPart::Kind::call, name_, godot::parse_json(arguments_)});
                break;
            default:
                // The text of a call that broke follows as content.
                break;
        }
    }
}

Value Answer::message() const {
    std::string text;
    size_t needed = 1024;
    nvllm_status status;
    do {
        text.resize(needed);
        status = nvllm_answer_parser_message(parser_, &text[0], text.size(), &needed, nullptr);
    } while (status == NVLLM_ERR_BUFFER_TOO_SMALL);
    if (status != NVLLM_OK) return Value::dictionary();
    text.resize(needed - 1);
    return godot::parse_json(text);
}

// Answers: content, reasoning and tool calls, while they are written.
#ifndef NANOVLLM_ANSWER_HPP
#define NANOVLLM_ANSWER_HPP

#include <nanovllm.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "result.hpp"

namespace nvllm {

/// What an answer_event says.
enum class answer_event_kind : int32_t {
  content = NVLLM_ANSWER_CONTENT,
  reasoning = NVLLM_ANSWER_REASONING,
  tool_call_begin = NVLLM_ANSWER_TOOL_CALL_BEGIN,
  tool_call_arguments = NVLLM_ANSWER_TOOL_CALL_ARGUMENTS,
  tool_call_end = NVLLM_ANSWER_TOOL_CALL_END,
  tool_call_broken = NVLLM_ANSWER_TOOL_CALL_BROKEN,
};

/// What became known of an answer: see nvllm_answer_event.
struct answer_event {
  answer_event_kind kind = answer_event_kind::content;
  uint32_t call_index = 0;
  std::string text;
};

inline namespace NVLLM_CPP_MODE {

/// Owns a parser of one answer, which engine::make_answer_parser() makes. Movable, not copyable; independent of the engine.
class answer_parser {
 public:
  explicit answer_parser(nvllm_answer_parser* native) : native_(native) {}

  /// Reads a further piece of the answer, in whole characters, and returns what became known.
  returned<std::vector<answer_event>> feed(std::string_view text) {
    return read([&](const nvllm_answer_event** events, std::size_t* count, nvllm_error* error) {
      return nvllm_answer_parser_feed(native_.get(), text.data(), text.size(), events, count, error);
    });
  }

  /// Says that the answer ends here, and returns the last events. A second call returns none.
  returned<std::vector<answer_event>> finish() {
    return read([&](const nvllm_answer_event** events, std::size_t* count, nvllm_error* error) {
      return nvllm_answer_parser_finish(native_.get(), events, count, error);
    });
  }

  /// Returns the message so far, as JSON for engine::apply_chat_template: see nvllm_answer_parser_message.
  returned<std::string> message() const {
    std::string text;
    std::size_t needed = 1024;
    nvllm_error error;
    nvllm_status status;
    do {
      text.resize(needed);
      status = nvllm_answer_parser_message(native_.get(), &text[0], text.size(), &needed, &error);
    } while (status == NVLLM_ERR_BUFFER_TOO_SMALL);
    if (status != NVLLM_OK) return detail::fail<std::string>(detail::failure_of(error));
    text.resize(needed - 1);
    return text;
  }

 private:
  struct free_parser {
    void operator()(nvllm_answer_parser* native) const noexcept { nvllm_answer_parser_free(native); }
  };

  template <class Call>
  returned<std::vector<answer_event>> read(const Call& call) {
    const nvllm_answer_event* found = nullptr;
    std::size_t count = 0;
    nvllm_error error;
    if (call(&found, &count, &error) != NVLLM_OK) return detail::fail<std::vector<answer_event>>(detail::failure_of(error));
    std::vector<answer_event> events(count);
    for (std::size_t i = 0; i < count; i++) {
      events[i].kind = static_cast<answer_event_kind>(found[i].kind);
      events[i].call_index = found[i].call_index;
      events[i].text.assign(found[i].text, found[i].text_len);
    }
    return events;
  }

  std::unique_ptr<nvllm_answer_parser, free_parser> native_;
};

}  // namespace NVLLM_CPP_MODE
}  // namespace nvllm

#endif

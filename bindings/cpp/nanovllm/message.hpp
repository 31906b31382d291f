// A conversation, and its JSON for the chat template.
#ifndef NANOVLLM_MESSAGE_HPP
#define NANOVLLM_MESSAGE_HPP

#include <string>
#include <string_view>
#include <vector>

namespace nvllm {

/// One turn of a conversation.
struct message {
  /// "system", "user", "assistant", or any other role of the model's template.
  std::string role;
  std::string content;
};

namespace detail {

/// A JSON string of UTF-8 text.
inline std::string json_string(std::string_view text) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string json = "\"";
  for (char c : text) {
    unsigned char byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\' || byte < 0x20) {
      json += "\\u00";
      json += digits[byte >> 4];
      json += digits[byte & 15];
    } else {
      json += c;
    }
  }
  return json += '"';
}

}  // namespace detail

/// `[{"role": …, "content": …}, …]`, for engine::apply_chat_template.
inline std::string messages_json(const std::vector<message>& messages) {
  std::string json = "[";
  for (const message& turn : messages) {
    if (json.size() > 1) json += ", ";
    json +=
        "{\"role\": " + detail::json_string(turn.role) + ", \"content\": " + detail::json_string(turn.content) + "}";
  }
  return json += "]";
}

}  // namespace nvllm

#endif

#include "script.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace game {
namespace {

constexpr std::array<std::string_view, 8> verbs = {"type",   "key",     "click", "frames",
                                                   "tokens", "silence", "shot",  "quit"};

void push(SDL_EventType type) {
  SDL_Event event{};
  event.type = type;
  SDL_PushEvent(&event);
}

void type(const std::string& text) {
  SDL_Event event{};
  event.type = SDL_TEXTINPUT;
  // An event holds 31 bytes; splitting at any byte would split characters.
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = std::min(text.size(), at + sizeof event.text.text - 1);
    while (end < text.size() && (text[end] & 0xC0) == 0x80) end--;
    SDL_strlcpy(event.text.text, text.substr(at, end - at).c_str(), sizeof event.text.text);
    SDL_PushEvent(&event);
    at = end;
  }
}

}  // namespace

script::script(const std::string& path) {
  std::ifstream lines(path);
  if (!lines) throw std::runtime_error(path + " cannot be read");
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::size_t space = line.find(' ');
    action next{line.substr(0, space), space == std::string::npos ? "" : line.substr(space + 1)};
    if (std::find(verbs.begin(), verbs.end(), next.verb) == verbs.end())
      throw std::runtime_error(path + ": " + next.verb + " is no action");
    actions_.push_back(next);
  }
}

void script::play(const village& in, const canvas& screen) {
  if (actions_.empty()) return push(SDL_QUIT);
  const auto& [verb, object] = actions_.front();
  uint64_t number = std::strtoull(object.c_str(), nullptr, 10);
  if (frames_waited_ == 0) tokens_before_ = in.tokens();
  frames_waited_++;
  if (verb == "frames" && frames_waited_ <= number) return;
  if (verb == "tokens" && in.tokens() < tokens_before_ + number) return;
  if (verb == "silence" && in.is_talking()) return;
  if (verb == "type") type(object);
  if (verb == "shot") screen.save(object);
  if (verb == "quit") push(SDL_QUIT);
  if (verb == "key") {
    SDL_Event event{};
    event.type = SDL_KEYDOWN;
    event.key.keysym.sym = SDL_GetKeyFromName(object.c_str());
    SDL_PushEvent(&event);
  }
  if (verb == "click") {
    SDL_Event event{};
    event.type = SDL_MOUSEBUTTONDOWN;
    std::istringstream(object) >> event.button.x >> event.button.y;
    SDL_PushEvent(&event);
  }
  actions_.pop_front();
  frames_waited_ = 0;
}

}  // namespace game

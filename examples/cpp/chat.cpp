// A conversation on the command line.
//
//   chat [--system TEXT] MODEL
//
// MODEL is a model folder or a GGUF file.
//
// /reset begins a new conversation; /quit or the end of the input exits. Sampling uses the options that the model
// recommends.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <nanovllm.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using clock = std::chrono::steady_clock;

/// Prints a completion as it is generated, then its speed, and returns its text. Throws if it ends with an error.
std::string answer(nvllm::engine& engine, const std::vector<nvllm::message>& history) {
  std::string text;
  std::optional<nvllm::failure> failed;
  uint32_t tokens = 0, cached = 0, prompt = 0;
  clock::time_point first_token;
  for (const nvllm::output& news : engine.stream(engine.apply_chat_template(history))) {
    if (tokens == 0) first_token = clock::now();
    std::cout << news.text() << std::flush;
    text += news.text();
    tokens = news.completion_tokens();
    prompt = news.prompt_tokens();
    cached = news.cached_tokens();
    failed = news.error();
    if (news.finish() == nvllm::finish::length) std::cerr << " [no room for more]";
  }
  double seconds = std::chrono::duration<double>(clock::now() - first_token).count();
  std::cout << std::endl;
  if (!std::cout) throw std::runtime_error("the output cannot be written");
  if (failed) throw nvllm::error(*failed);
  // The first token counts as part of prefill.
  if (tokens > 1 && seconds > 0)
    std::fprintf(stderr, "[%u tokens, %.0f tokens/s; %u of %u prompt tokens were cached]\n", tokens,
                 (tokens - 1) / seconds, cached, prompt);
  return text;
}

void converse(nvllm::engine& engine, const std::vector<nvllm::message>& beginning) {
  bool interactive = isatty(STDIN_FILENO) != 0;
  std::vector<nvllm::message> history = beginning;
  std::string line;
  for (;;) {
    if (interactive) std::cerr << "> ";
    if (!std::getline(std::cin, line) || line == "/quit") return;
    if (line.empty()) continue;
    if (line == "/reset") {
      history = beginning;
      std::cerr << "[a new conversation]\n";
      continue;
    }
    history.push_back({"user", line});
    try {
      history.push_back({"assistant", answer(engine, history)});
    } catch (const nvllm::error& error) {
      history.pop_back();  // the question
      std::cerr << error.what() << (error.status() == NVLLM_ERR_CONTEXT_LENGTH ? " (/reset begins anew)\n" : "\n");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<nvllm::message> beginning;
  if (argc == 4 && std::string_view(argv[1]) == "--system") {
    beginning.push_back({"system", argv[2]});
  } else if (argc != 2) {
    std::cerr << "usage: chat [--system TEXT] MODEL\n";
    return 2;
  }
  try {
    nvllm::engine engine({.model_path = argv[argc - 1]});
    converse(engine, beginning);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}

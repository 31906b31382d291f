// The header in a second translation unit of the same program, with exceptions.
#include "demo.hpp"

std::string answer_in_another_unit(nvllm::engine& engine, std::string_view prompt);

std::string answer_in_another_unit(nvllm::engine& engine, std::string_view prompt) {
  return std::string(engine.generate({prompt}, greedy(64))[0].text());
}

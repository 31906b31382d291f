// How fast is a model on this machine?
//
//   bench [--threads N] [--prompt N] [--answer N] MODEL
//
// MODEL is a model folder or a GGUF file.
//
// Prints the speed of prefill for a prompt of --prompt tokens (default 512), and of decoding --answer tokens (default
// 64) for several numbers of concurrent requests. The tokens are arbitrary and differ per prompt, so the prefix cache
// has no effect.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <nanovllm.hpp>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace {

struct arguments {
  const char* model = nullptr;
  uint32_t threads = 0;
  uint32_t prompt = 512;
  uint32_t answer = 64;
};

std::optional<arguments> parse(int argc, char** argv) {
  arguments wanted;
  int next = 1;
  for (; next + 1 < argc; next += 2) {
    std::string_view option = argv[next], value = argv[next + 1];
    uint32_t* number = option == "--threads"  ? &wanted.threads
                       : option == "--prompt" ? &wanted.prompt
                       : option == "--answer" ? &wanted.answer
                                              : nullptr;
    if (number == nullptr) return std::nullopt;
    auto [end, wrong] = std::from_chars(value.data(), value.data() + value.size(), *number);
    if (wrong != std::errc() || end != value.data() + value.size()) return std::nullopt;
  }
  if (next + 1 != argc || wanted.prompt == 0 || wanted.answer < 2) return std::nullopt;
  wanted.model = argv[next];
  return wanted;
}

/// Prompts without common prefixes.
class prompts {
 public:
  explicit prompts(uint32_t vocab_size) : vocab_size_(vocab_size) {}
  std::vector<uint32_t> next(uint32_t tokens) {
    std::vector<uint32_t> prompt(tokens);
    for (uint32_t& token : prompt) token = static_cast<uint32_t>((state_ = state_ * 48271 % 2147483647) % vocab_size_);
    return prompt;
  }

 private:
  uint64_t state_ = 1;
  uint32_t vocab_size_;
};

/// Tokens per second, measured from the first generated token of the last request.
struct speed {
  double prompt = 0, answer = 0;
  std::chrono::duration<double> first_token{0}, step{0};
};

speed measure(nvllm::engine& engine, prompts& source, uint32_t requests, uint32_t prompt, uint32_t answer) {
  using clock = std::chrono::steady_clock;
  nvllm::request_options options;
  options.max_tokens = answer;
  options.ignore_eos = true;
  for (uint32_t i = 0; i < requests; i++) engine.add_tokens(source.next(prompt), options);

  speed found;
  uint32_t started = 0, prompt_tokens = 0, answer_tokens = 0, steps = 0;
  clock::time_point begin = clock::now(), all_started = begin;
  while (!engine.is_finished()) {
    nvllm_step_result done = engine.step();
    prompt_tokens += done.prefill_tokens;
    bool had_started = started == requests;
    for (const nvllm::output& news : engine.outputs()) {
      if (std::optional<nvllm::failure> failed = news.error()) throw nvllm::error(*failed);
      started += news.completion_tokens() == news.token_ids().size();
    }
    if (had_started) {
      answer_tokens += done.decode_tokens;
      steps += done.num_iterations;
    } else if (started == requests) {
      all_started = clock::now();
      found.first_token = all_started - begin;
      found.prompt = prompt_tokens / found.first_token.count();
    }
  }
  std::chrono::duration<double> answering = clock::now() - all_started;
  found.answer = answer_tokens / answering.count();
  found.step = answering / std::max(steps, 1u);
  return found;
}

void report(const arguments& wanted) {
  nvllm::engine engine({.model_path = wanted.model, .num_threads = wanted.threads});
  nvllm_model_info model = engine.model_info();
  std::printf("%.1f million parameters, %.2f GB of weights, on %s; %.2f GB of %sKV cache for %u tokens\n",
              static_cast<double>(model.num_parameters) / 1e6, static_cast<double>(model.weight_bytes) / 1e9,
              model.device == NVLLM_DEVICE_CUDA ? "the GPU" : "the CPU",
              static_cast<double>(model.kv_cache_bytes) / 1e9,
              model.kv_cache_dtype == NVLLM_KV_CACHE_INT8 ? "int8 " : "", model.num_kv_blocks * model.kv_block_size);
  prompts source(model.vocab_size);
  measure(engine, source, 1, 16, 4);  // the first pass is slower than the others

  speed one = measure(engine, source, 1, wanted.prompt, 2);
  std::printf("a prompt of %u: %.0f tokens/s, its first token after %.1f ms\n", wanted.prompt, one.prompt,
              one.first_token.count() * 1e3);
  std::printf("%10s %14s %12s\n", "at once", "tokens/s", "ms a step");
  for (uint32_t requests = 1; requests <= std::min(model.max_num_seqs, 256u); requests *= 4) {
    speed all = measure(engine, source, requests, 16, wanted.answer);
    std::printf("%10u %14.0f %12.2f\n", requests, all.answer, all.step.count() * 1e3);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) throw std::runtime_error("the output cannot be written");
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::optional<arguments> wanted = parse(argc, argv);
  if (!wanted) {
    std::cerr << "usage: bench [--threads N] [--prompt N] [--answer N] MODEL\n";
    return 2;
  }
  try {
    report(*wanted);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}

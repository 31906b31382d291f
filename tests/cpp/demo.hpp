// The demo model as the C++ tests open it: small, so that a test takes milliseconds.
#ifndef NANOVLLM_TESTS_DEMO_HPP
#define NANOVLLM_TESTS_DEMO_HPP

#include <nanovllm.hpp>

inline nvllm::engine_options demo_options() {
  nvllm::engine_options options;
  options.model_path = NVLLM_TEST_MODEL;
  options.num_threads = 1;
  options.max_model_len = 512;
  options.max_num_seqs = 8;
  options.max_batched_tokens = 128;
  options.kv_cache_bytes = 16u << 20;
  options.seed = 1;
  return options;
}

inline nvllm::request_options greedy(uint32_t max_tokens) {
  nvllm::request_options options;
  options.max_tokens = max_tokens;
  return options;
}

#endif

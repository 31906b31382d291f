// The options of the program that say how, on which devices, and in which processes, a model is computed. They hold for all commands
// that open a model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// What the command line and the launcher say.
struct parallel_options {
  int32_t device = -1;         // NVLLM_DEVICE_*, or -1
  int32_t kv_cache_dtype = 0;  // NVLLM_KV_CACHE_*
  int32_t quantization = 0;    // NVLLM_QUANTIZATION_*
  uint32_t tensor_parallel_size = 0;
  std::vector<int32_t> devices;
  uint32_t processes = 0, index = 0, local_index = 0, peer_timeout_ms = 0;
  std::string rendezvous;
  const char* launcher = nullptr;
  /// Names of the options of the command line.
  std::vector<std::string_view> given;
};

/// Takes the options from the front of the arguments. Returns how many arguments they are, or -1 after a message.
int take_parallel_options(int argc, char** argv);

/// The options that were taken.
const parallel_options& parallel();

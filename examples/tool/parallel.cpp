#include "parallel.hpp"

#include <nanovllm.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "launcher.hpp"

namespace {

parallel_options options;

template <typename number>
bool read(std::string_view text, number& value) {
  auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value);
  return wrong == std::errc() && end == text.data() + text.size();
}

bool read_devices(std::string_view text) {
  while (!text.empty()) {
    size_t comma = std::min(text.find(','), text.size());
    if (!read(text.substr(0, comma), options.devices.emplace_back())) return false;
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return !options.devices.empty();
}

bool read_device(std::string_view text) {
  options.device = text == "cpu" ? NVLLM_DEVICE_CPU : text == "cuda" ? NVLLM_DEVICE_CUDA : -1;
  return options.device >= 0;
}

bool read_kv_cache_dtype(std::string_view text) {
  options.kv_cache_dtype = text == "int8" ? NVLLM_KV_CACHE_INT8 : NVLLM_KV_CACHE_AUTO;
  return text == "int8" || text == "auto";
}

bool read_quantization(std::string_view text) {
  options.quantization = text == "none"   ? NVLLM_QUANTIZATION_NONE
                         : text == "int8" ? NVLLM_QUANTIZATION_INT8
                         : text == "int4" ? NVLLM_QUANTIZATION_INT4
                                          : -1;
  return options.quantization >= 0;
}

bool take(std::string_view name, std::string_view value) {
  if (name == "--device") return read_device(value);
  if (name == "--kv-cache-dtype") return read_kv_cache_dtype(value);
  if (name == "--quantization") return read_quantization(value);
  if (name == "--devices") return read_devices(value);
  if (name == "--tensor-parallel-size") return read(value, options.tensor_parallel_size);
  if (name == "--num-processes") return read(value, options.processes);
  if (name == "--process-index") return read(value, options.index);
  if (name == "--peer-timeout-ms") return read(value, options.peer_timeout_ms);
  if (name == "--rendezvous") options.rendezvous = value;
  return name == "--rendezvous" && !value.empty();
}

// Takes what the command line leaves open from the launcher.
bool ask_launcher() {
  auto place = find_place([](const char* name) { return static_cast<const char*>(std::getenv(name)); });
  if (!place) {
    std::fputs("--distributed: no variables of torchrun, Open MPI, Slurm or LeaderWorkerSet\n", stderr);
    return false;
  }
  options.launcher = place->launcher;
  options.processes = place->processes;
  options.index = place->index;
  options.local_index = place->local_index;
  if (options.rendezvous.empty()) options.rendezvous = place->rendezvous();
  if (options.rendezvous.empty() && options.processes > 1) {
    std::fprintf(stderr, "--distributed: %s does not say where process 0 runs: use --rendezvous\n", place->launcher);
    return false;
  }
  return true;
}

}  // namespace

const parallel_options& parallel() { return options; }

int take_parallel_options(int argc, char** argv) {
  int next = 0;
  bool is_distributed = false;
  while (next < argc && std::strncmp(argv[next], "--", 2) == 0 && std::strcmp(argv[next], "--help") != 0) {
    if (std::strcmp(argv[next], "--distributed") == 0) {
      is_distributed = true;
      next++;
    } else if (next + 1 < argc && take(argv[next], argv[next + 1])) {
      next += 2;
    } else {
      std::fprintf(stderr, "%s: unknown, or without a value that it takes\n", argv[next]);
      return -1;
    }
  }
  if (is_distributed && !ask_launcher()) return -1;
  if (options.tensor_parallel_size == 0) options.tensor_parallel_size = options.processes;
  return next;
}

// The commands are examples that know nothing of processes: they are compiled to open their engines here. A process that follows
// has the same command line as the one that leads, serves instead of doing what the command does, and ends.
extern "C" nvllm_status tool_engine_new(const nvllm_engine_config* wanted, nvllm_engine** engine, nvllm_error* error) {
  nvllm_engine_config config = *wanted;
  if (options.device >= 0) config.device = options.device;
  config.kv_cache_dtype = options.kv_cache_dtype;
  config.quantization = options.quantization;
  config.tensor_parallel_size = options.tensor_parallel_size;
  // Processes of one host have the GPUs one after the other.
  uint32_t ranks_here = options.tensor_parallel_size / std::max(options.processes, 1u);
  if (config.device != NVLLM_DEVICE_CPU) config.device_index += static_cast<int32_t>(options.local_index * ranks_here);
  config.device_indices = options.devices.empty() ? nullptr : options.devices.data();
  config.num_device_indices = static_cast<uint32_t>(options.devices.size());
  config.num_processes = options.processes;
  config.process_index = options.index;
  config.peer_timeout_ms = options.peer_timeout_ms;
  config.rendezvous = options.rendezvous.empty() ? nullptr : options.rendezvous.c_str();
  nvllm_status status = nvllm_engine_new(&config, engine, error);
  if (status != NVLLM_OK || options.index == 0) return status;

  nvllm_error failure;
  do status = nvllm_step(*engine, 0, nullptr, &failure);
  while (status == NVLLM_OK);
  nvllm_engine_free(*engine);
  if (status == NVLLM_CLOSED) std::exit(0);
  std::fprintf(stderr, "process %u: %s\n", options.index, failure.message);
  std::exit(1);
}

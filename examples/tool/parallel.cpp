#include "parallel.hpp"

#include <nanovllm.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "launcher.hpp"

namespace {

parallel_options options;

template <typename number>
bool read(std::string_view text, number& value) {
  auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value);
  return wrong == std::errc() && end == text.data() + text.size();
}

// Reads a number from least on.
template <typename number>
bool read_from(number least, std::string_view text, number& value) {
  return read(text, value) && value >= least;
}

bool read_devices(std::string_view text) {
  options.devices.clear();
  for (size_t begin = 0, end; begin <= text.size(); begin = end + 1) {
    end = std::min(text.find(',', begin), text.size());
    if (!read_from(0, text.substr(begin, end - begin), options.devices.emplace_back())) return false;
  }
  return true;
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

bool read_rendezvous(std::string_view text) {
  options.rendezvous = text;
  return !text.empty();
}

struct option {
  const char* name;
  const char* takes;
  bool (*read)(std::string_view text);
};
constexpr option known_options[] = {
    {"--device", "cpu or cuda", read_device},
    {"--kv-cache-dtype", "auto or int8", read_kv_cache_dtype},
    {"--quantization", "none, int8 or int4", read_quantization},
    {"--devices", "indices of GPUs with commas between them", read_devices},
    {"--tensor-parallel-size", "a number of ranks",
     [](std::string_view text) { return read_from(1u, text, options.tensor_parallel_size); }},
    {"--num-processes", "a number of processes",
     [](std::string_view text) { return read_from(1u, text, options.processes); }},
    {"--process-index", "an index from 0", [](std::string_view text) { return read(text, options.index); }},
    {"--peer-timeout-ms", "a number of milliseconds",
     [](std::string_view text) { return read(text, options.peer_timeout_ms); }},
    {"--rendezvous", "HOST:PORT or unix:/PATH", read_rendezvous}};

// Takes an option and its value, which is NULL at the end of the arguments. false after a message.
bool take(const char* name, const char* value) {
  auto known = std::find_if(std::begin(known_options), std::end(known_options),
                            [&](const option& option) { return std::strcmp(option.name, name) == 0; });
  if (known == std::end(known_options)) {
    std::fprintf(stderr, "%s: unknown option\n", name);
    return false;
  }
  if (value == nullptr || !known->read(value)) {
    std::fprintf(stderr, "%s takes %s, not \"%s\"\n", name, known->takes, value == nullptr ? "" : value);
    return false;
  }
  options.given.push_back(known->name);
  return true;
}

// Whether this process can be one of the job's. false after a message.
bool check_place() {
  uint32_t processes = std::max(options.processes, 1u);
  if (options.index >= processes) {
    std::fprintf(stderr, "this is process %u of %u: an index from 0 to %u is wanted\n", options.index, processes, processes - 1);
    return false;
  }
  if (processes > 1 && options.rendezvous.empty()) {
    std::fprintf(stderr, "--rendezvous is wanted with %u processes: HOST:PORT or unix:/PATH, where process 0 listens\n", processes);
    return false;
  }
  return true;
}

// Takes what the command line leaves open from the launcher.
bool ask_launcher() {
  std::optional<job_place> place;
  try {
    place = find_place([](const char* name) { return static_cast<const char*>(std::getenv(name)); });
  } catch (const std::runtime_error& wrong) {
    std::fprintf(stderr, "--distributed: %s\n", wrong.what());
    return false;
  }
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
      options.given.push_back("--distributed");
    } else if (take(argv[next], next + 1 < argc ? argv[next + 1] : nullptr)) {
      next += 2;
    } else {
      return -1;
    }
  }
  if ((is_distributed && !ask_launcher()) || !check_place()) return -1;
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

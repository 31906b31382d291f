// The installed program: some of the examples under one name.
//
//   nanovllm [OPTION...] generate|chat|bench|quantize|worker|place|version ...
#include <nanovllm.h>

#include <cstring>
#include <iostream>
#include <vector>

#include "parallel.hpp"

// The examples' own main functions, renamed where they are compiled for this program.
extern "C" int generate_main(int argc, char** argv);
int chat_main(int argc, char** argv);
int bench_main(int argc, char** argv);
// See parallel.cpp.
extern "C" nvllm_status tool_engine_new(const nvllm_engine_config* config, nvllm_engine** engine, nvllm_error* error);

namespace {

constexpr char usage[] =
    "usage: nanovllm [OPTION...] COMMAND ...\n"
    "  generate [--max-tokens N] [--temperature T] [--threads N] MODEL PROMPT...\n"
    "           answers each prompt, all at once\n"
    "  chat [--system TEXT] MODEL\n"
    "           a conversation; /reset begins anew, /quit ends\n"
    "  bench [--threads N] [--prompt N] [--answer N] MODEL\n"
    "           how fast a model is here\n"
    "  quantize [--int8|--int4] MODEL_FOLDER NEW_FOLDER\n"
    "           writes a model again with weights of 8 or 4 bits; default --int8\n"
    "  worker MODEL\n"
    "           computes what process 0 schedules, until that ends\n"
    "  place    which process this is\n"
    "  version  what the library is, and what it found on this machine\n"
    "A model is a folder as Hugging Face lays it out, or a GGUF file.\n"
    "options, before the command:\n"
    "  --tensor-parallel-size N   ranks that compute the model together, in all processes\n"
    "  --device cpu|cuda          where they compute\n"
    "  --kv-cache-dtype auto|int8 how keys and values are stored\n"
    "  --quantization none|int8|int4\n"
    "                             how weights are quantized that are not quantized yet\n"
    "  --devices I,J,...          the GPUs of the ranks of this process\n"
    "  --num-processes N --process-index I --rendezvous HOST:PORT|unix:/PATH\n"
    "                             which process this is, and where process 0 listens\n"
    "  --peer-timeout-ms N        how long another process may be silent\n"
    "  --distributed              which process this is, from torchrun, Open MPI, Slurm or LeaderWorkerSet\n"
    "All processes get the same command line but for --process-index: process 0 runs the command, the others serve it.\n";

// The exit status of a command that has printed to std::cout: 1 if any of it was lost.
int end_output() {
  if (std::cout.flush()) return 0;
  std::cerr << "the output cannot be written\n";
  return 1;
}

int version_main(int, char**) {
  std::cout << nvllm_build_info() << '\n';
  return end_output();
}

int place_main(int, char**) {
  const parallel_options& options = parallel();
  if (options.processes < 2) {
    std::cout << "one process alone\n";
    return end_output();
  }
  std::cout << "process " << options.index << " of " << options.processes << " meets the others at " << options.rendezvous;
  if (options.launcher != nullptr) std::cout << " (" << options.launcher << ")";
  std::cout << '\n';
  return end_output();
}

int worker_main(int argc, char** argv) {
  if (argc != 2 || parallel().index == 0) {
    std::cerr << "usage: nanovllm --num-processes N --process-index I --rendezvous A worker MODEL, with I above 0\n";
    return 2;
  }
  nvllm_engine_config config;
  nvllm_engine_config_init(&config, sizeof config);
  config.model_path = argv[1];
  nvllm_engine* engine;
  nvllm_error error;
  // It serves, and returns only if it cannot.
  tool_engine_new(&config, &engine, &error);
  std::cerr << error.message << '\n';
  return 1;
}

constexpr char quantize_usage[] = "usage: nanovllm quantize [--int8|--int4] MODEL_FOLDER NEW_FOLDER\n";

int quantize_main(int argc, char** argv) {
  // The options before the command say how an engine computes.
  if (!parallel().given.empty()) {
    std::cerr << "quantize does not take " << parallel().given.front() << ": it takes --int8 or --int4\n" << quantize_usage;
    return 2;
  }
  int32_t quantization = NVLLM_QUANTIZATION_INT8;
  std::vector<const char*> folders;
  for (int i = 1; i < argc; i++) {
    if (std::strcmp(argv[i], "--int8") == 0) {
      quantization = NVLLM_QUANTIZATION_INT8;
    } else if (std::strcmp(argv[i], "--int4") == 0) {
      quantization = NVLLM_QUANTIZATION_INT4;
    } else {
      folders.push_back(argv[i]);
    }
  }
  if (folders.size() != 2 || folders[0][0] == '-' || folders[1][0] == '-') {
    std::cerr << quantize_usage;
    return 2;
  }
  nvllm_error error;
  if (nvllm_quantize_folder(folders[0], folders[1], quantization, nullptr, nullptr, &error) == NVLLM_OK) return 0;
  std::cerr << error.message << '\n';
  return 1;
}

struct command {
  const char* name;
  int (*run)(int argc, char** argv);
};
constexpr command commands[] = {
    {"generate", generate_main}, {"chat", chat_main},   {"bench", bench_main},
    {"worker", worker_main},     {"place", place_main}, {"version", version_main},
    {"quantize", quantize_main}};

}  // namespace

int main(int argc, char** argv) {
  int taken = take_parallel_options(argc - 1, argv + 1);
  if (taken < 0) {
    std::cerr << usage;
    return 2;
  }
  argc -= taken;
  argv += taken;
  const char* wanted = argc > 1 ? argv[1] : "";
  for (const command& known : commands)
    if (std::strcmp(known.name, wanted) == 0) return known.run(argc - 1, argv + 1);
  if (std::strcmp(wanted, "--help") == 0 || std::strcmp(wanted, "help") == 0) {
    std::cout << usage;
    return end_output();
  }
  std::cerr << usage;
  return 2;
}

// The installed program: some of the examples under one name.
//
//   nanovllm generate|chat|bench|version ...
#include <cstring>
#include <iostream>
#include <nanovllm.hpp>

// The examples' own main functions, renamed where they are compiled for this program.
extern "C" int generate_main(int argc, char** argv);
int chat_main(int argc, char** argv);
int bench_main(int argc, char** argv);

namespace {

constexpr char usage[] =
    "usage: nanovllm COMMAND ...\n"
    "  generate [--max-tokens N] [--temperature T] [--threads N] MODEL_FOLDER PROMPT...\n"
    "           answers each prompt, all at once\n"
    "  chat [--system TEXT] MODEL_FOLDER\n"
    "           a conversation; /reset begins anew, /quit ends\n"
    "  bench [--threads N] [--prompt N] [--answer N] MODEL_FOLDER\n"
    "           how fast a model is here\n"
    "  version  what the library is, and what it found on this machine\n"
    "A model folder is one as Hugging Face lays it out.\n";

int version_main(int, char**) {
  std::cout << nvllm::build_info() << '\n';
  return 0;
}

struct command {
  const char* name;
  int (*run)(int argc, char** argv);
};
constexpr command commands[] = {
    {"generate", generate_main}, {"chat", chat_main}, {"bench", bench_main}, {"version", version_main}};

}  // namespace

int main(int argc, char** argv) {
  const char* wanted = argc > 1 ? argv[1] : "";
  for (const command& known : commands)
    if (std::strcmp(known.name, wanted) == 0) return known.run(argc - 1, argv + 1);
  if (std::strcmp(wanted, "--help") == 0 || std::strcmp(wanted, "help") == 0) {
    std::cout << usage;
    return 0;
  }
  std::cerr << usage;
  return 2;
}

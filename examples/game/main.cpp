// A village at sixty frames per second: a language model plays three shopkeepers, inside the game's own loop.
//
//   game [--script FILE] [--endless] [--threads N] [--device cpu|cuda] [--gpu-memory MIB] [--layers N] [MODEL]
//
// MODEL is a model folder or a GGUF file.
//
// Type and press Enter to say something, or F1 to buy; Tab or the mouse selects the shop; Escape interrupts an answer. The engine has
// no loop of its own: each frame gives it the time that drawing leaves. With --endless, answers continue until they are
// interrupted, to measure frames. A script replaces the player, and the frame times are printed at its end. With
// --layers the GPU has more to draw.
#include <charconv>
#include <cstdint>
#include <exception>
#include <iostream>
#include <nanovllm.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "canvas.hpp"
#include "frame_clock.hpp"
#include "scene.hpp"
#include "script.hpp"
#include "trade.hpp"
#include "village.hpp"

namespace {

struct arguments {
  std::string model = "models/demo";
  std::string script;
  game::answers length = game::answers::as_trained;
  // One thread keeps up with the player and leaves the other cores to the game; see examples/game/README.md.
  uint32_t threads = 1;
  /// Of all that the engine takes on a GPU, where the pictures live too.
  uint64_t gpu_memory_mib = 2048;
  std::optional<nvllm::device> device;
  uint32_t layers = 0;
};

/// The whole of `text` as a number. False if it is none.
template <class Number>
bool read(std::string_view text, Number& number) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

bool read(std::string_view text, std::optional<nvllm::device>& device) {
  device = text == "cuda" ? nvllm::device::cuda : nvllm::device::cpu;
  return text == "cuda" || text == "cpu";
}

std::optional<arguments> parse(int argc, char** argv) {
  arguments wanted;
  for (int i = 1; i < argc; i++) {
    std::string_view option = argv[i];
    bool has_value = i + 1 < argc;
    if (option == "--endless") {
      wanted.length = game::answers::endless;
    } else if (option == "--script" && has_value) {
      wanted.script = argv[++i];
    } else if (option == "--threads" && has_value) {
      if (!read(argv[++i], wanted.threads)) return std::nullopt;
    } else if (option == "--device" && has_value) {
      if (!read(argv[++i], wanted.device)) return std::nullopt;
    } else if (option == "--gpu-memory" && has_value) {
      if (!read(argv[++i], wanted.gpu_memory_mib) || wanted.gpu_memory_mib > UINT64_MAX >> 20) return std::nullopt;
    } else if (option == "--layers" && has_value) {
      if (!read(argv[++i], wanted.layers)) return std::nullopt;
    } else if (option.substr(0, 1) == "-" || i + 1 != argc) {
      return std::nullopt;
    } else {
      wanted.model = option;
    }
  }
  return wanted;
}

/// Prints the answers and the statistics of the frames.
void report(const game::village& village, const game::frame_clock& clock) {
  for (const game::shopkeeper& keeper : village.shopkeepers())
    for (const game::turn& turn : keeper.talk())
      if (turn.role == "assistant") std::cout << keeper.name() << ": " << turn.text << '\n';
  std::cout << "You: " << game::contents(village.player()) << '\n';
  std::cout << clock.report() << "; " << village.interruptions() << " answers interrupted\n";
}

void play(const arguments& wanted) {
  game::canvas screen("Three shops", wanted.layers);
  nvllm::engine_options options;
  options.model_path = wanted.model;
  options.num_threads = wanted.threads;
  options.max_num_seqs = 3;
  // Short passes, and no more of a GPU's memory than that.
  options.max_batched_tokens = 256;
  options.gpu_memory_bytes = wanted.gpu_memory_mib << 20;
  options.device = wanted.device;
  options.progress = [&](float fraction) {
    game::draw_loading(screen, wanted.model, fraction);
    screen.present();
    return !SDL_QuitRequested();
  };
  nvllm::engine engine(options);

  game::village village(engine, wanted.length);
  std::optional<game::script> script;
  if (!wanted.script.empty()) script.emplace(wanted.script);
  game::frame_clock clock;
  for (bool open = true; open;) {
    clock.begin();
    if (script) script->play(village, screen);
    for (SDL_Event event; SDL_PollEvent(&event);) open = village.take(event) && open;
    game::engine_work done = village.work(clock.left());
    game::draw(screen, village, clock);
    screen.present(done.time > game::microseconds{0});
    clock.end(done);
    clock.add(screen.drawn());
  }
  if (script) report(village, clock);
}

}  // namespace

int main(int argc, char** argv) {
  std::optional<arguments> wanted = parse(argc, argv);
  if (!wanted) {
    std::cerr << "usage: game [--script FILE] [--endless] [--threads N] [--device cpu|cuda] [--gpu-memory MIB] "
                 "[--layers N] [MODEL]\n";
    return 2;
  }
  try {
    play(*wanted);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}

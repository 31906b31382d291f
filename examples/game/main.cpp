// A village at sixty frames per second: a language model plays three shopkeepers, inside the game's own loop.
//
//   game [--script FILE] [--endless] [--threads N] [MODEL]
//
// MODEL is a model folder or a GGUF file.
//
// Type and press Enter to say something; Tab or the mouse selects the shop; Escape interrupts an answer. The engine has
// no loop of its own: each frame gives it the time that drawing leaves. With --endless, answers continue until they are
// interrupted, to measure frames. A script replaces the player, and the frame times are printed at its end.
#include <cstdlib>
#include <exception>
#include <iostream>
#include <nanovllm.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "canvas.hpp"
#include "frame_clock.hpp"
#include "scene.hpp"
#include "script.hpp"
#include "village.hpp"

namespace {

struct arguments {
  std::string model = "models/demo";
  std::string script;
  game::answers length = game::answers::as_trained;
  // One thread keeps up with the player and leaves the other cores to the game; see examples/game/README.md.
  uint32_t threads = 1;
};

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
      wanted.threads = static_cast<uint32_t>(std::strtoul(argv[++i], nullptr, 10));
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
    for (const nvllm::message& turn : keeper.talk())
      if (turn.role == "assistant") std::cout << keeper.name() << ": " << turn.content << '\n';
  std::cout << clock.report() << "; " << village.interruptions() << " answers interrupted\n";
}

void play(const arguments& wanted) {
  game::canvas screen("Three shops");
  nvllm::engine_options options;
  options.model_path = wanted.model;
  options.num_threads = wanted.threads;
  options.max_num_seqs = 3;
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
    screen.present();
    clock.end(done);
  }
  if (script) report(village, clock);
}

}  // namespace

int main(int argc, char** argv) {
  std::optional<arguments> wanted = parse(argc, argv);
  if (!wanted) {
    std::cerr << "usage: game [--script FILE] [--endless] [--threads N] [MODEL]\n";
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

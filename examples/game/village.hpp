// The village: three shops on one engine, and what the player does there.
#ifndef GAME_VILLAGE_HPP
#define GAME_VILLAGE_HPP

#include <SDL.h>

#include <cstddef>
#include <nanovllm.hpp>
#include <string>
#include <vector>

#include "frame_clock.hpp"
#include "shopkeeper.hpp"

namespace game {

class village {
 public:
  /// The engine must live as long as the village.
  village(nvllm::engine& engine, answers length);

  /// The player does something. Answers false when the window was closed.
  bool take(const SDL_Event& event);
  /// Lets the engine work for as long as `budget`, and hands out what it made.
  engine_work work(microseconds budget);

  const std::vector<shopkeeper>& shopkeepers() const { return shopkeepers_; }
  /// Which of them the player talks to.
  std::size_t chosen() const { return chosen_; }
  /// What the player has typed so far.
  const std::string& typed() const { return typed_; }
  bool is_talking() const;
  /// Tokens said since the game began.
  uint64_t tokens() const;
  /// Answers that the player cut off.
  uint32_t interruptions() const;

 private:
  void press(SDL_Keycode key);

  nvllm::engine& engine_;
  answers length_;
  std::vector<shopkeeper> shopkeepers_;
  std::size_t chosen_ = 0;
  std::string typed_;
};

}  // namespace game

#endif

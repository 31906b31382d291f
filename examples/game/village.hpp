// The village: three shops on one engine, and the player's input.
#ifndef GAME_VILLAGE_HPP
#define GAME_VILLAGE_HPP

#include <SDL.h>

#include <cstddef>
#include <nanovllm.hpp>
#include <string>
#include <vector>

#include "frame_clock.hpp"
#include "shopkeeper.hpp"
#include "trade.hpp"

namespace game {

class village {
 public:
  /// The engine must live as long as the village.
  village(nvllm::engine& engine, answers length);

  /// Handles an event of the player. Returns false if the window was closed.
  bool take(const SDL_Event& event);
  /// Runs the engine for at most `budget`, and passes its outputs to the shopkeepers.
  engine_work work(microseconds budget);

  const std::vector<shopkeeper>& shopkeepers() const { return shopkeepers_; }
  /// What the player has.
  const purse& player() const { return player_; }
  /// The shopkeeper that the player talks to.
  std::size_t chosen() const { return chosen_; }
  /// The text that the player has typed so far.
  const std::string& typed() const { return typed_; }
  bool is_talking() const;
  /// Tokens generated since the game began.
  uint64_t tokens() const;
  /// Answers that the player interrupted.
  uint32_t interruptions() const;

 private:
  void press(SDL_Keycode key);

  nvllm::engine& engine_;
  answers length_;
  std::vector<shopkeeper> shopkeepers_;
  purse player_;
  std::size_t chosen_ = 0;
  std::string typed_;
};

}  // namespace game

#endif

// A player who is a file: for tests and measurements, without hands.
#ifndef GAME_SCRIPT_HPP
#define GAME_SCRIPT_HPP

#include <cstdint>
#include <deque>
#include <string>

#include "canvas.hpp"
#include "village.hpp"

namespace game {

/// One action a line, taken one a frame; empty lines and those that begin with # are skipped:
///
///   type TEXT      text comes from the keyboard
///   key NAME       a key is pressed: Return, Tab, Escape, Backspace
///   click X Y      the mouse, at a pixel of the canvas
///   frames N       N frames pass
///   tokens N       until N more tokens have been said
///   silence        until nobody talks
///   shot FILE      the picture into a BMP file
///   quit           the window is closed
///
/// Keys and clicks go through SDL's own queue, as a player's do.
class script {
 public:
  /// Reads a file. Throws std::runtime_error when it cannot be read, or has a line that is no action.
  explicit script(const std::string& path);

  /// Takes the next action, if it is time. After the last one the window is closed.
  void play(const village& in, const canvas& screen);

 private:
  struct action {
    std::string verb, object;
  };
  std::deque<action> actions_;
  uint64_t frames_waited_ = 0;
  uint64_t tokens_before_ = 0;
};

}  // namespace game

#endif

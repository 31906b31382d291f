// Input from a file instead of a player, for tests and measurements.
#ifndef GAME_SCRIPT_HPP
#define GAME_SCRIPT_HPP

#include <cstdint>
#include <deque>
#include <string>

#include "canvas.hpp"
#include "village.hpp"

namespace game {

/// One action per line, one per frame; empty lines and lines that begin with # are skipped:
///
///   type TEXT      text is typed on the keyboard
///   key NAME       a key is pressed: Return, Tab, Escape, Backspace
///   click X Y      the mouse is clicked at a pixel of the canvas
///   frames N       N frames pass
///   tokens N       wait until N more tokens have been generated
///   silence        wait until no shopkeeper talks
///   shot FILE      the picture is written into a BMP file
///   quit           the window is closed
///
/// Keys and clicks go through SDL's own queue, as a player's do.
class script {
 public:
  /// Reads a file. Throws std::runtime_error if it cannot be read or has an invalid line.
  explicit script(const std::string& path);

  /// Runs the next action, if it is due. After the last one the window is closed.
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

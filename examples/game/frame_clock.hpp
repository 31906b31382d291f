// When does a frame begin, what does it do with its time, and how long do frames take?
#ifndef GAME_FRAME_CLOCK_HPP
#define GAME_FRAME_CLOCK_HPP

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace game {

using microseconds = std::chrono::microseconds;

/// What the engine did in a frame.
struct engine_work {
  microseconds time{0};
  uint32_t tokens = 0;
};

/// Sixty ticks a second. A frame begins with a tick, does its work, and waits for the next one.
class frame_clock {
 public:
  static constexpr microseconds length{16'667};

  struct frame {
    engine_work engine;
    /// From the tick until the picture was on the screen.
    microseconds all;
  };
  /// How many frames are remembered: a second and a half.
  static constexpr std::size_t remembered = 90;

  /// A frame begins.
  void begin();
  /// What the engine may take: the rest of the frame, less what all else takes in a slow frame.
  microseconds left() const;
  /// The frame is on the screen, and the engine did so much in it. Waits for the next tick.
  void end(engine_work engine);

  /// The remembered frames, the newest at the end.
  const std::deque<frame>& last() const { return last_; }
  /// In words, of all frames in which the engine worked: how many, the tokens in a second of them, how long half of
  /// them, 99 of 100, and the longest one took, and how many of them were too long.
  std::string report() const;

 private:
  using clock = std::chrono::steady_clock;
  /// For drawing that takes longer than it did, and a tick that is heard late.
  static constexpr microseconds reserve{1'500};
  /// What the engine gets even if drawing leaves nothing, so that answers end.
  static constexpr microseconds least{1'000};

  clock::time_point tick_ = clock::now();
  clock::time_point began_ = tick_;
  std::deque<frame> last_;
  /// Of frames in which the engine worked.
  std::vector<microseconds> busy_;
  uint64_t tokens_ = 0;
};

}  // namespace game

#endif

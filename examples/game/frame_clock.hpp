// When does a frame begin, how is its time divided, and how long do frames take?
#ifndef GAME_FRAME_CLOCK_HPP
#define GAME_FRAME_CLOCK_HPP

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace game {

using microseconds = std::chrono::microseconds;

/// The work of the engine in one frame.
struct engine_work {
  microseconds time{0};
  uint32_t tokens = 0;
};

/// A picture that the GPU has drawn.
struct drawn_picture {
  /// Whether the engine worked in its frame.
  bool engine_works;
  /// From the first to the last pixel, by the clock of the GPU.
  microseconds time;
};

/// Sixty ticks per second. A frame begins with a tick, does its work, and waits for the next one.
class frame_clock {
 public:
  static constexpr microseconds length{16'667};

  struct frame {
    engine_work engine;
    /// From the tick until the picture was on the screen.
    microseconds all;
  };
  /// Number of frames in the history: one and a half seconds.
  static constexpr std::size_t remembered = 90;

  /// Begins a frame.
  void begin();
  /// Time budget of the engine: the rest of the frame, less the time of all other work in a slow frame.
  microseconds left() const;
  /// Ends a frame that is on the screen, with the work of the engine in it. Waits for the next tick.
  void end(engine_work engine);
  /// Adds pictures whose times became known.
  void add(const std::vector<drawn_picture>& pictures);

  /// The history of frames, the newest last.
  const std::deque<frame>& last() const { return last_; }
  /// A summary of all frames in which the engine worked: their number, tokens per second, the median, 99th percentile
  /// and maximum of their durations, and the number of frames that were too long. If pictures were timed, how many the GPU has
  /// drawn with and without the engine's work, and the same percentiles of their times.
  std::string report() const;

 private:
  using clock = std::chrono::steady_clock;
  /// Reserve for drawing that takes longer than before, and for a late tick.
  static constexpr microseconds reserve{1'500};
  /// Minimum budget of the engine even if drawing leaves no time, so that answers end.
  static constexpr microseconds least{1'000};

  clock::time_point tick_ = clock::now();
  clock::time_point began_ = tick_;
  std::deque<frame> last_;
  /// Of frames in which the engine worked.
  std::vector<microseconds> busy_;
  uint64_t tokens_ = 0;
  /// Of pictures in frames without the engine's work, and with it.
  std::vector<microseconds> drawn_[2];
};

}  // namespace game

#endif

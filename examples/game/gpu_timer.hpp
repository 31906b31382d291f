// How long does the GPU draw a picture, beside an engine that may compute on it?
#ifndef GAME_GPU_TIMER_HPP
#define GAME_GPU_TIMER_HPP

#include <SDL.h>
#include <SDL_opengl.h>

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "frame_clock.hpp"

namespace game {

/// Times pictures by the clock of the GPU. The times are read some frames later, so that nothing waits for them.
class gpu_timer {
 public:
  /// A timer for what `renderer` draws, or none if it does not draw by an OpenGL that has timers.
  static std::optional<gpu_timer> of(SDL_Renderer* renderer);

  /// Begins a picture.
  void begin(bool engine_works);
  /// Ends the picture.
  void end();
  /// The pictures that the GPU has finished since the last call.
  std::vector<drawn_picture> finished();

 private:
  struct functions {
    PFNGLGENQUERIESPROC generate;
    PFNGLBEGINQUERYPROC begin;
    PFNGLENDQUERYPROC end;
    PFNGLGETQUERYOBJECTUI64VPROC get;
  };
  /// Pictures that the GPU may not have finished. A picture beyond them is not timed.
  static constexpr std::size_t max_pending = 8;

  gpu_timer(SDL_Renderer* renderer, const functions& gl);

  SDL_Renderer* renderer_;
  functions gl_;
  std::array<GLuint, max_pending> queries_{};
  std::array<bool, max_pending> engine_works_{};
  /// Pictures that were begun and that were finished, since the timer exists.
  std::size_t begun_ = 0, finished_ = 0;
  bool is_timing_ = false;
};

}  // namespace game

#endif

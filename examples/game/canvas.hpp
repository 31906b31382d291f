// What is on the screen? Large square pixels, drawn by the CPU and passed to SDL once per frame.
#ifndef GAME_CANVAS_HPP
#define GAME_CANVAS_HPP

#include <SDL.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpu_timer.hpp"
#include "picture.hpp"

namespace game {

/// A part of the screen, in pixels of the canvas.
struct area {
  int x, y, width, height;
};

/// A window and its pixels. Drawing is clipped to the window.
class canvas {
 public:
  static constexpr int width = 480;
  static constexpr int height = 270;

  /// Opens the window. `layers` of fog drift over the drawing: work for the GPU, if there is one. Throws
  /// std::runtime_error if there is no screen.
  canvas(const char* title, uint32_t layers);

  void fill(const area& where, colour with);
  /// Draws each pixel as a square of `scale` pixels. A shade of 256 leaves the colours unchanged, 0 makes them black.
  void draw(const picture& drawing, int x, int y, int scale, int shade);
  /// Writes one line of text, and returns the position after the last character.
  int write(std::string_view text, int x, int y, colour with);

  /// Shows the drawing. The GPU is timed in frames, in which the engine works or does not.
  void present(std::optional<bool> engine_works = std::nullopt);
  /// The pictures that the GPU has drawn since the last call. None if it cannot be timed.
  std::vector<drawn_picture> drawn();
  /// Writes the drawing into a BMP file, in the initial size of the window.
  void save(const std::string& path) const;

 private:
  static constexpr int scale = 2;

  struct library {
    library();
    ~library() { SDL_Quit(); }
    library(const library&) = delete;
    library& operator=(const library&) = delete;
  };
  struct deleter {
    void operator()(SDL_Window* window) const { SDL_DestroyWindow(window); }
    void operator()(SDL_Renderer* renderer) const { SDL_DestroyRenderer(renderer); }
    void operator()(SDL_Texture* texture) const { SDL_DestroyTexture(texture); }
    void operator()(SDL_Surface* surface) const { SDL_FreeSurface(surface); }
  };

  library sdl_;
  std::unique_ptr<SDL_Window, deleter> window_;
  std::unique_ptr<SDL_Renderer, deleter> renderer_;
  std::unique_ptr<SDL_Texture, deleter> texture_;
  std::unique_ptr<SDL_Texture, deleter> fog_;
  uint32_t layers_;
  /// Pixels by which the fog has drifted.
  int drift_ = 0;
  std::optional<gpu_timer> timer_;
  /// 0xAARRGGBB. `[height, width]`
  std::array<uint32_t, width * height> pixels_{};
};

}  // namespace game

#endif

#include "canvas.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "font.hpp"

namespace game {
namespace {

uint32_t packed(colour c) { return 0xFF000000u | uint32_t{c.red} << 16 | uint32_t{c.green} << 8 | c.blue; }

colour shaded(colour c, int shade) {
  auto part = [&](uint8_t of) { return static_cast<uint8_t>(of * shade / 256); };
  return {part(c.red), part(c.green), part(c.blue)};
}

template <class Handle>
Handle wanted(Handle made, const char* what) {
  if (!made) throw std::runtime_error(std::string(what) + ": " + SDL_GetError());
  return made;
}

/// Thin white clouds.
SDL_Texture* fog(SDL_Renderer* renderer) {
  constexpr int size = 64;
  SDL_Texture* made =
      wanted(SDL_CreateTexture(renderer, SDL_PIXELFORMAT_ARGB8888, SDL_TEXTUREACCESS_STATIC, size, size), "no texture");
  std::array<uint32_t, size * size> pixels;
  for (int y = 0; y < size; y++) {
    for (int x = 0; x < size; x++) {
      double density = 2 + std::sin(x * 0.2) + std::cos(y * 0.3 + std::sin(x * 0.1));
      pixels[static_cast<std::size_t>(y * size + x)] = static_cast<uint32_t>(density) << 24 | 0xFFFFFFu;
    }
  }
  SDL_UpdateTexture(made, nullptr, pixels.data(), size * sizeof(uint32_t));
  SDL_SetTextureBlendMode(made, SDL_BLENDMODE_BLEND);
  return made;
}

}  // namespace

canvas::library::library() {
  const char* help =
      ": set DISPLAY (X11) or WAYLAND_DISPLAY (Wayland) to a running one, start the game by xvfb-run, or set SDL_VIDEODRIVER=dummy to play "
      "without a picture";
  if (SDL_Init(SDL_INIT_VIDEO) != 0) throw std::runtime_error(std::string("no display: ") + SDL_GetError() + help);
  // Where there is no display, SDL may choose a driver that shows nothing. Then nobody sees the game, and nobody can end it.
  std::string_view driver = SDL_GetCurrentVideoDriver();
  bool shows_nothing = driver == "dummy" || driver == "evdev" || driver == "offscreen";
  if (shows_nothing && SDL_getenv("SDL_VIDEODRIVER") == nullptr) {
    SDL_Quit();
    throw std::runtime_error("no display: SDL found only the driver " + std::string(driver) + ", which shows nothing" + help);
  }
}

canvas::canvas(const char* title, uint32_t layers)
    : window_(wanted(SDL_CreateWindow(title, SDL_WINDOWPOS_CENTERED, SDL_WINDOWPOS_CENTERED, width * scale,
                                      height * scale, SDL_WINDOW_RESIZABLE),
                     "no window")),
      renderer_(wanted(SDL_CreateRenderer(window_.get(), -1, 0), "no renderer")),
      texture_(wanted(
          SDL_CreateTexture(renderer_.get(), SDL_PIXELFORMAT_ARGB8888, SDL_TEXTUREACCESS_STREAMING, width, height),
          "no texture")),
      fog_(fog(renderer_.get())),
      layers_(layers),
      timer_(gpu_timer::of(renderer_.get())) {
  // In a larger window the picture is scaled, and SDL reports mouse positions in pixels of the canvas.
  SDL_RenderSetLogicalSize(renderer_.get(), width, height);
}

void canvas::fill(const area& where, colour with) {
  int left = std::clamp(where.x, 0, width), right = std::clamp(where.x + where.width, left, width);
  int top = std::clamp(where.y, 0, height), bottom = std::clamp(where.y + where.height, top, height);
  for (int y = top; y < bottom; y++)
    std::fill(pixels_.begin() + y * width + left, pixels_.begin() + y * width + right, packed(with));
}

void canvas::draw(const picture& drawing, int x, int y, int size, int shade) {
  for (int row = 0; row < drawing.height; row++)
    for (int column = 0; column < drawing.width; column++)
      if (const auto& pixel = drawing.pixels[static_cast<std::size_t>(row * drawing.width + column)])
        fill({x + column * size, y + row * size, size, size}, shaded(*pixel, shade));
}

int canvas::write(std::string_view text, int x, int y, colour with) {
  while (!text.empty()) {
    char32_t character = take_character(text);
    if (const picture* drawing = emoji(character)) {
      draw(*drawing, x, y + 1, 1, 256);
    } else if (advance_of(character) > 0) {
      const glyph& drawn = glyph_of(character);
      for (int row = 0; row < static_cast<int>(drawn.rows.size()); row++)
        for (int column = 0; column < drawn.width; column++)
          if (drawn.rows[static_cast<std::size_t>(row)] >> column & 1) fill({x + column, y + row, 1, 1}, with);
    }
    x += advance_of(character);
  }
  return x;
}

void canvas::present(std::optional<bool> engine_works) {
  SDL_UpdateTexture(texture_.get(), nullptr, pixels_.data(), width * sizeof(uint32_t));
  SDL_RenderClear(renderer_.get());
  bool is_timed = timer_ && engine_works;
  if (is_timed) timer_->begin(*engine_works);
  SDL_RenderCopy(renderer_.get(), texture_.get(), nullptr, nullptr);
  drift_ = (drift_ + 1) % width;
  for (uint32_t layer = 0; layer < layers_; layer++) {
    // Two copies side by side: what leaves the window on one side enters it on the other.
    int left = static_cast<int>((static_cast<uint32_t>(drift_) + layer * 37) % width);
    for (int x : {left - width, left}) {
      SDL_Rect where{x, 0, width, height};
      SDL_RenderCopy(renderer_.get(), fog_.get(), nullptr, &where);
    }
  }
  if (is_timed) timer_->end();
  SDL_RenderPresent(renderer_.get());
}

std::vector<drawn_picture> canvas::drawn() {
  if (!timer_) return {};
  return timer_->finished();
}

void canvas::save(const std::string& path) const {
  std::unique_ptr<SDL_Surface, deleter> picture(wanted(
      SDL_CreateRGBSurfaceWithFormat(0, width * scale, height * scale, 32, SDL_PIXELFORMAT_ARGB8888), "no picture"));
  for (int y = 0; y < height * scale; y++) {
    auto* row = reinterpret_cast<uint32_t*>(static_cast<uint8_t*>(picture->pixels) + y * picture->pitch);
    for (int x = 0; x < width * scale; x++) row[x] = pixels_[static_cast<std::size_t>(y / scale * width + x / scale)];
  }
  if (SDL_SaveBMP(picture.get(), path.c_str()) != 0) throw std::runtime_error(path + ": " + SDL_GetError());
}

}  // namespace game

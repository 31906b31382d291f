// What do shopkeepers and emoji look like?
#ifndef GAME_PICTURE_HPP
#define GAME_PICTURE_HPP

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace game {

struct colour {
  uint8_t red, green, blue;
};

struct picture {
  int width = 0;
  int height = 0;
  /// Row by row; empty where the background is visible. `[height * width]`
  std::vector<std::optional<colour>> pixels;
};

/// The face of a shopkeeper, 20 x 22 pixels.
const picture& portrait(std::string_view name);

/// The picture of an emoji, 9 x 9 pixels; NULL if there is none.
const picture* emoji(char32_t character);

}  // namespace game

#endif

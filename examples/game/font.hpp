// What do characters look like?
#ifndef GAME_FONT_HPP
#define GAME_FONT_HPP

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace game {

/// Pixels from the top of one line of text to the top of the next.
constexpr int line_height = 12;

/// The picture of a character: two rows for the accents of capitals, seven for letters, two below the line.
struct glyph {
  int width;
  /// The pixel in column x is bit x. `[11]`
  std::array<uint8_t, 11> rows;
};

/// The picture of a character; an empty box if the font lacks it.
const glyph& glyph_of(char32_t character);

/// Removes the first character from a UTF-8 text. A byte that begins no character counts as U+FFFD.
char32_t take_character(std::string_view& text);

/// The advance width of a character or emoji, in pixels.
int advance_of(char32_t character);

/// The width of a text on one line, in pixels.
int width_of(std::string_view text);

/// Breaks a text into lines of at most `width` pixels, at spaces if possible.
std::vector<std::string_view> wrap(std::string_view text, int width);

}  // namespace game

#endif

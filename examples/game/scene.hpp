// What does a frame look like?
#ifndef GAME_SCENE_HPP
#define GAME_SCENE_HPP

#include <cstddef>
#include <optional>
#include <string_view>

#include "canvas.hpp"
#include "frame_clock.hpp"

namespace game {

class village;

/// Draws everything.
void draw(canvas& screen, const village& of, const frame_clock& clock);

/// Draws the fraction of the model that is loaded, from 0 to 1.
void draw_loading(canvas& screen, std::string_view model, float fraction);

/// The shop at a position of the canvas.
std::optional<std::size_t> shop_at(int x, int y);

}  // namespace game

#endif

#include "scene.hpp"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "font.hpp"
#include "trade.hpp"
#include "village.hpp"

namespace game {
namespace {

constexpr colour night{30, 26, 40}, dusk{58, 52, 74}, panel{40, 35, 52}, edge{84, 74, 100}, wood{122, 84, 56},
    dark_wood{84, 58, 42}, cream{244, 236, 220}, white{250, 246, 238}, grey{150, 142, 160}, gold{246, 206, 92},
    player_ink{140, 190, 236}, green{110, 190, 120}, red{226, 96, 76};

constexpr int shops = 3;
constexpr int shop_width = canvas::width / shops;
constexpr int street_height = 112;
constexpr area talk_area{6, 118, 352, 126};
constexpr area frames_area{364, 118, 110, 126};
constexpr area input_area{6, 249, 468, 16};

colour mixed(colour a, colour b, int share, int of) {
  auto part = [&](int from, int to) { return static_cast<uint8_t>(from + (to - from) * share / of); };
  return {part(a.red, b.red), part(a.green, b.green), part(a.blue, b.blue)};
}

void draw_panel(canvas& screen, const area& where, colour border) {
  screen.fill({where.x - 1, where.y - 1, where.width + 2, where.height + 2}, border);
  screen.fill(where, panel);
}

void draw_shop(canvas& screen, const shopkeeper& keeper, int place, bool is_chosen) {
  int left = place * shop_width + 6, width = shop_width - 12;
  int shade = is_chosen ? 256 : 150;
  auto lit = [&](colour c) { return mixed({0, 0, 0}, c, shade, 256); };

  screen.fill({left, 16, width, 84}, lit(dusk));
  screen.fill({left, 16, 4, 92}, lit(dark_wood));
  screen.fill({left + width - 4, 16, 4, 92}, lit(dark_wood));
  // The awning, in stripes, its lower hem in arches.
  constexpr int stripe = 14;
  for (int x = 0; x < width; x += stripe) {
    colour cloth = lit(x / stripe % 2 == 0 ? keeper.awning() : cream);
    int stripe_width = std::min(stripe, width - x);
    screen.fill({left + x, 8, stripe_width, 14}, cloth);
    screen.fill({left + x + 2, 22, stripe_width - 4, 2}, cloth);
  }
  screen.draw(portrait(keeper.name()), left + width / 2 - 30, 28, 3, shade);
  // The counter, with the name on it.
  screen.fill({left, 94, width, 3}, lit(mixed(wood, white, 1, 4)));
  screen.fill({left, 97, width, 14}, lit(wood));
  std::string sign = keeper.name() + ", " + keeper.trade();
  screen.write(sign, left + (width - width_of(sign)) / 2, 98, is_chosen ? white : lit(cream));

  if (keeper.is_talking()) {
    int x = left + width - 34, y = 32;
    screen.fill({x, y + 1, 26, 12}, white);
    screen.fill({x + 1, y, 24, 14}, white);
    screen.fill({x - 2, y + 11, 5, 2}, white);
    // One of three dots is dark; it changes as tokens arrive.
    int dark = static_cast<int>(keeper.tokens() % 3);
    for (int dot = 0; dot < 3; dot++) screen.fill({x + 5 + dot * 6, y + 6, 3, 3}, dot == dark ? night : grey);
  }
}

void draw_talk(canvas& screen, const shopkeeper& keeper, const purse& player) {
  draw_panel(screen, talk_area, keeper.awning());
  // The name is empty on all but the first line of a turn.
  struct line {
    std::string_view name, text;
    colour of_name, of_text;
  };
  std::vector<line> lines;
  std::string name = keeper.name() + ":";
  int indent = width_of(name) + 5;
  for (const turn& turn : keeper.talk()) {
    if (turn.role == "system" || turn.role == "tool") continue;
    bool is_player = turn.role == "user";
    std::string_view speaker = is_player ? std::string_view("You:") : name;
    std::vector<std::string_view> wrapped = wrap(turn.text, talk_area.width - indent - 8);
    if (wrapped.empty()) wrapped.push_back("");
    for (std::string_view text : wrapped)
      lines.push_back({std::exchange(speaker, ""), text, is_player ? player_ink : mixed(keeper.awning(), white, 1, 3),
                       is_player ? player_ink : cream});
  }
  if (lines.empty()) {
    std::string hint = "Say something to " + keeper.name() + ", such as: what do you sell?";
    screen.write(hint, talk_area.x + 4, talk_area.y + 4, grey);
  }
  // Lines that do not fit are above the visible part.
  std::size_t room = static_cast<std::size_t>(talk_area.height - 6) / line_height - 1;
  int y = talk_area.y + 4;
  for (std::size_t i = lines.size() - std::min(lines.size(), room); i < lines.size(); i++, y += line_height) {
    screen.write(lines[i].name, talk_area.x + 4, y, lines[i].of_name);
    screen.write(lines[i].text, talk_area.x + 4 + indent, y, lines[i].of_text);
  }
  std::string has = contents(player);
  int last_line = talk_area.y + talk_area.height - line_height - 2;
  screen.write(wrap(has, talk_area.width - 8).front(), talk_area.x + 4, last_line, gold);
}

void draw_frames(canvas& screen, const frame_clock& clock) {
  draw_panel(screen, frames_area, edge);
  // Twenty milliseconds from bottom to top.
  constexpr int bottom = frames_area.y + frames_area.height - 38, height = 70, left = frames_area.x + 10;
  constexpr microseconds full{20'000};
  auto rows = [&](microseconds time) { return static_cast<int>(std::min(time, full).count() * height / full.count()); };
  int x = left;
  microseconds engine{0}, others{0};
  uint32_t tokens = 0, busy = 0;
  for (const frame_clock::frame& frame : clock.last()) {
    int all = rows(frame.all), of_engine = rows(frame.engine.time);
    screen.fill({x, bottom - all, 1, all - of_engine}, frame.all > frame_clock::length ? red : player_ink);
    screen.fill({x, bottom - of_engine, 1, of_engine}, green);
    x++;
    engine = frame.engine.time;
    others = frame.all - frame.engine.time;
    tokens += frame.engine.tokens;
    if (frame.engine.time > microseconds{0}) busy++;
  }
  int limit = bottom - rows(frame_clock::length);
  for (x = left; x < left + static_cast<int>(frame_clock::remembered); x += 4) screen.fill({x, limit, 2, 1}, gold);
  screen.write("16.7 ms", left, limit - line_height, gold);
  screen.fill({left, bottom, static_cast<int>(frame_clock::remembered), 1}, edge);

  char text[64];
  std::snprintf(text, sizeof text, "engine %.1f ms", static_cast<double>(engine.count()) / 1000);
  screen.write(text, left, bottom + 2, green);
  std::snprintf(text, sizeof text, "all else %.1f ms", static_cast<double>(others.count()) / 1000);
  screen.write(text, left, bottom + 2 + line_height, player_ink);
  // Frames in which a shopkeeper talked.
  double seconds = std::max(busy, 1u) * std::chrono::duration<double>(frame_clock::length).count();
  std::snprintf(text, sizeof text, "%.0f tokens/s", tokens / seconds);
  screen.write(text, left, bottom + 2 + 2 * line_height, cream);
}

void draw_input(canvas& screen, const village& of) {
  const shopkeeper& keeper = of.shopkeepers()[of.chosen()];
  draw_panel(screen, input_area, edge);
  std::string hint = keeper.is_talking() ? "Esc: interrupt   Tab: next shop" : "Enter: say it   F1: buy   Tab: next shop";
  screen.write(hint, input_area.x + input_area.width - width_of(hint) - 4, input_area.y + 2, grey);
  int x = screen.write("> " + of.typed(), input_area.x + 4, input_area.y + 2, player_ink);
  screen.fill({x, input_area.y + 3, 1, 11}, white);
}

}  // namespace

void draw(canvas& screen, const village& of, const frame_clock& clock) {
  for (int y = 0; y < canvas::height; y++)
    screen.fill({0, y, canvas::width, 1}, mixed({72, 62, 108}, night, std::min(y, street_height), street_height));
  // The street.
  screen.fill({0, street_height - 3, canvas::width, 3}, {92, 84, 88});
  for (std::size_t shop = 0; shop < of.shopkeepers().size(); shop++)
    draw_shop(screen, of.shopkeepers()[shop], static_cast<int>(shop), shop == of.chosen());
  draw_talk(screen, of.shopkeepers()[of.chosen()], of.player());
  draw_frames(screen, clock);
  draw_input(screen, of);
}

void draw_loading(canvas& screen, std::string_view model, float fraction) {
  screen.fill({0, 0, canvas::width, canvas::height}, night);
  constexpr area bar{90, 140, 300, 8};
  std::string text = "The shops open: " + std::string(model);
  screen.write(text, (canvas::width - width_of(text)) / 2, 120, cream);
  screen.fill(bar, panel);
  screen.fill({bar.x, bar.y, static_cast<int>(static_cast<float>(bar.width) * fraction), bar.height}, gold);
}

std::optional<std::size_t> shop_at(int x, int y) {
  if (x < 0 || x >= canvas::width || y < 0 || y >= street_height) return std::nullopt;
  return static_cast<std::size_t>(x / shop_width);
}

}  // namespace game

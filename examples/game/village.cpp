#include "village.hpp"

#include <algorithm>
#include <string_view>

#include "scene.hpp"

namespace game {
namespace {

/// Maximum number of bytes that the player may type: one line on the screen.
constexpr std::size_t longest_line = 120;

}  // namespace

village::village(nvllm::engine& engine, answers length) : engine_(engine), length_(length) {
  using stock = std::vector<goods>;
  const stock iron{{"iron sword", 40}, {"shield", 25}, {"helmet", 18}, {"dagger", 12}, {"horseshoe", 3}};
  const stock herbs{
      {"healing potion", 15}, {"antidote", 20}, {"sleeping powder", 9}, {"mint tea", 2}, {"lavender soap", 5}};
  const stock bread{{"Brötchen", 2}, {"rye bread", 4}, {"pretzel", 3}, {"honey cake", 7}, {"apple pie", 9}};
  shopkeepers_.emplace_back("Brenna", "blacksmith", colour{178, 74, 58}, iron);
  shopkeepers_.emplace_back("Ilse", "herbalist", colour{78, 134, 84}, herbs);
  shopkeepers_.emplace_back("Urs", "baker", colour{196, 142, 66}, bread);
  shopkeepers_.front().prepare(engine_, player_);
}

bool village::take(const SDL_Event& event) {
  switch (event.type) {
    case SDL_QUIT:
      return false;
    case SDL_TEXTINPUT:
      if (typed_.size() + std::string_view(event.text.text).size() <= longest_line) typed_ += event.text.text;
      break;
    case SDL_KEYDOWN:
      press(event.key.keysym.sym);
      break;
    case SDL_MOUSEBUTTONDOWN:
      chosen_ = shop_at(event.button.x, event.button.y).value_or(chosen_);
      break;
    default:
      break;
  }
  return true;
}

void village::press(SDL_Keycode key) {
  shopkeeper& keeper = shopkeepers_[chosen_];
  switch (key) {
    case SDLK_RETURN:
      if (typed_.empty() || keeper.is_talking()) break;
      keeper.listen(engine_, typed_, length_);
      typed_.clear();
      break;
    case SDLK_F1:
      if (typed_.empty() || keeper.is_talking()) break;
      keeper.sell(engine_, typed_, player_);
      typed_.clear();
      break;
    case SDLK_BACKSPACE:
      // A character may have several bytes, of which all but the first begin with the bits 10.
      while (!typed_.empty() && (typed_.back() & 0xC0) == 0x80) typed_.pop_back();
      if (!typed_.empty()) typed_.pop_back();
      break;
    case SDLK_TAB:
      chosen_ = (chosen_ + 1) % shopkeepers_.size();
      break;
    case SDLK_ESCAPE:
      keeper.interrupt(engine_);
      break;
    default:
      break;
  }
}

engine_work village::work(microseconds budget) {
  // An engine that can no longer be used is finished, too: the step throws its error.
  if (engine_.is_finished() && !is_talking()) return {};
  nvllm_step_result done = engine_.step(budget);
  for (const nvllm::output& news : engine_.outputs())
    for (shopkeeper& keeper : shopkeepers_) keeper.speak(engine_, news);
  return {microseconds{done.elapsed_us}, done.decode_tokens};
}

bool village::is_talking() const {
  return std::any_of(shopkeepers_.begin(), shopkeepers_.end(), [](const shopkeeper& k) { return k.is_talking(); });
}

uint64_t village::tokens() const {
  uint64_t sum = 0;
  for (const shopkeeper& keeper : shopkeepers_) sum += keeper.tokens();
  return sum;
}

uint32_t village::interruptions() const {
  uint32_t sum = 0;
  for (const shopkeeper& keeper : shopkeepers_) sum += keeper.interruptions();
  return sum;
}

}  // namespace game

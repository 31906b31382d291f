// Who keeps a shop, and what was said there?
#ifndef GAME_SHOPKEEPER_HPP
#define GAME_SHOPKEEPER_HPP

#include <cstdint>
#include <nanovllm.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "picture.hpp"

namespace game {

/// Maximum length of an answer.
enum class answers { as_trained, endless };

/// One shopkeeper of the village. The persona is a system prompt: all shopkeepers share one engine, its weights and its
/// batch, and can talk at the same time.
class shopkeeper {
 public:
  shopkeeper(std::string name, std::string trade, colour awning);

  const std::string& name() const { return name_; }
  const std::string& trade() const { return trade_; }
  colour awning() const { return awning_; }
  /// The conversation: the persona first, then player and shopkeeper in turns; the last answer may be incomplete.
  const std::vector<nvllm::message>& talk() const { return talk_; }
  bool is_talking() const { return request_ != 0; }
  /// Tokens generated since the game began.
  uint64_t tokens() const { return tokens_; }
  /// Answers that the player interrupted.
  uint32_t interruptions() const { return interruptions_; }

  /// The player says something; a shopkeeper who is talking does not listen.
  void listen(nvllm::engine& engine, std::string_view words, answers length);
  /// Cancels the answer. Its end arrives as an output.
  void interrupt(nvllm::engine& engine);
  /// Takes an output if it belongs to this shopkeeper's answer.
  void speak(const nvllm::output& news);

 private:
  std::string name_, trade_;
  colour awning_;
  std::vector<nvllm::message> talk_;
  uint64_t request_ = 0;
  uint64_t tokens_ = 0;
  uint32_t interruptions_ = 0;
};

}  // namespace game

#endif

// Who keeps a shop, and what was said and sold there?
#ifndef GAME_SHOPKEEPER_HPP
#define GAME_SHOPKEEPER_HPP

#include <cstdint>
#include <nanovllm.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "picture.hpp"
#include "trade.hpp"

namespace game {

/// Maximum length of an answer.
enum class answers { as_trained, endless };

/// A turn of a conversation.
struct turn {
  /// "system", "user", "assistant", or "tool" for what the game says to a tool call.
  std::string role;
  /// What the player sees of it; of a tool's, what the model sees.
  std::string text;
  /// The message for the chat template; empty if it is the role and the text.
  std::string json = {};
};

/// One shopkeeper of the village. The persona is a system prompt: all shopkeepers share one engine, its weights and its
/// batch, and can talk at the same time.
class shopkeeper {
 public:
  shopkeeper(std::string name, std::string trade, colour awning, std::vector<goods> stock);

  const std::string& name() const { return name_; }
  const std::string& trade() const { return trade_; }
  colour awning() const { return awning_; }
  /// The conversation: the persona first, then player and shopkeeper in turns; the last answer may be incomplete.
  const std::vector<turn>& talk() const { return talk_; }
  bool is_talking() const { return request_ != 0; }
  /// Tokens generated since the game began.
  uint64_t tokens() const { return tokens_; }
  /// Answers that the player interrupted.
  uint32_t interruptions() const { return interruptions_; }

  /// Lets the engine compile a grammar: for the first one it sorts all tokens of the model, which takes up to half a
  /// second, and a frame does not have that.
  void prepare(nvllm::engine& engine, purse& buyer) const;
  /// The player says something; a shopkeeper who is talking does not listen.
  void listen(nvllm::engine& engine, std::string_view words, answers length);
  /// The player says something, and the answer is a sale: the model calls the tools of the game.
  void sell(nvllm::engine& engine, std::string_view words, purse& buyer);
  /// Cancels the answer. Its end arrives as an output.
  void interrupt(nvllm::engine& engine);
  /// Takes an output if it belongs to this shopkeeper's answer.
  void speak(nvllm::engine& engine, const nvllm::output& news);

 private:
  /// Asks for an answer to the conversation, and returns its prompt.
  std::string ask(nvllm::engine& engine, const nvllm::request_options& options);
  /// Drops the oldest question of a long conversation, with all that answers it, and keeps the persona. False if there
  /// is but one question.
  bool forget();
  /// Asks for the next call of the sale.
  void ask_for_call(nvllm::engine& engine);
  /// Reads a piece of the answer, and remembers the call in it.
  void read(const std::vector<nvllm::answer_event>& events);
  /// The answer of a sale has ended: applies its call, and goes on.
  void trade_on(nvllm::engine& engine, nvllm::finish why);

  std::string name_, trade_;
  colour awning_;
  std::vector<goods> stock_;
  std::vector<turn> talk_;
  uint64_t request_ = 0;
  uint64_t tokens_ = 0;
  uint32_t interruptions_ = 0;
  /// While the model is asked for calls.
  std::optional<sale> sale_;
  std::optional<nvllm::answer_parser> parser_;
  struct call {
    std::string tool, arguments;
    bool is_complete = false;
  } call_;
};

}  // namespace game

#endif

#include "shopkeeper.hpp"

#include <utility>

namespace game {

shopkeeper::shopkeeper(std::string name, std::string trade, colour awning)
    : name_(std::move(name)), trade_(std::move(trade)), awning_(awning) {
  talk_.push_back({"system", "You are " + name_ + ", the " + trade_ + "."});
}

void shopkeeper::listen(nvllm::engine& engine, std::string_view words, answers length) {
  if (is_talking()) return;
  talk_.push_back({"user", std::string(words)});
  nvllm::request_options options;
  options.ignore_eos = length == answers::endless;
  for (;;) {
    try {
      // The whole conversation is the prompt. All but the last turn is in the prefix cache.
      request_ = engine.add(engine.apply_chat_template(talk_), options);
      break;
    } catch (const nvllm::error& error) {
      // The oldest turns of a long conversation are dropped, and the persona is kept.
      if (error.status() != NVLLM_ERR_CONTEXT_LENGTH || talk_.size() < 4) throw;
      talk_.erase(talk_.begin() + 1, talk_.begin() + 3);
    }
  }
  talk_.push_back({"assistant", ""});
}

void shopkeeper::interrupt(nvllm::engine& engine) {
  if (is_talking()) engine.cancel(request_);
}

void shopkeeper::speak(const nvllm::output& news) {
  if (news.request_id() != request_) return;
  talk_.back().content += news.text();
  tokens_ += news.token_ids().size();
  if (!news.finish()) return;
  request_ = 0;
  if (news.finish() == nvllm::finish::cancelled) interruptions_++;
  if (std::optional<nvllm::failure> failed = news.error()) talk_.back().content += "[" + failed->message + "]";
}

}  // namespace game

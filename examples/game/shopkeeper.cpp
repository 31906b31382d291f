#include "shopkeeper.hpp"

#include <algorithm>
#include <utility>

namespace game {
namespace {

/// Room for a call of the tools of trade.hpp.
constexpr uint32_t call_tokens_max = 200;

/// The conversation for the chat template.
std::string json_of(const std::vector<turn>& talk) {
  std::string json;
  for (const turn& one : talk) {
    std::string array = nvllm::messages_json({{one.role, one.text}});
    json += (json.empty() ? "[" : ", ") + (one.json.empty() ? array.substr(1, array.size() - 2) : one.json);
  }
  return json + "]";
}

/// The answer is one call, which follows the schema of its tool whatever the model would have said.
nvllm::request_options options_of_call(const sale& of) {
  nvllm::request_options options;
  options.tools = of.tools();
  options.tool_choice = nvllm::tool_choice::required;
  options.parallel_tool_calls = false;
  options.keep_special_tokens = true;
  options.max_thinking_tokens = 0;
  options.max_tokens = call_tokens_max;
  return options;
}

}  // namespace

shopkeeper::shopkeeper(std::string name, std::string trade, colour awning, std::vector<goods> stock)
    : name_(std::move(name)), trade_(std::move(trade)), awning_(awning), stock_(std::move(stock)) {
  talk_.push_back({"system", "You are " + name_ + ", the " + trade_ + "."});
}

std::string shopkeeper::ask(nvllm::engine& engine, const nvllm::request_options& options) {
  std::string variables = options.tools.empty() ? "{}" : "{\"tools\": " + options.tools + "}";
  for (;;) {
    try {
      // The whole conversation is the prompt. All but the last turn is in the prefix cache.
      std::string prompt = engine.apply_chat_template(json_of(talk_), variables);
      request_ = engine.add(prompt, options);
      talk_.push_back({"assistant", ""});
      return prompt;
    } catch (const nvllm::error& error) {
      if (error.status() != NVLLM_ERR_CONTEXT_LENGTH || !forget()) throw;
    }
  }
}

bool shopkeeper::forget() {
  auto is_question = [](const turn& one) { return one.role == "user"; };
  auto next = std::find_if(talk_.begin() + 2, talk_.end(), is_question);
  if (next == talk_.end()) return false;
  talk_.erase(talk_.begin() + 1, next);
  return true;
}

void shopkeeper::listen(nvllm::engine& engine, std::string_view words, answers length) {
  if (is_talking()) return;
  talk_.push_back({"user", std::string(words)});
  nvllm::request_options options;
  options.ignore_eos = length == answers::endless;
  ask(engine, options);
}

void shopkeeper::sell(nvllm::engine& engine, std::string_view words, purse& buyer) {
  if (is_talking()) return;
  talk_.push_back({"user", std::string(words)});
  sale_.emplace(stock_, buyer);
  if (sale_->is_possible()) return ask_for_call(engine);
  sale_.reset();
  talk_.push_back({"assistant", "[you cannot pay for anything here]"});
}

void shopkeeper::prepare(nvllm::engine& engine, purse& buyer) const {
  try {
    engine.cancel(engine.add(name_, options_of_call(sale(stock_, buyer))));
  } catch (const nvllm::error&) {
    // The format of this model has no grammar for calls: a sale says so.
  }
}

void shopkeeper::ask_for_call(nvllm::engine& engine) {
  nvllm::request_options options = options_of_call(*sale_);
  call_ = {};
  try {
    std::string prompt = ask(engine, options);
    parser_.emplace(engine.make_answer_parser(prompt, options.tools));
  } catch (const nvllm::error& error) {
    sale_->cancel();
    sale_.reset();
    talk_.push_back({"assistant", "[" + std::string(error.what()) + "]"});
  }
}

void shopkeeper::read(const std::vector<nvllm::answer_event>& events) {
  for (const nvllm::answer_event& event : events) {
    if (event.kind == nvllm::answer_event_kind::tool_call_begin) call_.tool = event.text;
    if (event.kind == nvllm::answer_event_kind::tool_call_arguments) call_.arguments += event.text;
    if (event.kind == nvllm::answer_event_kind::tool_call_end) call_.is_complete = true;
  }
}

void shopkeeper::trade_on(nvllm::engine& engine, nvllm::finish why) {
  read(parser_->finish());
  if (call_.is_complete) {
    sale::effect effect = sale_->apply(call_.tool, call_.arguments);
    talk_.back() = {"assistant", effect.shown, parser_->message()};
    talk_.push_back({"tool", effect.result});
  } else if (why == nvllm::finish::length && forget()) {
    // The context was full before the call was complete: it is asked for again.
    talk_.pop_back();
  } else {
    // It was interrupted, or it failed.
    sale_->cancel();
    talk_.back().text += "[nothing is sold]";
  }
  parser_.reset();
  if (!sale_->is_over()) return ask_for_call(engine);
  sale_.reset();
}

void shopkeeper::interrupt(nvllm::engine& engine) {
  if (is_talking()) engine.cancel(request_);
}

void shopkeeper::speak(nvllm::engine& engine, const nvllm::output& news) {
  if (news.request_id() != request_) return;
  if (parser_) {
    read(parser_->feed(news.text()));
  } else {
    talk_.back().text += news.text();
  }
  tokens_ += news.token_ids().size();
  if (!news.finish()) return;
  request_ = 0;
  if (news.finish() == nvllm::finish::cancelled) interruptions_++;
  if (std::optional<nvllm::failure> failed = news.error()) talk_.back().text += "[" + failed->message + "]";
  if (sale_) trade_on(engine, *news.finish());
}

}  // namespace game

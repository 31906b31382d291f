#include "trade.hpp"

#include <algorithm>
#include <charconv>

namespace game {
namespace {

/// A tool with one argument, as the OpenAI API has it. `schema` is that of the argument.
std::string tool(const std::string& name, const std::string& does, const std::string& argument,
                 const std::string& schema) {
  std::string parameters = R"({"type": "object", "properties": {")" + argument + "\": " + schema +
                           R"(}, "required": [")" + argument + R"("], "additionalProperties": false})";
  return R"([{"type": "function", "function": {"name": ")" + name + R"(", "description": ")" + does +
         R"(", "parameters": )" + parameters + "}}]";
}

/// The value of the one argument: {"item":"mint tea"} or {"amount":2}. The schema allows no other form, and no name of
/// goods needs an escape in JSON.
std::string_view value_of(std::string_view arguments) {
  std::size_t colon = arguments.find(':'), end = arguments.rfind('}');
  if (colon == std::string_view::npos || end == std::string_view::npos || end < colon) return {};
  std::string_view value = arguments.substr(colon + 1, end - colon - 1);
  bool is_text = value.size() >= 2 && value.front() == '"' && value.back() == '"';
  return is_text ? value.substr(1, value.size() - 2) : value;
}

}  // namespace

std::string contents(const purse& of) {
  std::string text = std::to_string(of.gold) + " gold";
  for (const std::string& item : of.items) text += ", " + item;
  return text;
}

bool sale::is_possible() const {
  return std::any_of(stock_->begin(), stock_->end(), [&](const goods& one) { return one.price <= buyer_->gold; });
}

std::string sale::tools() const {
  if (on_counter_) {
    // A good customer pays less, but not less than half.
    std::string least = std::to_string((on_counter_->price + 1) / 2), most = std::to_string(on_counter_->price);
    return tool("take_gold", "Takes gold for the item on the counter, and so sells it.", "amount",
                R"({"type": "integer", "minimum": )" + least + R"(, "maximum": )" + most + "}");
  }
  std::string names;
  for (const goods& one : *stock_)
    if (one.price <= buyer_->gold) names += (names.empty() ? "\"" : ", \"") + one.name + "\"";
  return tool("give_item", "Puts the item that the player wants on the counter.", "item",
              R"({"enum": [)" + names + "]}");
}

sale::effect sale::apply(std::string_view tool, std::string_view arguments) {
  std::string_view value = value_of(arguments);
  if (!on_counter_ && tool == "give_item") return give_item(value);
  int amount = 0;
  bool is_number = std::from_chars(value.data(), value.data() + value.size(), amount).ec == std::errc();
  if (on_counter_ && tool == "take_gold" && is_number) return take_gold(amount);
  cancel();
  return {"[nothing is sold]", "error: this cannot be called now"};
}

sale::effect sale::give_item(std::string_view name) {
  auto found = std::find_if(stock_->begin(), stock_->end(), [&](const goods& one) { return one.name == name; });
  // The gold may have gone to another shop since the model was asked.
  if (found == stock_->end() || found->price > buyer_->gold) {
    cancel();
    return {"[nothing is sold]", "error: the player cannot pay for that"};
  }
  on_counter_ = *found;
  buyer_->gold -= found->price;
  return {"[" + found->name + " for " + std::to_string(found->price) + " gold?]",
          "The " + found->name + " is on the counter. Its price is " + std::to_string(found->price) + " gold."};
}

sale::effect sale::take_gold(int amount) {
  int taken = std::clamp(amount, 0, on_counter_->price);
  buyer_->gold += on_counter_->price - taken;
  buyer_->items.push_back(on_counter_->name);
  std::string text = on_counter_->name + " sold for " + std::to_string(taken) + " gold";
  on_counter_.reset();
  is_over_ = true;
  return {"[" + text + "]", text + "."};
}

void sale::cancel() {
  if (on_counter_) buyer_->gold += on_counter_->price;
  on_counter_.reset();
  is_over_ = true;
}

}  // namespace game

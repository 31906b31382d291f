// What does a shopkeeper sell, and what does a tool call of the model change?
#ifndef GAME_TRADE_HPP
#define GAME_TRADE_HPP

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace game {

struct goods {
  std::string name;
  int price;
};

/// What the player has.
struct purse {
  int gold = 60;
  std::vector<std::string> items;
};

/// What is in a purse, such as "48 gold, dagger".
std::string contents(const purse& of);

/// One sale, in two tool calls: give_item puts an item on the counter, for which the player puts down its price;
/// take_gold takes that or less, and the item is the player's.
///
/// The rules of the game are the schemas of the tools, so that a model cannot call for what they forbid: an item that
/// is not for sale or that the player cannot pay, or a price above the one on the sign. The model decides the rest,
/// which item and at which price.
class sale {
 public:
  /// Both must live as long as the sale.
  sale(const std::vector<goods>& stock, purse& buyer) : stock_(&stock), buyer_(&buyer) {}

  /// Whether the player can pay for anything.
  bool is_possible() const;
  /// The tool that comes next, as JSON: an array of one.
  std::string tools() const;

  /// What a call did.
  struct effect {
    /// For the player.
    std::string shown;
    /// For the model, as the result of its call.
    std::string result;
  };
  /// Applies a call to the purse.
  effect apply(std::string_view tool, std::string_view arguments);
  /// The player takes the gold back from the counter, if it is there.
  void cancel();
  bool is_over() const { return is_over_; }

 private:
  effect give_item(std::string_view name);
  effect take_gold(int amount);

  const std::vector<goods>* stock_;
  purse* buyer_;
  std::optional<goods> on_counter_;
  bool is_over_ = false;
};

}  // namespace game

#endif

#include "frame_clock.hpp"

#include <algorithm>
#include <cstdio>
#include <thread>

namespace game {

void frame_clock::begin() {
  began_ = clock::now();
  tick_ += length;
  // A late frame shifts the frames after it: catching up would make the next frame irregular too.
  if (tick_ < began_ + length / 2) tick_ = began_ + length;
}

microseconds frame_clock::left() const {
  // One frame in ten may be slower than that: one delay of the system must not take the engine's budget away.
  std::vector<microseconds> others{microseconds{0}};
  for (const frame& past : last_) others.push_back(past.all - past.engine.time);
  auto slow = others.begin() + static_cast<std::ptrdiff_t>(others.size() * 9 / 10);
  std::nth_element(others.begin(), slow, others.end());
  auto rest = std::chrono::duration_cast<microseconds>(tick_ - clock::now()) - *slow - reserve;
  return std::max(rest, least);
}

void frame_clock::end(engine_work engine) {
  auto all = std::chrono::duration_cast<microseconds>(clock::now() - began_);
  if (last_.size() == remembered) last_.pop_front();
  last_.push_back({engine, all});
  if (engine.time > microseconds{0}) busy_.push_back(all);
  tokens_ += engine.tokens;
  std::this_thread::sleep_until(tick_);
}

std::string frame_clock::report() const {
  if (busy_.empty()) return "0 frames with talk";
  std::vector<microseconds> sorted = busy_;
  std::sort(sorted.begin(), sorted.end());
  auto ms = [&](std::size_t at) { return static_cast<double>(sorted[at].count()) / 1000; };
  auto late = sorted.end() - std::upper_bound(sorted.begin(), sorted.end(), length);
  double seconds = static_cast<double>(busy_.size()) * static_cast<double>(length.count()) / 1e6;
  char text[200];
  std::snprintf(text, sizeof text,
                "%zu frames with talk, %.0f tokens/s: p50 %.2f ms, p99 %.2f ms, longest %.2f ms, %td over 16.67 ms",
                busy_.size(), static_cast<double>(tokens_) / seconds, ms(sorted.size() / 2),
                ms(sorted.size() * 99 / 100), ms(sorted.size() - 1), late);
  return text;
}

}  // namespace game

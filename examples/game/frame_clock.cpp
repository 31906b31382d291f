#include "frame_clock.hpp"

#include <algorithm>
#include <cstdio>
#include <thread>

namespace game {
namespace {

/// The median, the 99th percentile and the maximum.
std::string percentiles(std::vector<microseconds> times) {
  std::sort(times.begin(), times.end());
  auto ms = [&](std::size_t at) { return static_cast<double>(times[at].count()) / 1000; };
  char text[100];
  std::snprintf(text, sizeof text, "p50 %.2f ms, p99 %.2f ms, longest %.2f ms", ms(times.size() / 2),
                ms(times.size() * 99 / 100), ms(times.size() - 1));
  return text;
}

}  // namespace

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

void frame_clock::add(const std::vector<drawn_picture>& pictures) {
  for (const drawn_picture& picture : pictures) drawn_[picture.engine_works].push_back(picture.time);
}

std::string frame_clock::report() const {
  std::string text;
  for (bool engine_works : {false, true}) {
    const std::vector<microseconds>& drawn = drawn_[engine_works];
    if (drawn.empty()) continue;
    text += "OpenGL drew " + std::to_string(drawn.size()) + " pictures " + (engine_works ? "with" : "without") +
            " talk: " + percentiles(drawn) + '\n';
  }
  if (busy_.empty()) return text + "0 frames with talk";
  auto late = std::count_if(busy_.begin(), busy_.end(), [](microseconds all) { return all > length; });
  double seconds = static_cast<double>(busy_.size()) * static_cast<double>(length.count()) / 1e6;
  char speed[60];
  std::snprintf(speed, sizeof speed, "%zu frames with talk, %.0f tokens/s: ", busy_.size(),
                static_cast<double>(tokens_) / seconds);
  return text + speed + percentiles(busy_) + ", " + std::to_string(late) + " over 16.67 ms";
}

}  // namespace game

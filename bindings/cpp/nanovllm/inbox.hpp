// Which reader does an output belong to? Several streams and poll() may read from one engine, which has one queue.
#ifndef NANOVLLM_INBOX_HPP
#define NANOVLLM_INBOX_HPP

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "options.hpp"
#include "output.hpp"

namespace nvllm {
inline namespace NVLLM_CPP_MODE {
namespace detail {

struct engine_deleter {
  void operator()(nvllm_engine* engine) const noexcept { nvllm_engine_free(engine); }
};

/// An engine's handle, and the outputs that were polled on behalf of other readers. It does not move with its engine.
struct engine_state {
  explicit engine_state(nvllm_engine* opened) : handle(opened) {}

  std::unique_ptr<nvllm_engine, engine_deleter> handle;
  /// Held by the [one] function that is running.
  std::atomic_flag entered = ATOMIC_FLAG_INIT;

  /// A request that has a stream.
  struct followed {
    explicit followed(uint32_t completions) : running(completions) {}
    /// Its outputs that were polled on behalf of others.
    std::deque<owned_output> waiting;
    /// Number of completions whose last output has not been polled.
    uint32_t running;
    /// Whether the stream was destroyed, on any thread. Nobody reads its outputs.
    std::atomic<bool> left{false};
  };
  /// Requests that have or had a stream, until their last output is polled.
  std::map<uint64_t, std::shared_ptr<followed>> streams;
  /// Outputs of requests without a stream.
  std::deque<owned_output> unclaimed;
  std::atomic<std::size_t> num_unclaimed{0};
  /// The copy that was returned last.
  owned_output shown;

  std::function<bool(const output&)> on_output;
  /// The exception that a callback threw.
  std::exception_ptr thrown;

  /// Whether outputs are to come for a stream that is read, or for one that was left.
  bool any_stream(bool left) const {
    return std::any_of(streams.begin(), streams.end(), [=](const auto& stream) { return stream.second->left == left; });
  }

  /// The stream of an output that the engine has just delivered; null if it has none.
  std::shared_ptr<followed> owner_of(const nvllm_output& news) {
    auto stream = streams.find(news.request_id);
    if (stream == streams.end()) return nullptr;
    std::shared_ptr<followed> owner = stream->second;
    if (news.finish_reason != NVLLM_FINISH_NONE && --owner->running == 0) streams.erase(stream);
    return owner;
  }

  /// Takes the oldest output of a stream, or with null the oldest output without a stream.
  nvllm_status take(followed* reader, std::optional<output>& taken, nvllm_error& error) {
    taken.reset();
    std::deque<owned_output>& waiting = reader != nullptr ? reader->waiting : unclaimed;
    if (!waiting.empty()) {
      shown = std::move(waiting.front());
      waiting.pop_front();
      num_unclaimed = unclaimed.size();
      taken = shown.get();
      return NVLLM_OK;
    }
    transit until_read(*this);
    for (;;) {
      nvllm_output polled;
      polled.struct_size = sizeof polled;
      nvllm_status status = nvllm_poll_output(handle.get(), &polled, &error);
      if (status == NVLLM_NO_OUTPUT) return NVLLM_OK;
      if (status != NVLLM_OK) return status;
      std::shared_ptr<followed> owner = owner_of(polled);
      if (owner.get() == reader) {
        taken = output(polled);
        return NVLLM_OK;
      }
      keep(owner.get(), polled);
    }
  }

  /// Drops what waits for streams that were left, which nobody polls, and keeps all else. Returns how much that was.
  uint32_t drop_left() {
    uint32_t dropped = 0;
    transit until_read(*this);
    nvllm_output polled;
    polled.struct_size = sizeof polled;
    // What fails here fails in the next call too, which reports it.
    while (any_stream(true) && nvllm_poll_output(handle.get(), &polled, nullptr) == NVLLM_OK) {
      if (!keep(owner_of(polled).get(), polled)) dropped++;
    }
    return dropped;
  }

 private:
  /// Counts one output more while some are between the library's queue and their readers: any thread may ask whether all is finished.
  struct transit {
    explicit transit(engine_state& of) : state(of) { state.num_unclaimed = state.unclaimed.size() + 1; }
    ~transit() { state.num_unclaimed = state.unclaimed.size(); }
    transit(const transit&) = delete;
    transit& operator=(const transit&) = delete;
    engine_state& state;
  };

  /// Keeps an output for its reader. False if nobody reads it.
  bool keep(followed* owner, const nvllm_output& polled) {
    if (owner != nullptr && owner->left) return false;
    (owner != nullptr ? owner->waiting : unclaimed).emplace_back(output(polled));
    return true;
  }
};

/// Entry into a [one] function, as in the C API: a second caller is refused. It keeps the state alive, because a
/// callback may destroy the engine: after the C API has called one, a function uses this and no member of the engine.
class entry {
 public:
  explicit entry(std::shared_ptr<engine_state> state) {
    if (state != nullptr && !state->entered.test_and_set()) state_ = std::move(state);
  }
  ~entry() {
    if (state_ != nullptr) state_->entered.clear();
  }
  entry(const entry&) = delete;
  entry& operator=(const entry&) = delete;

  explicit operator bool() const noexcept { return state_ != nullptr; }
  engine_state* operator->() const noexcept { return state_.get(); }

 private:
  std::shared_ptr<engine_state> state_;
};

/// Calls a function that may throw from one that must not. An exception is stored, and `otherwise` is returned.
template <class Call>
int32_t contained(std::exception_ptr& thrown, [[maybe_unused]] int32_t otherwise, const Call& call) noexcept {
#ifdef NVLLM_CPP_NO_EXCEPTIONS
  static_cast<void>(thrown);
  return call();
#else
  try {
    return call();
  } catch (...) {
    if (!thrown) thrown = std::current_exception();
    return otherwise;
  }
#endif
}

/// Rethrows the exception of a callback, if there was one.
inline void rethrow([[maybe_unused]] std::exception_ptr& thrown) {
#ifndef NVLLM_CPP_NO_EXCEPTIONS
  if (thrown) std::rethrow_exception(std::exchange(thrown, nullptr));
#endif
}

}  // namespace detail
}  // namespace NVLLM_CPP_MODE
}  // namespace nvllm

#endif

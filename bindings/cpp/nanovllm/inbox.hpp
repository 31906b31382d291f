// Which reader does an output belong to? Several streams and poll() may read from one engine, which has one queue.
#ifndef NANOVLLM_INBOX_HPP
#define NANOVLLM_INBOX_HPP

#include <atomic>
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

  /// Outputs of requests that have a stream, by request.
  struct followed {
    std::deque<owned_output> waiting;
    /// Number of completions whose last output has not been polled.
    uint32_t running = 1;
  };
  std::map<uint64_t, followed> streams;
  /// Outputs of requests without a stream.
  std::deque<owned_output> unclaimed;
  std::atomic<std::size_t> num_unclaimed{0};
  /// Requests whose stream was destroyed, with the number of their completions that have not ended.
  std::map<uint64_t, uint32_t> abandoned;
  /// The copy that was returned last.
  owned_output shown;

  std::function<bool(const output&)> on_output;
  /// The exception that a callback threw.
  std::exception_ptr thrown;

  /// Takes the oldest output of a stream's request, or with 0 the oldest output without a stream.
  nvllm_status take(uint64_t request, std::optional<output>& taken, nvllm_error& error) {
    taken.reset();
    std::deque<owned_output>& waiting = request == 0 ? unclaimed : streams[request].waiting;
    if (!waiting.empty()) {
      shown = std::move(waiting.front());
      waiting.pop_front();
      num_unclaimed = unclaimed.size();
      taken = shown.get();
      return NVLLM_OK;
    }
    for (;;) {
      nvllm_output polled;
      polled.struct_size = sizeof polled;
      nvllm_status status = nvllm_poll_output(handle.get(), &polled, &error);
      if (status == NVLLM_NO_OUTPUT) return NVLLM_OK;
      if (status != NVLLM_OK) return status;
      bool ends = polled.finish_reason != NVLLM_FINISH_NONE;
      auto dropped = abandoned.find(polled.request_id);
      auto stream = streams.find(polled.request_id);
      if (ends && stream != streams.end()) stream->second.running--;
      if (dropped != abandoned.end()) {
        if (ends && --dropped->second == 0) abandoned.erase(dropped);
      } else if (request == 0 ? stream == streams.end() : polled.request_id == request) {
        taken = output(polled);
        return NVLLM_OK;
      } else if (stream != streams.end()) {
        stream->second.waiting.emplace_back(output(polled));
      } else {
        unclaimed.emplace_back(output(polled));
        num_unclaimed = unclaimed.size();
      }
    }
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

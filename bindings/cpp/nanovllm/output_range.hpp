// The outputs of an engine that are waiting, as a range.
#ifndef NANOVLLM_OUTPUT_RANGE_HPP
#define NANOVLLM_OUTPUT_RANGE_HPP

#include <cstddef>
#include <iterator>
#include <optional>

#include "output.hpp"
#include "result.hpp"

namespace nvllm {
inline namespace NVLLM_CPP_MODE {

class engine;

/// The outputs that are waiting, for a range-for. Returned by engine::outputs().
class output_range {
 public:
  class iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = output;
    using difference_type = std::ptrdiff_t;
    using pointer = const output*;
    using reference = const output&;

    iterator() = default;
    explicit iterator(output_range* of) : of_(of) {}
    const output& operator*() const noexcept { return *of_->current_; }
    const output* operator->() const noexcept { return &*of_->current_; }
    iterator& operator++() {
      of_->poll();
      return *this;
    }
    void operator++(int) { of_->poll(); }
    /// Compares whether both are at the end, which is all that an input iterator can tell.
    friend bool operator==(const iterator& a, const iterator& b) noexcept { return a.ended() == b.ended(); }
    friend bool operator!=(const iterator& a, const iterator& b) noexcept { return !(a == b); }

   private:
    bool ended() const noexcept { return of_ == nullptr || !of_->current_; }
    output_range* of_ = nullptr;
  };

  explicit output_range(engine& of) : engine_(&of) {}
  iterator begin() {
    poll();
    return iterator(this);
  }
  iterator end() const noexcept { return iterator(); }

#ifdef NVLLM_CPP_NO_EXCEPTIONS
  /// The error that ended the range early, if there was one.
  const std::optional<failure>& error() const noexcept { return failure_; }
#endif

 private:
  inline void poll();

  engine* engine_;
  std::optional<output> current_;
#ifdef NVLLM_CPP_NO_EXCEPTIONS
  std::optional<failure> failure_;
#endif
};

}  // namespace NVLLM_CPP_MODE
}  // namespace nvllm

#endif

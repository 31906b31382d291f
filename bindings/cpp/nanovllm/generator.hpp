// A coroutine that yields values to a range-for. Defined where the compiler and its library have coroutines.
#ifndef NANOVLLM_GENERATOR_HPP
#define NANOVLLM_GENERATOR_HPP

#include "result.hpp"

#if !defined(NVLLM_CPP_NO_EXCEPTIONS) && defined(__cpp_impl_coroutine) && __cplusplus >= 202002L
#define NVLLM_CPP_COROUTINES 1

#include <coroutine>
#include <cstddef>
#include <exception>
#include <iterator>
#include <memory>
#include <utility>

namespace nvllm {

/// Values of T that a coroutine yields one at a time, for one pass. A value is valid until the next one is requested.
template <class T>
class [[nodiscard]] generator {
 public:
  struct promise_type {
    const T* value = nullptr;
    std::exception_ptr thrown;

    generator get_return_object() noexcept { return generator(handle::from_promise(*this)); }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    std::suspend_always final_suspend() const noexcept { return {}; }
    std::suspend_always yield_value(const T& next) noexcept {
      value = std::addressof(next);
      return {};
    }
    void return_void() const noexcept {}
    void unhandled_exception() noexcept { thrown = std::current_exception(); }
    // A generator cannot co_await.
    void await_transform() = delete;
  };
  using handle = std::coroutine_handle<promise_type>;

  generator(generator&& other) noexcept : coroutine_(std::exchange(other.coroutine_, {})) {}
  generator& operator=(generator&& other) noexcept {
    generator taken(std::move(other));
    // The one that this object had is destroyed with `taken`, which cancels its request.
    std::swap(coroutine_, taken.coroutine_);
    return *this;
  }
  ~generator() {
    if (coroutine_) coroutine_.destroy();
  }

  class iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;

    iterator() = default;
    explicit iterator(handle coroutine) : coroutine_(coroutine) { resume(coroutine_); }
    const T& operator*() const noexcept { return *coroutine_.promise().value; }
    const T* operator->() const noexcept { return coroutine_.promise().value; }
    iterator& operator++() {
      resume(coroutine_);
      return *this;
    }
    void operator++(int) { resume(coroutine_); }
    friend bool operator==(const iterator& a, std::default_sentinel_t) noexcept { return a.coroutine_.done(); }

   private:
    handle coroutine_;
  };
  /// May be called once.
  iterator begin() { return iterator(coroutine_); }
  std::default_sentinel_t end() const noexcept { return {}; }

  /// The next value; nullptr after the last one. For a loop that takes one value at a time; must not be combined with
  /// begin().
  const T* next() {
    if (!coroutine_ || coroutine_.done()) return nullptr;
    resume(coroutine_);
    return coroutine_.done() ? nullptr : coroutine_.promise().value;
  }

 private:
  static void resume(handle coroutine) {
    coroutine.resume();
    if (coroutine.promise().thrown) std::rethrow_exception(std::exchange(coroutine.promise().thrown, nullptr));
  }
  explicit generator(handle coroutine) noexcept : coroutine_(coroutine) {}
  handle coroutine_;
};

}  // namespace nvllm

#endif
#endif

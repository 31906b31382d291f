// How a call fails: by an exception, or by a result type if NVLLM_CPP_NO_EXCEPTIONS is defined.
#ifndef NANOVLLM_RESULT_HPP
#define NANOVLLM_RESULT_HPP

#include <nanovllm.h>

#include <cstdint>
#include <string>
#include <utility>

// What differs with and without exceptions is in an inline namespace, so that both kinds can be linked together.
#ifdef NVLLM_CPP_NO_EXCEPTIONS
#include <optional>
#include <variant>
#define NVLLM_CPP_MODE with_results
#else
#include <stdexcept>
#define NVLLM_CPP_MODE with_exceptions
#endif

namespace nvllm {

/// Why a call failed.
struct failure {
  /// NVLLM_ERR_*.
  nvllm_status status = NVLLM_OK;
  /// errno or the device's error code if there is one, else 0.
  int32_t native_code = 0;
  /// What was wanted, what was found, and the option that changes it.
  std::string message;
};

inline namespace NVLLM_CPP_MODE {

#ifdef NVLLM_CPP_NO_EXCEPTIONS

/// A value, or the reason why there is none.
template <class T>
class [[nodiscard]] result {
 public:
  result(T value) : held_(std::in_place_index<0>, std::move(value)) {}
  result(failure reason) : held_(std::in_place_index<1>, std::move(reason)) {}

  explicit operator bool() const noexcept { return held_.index() == 0; }
  /// The value; there must be one.
  T& operator*() noexcept { return *std::get_if<0>(&held_); }
  const T& operator*() const noexcept { return *std::get_if<0>(&held_); }
  T* operator->() noexcept { return std::get_if<0>(&held_); }
  const T* operator->() const noexcept { return std::get_if<0>(&held_); }
  /// The reason why there is no value; there must be none.
  const failure& error() const noexcept { return *std::get_if<1>(&held_); }

 private:
  std::variant<T, failure> held_;
};

/// Success, or the reason of a failure.
template <>
class [[nodiscard]] result<void> {
 public:
  result() = default;
  result(failure reason) : failure_(std::move(reason)) {}

  explicit operator bool() const noexcept { return !failure_; }
  /// The reason of the failure; the call must have failed.
  const failure& error() const noexcept { return *failure_; }

 private:
  std::optional<failure> failure_;
};

/// What a call that can fail returns.
template <class T>
using returned = result<T>;

namespace detail {

template <class T>
returned<T> fail(failure reason) {
  return reason;
}

}  // namespace detail
#else

/// A call failed. what() is the message.
class error : public std::runtime_error {
 public:
  explicit error(failure reason)
      : std::runtime_error(reason.message), status_(reason.status), native_code_(reason.native_code) {}

  /// NVLLM_ERR_*.
  nvllm_status status() const noexcept { return status_; }
  /// errno or the device's error code if there is one, else 0.
  int32_t native_code() const noexcept { return native_code_; }

 private:
  nvllm_status status_;
  int32_t native_code_;
};

/// What a call that can fail returns.
template <class T>
using returned = T;

namespace detail {

template <class T>
[[noreturn]] returned<T> fail(failure reason) {
  throw error(std::move(reason));
}

}  // namespace detail
#endif

namespace detail {

inline failure failure_of(const nvllm_error& error) { return {error.status, error.native_code, error.message}; }

inline failure failure_of(nvllm_status status, const char* message) { return {status, 0, message}; }

}  // namespace detail
}  // namespace NVLLM_CPP_MODE
}  // namespace nvllm

#endif

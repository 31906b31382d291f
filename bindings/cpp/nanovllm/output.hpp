// Outputs: increments of a request while it runs, and the results of many prompts.
#ifndef NANOVLLM_OUTPUT_HPP
#define NANOVLLM_OUTPUT_HPP

#include <chrono>
#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "result.hpp"

namespace nvllm {

/// A non-owning range of consecutive values; convertible to std::span.
template <class T>
class view {
 public:
  view() = default;
  view(const T* data, std::size_t size) : data_(data), size_(size) {}

  const T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  const T* begin() const noexcept { return data_; }
  const T* end() const noexcept { return data_ + size_; }
  const T& operator[](std::size_t index) const noexcept { return data_[index]; }

 private:
  const T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Why a completion ended.
enum class finish : int32_t {
  stop = NVLLM_FINISH_STOP,
  length = NVLLM_FINISH_LENGTH,
  cancelled = NVLLM_FINISH_CANCELLED,
  error = NVLLM_FINISH_ERROR,
  expired = NVLLM_FINISH_EXPIRED,
};

inline namespace NVLLM_CPP_MODE {

/// An increment of one completion of a request: what is new since its last output, and how it ended if it did.
///
/// It is a view: an engine's output is valid until the next [one] call on the engine, an output of `results` as long as
/// these. owned_output keeps a copy.
class output {
 public:
  output() = default;
  explicit output(const nvllm_output& native) : native_(native) {}

  uint64_t request_id() const noexcept { return native_.request_id; }
  uint64_t tag() const noexcept { return native_.tag; }
  /// New text, in whole characters.
  std::string_view text() const noexcept { return {native_.text, native_.text_len}; }
  /// New tokens.
  view<uint32_t> token_ids() const noexcept { return {native_.token_ids, native_.num_token_ids}; }
  /// Index of the completion within its request, from 0.
  uint32_t index() const noexcept { return native_.index; }
  /// Why this completion ended; nothing if it has not ended.
  std::optional<nvllm::finish> finish() const noexcept {
    if (native_.finish_reason == NVLLM_FINISH_NONE) return std::nullopt;
    return static_cast<nvllm::finish>(native_.finish_reason);
  }
  /// As finish(), by the name that the C API has for it.
  std::optional<nvllm::finish> finish_reason() const noexcept { return finish(); }
  /// The error if it ended with finish::error; else nothing.
  std::optional<failure> error() const {
    if (native_.finish_reason != NVLLM_FINISH_ERROR) return std::nullopt;
    return failure{native_.status, 0, native_.error_message == nullptr ? "" : native_.error_message};
  }
  uint32_t prompt_tokens() const noexcept { return native_.prompt_tokens; }
  /// Number of prompt tokens that were taken from the prefix cache.
  uint32_t cached_tokens() const noexcept { return native_.cached_tokens; }
  /// Number of tokens generated so far.
  uint32_t completion_tokens() const noexcept { return native_.completion_tokens; }
  /// Time from adding the request to its first token; nothing before that.
  std::optional<std::chrono::microseconds> time_to_first_token() const noexcept {
    if (native_.time_to_first_token_us == 0) return std::nullopt;
    return std::chrono::microseconds(native_.time_to_first_token_us);
  }
  /// Log-probability of each new token; empty if none were requested.
  view<float> logprobs() const noexcept {
    return {native_.logprobs, native_.logprobs == nullptr ? 0 : native_.num_token_ids};
  }
  /// The most likely tokens in place of the new token at `position`, in descending order of probability; empty if none
  /// were requested.
  view<uint32_t> top_tokens(std::size_t position) const noexcept {
    return row(native_.top_tokens, position, native_.num_logprobs);
  }
  /// Their log-probabilities.
  view<float> top_logprobs(std::size_t position) const noexcept {
    return row(native_.top_logprobs, position, native_.num_logprobs);
  }
  /// Log-probability of each prompt token but the first, in the first output of a request that requested them; else empty.
  view<float> prompt_logprobs() const noexcept { return {native_.prompt_logprobs, num_prompt_places()}; }
  /// The most likely tokens in place of the prompt token at `position + 1`.
  view<uint32_t> prompt_top_tokens(std::size_t position) const noexcept {
    return row(native_.prompt_top_tokens, position, native_.num_prompt_logprobs);
  }
  /// Their log-probabilities.
  view<float> prompt_top_logprobs(std::size_t position) const noexcept {
    return row(native_.prompt_top_logprobs, position, native_.num_prompt_logprobs);
  }
  /// The pooled embedding, in the output that ends the request; else empty.
  view<float> embedding() const noexcept { return {native_.embedding, native_.embedding_len}; }
  /// The scores of a classifier, one for each label, in the output that ends the request; else empty.
  view<float> scores() const noexcept { return {native_.scores, native_.num_scores}; }
  float cumulative_logprob() const noexcept { return native_.cumulative_logprob; }
  /// Score of a result of beam search; else 0.
  float score() const noexcept { return native_.score; }
  /// Tokens of reasoning so far, if request_options::max_thinking_tokens is set.
  uint32_t reasoning_tokens() const noexcept { return native_.reasoning_tokens; }

  /// The struct of the C API.
  const nvllm_output& native() const noexcept { return native_; }

 private:
  template <class T>
  static view<T> row(const T* table, std::size_t position, std::size_t width) noexcept {
    return table == nullptr ? view<T>() : view<T>(table + position * width, width);
  }
  std::size_t num_prompt_places() const noexcept {
    return native_.prompt_logprobs == nullptr ? 0 : native_.prompt_tokens - std::size_t{1};
  }
  nvllm_output native_ = {};
};

/// A copy of an output that owns its memory.
class owned_output {
 public:
  owned_output() = default;
  explicit owned_output(const output& from)
      : native_(from.native()),
        text_(from.text()),
        tokens_(from.token_ids().begin(), from.token_ids().end()),
        logprobs_(from.logprobs().begin(), from.logprobs().end()),
        embedding_(from.embedding().begin(), from.embedding().end()),
        scores_(from.scores().begin(), from.scores().end()) {
    std::size_t alternatives = tokens_.size() * native_.num_logprobs;
    std::size_t places = from.prompt_logprobs().size(), prompt_alternatives = places * native_.num_prompt_logprobs;
    copy(top_tokens_, native_.top_tokens, alternatives);
    copy(top_logprobs_, native_.top_logprobs, alternatives);
    copy(prompt_logprobs_, native_.prompt_logprobs, places);
    copy(prompt_top_tokens_, native_.prompt_top_tokens, prompt_alternatives);
    copy(prompt_top_logprobs_, native_.prompt_top_logprobs, prompt_alternatives);
    if (native_.error_message != nullptr) error_message_ = native_.error_message;
  }

  /// A view of the copy. Valid as long as this object, and until it is moved.
  nvllm::output get() const noexcept {
    nvllm_output shown = native_;
    shown.text = text_.c_str();
    shown.token_ids = tokens_.data();
    shown.logprobs = native_.logprobs == nullptr ? nullptr : logprobs_.data();
    shown.top_tokens = top_tokens_.empty() ? nullptr : top_tokens_.data();
    shown.top_logprobs = top_logprobs_.empty() ? nullptr : top_logprobs_.data();
    shown.prompt_logprobs = prompt_logprobs_.empty() ? nullptr : prompt_logprobs_.data();
    shown.prompt_top_tokens = prompt_top_tokens_.empty() ? nullptr : prompt_top_tokens_.data();
    shown.prompt_top_logprobs = prompt_top_logprobs_.empty() ? nullptr : prompt_top_logprobs_.data();
    shown.embedding = embedding_.empty() ? nullptr : embedding_.data();
    shown.scores = scores_.empty() ? nullptr : scores_.data();
    shown.error_message = native_.error_message == nullptr ? nullptr : error_message_.c_str();
    return nvllm::output(shown);
  }

 private:
  template <class T>
  static void copy(std::vector<T>& to, const T* from, std::size_t count) {
    if (from != nullptr) to.assign(from, from + count);
  }
  nvllm_output native_ = {};
  std::string text_;
  std::vector<uint32_t> tokens_;
  std::vector<float> logprobs_;
  std::vector<float> embedding_;
  std::vector<float> scores_;
  std::vector<uint32_t> top_tokens_;
  std::vector<float> top_logprobs_;
  std::vector<float> prompt_logprobs_;
  std::vector<uint32_t> prompt_top_tokens_;
  std::vector<float> prompt_top_logprobs_;
  std::string error_message_;
};

namespace detail {

struct result_deleter {
  void operator()(nvllm_result* result) const noexcept { nvllm_result_free(result); }
};

}  // namespace detail

/// The results of many prompts, in the order of the prompts, as many per prompt as its n. They are independent of the
/// engine.
class results {
 public:
  explicit results(nvllm_result* native) : native_(native) {}

  std::size_t size() const noexcept { return nvllm_result_count(native_.get()); }
  bool empty() const noexcept { return size() == 0; }
  /// One completion, with all its tokens and text. `index` must be below size().
  output operator[](std::size_t index) const noexcept {
    nvllm_output shown = {};
    shown.struct_size = sizeof shown;
    // It fails only for an index that is out of range; then `shown` stays empty.
    if (nvllm_result_get(native_.get(), index, &shown) != NVLLM_OK) shown = {};
    return output(shown);
  }

  class iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = output;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = output;

    iterator() = default;
    iterator(const results* of, std::size_t index) : of_(of), index_(index) {}
    output operator*() const noexcept { return (*of_)[index_]; }
    iterator& operator++() noexcept {
      ++index_;
      return *this;
    }
    iterator operator++(int) noexcept {
      iterator before = *this;
      ++index_;
      return before;
    }
    friend bool operator==(const iterator& a, const iterator& b) noexcept { return a.index_ == b.index_; }
    friend bool operator!=(const iterator& a, const iterator& b) noexcept { return a.index_ != b.index_; }

   private:
    const results* of_ = nullptr;
    std::size_t index_ = 0;
  };
  iterator begin() const noexcept { return {this, 0}; }
  iterator end() const noexcept { return {this, size()}; }

  /// The handle of the C API, which this object keeps owning.
  nvllm_result* native() const noexcept { return native_.get(); }

 private:
  std::unique_ptr<nvllm_result, detail::result_deleter> native_;
};

}  // namespace NVLLM_CPP_MODE
}  // namespace nvllm

#endif

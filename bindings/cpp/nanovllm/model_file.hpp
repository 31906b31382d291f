// Files of a model that are given: in memory, or as ranges of open files, such as parts of a pack file.
#ifndef NANOVLLM_MODEL_FILE_HPP
#define NANOVLLM_MODEL_FILE_HPP

#include <nanovllm.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace nvllm {

/// A file of a model: engine::open() and the constructor of engine take a vector of them.
///
/// The memory of a file in memory must neither change nor be freed until the engine is destroyed; if load_mode is read or the engine
/// computes on CUDA, until it is open.
class model_file {
 public:
  /// The file is `size` bytes from `data`. `name` is the one that it has in a model folder, or that of a GGUF file.
  static model_file in_memory(std::string name, const void* data, std::size_t size) {
    model_file file(std::move(name));
    file.native_.data = data;
    file.native_.size = size;
    return file;
  }

  /// The file is `size` bytes from byte `offset` of an open file: a descriptor, or a HANDLE of Windows as a number. It can be closed when
  /// the engine is open.
  static model_file in_range(std::string name, int64_t descriptor, uint64_t offset, uint64_t size) {
    model_file file(std::move(name));
    file.native_.kind = NVLLM_FILE_RANGE;
    file.native_.descriptor = descriptor;
    file.native_.offset = offset;
    file.native_.size = size;
    return file;
  }

  const std::string& name() const noexcept { return name_; }

  /// The struct of the C API. It points into this.
  nvllm_model_file native() const noexcept {
    nvllm_model_file file = native_;
    file.name = name_.c_str();
    return file;
  }

 private:
  explicit model_file(std::string name) : name_(std::move(name)) { nvllm_model_file_init(&native_, sizeof native_); }

  std::string name_;
  nvllm_model_file native_;
};

}  // namespace nvllm

#endif

// nanovllm.hpp - libnanovllm for C++17 and later. Header-only; link nanovllm::cpp or nanovllm::nanovllm.
//
//   nvllm::engine engine({"models/demo"});
//   for (const nvllm::output& answer : engine.generate({"list all prime numbers within 100", "introduce yourself"}))
//     std::cout << answer.text() << '\n';
//
// It adds ownership, ranges, and errors by exception to nanovllm.h. [any], [one], the lifetime of outputs and the options
// mean the same as there, and engine::native() returns the C handle.
//
//   Failure      A call that fails throws nvllm::error. With NVLLM_CPP_NO_EXCEPTIONS defined it returns
//                nvllm::result<T> instead, and nothing here needs exceptions. Both kinds may be linked into one program.
//   Callbacks    Any callable. An exception of a callback is stored until the call of the library has returned, and is
//                rethrown then.
//   Coroutines   In C++20 and with exceptions, engine::stream() is a generator of one request's outputs.
#ifndef NANOVLLM_HPP
#define NANOVLLM_HPP

#include "nanovllm/engine.hpp"

#endif

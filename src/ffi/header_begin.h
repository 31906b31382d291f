/* nanovllm.h - the C API of libnanovllm, an embeddable LLM inference engine.
 *
 * Generated from src/ffi by scripts/header.sh: change it there.
 *
 * Overview
 *   An engine is a model, its tokenizer, a paged KV cache, and a scheduler.
 *   Add requests, call nvllm_step() in your loop, and nvllm_poll_output() until it answers NVLLM_NO_OUTPUT;
 *   or hand all prompts to nvllm_generate() at once.
 *
 * Rules that hold for every function
 *   Ownership   Only nvllm_engine and nvllm_result are owned handles; each has one _free, which accepts NULL.
 *               Nothing else is allocated for the caller: the caller supplies buffers. Never free() a pointer
 *               that came from this library.
 *   Inputs      Copied before the call returns, except user_data pointers.
 *   Strings     UTF-8. Inputs with a length need no NUL. Text outputs carry a length and are NUL-terminated too.
 *   Errors      Calls that can fail return nvllm_status: 0 is success, > 0 a condition, < 0 an error. On an error
 *               no out-parameter is written, except `error`, which may be NULL, and `needed` of a buffer.
 *   Structs     Begin with struct_size: use the _init function, or set it to sizeof. Fields are only ever appended:
 *               to an older caller's struct the defaults are added, and a newer caller's is accepted while the
 *               fields that this library does not know are zero.
 *   Threads     [any]  may be called from any thread at any time, also inside callbacks.
 *               [one]  by one thread at a time per engine, whichever it is. A violation answers NVLLM_ERR_BUSY; it
 *                      is never undefined behaviour.
 *               Different engines are independent.
 *   Callbacks   Run only on a thread that is inside a call of this library, never on one that the library created,
 *               never after the call has returned. They must not throw or longjmp, and may call [any] functions.
 *   Process     The library never exits, prints, reads standard input, installs signal handlers, or aborts on bad
 *               input. It is silent unless a log callback is set. A bug caught inside answers NVLLM_ERR_PANIC and
 *               makes that engine unusable, and no other.
 *               In the child of a fork() the parent's engines answer NVLLM_ERR_UNSUPPORTED, and nvllm_engine_free frees
 *               nothing. The child may open engines of its own, and begins without a log callback, whatever the parent's
 *               other threads did at that moment. A child that was forked inside a callback may only exec or exit.
 *               The library stays mapped after dlclose().
 *   Stack       256 KiB are enough for every call on the CPU; at most 64 KiB of them were used where it was measured. A host's
 *               callbacks take theirs from the same stack. On CUDA the driver has needs of its own: 1 MiB is advised.
 *   Versioning  0.x: the number in the soname, NVLLM_ABI_VERSION, changes with any break of the ABI.
 */
#ifndef NANOVLLM_H
#define NANOVLLM_H

#include <stddef.h>
#include <stdint.h>

#define NVLLM_VERSION_MAJOR @MAJOR@
#define NVLLM_VERSION_MINOR @MINOR@
#define NVLLM_VERSION_PATCH @PATCH@

#ifndef NVLLM_API
#  if defined(_WIN32) && defined(NVLLM_SHARED)
#    define NVLLM_API __declspec(dllimport)
#  else
#    define NVLLM_API
#  endif
#endif

#if defined(__GNUC__) || defined(__clang__)
#  define NVLLM_MUST_USE __attribute__((warn_unused_result))
#else
#  define NVLLM_MUST_USE
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* nanovllm.h - the C API of libnanovllm, an embeddable LLM inference engine.
 *
 * Generated from src/capi by scripts/header.sh: change it there.
 *
 * Overview
 *   An engine is a model, its tokenizer, a paged KV cache, and a scheduler.
 *   Add requests, and until nvllm_is_finished() returns 1: call nvllm_step(), leave the loop if it returns an error, and
 *   call nvllm_poll_output() until it returns NVLLM_NO_OUTPUT. Or pass all prompts to nvllm_generate() at once.
 *   nvllm_is_finished() stays 0 while outputs wait to be polled, so a loop that never polls never ends. It returns 1 for an
 *   engine that can no longer be used, so only the status of nvllm_step() tells that the requests were lost.
 *   A loop that serves requests of other threads calls nvllm_wait() before each step, and sleeps while there are none.
 *
 * Rules that hold for every function
 *   Ownership   Only nvllm_engine, nvllm_result and nvllm_answer_parser are owned handles; each has one _free function,
 *               which accepts NULL. Nothing else is allocated for the caller: the caller supplies buffers. Never free() a pointer
 *               that this library returned.
 *   Inputs      Copied before the call returns, except user_data pointers and the data of nvllm_engine_new_from.
 *   Strings     UTF-8. Inputs with a length need no NUL. Text outputs have a length and are NUL-terminated as well.
 *   Errors      Calls that can fail return nvllm_status: 0 is success, > 0 a condition, < 0 an error. On an error
 *               no out-parameter is written, except `error`, which may be NULL, and `needed` of a buffer.
 *   Structs     Begin with struct_size: use the _init function, or set it to sizeof. Fields are only ever appended.
 *               Of a struct that a call fills, nothing but struct_size need be set.
 *               Fields that an older caller's struct does not have take their defaults. A newer caller's struct is
 *               accepted while the fields that this library does not know are zero.
 *   Threads     [any]  may be called from any thread at any time, also inside callbacks.
 *               [one]  may be called by one thread at a time per engine, not always the same one. A violation
 *                      returns NVLLM_ERR_BUSY; it is never undefined behaviour.
 *               Different engines are independent.
 *   Callbacks   Run only on a thread that is inside a call of this library, never on a thread that the library
 *               created, and never after the call has returned. They must not throw or longjmp, and may call [any]
 *               functions.
 *   Process     The library never exits, prints, reads standard input, installs signal handlers, or aborts on bad
 *               input. It is silent unless a log callback is set. A bug that is caught inside the library returns
 *               NVLLM_ERR_PANIC and makes that engine unusable, and no other.
 *               In the child of a fork() the parent's engines return NVLLM_ERR_UNSUPPORTED, and nvllm_engine_free frees
 *               nothing. The child may open engines of its own, and starts without a log callback, whatever other
 *               threads of the parent did at that moment. A child that was forked inside a callback may only exec or exit.
 *               The library stays mapped after dlclose().
 *   Stack       Every call on the CPU needs at most 256 KiB; at most 64 KiB were measured. A host's callbacks use the
 *               same stack. On CUDA the driver has requirements of its own: 1 MiB is recommended.
 *   Versioning  0.x: the number in the soname, NVLLM_ABI_VERSION, changes with every break of the ABI.
 */
#ifndef NANOVLLM_H
#define NANOVLLM_H

#include <stddef.h>
#include <stdint.h>

// First number of the version of this header. nvllm_version() returns that of the library.
#define NVLLM_VERSION_MAJOR @MAJOR@
// Second number of the version of this header.
#define NVLLM_VERSION_MINOR @MINOR@
// Third number of the version of this header.
#define NVLLM_VERSION_PATCH @PATCH@

/* ---- Macros of the declarations -----------------------------------------
 * What stands before each function.
 */

// Imports a function from nanovllm.dll in a program for Windows that defines NVLLM_SHARED. Nothing otherwise; a program may define it.
#ifndef NVLLM_API
#  if defined(_WIN32) && defined(NVLLM_SHARED)
#    define NVLLM_API __declspec(dllimport)
#  else
#    define NVLLM_API
#  endif
#endif

// Lets the compiler warn where a result is not used.
#if defined(__GNUC__) || defined(__clang__)
#  define NVLLM_MUST_USE __attribute__((warn_unused_result))
#else
#  define NVLLM_MUST_USE
#endif

#ifdef __cplusplus
extern "C" {
#endif

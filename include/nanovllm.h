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
#define NVLLM_VERSION_MAJOR 0
// Second number of the version of this header.
#define NVLLM_VERSION_MINOR 1
// Third number of the version of this header.
#define NVLLM_VERSION_PATCH 0

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

/* ---- Status and errors -------------------------------------------------- */

// The values of nvllm_status.
typedef enum nvllm_status_code {
  // Success.
  NVLLM_OK = 0,
  // nvllm_poll_output: no output is waiting.
  NVLLM_NO_OUTPUT = 1,
  // nvllm_step and nvllm_wait of a follower: process 0 has freed its engine. Free this one.
  NVLLM_CLOSED = 2,
  // nvllm_wait: there is nothing to do, and the time is over or nvllm_wake was called.
  NVLLM_TIMEOUT = 3,
  // An argument or an option is invalid. The message names it, its value, and what is accepted.
  NVLLM_ERR_INVALID_ARGUMENT = -1,
  // The buffer is too small. The required size was stored.
  NVLLM_ERR_BUFFER_TOO_SMALL = -2,
  // A [one] function was called while another one ran on the same engine.
  NVLLM_ERR_BUSY = -3,
  // A bug in the library. Only nvllm_engine_free may still be called on this engine.
  NVLLM_ERR_PANIC = -4,
  // No live request, pin or cached prefix matches the arguments.
  NVLLM_ERR_NOT_FOUND = -5,
  // Not enough memory of the host or of the device, not enough KV cache, or no thread could be created.
  NVLLM_ERR_OUT_OF_MEMORY = -6,
  // A file could not be read. native_code is errno, or the value of GetLastError() on Windows.
  NVLLM_ERR_IO = -7,
  // The model files are corrupt or of a kind that is not supported.
  NVLLM_ERR_MODEL = -8,
  // A device call failed, or there was no memory for a forward pass. native_code is the device's error code, or 0. Only
  // nvllm_engine_free may still be called on this engine.
  NVLLM_ERR_DEVICE = -9,
  // A progress callback cancelled the call, or another thread freed the engine of nvllm_generate or nvllm_wait.
  NVLLM_ERR_CANCELLED = -10,
  // Not supported by this build, or not for this model.
  NVLLM_ERR_UNSUPPORTED = -11,
  // The queue is full, by max_queue or NVLLM_MAX_QUEUED_COMPLETIONS. Step, then try again.
  NVLLM_ERR_QUEUE_FULL = -12,
  // The prompt leaves no room for a completion within max_model_len.
  NVLLM_ERR_CONTEXT_LENGTH = -13,
  // Another process of the engine is gone, was silent for peer_timeout_ms, or was opened with another model or other options; the
  // message says which. Only nvllm_engine_free may still be called on this engine.
  NVLLM_ERR_PEER = -14,
} nvllm_status_code;

// The result of a call: 0 is success, a positive value is a condition, a negative value is an error. The values are those
// of nvllm_status_code; a later version may add values.
typedef int32_t nvllm_status;

// Why a call failed. Owned by the caller; its size is fixed at 512 bytes. It needs no initialization: every call that takes
// one writes it, with status NVLLM_OK and an empty message on success.
typedef struct nvllm_error {
  // The status that the call returned.
  nvllm_status status;
  // errno or the device's error code if there is one, else 0.
  int32_t native_code;
  // UTF-8, NUL-terminated: what was wanted, what was found, and the option that changes it.
  char message[504];
} nvllm_error;

// [any] Returns the name of a status, such as "NVLLM_ERR_BUSY", or "unknown status" for any other number. The string is
// static.
NVLLM_API
const char *nvllm_status_name(nvllm_status status);

/* ---- Version ------------------------------------------------------------ */

// The number in the library's soname. While the version is 0.x, it changes with every break of the ABI.
#define NVLLM_ABI_VERSION 0

// [any] Returns the version of the loaded library, such as "0.1.0". The string is static.
NVLLM_API const char *nvllm_version(void);

// [any] Returns the NVLLM_ABI_VERSION of the loaded library.
NVLLM_API uint32_t nvllm_abi_version(void);

// [any] Returns a JSON object that describes the build and the machine: "version", "abi_version", "backends", "features"
// (of the build), "instruction_sets" (those that this processor has and the kernels use, the best one last), "git" (null
// when unknown), "rustc", "target". The string is static.
NVLLM_API
const char *nvllm_build_info(void);

/* ---- Limits -------------------------------------------------------------
 * What one request may ask for, whatever the engine's options say. A call that exceeds a limit returns
 * NVLLM_ERR_INVALID_ARGUMENT with a message that names the limit. docs/security.md gives the reason for each.
 */

// Completions per request.
#define NVLLM_MAX_COMPLETIONS 1024

// Completions of all requests of an engine that have not ended, and of all prompts of one nvllm_generate call. max_queue
// lowers it.
#define NVLLM_MAX_QUEUED_COMPLETIONS 1048576

// Stop strings per request.
#define NVLLM_MAX_STOP_STRINGS 128

// Bytes per stop string.
#define NVLLM_MAX_STOP_STRING_BYTES 4096

// Stop tokens per request.
#define NVLLM_MAX_STOP_TOKENS 1024

// Logit biases per request.
#define NVLLM_MAX_BIASES 16384

// Tokens per request whose probabilities are its scores.
#define NVLLM_MAX_SCORE_TOKENS 64

// Sequence breakers of the DRY penalty per request.
#define NVLLM_MAX_DRY_BREAKERS 64

// Bytes per sequence breaker.
#define NVLLM_MAX_DRY_BREAKER_BYTES 128

// Bytes per text: a prompt, or a text to tokenize.
#define NVLLM_MAX_TEXT_BYTES 16777216

// Bytes of a JSON schema, a regular expression or a Lark grammar.
#define NVLLM_MAX_STRUCTURE_BYTES 262144

// Milliseconds that adding a request waits for its structure to be compiled. After that the request is refused.
#define NVLLM_STRUCTURE_COMPILE_MS 2000

// Messages of one conversation that is given as an array.
#define NVLLM_MAX_MESSAGES 32768

// Bytes of the JSON of one conversation, and of its options with the tools.
#define NVLLM_MAX_MESSAGES_BYTES 16777216

/* ---- Logging: one callback for the whole process ------------------------ */

// Severity of a message.
typedef enum nvllm_log_level {
  // Nothing is logged.
  NVLLM_LOG_OFF = 0,
  // Something failed.
  NVLLM_LOG_ERROR = 1,
  // Something is unexpected, but work continues.
  NVLLM_LOG_WARN = 2,
  // A milestone, such as a loaded model.
  NVLLM_LOG_INFO = 3,
  // Detail for debugging the library.
  NVLLM_LOG_DEBUG = 4,
} nvllm_log_level;

// Receives one message: message_len bytes of UTF-8, and a NUL. The message is valid during the call only.
typedef void (*nvllm_log_fn)(int32_t level, const char *message, size_t message_len, void *user_data);

// [any] Sends messages with a level of at most max_level (NVLLM_LOG_*) to a callback. NULL, the default, disables logging.
//
// The library queues at most 256 messages. A call that is about to return hands them to the callback, one at a time, on the
// thread that made the call. When this function returns, the previous callback is not running on any other thread and will
// not be called again. The child of a fork() starts without a callback.
NVLLM_API
void nvllm_set_log_callback(nvllm_log_fn callback,
                            void *user_data,
                            int32_t max_level);

/* ---- The engine: a model, its tokenizer, its KV cache, and a scheduler -- */

// Where an engine computes.
typedef enum nvllm_device {
  // An NVIDIA GPU if the library has kernels for it and for the model and finds a driver, else the CPU.
  NVLLM_DEVICE_AUTO = 0,
  // Threads of this process.
  NVLLM_DEVICE_CPU = 1,
  // An NVIDIA GPU.
  NVLLM_DEVICE_CUDA = 2,
} nvllm_device;

// Data types of weights and KV cache.
typedef enum nvllm_dtype {
  // The data type of the model's files.
  NVLLM_DTYPE_AUTO = 0,
  // IEEE 754, 32 bits.
  NVLLM_DTYPE_F32 = 1,
  // IEEE 754, 16 bits.
  NVLLM_DTYPE_F16 = 2,
  // bfloat16: the upper 16 bits of an F32.
  NVLLM_DTYPE_BF16 = 3,
} nvllm_dtype;

// How keys and values are stored in the KV cache.
typedef enum nvllm_kv_cache_dtype {
  // In the data type of the weights.
  NVLLM_KV_CACHE_AUTO = 0,
  // As 8-bit integers, with a 16-bit scale per token, layer and KV head for the key, and one for the value. A head of 128 numbers
  // takes 130 bytes instead of 256. Each number is off by at most 0.4 % of the greatest one that shares its scale.
  NVLLM_KV_CACHE_INT8 = 1,
} nvllm_kv_cache_dtype;

// How the weights of a model are loaded into memory.
typedef enum nvllm_load_mode {
  // The files are mapped, so that engines and processes share their pages. On the CPU the mapping is used until the
  // engine is freed, unless dtype asks for a conversion; on CUDA until nvllm_engine_new returns. If another program
  // writes into a file, the weights change. If a file is truncated, reading a weight beyond its end raises SIGBUS, which
  // ends the process: replace the files of a model by renaming new ones over them, or choose NVLLM_LOAD_READ.
  // Windows refuses to write, truncate, replace or delete a file while it is mapped.
  NVLLM_LOAD_MAP = 0,
  // The files are copied into memory of the library, so that later changes to them have no effect. The copy is not shared
  // between processes, and the system cannot evict it. NVLLM_ERR_OUT_OF_MEMORY if the weights do not fit into free
  // memory, NVLLM_ERR_IO if a file is truncated during the copy.
  NVLLM_LOAD_READ = 1,
} nvllm_load_mode;

// How weights that are not quantized yet are quantized while an engine opens.
typedef enum nvllm_quantization {
  // Not at all: weights keep the form of their files.
  NVLLM_QUANTIZATION_NONE = 0,
  // To 8 bits, with a scale for each group of 128, 64 or 32 weights: the largest that divides the width of a matrix. About half
  // the bytes of 16-bit weights; completions rarely differ.
  NVLLM_QUANTIZATION_INT8 = 1,
  // To 4 bits, with a scale for each group of 32 weights. About 0.28 of the bytes of 16-bit weights. Weights are rounded to the
  // nearest code, so that a file that was quantized with calibration data answers better at the same size.
  NVLLM_QUANTIZATION_INT4 = 2,
} nvllm_quantization;

// How the weights of a part of a model are held.
typedef enum nvllm_coding {
  // The model has no such part.
  NVLLM_CODING_NONE = 0,
  // IEEE 754, 32 bits.
  NVLLM_CODING_F32 = 1,
  // IEEE 754, 16 bits.
  NVLLM_CODING_F16 = 2,
  // bfloat16.
  NVLLM_CODING_BF16 = 3,
  // Integers of 8 bits with scales.
  NVLLM_CODING_INT8 = 4,
  // Integers of 4 bits with scales.
  NVLLM_CODING_INT4 = 5,
  // E4M3 floating point of 8 bits with scales.
  NVLLM_CODING_FP8 = 6,
  // E2M1 floating point of 4 bits with scales.
  NVLLM_CODING_FP4 = 7,
  // A block type of GGUF.
  NVLLM_CODING_Q8_0 = 8,
  // A block type of GGUF.
  NVLLM_CODING_Q4_0 = 9,
  // A block type of GGUF.
  NVLLM_CODING_Q4_1 = 10,
  // A block type of GGUF.
  NVLLM_CODING_Q5_0 = 11,
  // A block type of GGUF.
  NVLLM_CODING_Q5_1 = 12,
  // A block type of GGUF.
  NVLLM_CODING_Q4_K = 13,
  // A block type of GGUF.
  NVLLM_CODING_Q5_K = 14,
  // A block type of GGUF.
  NVLLM_CODING_Q6_K = 15,
  // A block type of GGUF.
  NVLLM_CODING_IQ4_NL = 16,
  // A block type of GGUF.
  NVLLM_CODING_IQ4_XS = 17,
  // A block type of GGUF.
  NVLLM_CODING_Q2_K = 18,
  // A block type of GGUF.
  NVLLM_CODING_Q3_K = 19,
  // A block type of GGUF.
  NVLLM_CODING_MXFP4 = 20,
  // A block type of GGUF.
  NVLLM_CODING_IQ2_XXS = 21,
  // A block type of GGUF.
  NVLLM_CODING_IQ2_XS = 22,
  // A block type of GGUF.
  NVLLM_CODING_IQ2_S = 23,
  // A block type of GGUF.
  NVLLM_CODING_IQ3_XXS = 24,
  // A block type of GGUF.
  NVLLM_CODING_IQ3_S = 25,
  // A block type of GGUF.
  NVLLM_CODING_IQ1_S = 26,
  // A block type of GGUF.
  NVLLM_CODING_IQ1_M = 27,
  // A block type of GGUF.
  NVLLM_CODING_TQ1_0 = 28,
  // A block type of GGUF.
  NVLLM_CODING_TQ2_0 = 29,
} nvllm_coding;

// An engine. Created by nvllm_engine_new, destroyed by nvllm_engine_free.
typedef struct nvllm_engine nvllm_engine;

// Receives the fraction of the model that is loaded, from 0 to 1. Any return value other than 0 cancels loading.
typedef int32_t (*nvllm_progress_fn)(float fraction, void *user_data);

// Options of an engine. nvllm_engine_config_init sets the defaults; only model_path has none.
//
// The files of the model are untrusted data: they are checked and bounded when the engine opens, and only regular
// files are opened. By default the weights are mapped; load_mode describes the consequences.
typedef struct nvllm_engine_config {
  // sizeof(nvllm_engine_config), set by nvllm_engine_config_init.
  size_t struct_size;
  // Path of the model: a folder in the layout of Hugging Face, or a GGUF file, of which the first part is given if it is split.
  // NUL-terminated UTF-8. Required, except by nvllm_engine_new_from, which reads it as a name among its files.
  //
  // Of a GGUF file, a tokenizer.json, tokenizer_config.json, chat_template.jinja or generation_config.json in the same folder is read
  // instead of what the file says about the same.
  const char *model_path;
  // NVLLM_DEVICE_*: where the engine computes. Default NVLLM_DEVICE_AUTO.
  int32_t device;
  // Index of the GPU among those that the driver reports. 0 on the CPU. Default 0.
  int32_t device_index;
  // NVLLM_DTYPE_*: data type of the weights, and of the KV cache unless kv_cache_dtype says otherwise. Default NVLLM_DTYPE_AUTO. Quantized weights stay
  // quantized. On a CPU, NVLLM_DTYPE_F32 computes with their exact values and activations in f32; with any other type, activations are
  // rounded where the processor multiplies integers or bf16 faster: see docs/performance.md.
  int32_t dtype;
  // Number of CPU threads that compute, the calling thread included. Default 0: one per core.
  uint32_t num_threads;
  // Maximum length of a sequence in tokens, prompt and completion together. Default 0: the model's maximum, but at most
  // 1048576.
  uint32_t max_model_len;
  // Maximum number of sequences that run at once; others wait. Default 0: by device.
  uint32_t max_num_seqs;
  // Maximum number of new tokens per forward pass. Default 0: by device.
  uint32_t max_batched_tokens;
  // Maximum number of waiting requests, where each of their completions counts. A request whose n is greater can never be
  // queued, and is refused. Default 0: NVLLM_MAX_QUEUED_COMPLETIONS.
  uint32_t max_queue;
  // Tokens per KV block: a power of two, at most 1024. Default 0: by device.
  uint32_t kv_block_size;
  // 0 or 1: whether prompts share the KV blocks of common prefixes. Default 1.
  uint32_t enable_prefix_cache;
  // Size of the KV cache in bytes, that of all ranks together. Default 0: determined by memory_utilization.
  uint64_t kv_cache_bytes;
  // Fraction of the device's memory (on the CPU: of the free memory) that this engine may use, above 0 and at most 1.
  // Default 0: by device (CPU: 0.5, CUDA: 0.9).
  float memory_utilization;
  // Number of ranks that compute the model together: GPUs, or on the CPU groups of threads, each bound to one NUMA node where
  // there are several. At most the number of query heads of the model. Default 1.
  //
  // On the CPU, every number of ranks gives the same bits; on CUDA if batch_invariant is 1.
  uint32_t tensor_parallel_size;
  // 0 or 1: whether CUDA graphs are disabled. No effect on the CPU. Default 0.
  //
  // Where the engine finds no CUDA context of its GPU in the process, graphs of more than 8 sequences may be recorded in a later step, when a batch of their
  // size first comes. While a graph is recorded, CUDA refuses other threads to wait for the whole device (cudaDeviceSynchronize). A program
  // that uses CUDA itself should begin to before it opens an engine, which then records all graphs while it opens.
  uint32_t enforce_eager;
  // 0 or 1: whether the logits of a request are the same bit for bit whatever else is in the batch, and on however many
  // GPUs of one kind. On the CPU they always are; on CUDA it selects slower kernels. Default 0.
  uint32_t batch_invariant;
  // Seed of the requests that have none. Default 0: drawn from the system.
  uint64_t seed;
  // Called only inside nvllm_engine_new. May be NULL.
  nvllm_progress_fn progress;
  // Passed to progress.
  void *progress_user_data;
  // NVLLM_LOAD_*: how the weights are loaded into memory. Default NVLLM_LOAD_MAP.
  int32_t load_mode;
  // The GPU of each rank of this process, as device_index counts them, each at most once. NULL takes device_index and those after
  // it. Default NULL.
  const int32_t *device_indices;
  // Number of entries in device_indices: that of the ranks of this process, or 0 with NULL. Default 0.
  uint32_t num_device_indices;
  // Number of processes that compute the model together, each opened with the same options except process_index and those of
  // its devices and threads. tensor_parallel_size counts the ranks of all of them, and is a multiple. GPUs of several processes
  // exchange through NCCL 2.18 or later, which must be installed: NVLLM_ERR_UNSUPPORTED without it. Default 0: this one alone.
  uint32_t num_processes;
  // Which of them this is, from 0. Process 0 leads: requests go to it alone. The others are stepped to compute what process 0
  // schedules, and their functions about requests, completions and cached prefixes return NVLLM_ERR_UNSUPPORTED. Default 0.
  uint32_t process_index;
  // Time in milliseconds that another rank or process may be silent, or that data which it has sent may be missing, before the
  // engine ends with an error. At least 100 milliseconds with several processes. Default 0: 10000.
  uint32_t peer_timeout_ms;
  // Where process 0 listens and the others find it: "host:port", or "unix:" and an absolute path, which Windows refuses. The
  // connections are neither encrypted nor authenticated: use a private network. Required with several processes. Default NULL.
  const char *rendezvous;
  // NVLLM_KV_CACHE_*: how keys and values are stored in the KV cache. A prefix can be restored only by an engine with the value of
  // the one that saved it. Default NVLLM_KV_CACHE_AUTO.
  int32_t kv_cache_dtype;
  // NVLLM_QUANTIZATION_*: how weights that are not quantized yet are quantized while the engine opens, embedding table and head
  // included. Matrices whose width is no multiple of 32 stay as they are, with a warning in the log. Default
  // NVLLM_QUANTIZATION_NONE.
  int32_t quantization;
  // Maximum number of bytes that this engine takes on each of its GPUs: weights, KV cache, graphs, buffers, and the CUDA context if the
  // process has none there yet. The KV cache gets what the rest leaves; memory_utilization remains a limit too. What the engine takes
  // is measured with NVIDIA's management library, so that other programs should not allocate on the GPU while it opens; without that
  // library the context is assumed to take 640 MiB. NVLLM_ERR_OUT_OF_MEMORY if the budget does not hold the weights and one KV
  // block, or not kv_cache_bytes. No effect on the CPU. Default 0: no such limit.
  uint64_t gpu_memory_bytes;
  // For models with recurrent layers: the recurrent state is kept in the prefix cache after each multiple of this number of tokens, and at the end of each
  // prompt. Later requests with the same beginning continue from there. Rounded up to whole KV blocks. Fewer tokens are
  // computed again with a smaller number, and more states are made. Default 0: 1024.
  uint64_t state_checkpoint_interval;
  // For models with experts on a GPU: number of layers whose experts stay in host memory, the last ones that have any. The CPU computes them with
  // num_threads threads, by default one less than there are cores. A number for which the GPU has too little memory is refused with
  // NVLLM_ERR_OUT_OF_MEMORY, and the message says which one is sufficient. Not with several ranks. Default 0: as many as the GPU has no memory
  // for. -1: none.
  int32_t host_expert_layers;
  // 0 or 1: whether nvllm_expert_tokens counts how many tokens each expert of a model with experts is chosen for. Default 0, because counting is one
  // more kernel per layer on a GPU.
  uint32_t expert_statistics;
  // 0 or 1: with several ranks, whether each rank holds some experts of every layer whole. With 0, each rank holds a share of the width of every expert.
  // With 1, a rank computes the tokens of its own experts, and there must be at least as many experts as ranks. Refused for a model without experts.
  // The results are those of 0, bit for bit, on the CPU and with batch_invariant. No effect with one rank. Default 0.
  uint32_t expert_parallel;
} nvllm_engine_config;

// Properties of a loaded model and of the engine that runs it.
typedef struct nvllm_model_info {
  // sizeof(nvllm_model_info), set by the caller or by nvllm_model_info_init.
  size_t struct_size;
  // Rows of the embedding table.
  uint32_t vocab_size;
  // Maximum length of a sequence in tokens, prompt and completion together.
  uint32_t max_model_len;
  // Number of decoder layers.
  uint32_t num_layers;
  // Width of the residual stream.
  uint32_t hidden_size;
  // The token that begins a text; UINT32_MAX if there is none.
  uint32_t bos_token;
  // The first of the tokens that end a completion; UINT32_MAX if there is none.
  uint32_t eos_token;
  // Number of weights. Shared ones count once.
  uint64_t num_parameters;
  // Size of the weights in bytes.
  uint64_t weight_bytes;
  // Size of the KV cache in bytes.
  uint64_t kv_cache_bytes;
  // Number of blocks of the KV cache.
  uint32_t num_kv_blocks;
  // Tokens per KV block.
  uint32_t kv_block_size;
  // NVLLM_DEVICE_CPU or NVLLM_DEVICE_CUDA, also where NVLLM_DEVICE_AUTO was asked for.
  int32_t device;
  // Index of the GPU; 0 on the CPU.
  int32_t device_index;
  // Maximum number of sequences that run at once.
  uint32_t max_num_seqs;
  // Maximum number of new tokens per forward pass.
  uint32_t max_batched_tokens;
  // Number of ranks that compute the model together, in all processes.
  uint32_t tensor_parallel_size;
  // Which of the processes this is, from 0.
  uint32_t process_index;
  // NVLLM_KV_CACHE_*: how keys and values are stored in the KV cache.
  int32_t kv_cache_dtype;
  // Size of the KV cache per token in bytes: keys and values of all layers and KV heads, scales included.
  uint32_t kv_token_bytes;
  // NVLLM_CODING_*: how most bytes of the embedding table are held.
  int32_t embedding_coding;
  // NVLLM_CODING_*: how most bytes of the projections of attention are held.
  int32_t attention_coding;
  // NVLLM_CODING_*: how most bytes of the projections of the feed-forward parts are held.
  int32_t feed_forward_coding;
  // NVLLM_CODING_*: how most bytes of the output head are held. NVLLM_CODING_NONE if the embedding table serves as the head.
  int32_t head_coding;
  // Size of the embedding table in bytes, that of all ranks together, like the next three.
  uint64_t embedding_bytes;
  // Size of the projections of attention in bytes.
  uint64_t attention_bytes;
  // Size of the projections of the feed-forward parts in bytes.
  uint64_t feed_forward_bytes;
  // Size of the output head in bytes; 0 if the embedding table serves as the head.
  uint64_t head_bytes;
  // Numbers of an embedding with NVLLM_POOLING_AUTO: hidden_size, or what the model's folder makes of it. 0 for a classifier.
  uint32_t embedding_size;
  // Labels of a classifier: see nvllm_label. 0 for other models.
  uint32_t num_labels;
  // Size in bytes of the experts that stay in host memory beside a GPU; 0 if there are none.
  uint64_t host_expert_bytes;
  // Number of layers whose experts stay in host memory beside a GPU: see host_expert_layers of nvllm_engine_config. 0 on the CPU.
  uint32_t host_expert_layers;
  // 0 or 1: whether a classifier scores each token of a text, so that scores of nvllm_output has num_labels numbers per prompt token.
  uint32_t scores_tokens;
} nvllm_model_info;

// [any] Sets the defaults: nvllm_engine_config_init(&config, sizeof config). Writes at most struct_size bytes.
NVLLM_API
void nvllm_engine_config_init(struct nvllm_engine_config *config,
                              size_t struct_size);

// [any] Opens an engine on a model folder, and stores it in *engine. Most of the time is spent reading the files.
//
// With several processes it returns when all have opened theirs: process 0 waits for the others, and they for it, for at most ten
// minutes. progress is called about ten times per second meanwhile. NVLLM_ERR_PEER if a process does not come, fails, or was opened
// with another model or other options.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_engine_new(const nvllm_engine_config *config,
                              nvllm_engine **engine,
                              nvllm_error *error);

// Destroys an engine with all its requests, and joins its threads. NULL is allowed.
//
// Inside a callback of the same engine, or while another thread is inside a call, the engine is destroyed when that call
// returns, and none of its callbacks is called again. In the child of a fork() nothing is freed.
NVLLM_API
void nvllm_engine_free(struct nvllm_engine *engine);

// [any] Sets struct_size, and all else to 0: nvllm_model_info_init(&info, sizeof info). Writes at most struct_size bytes. Setting
// struct_size alone is sufficient, because the call that takes the struct writes all other fields.
NVLLM_API
void nvllm_model_info_init(struct nvllm_model_info *info,
                           size_t struct_size);

// [any] Reads the properties of the model.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_engine_model_info(const nvllm_engine *engine,
                                     nvllm_model_info *info,
                                     nvllm_error *error);

/* ---- Models in memory and in parts of files -----------------------------
 * The files of a model need no paths: an engine also opens on named ranges of memory and of open files, such as parts of a pack file.
 */

// Where the bytes of a file are.
typedef enum nvllm_file_kind {
  // In memory: size bytes from data.
  NVLLM_FILE_MEMORY = 0,
  // In an open file: size bytes from byte offset of the file of descriptor.
  NVLLM_FILE_RANGE = 1,
} nvllm_file_kind;

// A file of a model. nvllm_model_file_init sets the defaults.
typedef struct nvllm_model_file {
  // sizeof(nvllm_model_file), set by nvllm_model_file_init.
  size_t struct_size;
  // The name that the file has in a model folder, such as "config.json" or "additional_chat_templates/tool_use.jinja", or any name that
  // ends in ".gguf". '/' separates folders. NUL-terminated UTF-8. Required.
  const char *name;
  // NVLLM_FILE_*: where the bytes are. Default NVLLM_FILE_MEMORY.
  int32_t kind;
  // Must be 0.
  uint32_t reserved;
  // The bytes of a file in memory, of any alignment. NULL in a range of an open file. Default NULL.
  const void *data;
  // An open file, by its descriptor; on Windows by its HANDLE. It must be a regular file that is open for reading. -1 for a file in
  // memory. Default -1.
  int64_t descriptor;
  // Where the range begins in the open file, in bytes, of any alignment. 0 for a file in memory. Default 0.
  uint64_t offset;
  // Size of the file of the model in bytes. Default 0.
  uint64_t size;
} nvllm_model_file;

// [any] Sets the defaults: nvllm_model_file_init(&file, sizeof file). Writes at most struct_size bytes.
NVLLM_API void nvllm_model_file_init(nvllm_model_file *file, size_t struct_size);

// [any] Opens an engine on a model whose files are given, and stores it in *engine. Otherwise as nvllm_engine_new.
//
// files is an array of num_files structs with one struct_size: the files of a model folder, or a GGUF file with all
// of its parts, and the files of text that may be in its folder. model_path of config is the name of a GGUF file or of a folder among
// them, or NULL for the folder that all of them are in. No other file is read. Messages name a file as "<files>/" and its name.
//
// Weights are used where they are, whatever their alignment, as the files of a folder are. With NVLLM_LOAD_MAP and files in memory, that
// memory must neither change nor be freed until nvllm_engine_free has destroyed the engine; on CUDA, until this function returns. It is
// not read ahead: if it is a mapping of the caller whose pages are not in memory yet, the first passes wait for them. With
// NVLLM_LOAD_READ the weights are copied, and the memory can be freed when this function returns. Everything else is copied: descriptors
// can always be closed when this function returns, whose positions are neither used nor moved. Of a mapped range the same is true as of
// a mapped file: see NVLLM_LOAD_MAP.
//
// NVLLM_ERR_INVALID_ARGUMENT for a name that appears twice, is that of a file and of a folder too, or leads out of its folder;
// NVLLM_ERR_IO for a descriptor that is not open or whose file cannot be mapped; NVLLM_ERR_MODEL for one that is not a regular file, not
// open for reading, or open with O_PATH or O_DIRECT, and for a range that reaches beyond the end of its file.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_engine_new_from(const nvllm_engine_config *config,
                                   const nvllm_model_file *files,
                                   size_t num_files,
                                   nvllm_engine **engine,
                                   nvllm_error *error);

/* ---- Quantizing model folders -------------------------------------------
 * A folder is quantized once, and opens as quickly as any other afterwards.
 */

// [any] Quantizes the model folder model_path, and writes it as the folder to, which must not exist or be empty. quantization is
// NVLLM_QUANTIZATION_INT8 or NVLLM_QUANTIZATION_INT4.
//
// The matrices of the layers get the numbers that an engine gives them with the same quantization, in the format pack-quantized of
// compressed-tensors; the embedding table and the head stay as they are, and can be quantized when the new folder is opened. Other files
// of the folder, such as the tokenizer, are copied, those of additional_chat_templates among them. progress may be NULL; a value other
// than 0 cancels, and leaves what was written.
//
// Nothing outside of the folder is read: NVLLM_ERR_MODEL for a link that leads out of it. Exception: the folder is a snapshot of
// a download cache and the link leads into blobs/ beside snapshots/. NVLLM_ERR_MODEL as well for devices, sockets and FIFOs, for
// names that are not UTF-8, and if the new folder lies in model_path.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_quantize_folder(const char *model_path,
                                   const char *to,
                                   int32_t quantization,
                                   nvllm_progress_fn progress,
                                   void *progress_user_data,
                                   nvllm_error *error);

/* ---- Explaining which kernels compute a model --------------------------- */

// What nvllm_explain describes: the forward pass of some sequences, and where it is computed.
typedef struct nvllm_explain_options {
  // sizeof(nvllm_explain_options), set by the caller or by nvllm_explain_options_init.
  size_t struct_size;
  // "h100", "h200", "a100" or "rtx4090", which need not be in this machine. Default NULL: the processor of this machine.
  const char *gpu;
  // Sequences of the pass, from 1 to 65536. Default 1.
  uint32_t rows;
  // New tokens of each sequence: 1 when it generates, more for a prompt. At most 1048576 in all rows. Default 1.
  uint32_t tokens;
  // Tokens that each sequence has after the pass. Default 0: as many as it brings, but at least 1024 where the model has as many.
  uint32_t context_len;
  // The layer, from 0. Default 0.
  uint32_t layer;
} nvllm_explain_options;

// [any] Sets the defaults: nvllm_explain_options_init(&options, sizeof options). Writes at most struct_size bytes.
NVLLM_API
void nvllm_explain_options_init(struct nvllm_explain_options *options,
                                size_t struct_size);

// [any] Describes as text how an engine with this config would compute one layer and the head of the model. Each product and attention
// have their kernel, thread blocks and bytes and, on a GPU, the least time that memory or arithmetic needs. No engine is opened, and no
// GPU is needed. options may be NULL.
//
// Of config, model_path, dtype, quantization, kv_cache_dtype, batch_invariant and max_model_len count: the pass is that of one rank.
// Kernels of a GPU are those of a machine that has cuBLASLt. The text is for people, and its form may change. The buffer is used as by nvllm_tokenize, with a NUL.
//
// NVLLM_ERR_INVALID_ARGUMENT for a GPU, rows, tokens, a context or a layer that there are not, NVLLM_ERR_UNSUPPORTED for a GPU in a build
// without CUDA.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_explain(const nvllm_engine_config *config,
                           const nvllm_explain_options *options,
                           char *text,
                           size_t capacity,
                           size_t *needed,
                           nvllm_error *error);

/* ---- Requests: prompts in -----------------------------------------------
 * Scheduling: higher priority first, then first come, first served. No request overtakes an older one of the same priority,
 * even if it would fit where the older one does not. Each running sequence contributes one token per pass; the rest of
 * max_batched_tokens goes to prompts, which are split where necessary, so that a long prompt delays no other request. When
 * the KV cache is full, the youngest sequence of the lowest priority is preempted: it gives up its blocks and returns to
 * its place in the queue. Its completion stays the same. The oldest request of the highest priority is never preempted, so
 * every request completes in its turn. A lower priority may wait for as long as requests of a higher one arrive:
 * max_wait_us and max_queue bound that.
 */

// How the final hidden states of a prompt, after the model's last norm, become an embedding. A classifier takes NVLLM_POOLING_AUTO alone.
typedef enum nvllm_pooling {
  // No embedding: the request generates.
  NVLLM_POOLING_NONE = 0,
  // The hidden state of the last token.
  NVLLM_POOLING_LAST = 1,
  // The mean of the hidden states of all tokens. Such a request does not use the prefix cache, which holds no hidden
  // states.
  NVLLM_POOLING_MEAN = 2,
  // The hidden state of the first token. Only for encoders.
  NVLLM_POOLING_CLS = 3,
  // As the model's folder says, for sentence-transformers or in the config of a classifier: one of those above, then the layers and the normalization that
  // the folder names. A classifier gives scores instead of an embedding. Refused where the folder says nothing.
  NVLLM_POOLING_AUTO = 4,
} nvllm_pooling;

// When a beam search ends once it has as many results as beams.
typedef enum nvllm_early_stopping {
  // When the best beam, at its current length, cannot rank above the worst result. As in transformers with False.
  NVLLM_EARLY_STOPPING_HEURISTIC = 0,
  // Immediately. As in transformers with True.
  NVLLM_EARLY_STOPPING_AT_ONCE = 1,
  // When no beam can rank above the worst result at any length. As in transformers with "never".
  NVLLM_EARLY_STOPPING_NEVER = 2,
} nvllm_early_stopping;

// Kinds of structured output.
typedef enum nvllm_structure {
  // None: the completion is unconstrained.
  NVLLM_STRUCTURE_NONE = 0,
  // A JSON schema, which the completion satisfies. {} accepts any JSON.
  NVLLM_STRUCTURE_JSON_SCHEMA = 1,
  // A regular expression in the syntax of Rust, which matches the whole completion.
  NVLLM_STRUCTURE_REGEX = 2,
  // A context-free grammar in llguidance's dialect of Lark. Its first rule is named start.
  NVLLM_STRUCTURE_LARK = 3,
} nvllm_structure;

// Which tools a completion calls.
typedef enum nvllm_tool_choice {
  // The model decides.
  NVLLM_TOOL_CHOICE_AUTO = 0,
  // None. The chat template gets no tools.
  NVLLM_TOOL_CHOICE_NONE = 1,
  // At least one.
  NVLLM_TOOL_CHOICE_REQUIRED = 2,
  // The one that tool_name names.
  NVLLM_TOOL_CHOICE_NAMED = 3,
} nvllm_tool_choice;

// Options of a request. nvllm_request_options_init sets greedy decoding without limits; nvllm_default_options sets what the model
// recommends.
//
// Where a function takes options, NULL means what nvllm_default_options fills in. To change one field of that, call
// nvllm_default_options first: with nvllm_request_options_init, the change would come with greedy decoding.
typedef struct nvllm_request_options {
  // sizeof(nvllm_request_options), set by nvllm_request_options_init.
  size_t struct_size;
  // Returned in every output: an index, a pointer, a handle. Default 0.
  uint64_t tag;
  // Maximum number of tokens to generate, at least 1. Default UINT32_MAX: limited by max_model_len and the KV cache only.
  uint32_t max_tokens;
  // Number of tokens before which no EOS token, stop token or end of a stop string may occur. Default 0.
  uint32_t min_tokens;
  // Sampling temperature. Default 0: always the most likely token. Greater values increase randomness.
  float temperature;
  // Nucleus sampling: sample from the most likely tokens whose probabilities sum to this value, above 0 and at most 1.
  // Default 1: all tokens.
  float top_p;
  // Drop tokens whose probability is below this fraction of that of the most likely one, from 0 to 1. Default 0: drop
  // none.
  float min_p;
  // Sample from this many of the most likely tokens. Default 0: all tokens.
  uint32_t top_k;
  // Divides the positive logits, and multiplies the negative logits, of tokens that occur in the prompt or the
  // completion. A finite number above 0, where more than 1 discourages repetition. Default 1: off. As in transformers.
  float repetition_penalty;
  // Subtracted from the logit of each token that occurs in the completion. Any finite number. Default 0. As in the OpenAI
  // API.
  float presence_penalty;
  // Subtracted from the logit of a token once per occurrence in the completion. Any finite number. Default 0. As in the
  // OpenAI API.
  float frequency_penalty;
  // Seed of the request's own random stream: the same seed, prompt and options give the same completion. Default 0:
  // derived from the engine's seed and the request's id.
  uint64_t seed;
  // 0 or 1: whether EOS tokens are treated as ordinary tokens. Default 0.
  uint32_t ignore_eos;
  // Requests with a higher priority run first. Default 0.
  int32_t priority;
  // Stop strings, NUL-terminated UTF-8. The completion ends when its text contains one; the text ends before the first
  // one to be complete, even if that is inside a token. The tokens that spell the string stay in the output. Needs a
  // tokenizer.
  const char *const *stop;
  // Length of `stop`, at most NVLLM_MAX_STOP_STRINGS. Default 0. Each string has at most NVLLM_MAX_STOP_STRING_BYTES.
  size_t num_stop;
  // Tokens that end the completion, in addition to EOS.
  const uint32_t *stop_tokens;
  // Length of `stop_tokens`, at most NVLLM_MAX_STOP_TOKENS. Default 0.
  size_t num_stop_tokens;
  // Logit bias: bias_values[i] is added to the logit of bias_tokens[i], after the penalties. Each token occurs once.
  const uint32_t *bias_tokens;
  // As many values as bias_tokens: finite, or minus infinity to exclude a token.
  const float *bias_values;
  // Length of `bias_tokens` and `bias_values`, at most NVLLM_MAX_BIASES. Default 0.
  size_t num_bias;
  // If not 0, outputs contain the log-probability of each token, and those of this many most likely tokens, at most 64.
  // They are the model's own, before penalties, biases, temperature and filters. Default 0.
  uint32_t num_logprobs;
  // Number of completions of this prompt, from 1 to NVLLM_MAX_COMPLETIONS. Default 1. They share the KV blocks of the
  // prompt, which is computed once. Each has its own outputs, which differ by index. Completion i samples as a request
  // with seed + i does.
  uint32_t n;
  // Number of beams of a beam search. Default 0: sampling. From 2, the n best results are returned as completions 0 to n-1,
  // best first, all at the end. As num_beams in transformers. At most 32, and at most 64 / (1 + number of EOS tokens).
  // Cannot be combined with temperature, penalties, biases, stop strings or num_logprobs.
  uint32_t beam_width;
  // Beam search: results are ranked by the sum of their log-probabilities divided by their length to the power of this
  // value. More than 0 favours long results. Any finite number. Default 1.
  float length_penalty;
  // 0 or 1: whether the output includes the token that stopped the completion, or the stop string in its text. Default 0.
  uint32_t include_stop;
  // Time in microseconds that the request may wait until it first runs. The first step after that ends it with
  // NVLLM_FINISH_EXPIRED. Default 0: no limit.
  uint64_t max_wait_us;
  // Requests with different salts share no KV blocks, so that no tenant can infer another one's prompts from timing.
  // Default 0, which is a salt like any other.
  uint64_t cache_salt;
  // 0 or 1: whether the full KV blocks of the prompt stay in the prefix cache after the request has ended, until
  // nvllm_release_prefix. Default 0. Pinned blocks may take at most the KV cache minus what one sequence of max_model_len
  // tokens needs, so that no request waits forever; beyond that the request is refused with NVLLM_ERR_OUT_OF_MEMORY.
  uint32_t pin_prompt;
  // NVLLM_POOLING_*: how the prompt becomes an embedding. Default NVLLM_POOLING_NONE. With any other value the request
  // generates nothing, and its only output has the embedding and NVLLM_FINISH_STOP; n must be 1, beam_width must be 0, and
  // options of generation are ignored.
  uint32_t pooling;
  // As num_logprobs, for the prompt. The output with the first token contains them, that of completion 0 if n is more
  // than 1. The whole prompt is then computed without the prefix cache, with at most max_num_seqs + 64 of its tokens per pass.
  // Default 0.
  uint32_t num_prompt_logprobs;
  // NVLLM_EARLY_STOPPING_*: when a beam search ends once it has as many results as beams. Default
  // NVLLM_EARLY_STOPPING_HEURISTIC.
  uint32_t early_stopping;
  // The schema, expression or grammar that constrains the completion, of the kind structure_kind, NUL-terminated UTF-8 of
  // at most NVLLM_MAX_STRUCTURE_BYTES. Default NULL. If it is refused, the message says why. Compiled structures are
  // cached.
  const char *structure;
  // NVLLM_STRUCTURE_*: what `structure` is. Default NVLLM_STRUCTURE_NONE. The other options apply to the tokens that the
  // structure allows. The structure may end the completion before min_tokens if nothing can follow; stop strings, stop tokens and
  // max_tokens may end it before the structure is complete. A completion that cannot continue ends with
  // NVLLM_FINISH_ERROR. Needs a tokenizer.
  int32_t structure_kind;
  // Must be 0.
  uint32_t reserved;
  // Tools that the model may call: a JSON array of {"type": "function", "function": {"name", "description", "parameters"}}, as in the
  // OpenAI API, or of the inner objects, NUL-terminated UTF-8 of at most NVLLM_MAX_MESSAGES_BYTES. Default NULL. Where messages are
  // rendered with these options, as by nvllm_add_chat, the chat template gets them as "tools", unless its options have "tools". To
  // read the calls, set keep_special_tokens and use a nvllm_answer_parser. Needs a tokenizer.
  const char *tools;
  // The name of the tool that is called with NVLLM_TOOL_CHOICE_NAMED, NUL-terminated UTF-8. Default NULL.
  const char *tool_name;
  // NVLLM_TOOL_CHOICE_*: which of tools the completion calls. Default NVLLM_TOOL_CHOICE_AUTO.
  int32_t tool_choice;
  // 0 or 1: whether the completion may have more than one call. Default 1.
  uint32_t parallel_tool_calls;
  // 0 or 1: whether the arguments of a call follow the schema of its tool; with 0 they are any JSON object. A tool with a "strict" of
  // its own decides for itself. Default 1.
  uint32_t strict_tools;
  // 0 or 1: whether the text of outputs has special tokens, spelled out. A nvllm_answer_parser needs them. Default 0.
  uint32_t keep_special_tokens;
  // Number of tokens of reasoning after which its end marker is forced: 0 ends it at once. Default UINT32_MAX: no limit, and
  // reasoning_tokens of outputs is 0. Tokens of the markers do not count. A model whose answers have no reasoning is not limited. Cannot
  // be combined with structure_kind or beam_width. Needs a tokenizer.
  uint32_t max_thinking_tokens;
  // Must be 0.
  uint32_t reserved_too;
  // DRY: strings across which no repetition extends, NUL-terminated UTF-8. Default NULL: newline, colon, quotation mark and asterisk, as in
  // llama.cpp; an empty list that is not NULL is none. A list needs a tokenizer. Without one, or with one that does not decode token by token,
  // the default has no effect.
  const char *const *dry_sequence_breakers;
  // Length of `dry_sequence_breakers`, at most NVLLM_MAX_DRY_BREAKERS. Default 0. Each string has at most NVLLM_MAX_DRY_BREAKER_BYTES.
  size_t num_dry_sequence_breakers;
  // DRY, a penalty of repetitions. If the last n tokens occurred before, dry_multiplier * dry_base^(n - dry_allowed_length) is subtracted from the
  // logit of the token that followed them there. The greatest such n counts, if it is at least dry_allowed_length. A finite number, not negative.
  // Default 0: off. Applies after the other penalties and the biases, before temperature and filters. As in llama.cpp; the formula is that of
  // github.com/oobabooga/text-generation-webui/pull/5677. The request waits for each token before its next pass is scheduled, as one with a
  // structure does. Cannot be combined with beam_width.
  float dry_multiplier;
  // DRY: the base, a finite number of at least 1. Default 1.75.
  float dry_base;
  // DRY: the length from which on a repetition is penalized, at least 1. Default 2.
  uint32_t dry_allowed_length;
  // DRY: number of last tokens of prompt and completion that are looked at, at least 1. Default UINT32_MAX: all.
  uint32_t dry_penalty_last_n;
  // Top-n-sigma: drop tokens whose logit is more than this many standard deviations below the greatest. Any finite number. Default 0: off, as
  // is less. The deviation is that of all logits that are not excluded, after penalties and biases; the temperature does not change what is
  // kept. Distances of more than 512 from the greatest logit count as 512. The filters apply in this order: top_n_sigma, top_k, top_p, min_p,
  // XTC. As in llama.cpp; the formula is that of arxiv.org/abs/2411.07641.
  float top_n_sigma;
  // XTC: the probability, from 0 to 1, with which a token is sampled without the most likely ones. All tokens with a probability of at least
  // xtc_threshold are then dropped, except the least likely of them and those that are as likely. Default 0: never. Drawn from the seed and the position
  // of the token. Probabilities are those that temperature and other filters leave; llama.cpp applies the temperature later. No effect at
  // temperature 0. The rule is that of github.com/oobabooga/text-generation-webui/pull/6335.
  float xtc_probability;
  // XTC: the probability from which on tokens are dropped, above 0 and at most 1. Default 0.1. More than 0.5 is off, because no two tokens reach it.
  float xtc_threshold;
  // Must be 0.
  uint32_t reserved_last;
  // The number of leading values of the embedding that are returned, from 1 to all of them, normalized again where the model normalizes its embeddings: for models
  // that were trained for it (Matryoshka). Default 0: all.
  uint32_t embedding_dimensions;
  // Must be 0.
  uint32_t reserved_of_dimensions;
  // Tokens whose probabilities after the prompt are asked for, each once: the request generates nothing. scores of its output has
  // their probabilities among these tokens alone, which add up to 1, and cumulative_logprob the logarithm of their sum among all tokens. So a model that
  // answers yes or no ranks texts: see nvllm_score. Default NULL.
  const uint32_t *score_tokens;
  // Length of `score_tokens`, at most NVLLM_MAX_SCORE_TOKENS. Default 0.
  size_t num_score_tokens;
  // Cuts a longer prompt to this number of tokens instead of refusing it. Tokens around a text stay, and of a pair the longer text is cut first.
  // UINT32_MAX: to the most that the model takes, with NVLLM_POOLING_AUTO at most to max_seq_length of its folder. For requests that generate nothing. Default 0: no
  // prompt is cut.
  uint32_t truncate_prompt_tokens;
  // Must be 0.
  uint32_t reserved_of_truncation;
} nvllm_request_options;

// [any] Sets the defaults, which are greedy decoding: nvllm_request_options_init(&options, sizeof options). Writes at most struct_size
// bytes. For the sampling that the model recommends, call nvllm_default_options.
NVLLM_API
void nvllm_request_options_init(struct nvllm_request_options *options,
                                size_t struct_size);

// [any] Fills *options with what NULL options mean: the defaults of nvllm_request_options_init with the sampling that the
// model's generation_config.json recommends. A caller can then change one field and keep the rest.
//
// Set options->struct_size first, to sizeof or by nvllm_request_options_init; at most that many bytes are written. A
// request with the unchanged options is the same as one with NULL. The file recommends temperature, top_p, top_k and min_p
// if its do_sample is true, and repetition_penalty in any case. Without the file, the result is that of
// nvllm_request_options_init.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_default_options(const nvllm_engine *engine,
                                   nvllm_request_options *options,
                                   nvllm_error *error);

// [any] Queues a prompt of prompt_len bytes. Special tokens that are spelled out in the text are parsed, as a chat template
// requires. The tokens that the model's tokenizer adds to a text are added, unless the prompt begins with them. options may
// be NULL, and so may request_id, which receives the id. Ids start at 1 and are never reused.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_add_request(nvllm_engine *engine,
                               const char *prompt,
                               size_t prompt_len,
                               const nvllm_request_options *options,
                               uint64_t *request_id,
                               nvllm_error *error);

// [any] Queues a prompt of tokens, which are used unchanged.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_add_request_tokens(nvllm_engine *engine,
                                      const uint32_t *tokens,
                                      size_t num_tokens,
                                      const nvllm_request_options *options,
                                      uint64_t *request_id,
                                      nvllm_error *error);

// [any] Cancels a request with all its completions: their last outputs have NVLLM_FINISH_CANCELLED. NVLLM_ERR_NOT_FOUND if
// the request has ended or never existed.
NVLLM_API
nvllm_status nvllm_cancel(nvllm_engine *engine,
                          uint64_t request_id);

// [any] As nvllm_cancel, and says in *error why it failed.
NVLLM_API nvllm_status nvllm_cancel_with_error(nvllm_engine *engine, uint64_t request_id, nvllm_error *error);

/* ---- Conversations: messages in -----------------------------------------
 * A message is a role and a text. nvllm_add_chat renders a conversation with the model's chat template and queues it;
 * nvllm_apply_chat_template_messages only renders it. Messages with more than a role and a text, such as calls of tools, are
 * written as JSON: see nvllm_apply_chat_template.
 */

// A message of a conversation, of which there are at most NVLLM_MAX_MESSAGES. This struct never grows.
typedef struct nvllm_message {
  // Who says it, as the chat template calls them: "system", "user" or "assistant" in most. NUL-terminated UTF-8. Required.
  const char *role;
  // What they say. NUL-terminated UTF-8. Required.
  const char *content;
} nvllm_message;

// [any] Queues a conversation, to be answered by the model: renders it as nvllm_apply_chat_template_messages does, and queues
// that prompt as nvllm_add_request does.
//
// template_options may be NULL; otherwise it is NUL-terminated JSON: see options_json of nvllm_apply_chat_template. The template gets the
// tools of options. options may be NULL, and so may request_id, which receives the id. To go on, append the answer and the next question to the messages and
// call again: the prefix cache holds what was computed before.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_add_chat(nvllm_engine *engine,
                            const nvllm_message *messages,
                            size_t num_messages,
                            const char *template_options,
                            const nvllm_request_options *options,
                            uint64_t *request_id,
                            nvllm_error *error);

// [any] Renders the prompt of a conversation with the model's chat template, as nvllm_apply_chat_template does.
//
// options_json may be NULL; otherwise it is NUL-terminated. The buffer is used as by nvllm_tokenize, with a NUL.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_apply_chat_template_messages(const nvllm_engine *engine,
                                                const nvllm_message *messages,
                                                size_t num_messages,
                                                const char *options_json,
                                                char *text,
                                                size_t capacity,
                                                size_t *needed,
                                                nvllm_error *error);

/* ---- Stepping, and outputs ---------------------------------------------- */

// Why a completion ended.
typedef enum nvllm_finish {
  // It has not ended.
  NVLLM_FINISH_NONE = 0,
  // An EOS token, a stop token or a stop string.
  NVLLM_FINISH_STOP = 1,
  // max_tokens, max_model_len, or the size of the KV cache.
  NVLLM_FINISH_LENGTH = 2,
  // nvllm_cancel, or a callback.
  NVLLM_FINISH_CANCELLED = 3,
  // An error: see status and error_message.
  NVLLM_FINISH_ERROR = 4,
  // max_wait_us: it never ran.
  NVLLM_FINISH_EXPIRED = 5,
} nvllm_finish;

// What one nvllm_step call did.
typedef struct nvllm_step_result {
  // sizeof(nvllm_step_result), set by the caller or by nvllm_step_result_init.
  size_t struct_size;
  // Outputs that are waiting to be polled.
  uint32_t num_outputs;
  // Sequences that are running.
  uint32_t num_running;
  // Requests that are waiting; each of their completions counts.
  uint32_t num_waiting;
  // Forward passes that this call finished. `steps` of nvllm_stats and nanovllm_passes_total of nvllm_metrics_text count those of
  // all calls.
  uint32_t num_iterations;
  // Forward passes that have begun and not finished: at most 1 on the CPU, at most 2 on a GPU.
  uint32_t in_flight;
  // Prompt tokens that this call computed, without cached ones.
  uint32_t prefill_tokens;
  // Tokens that this call generated.
  uint32_t decode_tokens;
  // Duration of this call in microseconds.
  uint64_t elapsed_us;
} nvllm_step_result;

// An increment of one completion of a request: what is new since its last output, and how it ended if it did.
typedef struct nvllm_output {
  // sizeof(nvllm_output), set by the caller of nvllm_poll_output and nvllm_result_get, or by nvllm_output_init.
  size_t struct_size;
  // Id of the request.
  uint64_t request_id;
  // tag of the request's options.
  uint64_t tag;
  // New tokens. [num_token_ids]
  const uint32_t *token_ids;
  // Length of `token_ids`.
  size_t num_token_ids;
  // New text, UTF-8 and NUL-terminated. It continues the prompt, so a space at its beginning is kept. It consists of whole
  // characters: a character whose bytes are not complete is held back, and so is text that may become a stop string.
  const char *text;
  // Length of `text` in bytes, without the NUL.
  size_t text_len;
  // Index of the completion within its request, from 0.
  uint32_t index;
  // NVLLM_FINISH_*.
  int32_t finish_reason;
  // The error if finish_reason is NVLLM_FINISH_ERROR; else NVLLM_OK.
  nvllm_status status;
  // Number of tokens of the prompt.
  uint32_t prompt_tokens;
  // Number of prompt tokens that were taken from the prefix cache, or from another completion of the request.
  uint32_t cached_tokens;
  // Number of tokens generated so far.
  uint32_t completion_tokens;
  // Microseconds from adding the request to its first token or its embedding; 0 before that.
  uint64_t time_to_first_token_us;
  // Natural logarithms of the probabilities of token_ids by the model alone, before penalties, biases, temperature and
  // filters. [num_token_ids], or NULL if num_logprobs is 0 or there are no new tokens.
  const float *logprobs;
  // The most likely tokens at each position, in descending order of probability, and ascending order of token id where
  // probabilities are equal; UINT32_MAX where fewer tokens have any probability. [num_token_ids, num_logprobs], or NULL.
  const uint32_t *top_tokens;
  // Log-probabilities of `top_tokens`. [num_token_ids, num_logprobs], or NULL.
  const float *top_logprobs;
  // Sum of the log-probabilities of all tokens of the completion so far; for a result of beam search, its EOS token
  // included.
  float cumulative_logprob;
  // Message of the error if finish_reason is NVLLM_FINISH_ERROR; else NULL. UTF-8 and NUL-terminated.
  const char *error_message;
  // The pooled embedding, in the output that ends the request; else NULL. It is not normalized, unless NVLLM_POOLING_AUTO is asked for and the model's
  // folder says so: divide by its length to compute a cosine. [embedding_len]
  const float *embedding;
  // Its length: hidden_size of the model, with NVLLM_POOLING_AUTO embedding_size, with embedding_dimensions that many; or 0.
  size_t embedding_len;
  // num_logprobs of the request's options.
  uint32_t num_logprobs;
  // num_prompt_logprobs of the request's options; 0 if this output contains none.
  uint32_t num_prompt_logprobs;
  // Log-probability of each prompt token but the first, given those before it. [prompt_tokens - 1], or NULL if
  // num_prompt_logprobs is 0 or the prompt has one token.
  const float *prompt_logprobs;
  // As top_tokens, for the prompt. [prompt_tokens - 1, num_prompt_logprobs], or NULL.
  const uint32_t *prompt_top_tokens;
  // Log-probabilities of `prompt_top_tokens`. [prompt_tokens - 1, num_prompt_logprobs], or NULL.
  const float *prompt_top_logprobs;
  // Beam search: cumulative_logprob divided by completion_tokens to the power of length_penalty. Else 0.
  float score;
  // 0.
  uint32_t reserved;
  // Number of tokens of reasoning so far, without its markers; 0 if max_thinking_tokens of the request's options is not set. Of an end
  // marker that is several tokens, all but the last count.
  uint32_t reasoning_tokens;
  // The scores of a classifier with NVLLM_POOLING_AUTO, in the output that ends the request; else NULL. One for each label of the model: see nvllm_label.
  // Where the model has one label, or says so, each is between 0 and 1 by itself; else they add up to 1, unless the model wants its logits as they are.
  // With scores_tokens of nvllm_model_info, one for each label of each prompt token, token after token, and each token is scored by itself.
  // [num_scores]
  const float *scores;
  // Length of `scores`: num_labels of the model, times prompt_tokens with scores_tokens, or 0.
  size_t num_scores;
} nvllm_output;

// Receives one output, which is valid during the call only. Any return value other than 0 cancels the request.
typedef int32_t (*nvllm_output_fn)(const nvllm_output *output, void *user_data);

// [any] Sets struct_size, and all else to 0: nvllm_step_result_init(&result, sizeof result). Writes at most struct_size bytes. Setting
// struct_size alone is sufficient, because the call that takes the struct writes all other fields.
NVLLM_API
void nvllm_step_result_init(struct nvllm_step_result *result,
                            size_t struct_size);

// [one] Runs forward passes.
//
// With budget_us = 0 it runs exactly one forward pass to its end. With a greater budget it works until that many
// microseconds have passed, and then returns, even in the middle of a pass, which the next call continues: on the CPU a
// pass is interrupted between two layers. It runs as many passes as fit. result may be NULL. Returns immediately when there
// is nothing to do.
//
// In a process that follows (process_index above 0) it computes what process 0 schedules: with budget_us = 0 it waits for a pass and
// returns when that has ended; with a greater budget it returns when the budget is spent, or later if a pass waits for another process.
// NVLLM_CLOSED if process 0 has freed its engine. num_iterations counts the passes. Call it again and again: while it is not called,
// all processes wait.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_step(nvllm_engine *engine,
                        uint64_t budget_us,
                        nvllm_step_result *result,
                        nvllm_error *error);

// [any] Waits until there is something to do, for at most timeout_us microseconds. NVLLM_OK if nvllm_step has work or nvllm_poll_output
// has an output, else NVLLM_TIMEOUT. With timeout_us = 0 it only looks; UINT64_MAX is no limit. The thread sleeps meanwhile.
//
// For a loop that serves requests of other threads: wait, step, poll all outputs, and again. A request is work from the moment it is
// added until its last output is queued, also while another thread is inside nvllm_step. So are a pass that was left in the middle, a
// cancelled request and a released prompt. Outputs that nobody polls end every wait at once.
//
// Several threads may wait; work ends the wait of each. If the engine becomes unusable meanwhile, they return its error. If it is freed,
// they return NVLLM_ERR_CANCELLED, and it is destroyed when the last of them has returned.
//
// In a process that follows, there is work when process 0 has scheduled a pass. NVLLM_CLOSED if process 0 has freed its engine.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_wait(const nvllm_engine *engine,
                        uint64_t timeout_us,
                        nvllm_error *error);

// [any] Ends every nvllm_wait that is in progress on this engine, and the next one that begins, with NVLLM_TIMEOUT unless there is
// something to do. For a loop that has to look at something else, such as a flag that ends it: set the flag, then wake the loop.
NVLLM_API
nvllm_status nvllm_wake(const nvllm_engine *engine,
                        nvllm_error *error);

// [any] Returns 1 if no request is waiting or running and no output is waiting to be polled; else 0. Stays 0 until outputs are polled:
// a loop of nvllm_step and this function alone never ends. Returns 1 as well for an engine that can no longer be used: check the status
// of nvllm_step.
NVLLM_API
int32_t nvllm_is_finished(const nvllm_engine *engine);

// [any] Sets struct_size, and all else to 0: nvllm_output_init(&output, sizeof output). Writes at most struct_size bytes. Setting
// struct_size alone is sufficient, because the call that takes the struct writes all other fields.
NVLLM_API
void nvllm_output_init(struct nvllm_output *output,
                       size_t struct_size);

// [one] Takes the oldest output; NVLLM_NO_OUTPUT if none is waiting. The pointers in *output stay valid until the next
// [one] call on this engine.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_poll_output(nvllm_engine *engine,
                               nvllm_output *output,
                               nvllm_error *error);

// [one] Delivers outputs to a callback instead of the queue. The callback is called inside nvllm_step, and inside
// nvllm_generate for other requests, on the calling thread. NULL returns to polling.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_set_output_callback(nvllm_engine *engine,
                                       nvllm_output_fn callback,
                                       void *user_data,
                                       nvllm_error *error);

/* ---- Batch convenience: many prompts in one call ------------------------ */

// The results of nvllm_generate. Destroyed by nvllm_result_free; independent of the engine.
typedef struct nvllm_result nvllm_result;

// Progress of nvllm_generate.
typedef struct nvllm_progress {
  // sizeof(nvllm_progress), set by the library.
  size_t struct_size;
  // Completions that have ended.
  size_t finished;
  // All completions.
  size_t total;
  // Prompt tokens per second, over the last steps.
  double prefill_tokens_per_s;
  // Generated tokens per second, over the last steps.
  double decode_tokens_per_s;
  // Microseconds since the call began.
  uint64_t elapsed_us;
  // Prompt tokens that the engine computed since the call began.
  uint64_t prompt_tokens;
  // Tokens that the engine generated since the call began.
  uint64_t generated_tokens;
} nvllm_progress;

// Called after every step. progress is valid during the call only. Any return value other than 0 cancels the call.
typedef int32_t (*nvllm_generate_progress_fn)(const nvllm_progress *progress, void *user_data);

// A prompt of nvllm_generate_prompts: text, tokens or messages, whichever is not NULL. nvllm_prompt_init sets the defaults, which are
// 0 and NULL, so that `nvllm_prompt prompt = {.struct_size = sizeof prompt, .text = "..."}` does as well.
typedef struct nvllm_prompt {
  // sizeof(nvllm_prompt), set by the caller or by nvllm_prompt_init.
  size_t struct_size;
  // A text, as the prompt of nvllm_add_request.
  const char *text;
  // Length of `text` in bytes. Default 0: up to its NUL.
  size_t text_len;
  // Tokens, which are used unchanged.
  const uint32_t *tokens;
  // Length of `tokens`.
  size_t num_tokens;
  // A conversation, as that of nvllm_add_chat.
  const nvllm_message *messages;
  // Length of `messages`.
  size_t num_messages;
  // Variables of the chat template for `messages`: NUL-terminated JSON, or NULL. See options_json of nvllm_apply_chat_template.
  const char *template_options;
  // How the prompt is completed. NULL means what nvllm_default_options fills in.
  const nvllm_request_options *options;
} nvllm_prompt;

// [one] Generates for all prompts, and stores the results in *result: in the order of the prompts, and for each prompt as
// many as its options' n, in the order of their index.
//
// prompt_lens may be NULL if the prompts are NUL-terminated. options points to num_options pointers, each of which may be
// NULL. num_options is 0 for the model's defaults, 1 for options that all prompts share, or num_prompts. Shared options
// that are invalid fail the call. If a prompt cannot run, or its own options are invalid, its results have
// NVLLM_FINISH_ERROR and the other prompts continue. progress may be NULL; if it cancels, the call returns
// NVLLM_ERR_CANCELLED without a result. Requests that were added before continue meanwhile.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_generate(nvllm_engine *engine,
                            const char *const *prompts,
                            const size_t *prompt_lens,
                            size_t num_prompts,
                            const nvllm_request_options *const *options,
                            size_t num_options,
                            nvllm_generate_progress_fn progress,
                            void *progress_user_data,
                            nvllm_result **result,
                            nvllm_error *error);

// [one] As nvllm_generate, for prompts of tokens; prompt_lens is required.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_generate_tokens(nvllm_engine *engine,
                                   const uint32_t *const *prompts,
                                   const size_t *prompt_lens,
                                   size_t num_prompts,
                                   const nvllm_request_options *const *options,
                                   size_t num_options,
                                   nvllm_generate_progress_fn progress,
                                   void *progress_user_data,
                                   nvllm_result **result,
                                   nvllm_error *error);

// [any] Sets the defaults: nvllm_prompt_init(&prompt, sizeof prompt). Writes at most struct_size bytes.
NVLLM_API void nvllm_prompt_init(nvllm_prompt *prompt, size_t struct_size);

// [one] Generates for all prompts, as nvllm_generate does: prompts is an array of num_prompts structs with one struct_size.
//
// If a prompt cannot run, or its options are invalid, its results have NVLLM_FINISH_ERROR and the other prompts continue, even if it
// is the only one.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_generate_prompts(nvllm_engine *engine,
                                    const nvllm_prompt *prompts,
                                    size_t num_prompts,
                                    nvllm_generate_progress_fn progress,
                                    void *progress_user_data,
                                    nvllm_result **result,
                                    nvllm_error *error);

// [any] Returns the number of results: for each prompt its n, or 1 if its n is invalid. 0 for NULL.
NVLLM_API size_t nvllm_result_count(const nvllm_result *result);

// [any] Reads one completion, with all its tokens and text. The pointers in *output stay valid until nvllm_result_free.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_result_get(const nvllm_result *result,
                              size_t index,
                              nvllm_output *output);

// [any] As nvllm_result_get, and says in *error why it failed.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_result_get_with_error(const nvllm_result *result,
                                         size_t index,
                                         nvllm_output *output,
                                         nvllm_error *error);

// Destroys a result. NULL is allowed.
NVLLM_API void nvllm_result_free(nvllm_result *result);

/* ---- Classifiers and rerankers: scores of texts and of pairs of texts. And what models of embeddings want before their texts  */

// [one] Scores texts, or pairs of texts, with a classifier or a reranker, and stores the results in *result, in the order of the texts: scores
// of each output has one score per label. A pair is a text of `texts` and one of `seconds` with the same index, such as a query and a document.
//
// seconds is NULL for texts alone, else an array of as many; a NULL in it is a text alone. Texts are NUL-terminated UTF-8. options, num_options, progress and
// the results of texts that cannot be scored are as in nvllm_generate, where NVLLM_POOLING_NONE counts as NVLLM_POOLING_AUTO.
//
// A model that is no classifier scores the tokens that score_tokens of the options names, one score per token, after texts alone: write the pair into the text, as
// the model wants it. NVLLM_ERR_UNSUPPORTED if there are none.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_score(nvllm_engine *engine,
                         const char *const *texts,
                         const char *const *seconds,
                         size_t num_texts,
                         const nvllm_request_options *const *options,
                         size_t num_options,
                         nvllm_generate_progress_fn progress,
                         void *progress_user_data,
                         nvllm_result **result,
                         nvllm_error *error);

// [any] Queues a pair of texts, NUL-terminated UTF-8, for a classifier or a reranker. Otherwise as nvllm_add_request; set pooling of the options to
// NVLLM_POOLING_AUTO.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_add_request_pair(nvllm_engine *engine,
                                    const char *text,
                                    const char *second,
                                    const nvllm_request_options *options,
                                    uint64_t *request_id,
                                    nvllm_error *error);

// [any] Copies the name of the label `index` of a classifier, of num_labels in nvllm_model_info. Buffers are as in nvllm_detokenize.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_label(const nvllm_engine *engine,
                         size_t index,
                         char *text,
                         size_t capacity,
                         size_t *needed,
                         nvllm_error *error);

// [any] Copies what stands before texts of a kind, such as "query" or "document", by config_sentence_transformers.json of the model's folder: put it before the
// text yourself. name is NUL-terminated UTF-8, or NULL for the default of the folder. An empty text where there is no such name, or no default. Buffers
// are as in nvllm_detokenize.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_named_prompt(const nvllm_engine *engine,
                                const char *name,
                                char *text,
                                size_t capacity,
                                size_t *needed,
                                nvllm_error *error);

/* ---- State: pinned and saved prefixes, forks, and memory ----------------
 * The keys and values of a prompt stay in the prefix cache when its request ends, until their blocks are reused, least
 * recently used first. A later prompt that begins with the same blocks and has the same cache_salt uses them.
 * nvllm_get_stats reports the hit rate.
 *
 * A prefix can be saved as bytes and restored in another process, also on another device, for the same model, data type and
 * kv_block_size: requests that begin with it continue as if it had been computed there. The checksum detects damage, not
 * intent: restore only what may write your prompts.
 */

// [one] Removes all prefixes that no sequence uses and that are not pinned, so that later prompts are computed again.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_reset_prefix_cache(nvllm_engine *engine,
                                      nvllm_error *error);

// [one] Gives memory of the KV cache back, to the GPU or, on the CPU, to the system: that of all blocks that no running request and no
// pinned prompt holds. Stores the number of bytes in freed_bytes, which may be NULL.
//
// The cached prompts of these blocks are evicted, also those that nvllm_restore_prefix restored. Requests go on, between any two
// steps. If no byte can be given back, nothing changes and nothing is evicted.
//
// Memory is mapped again on demand, lowest block first; until then, cached
// prompts are evicted as in a smaller cache. If there is no memory then, requests wait and are preempted as if the cache were
// full, and a request with no other one running ends with NVLLM_FINISH_ERROR and NVLLM_ERR_OUT_OF_MEMORY. The engine remains usable.
//
// Memory goes back in pages, on a GPU in pieces of 2 MiB or, if that is more, of about 1/32 of a layer's share of the cache. Blocks
// in use are not moved, and what shares a page or a piece with one stays. kv_cache_bytes_mapped of nvllm_stats is what is left.
//
// The call waits for a pass that runs on the GPU, but finishes no pass. It frees 0 bytes on a GPU whose driver cannot map memory in
// pieces, and on the CPU on systems other than Linux, Android and Windows. NVLLM_ERR_UNSUPPORTED if several ranks compute
// the model (tensor_parallel_size).
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_trim(nvllm_engine *engine,
                        uint64_t *freed_bytes,
                        nvllm_error *error);

// [any] Releases the prompt that pin_prompt pinned: from the next step on it may be evicted. NVLLM_ERR_NOT_FOUND if it was
// released before, was not to be pinned, or if its request ended before the prompt was computed.
NVLLM_API
nvllm_status nvllm_release_prefix(nvllm_engine *engine,
                                  uint64_t request_id);

// [any] As nvllm_release_prefix, and says in *error why it failed.
NVLLM_API
nvllm_status nvllm_release_prefix_with_error(nvllm_engine *engine,
                                             uint64_t request_id,
                                             nvllm_error *error);

// [one] Saves the longest cached prefix of these tokens for this cache_salt, in whole KV blocks: that of a request that has
// ended, or of one that is running, as far as it is computed. saved_tokens may be NULL.
//
// The buffer is used as by nvllm_tokenize. NVLLM_ERR_NOT_FOUND if not one block of it is cached. With several ranks, a pass that a
// budget has left in the middle is computed to its end first.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_save_prefix(nvllm_engine *engine,
                               const uint32_t *tokens,
                               size_t num_tokens,
                               uint64_t cache_salt,
                               uint8_t *buffer,
                               size_t capacity,
                               size_t *needed,
                               size_t *saved_tokens,
                               nvllm_error *error);

// [one] Puts a saved prefix into the prefix cache, where the next request that begins with its tokens and has its
// cache_salt finds it. restored_tokens may be NULL.
//
// Its blocks can be evicted as those of any prompt that has ended: add the request soon, with pin_prompt if the prefix is
// to stay. NVLLM_ERR_INVALID_ARGUMENT if the bytes are damaged or belong to another model, NVLLM_ERR_OUT_OF_MEMORY if too
// few blocks are free. In both cases nothing has changed.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_restore_prefix(nvllm_engine *engine,
                                  const uint8_t *bytes,
                                  size_t num_bytes,
                                  size_t *restored_tokens,
                                  nvllm_error *error);

// [one] Adds a request whose prompt is the whole current text of a live one: its prompt, and what its completion `index`
// has generated. It shares the KV blocks that are computed, and the cache_salt. Its outputs begin with what follows.
//
// options and new_request_id are used as by nvllm_add_request. NVLLM_ERR_NOT_FOUND if that completion has ended or never
// existed.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_fork(nvllm_engine *engine,
                        uint64_t request_id,
                        uint32_t index,
                        const nvllm_request_options *options,
                        uint64_t *new_request_id,
                        nvllm_error *error);

/* ---- Tokenizer and chat template ----------------------------------------
 * Buffers: *needed is always stored. If capacity is too small, nothing else is written and the call returns
 * NVLLM_ERR_BUFFER_TOO_SMALL; (NULL, 0) asks for the size. Text is NUL-terminated, and *needed counts the NUL. Usually
 * text_len + 16 tokens suffice; a normalizer may expand unusual text, so use *needed.
 */

// Flags of nvllm_tokenize and nvllm_detokenize.
typedef enum nvllm_tokenize_flags {
  // Add the tokens that begin and end a text, as the model's tokenizer does. No effect in nvllm_detokenize.
  NVLLM_TOKENIZE_ADD_SPECIAL = 1,
  // Parse the spelling of a special token, such as <|im_end|>, as that token; nvllm_detokenize spells it out. Without
  // this flag the spelling stays text, so that a user's text cannot forge a turn, and nvllm_detokenize omits special
  // tokens.
  NVLLM_TOKENIZE_PARSE_SPECIAL = 2,
} nvllm_tokenize_flags;

// [any] Converts text to tokens. flags: NVLLM_TOKENIZE_*.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_tokenize(const nvllm_engine *engine,
                            const char *text,
                            size_t text_len,
                            uint32_t flags,
                            uint32_t *tokens,
                            size_t capacity,
                            size_t *needed,
                            nvllm_error *error);

// [any] Converts tokens to text. Bytes that are not UTF-8 become U+FFFD. flags: NVLLM_TOKENIZE_*.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_detokenize(const nvllm_engine *engine,
                              const uint32_t *tokens,
                              size_t num_tokens,
                              uint32_t flags,
                              char *text,
                              size_t capacity,
                              size_t *needed,
                              nvllm_error *error);

// [any] Renders the prompt of a conversation with the model's chat template.
//
// messages_json is an array of objects with "role" and "content". options_json may be NULL; otherwise it is an object with
// "add_generation_prompt" (default true), "tools", "documents", and any variable that the template uses, such as
// "enable_thinking".
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_apply_chat_template(const nvllm_engine *engine,
                                       const char *messages_json,
                                       size_t messages_len,
                                       const char *options_json,
                                       size_t options_len,
                                       char *text,
                                       size_t capacity,
                                       size_t *needed,
                                       nvllm_error *error);

/* ---- Answers: content, reasoning and tool calls -------------------------
 * A model writes its reasoning and its tool calls as text between markers. A parser reads that text while it is written, and returns what
 * became known: pieces of content, of reasoning and of the arguments of calls. It knows how the model writes from the model folder: by its
 * "response_template", or by the markers of its chat template. The markers are special tokens in most models, so set
 * keep_special_tokens in the options of the request. The pieces in which a text arrives change nothing but where events are cut.
 */

// Kinds of events.
typedef enum nvllm_answer_event_kind {
  // A further piece of the content, which is for the user.
  NVLLM_ANSWER_CONTENT = 1,
  // A further piece of the reasoning.
  NVLLM_ANSWER_REASONING = 2,
  // A tool call begins. The text is the name of the tool.
  NVLLM_ANSWER_TOOL_CALL_BEGIN = 3,
  // A further piece of the arguments of a call. All pieces of one call together are a JSON object.
  NVLLM_ANSWER_TOOL_CALL_ARGUMENTS = 4,
  // A tool call is complete. The text is the id that the model gave to it, in most cases none.
  NVLLM_ANSWER_TOOL_CALL_END = 5,
  // A call that has begun cannot be read, and is none. The text says why. What the model has written follows as content.
  NVLLM_ANSWER_TOOL_CALL_BROKEN = 6,
} nvllm_answer_event_kind;

// Reads one answer. Destroyed by nvllm_answer_parser_free; independent of the engine, which may be freed first. One thread at a time may
// use it, not always the same one; a violation returns NVLLM_ERR_BUSY.
typedef struct nvllm_answer_parser nvllm_answer_parser;

// What became known of an answer. This struct never grows.
typedef struct nvllm_answer_event {
  // NVLLM_ANSWER_*.
  int32_t kind;
  // Which tool call, from 0; 0 for content and reasoning. Calls that broke count.
  uint32_t call_index;
  // Text, UTF-8 and NUL-terminated.
  const char *text;
  // Length of `text` in bytes, without the NUL.
  size_t text_len;
} nvllm_answer_event;

// [any] Begins to read an answer of this engine's model.
//
// prompt, of prompt_len bytes, is the text after which the model writes, or its end; NULL if it is not known. A chat template may have
// begun the answer, as with <think>. tools is NUL-terminated JSON, or NULL: the tools of the request, which say what type the arguments
// have where the model writes them without types.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_answer_parser_new(const nvllm_engine *engine,
                                     const char *prompt,
                                     size_t prompt_len,
                                     const char *tools,
                                     nvllm_answer_parser **parser,
                                     nvllm_error *error);

// Reads a further piece of the answer, text_len bytes of whole characters, such as the text of an output. *events receives what became
// known, an array of *num_events, which stays valid until the next call with this parser.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_answer_parser_feed(nvllm_answer_parser *parser,
                                      const char *text,
                                      size_t text_len,
                                      const nvllm_answer_event **events,
                                      size_t *num_events,
                                      nvllm_error *error);

// Says that the answer ends here. *events receives the last events, as from nvllm_answer_parser_feed. A second call has none.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_answer_parser_finish(nvllm_answer_parser *parser,
                                        const nvllm_answer_event **events,
                                        size_t *num_events,
                                        nvllm_error *error);

// Writes the message so far, as JSON in the form of a message for nvllm_apply_chat_template: an object with "role", "content", and if there
// are some "reasoning_content" and "tool_calls", an array of {"type": "function", "id", "function": {"name", "arguments"}}. Arguments are
// objects, and "id" is there if the model wrote one. Calls that are not complete are left out. The buffer is used as by nvllm_tokenize,
// with a NUL. Events that were returned stay valid.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_answer_parser_message(const nvllm_answer_parser *parser,
                                         char *text,
                                         size_t capacity,
                                         size_t *needed,
                                         nvllm_error *error);

// Destroys a parser. NULL is allowed.
NVLLM_API void nvllm_answer_parser_free(nvllm_answer_parser *parser);

/* ---- Statistics --------------------------------------------------------- */

// Counters since the engine opened, and current gauges.
typedef struct nvllm_stats {
  // sizeof(nvllm_stats), set by the caller or by nvllm_stats_init.
  size_t struct_size;
  // Forward passes that have finished. nanovllm_passes_total of nvllm_metrics_text is this number, and num_iterations of
  // nvllm_step_result what one call of nvllm_step adds to it.
  uint64_t steps;
  // Prompt tokens that were computed.
  uint64_t prompt_tokens;
  // Prompt tokens that were taken from the prefix cache, or from another completion.
  uint64_t cached_tokens;
  // Tokens that were generated.
  uint64_t generated_tokens;
  // Preemptions: how often a sequence had to give up its KV blocks.
  uint64_t preemptions;
  // Microseconds spent in forward passes.
  uint64_t step_time_us;
  // Sequences that are running.
  uint32_t running;
  // Requests that are waiting; each of their completions counts.
  uint32_t waiting;
  // Blocks of the KV cache.
  uint32_t kv_blocks_total;
  // Blocks of the KV cache that sequences use or that are pinned. If every layer of the model has a sliding window, a sequence
  // releases the blocks before its window; if some layers have one, these have blocks of their own, and a sequence holds those of its last window.
  uint32_t kv_blocks_used;
  // Log messages that were dropped because no call took them, in the whole process.
  uint64_t log_messages_dropped;
  // Tokens that were looked up in the prefix cache: all tokens of a sequence each time it starts to run, so again after a
  // preemption.
  uint64_t prefix_cache_queries;
  // Tokens that were found in the prefix cache and need not be computed.
  uint64_t prefix_cache_hits;
  // Blocks that were evicted from the prefix cache.
  uint64_t prefix_cache_evictions;
  // Blocks reserved by pinned prompts; a block counts once per prompt that has it.
  uint32_t kv_blocks_pinned;
  // Bytes of GPU memory that the engine took or set aside when it opened, everything included, on the GPU where they are most: see
  // gpu_memory_bytes of nvllm_engine_config. Without such a budget, a CUDA context that the engine made counts as 640 MiB. 0 on the CPU.
  uint64_t gpu_memory_bytes;
  // Bytes of the KV cache that have memory now. On a GPU all of it, but for what nvllm_trim gave back. On the CPU, the blocks that were
  // used since the engine opened or since nvllm_trim; a block counts whole. 0 in a process that follows another one.
  uint64_t kv_cache_bytes_mapped;
  // Tokens that were found in the prefix cache and are computed all the same, because the model has recurrent layers and no checkpoint
  // of their state is behind these tokens: at most about state_checkpoint_interval each time a sequence starts to run. Or because some of its
  // layers have a sliding window, and the blocks of the window before were reused. Not part of prefix_cache_hits. 0 for other models.
  uint64_t prefix_cache_recomputed;
} nvllm_stats;

// [any] Sets struct_size, and all else to 0: nvllm_stats_init(&stats, sizeof stats). Writes at most struct_size bytes. Setting
// struct_size alone is sufficient, because the call that takes the struct writes all other fields.
NVLLM_API
void nvllm_stats_init(struct nvllm_stats *stats,
                      size_t struct_size);

// [any] Reads the statistics.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_get_stats(const nvllm_engine *engine,
                             nvllm_stats *stats,
                             nvllm_error *error);

// [one] Copies how many tokens each expert of a layer, from 0, was chosen for since the engine opened. counts gets one number per expert; *needed
// is 0 for a layer without experts. A token counts for each expert that computes it, so that the sum is the number of computed tokens times the
// experts per token. The greatest number divided by the mean shows how uneven the load is.
//
// NVLLM_ERR_INVALID_ARGUMENT if expert_statistics of nvllm_engine_config is 0, or for a layer that the model does not have. The buffer is used as by
// nvllm_tokenize. Passes in flight may count already. With several ranks all choose alike, and the numbers are those of the whole model.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_expert_tokens(nvllm_engine *engine,
                                 size_t layer,
                                 uint64_t *counts,
                                 size_t capacity,
                                 size_t *needed,
                                 nvllm_error *error);

// [any] Writes the statistics and more in the text format of Prometheus, version 0.0.4: how requests ended, and histograms
// of the time to the first token, between tokens, in the queue and per pass, and of the number of sequences per pass.
//
// The buffer is used as by nvllm_tokenize, with a NUL; 16 KiB always suffice. Names begin with nanovllm_. No name contains
// the engine: a program with several engines serves each text under its own address. nanovllm_passes_total, the number of
// forward passes, is `steps` of nvllm_stats. num_iterations of nvllm_step_result is what one call of nvllm_step adds to it.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_metrics_text(const nvllm_engine *engine,
                                char *text,
                                size_t capacity,
                                size_t *needed,
                                nvllm_error *error);

#ifdef __cplusplus
}
#endif

#endif /* NANOVLLM_H */

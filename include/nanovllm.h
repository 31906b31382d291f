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

#define NVLLM_VERSION_MAJOR 0
#define NVLLM_VERSION_MINOR 1
#define NVLLM_VERSION_PATCH 0

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

/* ---- Status and errors -------------------------------------------------- */

// The values of nvllm_status.
typedef enum nvllm_status_code {
  // Success.
  NVLLM_OK = 0,
  // nvllm_poll_output: no output waits.
  NVLLM_NO_OUTPUT = 1,
  // An argument or option makes no sense; the message names it, its value, and what is accepted.
  NVLLM_ERR_INVALID_ARGUMENT = -1,
  // The buffer is too small; the size it should have was stored.
  NVLLM_ERR_BUFFER_TOO_SMALL = -2,
  // A [one] function was entered while another ran on the same engine.
  NVLLM_ERR_BUSY = -3,
  // A bug in the library. Only nvllm_engine_free is left for this engine.
  NVLLM_ERR_PANIC = -4,
  // No live request has this id.
  NVLLM_ERR_NOT_FOUND = -5,
  // Memory of the host, of the device, or of the KV cache does not suffice.
  NVLLM_ERR_OUT_OF_MEMORY = -6,
  // A file could not be read; native_code is errno.
  NVLLM_ERR_IO = -7,
  // The model files are corrupt, or of a kind that is not supported.
  NVLLM_ERR_MODEL = -8,
  // A device call failed; native_code is the device's own code. Only nvllm_engine_free is left for this engine.
  NVLLM_ERR_DEVICE = -9,
  // A progress callback said stop.
  NVLLM_ERR_CANCELLED = -10,
  // Not in this build, or not for this model.
  NVLLM_ERR_UNSUPPORTED = -11,
  // No room beside the requests that wait, by max_queue or NVLLM_MAX_QUEUED_COMPLETIONS: step, then try again.
  NVLLM_ERR_QUEUE_FULL = -12,
  // The prompt leaves no place for an answer within max_model_len.
  NVLLM_ERR_CONTEXT_LENGTH = -13,
} nvllm_status_code;

// What a call answers: 0 is success, a positive number a condition, a negative one an error.
// The values are those of nvllm_status_code; a later version may add some.
typedef int32_t nvllm_status;

// Why a call failed. Owned by the caller, and frozen at 512 bytes. It needs no preparation: every call that takes one
// writes it, with status NVLLM_OK and an empty message when all went well.
typedef struct nvllm_error {
  // The status that the call returned.
  nvllm_status status;
  // errno or a device's code where there is one, else 0.
  int32_t native_code;
  // UTF-8, NUL-terminated: what was wanted, what there was, and the option that changes it.
  char message[504];
} nvllm_error;

// [any] The name of a status, as in "NVLLM_ERR_BUSY"; "unknown status" for a number that is none. A static string.
NVLLM_API
const char *nvllm_status_name(nvllm_status status);

/* ---- Version ------------------------------------------------------------ */

// The number in the library's soname. While the version is 0.x it changes with any break of the ABI.
#define NVLLM_ABI_VERSION 0

// [any] The version of the library that runs, as in "0.1.0". A static string.
NVLLM_API const char *nvllm_version(void);

// [any] The NVLLM_ABI_VERSION of the library that runs.
NVLLM_API uint32_t nvllm_abi_version(void);

// [any] How the library was built and what it found here, as a JSON object: "version", "abi_version", "backends",
// "features" (of the build), "instruction_sets" (that this processor has and the kernels use, the best one last), "git"
// (null when unknown), "rustc", "target". A static string.
NVLLM_API
const char *nvllm_build_info(void);

/* ---- Limits -------------------------------------------------------------
 * What one request may ask for, whatever the engine's options say. A call that asks for more answers
 * NVLLM_ERR_INVALID_ARGUMENT with a message that names the limit. docs/security.md says why each is there.
 */

// Completions of one request.
#define NVLLM_MAX_COMPLETIONS 1024

// Completions of all requests of an engine that have not ended, and of all prompts of one nvllm_generate. max_queue lowers it.
#define NVLLM_MAX_QUEUED_COMPLETIONS 1048576

// Stop strings of one request.
#define NVLLM_MAX_STOP_STRINGS 128

// Bytes of one stop string.
#define NVLLM_MAX_STOP_STRING_BYTES 4096

// Stop tokens of one request.
#define NVLLM_MAX_STOP_TOKENS 1024

// Logit biases of one request.
#define NVLLM_MAX_BIASES 16384

// Bytes of one text: a prompt, or what is to be tokenized.
#define NVLLM_MAX_TEXT_BYTES 16777216

// Bytes of a JSON schema, a regular expression or a Lark grammar.
#define NVLLM_MAX_STRUCTURE_BYTES 262144

// Milliseconds that adding a request waits for its structure to be compiled; then it is refused.
#define NVLLM_STRUCTURE_COMPILE_MS 2000

// Bytes of the JSON of one conversation, and of its tools.
#define NVLLM_MAX_MESSAGES_BYTES 16777216

/* ---- Logging: one callback for the whole process ------------------------ */

// How much a message matters.
typedef enum nvllm_log_level {
  // Nothing is logged.
  NVLLM_LOG_OFF = 0,
  // Something failed.
  NVLLM_LOG_ERROR = 1,
  // Something is odd, but work goes on.
  NVLLM_LOG_WARN = 2,
  // A milestone, such as a model that was loaded.
  NVLLM_LOG_INFO = 3,
  // Detail for whoever debugs the library.
  NVLLM_LOG_DEBUG = 4,
} nvllm_log_level;

// Takes one message: message_len bytes of UTF-8, and a NUL. Valid during the call only.
typedef void (*nvllm_log_fn)(int32_t level, const char *message, size_t message_len, void *user_data);

// [any] Sends messages up to max_level (NVLLM_LOG_*) to a callback; NULL, the default, is silence.
//
// Messages wait inside the library, at most 256 of them, and are handed over one at a time whenever a call is about to
// return, on the thread that made the call. When this function returns, the callback before is not running on any other
// thread and will not be called again. The child of a fork() begins without a callback.
NVLLM_API
void nvllm_set_log_callback(nvllm_log_fn callback,
                            void *user_data,
                            int32_t max_level);

/* ---- The engine: a model, its tokenizer, its KV cache, and a scheduler -- */

// Where an engine computes.
typedef enum nvllm_device {
  // An NVIDIA GPU where the library has kernels for it and for the model and finds a driver, else the CPU.
  NVLLM_DEVICE_AUTO = 0,
  // Threads of this process.
  NVLLM_DEVICE_CPU = 1,
  // An NVIDIA GPU.
  NVLLM_DEVICE_CUDA = 2,
} nvllm_device;

// Number types of weights and KV cache.
typedef enum nvllm_dtype {
  // As the model's files have it.
  NVLLM_DTYPE_AUTO = 0,
  // 32 bits.
  NVLLM_DTYPE_F32 = 1,
  // IEEE, 16 bits.
  NVLLM_DTYPE_F16 = 2,
  // The upper half of 32 bits.
  NVLLM_DTYPE_BF16 = 3,
} nvllm_dtype;

// How the weights of a model come into memory.
typedef enum nvllm_load_mode {
  // The files are mapped, so that engines and processes share their pages. On the CPU the weights are used from the
  // mapping until the engine is freed, unless dtype asks for another number type; on CUDA until nvllm_engine_new
  // returns. A file that another program writes into changes the weights. A file that becomes shorter ends the process
  // with SIGBUS when a weight beyond its end is read: replace a model's files by renaming new ones over them, or choose
  // NVLLM_LOAD_READ.
  NVLLM_LOAD_MAP = 0,
  // The files are copied into memory of the library. It takes their size in memory that nothing shares and the system
  // cannot drop, and nothing that happens to the files later has an effect. NVLLM_ERR_OUT_OF_MEMORY where they do not
  // fit into what is free, NVLLM_ERR_IO where a file becomes shorter while it is copied.
  NVLLM_LOAD_READ = 1,
} nvllm_load_mode;

// An engine. Made by nvllm_engine_new, ended by nvllm_engine_free.
typedef struct nvllm_engine nvllm_engine;

// Hears how much of the model is loaded, from 0 to 1. Another answer than 0 cancels the load.
typedef int32_t (*nvllm_progress_fn)(float fraction, void *user_data);

// What an engine is opened with. nvllm_engine_config_init sets the defaults; model_path alone has none.
//
// The files of the model folder are data that nothing trusts: they are checked and limited when the engine opens, and only
// regular files are opened. By default its weights are mapped; load_mode says what follows from that.
typedef struct nvllm_engine_config {
  // sizeof(nvllm_engine_config), set by nvllm_engine_config_init.
  size_t struct_size;
  // The model folder as Hugging Face lays it out, NUL-terminated UTF-8. Required.
  const char *model_path;
  // NVLLM_DEVICE_*; default NVLLM_DEVICE_AUTO.
  int32_t device;
  // Which GPU of those the driver shows; 0 on the CPU.
  int32_t device_index;
  // NVLLM_DTYPE_*; default NVLLM_DTYPE_AUTO.
  int32_t dtype;
  // Threads that compute, the one that steps included; 0 = all cores.
  uint32_t num_threads;
  // Tokens of one sequence, prompt and answer together; 0 = the model's maximum, but at most 1048576.
  uint32_t max_model_len;
  // Sequences that run at once; others wait; 0 = default of the device.
  uint32_t max_num_seqs;
  // New tokens in one forward pass; 0 = default of the device.
  uint32_t max_batched_tokens;
  // Requests that may wait, each of their completions counted; 0 = NVLLM_MAX_QUEUED_COMPLETIONS. A request whose n is greater
  // can never be queued, and is refused as such.
  uint32_t max_queue;
  // Tokens of a KV block; 0 = default of the device.
  uint32_t kv_block_size;
  // 0 or 1: prompts share the KV blocks of equal beginnings; default 1.
  uint32_t enable_prefix_cache;
  // Bytes for the KV cache; 0 = by memory_utilization.
  uint64_t kv_cache_bytes;
  // Share of the device's memory (on the CPU: of the free memory) this engine may hold, up to 1; 0 = default of the
  // device (CPU: 0.5, CUDA: 0.9).
  float memory_utilization;
  // GPUs that share the work; default 1, and the CPU takes no other.
  uint32_t tensor_parallel_size;
  // 0 or 1: no CUDA graphs. On the CPU it changes nothing.
  uint32_t enforce_eager;
  // 0 or 1: the same logits whatever else is in the batch, bit for bit. On the CPU it is always so; on CUDA it takes slower
  // kernels.
  uint32_t batch_invariant;
  // Seed of requests that bring none; 0 = drawn from the system.
  uint64_t seed;
  // Called inside nvllm_engine_new only; may be NULL.
  nvllm_progress_fn progress;
  // Handed to progress.
  void *progress_user_data;
  // NVLLM_LOAD_*; default NVLLM_LOAD_MAP.
  int32_t load_mode;
} nvllm_engine_config;

// Facts about a loaded model.
typedef struct nvllm_model_info {
  // sizeof(nvllm_model_info), set by the caller.
  size_t struct_size;
  // Tokens that the embedding table knows.
  uint32_t vocab_size;
  // Tokens of one sequence, prompt and answer together.
  uint32_t max_model_len;
  // Layers.
  uint32_t num_layers;
  // Width of the residual stream.
  uint32_t hidden_size;
  // The token that begins a text; UINT32_MAX = none.
  uint32_t bos_token;
  // The first of the tokens that end an answer; UINT32_MAX = none.
  uint32_t eos_token;
  // Weights, shared ones counted once.
  uint64_t num_parameters;
  // Bytes of these.
  uint64_t weight_bytes;
  // Bytes of the KV cache.
  uint64_t kv_cache_bytes;
  // Blocks of the KV cache.
  uint32_t num_kv_blocks;
  // Tokens of a block.
  uint32_t kv_block_size;
  // Where it computes: NVLLM_DEVICE_CPU or NVLLM_DEVICE_CUDA, whichever NVLLM_DEVICE_AUTO chose.
  int32_t device;
  // Which GPU; 0 on the CPU.
  int32_t device_index;
  // Sequences that run at once.
  uint32_t max_num_seqs;
  // New tokens in one forward pass.
  uint32_t max_batched_tokens;
} nvllm_model_info;

// [any] Sets the defaults, for nvllm_engine_config_init(&config, sizeof config). Writes struct_size bytes at most.
NVLLM_API
void nvllm_engine_config_init(struct nvllm_engine_config *config,
                              size_t struct_size);

// [any] Opens an engine on a model folder, and stores it in *engine. Reading the files is most of the time it takes.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_engine_new(const nvllm_engine_config *config,
                              nvllm_engine **engine,
                              nvllm_error *error);

// Ends an engine with all its requests, and joins its threads. NULL is allowed.
//
// Inside a callback of the same engine, or while another thread is inside a call, the engine ends when that call returns;
// none of its callbacks is called again. In the child of a fork() nothing is freed.
NVLLM_API
void nvllm_engine_free(struct nvllm_engine *engine);

// [any] Facts about the model.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_engine_model_info(const nvllm_engine *engine,
                                     nvllm_model_info *info,
                                     nvllm_error *error);

/* ---- Requests: prompts in -----------------------------------------------
 * Who runs: higher priority first, then first come, first served. Nobody overtakes an older request of its own priority, not
 * even one that would fit where the older does not. Of what runs, each brings one token to a pass, and the rest of
 * max_batched_tokens goes to prompts, cut where need be, so that a long prompt stalls nobody. When the KV cache is full, the
 * youngest of the lowest priority gives its blocks back and waits in its old place; its answer stays the same.
 * The oldest request of the highest priority is never stopped, so each one ends in its turn. A lower priority may wait for as
 * long as higher ones keep coming: max_wait_us and max_queue bound that.
 */

// What is made of a prompt's final hidden states, which are those after the model's last norm.
typedef enum nvllm_pooling {
  // Nothing: the request generates.
  NVLLM_POOLING_NONE = 0,
  // The state of the last token.
  NVLLM_POOLING_LAST = 1,
  // The mean of all tokens' states. Such a request takes nothing from the prefix cache, which has no hidden states.
  NVLLM_POOLING_MEAN = 2,
} nvllm_pooling;

// What kind of text structure is.
typedef enum nvllm_structure {
  // None: the answer is free.
  NVLLM_STRUCTURE_NONE = 0,
  // A JSON schema: the answer is JSON that it accepts. {} accepts any JSON.
  NVLLM_STRUCTURE_JSON_SCHEMA = 1,
  // A regular expression of Rust's syntax, which the whole answer matches.
  NVLLM_STRUCTURE_REGEX = 2,
  // A context-free grammar in the dialect of Lark that llguidance reads; its first rule is called start.
  NVLLM_STRUCTURE_LARK = 3,
} nvllm_structure;

// What one request asks for. nvllm_request_options_init sets the defaults.
//
// Where a function takes options, NULL means what nvllm_default_options fills in: these defaults with the sampling that the
// model's generation_config.json recommends.
typedef struct nvllm_request_options {
  // sizeof(nvllm_request_options), set by nvllm_request_options_init.
  size_t struct_size;
  // Echoed in every output: an index, a pointer, a handle.
  uint64_t tag;
  // Tokens to generate at most, from 1; default UINT32_MAX, which is as far as max_model_len and the KV cache allow.
  uint32_t max_tokens;
  // Tokens before which neither EOS nor a stop token nor the end of a stop string may come; default 0.
  uint32_t min_tokens;
  // 0, the default, always takes the likeliest token; greater values vary more.
  float temperature;
  // Sample from the likeliest tokens that together have this probability, above 0 and up to 1; default 1 = all.
  float top_p;
  // Drop tokens less likely than this share of the likeliest one, 0 to 1; default 0 = none.
  float min_p;
  // Sample from so many of the likeliest tokens; default 0 = all.
  uint32_t top_k;
  // Divides the positive logits of tokens that the prompt or the answer has, and multiplies their negative ones: above 0,
  // and more than 1 makes them rarer; default 1 = off. As in transformers.
  float repetition_penalty;
  // Is taken from the logit of each token that the answer has; any finite number, default 0. As in the OpenAI API.
  float presence_penalty;
  // Is taken from the logit of a token once for each time that the answer has it; any finite number, default 0.
  float frequency_penalty;
  // The request's own random stream: the same seed, prompt and options give the same answer. 0, the default, draws from
  // the engine's seed and the request's id.
  uint64_t seed;
  // 0 or 1: the model's end tokens are tokens like any other; default 0.
  uint32_t ignore_eos;
  // Higher runs first; default 0.
  int32_t priority;
  // Strings that end the answer, NUL-terminated UTF-8: its text ends before the first of them to be complete, also where
  // tokens cut it. token_ids have all tokens, those that spell the string too. Needs a tokenizer.
  const char *const *stop;
  // Length of `stop`, at most NVLLM_MAX_STOP_STRINGS; default 0. Each has at most NVLLM_MAX_STOP_STRING_BYTES.
  size_t num_stop;
  // Tokens that end the answer, besides EOS.
  const uint32_t *stop_tokens;
  // Length of `stop_tokens`, at most NVLLM_MAX_STOP_TOKENS; default 0.
  size_t num_stop_tokens;
  // bias_values[i] is added to the logit of bias_tokens[i], after the penalties; each token once.
  const uint32_t *bias_tokens;
  // As many as bias_tokens: finite, or minus infinity for a token that never comes.
  const float *bias_values;
  // Length of `bias_tokens` and `bias_values`, at most NVLLM_MAX_BIASES; default 0.
  size_t num_bias;
  // 0, the default, is none; else outputs bring the log-probability of each token and those of so many of the likeliest, up
  // to 64. They are the model's own: before penalties, biases, temperature and filters.
  uint32_t num_logprobs;
  // Completions of this prompt, 1 to NVLLM_MAX_COMPLETIONS; default 1. They share the KV blocks of the prompt, which is computed once, and
  // each has its own outputs, told apart by index. Completion i draws as a request with seed + i does.
  uint32_t n;
  // 0, the default, is sampling; from 2 on beam search with so many beams, whose n best answers come as completions 0 to
  // n - 1, best first, all at the end. As transformers' num_beams. At most 32, and 64 / (1 + end tokens). It takes neither
  // temperature, penalties, biases, stop strings nor num_logprobs.
  uint32_t beam_width;
  // Answers of beam search are compared by the sum of their log-probabilities divided by their length to the power of this:
  // more than 0 favours long ones; any finite number, default 1.
  float length_penalty;
  // 0 or 1: the token that stopped the answer is part of its tokens and text, or the string of its text; default 0.
  uint32_t include_stop;
  // How long the request may wait until it first runs: a step that finds it waiting after that ends it with
  // NVLLM_FINISH_EXPIRED. 0, the default, is for ever.
  uint64_t max_wait_us;
  // Requests with different salts share no KV blocks, so that no tenant can tell by time what another one has asked.
  // Default 0, which is a salt like any other.
  uint64_t cache_salt;
  // 0 or 1: the full KV blocks of the prompt stay in the prefix cache when the request has ended, until
  // nvllm_release_prefix; default 0. All pins together may take what a sequence of max_model_len tokens leaves of the KV
  // cache, so that no request waits for ever; beyond that the answer is NVLLM_ERR_OUT_OF_MEMORY.
  uint32_t pin_prompt;
  // NVLLM_POOLING_*; default NVLLM_POOLING_NONE. With another value the request generates nothing, and its one output has an
  // embedding of the prompt and NVLLM_FINISH_STOP; n must be 1, beam_width 0, and what concerns generating is not looked at.
  uint32_t pooling;
  // As num_logprobs, of the prompt: the output with the first token brings them, of completion 0 where n is more. All of the
  // prompt is computed then, without the prefix cache, and max_num_seqs tokens of it in a pass at most.
  uint32_t num_prompt_logprobs;
  // When beam search ends that has as many answers as beams: 0, the default, when the best beam, at its length, is no better
  // than the worst of them; 1 at once; 2 when no beam can become better than the worst of them. As transformers'
  // early_stopping False, True and "never".
  uint32_t early_stopping;
  // What the text of the answer has to be, of the kind that structure_kind says, NUL-terminated UTF-8 of at most
  // NVLLM_MAX_STRUCTURE_BYTES; default NULL. A refusal
  // says what is wrong with it. A text that came before is not compiled again.
  const char *structure;
  // One of NVLLM_STRUCTURE_*; default NVLLM_STRUCTURE_NONE. Of the tokens that the structure leaves, the other options
  // choose. It may end the answer before min_tokens, where nothing can follow; stop strings, stop tokens and max_tokens
  // may end it before it is complete. An answer that cannot go on ends with NVLLM_FINISH_ERROR. Needs a tokenizer.
  int32_t structure_kind;
} nvllm_request_options;

// [any] Sets the defaults, for nvllm_request_options_init(&options, sizeof options). Writes struct_size bytes at most.
NVLLM_API
void nvllm_request_options_init(struct nvllm_request_options *options,
                                size_t struct_size);

// [any] Fills *options with what NULL options mean: the defaults of nvllm_request_options_init with the sampling that the
// model's generation_config.json recommends. So a caller can change one field and keep the rest.
//
// Set options->struct_size before, to sizeof or by nvllm_request_options_init; at most so many bytes are written. A request
// with the options unchanged is the same as one with NULL. The recommendation is temperature, top_p, top_k and min_p where
// the file says do_sample, and repetition_penalty in any case; a model without the file recommends nothing.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_default_options(const nvllm_engine *engine,
                                   nvllm_request_options *options,
                                   nvllm_error *error);

// [any] Queues a prompt of prompt_len bytes. Special tokens that the text spells out are understood, as a chat template
// needs it. options may be NULL; request_id, where the id is stored, too. Ids start at 1 and are never used twice.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_add_request(nvllm_engine *engine,
                               const char *prompt,
                               size_t prompt_len,
                               const nvllm_request_options *options,
                               uint64_t *request_id,
                               nvllm_error *error);

// [any] Queues a prompt of tokens, which are taken as they are.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_add_request_tokens(nvllm_engine *engine,
                                      const uint32_t *tokens,
                                      size_t num_tokens,
                                      const nvllm_request_options *options,
                                      uint64_t *request_id,
                                      nvllm_error *error);

// [any] Asks for a request to end, with all its completions: their last outputs have NVLLM_FINISH_CANCELLED.
// NVLLM_ERR_NOT_FOUND when it has ended, or never was.
NVLLM_API nvllm_status nvllm_cancel(nvllm_engine *engine, uint64_t request_id);

/* ---- Stepping, and outputs ---------------------------------------------- */

// How a completion ended.
typedef enum nvllm_finish {
  // It goes on.
  NVLLM_FINISH_NONE = 0,
  // By an EOS or stop token, or a stop string.
  NVLLM_FINISH_STOP = 1,
  // By max_tokens, max_model_len, or the size of the KV cache.
  NVLLM_FINISH_LENGTH = 2,
  // By nvllm_cancel, or by a callback.
  NVLLM_FINISH_CANCELLED = 3,
  // By a failure: see status and error_message.
  NVLLM_FINISH_ERROR = 4,
  // By max_wait_us: it never ran.
  NVLLM_FINISH_EXPIRED = 5,
} nvllm_finish;

// What one nvllm_step did.
typedef struct nvllm_step_result {
  // sizeof(nvllm_step_result), set by the caller.
  size_t struct_size;
  // Outputs that wait to be polled.
  uint32_t num_outputs;
  // Sequences that run.
  uint32_t num_running;
  // Requests that wait; each of their completions counts.
  uint32_t num_waiting;
  // Forward passes finished in this call.
  uint32_t num_iterations;
  // 1 when a pass was begun and is not finished.
  uint32_t in_flight;
  // Prompt tokens computed in this call, cached ones not counted.
  uint32_t prefill_tokens;
  // Tokens generated in this call.
  uint32_t decode_tokens;
  // Microseconds spent in this call.
  uint64_t elapsed_us;
} nvllm_step_result;

// News of one completion of a request: what is new since its last output, and how it ended if it did.
typedef struct nvllm_output {
  // sizeof(nvllm_output), set by the caller of nvllm_poll_output and nvllm_result_get.
  size_t struct_size;
  // The request.
  uint64_t request_id;
  // As in its options.
  uint64_t tag;
  // New tokens.
  const uint32_t *token_ids;
  // Of these, how many.
  size_t num_token_ids;
  // New text, in whole characters: one that is cut by a token's end waits for its rest, and so does text that may become
  // a stop string. UTF-8 and NUL-terminated.
  const char *text;
  // Its bytes, the NUL not counted.
  size_t text_len;
  // Which of the request's completions, from 0.
  uint32_t index;
  // NVLLM_FINISH_*.
  int32_t finish_reason;
  // Why, when finish_reason is NVLLM_FINISH_ERROR; else NVLLM_OK.
  nvllm_status status;
  // Tokens of the prompt.
  uint32_t prompt_tokens;
  // Of these, taken over from the prefix cache, or from another completion of the request.
  uint32_t cached_tokens;
  // Tokens generated so far.
  uint32_t completion_tokens;
  // From adding the request to its first token or its embedding; 0 before that.
  uint64_t time_to_first_token_us;
  // Natural logarithms of the probabilities of token_ids, by the model alone: before penalties, biases, temperature and
  // filters. [num_token_ids], or NULL where num_logprobs is 0 or there are no new tokens.
  const float *logprobs;
  // The likeliest tokens in their places, likeliest first, the lowest first among equals; UINT32_MAX where the model gives
  // fewer any probability. [num_token_ids, num_logprobs], or NULL.
  const uint32_t *top_tokens;
  // Their log-probabilities. [num_token_ids, num_logprobs], or NULL.
  const float *top_logprobs;
  // The sum of all logprobs of the completion so far; of an answer that beam search found, its end token counts too.
  float cumulative_logprob;
  // In words, when finish_reason is NVLLM_FINISH_ERROR; else NULL. UTF-8 and NUL-terminated.
  const char *error_message;
  // What pooling asked for, in the output that ends the request; else NULL. Not normalized: divide by its length where a
  // cosine is wanted. [embedding_len]
  const float *embedding;
  // hidden_size of the model, or 0.
  size_t embedding_len;
  // As in the request's options.
  uint32_t num_logprobs;
  // As in the request's options; 0 where this output brings none.
  uint32_t num_prompt_logprobs;
  // Log-probability of each token of the prompt but the first after those before it. [prompt_tokens - 1], or NULL where
  // num_prompt_logprobs is 0 or the prompt has one token.
  const float *prompt_logprobs;
  // As top_tokens. [prompt_tokens - 1, num_prompt_logprobs], or NULL.
  const uint32_t *prompt_top_tokens;
  // Their log-probabilities. [prompt_tokens - 1, num_prompt_logprobs], or NULL.
  const float *prompt_top_logprobs;
  // Of an answer that beam search found: cumulative_logprob divided by completion_tokens to the power of length_penalty. Else
  // 0.
  float score;
} nvllm_output;

// Takes one output, which is valid during the call only. Another answer than 0 cancels that request.
typedef int32_t (*nvllm_output_fn)(const nvllm_output *output, void *user_data);

// [one] Works on the requests.
//
// budget_us = 0 makes exactly one forward pass, to its end. A greater budget works until that many microseconds are spent,
// then returns, also in the middle of a pass, which the next call takes up: on the CPU a pass is cut between two layers.
// When several passes fit, several are made. result may be NULL. Returns at once when there is nothing to do.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_step(nvllm_engine *engine,
                        uint64_t budget_us,
                        nvllm_step_result *result,
                        nvllm_error *error);

// [any] 1 when nothing waits, runs, or is queued for polling; else 0. 1 also for an engine that cannot go on.
NVLLM_API int32_t nvllm_is_finished(const nvllm_engine *engine);

// [one] Takes the oldest output; NVLLM_NO_OUTPUT when none waits. The pointers in *output stay valid until the next [one]
// call on this engine.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_poll_output(nvllm_engine *engine,
                               nvllm_output *output,
                               nvllm_error *error);

// [one] Pushes outputs to a callback instead: it is called inside nvllm_step, and for other requests inside nvllm_generate,
// on the calling thread. NULL goes back to polling.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_set_output_callback(nvllm_engine *engine,
                                       nvllm_output_fn callback,
                                       void *user_data,
                                       nvllm_error *error);

/* ---- Batch convenience: many prompts in one call ------------------------ */

// What nvllm_generate made. Ended by nvllm_result_free; it does not need its engine any more.
typedef struct nvllm_result nvllm_result;

// How far nvllm_generate is.
typedef struct nvllm_progress {
  // sizeof(nvllm_progress), set by the library.
  size_t struct_size;
  // Completions that have ended.
  size_t finished;
  // Completions in all.
  size_t total;
  // Prompt tokens per second, over the last steps.
  double prefill_tokens_per_s;
  // Generated tokens per second, over the last steps.
  double decode_tokens_per_s;
  // Since the call began.
  uint64_t elapsed_us;
} nvllm_progress;

// Hears about progress after every step; it is valid during the call only. Another answer than 0 cancels.
typedef int32_t (*nvllm_generate_progress_fn)(const nvllm_progress *progress, void *user_data);

// [one] Generates for all prompts, and stores the results in *result: in the order of the prompts, and of a prompt as many
// as its options ask for by n, in the order of their index.
//
// prompt_lens may be NULL when the prompts are NUL-terminated. options points to num_options pointers, each of which may
// be NULL: none for the defaults of the model, one for all prompts, or one a prompt. Options for all prompts that make no
// sense fail the call. The results of a prompt that cannot run, or whose own options make no sense, have
// NVLLM_FINISH_ERROR, and the others go on. progress may be NULL; when it cancels, the call returns NVLLM_ERR_CANCELLED
// without a result. Requests added before go on meanwhile.
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

// [one] nvllm_generate for prompts of tokens; prompt_lens is required.
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

// [any] How many results there are: for each prompt, as many as its n, or one where its n makes no sense. 0 for NULL.
NVLLM_API
size_t nvllm_result_count(const struct nvllm_result *result);

// [any] Shows one completion, with all its tokens and text. The pointers in *output stay valid until
// nvllm_result_free.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_result_get(const nvllm_result *result,
                              size_t index,
                              nvllm_output *output);

// Ends a result. NULL is allowed.
NVLLM_API void nvllm_result_free(nvllm_result *result);

/* ---- State: prefixes that stay, travel, and fork ------------------------
 * Keys and values of a prompt stay in the prefix cache when its request ends, block by block, until their blocks are needed
 * for something else, least recently used first. A later prompt that begins with the same blocks, and has the same
 * cache_salt, takes them over. nvllm_get_stats tells how often.
 *
 * A prefix can be saved as bytes, and restored in another process, also on another device, with the same model, number type
 * and kv_block_size: requests that begin with it go on as if they had been computed there. A checksum tells damage, not
 * intent: restore only what you would let write your prompts.
 */

// [one] Forgets all prefixes that no sequence holds and that are not pinned, so that later prompts are computed anew.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_reset_prefix_cache(nvllm_engine *engine,
                                      nvllm_error *error);

// [any] Ends what pin_prompt began: from the next step on, the prompt of that request may be evicted. NVLLM_ERR_NOT_FOUND
// when it was released before, was not to be pinned, or when its request ended before the prompt was computed.
NVLLM_API
nvllm_status nvllm_release_prefix(nvllm_engine *engine,
                                  uint64_t request_id);

// [one] Saves the longest prefix of these tokens that the prefix cache has for this cache_salt, in whole KV blocks: that of a
// request that has ended, or of one that runs, as far as it is computed. saved_tokens may be NULL.
//
// The buffer is used as by nvllm_tokenize. NVLLM_ERR_NOT_FOUND when the cache has not one block of it.
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

// [one] Puts a saved prefix into the prefix cache, where the next request that begins with its tokens, and has its cache_salt,
// finds it. restored_tokens may be NULL.
//
// Its blocks are as free as those of any prompt that has ended: add the request soon, with pin_prompt if it is to stay.
// NVLLM_ERR_INVALID_ARGUMENT when the bytes are damaged or of another model, NVLLM_ERR_OUT_OF_MEMORY when too few blocks are
// free. Nothing has changed then.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_restore_prefix(nvllm_engine *engine,
                                  const uint8_t *bytes,
                                  size_t num_bytes,
                                  size_t *restored_tokens,
                                  nvllm_error *error);

// [one] Adds a request whose prompt is all that a live one has so far: its prompt, and what its completion `index` has
// generated. The KV blocks that are computed are shared, and so is its cache_salt. Its outputs begin with what comes next.
//
// options and new_request_id are used as by nvllm_add_request. NVLLM_ERR_NOT_FOUND when that completion has ended, or never
// was.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_fork(nvllm_engine *engine,
                        uint64_t request_id,
                        uint32_t index,
                        const nvllm_request_options *options,
                        uint64_t *new_request_id,
                        nvllm_error *error);

/* ---- Tokenizer and chat template ----------------------------------------
 * Buffers: *needed is always stored. When capacity is too small, nothing else is written and the answer is
 * NVLLM_ERR_BUFFER_TOO_SMALL; (NULL, 0) asks for the size. Text is NUL-terminated, and the NUL is counted in *needed.
 * As a rule text_len + 16 tokens suffice; a normalizer may grow rare text, so follow *needed.
 */

// Flags of nvllm_tokenize and nvllm_detokenize.
typedef enum nvllm_tokenize_flags {
  // Add the tokens that begin and end a text, as the model's tokenizer does. It changes nothing on the way back.
  NVLLM_TOKENIZE_ADD_SPECIAL = 1,
  // The spelling of a special token, such as <|im_end|>, becomes that token; on the way back, it is spelled out. Without
  // it the spelling stays text, so that a user's text cannot forge a turn, and on the way back it leaves no text.
  NVLLM_TOKENIZE_PARSE_SPECIAL = 2,
} nvllm_tokenize_flags;

// [any] The tokens of a text. flags: NVLLM_TOKENIZE_*.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_tokenize(const nvllm_engine *engine,
                            const char *text,
                            size_t text_len,
                            uint32_t flags,
                            uint32_t *tokens,
                            size_t capacity,
                            size_t *needed,
                            nvllm_error *error);

// [any] The text of tokens; bytes that are no UTF-8 become U+FFFD. flags: NVLLM_TOKENIZE_*.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_detokenize(const nvllm_engine *engine,
                              const uint32_t *tokens,
                              size_t num_tokens,
                              uint32_t flags,
                              char *text,
                              size_t capacity,
                              size_t *needed,
                              nvllm_error *error);

// [any] The prompt of a conversation, by the model's chat template.
//
// messages_json is an array of objects with "role" and "content". options_json may be NULL; else it is an object:
// "add_generation_prompt" (default true), "tools", "documents", and any variable that the template knows, such as
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

/* ---- Statistics --------------------------------------------------------- */

// Counters since the engine opened, and gauges of now.
typedef struct nvllm_stats {
  // sizeof(nvllm_stats), set by the caller.
  size_t struct_size;
  // Forward passes.
  uint64_t steps;
  // Prompt tokens computed.
  uint64_t prompt_tokens;
  // Prompt tokens taken over from the prefix cache, or from another completion.
  uint64_t cached_tokens;
  // Tokens generated.
  uint64_t generated_tokens;
  // Sequences that had to give their KV blocks back.
  uint64_t preemptions;
  // Microseconds spent in passes.
  uint64_t step_time_us;
  // Sequences that run.
  uint32_t running;
  // Requests that wait; each of their completions counts.
  uint32_t waiting;
  // Blocks of the KV cache.
  uint32_t kv_blocks_total;
  // Of these, held by sequences or pinned.
  uint32_t kv_blocks_used;
  // Messages that the log lost because nobody took them, over the whole process.
  uint64_t log_messages_dropped;
  // Tokens looked up in the prefix cache: all of a sequence each time it begins to run, so again after a preemption.
  uint64_t prefix_cache_queries;
  // Of these, tokens that were found and need not be computed.
  uint64_t prefix_cache_hits;
  // Blocks that the prefix cache lost because they were needed for something else.
  uint64_t prefix_cache_evictions;
  // Blocks promised to pinned prompts; a block counts for each prompt that has it.
  uint32_t kv_blocks_pinned;
} nvllm_stats;

// [any] Reads the statistics.
NVLLM_API NVLLM_MUST_USE
nvllm_status nvllm_get_stats(const nvllm_engine *engine,
                             nvllm_stats *stats,
                             nvllm_error *error);

// [any] The statistics and more in the text format of Prometheus, version 0.0.4: how requests ended, and histograms of the
// time to the first token, between tokens, in the queue and of a pass, and of the sequences in a pass.
//
// The buffer is used as by nvllm_tokenize, with a NUL; 16 KiB always suffice. Names begin with nanovllm_. A program with
// several engines serves each text under an address of its own, since no name tells the engine.
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

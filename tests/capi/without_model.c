/* What needs no model: versions, names, defaults, and configs that open no engine. */
#include "check.h"

#include <math.h>

/* An address at which nobody listens. */
#ifdef _WIN32
#define NOWHERE "127.0.0.1:1"
#else
#define NOWHERE "unix:/nonexistent/rendezvous"
#endif

static void versions_agree(void) {
  char wanted[32];
  snprintf(wanted, sizeof wanted, "%d.%d.%d", NVLLM_VERSION_MAJOR, NVLLM_VERSION_MINOR, NVLLM_VERSION_PATCH);
  CHECK(strcmp(nvllm_version(), wanted) == 0, "header %s, library %s", wanted, nvllm_version());
  CHECK(nvllm_abi_version() == NVLLM_ABI_VERSION, "library %u", nvllm_abi_version());
  CHECK(strstr(nvllm_build_info(), "\"backends\":[\"cpu\"") != NULL, "%s", nvllm_build_info());
  CHECK(nvllm_build_info() == nvllm_build_info(), "a static string");
}

static void every_status_has_a_name(void) {
  for (nvllm_status status = NVLLM_ERR_PEER; status <= NVLLM_TIMEOUT; status++) {
    CHECK(strncmp(nvllm_status_name(status), "NVLLM_", 6) == 0, "%d", status);
  }
  CHECK(strcmp(nvllm_status_name(NVLLM_ERR_BUSY), "NVLLM_ERR_BUSY") == 0, "%s", nvllm_status_name(NVLLM_ERR_BUSY));
  CHECK(strcmp(nvllm_status_name(1000), "unknown status") == 0, "%s", nvllm_status_name(1000));
}

static void init_sets_the_documented_defaults(void) {
  nvllm_engine_config config;
  memset(&config, 0xff, sizeof config);
  nvllm_engine_config_init(&config, sizeof config);
  CHECK(config.struct_size == sizeof config, "%zu", config.struct_size);
  CHECK(config.model_path == NULL && config.progress == NULL && config.progress_user_data == NULL, "pointers");
  CHECK(config.device == NVLLM_DEVICE_AUTO && config.dtype == NVLLM_DTYPE_AUTO, "device and dtype");
  CHECK(config.enable_prefix_cache == 1 && config.tensor_parallel_size == 1, "ones");
  CHECK(config.num_threads == 0 && config.max_model_len == 0 && config.seed == 0, "zeros");
  CHECK(config.memory_utilization == 0.0f && config.kv_cache_bytes == 0, "memory");
  CHECK(config.device_indices == NULL && config.num_device_indices == 0, "devices");
  CHECK(config.num_processes == 0 && config.process_index == 0 && config.rendezvous == NULL, "processes");

  nvllm_request_options options;
  memset(&options, 0xff, sizeof options);
  nvllm_request_options_init(&options, sizeof options);
  CHECK(options.struct_size == sizeof options, "%zu", options.struct_size);
  CHECK(options.max_tokens == UINT32_MAX && options.min_tokens == 0, "tokens");
  CHECK(options.temperature == 0.0f && options.top_p == 1.0f && options.min_p == 0.0f && options.top_k == 0, "greedy");
  CHECK(options.n == 1 && options.length_penalty == 1.0f && options.repetition_penalty == 1.0f, "neutral");
  CHECK(options.num_stop == 0 && options.num_stop_tokens == 0 && options.num_bias == 0, "no lists");
  CHECK(options.num_score_tokens == 0 && options.truncate_prompt_tokens == 0, "no scores, and nothing is cut");
}

static void init_stays_within_the_size_given(void) {
  unsigned char memory[sizeof(nvllm_engine_config) + 16];
  for (size_t size = 0; size <= sizeof memory; size++) {
    memset(memory, 0xaa, sizeof memory);
    nvllm_engine_config_init((nvllm_engine_config *)(void *)memory, size);
    size_t untouched = 0;
    for (size_t i = size; i < sizeof memory; i++) untouched += memory[i] == 0xaa;
    CHECK(untouched == sizeof memory - size, "size %zu", size);
  }
  nvllm_engine_config_init(NULL, sizeof(nvllm_engine_config));
  nvllm_request_options_init(NULL, sizeof(nvllm_request_options));
}

/* Of a struct that calls fill, all but struct_size is 0, also what a newer program's struct has more. */
static void init_zeroes_what_calls_fill(void) {
#define ZEROED(type, init)                                                                 \
  do {                                                                                     \
    union {                                                                                \
      type of;                                                                             \
      unsigned char bytes[sizeof(type) + 16];                                              \
    } place;                                                                               \
    for (size_t size = 0; size <= sizeof place.bytes; size += 8) {                         \
      memset(&place, 0xaa, sizeof place);                                                  \
      init(&place.of, size);                                                               \
      size_t wrong = size >= 8 && place.of.struct_size != size;                            \
      for (size_t i = 8; i < size; i++) wrong += place.bytes[i] != 0;                      \
      for (size_t i = size; i < sizeof place.bytes; i++) wrong += place.bytes[i] != 0xaa;  \
      CHECK(wrong == 0, "%s: %zu bytes of %zu", #init, wrong, size);                       \
    }                                                                                      \
    init(NULL, sizeof(type));                                                              \
  } while (0)
  ZEROED(nvllm_model_info, nvllm_model_info_init);
  ZEROED(nvllm_step_result, nvllm_step_result_init);
  ZEROED(nvllm_output, nvllm_output_init);
  ZEROED(nvllm_stats, nvllm_stats_init);
#undef ZEROED
}

/* A config that must not open an engine, and what its message must name. */
static void refused(const char *name, const nvllm_engine_config *config, nvllm_status wanted, const char *word) {
  nvllm_error error;
  nvllm_engine *engine = (nvllm_engine *)&error;
  nvllm_status status = nvllm_engine_new(config, &engine, &error);
  CHECK(status == wanted, "%s: %s: %s", name, nvllm_status_name(status), error.message);
  CHECK(error.status == status, "%s: the error says %d", name, error.status);
  CHECK(strstr(error.message, word) != NULL, "%s: no '%s' in: %s", name, word, error.message);
  CHECK(engine == (nvllm_engine *)&error, "%s: *engine was written", name);
  CHECK(nvllm_engine_new(config, &engine, NULL) == wanted, "%s: without an error to write", name);
}

static void bad_configs_say_what_is_wrong(void) {
  nvllm_engine_config good, config;
  nvllm_engine_config_init(&good, sizeof good);
  good.model_path = "/no/such/folder";

  refused("missing folder", &good, NVLLM_ERR_IO, "/no/such/folder");
  refused("no config", NULL, NVLLM_ERR_INVALID_ARGUMENT, "config");
#define WITH(field, value, wanted, word) \
  config = good;                         \
  config.field = (value);                \
  refused(#field, &config, (wanted), (word))
  WITH(model_path, NULL, NVLLM_ERR_INVALID_ARGUMENT, "model_path");
  WITH(model_path, "\xff\xfe", NVLLM_ERR_INVALID_ARGUMENT, "UTF-8");
  WITH(model_path, "/etc/passwd", NVLLM_ERR_MODEL, "/etc/passwd");
  WITH(struct_size, 0, NVLLM_ERR_INVALID_ARGUMENT, "struct_size");
  WITH(struct_size, SIZE_MAX, NVLLM_ERR_INVALID_ARGUMENT, "struct_size");
  WITH(struct_size, 20, NVLLM_ERR_INVALID_ARGUMENT, "struct_size");
  WITH(struct_size, 8, NVLLM_ERR_INVALID_ARGUMENT, "model_path");
  WITH(device, 3, NVLLM_ERR_INVALID_ARGUMENT, "device");
  WITH(device, -1, NVLLM_ERR_INVALID_ARGUMENT, "device");
  WITH(device, NVLLM_DEVICE_CUDA, NVLLM_ERR_UNSUPPORTED, "CUDA");
  good.device = NVLLM_DEVICE_CPU;
  WITH(device_index, 1, NVLLM_ERR_INVALID_ARGUMENT, "device_index");
  WITH(host_expert_layers, 1, NVLLM_ERR_INVALID_ARGUMENT, "host_expert_layers");
  good.device = NVLLM_DEVICE_AUTO;
  WITH(device_index, -1, NVLLM_ERR_INVALID_ARGUMENT, "device_index");
  WITH(dtype, 4, NVLLM_ERR_INVALID_ARGUMENT, "dtype");
  WITH(enable_prefix_cache, 2, NVLLM_ERR_INVALID_ARGUMENT, "enable_prefix_cache");
  WITH(enforce_eager, 2, NVLLM_ERR_INVALID_ARGUMENT, "enforce_eager");
  WITH(batch_invariant, 2, NVLLM_ERR_INVALID_ARGUMENT, "batch_invariant");
  WITH(load_mode, 2, NVLLM_ERR_INVALID_ARGUMENT, "load_mode");
  WITH(load_mode, -1, NVLLM_ERR_INVALID_ARGUMENT, "load_mode");
  WITH(kv_cache_dtype, 2, NVLLM_ERR_INVALID_ARGUMENT, "kv_cache_dtype");
  WITH(kv_cache_dtype, -1, NVLLM_ERR_INVALID_ARGUMENT, "kv_cache_dtype");
  WITH(quantization, 3, NVLLM_ERR_INVALID_ARGUMENT, "quantization is 3, but must be one of NVLLM_QUANTIZATION_*, 0 to 2");
  WITH(host_expert_layers, -2, NVLLM_ERR_INVALID_ARGUMENT, "host_expert_layers");
  WITH(quantization, -1, NVLLM_ERR_INVALID_ARGUMENT, "quantization");
  WITH(tensor_parallel_size, 1025, NVLLM_ERR_INVALID_ARGUMENT, "tensor_parallel_size");
  WITH(num_device_indices, 1, NVLLM_ERR_INVALID_ARGUMENT, "device_indices");
  const int32_t negative = -1, two[] = {0, 0};
  good.num_device_indices = 1;
  WITH(device_indices, &negative, NVLLM_ERR_INVALID_ARGUMENT, "device_indices");
  good.num_device_indices = 2;
  WITH(device_indices, two, NVLLM_ERR_INVALID_ARGUMENT, "num_device_indices");
  good.tensor_parallel_size = 2;
  WITH(device_indices, two, NVLLM_ERR_INVALID_ARGUMENT, "0 twice");
  good.num_device_indices = 0;
  good.tensor_parallel_size = 1;
  WITH(process_index, 1, NVLLM_ERR_INVALID_ARGUMENT, "process_index");
  WITH(num_processes, 2, NVLLM_ERR_INVALID_ARGUMENT, "rendezvous is NULL, but must be \"host:port\" or \"unix:/path\"");
  good.num_processes = 2;
  WITH(process_index, 2, NVLLM_ERR_INVALID_ARGUMENT, "process_index is 2, but must be less than num_processes");
  WITH(rendezvous, "nowhere", NVLLM_ERR_INVALID_ARGUMENT, "rendezvous is \"nowhere\", but must be \"host:port\"");
  good.rendezvous = NOWHERE;
  WITH(tensor_parallel_size, 3, NVLLM_ERR_INVALID_ARGUMENT,
       "tensor_parallel_size is 3, with 2 processes, but must be a multiple of num_processes");
  good.rendezvous = NULL;
  good.num_processes = 0;
  WITH(memory_utilization, 1.5f, NVLLM_ERR_INVALID_ARGUMENT, "memory_utilization");
  WITH(memory_utilization, -0.5f, NVLLM_ERR_INVALID_ARGUMENT, "memory_utilization");
  WITH(memory_utilization, NAN, NVLLM_ERR_INVALID_ARGUMENT, "memory_utilization");
#undef WITH

  nvllm_error error;
  CHECK(nvllm_engine_new(&good, NULL, &error) == NVLLM_ERR_INVALID_ARGUMENT, "no place for the engine");
  CHECK(strcmp(error.message, "engine is NULL") == 0, "%s", error.message);
}

static void a_newer_callers_config_is_understood_while_it_says_nothing_new(void) {
  struct {
    nvllm_engine_config config;
    uint64_t unknown;
  } newer;
  memset(&newer, 0, sizeof newer);
  nvllm_engine_config_init(&newer.config, sizeof newer);
  newer.config.model_path = "/no/such/folder";
  refused("zero tail", &newer.config, NVLLM_ERR_IO, "/no/such/folder");
  newer.unknown = 1;
  refused("tail in use", &newer.config, NVLLM_ERR_INVALID_ARGUMENT, "newer libnanovllm");
}

static void a_folder_that_cannot_be_quantized_is_refused(void) {
  nvllm_error error;
#define QUANTIZE(wanted, word, ...)                                                                        \
  do {                                                                                                      \
    CHECK_STATUS((wanted), nvllm_quantize_folder(__VA_ARGS__, NULL, NULL, &error), &error, #__VA_ARGS__);   \
    CHECK(strstr(error.message, (word)) != NULL, "no '%s' in: %s", (word), error.message);                  \
  } while (0)
  QUANTIZE(NVLLM_ERR_INVALID_ARGUMENT, "model_path", NULL, "/tmp/none", NVLLM_QUANTIZATION_INT8);
  QUANTIZE(NVLLM_ERR_INVALID_ARGUMENT, "to", "/no/such/folder", NULL, NVLLM_QUANTIZATION_INT8);
  QUANTIZE(NVLLM_ERR_IO, "/no/such/folder", "/no/such/folder", "/tmp/none", NVLLM_QUANTIZATION_INT8);
  QUANTIZE(NVLLM_ERR_INVALID_ARGUMENT, "quantization is 9", "/tmp", "/tmp/none", 9);
  QUANTIZE(NVLLM_ERR_INVALID_ARGUMENT, "quantization is 0", "/tmp", "/tmp/none", NVLLM_QUANTIZATION_NONE);
#undef QUANTIZE
}

static void handles_may_be_null(void) {
  nvllm_error error;
  nvllm_step_result step = {.struct_size = sizeof step};
  nvllm_model_info info = {.struct_size = sizeof info};
  nvllm_stats stats = {.struct_size = sizeof stats};
  nvllm_output output = {.struct_size = sizeof output};
  nvllm_result *result = NULL;
  const char *prompt = "a";
  const uint32_t token = 1;
  const uint32_t *tokens = &token;
  size_t len = 1, needed = 0;
  uint64_t id = 0;
  nvllm_engine_free(NULL);
  nvllm_result_free(NULL);
  nvllm_answer_parser_free(NULL);
  CHECK(nvllm_result_count(NULL) == 0, "no results");
  CHECK(nvllm_is_finished(NULL) == 1, "nothing to do");
#define NO_ENGINE(...)                                                                       \
  CHECK((__VA_ARGS__) == NVLLM_ERR_INVALID_ARGUMENT, "wanted NVLLM_ERR_INVALID_ARGUMENT");   \
  CHECK(strcmp(error.message, "engine is NULL") == 0, "%s", error.message)
  NO_ENGINE(nvllm_engine_model_info(NULL, &info, &error));
  NO_ENGINE(nvllm_add_request(NULL, "a", 1, NULL, &id, &error));
  NO_ENGINE(nvllm_add_request_tokens(NULL, &token, 1, NULL, &id, &error));
  NO_ENGINE(nvllm_step(NULL, 0, &step, &error));
  NO_ENGINE(nvllm_wait(NULL, 0, &error));
  NO_ENGINE(nvllm_wake(NULL, &error));
  NO_ENGINE(nvllm_cancel_with_error(NULL, 1, &error));
  NO_ENGINE(nvllm_release_prefix_with_error(NULL, 1, &error));
  NO_ENGINE(nvllm_poll_output(NULL, &output, &error));
  NO_ENGINE(nvllm_set_output_callback(NULL, NULL, NULL, &error));
  NO_ENGINE(nvllm_generate(NULL, &prompt, NULL, 1, NULL, 0, NULL, NULL, &result, &error));
  NO_ENGINE(nvllm_generate_tokens(NULL, &tokens, &len, 1, NULL, 0, NULL, NULL, &result, &error));
  const nvllm_message question = {"user", "a"};
  const nvllm_prompt one = {.struct_size = sizeof one, .text = "a"};
  NO_ENGINE(nvllm_generate_prompts(NULL, &one, 1, NULL, NULL, &result, &error));
  NO_ENGINE(nvllm_add_chat(NULL, &question, 1, NULL, NULL, &id, &error));
  NO_ENGINE(nvllm_apply_chat_template_messages(NULL, &question, 1, NULL, NULL, 0, &needed, &error));
  NO_ENGINE(nvllm_tokenize(NULL, "a", 1, 0, NULL, 0, &needed, &error));
  NO_ENGINE(nvllm_detokenize(NULL, &token, 1, 0, NULL, 0, &needed, &error));
  NO_ENGINE(nvllm_apply_chat_template(NULL, "[]", 2, NULL, 0, NULL, 0, &needed, &error));
  nvllm_answer_parser *parser = NULL;
  NO_ENGINE(nvllm_answer_parser_new(NULL, NULL, 0, NULL, &parser, &error));
  NO_ENGINE(nvllm_reset_prefix_cache(NULL, &error));
  NO_ENGINE(nvllm_trim(NULL, NULL, &error));
  NO_ENGINE(nvllm_save_prefix(NULL, &token, 1, 0, NULL, 0, &needed, NULL, &error));
  NO_ENGINE(nvllm_restore_prefix(NULL, NULL, 0, NULL, &error));
  NO_ENGINE(nvllm_fork(NULL, 1, 0, NULL, &id, &error));
  NO_ENGINE(nvllm_get_stats(NULL, &stats, &error));
  NO_ENGINE(nvllm_metrics_text(NULL, NULL, 0, &needed, &error));
#undef NO_ENGINE
  CHECK(nvllm_cancel(NULL, 1) == NVLLM_ERR_INVALID_ARGUMENT, "cancel");
  CHECK(nvllm_release_prefix(NULL, 1) == NVLLM_ERR_INVALID_ARGUMENT, "release");
  CHECK(nvllm_result_get(NULL, 0, &output) == NVLLM_ERR_INVALID_ARGUMENT, "result");
  CHECK(nvllm_result_get_with_error(NULL, 0, &output, &error) == NVLLM_ERR_INVALID_ARGUMENT, "result");
  CHECK(strcmp(error.message, "result is NULL") == 0, "%s", error.message);
}

int main(void) {
  versions_agree();
  every_status_has_a_name();
  init_sets_the_documented_defaults();
  init_stays_within_the_size_given();
  init_zeroes_what_calls_fill();
  bad_configs_say_what_is_wrong();
  a_newer_callers_config_is_understood_while_it_says_nothing_new();
  a_folder_that_cannot_be_quantized_is_refused();
  handles_may_be_null();
  return checks_end();
}

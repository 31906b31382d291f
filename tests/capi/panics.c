/* A panic at every entry point, before it enters its engine and inside, stops there. Needs a library with test-hooks. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <time.h>

static nvllm_engine *engine;
static nvllm_error error;

static void panic_at(const char *entry) { setenv("NVLLM_TEST_PANIC", entry, 1); }
static void no_panic(void) { unsetenv("NVLLM_TEST_PANIC"); }

static nvllm_status call_model_info(void) {
  nvllm_model_info info = {.struct_size = sizeof info};
  return nvllm_engine_model_info(engine, &info, &error);
}
static nvllm_status call_default_options(void) {
  nvllm_request_options options = {.struct_size = sizeof options};
  return nvllm_default_options(engine, &options, &error);
}
static nvllm_status call_expert_tokens(void) {
  size_t needed = 0;
  return nvllm_expert_tokens(engine, 0, NULL, 0, &needed, &error);
}
static nvllm_status call_add_request(void) { return nvllm_add_request(engine, "one", 3, NULL, NULL, &error); }
static nvllm_status call_add_request_tokens(void) {
  const uint32_t token = 5;
  return nvllm_add_request_tokens(engine, &token, 1, NULL, NULL, &error);
}
static nvllm_status call_cancel(void) { return nvllm_cancel(engine, 1); }
static nvllm_status call_step(void) { return nvllm_step(engine, 0, NULL, &error); }
static nvllm_status call_wait(void) { return nvllm_wait(engine, 0, &error); }
static nvllm_status call_wake(void) { return nvllm_wake(engine, &error); }
static nvllm_status call_cancel_with_error(void) { return nvllm_cancel_with_error(engine, 1, &error); }
static nvllm_status call_release_prefix_with_error(void) { return nvllm_release_prefix_with_error(engine, 1, &error); }
static nvllm_status call_poll_output(void) {
  nvllm_output output = {.struct_size = sizeof output};
  return nvllm_poll_output(engine, &output, &error);
}
static nvllm_status call_set_output_callback(void) { return nvllm_set_output_callback(engine, NULL, NULL, &error); }
static nvllm_status call_generate(void) {
  const char *prompt = "one";
  nvllm_result *result = NULL;
  nvllm_status status = nvllm_generate(engine, &prompt, NULL, 1, NULL, 0, NULL, NULL, &result, &error);
  CHECK(result == NULL, "a result was stored");
  return status;
}
static nvllm_status call_generate_tokens(void) {
  const uint32_t token = 5;
  const uint32_t *prompt = &token;
  const size_t len = 1;
  nvllm_result *result = NULL;
  nvllm_status status = nvllm_generate_tokens(engine, &prompt, &len, 1, NULL, 0, NULL, NULL, &result, &error);
  CHECK(result == NULL, "a result was stored");
  return status;
}
static nvllm_status call_generate_prompts(void) {
  nvllm_prompt prompt = {.struct_size = sizeof prompt, .text = "one"};
  nvllm_result *result = NULL;
  nvllm_status status = nvllm_generate_prompts(engine, &prompt, 1, NULL, NULL, &result, &error);
  CHECK(result == NULL, "a result was stored");
  return status;
}
static const nvllm_message question = {"user", "one"};
static nvllm_status call_add_chat(void) { return nvllm_add_chat(engine, &question, 1, NULL, NULL, NULL, &error); }
static nvllm_status call_apply_chat_template_messages(void) {
  size_t needed = 0;
  return nvllm_apply_chat_template_messages(engine, &question, 1, NULL, NULL, 0, &needed, &error);
}
static nvllm_status call_tokenize(void) {
  size_t needed = 0;
  return nvllm_tokenize(engine, "a", 1, 0, NULL, 0, &needed, &error);
}
static nvllm_status call_detokenize(void) {
  const uint32_t token = 5;
  size_t needed = 0;
  return nvllm_detokenize(engine, &token, 1, 0, NULL, 0, &needed, &error);
}
static nvllm_status call_answer_parser_new(void) {
  nvllm_answer_parser *parser = NULL;
  nvllm_status status = nvllm_answer_parser_new(engine, NULL, 0, NULL, &parser, &error);
  CHECK(parser == NULL, "a parser was stored");
  return status;
}
static nvllm_status call_apply_chat_template(void) {
  size_t needed = 0;
  return nvllm_apply_chat_template(engine, "[]", 2, NULL, 0, NULL, 0, &needed, &error);
}
static nvllm_status call_get_stats(void) {
  nvllm_stats stats = {.struct_size = sizeof stats};
  return nvllm_get_stats(engine, &stats, &error);
}

static nvllm_status call_trim(void) { return nvllm_trim(engine, NULL, &error); }
static nvllm_status call_reset_prefix_cache(void) { return nvllm_reset_prefix_cache(engine, &error); }
static nvllm_status call_release_prefix(void) { return nvllm_release_prefix(engine, 1); }
static nvllm_status call_save_prefix(void) {
  const uint32_t token = 5;
  size_t needed = 0;
  return nvllm_save_prefix(engine, &token, 1, 0, NULL, 0, &needed, NULL, &error);
}
static nvllm_status call_restore_prefix(void) {
  const uint8_t byte = 0;
  return nvllm_restore_prefix(engine, &byte, 1, NULL, &error);
}
static nvllm_status call_fork(void) { return nvllm_fork(engine, 1, 0, NULL, NULL, &error); }

static nvllm_status call_metrics_text(void) {
  size_t needed = 0;
  return nvllm_metrics_text(engine, NULL, 0, &needed, &error);
}

static const struct {
  const char *name;
  nvllm_status (*call)(void);
} entries[] = {
    {"nvllm_engine_model_info", call_model_info},
    {"nvllm_default_options", call_default_options},
    {"nvllm_add_request", call_add_request},
    {"nvllm_add_request_tokens", call_add_request_tokens},
    {"nvllm_cancel", call_cancel},
    {"nvllm_cancel_with_error", call_cancel_with_error},
    {"nvllm_step", call_step},
    {"nvllm_wait", call_wait},
    {"nvllm_wake", call_wake},
    {"nvllm_poll_output", call_poll_output},
    {"nvllm_set_output_callback", call_set_output_callback},
    {"nvllm_generate", call_generate},
    {"nvllm_generate_tokens", call_generate_tokens},
    {"nvllm_generate_prompts", call_generate_prompts},
    {"nvllm_add_chat", call_add_chat},
    {"nvllm_apply_chat_template_messages", call_apply_chat_template_messages},
    {"nvllm_tokenize", call_tokenize},
    {"nvllm_detokenize", call_detokenize},
    {"nvllm_apply_chat_template", call_apply_chat_template},
    {"nvllm_answer_parser_new", call_answer_parser_new},
    {"nvllm_get_stats", call_get_stats},
    {"nvllm_expert_tokens", call_expert_tokens},
    {"nvllm_metrics_text", call_metrics_text},
    {"nvllm_reset_prefix_cache", call_reset_prefix_cache},
    {"nvllm_trim", call_trim},
    {"nvllm_release_prefix", call_release_prefix},
    {"nvllm_release_prefix_with_error", call_release_prefix_with_error},
    {"nvllm_save_prefix", call_save_prefix},
    {"nvllm_restore_prefix", call_restore_prefix},
    {"nvllm_fork", call_fork},
};
enum { ENTRIES = sizeof entries / sizeof *entries };

static int bugs_logged;

static void count_bugs(int32_t level, const char *message, size_t message_len, void *user_data) {
  (void)message_len;
  (void)user_data;
  bugs_logged += level == NVLLM_LOG_ERROR && strstr(message, "bug in the library at src/") != NULL;
}

static void a_panic_poisons_one_engine(const char *folder, size_t entry) {
  char inside[80];
  nvllm_engine *other = open_engine(folder);
  engine = open_engine(folder);

  /* Before the engine is entered: that call fails, and the engine is as it was. */
  panic_at(entries[entry].name);
  CHECK(entries[entry].call() == NVLLM_ERR_PANIC, "%s", entries[entry].name);
  no_panic();
  check_still_works(engine, entries[entry].name);

  snprintf(inside, sizeof inside, "%s/inside", entries[entry].name);
  panic_at(inside);
  bugs_logged = 0;
  nvllm_set_log_callback(count_bugs, NULL, NVLLM_LOG_ERROR);
  CHECK(entries[entry].call() == NVLLM_ERR_PANIC, "%s", inside);
  nvllm_set_log_callback(NULL, NULL, NVLLM_LOG_OFF);
  CHECK(bugs_logged == 1, "%s: %d messages", inside, bugs_logged);
  no_panic();
  for (size_t i = 0; i < ENTRIES; i++) {
    CHECK(entries[i].call() == NVLLM_ERR_PANIC, "%s after %s", entries[i].name, inside);
  }
  CHECK(nvllm_is_finished(engine) == 1, "a loop over it ends");
  check_still_works(other, inside);
  nvllm_engine_free(engine);
  nvllm_engine_free(other);
}

struct waiter {
  nvllm_engine *engine;
  nvllm_status status;
};

static void *wait_for_work(void *argument) {
  struct waiter *waiter = argument;
  waiter->status = nvllm_wait(waiter->engine, UINT64_MAX, NULL);
  return NULL;
}

static void a_panic_ends_the_waits_of_its_engine(const char *folder) {
  struct timespec until_they_wait = {0, 20000000};
  struct waiter waiters[2];
  pthread_t threads[2];
  engine = open_engine(folder);
  /* Before there are other threads: they read the environment. */
  panic_at("nvllm_step/inside");
  for (int i = 0; i < 2; i++) {
    waiters[i] = (struct waiter){engine, NVLLM_OK};
    if (pthread_create(&threads[i], NULL, wait_for_work, &waiters[i]) != 0) exit(1);
  }
  nanosleep(&until_they_wait, NULL);
  CHECK(call_step() == NVLLM_ERR_PANIC, "step");
  for (int i = 0; i < 2; i++) {
    pthread_join(threads[i], NULL);
    CHECK(waiters[i].status == NVLLM_ERR_PANIC, "%s", nvllm_status_name(waiters[i].status));
  }
  no_panic();
  nvllm_engine_free(engine);
}

/* Functions without an engine, or without a status. */
static void the_others_answer_their_fallback(const char *folder) {
  nvllm_engine_config config;
  nvllm_request_options options;
  nvllm_engine *none = NULL;
  nvllm_output output = {.struct_size = sizeof output};
  nvllm_result *result = NULL;
  const char *prompt = "one";
  nvllm_engine_config_init(&config, sizeof config);
  config.model_path = folder;
  config.num_threads = 1;
  config.kv_cache_bytes = 8u << 20;
  engine = open_engine(folder);
  CHECK_STATUS(NVLLM_OK, nvllm_generate(engine, &prompt, NULL, 1, NULL, 0, NULL, NULL, &result, &error), &error, "generate");

  panic_at("nvllm_engine_new");
  CHECK(nvllm_engine_new(&config, &none, &error) == NVLLM_ERR_PANIC && none == NULL, "new");
  CHECK(strstr(error.message, "bug in the library") != NULL, "%s", error.message);
  panic_at("nvllm_engine_new_from");
  CHECK(nvllm_engine_new_from(&config, NULL, 0, &none, &error) == NVLLM_ERR_PANIC && none == NULL, "new_from");
  nvllm_model_file file = {.struct_size = sizeof file};
  panic_at("nvllm_model_file_init");
  nvllm_model_file_init(&file, sizeof file);
  panic_at("nvllm_quantize_folder");
  CHECK(nvllm_quantize_folder(folder, folder, NVLLM_QUANTIZATION_INT8, NULL, NULL, &error) == NVLLM_ERR_PANIC, "quantize");
  panic_at("nvllm_explain");
  CHECK(nvllm_explain(&config, NULL, NULL, 0, NULL, &error) == NVLLM_ERR_PANIC, "explain");
  nvllm_explain_options explained;
  panic_at("nvllm_explain_options_init");
  nvllm_explain_options_init(&explained, sizeof explained);
  panic_at("nvllm_engine_config_init");
  nvllm_engine_config_init(&config, sizeof config);
  panic_at("nvllm_request_options_init");
  nvllm_request_options_init(&options, sizeof options);
  nvllm_model_info info;
  nvllm_step_result step;
  nvllm_stats stats;
  nvllm_output another;
  panic_at("nvllm_model_info_init");
  nvllm_model_info_init(&info, sizeof info);
  panic_at("nvllm_step_result_init");
  nvllm_step_result_init(&step, sizeof step);
  panic_at("nvllm_stats_init");
  nvllm_stats_init(&stats, sizeof stats);
  panic_at("nvllm_output_init");
  nvllm_output_init(&another, sizeof another);
  panic_at("nvllm_set_log_callback");
  nvllm_set_log_callback(NULL, NULL, 0);
  panic_at("nvllm_build_info");
  CHECK(strcmp(nvllm_build_info(), "{}") == 0, "%s", nvllm_build_info());
  panic_at("nvllm_is_finished");
  CHECK(nvllm_is_finished(engine) == 1, "is_finished");
  panic_at("nvllm_result_count");
  CHECK(nvllm_result_count(result) == 0, "count");
  panic_at("nvllm_result_get");
  CHECK(nvllm_result_get(result, 0, &output) == NVLLM_ERR_PANIC, "get");
  panic_at("nvllm_result_get_with_error");
  CHECK(nvllm_result_get_with_error(result, 0, &output, &error) == NVLLM_ERR_PANIC, "get with an error");
  CHECK(strstr(error.message, "bug in the library") != NULL, "%s", error.message);
  panic_at("nvllm_result_free");
  nvllm_result_free(result);
  panic_at("nvllm_engine_free");
  nvllm_engine_free(engine);
  no_panic();
  /* Both frees were stopped before they did anything. */
  CHECK(nvllm_result_count(result) == 1, "the result is still there");
  check_still_works(engine, "a free that panicked");
  nvllm_result_free(result);
  nvllm_engine_free(engine);
}

int main(int argc, char **argv) {
  const char *folder = model_folder(argc, argv);
  if (strstr(nvllm_build_info(), "test-hooks") == NULL) {
    fputs("this library has no test-hooks\n", stderr);
    return 2;
  }
  for (size_t entry = 0; entry < ENTRIES; entry++) a_panic_poisons_one_engine(folder, entry);
  a_panic_ends_the_waits_of_its_engine(folder);
  the_others_answer_their_fallback(folder);
  return checks_end();
}

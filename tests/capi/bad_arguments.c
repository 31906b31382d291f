/* Every pointer as NULL, every length without memory, every struct_size that cannot be, on a live engine. */
#include "check.h"

static nvllm_engine *engine;
static nvllm_error error;

#define REFUSED(word, ...)                                                                             \
  do {                                                                                                 \
    error.message[0] = '\0';                                                                           \
    CHECK_STATUS(NVLLM_ERR_INVALID_ARGUMENT, (__VA_ARGS__), &error, #__VA_ARGS__);                     \
    CHECK(strstr(error.message, (word)) != NULL, "%s: no '%s' in: %s", #__VA_ARGS__, (word), error.message); \
  } while (0)

static void null_pointers(void) {
  const char *prompt = "one";
  const char *no_prompt = NULL;
  const uint32_t token = 5;
  const uint32_t *tokens = &token;
  size_t len = 3, needed = 0;
  uint64_t id = 0;
  nvllm_result *result = NULL;
  REFUSED("info", nvllm_engine_model_info(engine, NULL, &error));
  REFUSED("options", nvllm_default_options(engine, NULL, &error));
  REFUSED("prompt", nvllm_add_request(engine, NULL, 1, NULL, &id, &error));
  REFUSED("tokens", nvllm_add_request_tokens(engine, NULL, 1, NULL, &id, &error));
  REFUSED("output", nvllm_poll_output(engine, NULL, &error));
  REFUSED("result", nvllm_score(engine, &prompt, NULL, 1, NULL, 0, NULL, NULL, NULL, &error));
  REFUSED("text", nvllm_add_request_pair(engine, NULL, "b", NULL, &id, &error));
  REFUSED("second", nvllm_add_request_pair(engine, "a", NULL, NULL, &id, &error));
  REFUSED("needed", nvllm_label(engine, 0, NULL, 0, NULL, &error));
  REFUSED("needed", nvllm_named_prompt(engine, NULL, NULL, 0, NULL, &error));
  REFUSED("prompts", nvllm_generate(engine, NULL, &len, 1, NULL, 0, NULL, NULL, &result, &error));
  REFUSED("prompt", nvllm_generate(engine, &no_prompt, &len, 1, NULL, 0, NULL, NULL, &result, &error));
  REFUSED("options", nvllm_generate(engine, &prompt, &len, 1, NULL, 1, NULL, NULL, &result, &error));
  REFUSED("result", nvllm_generate(engine, &prompt, &len, 1, NULL, 0, NULL, NULL, NULL, &error));
  REFUSED("prompts", nvllm_generate_tokens(engine, NULL, &len, 1, NULL, 0, NULL, NULL, &result, &error));
  REFUSED("prompt_lens", nvllm_generate_tokens(engine, &tokens, NULL, 1, NULL, 0, NULL, NULL, &result, &error));
  REFUSED("result", nvllm_generate_tokens(engine, &tokens, &len, 1, NULL, 0, NULL, NULL, NULL, &error));
  REFUSED("text", nvllm_tokenize(engine, NULL, 1, 0, NULL, 0, &needed, &error));
  REFUSED("tokens", nvllm_tokenize(engine, "a", 1, 0, NULL, 1, &needed, &error));
  REFUSED("needed", nvllm_tokenize(engine, "a", 1, 0, NULL, 0, NULL, &error));
  REFUSED("tokens", nvllm_detokenize(engine, NULL, 1, 0, NULL, 0, &needed, &error));
  REFUSED("text", nvllm_detokenize(engine, &token, 1, 0, NULL, 1, &needed, &error));
  REFUSED("needed", nvllm_detokenize(engine, &token, 1, 0, NULL, 0, NULL, &error));
  REFUSED("messages_json", nvllm_apply_chat_template(engine, NULL, 1, NULL, 0, NULL, 0, &needed, &error));
  REFUSED("options_json", nvllm_apply_chat_template(engine, "[]", 2, NULL, 1, NULL, 0, &needed, &error));
  REFUSED("text", nvllm_apply_chat_template(engine, "[]", 2, NULL, 0, NULL, 1, &needed, &error));
  REFUSED("needed", nvllm_apply_chat_template(engine, "[]", 2, NULL, 0, NULL, 0, NULL, &error));
  REFUSED("parser", nvllm_answer_parser_new(engine, NULL, 0, NULL, NULL, &error));
  REFUSED("tokens", nvllm_save_prefix(engine, NULL, 1, 0, NULL, 0, &needed, NULL, &error));
  REFUSED("buffer", nvllm_save_prefix(engine, &token, 1, 0, NULL, 1, &needed, NULL, &error));
  REFUSED("needed", nvllm_save_prefix(engine, &token, 1, 0, NULL, 0, NULL, NULL, &error));
  REFUSED("bytes", nvllm_restore_prefix(engine, NULL, 1, NULL, &error));
  REFUSED("result", nvllm_result_get_with_error(NULL, 0, &(nvllm_output){.struct_size = sizeof(nvllm_output)}, &error));
  REFUSED("stats", nvllm_get_stats(engine, NULL, &error));
  REFUSED("counts", nvllm_expert_tokens(engine, 0, NULL, 1, &needed, &error));
  REFUSED("needed", nvllm_expert_tokens(engine, 0, NULL, 0, NULL, &error));
  REFUSED("expert_statistics", nvllm_expert_tokens(engine, 0, NULL, 0, &needed, &error));
  REFUSED("layer", nvllm_expert_tokens(engine, 1000, NULL, 0, &needed, &error));
  REFUSED("text", nvllm_metrics_text(engine, NULL, 1, &needed, &error));
  REFUSED("needed", nvllm_metrics_text(engine, NULL, 0, NULL, &error));
  CHECK(result == NULL, "no result was stored");
  CHECK(id == 0, "no id was stored");
}

/* What may be NULL by the header. */
static void optional_pointers(void) {
  const uint32_t token = 5;
  CHECK(nvllm_add_request_tokens(engine, &token, 1, NULL, NULL, NULL) == NVLLM_OK, "no id, no options, no error");
  CHECK(nvllm_wait(engine, 0, NULL) == NVLLM_OK, "no error");
  CHECK(nvllm_wake(engine, NULL) == NVLLM_OK, "no error");
  CHECK(nvllm_step(engine, 0, NULL, NULL) == NVLLM_OK, "no result, no error");
  nvllm_request_options options = {.struct_size = sizeof options};
  CHECK(nvllm_default_options(engine, &options, NULL) == NVLLM_OK, "no error");
  run_to_end(engine);
  CHECK(nvllm_cancel_with_error(engine, 1, NULL) == NVLLM_ERR_NOT_FOUND, "no error");
  CHECK(nvllm_release_prefix_with_error(engine, 1, NULL) == NVLLM_ERR_NOT_FOUND, "no error");
  CHECK(nvllm_set_output_callback(engine, NULL, NULL, NULL) == NVLLM_OK, "no callback");
  nvllm_set_log_callback(NULL, NULL, NVLLM_LOG_DEBUG);
}

static void impossible_lengths(void) {
  const uint32_t token = 5;
  size_t needed = 0;
  REFUSED("prompt", nvllm_add_request(engine, "a", SIZE_MAX, NULL, NULL, &error));
  REFUSED("tokens", nvllm_add_request_tokens(engine, &token, SIZE_MAX / 2, NULL, NULL, &error));
  REFUSED("text", nvllm_tokenize(engine, "a", SIZE_MAX, 0, NULL, 0, &needed, &error));
  REFUSED("tokens", nvllm_save_prefix(engine, &token, SIZE_MAX, 0, NULL, 0, &needed, NULL, &error));
  REFUSED("bytes", nvllm_restore_prefix(engine, (const uint8_t *)"a", SIZE_MAX, NULL, &error));
  REFUSED("length is 0", nvllm_restore_prefix(engine, NULL, 0, NULL, &error));
  REFUSED("tokens", nvllm_add_request_tokens(engine, (const uint32_t *)(const void *)((const char *)&token + 1), 1, NULL,
                                             NULL, &error));
}

static void text_that_is_not_utf8(void) {
  size_t needed = 0;
  REFUSED("prompt is not UTF-8: the byte at offset 2", nvllm_add_request(engine, "ab\xff", 3, NULL, NULL, &error));
  REFUSED("UTF-8", nvllm_add_request(engine, "\xc3", 1, NULL, NULL, &error));
  REFUSED("UTF-8", nvllm_add_request(engine, "\xed\xa0\x80", 3, NULL, NULL, &error));
  REFUSED("text is not UTF-8", nvllm_tokenize(engine, "\xf8", 1, 0, NULL, 0, &needed, &error));
  REFUSED("messages_json", nvllm_apply_chat_template(engine, "\xff", 1, NULL, 0, NULL, 0, &needed, &error));
  REFUSED("options_json", nvllm_apply_chat_template(engine, "[]", 2, "\xff", 1, NULL, 0, &needed, &error));
}

static void struct_sizes(void) {
  static const size_t impossible[] = {0, 1, 7, 12, 4104, SIZE_MAX};
  for (size_t i = 0; i < sizeof impossible / sizeof *impossible; i++) {
    size_t size = impossible[i];
    nvllm_model_info info = {.struct_size = size};
    nvllm_step_result step = {.struct_size = size};
    nvllm_output output = {.struct_size = size};
    nvllm_stats stats = {.struct_size = size};
    nvllm_request_options options = options_of(1);
    options.struct_size = size;
    REFUSED("struct_size", nvllm_engine_model_info(engine, &info, &error));
    REFUSED("struct_size", nvllm_step(engine, 0, &step, &error));
    REFUSED("struct_size", nvllm_poll_output(engine, &output, &error));
    REFUSED("struct_size", nvllm_get_stats(engine, &stats, &error));
    REFUSED("struct_size", nvllm_add_request(engine, "a", 1, &options, NULL, &error));
    REFUSED("struct_size", nvllm_default_options(engine, &options, &error));
    CHECK(options.max_tokens == 1, "a refusal leaves the options alone");
  }
}

/* An older program's struct ends early, and a newer one's goes on: neither is written beyond its end. */
static void older_and_newer_structs(void) {
  union {
    nvllm_stats stats;
    unsigned char bytes[sizeof(nvllm_stats) + 16];
  } place;
  for (size_t size = 8; size <= sizeof place; size += 8) {
    memset(&place, 0xaa, sizeof place);
    place.stats.struct_size = size;
    CHECK_STATUS(NVLLM_OK, nvllm_get_stats(engine, &place.stats, &error), &error, "stats");
    CHECK(place.stats.struct_size == size, "struct_size is the caller's");
    for (size_t i = size; i < sizeof place; i++) CHECK(place.bytes[i] == 0xaa, "size %zu wrote byte %zu", size, i);
    for (size_t i = sizeof(nvllm_stats); i < size; i++) CHECK(place.bytes[i] == 0, "size %zu left byte %zu", size, i);
  }

  nvllm_request_options recommended;
  recommended.struct_size = sizeof recommended;
  CHECK_STATUS(NVLLM_OK, nvllm_default_options(engine, &recommended, &error), &error, "default options");
  union {
    nvllm_request_options options;
    unsigned char bytes[sizeof(nvllm_request_options) + 16];
  } filled;
  for (size_t size = 8; size <= sizeof filled; size += 8) {
    memset(&filled, 0xaa, sizeof filled);
    filled.options.struct_size = size;
    CHECK_STATUS(NVLLM_OK, nvllm_default_options(engine, &filled.options, &error), &error, "default options");
    CHECK(filled.options.struct_size == size, "struct_size is the caller's");
    if (size > offsetof(nvllm_request_options, temperature))
      CHECK(filled.options.temperature == recommended.temperature, "size %zu: %g", size, (double)filled.options.temperature);
    for (size_t i = size; i < sizeof filled; i++) CHECK(filled.bytes[i] == 0xaa, "size %zu wrote byte %zu", size, i);
    for (size_t i = sizeof(nvllm_request_options); i < size; i++)
      CHECK(filled.bytes[i] == 0, "size %zu left byte %zu", size, i);
  }

  nvllm_request_options older = options_of(1);
  older.struct_size = offsetof(nvllm_request_options, temperature);
  older.temperature = -1.0f; /* beyond the end of the older struct: not read */
  CHECK_STATUS(NVLLM_OK, nvllm_add_request(engine, "a", 1, &older, NULL, &error), &error, "older options");
  struct {
    nvllm_request_options options;
    uint64_t unknown;
  } newer = {options_of(1), 0};
  newer.options.struct_size = sizeof newer;
  CHECK_STATUS(NVLLM_OK, nvllm_add_request(engine, "a", 1, &newer.options, NULL, &error), &error, "newer options");
  newer.unknown = 7;
  REFUSED("newer libnanovllm", nvllm_add_request(engine, "a", 1, &newer.options, NULL, &error));
  run_to_end(engine);
}

static void flags_and_buffers(void) {
  uint32_t tokens[64];
  char text[64];
  size_t needed = 0;
  REFUSED("flags", nvllm_tokenize(engine, "a", 1, 4, NULL, 0, &needed, &error));
  REFUSED("flags", nvllm_detokenize(engine, tokens, 0, 1u << 31, NULL, 0, &needed, &error));

  nvllm_status status = nvllm_tokenize(engine, "one two three", 13, 0, NULL, 0, &needed, &error);
  CHECK_STATUS(NVLLM_ERR_BUFFER_TOO_SMALL, status, &error, "asking for the size");
  CHECK(needed > 0 && needed <= 13, "%zu tokens", needed);
  size_t count = needed;
  memset(tokens, 0xaa, sizeof tokens);
  status = nvllm_tokenize(engine, "one two three", 13, 0, tokens, count - 1, &needed, &error);
  CHECK_STATUS(NVLLM_ERR_BUFFER_TOO_SMALL, status, &error, "one too few");
  CHECK(tokens[0] == 0xaaaaaaaa && needed == count, "nothing but the size is written");
  CHECK_STATUS(NVLLM_OK, nvllm_tokenize(engine, "one two three", 13, 0, tokens, count, &needed, &error), &error, "fits");
  CHECK(tokens[count] == 0xaaaaaaaa, "nothing is written beyond");

  status = nvllm_detokenize(engine, tokens, count, 0, NULL, 0, &needed, &error);
  CHECK_STATUS(NVLLM_ERR_BUFFER_TOO_SMALL, status, &error, "asking for the size");
  CHECK(needed == 14, "13 bytes and the NUL, got %zu", needed);
  status = nvllm_detokenize(engine, tokens, count, 0, text, 13, &needed, &error);
  CHECK_STATUS(NVLLM_ERR_BUFFER_TOO_SMALL, status, &error, "no room for the NUL");
  CHECK_STATUS(NVLLM_OK, nvllm_detokenize(engine, tokens, count, 0, text, 14, &needed, &error), &error, "fits");
  CHECK(strcmp(text, "one two three") == 0, "%s", text);
  CHECK_STATUS(NVLLM_OK, nvllm_tokenize(engine, "", 0, 0, NULL, 0, &needed, &error), &error, "empty text");
  CHECK(needed == 0, "%zu tokens of nothing", needed);
}

static void conversations(void) {
  static const char good[] = "[{\"role\":\"user\",\"content\":\"hello\"}]";
  char text[512];
  size_t needed = 0;
  REFUSED("messages", nvllm_apply_chat_template(engine, "{", 1, NULL, 0, text, sizeof text, &needed, &error));
  REFUSED("messages", nvllm_apply_chat_template(engine, "", 0, NULL, 0, text, sizeof text, &needed, &error));
  REFUSED("options", nvllm_apply_chat_template(engine, good, sizeof good - 1, "[]", 2, text, sizeof text, &needed, &error));
  nvllm_status status =
      nvllm_apply_chat_template(engine, good, sizeof good - 1, NULL, 0, text, sizeof text, &needed, &error);
  CHECK_STATUS(NVLLM_OK, status, &error, "a conversation");
  CHECK(strlen(text) + 1 == needed && strstr(text, "hello") != NULL, "%zu: %s", needed, text);

  static const struct {
    const char *name, *options, *wanted;
  } cases[] = {
      {"no thinking", "{\"enable_thinking\": false}", "assistant\n<think>\n\n</think>\n\n"},
      {"thinking, and a variable the template does not know", "{\"enable_thinking\": true, \"mood\": [1]}", "assistant\n"},
      {"no prompt for an answer", "{\"add_generation_prompt\": false}", "hello<|im_end|>\n"},
      {"tools", "{\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"clock\"}}], \"add_generation_prompt\": false}",
       "</tool_call><|im_end|>\n<|im_start|>user\nhello<|im_end|>\n"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char whole[2048];
    const char *options = cases[i].options;
    CHECK_STATUS(NVLLM_OK,
                 nvllm_apply_chat_template(engine, good, sizeof good - 1, options, strlen(options), whole, sizeof whole,
                                           &needed, &error),
                 &error, cases[i].name);
    size_t len = strlen(cases[i].wanted);
    CHECK(needed > len && strcmp(whole + needed - 1 - len, cases[i].wanted) == 0, "%s: %s", cases[i].name, whole);
  }
}

int main(int argc, char **argv) {
  engine = open_engine(model_folder(argc, argv));
  null_pointers();
  impossible_lengths();
  text_that_is_not_utf8();
  struct_sizes();
  check_still_works(engine, "all that");
  older_and_newer_structs();
  optional_pointers();
  flags_and_buffers();
  conversations();
  nvllm_engine_free(engine);
  return checks_end();
}

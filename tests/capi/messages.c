/* Conversations as arrays of messages, and prompts as structs: the same prompts as by JSON and by strings, and what is refused. */
#include "check.h"

static nvllm_engine *engine;
static nvllm_error error;

static const nvllm_message talk[] = {
    {"system", "Be \"brief\"."}, {"user", "list all prime numbers\nwithin 10"}, {"assistant", "2, 3"}, {"user", "go on"}};
enum { TALK = sizeof talk / sizeof *talk };
static const char talk_json[] =
    "[{\"role\": \"system\", \"content\": \"Be \\\"brief\\\".\"},"
    " {\"role\": \"user\", \"content\": \"list all prime numbers\\nwithin 10\"},"
    " {\"role\": \"assistant\", \"content\": \"2, 3\"}, {\"role\": \"user\", \"content\": \"go on\"}]";

/* The prompt of talk by JSON, which stays until the next call. */
static const char *rendered(const char *options) {
  static char text[1024];
  size_t needed = 0;
  CHECK_STATUS(NVLLM_OK,
               nvllm_apply_chat_template(engine, talk_json, strlen(talk_json), options, options != NULL ? strlen(options) : 0, text,
                                         sizeof text, &needed, &error),
               &error, "by JSON");
  return text;
}

static void messages_render_as_their_json_does(void) {
  static const char *const options[] = {NULL, "{}", "{\"add_generation_prompt\": false}"};
  char text[1024] = "", small[4] = "abc";
  size_t needed = 0, by_json;
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    CHECK_STATUS(NVLLM_OK, nvllm_apply_chat_template_messages(engine, talk, TALK, options[i], text, sizeof text, &needed, &error),
                 &error, "by messages");
    CHECK(strcmp(text, rendered(options[i])) == 0, "\"%s\" is not \"%s\"", text, rendered(options[i]));
  }
  by_json = strlen(rendered(NULL)) + 1;
  CHECK(nvllm_apply_chat_template_messages(engine, talk, TALK, NULL, small, 4, &needed, &error) == NVLLM_ERR_BUFFER_TOO_SMALL, "4 bytes");
  CHECK(needed == by_json && strcmp(small, "abc") == 0, "%zu bytes are needed", needed);
}

/* The text of a request, whose first 1,023 bytes stay until the next call. */
static const char *completion_of(uint64_t id) {
  static char text[1024];
  size_t len = 0;
  int finish = NVLLM_FINISH_NONE;
  while (finish == NVLLM_FINISH_NONE) {
    nvllm_output output = {.struct_size = sizeof output};
    nvllm_status status = nvllm_poll_output(engine, &output, &error);
    if (status == NVLLM_NO_OUTPUT) {
      if (nvllm_step(engine, 0, NULL, &error) != NVLLM_OK) break;
      continue;
    }
    if (status != NVLLM_OK || output.request_id != id) break;
    if (len + output.text_len < sizeof text) memcpy(text + len, output.text, output.text_len), len += output.text_len;
    finish = output.finish_reason;
  }
  CHECK(finish == NVLLM_FINISH_STOP || finish == NVLLM_FINISH_LENGTH, "it ended by %d: %s", finish, error.message);
  text[len] = '\0';
  return text;
}

static void a_conversation_is_answered_as_its_prompt_is(void) {
  static char wanted[1024];
  nvllm_request_options options = options_of(24);
  uint64_t id = 0;
  const char *prompt = rendered(NULL);
  CHECK_STATUS(NVLLM_OK, nvllm_add_request(engine, prompt, strlen(prompt), &options, &id, &error), &error, "the prompt");
  strcpy(wanted, completion_of(id));
  CHECK(strlen(wanted) > 0, "an answer");
  CHECK_STATUS(NVLLM_OK, nvllm_add_chat(engine, talk, TALK, NULL, &options, &id, &error), &error, "the conversation");
  const char *answer = completion_of(id);
  CHECK(strcmp(answer, wanted) == 0, "\"%s\" is not \"%s\"", answer, wanted);
  CHECK(nvllm_add_chat(engine, talk, TALK, "{\"add_generation_prompt\": true}", NULL, NULL, NULL) == NVLLM_OK, "no id, no error");
  run_to_end(engine);
}

static nvllm_output result_at(const nvllm_result *result, size_t index) {
  nvllm_output output = {.struct_size = sizeof output};
  CHECK(nvllm_result_get(result, index, &output) == NVLLM_OK, "result %zu", index);
  return output;
}

static void prompts_are_text_tokens_or_messages(void) {
  static const char text[] = "list all prime numbers within 10 and more";
  uint32_t tokens[64];
  size_t num_tokens = 0;
  nvllm_request_options options = options_of(8), three = options_of(8);
  nvllm_result *result = NULL;
  options.tag = 7;
  three.n = 3;
  const char *prompt = rendered(NULL);
  uint32_t flags = NVLLM_TOKENIZE_ADD_SPECIAL | NVLLM_TOKENIZE_PARSE_SPECIAL;
  CHECK_STATUS(NVLLM_OK, nvllm_tokenize(engine, text, 32, flags, tokens, 64, &num_tokens, &error), &error, "tokenize");
  nvllm_prompt prompts[] = {
      {.struct_size = sizeof *prompts, .text = text, .text_len = 32, .options = &options},
      {.struct_size = sizeof *prompts, .tokens = tokens, .num_tokens = num_tokens, .options = &options},
      {.struct_size = sizeof *prompts, .messages = talk, .num_messages = TALK, .options = &three},
      {.struct_size = sizeof *prompts, .text = prompt, .options = &three},
      {.struct_size = sizeof *prompts, .text = "a"},
  };
  nvllm_prompt_init(&prompts[4], sizeof prompts[4]);
  prompts[4].text = "a";
  CHECK_STATUS(NVLLM_OK, nvllm_generate_prompts(engine, prompts, 5, NULL, NULL, &result, &error), &error, "prompts");
  if (result == NULL) return;
  CHECK(nvllm_result_count(result) == 9, "%zu results", nvllm_result_count(result));
  CHECK(strcmp(result_at(result, 0).text, result_at(result, 1).text) == 0, "%s", result_at(result, 1).text);
  CHECK(result_at(result, 1).tag == 7 && result_at(result, 2).tag == 0, "tags");
  for (size_t i = 0; i < 3; i++) {
    nvllm_output by_messages = result_at(result, 2 + i), by_text = result_at(result, 5 + i);
    CHECK(by_messages.index == i && by_messages.prompt_tokens == by_text.prompt_tokens, "result %zu", 2 + i);
    CHECK(strcmp(by_messages.text, by_text.text) == 0, "\"%s\" is not \"%s\"", by_messages.text, by_text.text);
  }
  nvllm_result_free(result);
}

static void a_bad_prompt_has_an_error_and_the_others_run(void) {
  static const nvllm_message half[] = {{"user", "a"}, {"user", NULL}}, nobody[] = {{NULL, "a"}}, latin[] = {{"user", "\xe9"}};
  const uint32_t token = 5;
  nvllm_request_options options = options_of(4), bad = options_of(4);
  nvllm_result *result = NULL;
  bad.temperature = -1;
  const nvllm_prompt prompts[] = {
      {.struct_size = sizeof *prompts, .text = "a", .options = &options},
      {.struct_size = sizeof *prompts},
      {.struct_size = sizeof *prompts, .text = "a", .tokens = &token, .num_tokens = 1},
      {.struct_size = sizeof *prompts, .messages = half, .num_messages = 2},
      {.struct_size = sizeof *prompts, .messages = nobody, .num_messages = 1},
      {.struct_size = sizeof *prompts, .messages = latin, .num_messages = 1},
      {.struct_size = sizeof *prompts, .messages = half, .num_messages = 1, .template_options = "{"},
      {.struct_size = sizeof *prompts, .text = "a", .options = &bad},
      {.struct_size = sizeof *prompts, .messages = half},
      {.struct_size = sizeof *prompts, .text = "a", .options = &options},
  };
  static const char *const wanted[] = {
      NULL, "the prompt has 0 of text, tokens and messages, but must have one",
      "the prompt has 2 of text, tokens and messages, but must have one", "messages[1]: content is NULL", "messages[0]: role is NULL",
      "messages[0]: content is not UTF-8", "options", "temperature", "at least one message", NULL};
  CHECK_STATUS(NVLLM_OK, nvllm_generate_prompts(engine, prompts, 10, NULL, NULL, &result, &error), &error, "prompts");
  if (result == NULL) return;
  for (size_t i = 0; i < 10; i++) {
    nvllm_output output = result_at(result, i);
    int is_right = wanted[i] == NULL ? output.finish_reason == NVLLM_FINISH_LENGTH
                                     : output.finish_reason == NVLLM_FINISH_ERROR && strstr(output.error_message, wanted[i]) != NULL;
    CHECK(is_right, "result %zu ended by %d: %s", i, output.finish_reason, output.error_message);
  }
  nvllm_result_free(result);
  result = NULL;
  CHECK_STATUS(NVLLM_OK, nvllm_generate_prompts(engine, &prompts[7], 1, NULL, NULL, &result, &error), &error, "one alone");
  CHECK(result_at(result, 0).finish_reason == NVLLM_FINISH_ERROR, "its own options");
  nvllm_result_free(result);
}

#define REFUSED(word, ...)                                                                                   \
  do {                                                                                                       \
    CHECK_STATUS(NVLLM_ERR_INVALID_ARGUMENT, (__VA_ARGS__), &error, #__VA_ARGS__);                           \
    CHECK(strstr(error.message, (word)) != NULL, "%s: no '%s' in: %s", #__VA_ARGS__, (word), error.message); \
  } while (0)

static void what_is_refused(void) {
  static const nvllm_message half[] = {{"user", "a"}, {NULL, NULL}};
  size_t needed = 0;
  uint64_t id = 0;
  nvllm_result *result = NULL;
  nvllm_prompt prompts[2] = {{.struct_size = sizeof *prompts, .text = "a"}, {.struct_size = sizeof *prompts - 8, .text = "a"}};
  REFUSED("messages is NULL", nvllm_add_chat(engine, NULL, 1, NULL, NULL, &id, &error));
  REFUSED("at least one message", nvllm_add_chat(engine, NULL, 0, NULL, NULL, &id, &error));
  REFUSED("messages[1]: role is NULL", nvllm_add_chat(engine, half, 2, NULL, NULL, &id, &error));
  REFUSED("NVLLM_MAX_MESSAGES", nvllm_add_chat(engine, talk, NVLLM_MAX_MESSAGES + 1, NULL, NULL, &id, &error));
  REFUSED("must be an object", nvllm_add_chat(engine, half, 1, "[]", NULL, &id, &error));
  REFUSED("text", nvllm_apply_chat_template_messages(engine, talk, TALK, NULL, NULL, 1, &needed, &error));
  REFUSED("needed", nvllm_apply_chat_template_messages(engine, talk, TALK, NULL, NULL, 0, NULL, &error));
  REFUSED("prompts[1]: struct_size is", nvllm_generate_prompts(engine, prompts, 2, NULL, NULL, &result, &error));
  REFUSED("prompts is NULL", nvllm_generate_prompts(engine, NULL, 1, NULL, NULL, &result, &error));
  REFUSED("result", nvllm_generate_prompts(engine, prompts, 1, NULL, NULL, NULL, &error));
  REFUSED("num_prompts", nvllm_generate_prompts(engine, prompts, NVLLM_MAX_QUEUED_COMPLETIONS + 1, NULL, NULL, &result, &error));
  CHECK(id == 0 && result == NULL, "nothing was stored");
  CHECK_STATUS(NVLLM_OK, nvllm_generate_prompts(engine, NULL, 0, NULL, NULL, &result, &error), &error, "none");
  CHECK(nvllm_result_count(result) == 0, "no results");
  nvllm_result_free(result);
  /* A message of JSON without content: many templates only say that an operator does not take it. */
  static const char bare[] = "[{\"role\": \"user\"}]";
  nvllm_status status = nvllm_apply_chat_template(engine, bare, strlen(bare), NULL, 0, NULL, 0, &needed, &error);
  CHECK(status != NVLLM_ERR_BUFFER_TOO_SMALL, "it was rendered");
  CHECK(strstr(error.message, "message 0 has no \"content\"") != NULL, "%s", error.message);
  check_still_works(engine, "what was refused");
}

int main(int argc, char **argv) {
  engine = open_engine(model_folder(argc, argv));
  messages_render_as_their_json_does();
  a_conversation_is_answered_as_its_prompt_is();
  prompts_are_text_tokens_or_messages();
  a_bad_prompt_has_an_error_and_the_others_run();
  what_is_refused();
  nvllm_engine_free(engine);
  return checks_end();
}

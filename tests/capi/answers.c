/* Answers: what a model writes becomes content, reasoning and tool calls, in any pieces, and what is refused. */
#include "check.h"

static nvllm_engine *engine;
static nvllm_error error;

static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"give_item\", \"description\": \"Gives an item.\", \"parameters\":"
    " {\"type\": \"object\", \"properties\": {\"item\": {\"type\": \"string\"}, \"count\": {\"type\": \"integer\"}}}}}]";

static const char answer[] =
    "<think>\nThey want a sword.\n</think>\n\nHere you are.\n<tool_call>\n{\"name\": \"give_item\", \"arguments\": "
    "{\"item\": \"sword \\\"of\\\" \xc3\xa9lan\", \"count\": 1}}\n</tool_call>\n<tool_call>\n{\"name\": \"give_item\", \"arguments\": {}}\n"
    "</tool_call>";

#define REFUSED(wanted, word, ...)                                                                     \
  do {                                                                                                 \
    error.message[0] = '\0';                                                                           \
    CHECK_STATUS((wanted), (__VA_ARGS__), &error, #__VA_ARGS__);                                       \
    CHECK(strstr(error.message, (word)) != NULL, "%s: no '%s' in: %s", #__VA_ARGS__, (word), error.message); \
  } while (0)

/* All events, one line each; pieces of one text are joined. */
static char seen[4096];
static int32_t last_kind;

static void note(const nvllm_answer_event *events, size_t count) {
  static const char *const names[] = {"", "content", "reasoning", "begin", "arguments", "end", "broken"};
  for (size_t i = 0; i < count; i++) {
    const nvllm_answer_event *event = &events[i];
    size_t len = strlen(seen);
    CHECK(event->kind >= NVLLM_ANSWER_CONTENT && event->kind <= NVLLM_ANSWER_TOOL_CALL_BROKEN, "kind %d", (int)event->kind);
    CHECK(event->text[event->text_len] == '\0', "no NUL after %zu bytes", event->text_len);
    if (event->kind == last_kind && event->kind != NVLLM_ANSWER_TOOL_CALL_BEGIN) {
      snprintf(seen + len, sizeof seen - len, "%s", event->text);
    } else {
      snprintf(seen + len, sizeof seen - len, "\n%s %u: %s", names[event->kind], (unsigned)event->call_index, event->text);
    }
    last_kind = event->kind;
  }
}

static nvllm_answer_parser *parser_after(const char *prompt) {
  nvllm_answer_parser *parser = NULL;
  seen[0] = '\0';
  last_kind = 0;
  CHECK_STATUS(NVLLM_OK, nvllm_answer_parser_new(engine, prompt, prompt != NULL ? strlen(prompt) : 0, tools, &parser, &error), &error, "new");
  return parser;
}

static void feed(nvllm_answer_parser *parser, const char *text, size_t len) {
  const nvllm_answer_event *events = NULL;
  size_t count = 0;
  CHECK_STATUS(NVLLM_OK, nvllm_answer_parser_feed(parser, text, len, &events, &count, &error), &error, "feed");
  note(events, count);
}

static const char *message_of(nvllm_answer_parser *parser) {
  static char text[1024];
  size_t needed = 0;
  CHECK_STATUS(NVLLM_OK, nvllm_answer_parser_message(parser, text, sizeof text, &needed, &error), &error, "message");
  CHECK(needed == strlen(text) + 1, "%zu bytes are needed", needed);
  return text;
}

static void finish(nvllm_answer_parser *parser) {
  const nvllm_answer_event *events = NULL;
  size_t count = 0;
  CHECK_STATUS(NVLLM_OK, nvllm_answer_parser_finish(parser, &events, &count, &error), &error, "finish");
  note(events, count);
}

static const char wanted_events[] =
    "\nreasoning 0: They want a sword.\ncontent 0: Here you are.\nbegin 0: give_item\narguments 0: {\"item\":\"sword \\\"of\\\" \xc3\xa9lan\","
    "\"count\":1}\nend 0: \nbegin 1: give_item\narguments 1: {}\nend 1: ";
static const char wanted_message[] =
    "{\"role\":\"assistant\",\"content\":\"Here you are.\",\"reasoning_content\":\"They want a sword.\",\"tool_calls\":[{\"type\":\"function\","
    "\"function\":{\"name\":\"give_item\",\"arguments\":{\"item\":\"sword \\\"of\\\" \xc3\xa9lan\",\"count\":1}}},{\"type\":\"function\","
    "\"function\":{\"name\":\"give_item\",\"arguments\":{}}}]}";

static void pieces_change_nothing(void) {
  for (size_t piece = 1; piece <= sizeof answer; piece += piece < 8 ? 1 : 61) {
    nvllm_answer_parser *parser = parser_after(NULL);
    for (size_t at = 0; at < strlen(answer);) {
      size_t end = at + piece < strlen(answer) ? at + piece : strlen(answer);
      while (((unsigned char)answer[end] & 0xC0) == 0x80) end++; /* whole characters */
      feed(parser, answer + at, end - at);
      at = end;
    }
    finish(parser);
    CHECK(strcmp(seen, wanted_events) == 0, "pieces of %zu:%s", piece, seen);
    CHECK(strcmp(message_of(parser), wanted_message) == 0, "pieces of %zu: %s", piece, message_of(parser));
    nvllm_answer_parser_free(parser);
  }
}

static void a_message_is_there_before_the_end(void) {
  nvllm_answer_parser *parser = parser_after("<|im_start|>assistant\n<think>\n");
  const char *half = "Hm.</think>Yes.<tool_call>\n{\"name\": \"give_item\", \"arguments\": {\"count\": ";
  feed(parser, half, strlen(half));
  CHECK(strcmp(message_of(parser), "{\"role\":\"assistant\",\"content\":\"Yes.\",\"reasoning_content\":\"Hm.\"}") == 0, "%s", message_of(parser));
  CHECK(strstr(seen, "begin 0: give_item\narguments 0: {\"count\":") != NULL, "%s", seen);
  /* What is no call becomes content. */
  feed(parser, "]", 1);
  CHECK(strstr(seen, "broken 0: ") != NULL && strstr(seen, "content 0: <tool_call>") != NULL, "%s", seen);
  finish(parser);
  nvllm_answer_parser_free(parser);
}

static void a_parser_outlives_its_engine(const char *folder) {
  nvllm_engine *first = engine;
  engine = open_engine(folder);
  nvllm_answer_parser *parser = parser_after(NULL);
  nvllm_engine_free(engine);
  feed(parser, answer, strlen(answer));
  finish(parser);
  CHECK(strcmp(seen, wanted_events) == 0, "%s", seen);
  nvllm_answer_parser_free(parser);
  engine = first;
}

static void misuse_is_refused(void) {
  const nvllm_answer_event *events = NULL;
  nvllm_answer_parser *parser = parser_after(NULL), *none = NULL;
  char small[4] = "abc";
  size_t count = 0, needed = 0;
  REFUSED(NVLLM_ERR_INVALID_ARGUMENT, "engine is NULL", nvllm_answer_parser_new(NULL, NULL, 0, NULL, &none, &error));
  REFUSED(NVLLM_ERR_INVALID_ARGUMENT, "parser is NULL", nvllm_answer_parser_new(engine, NULL, 0, NULL, NULL, &error));
  REFUSED(NVLLM_ERR_INVALID_ARGUMENT, "prompt is NULL", nvllm_answer_parser_new(engine, NULL, 1, NULL, &none, &error));
  REFUSED(NVLLM_ERR_INVALID_ARGUMENT, "prompt is not UTF-8", nvllm_answer_parser_new(engine, "\xff", 1, NULL, &none, &error));
  REFUSED(NVLLM_ERR_INVALID_ARGUMENT, "tools: it must be an array", nvllm_answer_parser_new(engine, NULL, 0, "{}", &none, &error));
  REFUSED(NVLLM_ERR_INVALID_ARGUMENT, "tool 0 has no \"name\"", nvllm_answer_parser_new(engine, NULL, 0, "[{}]", &none, &error));
  CHECK(none == NULL, "no parser was stored");
  REFUSED(NVLLM_ERR_INVALID_ARGUMENT, "parser is NULL", nvllm_answer_parser_feed(NULL, "a", 1, &events, &count, &error));
  REFUSED(NVLLM_ERR_INVALID_ARGUMENT, "events is NULL", nvllm_answer_parser_feed(parser, "a", 1, NULL, &count, &error));
  REFUSED(NVLLM_ERR_INVALID_ARGUMENT, "num_events is NULL", nvllm_answer_parser_feed(parser, "a", 1, &events, NULL, &error));
  REFUSED(NVLLM_ERR_INVALID_ARGUMENT, "text is NULL", nvllm_answer_parser_feed(parser, NULL, 1, &events, &count, &error));
  REFUSED(NVLLM_ERR_INVALID_ARGUMENT, "text is not UTF-8", nvllm_answer_parser_feed(parser, "\xc3", 1, &events, &count, &error));
  REFUSED(NVLLM_ERR_INVALID_ARGUMENT, "parser is NULL", nvllm_answer_parser_finish(NULL, &events, &count, &error));
  REFUSED(NVLLM_ERR_INVALID_ARGUMENT, "parser is NULL", nvllm_answer_parser_message(NULL, small, 4, &needed, &error));
  REFUSED(NVLLM_ERR_INVALID_ARGUMENT, "needed is NULL", nvllm_answer_parser_message(parser, small, 4, NULL, &error));
  REFUSED(NVLLM_ERR_BUFFER_TOO_SMALL, "needs a buffer", nvllm_answer_parser_message(parser, small, 4, &needed, &error));
  CHECK(strcmp(small, "abc") == 0, "a small buffer is left alone");
  /* None of that counts as text. */
  feed(parser, "yes", 3);
  finish(parser);
  finish(parser);
  CHECK(strcmp(seen, "\ncontent 0: yes") == 0, "%s", seen);
  REFUSED(NVLLM_ERR_INVALID_ARGUMENT, "has ended the answer", nvllm_answer_parser_feed(parser, "a", 1, &events, &count, &error));
  CHECK(strcmp(message_of(parser), "{\"role\":\"assistant\",\"content\":\"yes\"}") == 0, "%s", message_of(parser));
  nvllm_answer_parser_free(parser);
  nvllm_answer_parser_free(NULL);
}

/* The text of a request with these options, whose first bytes stay until the next call. */
static const char *text_of(uint64_t id) {
  static char text[1024];
  nvllm_output output = {.struct_size = sizeof output};
  size_t len = 0;
  (void)id;
  while (!nvllm_is_finished(engine)) {
    if (nvllm_step(engine, 0, NULL, &error) != NVLLM_OK) break;
    while (nvllm_poll_output(engine, &output, &error) == NVLLM_OK) {
      if (len + output.text_len < sizeof text) memcpy(text + len, output.text, output.text_len), len += output.text_len;
    }
  }
  text[len] = '\0';
  return text;
}

static void special_tokens_are_in_the_text_if_they_are_asked_for(void) {
  /* Tokens of the demo model: <|im_start|>, which is special. The bias makes it the only one. */
  uint32_t start = 0;
  size_t needed = 0;
  float infinite = 1e9f;
  CHECK_STATUS(NVLLM_OK, nvllm_tokenize(engine, "<|im_start|>", 12, NVLLM_TOKENIZE_PARSE_SPECIAL, &start, 1, &needed, &error), &error, "one token");
  for (uint32_t keep = 0; keep < 2; keep++) {
    nvllm_request_options options = options_of(2);
    uint64_t id = 0;
    options.bias_tokens = &start;
    options.bias_values = &infinite;
    options.num_bias = 1;
    options.keep_special_tokens = keep;
    CHECK_STATUS(NVLLM_OK, nvllm_add_request(engine, "one", 3, &options, &id, &error), &error, "add");
    const char *text = text_of(id);
    CHECK(strcmp(text, keep ? "<|im_start|><|im_start|>" : "") == 0, "\"%s\"", text);
  }
}

static void bad_tools_are_refused(void) {
  struct {
    const char *word, *tools, *name;
    int32_t choice;
    uint32_t parallel, strict, keep;
  } cases[] = {{"tools: it must be an array", "{}", NULL, 0, 1, 1, 0},
               {"tools: EOF", "[", NULL, 0, 1, 1, 0},
               {"tools is not UTF-8", "\xff", NULL, 0, 1, 1, 0},
               {"tool 0 has no \"name\"", "[{}]", NULL, 0, 1, 1, 0},
               {"tool_choice is 4, but must be one of NVLLM_TOOL_CHOICE_*", tools, NULL, 4, 1, 1, 0},
               {"tool_choice is -1", tools, NULL, -1, 1, 1, 0},
               {"tool_choice is 2, but must be 0 or 1 where tools is NULL", NULL, NULL, NVLLM_TOOL_CHOICE_REQUIRED, 1, 1, 0},
               {"tool_choice is required, but must be auto or none where tools has none", "[]", NULL, NVLLM_TOOL_CHOICE_REQUIRED, 1, 1, 0},
               {"tool_name is NULL", tools, NULL, NVLLM_TOOL_CHOICE_NAMED, 1, 1, 0},
               {"tool_name is \"take\", but must be the name of one of tools", tools, "take", NVLLM_TOOL_CHOICE_NAMED, 1, 1, 0},
               {"tool_name is a name, but must be NULL without", tools, "give_item", NVLLM_TOOL_CHOICE_AUTO, 1, 1, 0},
               {"parallel_tool_calls is 2, but must be 0 or 1", tools, NULL, 0, 2, 1, 0},
               {"strict_tools is 7", tools, NULL, 0, 1, 7, 0},
               {"keep_special_tokens is 2", tools, NULL, 0, 1, 1, 2}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    nvllm_request_options options = options_of(2);
    options.tools = cases[i].tools;
    options.tool_name = cases[i].name;
    options.tool_choice = cases[i].choice;
    options.parallel_tool_calls = cases[i].parallel;
    options.strict_tools = cases[i].strict;
    options.keep_special_tokens = cases[i].keep;
    REFUSED(NVLLM_ERR_INVALID_ARGUMENT, cases[i].word, nvllm_add_request(engine, "one", 3, &options, NULL, &error));
  }
  nvllm_request_options options = options_of(2);
  options.reserved = 1;
  REFUSED(NVLLM_ERR_INVALID_ARGUMENT, "reserved is 1, but must be 0", nvllm_add_request(engine, "one", 3, &options, NULL, &error));
  check_still_works(engine, "bad tools");
}

#ifdef ANSWERS_WITH_GRAMMARS
/* A model that never ends its reasoning by itself. */
static void reasoning_is_ended_after_so_many_tokens(void) {
  static const char *const prompt = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n<think>\n";
  enum { COMPLETIONS = 6, TOKENS = 48 };
  static const uint32_t limits[] = {0, 1, 7, 40, 100, UINT32_MAX};
  uint32_t end = 0;
  float never = -1e9f;
  size_t needed = 0;
  CHECK_STATUS(NVLLM_OK, nvllm_tokenize(engine, "</think>", 8, NVLLM_TOKENIZE_PARSE_SPECIAL, &end, 1, &needed, &error), &error, "one token");
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    uint32_t limit = limits[i], tokens[COMPLETIONS][TOKENS], reasoned[COMPLETIONS] = {0};
    size_t count[COMPLETIONS] = {0};
    nvllm_request_options options = options_of(TOKENS);
    options.n = COMPLETIONS;
    options.temperature = 3;
    options.seed = 9;
    options.ignore_eos = 1;
    options.bias_tokens = &end;
    options.bias_values = &never;
    options.num_bias = 1;
    options.num_logprobs = limit == 7 ? 2 : 0;
    options.max_thinking_tokens = limit;
    CHECK_STATUS(NVLLM_OK, nvllm_add_request(engine, prompt, strlen(prompt), &options, NULL, &error), &error, "add");
    while (!nvllm_is_finished(engine)) {
      nvllm_output output = {.struct_size = sizeof output};
      if (nvllm_step(engine, 0, NULL, &error) != NVLLM_OK) break;
      while (nvllm_poll_output(engine, &output, &error) == NVLLM_OK) {
        uint32_t index = output.index;
        for (size_t t = 0; t < output.num_token_ids && count[index] < TOKENS; t++) tokens[index][count[index]++] = output.token_ids[t];
        CHECK(output.reasoning_tokens >= reasoned[index], "it does not fall");
        reasoned[index] = output.reasoning_tokens;
      }
    }
    for (uint32_t index = 0; index < COMPLETIONS; index++) {
      uint32_t ends = 0, wanted = limit == UINT32_MAX ? 0 : limit < TOKENS ? limit : TOKENS;
      for (size_t t = 0; t < count[index]; t++) ends += tokens[index][t] == end;
      CHECK(count[index] == TOKENS, "%zu tokens", count[index]);
      CHECK(reasoned[index] == wanted, "limit %u: %u tokens of reasoning", (unsigned)limit, (unsigned)reasoned[index]);
      CHECK(ends == (limit < TOKENS), "limit %u: %u ends", (unsigned)limit, (unsigned)ends);
      CHECK(limit >= TOKENS || tokens[index][limit] == end, "limit %u: the end is not where it should be", (unsigned)limit);
    }
  }
  nvllm_request_options options = options_of(4);
  options.max_thinking_tokens = 3;
  options.structure = "[ab]";
  options.structure_kind = NVLLM_STRUCTURE_REGEX;
  REFUSED(NVLLM_ERR_INVALID_ARGUMENT, "max_thinking_tokens is 3, but must be", nvllm_add_request(engine, "a", 1, &options, NULL, &error));
  options.structure = NULL;
  options.structure_kind = NVLLM_STRUCTURE_NONE;
  options.beam_width = 2;
  REFUSED(NVLLM_ERR_INVALID_ARGUMENT, "max_thinking_tokens is 3, but must be", nvllm_add_request(engine, "a", 1, &options, NULL, &error));
}

/* Compiling a grammar takes too long under valgrind, and so do many tokens. */
static void the_template_gets_the_tools_of_a_request(void) {
  static const nvllm_message question = {"user", "a sword, please"};
  static char by_json[2048];
  char options_json[512], question_json[] = "[{\"role\": \"user\", \"content\": \"a sword, please\"}]";
  size_t needed = 0;
  snprintf(options_json, sizeof options_json, "{\"tools\": %s}", tools);
  CHECK_STATUS(NVLLM_OK,
               nvllm_apply_chat_template(engine, question_json, strlen(question_json), options_json, strlen(options_json), by_json, sizeof by_json,
                                         &needed, &error),
               &error, "by JSON");
  nvllm_request_options options = options_of(16);
  struct {
    const char *name, *template_options;
    int32_t choice;
    int has_tools;
  } cases[] = {{"the tools of the request", NULL, NVLLM_TOOL_CHOICE_AUTO, 1},
               {"beside other options", "{\"enable_thinking\": true}", NVLLM_TOOL_CHOICE_AUTO, 1},
               {"none by choice", NULL, NVLLM_TOOL_CHOICE_NONE, 0},
               {"those of the template come first", "{\"tools\": []}", NVLLM_TOOL_CHOICE_AUTO, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    nvllm_output output = {.struct_size = sizeof output};
    uint64_t id = 0;
    options.tools = tools;
    options.tool_choice = cases[i].choice;
    CHECK_STATUS(NVLLM_OK, nvllm_add_chat(engine, &question, 1, cases[i].template_options, &options, &id, &error), &error, cases[i].name);
    while (!nvllm_is_finished(engine)) {
      if (nvllm_step(engine, 0, NULL, &error) != NVLLM_OK) break;
      while (nvllm_poll_output(engine, &output, &error) == NVLLM_OK) continue;
    }
    uint32_t tokens[512];
    CHECK_STATUS(NVLLM_OK, nvllm_tokenize(engine, by_json, strlen(by_json), NVLLM_TOKENIZE_PARSE_SPECIAL, tokens, 512, &needed, &error), &error,
                 "tokens");
    CHECK((output.prompt_tokens == needed) == cases[i].has_tools, "%s: %u tokens, and %zu with tools", cases[i].name,
          (unsigned)output.prompt_tokens, needed);
  }
}

static const char shop[] =
    "[{\"name\": \"give_item\", \"parameters\": {\"type\": \"object\", \"properties\": {\"item\": {\"enum\": [\"sword\", \"rope\"]},"
    " \"count\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 9}}, \"required\": [\"item\", \"count\"],"
    " \"additionalProperties\": false}},"
    " {\"name\": \"take_gold\", \"parameters\": {\"type\": \"object\", \"properties\": {\"amount\": {\"type\": \"integer\", \"minimum\": 1,"
    " \"maximum\": 100}}, \"required\": [\"amount\"], \"additionalProperties\": false}}]";

/* How often a part occurs in a text. */
static int count_of(const char *text, const char *part) {
  int count = 0;
  for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) count++;
  return count;
}

/* Runs a request whose completions are read by parsers, and checks the calls of those that ended by themselves. Returns how many did. */
static int calls_are_checked(const nvllm_request_options *options, const char *prompt, const char *name) {
  enum { COMPLETIONS = 16 };
  nvllm_answer_parser *parsers[COMPLETIONS];
  uint64_t id = 0;
  int ended = 0;
  for (int i = 0; i < COMPLETIONS; i++) {
    parsers[i] = NULL;
    CHECK_STATUS(NVLLM_OK, nvllm_answer_parser_new(engine, prompt, strlen(prompt), shop, &parsers[i], &error), &error, name);
  }
  nvllm_request_options several = *options;
  several.n = COMPLETIONS;
  CHECK_STATUS(NVLLM_OK, nvllm_add_request(engine, prompt, strlen(prompt), &several, &id, &error), &error, name);
  while (!nvllm_is_finished(engine)) {
    nvllm_output output = {.struct_size = sizeof output};
    if (nvllm_step(engine, 0, NULL, &error) != NVLLM_OK) break;
    while (nvllm_poll_output(engine, &output, &error) == NVLLM_OK) {
      nvllm_answer_parser *parser = parsers[output.index];
      seen[0] = '\0';
      feed(parser, output.text, output.text_len);
      CHECK(output.finish_reason != NVLLM_FINISH_ERROR, "%s: %s", name, output.error_message);
      if (output.finish_reason == NVLLM_FINISH_STOP) finish(parser);
      CHECK(count_of(seen, "broken") == 0, "%s: %s", name, seen);
      if (output.finish_reason != NVLLM_FINISH_STOP) continue;
      const char *message = message_of(parser);
      int calls = count_of(message, "\"type\":\"function\"");
      int valid = count_of(message, "{\"name\":\"take_gold\",\"arguments\":{\"amount\":") +
                  count_of(message, "{\"name\":\"give_item\",\"arguments\":{\"item\":\"sword\",\"count\":") +
                  count_of(message, "{\"name\":\"give_item\",\"arguments\":{\"item\":\"rope\",\"count\":");
      CHECK(calls == valid, "%s: %d of %d calls are valid: %s", name, valid, calls, message);
      CHECK(options->tool_choice == NVLLM_TOOL_CHOICE_AUTO || calls > 0, "%s: no call: %s", name, message);
      CHECK(options->parallel_tool_calls || calls <= 1, "%s: %d calls: %s", name, calls, message);
      if (options->tool_choice == NVLLM_TOOL_CHOICE_NAMED) {
        CHECK(count_of(message, "\"name\":\"take_gold\"") == calls, "%s: another tool: %s", name, message);
      }
      ended++;
    }
  }
  for (int i = 0; i < COMPLETIONS; i++) nvllm_answer_parser_free(parsers[i]);
  return ended;
}

static void calls_cannot_be_malformed(void) {
  nvllm_request_options options = options_of(200);
  const char *begin = "<|im_start|>user\na sword<|im_end|>\n<|im_start|>assistant\n", *thinking = "<|im_start|>assistant\n<think>\n\n</think>\n\n";
  options.temperature = 8; /* It knows nothing. */
  options.keep_special_tokens = 1;
  options.tools = shop;
  options.seed = 5;
  for (uint32_t parallel = 0; parallel < 2; parallel++) {
    options.parallel_tool_calls = parallel;
    options.tool_name = NULL;
    options.tool_choice = NVLLM_TOOL_CHOICE_REQUIRED;
    CHECK(calls_are_checked(&options, thinking, "required") > 8, "answers end");
    calls_are_checked(&options, begin, "required, after reasoning");
    options.max_thinking_tokens = 5;
    CHECK(calls_are_checked(&options, "<|im_start|>assistant\n<think>\n", "required, after reasoning that is ended") > 8, "answers end");
    options.max_thinking_tokens = UINT32_MAX;
    options.tool_choice = NVLLM_TOOL_CHOICE_NAMED;
    options.tool_name = "take_gold";
    CHECK(calls_are_checked(&options, thinking, "by name") > 8, "answers end");
  }
  options.tool_name = NULL;
  options.tool_choice = NVLLM_TOOL_CHOICE_AUTO;
  calls_are_checked(&options, begin, "auto");
  /* A model that wants to call: the grammar begins where it does. */
  uint32_t open[8];
  float want[8];
  size_t needed = 0;
  CHECK_STATUS(NVLLM_OK, nvllm_tokenize(engine, "<tool_call>", 11, 0, open, 8, &needed, &error), &error, "tokens");
  for (size_t i = 0; i < needed && i < 8; i++) want[i] = 30;
  options.bias_tokens = open;
  options.bias_values = want;
  options.num_bias = needed;
  calls_are_checked(&options, thinking, "auto, with a bias");
}

static void a_schema_that_cannot_be_held_is_refused_by_name(void) {
  static const char negative[] = "[{\"name\": \"look\"}, {\"name\": \"guess\", \"parameters\": {\"type\": \"object\", \"properties\":"
                                 " {\"a\": {\"not\": {\"type\": \"string\"}}}}}]";
  nvllm_request_options options = options_of(4);
  options.tools = negative;
  options.tool_choice = NVLLM_TOOL_CHOICE_REQUIRED;
  REFUSED(NVLLM_ERR_INVALID_ARGUMENT, "guess: Unimplemented keys: [\"not\"]", nvllm_add_request(engine, "a", 1, &options, NULL, &error));
  CHECK(strstr(error.message, "strict_tools") != NULL, "the option that changes it: %s", error.message);
  options.strict_tools = 0;
  CHECK_STATUS(NVLLM_OK, nvllm_add_request(engine, "a", 1, &options, NULL, &error), &error, "any object");
  options.structure = "[ab]";
  options.structure_kind = NVLLM_STRUCTURE_REGEX;
  REFUSED(NVLLM_ERR_INVALID_ARGUMENT, "tools is a list, but must be NULL with a structure", nvllm_add_request(engine, "a", 1, &options, NULL, &error));
  options.structure = NULL;
  options.structure_kind = NVLLM_STRUCTURE_NONE;
  options.beam_width = 2;
  REFUSED(NVLLM_ERR_INVALID_ARGUMENT, "beam_width is 2, but must be 0 with tools", nvllm_add_request(engine, "a", 1, &options, NULL, &error));
  options.beam_width = 0;
  const char *half = "<|im_start|>assistant\n<tool_call>\n{\"name\": \"look\"";
  REFUSED(NVLLM_ERR_UNSUPPORTED, "the prompt ends inside a tool call", nvllm_add_request(engine, half, strlen(half), &options, NULL, &error));
  run_to_end(engine);
}
#endif

int main(int argc, char **argv) {
  const char *folder = model_folder(argc, argv);
  engine = open_engine_for(folder, 1024);
  pieces_change_nothing();
  a_message_is_there_before_the_end();
  a_parser_outlives_its_engine(folder);
  misuse_is_refused();
  special_tokens_are_in_the_text_if_they_are_asked_for();
  bad_tools_are_refused();
#ifdef ANSWERS_WITH_GRAMMARS
  reasoning_is_ended_after_so_many_tokens();
  the_template_gets_the_tools_of_a_request();
  calls_cannot_be_malformed();
  a_schema_that_cannot_be_held_is_refused_by_name();
#endif
  nvllm_engine_free(engine);
  return checks_end();
}

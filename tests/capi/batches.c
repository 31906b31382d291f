/* nvllm_generate: order, options, bad prompts among good ones, cancelling, other requests meanwhile. */
#include "check.h"

static nvllm_engine *engine;
static nvllm_error error;

static nvllm_output result_at(const nvllm_result *result, size_t index) {
  nvllm_output output = {.struct_size = sizeof output};
  CHECK(nvllm_result_get(result, index, &output) == NVLLM_OK, "result %zu", index);
  return output;
}

static void results_come_in_the_order_of_the_prompts(void) {
  static const char *const prompts[] = {"one two three", "a", "list all", "introduce yourself"};
  static const uint32_t lengths[] = {9, 1, 5, 3};
  nvllm_request_options each[4];
  const nvllm_request_options *options[4];
  nvllm_result *result = NULL;
  for (size_t i = 0; i < 4; i++) {
    each[i] = options_of(lengths[i]);
    each[i].ignore_eos = 1;
    each[i].tag = 100 + i;
    options[i] = &each[i];
  }
  nvllm_status status = nvllm_generate(engine, prompts, NULL, 4, options, 4, NULL, NULL, &result, &error);
  CHECK_STATUS(NVLLM_OK, status, &error, "generate");
  if (status != NVLLM_OK) return;
  CHECK(nvllm_result_count(result) == 4, "%zu results", nvllm_result_count(result));
  for (size_t i = 0; i < 4; i++) {
    nvllm_output output = result_at(result, i);
    CHECK(output.tag == 100 + i, "result %zu has tag %llu", i, (unsigned long long)output.tag);
    CHECK(output.num_token_ids == lengths[i], "result %zu has %zu tokens", i, output.num_token_ids);
    CHECK(output.finish_reason == NVLLM_FINISH_LENGTH, "result %zu ended by %d", i, output.finish_reason);
    CHECK(strlen(output.text) == output.text_len, "result %zu is NUL-terminated", i);
  }
  nvllm_output output = {.struct_size = sizeof output};
  CHECK(nvllm_result_get(result, 4, &output) == NVLLM_ERR_INVALID_ARGUMENT, "there is no fifth");
  CHECK_STATUS(NVLLM_ERR_INVALID_ARGUMENT, nvllm_result_get_with_error(result, 4, &output, &error), &error, "no fifth");
  CHECK(strcmp(error.message, "result 4 does not exist: there are 4") == 0, "%s", error.message);
  CHECK_STATUS(NVLLM_OK, nvllm_result_get_with_error(result, 3, &output, &error), &error, "the fourth");
  nvllm_result_free(result);
}

/* The same prompt as bytes with a length, as a string, and as tokens. */
static void prompts_may_be_text_or_tokens(void) {
  const char *text = "one two three";
  const char *bytes = "one two three and more";
  const size_t len = 13;
  uint32_t tokens[32];
  const uint32_t *token_prompt = tokens;
  size_t num_tokens = 0;
  nvllm_request_options options = options_of(6);
  const nvllm_request_options *shared = &options;
  nvllm_result *results[3] = {NULL, NULL, NULL};
  options.ignore_eos = 1;
  CHECK_STATUS(NVLLM_OK,
               nvllm_tokenize(engine, text, len, NVLLM_TOKENIZE_ADD_SPECIAL | NVLLM_TOKENIZE_PARSE_SPECIAL, tokens, 32,
                              &num_tokens, &error),
               &error, "tokenize");
  CHECK_STATUS(NVLLM_OK, nvllm_generate(engine, &text, NULL, 1, &shared, 1, NULL, NULL, &results[0], &error), &error, "string");
  CHECK_STATUS(NVLLM_OK, nvllm_generate(engine, &bytes, &len, 1, &shared, 1, NULL, NULL, &results[1], &error), &error, "bytes");
  CHECK_STATUS(NVLLM_OK,
               nvllm_generate_tokens(engine, &token_prompt, &num_tokens, 1, &shared, 1, NULL, NULL, &results[2], &error),
               &error, "tokens");
  for (size_t i = 0; i < 3; i++) {
    if (results[0] == NULL || results[i] == NULL) continue;
    nvllm_output first = result_at(results[0], 0), other = result_at(results[i], 0);
    CHECK(other.num_token_ids == 6 && memcmp(first.token_ids, other.token_ids, 6 * sizeof(uint32_t)) == 0, "form %zu", i);
  }
  for (size_t i = 0; i < 3; i++) nvllm_result_free(results[i]);
}

/* Each completion of a prompt is a result, and the tokens are those of a request with the seed that follows. */
static void completions_are_results_of_their_own(void) {
  static const char *const prompts[] = {"tell me a story", "one", "two"};
  nvllm_request_options many = options_of(6), one = options_of(3), none = options_of(3);
  const nvllm_request_options *options[] = {&many, &one, &none};
  nvllm_result *result = NULL;
  many.n = 3;
  many.seed = 500;
  many.temperature = 4.0f;
  many.ignore_eos = one.ignore_eos = 1;
  none.n = 2;
  none.top_p = 7.0f;
  nvllm_status status = nvllm_generate(engine, prompts, NULL, 3, options, 3, NULL, NULL, &result, &error);
  CHECK_STATUS(NVLLM_OK, status, &error, "generate");
  if (status != NVLLM_OK) return;
  CHECK(nvllm_result_count(result) == 6, "%zu results", nvllm_result_count(result));
  for (size_t i = 0; i < 6; i++) {
    nvllm_output output = result_at(result, i);
    CHECK(output.index == (i < 3 ? i : i < 4 ? 0 : i - 4), "result %zu has index %u", i, output.index);
    CHECK(output.num_token_ids == (i < 3 ? 6u : i < 4 ? 3u : 0u), "result %zu has %zu tokens", i, output.num_token_ids);
    CHECK((output.finish_reason == NVLLM_FINISH_ERROR) == (i >= 4), "result %zu ended by %d", i, output.finish_reason);
  }
  for (uint32_t i = 0; i < 3; i++) {
    nvllm_request_options alone = many;
    const nvllm_request_options *shared = &alone;
    nvllm_result *single = NULL;
    alone.n = 1;
    alone.seed = 500 + i;
    CHECK_STATUS(NVLLM_OK, nvllm_generate(engine, prompts, NULL, 1, &shared, 1, NULL, NULL, &single, &error), &error, "alone");
    if (single == NULL) continue;
    nvllm_output wanted = result_at(single, 0), found = result_at(result, i);
    CHECK(strcmp(wanted.text, found.text) == 0, "completion %u: '%s', alone '%s'", i, found.text, wanted.text);
    nvllm_result_free(single);
  }
  nvllm_result_free(result);
}

static void the_number_of_options_must_fit(void) {
  static const char *const prompts[] = {"a", "b", "c"};
  nvllm_request_options options = options_of(1);
  const nvllm_request_options *two[] = {&options, &options};
  nvllm_result *result = NULL;
  CHECK_STATUS(NVLLM_ERR_INVALID_ARGUMENT, nvllm_generate(engine, prompts, NULL, 3, two, 2, NULL, NULL, &result, &error),
               &error, "two options for three prompts");
  CHECK(strstr(error.message, "num_options is 2") != NULL, "%s", error.message);
  options.temperature = -1.0f;
  CHECK_STATUS(NVLLM_ERR_INVALID_ARGUMENT, nvllm_generate(engine, prompts, NULL, 3, two, 1, NULL, NULL, &result, &error),
               &error, "bad options for all prompts");
  options.temperature = 0.0f;
  options.early_stopping = 7;
  CHECK_STATUS(NVLLM_ERR_INVALID_ARGUMENT, nvllm_generate(engine, prompts, NULL, 3, two, 1, NULL, NULL, &result, &error),
               &error, "options that make no sense for all prompts");
  CHECK(result == NULL, "no result was stored");
  CHECK_STATUS(NVLLM_OK, nvllm_generate(engine, NULL, NULL, 0, NULL, 0, NULL, NULL, &result, &error), &error, "no prompts");
  CHECK(nvllm_result_count(result) == 0, "no results");
  nvllm_result_free(result);
}

static void bad_prompts_leave_the_good_ones_alone(void) {
  static char too_long[4000];
  memset(too_long, 'x', sizeof too_long);
  const char *prompts[] = {"one", "\xff\xfe", "two", "", too_long, "three", "four"};
  const size_t lens[] = {3, 2, 3, 0, sizeof too_long, 5, 4};
  const nvllm_status wanted[] = {NVLLM_OK,
                                 NVLLM_ERR_INVALID_ARGUMENT,
                                 NVLLM_OK,
                                 NVLLM_ERR_INVALID_ARGUMENT,
                                 NVLLM_ERR_CONTEXT_LENGTH,
                                 NVLLM_ERR_INVALID_ARGUMENT,
                                 NVLLM_OK};
  nvllm_request_options good = options_of(4), bad = options_of(4);
  const nvllm_request_options *options[] = {&good, &good, &good, &good, &good, &bad, &good};
  nvllm_result *result = NULL;
  good.ignore_eos = 1;
  bad.early_stopping = 7;
  bad.tag = 55;
  CHECK_STATUS(NVLLM_OK, nvllm_generate(engine, prompts, lens, 7, options, 7, NULL, NULL, &result, &error), &error, "generate");
  if (result == NULL) return;
  CHECK(nvllm_result_count(result) == 7, "%zu results", nvllm_result_count(result));
  for (size_t i = 0; i < 7; i++) {
    nvllm_output output = result_at(result, i);
    CHECK(output.status == wanted[i], "prompt %zu: %s", i, nvllm_status_name(output.status));
    CHECK(output.tag == (i == 5 ? 55u : 0u), "prompt %zu: tag %llu", i, (unsigned long long)output.tag);
    CHECK((output.finish_reason == NVLLM_FINISH_ERROR) == (wanted[i] != NVLLM_OK), "prompt %zu: %d", i, output.finish_reason);
    CHECK((output.error_message != NULL) == (wanted[i] != NVLLM_OK), "prompt %zu has a message or not", i);
    CHECK(output.num_token_ids == (wanted[i] == NVLLM_OK ? 4u : 0u), "prompt %zu: %zu tokens", i, output.num_token_ids);
  }
  nvllm_result_free(result);
}

struct watched {
  size_t calls, finished, total;
  int32_t cancel_at; /* this call answers 1; 0 never */
};

static int32_t watch(const nvllm_progress *progress, void *user_data) {
  struct watched *watched = user_data;
  CHECK(progress->struct_size == sizeof *progress, "the library fills its own size in");
  CHECK(progress->finished >= watched->finished && progress->finished <= progress->total, "progress goes on");
  watched->calls++;
  watched->finished = progress->finished;
  watched->total = progress->total;
  return watched->cancel_at > 0 && watched->calls >= (size_t)watched->cancel_at;
}

static void progress_reports_and_cancels(void) {
  static const char *const prompts[] = {"one", "two"};
  nvllm_request_options options = options_of(20);
  const nvllm_request_options *shared = &options;
  nvllm_result *result = NULL;
  struct watched watched = {0, 0, 0, 0};
  options.ignore_eos = 1;
  CHECK_STATUS(NVLLM_OK, nvllm_generate(engine, prompts, NULL, 2, &shared, 1, watch, &watched, &result, &error), &error, "watched");
  CHECK(watched.finished == 2 && watched.total == 2 && watched.calls >= 20, "%zu calls", watched.calls);
  nvllm_result_free(result);
  result = NULL;
  struct watched impatient = {0, 0, 0, 3};
  CHECK_STATUS(NVLLM_ERR_CANCELLED, nvllm_generate(engine, prompts, NULL, 2, &shared, 1, watch, &impatient, &result, &error),
               &error, "impatient");
  CHECK(impatient.calls == 3 && result == NULL, "cancelled at call %zu", impatient.calls);
  CHECK(nvllm_is_finished(engine), "nothing is left of it");
  check_still_works(engine, "a cancelled batch");
}

static int32_t count_tokens(const nvllm_output *output, void *user_data) {
  *(size_t *)user_data += output->num_token_ids;
  return 0;
}

static int32_t cancel_at_first(const nvllm_output *output, void *user_data) {
  *(size_t *)user_data += output->num_token_ids;
  return 1;
}

static void other_requests_go_on_meanwhile(void) {
  static const char *const prompts[] = {"one"};
  nvllm_request_options options = options_of(10);
  const nvllm_request_options *shared = &options;
  nvllm_output output = {.struct_size = sizeof output};
  nvllm_result *result = NULL;
  size_t polled = 0, pushed = 0;
  options.ignore_eos = 1;
  uint64_t id = add_tokens(engine, 5);
  CHECK_STATUS(NVLLM_OK, nvllm_generate(engine, prompts, NULL, 1, &shared, 1, NULL, NULL, &result, &error), &error, "polled");
  CHECK(result_at(result, 0).num_token_ids == 10, "the batch is whole");
  nvllm_result_free(result);
  while (nvllm_poll_output(engine, &output, &error) == NVLLM_OK) {
    CHECK(output.request_id == id, "only the other request's outputs wait");
    polled += output.num_token_ids;
  }
  CHECK(polled == 5, "%zu tokens", polled);

  CHECK_STATUS(NVLLM_OK, nvllm_set_output_callback(engine, count_tokens, &pushed, &error), &error, "push");
  add_tokens(engine, 5);
  CHECK_STATUS(NVLLM_OK, nvllm_generate(engine, prompts, NULL, 1, &shared, 1, NULL, NULL, &result, &error), &error, "pushed");
  nvllm_result_free(result);
  CHECK(pushed == 5 && nvllm_is_finished(engine), "%zu tokens", pushed);

  pushed = 0;
  CHECK_STATUS(NVLLM_OK, nvllm_set_output_callback(engine, cancel_at_first, &pushed, &error), &error, "push and cancel");
  add_tokens(engine, 5);
  CHECK_STATUS(NVLLM_OK, nvllm_generate(engine, prompts, NULL, 1, &shared, 1, NULL, NULL, &result, &error), &error, "pushed");
  CHECK(result_at(result, 0).num_token_ids == 10, "the batch is whole");
  nvllm_result_free(result);
  CHECK(pushed == 1 && nvllm_is_finished(engine), "cancelled after %zu tokens", pushed);
  CHECK_STATUS(NVLLM_OK, nvllm_set_output_callback(engine, NULL, NULL, &error), &error, "back to polling");
}

/* The demo model recommends sampling, so equal answers show that nothing of the recommendation is lost. */
static void default_options_are_what_null_means(const char *folder) {
  static const char *const prompts[] = {"tell me a story", "one two three"};
  nvllm_request_options options = {.struct_size = sizeof options};
  const nvllm_request_options *shared = &options;
  nvllm_result *results[2] = {NULL, NULL};
  for (size_t i = 0; i < 2; i++) {
    /* A request without a seed draws by its id, so each engine is fresh. */
    nvllm_engine *fresh = open_engine(folder);
    CHECK_STATUS(NVLLM_OK, nvllm_default_options(fresh, &options, &error), &error, "default options");
    CHECK(options.temperature == 0.6f && options.top_k == 20 && options.top_p == 0.95f, "%g, %u, %g",
          (double)options.temperature, options.top_k, (double)options.top_p);
    CHECK(options.max_tokens == UINT32_MAX && options.n == 1 && options.length_penalty == 1.0f, "the library's own defaults");
    CHECK_STATUS(NVLLM_OK, nvllm_generate(fresh, prompts, NULL, 2, &shared, i, NULL, NULL, &results[i], &error), &error,
                 i == 0 ? "with NULL" : "with the defaults");
    nvllm_engine_free(fresh);
  }
  for (size_t prompt = 0; prompt < 2 && results[0] != NULL && results[1] != NULL; prompt++) {
    nvllm_output first = result_at(results[0], prompt), other = result_at(results[1], prompt);
    CHECK(first.num_token_ids == other.num_token_ids &&
              memcmp(first.token_ids, other.token_ids, first.num_token_ids * sizeof(uint32_t)) == 0,
          "'%s' and '%s'", first.text, other.text);
  }
  for (size_t i = 0; i < 2; i++) nvllm_result_free(results[i]);
}

static void a_result_outlives_its_engine(const char *folder) {
  const char *prompt = "one two";
  nvllm_engine *short_lived = open_engine(folder);
  nvllm_result *result = NULL;
  nvllm_request_options options = options_of(4);
  const nvllm_request_options *shared = &options;
  options.ignore_eos = 1;
  CHECK_STATUS(NVLLM_OK, nvllm_generate(short_lived, &prompt, NULL, 1, &shared, 1, NULL, NULL, &result, &error), &error, "generate");
  nvllm_engine_free(short_lived);
  CHECK(result_at(result, 0).num_token_ids == 4, "it is still there");
  nvllm_result_free(result);
}

int main(int argc, char **argv) {
  const char *folder = model_folder(argc, argv);
  engine = open_engine(folder);
  results_come_in_the_order_of_the_prompts();
  prompts_may_be_text_or_tokens();
  completions_are_results_of_their_own();
  the_number_of_options_must_fit();
  bad_prompts_leave_the_good_ones_alone();
  progress_reports_and_cancels();
  other_requests_go_on_meanwhile();
  default_options_are_what_null_means(folder);
  a_result_outlives_its_engine(folder);
  nvllm_engine_free(engine);
  return checks_end();
}

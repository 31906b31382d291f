/* Penalties, biases, log-probabilities and beams through the C API, on the demo model. */
#include "check.h"

#include <math.h>

static nvllm_engine *engine;
static nvllm_error error;
static const uint32_t prompt[] = {5, 6, 7, 8, 9};
enum { PROMPT = sizeof prompt / sizeof *prompt, TOKENS = 20 };

static nvllm_request_options endless(void) {
  nvllm_request_options options = options_of(TOKENS);
  options.ignore_eos = 1;
  return options;
}

/* The tokens of one greedy request, which has TOKENS of them. */
static void answer(const nvllm_request_options *options, uint32_t *tokens) {
  const uint32_t *one = prompt;
  const size_t len = PROMPT;
  nvllm_result *result = NULL;
  nvllm_output output = {.struct_size = sizeof output};
  nvllm_status status = nvllm_generate_tokens(engine, &one, &len, 1, &options, 1, NULL, NULL, &result, &error);
  CHECK_STATUS(NVLLM_OK, status, &error, "generate");
  memset(tokens, 0, TOKENS * sizeof *tokens);
  if (status != NVLLM_OK) return;
  CHECK(nvllm_result_get(result, 0, &output) == NVLLM_OK, "a result");
  CHECK(output.num_token_ids == TOKENS, "%zu tokens: %s", output.num_token_ids,
        output.error_message == NULL ? "" : output.error_message);
  if (output.num_token_ids == TOKENS) memcpy(tokens, output.token_ids, TOKENS * sizeof *tokens);
  nvllm_result_free(result);
}

static void penalties_and_biases_change_the_answer(void) {
  uint32_t plain[TOKENS], tokens[TOKENS];
  nvllm_request_options options = endless();
  answer(&options, plain);

  options.presence_penalty = 1e6f;
  answer(&options, tokens);
  for (size_t i = 0; i < TOKENS; i++)
    for (size_t j = 0; j < i; j++) CHECK(tokens[i] != tokens[j], "token %u comes twice", (unsigned)tokens[i]);

  options = endless();
  options.repetition_penalty = 1e6f;
  answer(&options, tokens);
  for (size_t i = 0; i < TOKENS; i++)
    for (size_t j = 0; j < PROMPT; j++) CHECK(tokens[i] != prompt[j], "token %u is the prompt's", (unsigned)tokens[i]);

  options = endless();
  options.frequency_penalty = -1e6f;
  answer(&options, tokens);
  for (size_t i = 0; i < TOKENS; i++) CHECK(tokens[i] == plain[0], "the first token is liked ever more");

  const uint32_t biased[] = {plain[0], 3};
  const float never[] = {-INFINITY, 0.0f}, always[] = {0.0f, 1e6f};
  options = endless();
  options.bias_tokens = biased;
  options.bias_values = never;
  options.num_bias = 2;
  answer(&options, tokens);
  for (size_t i = 0; i < TOKENS; i++) CHECK(tokens[i] != plain[0], "token %u never comes", (unsigned)plain[0]);
  options.bias_values = always;
  answer(&options, tokens);
  for (size_t i = 0; i < TOKENS; i++) CHECK(tokens[i] == 3, "token 3 always comes");
}

/* A greedy token is the likeliest one, and the others follow in order. */
static void check_ranks(uint32_t token, float logprob, const uint32_t *top_tokens, const float *top_logprobs, size_t num) {
  CHECK(top_tokens[0] == token && top_logprobs[0] == logprob, "token %u is the likeliest", (unsigned)token);
  CHECK(logprob <= 0.0f && logprob > -50.0f, "%g", (double)logprob);
  for (size_t i = 1; i < num; i++) CHECK(top_logprobs[i] <= top_logprobs[i - 1], "alternative %zu", i);
}

static void outputs_bring_log_probabilities(void) {
  nvllm_request_options options = endless();
  nvllm_output output = {.struct_size = sizeof output};
  size_t tokens = 0;
  float sum = 0.0f;
  options.num_logprobs = 3;
  options.num_prompt_logprobs = 2;
  CHECK_STATUS(NVLLM_OK, nvllm_add_request_tokens(engine, prompt, PROMPT, &options, NULL, &error), &error, "add");
  while (!nvllm_is_finished(engine)) {
    CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 0, NULL, &error), &error, "step");
    while (nvllm_poll_output(engine, &output, &error) == NVLLM_OK) {
      CHECK(output.num_logprobs == 3, "%u alternatives", (unsigned)output.num_logprobs);
      for (size_t i = 0; i < output.num_token_ids; i++) {
        check_ranks(output.token_ids[i], output.logprobs[i], output.top_tokens + 3 * i, output.top_logprobs + 3 * i, 3);
        sum += output.logprobs[i];
      }
      CHECK(fabsf(output.cumulative_logprob - sum) < 1e-4f, "%g is not %g", (double)output.cumulative_logprob, (double)sum);
      if (tokens == 0) {
        CHECK(output.num_prompt_logprobs == 2 && output.prompt_tokens == PROMPT, "the prompt's come with the first token");
        for (size_t i = 0; i + 1 < PROMPT; i++) {
          CHECK(output.prompt_logprobs[i] <= output.prompt_top_logprobs[2 * i], "token %zu of the prompt", i + 1);
          CHECK(output.prompt_top_logprobs[2 * i + 1] <= output.prompt_top_logprobs[2 * i], "its alternatives");
          CHECK(output.prompt_top_tokens[2 * i] != output.prompt_top_tokens[2 * i + 1], "two tokens");
        }
      } else {
        CHECK(output.num_prompt_logprobs == 0 && output.prompt_logprobs == NULL, "and with no other");
        CHECK(output.prompt_top_tokens == NULL && output.prompt_top_logprobs == NULL, "nor do the alternatives");
      }
      tokens += output.num_token_ids;
    }
  }
  CHECK(tokens == TOKENS, "%zu tokens", tokens);

  const nvllm_request_options *shared = &options;
  const uint32_t *one = prompt;
  const size_t len = PROMPT;
  nvllm_result *result = NULL;
  CHECK_STATUS(NVLLM_OK, nvllm_generate_tokens(engine, &one, &len, 1, &shared, 1, NULL, NULL, &result, &error), &error, "all");
  CHECK(nvllm_result_get(result, 0, &output) == NVLLM_OK, "a result");
  for (size_t i = 0; i < output.num_token_ids; i++)
    check_ranks(output.token_ids[i], output.logprobs[i], output.top_tokens + 3 * i, output.top_logprobs + 3 * i, 3);
  CHECK(output.num_token_ids == TOKENS && fabsf(output.cumulative_logprob - sum) < 1e-4f, "a result has all of them");
  CHECK(output.num_prompt_logprobs == 2 && output.prompt_logprobs != NULL, "and those of the prompt");
  nvllm_result_free(result);
}

static void who_asks_for_nothing_gets_no_log_probabilities(void) {
  nvllm_request_options options = endless();
  nvllm_output output = {.struct_size = sizeof output};
  CHECK_STATUS(NVLLM_OK, nvllm_add_request_tokens(engine, prompt, PROMPT, &options, NULL, &error), &error, "add");
  CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 0, NULL, &error), &error, "step");
  CHECK(nvllm_poll_output(engine, &output, &error) == NVLLM_OK, "an output");
  CHECK(output.logprobs == NULL && output.top_tokens == NULL && output.top_logprobs == NULL, "no arrays");
  CHECK(output.num_logprobs == 0 && output.num_prompt_logprobs == 0 && output.prompt_logprobs == NULL, "no numbers");
  CHECK(output.cumulative_logprob == 0.0f && output.score == 0.0f, "no sums");
  run_to_end(engine);
}

static void beams_come_best_first_and_all_at_the_end(void) {
  nvllm_request_options options = options_of(TOKENS);
  const nvllm_request_options *shared = &options;
  const char *text = "one two three";
  nvllm_result *result = NULL;
  float before = INFINITY;
  options.beam_width = 4;
  options.n = 3;
  options.length_penalty = 0.5f;
  options.early_stopping = NVLLM_EARLY_STOPPING_NEVER;
  CHECK_STATUS(NVLLM_OK, nvllm_generate(engine, &text, NULL, 1, &shared, 1, NULL, NULL, &result, &error), &error, "beams");
  CHECK(nvllm_result_count(result) == 3, "%zu results", nvllm_result_count(result));
  for (uint32_t i = 0; i < 3; i++) {
    nvllm_output output = {.struct_size = sizeof output};
    CHECK(nvllm_result_get(result, i, &output) == NVLLM_OK, "result %u", (unsigned)i);
    CHECK(output.index == i && output.score <= before, "answer %u has score %g", (unsigned)i, (double)output.score);
    float score = output.cumulative_logprob / powf((float)output.completion_tokens, 0.5f);
    CHECK(fabsf(score - output.score) < 1e-4f, "%g is not %g", (double)score, (double)output.score);
    CHECK(output.finish_reason == NVLLM_FINISH_STOP || output.finish_reason == NVLLM_FINISH_LENGTH, "it ended");
    before = output.score;
  }
  nvllm_result_free(result);

  uint64_t id = 0;
  nvllm_output output = {.struct_size = sizeof output};
  size_t cancelled = 0;
  CHECK_STATUS(NVLLM_OK, nvllm_add_request(engine, text, strlen(text), &options, &id, &error), &error, "add");
  for (int i = 0; i < 3; i++) CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 0, NULL, &error), &error, "step");
  CHECK(nvllm_poll_output(engine, &output, &error) == NVLLM_NO_OUTPUT, "nothing comes before the end");
  CHECK(nvllm_cancel(engine, id) == NVLLM_OK, "cancel");
  CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 0, NULL, &error), &error, "step");
  while (nvllm_poll_output(engine, &output, &error) == NVLLM_OK) cancelled += output.finish_reason == NVLLM_FINISH_CANCELLED;
  CHECK(cancelled == 3 && nvllm_is_finished(engine), "%zu answers were cancelled", cancelled);
}

int main(int argc, char **argv) {
  engine = open_engine(model_folder(argc, argv));
  penalties_and_biases_change_the_answer();
  outputs_bring_log_probabilities();
  who_asks_for_nothing_gets_no_log_probabilities();
  beams_come_best_first_and_all_at_the_end();
  check_still_works(engine, "everything");
  nvllm_engine_free(engine);
  return checks_end();
}

/* Outputs by polling and by a callback, cancels from both, time budgets, text that follows the tokens. */
#include "check.h"

static nvllm_engine *engine;
static nvllm_error error;

static nvllm_status poll_one(nvllm_output *output) {
  output->struct_size = sizeof *output;
  return nvllm_poll_output(engine, output, &error);
}

static void an_idle_engine_returns_at_once(void) {
  nvllm_output output;
  nvllm_step_result step = {.struct_size = sizeof step};
  CHECK(nvllm_is_finished(engine) == 1, "nothing was added");
  CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 0, &step, &error), &error, "one pass of nothing");
  CHECK(step.num_iterations == 0 && step.num_running == 0 && step.num_waiting == 0, "nothing was done");
  CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 1000000, &step, &error), &error, "a second of nothing");
  CHECK(step.elapsed_us < 900000, "an idle engine took %llu us", (unsigned long long)step.elapsed_us);
  CHECK_STATUS(NVLLM_NO_OUTPUT, poll_one(&output), &error, "no output");
  CHECK(error.status == NVLLM_NO_OUTPUT && error.message[0] == '\0', "a condition has no message: %s", error.message);
}

static void polling_gives_each_token_once(void) {
  static const uint32_t prompt[] = {5, 6, 7};
  nvllm_request_options options = options_of(6);
  nvllm_step_result step = {.struct_size = sizeof step};
  nvllm_output output;
  uint64_t id = 0;
  options.ignore_eos = 1;
  options.tag = 4711;
  CHECK_STATUS(NVLLM_OK, nvllm_add_request_tokens(engine, prompt, 3, &options, &id, &error), &error, "add");
  CHECK(id > 0 && nvllm_is_finished(engine) == 0, "it waits");
  uint32_t made = 0, passes = 0, prefilled = 0;
  int32_t finish = NVLLM_FINISH_NONE;
  while (finish == NVLLM_FINISH_NONE && passes < 100) {
    CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 0, &step, &error), &error, "step");
    CHECK(step.num_iterations == 1 && step.in_flight == 0, "one whole pass");
    passes++;
    prefilled += step.prefill_tokens;
    while (poll_one(&output) == NVLLM_OK) {
      made += (uint32_t)output.num_token_ids;
      finish = output.finish_reason;
      CHECK(output.request_id == id && output.tag == 4711, "whose output is it?");
      CHECK(output.status == NVLLM_OK && output.error_message == NULL, "all is well");
      CHECK(output.prompt_tokens == 3 && output.completion_tokens == made, "%u of %u", output.completion_tokens, made);
      CHECK(strlen(output.text) == output.text_len, "the text is NUL-terminated");
      CHECK(output.token_ids != NULL && output.text != NULL, "pointers are good even when there is nothing new");
      CHECK(output.logprobs == NULL && output.top_tokens == NULL && output.index == 0, "none were asked for");
    }
  }
  CHECK(finish == NVLLM_FINISH_LENGTH && made == 6, "finish %d after %u tokens", finish, made);
  CHECK(prefilled == 3, "%u prompt tokens", prefilled);
  CHECK(nvllm_is_finished(engine) == 1, "all was polled");
}

/* Tokenizing alone takes longer than this one may wait. */
static void waiting_for_too_long_is_a_reason_to_end(void) {
  nvllm_request_options options = options_of(6);
  nvllm_output output;
  options.max_wait_us = 1;
  options.tag = 12;
  CHECK_STATUS(NVLLM_OK, nvllm_add_request(engine, "one two three", 13, &options, NULL, &error), &error, "add");
  CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 0, NULL, &error), &error, "step");
  CHECK_STATUS(NVLLM_OK, poll_one(&output), &error, "its end");
  CHECK(output.finish_reason == NVLLM_FINISH_EXPIRED && output.tag == 12, "finish %d", output.finish_reason);
  CHECK(output.status == NVLLM_OK && output.num_token_ids == 0 && output.completion_tokens == 0, "it never ran");
  CHECK(nvllm_is_finished(engine) == 1, "nothing else");
}

static void stop_strings_end_the_text(void) {
  static const char *const stops[] = {"not there", ", 5"};
  nvllm_request_options options = options_of(40);
  char prompt[512], text[256] = "";
  size_t needed = 0;
  const char *messages = "[{\"role\":\"user\",\"content\":\"list all prime numbers within 100\"}]";
  CHECK_STATUS(NVLLM_OK,
               nvllm_apply_chat_template(engine, messages, strlen(messages), NULL, 0, prompt, sizeof prompt, &needed, &error),
               &error, "the prompt");
  options.stop = stops;
  options.num_stop = 2;
  for (uint32_t include = 0; include < 2; include++) {
    nvllm_output output = {.finish_reason = NVLLM_FINISH_NONE};
    options.include_stop = include;
    text[0] = '\0';
    CHECK_STATUS(NVLLM_OK, nvllm_add_request(engine, prompt, needed - 1, &options, NULL, &error), &error, "add");
    while (!nvllm_is_finished(engine) && nvllm_step(engine, 0, NULL, &error) == NVLLM_OK) {
      while (poll_one(&output) == NVLLM_OK) strncat(text, output.text, sizeof text - strlen(text) - 1);
    }
    CHECK(output.finish_reason == NVLLM_FINISH_STOP, "finish %d", output.finish_reason);
    const char *end = include ? "2, 3, 5" : "2, 3";
    CHECK(strlen(text) > strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0, "%u: %s", include, text);
  }
}

static void outputs_wait_until_they_are_polled(void) {
  nvllm_step_result step = {.struct_size = sizeof step};
  nvllm_output output;
  add_tokens(engine, 1);
  add_tokens(engine, 1);
  CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 0, &step, &error), &error, "step");
  CHECK(step.num_outputs == 2, "%u outputs", step.num_outputs);
  CHECK(nvllm_is_finished(engine) == 0, "outputs wait");
  CHECK_STATUS(NVLLM_OK, poll_one(&output), &error, "the first");
  CHECK_STATUS(NVLLM_OK, poll_one(&output), &error, "the second");
  CHECK(nvllm_is_finished(engine) == 1, "all was polled");
}

struct pushed {
  nvllm_engine *engine;
  uint64_t cancel;      /* this request, by the callback's answer */
  uint64_t cancel_call; /* this request, by nvllm_cancel inside the callback */
  uint64_t tokens, outputs, cancelled, busy;
};

static int32_t take(const nvllm_output *output, void *user_data) {
  struct pushed *pushed = user_data;
  nvllm_stats stats = {.struct_size = sizeof stats};
  pushed->outputs++;
  pushed->tokens += output->num_token_ids;
  pushed->cancelled += output->finish_reason == NVLLM_FINISH_CANCELLED;
  CHECK(output->struct_size == sizeof *output, "the library fills its own size in");
  CHECK(nvllm_get_stats(pushed->engine, &stats, NULL) == NVLLM_OK, "[any] functions work inside callbacks");
  pushed->busy += nvllm_step(pushed->engine, 0, NULL, NULL) == NVLLM_ERR_BUSY;
  pushed->busy += nvllm_set_output_callback(pushed->engine, NULL, NULL, NULL) == NVLLM_ERR_BUSY;
  if (output->finish_reason == NVLLM_FINISH_NONE && output->request_id == pushed->cancel_call) {
    CHECK(nvllm_cancel(pushed->engine, output->request_id) == NVLLM_OK, "cancel inside a callback");
  }
  return output->request_id == pushed->cancel && output->finish_reason == NVLLM_FINISH_NONE;
}

static void push_mode_hands_outputs_to_the_callback(void) {
  struct pushed pushed = {.engine = engine};
  nvllm_step_result step = {.struct_size = sizeof step};
  nvllm_output output;
  CHECK_STATUS(NVLLM_OK, nvllm_set_output_callback(engine, take, &pushed, &error), &error, "push");
  add_tokens(engine, 5);
  pushed.cancel = add_tokens(engine, 100);
  pushed.cancel_call = add_tokens(engine, 100);
  for (int i = 0; i < 50 && !nvllm_is_finished(engine); i++) {
    CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 0, &step, &error), &error, "step");
    CHECK(step.num_outputs == 0, "the queue stays empty");
  }
  CHECK(nvllm_is_finished(engine), "all ended");
  CHECK(pushed.cancelled == 2, "%llu were cancelled", (unsigned long long)pushed.cancelled);
  CHECK(pushed.tokens >= 7 && pushed.tokens < 20, "%llu tokens", (unsigned long long)pushed.tokens);
  CHECK(pushed.busy == 2 * pushed.outputs, "[one] functions inside a callback are refused");
  CHECK_STATUS(NVLLM_NO_OUTPUT, poll_one(&output), &error, "nothing is left to poll");
  CHECK_STATUS(NVLLM_OK, nvllm_set_output_callback(engine, NULL, NULL, &error), &error, "back to polling");
  check_still_works(engine, "push mode");
}

static void cancel_ends_a_request_that_waits_or_runs(void) {
  nvllm_output output;
  uint64_t runs = add_tokens(engine, 100);
  CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 0, NULL, &error), &error, "step");
  uint64_t waits = add_tokens(engine, 100);
  CHECK(nvllm_cancel(engine, runs) == NVLLM_OK, "running");
  CHECK(nvllm_cancel(engine, waits) == NVLLM_OK, "waiting");
  CHECK_STATUS(NVLLM_OK, nvllm_step(engine, 0, NULL, &error), &error, "step");
  int cancelled = 0;
  while (poll_one(&output) == NVLLM_OK) cancelled += output.finish_reason == NVLLM_FINISH_CANCELLED;
  CHECK(cancelled == 2, "%d were cancelled", cancelled);
  CHECK(nvllm_is_finished(engine), "nothing is left");
  check_still_works(engine, "cancels");
}

/* The same tokens whether passes are whole or cut by a budget of one microsecond. */
static void a_budget_changes_no_token(void) {
  uint32_t tokens[2][8];
  for (int cut = 0; cut < 2; cut++) {
    nvllm_output output;
    size_t made = 0;
    add_tokens(engine, 8);
    for (int i = 0; i < 100000 && !nvllm_is_finished(engine); i++) {
      CHECK_STATUS(NVLLM_OK, nvllm_step(engine, (uint64_t)cut, NULL, &error), &error, "step");
      while (poll_one(&output) == NVLLM_OK) {
        for (size_t t = 0; t < output.num_token_ids && made < 8; t++) tokens[cut][made++] = output.token_ids[t];
      }
    }
    CHECK(made == 8, "%zu tokens", made);
  }
  CHECK(memcmp(tokens[0], tokens[1], sizeof tokens[0]) == 0, "the budget changed the tokens");
}

static void the_text_of_all_outputs_is_the_text_of_all_tokens(void) {
  char text[2048] = "", whole[2048];
  uint32_t tokens[32];
  size_t made = 0, needed = 0;
  nvllm_output output;
  nvllm_request_options options = options_of(32);
  CHECK_STATUS(NVLLM_OK, nvllm_add_request(engine, "one two", 7, &options, NULL, &error), &error, "add");
  while (!nvllm_is_finished(engine)) {
    if (nvllm_step(engine, 0, NULL, &error) != NVLLM_OK) break;
    while (poll_one(&output) == NVLLM_OK) {
      memcpy(tokens + made, output.token_ids, output.num_token_ids * sizeof *tokens);
      made += output.num_token_ids;
      strcat(text, output.text);
    }
  }
  CHECK_STATUS(NVLLM_OK, nvllm_detokenize(engine, tokens, made, 0, whole, sizeof whole, &needed, &error), &error, "whole");
  CHECK(strcmp(text, whole) == 0, "pieces '%s', whole '%s'", text, whole);
}

static void statistics_count(void) {
  nvllm_stats before = {.struct_size = sizeof before}, after = {.struct_size = sizeof after};
  CHECK_STATUS(NVLLM_OK, nvllm_get_stats(engine, &before, &error), &error, "before");
  add_tokens(engine, 3);
  run_to_end(engine);
  CHECK_STATUS(NVLLM_OK, nvllm_get_stats(engine, &after, &error), &error, "after");
  CHECK(after.generated_tokens - before.generated_tokens == 3, "3 tokens");
  CHECK(after.steps - before.steps == 3, "a prefill that samples, and two decodes: %llu passes",
        (unsigned long long)(after.steps - before.steps));
  CHECK(after.running == 0 && after.waiting == 0 && after.kv_blocks_used == 0, "all was given back");
  CHECK(after.kv_blocks_total > 0, "there are blocks");
}

static void metrics_are_text(void) {
  static char text[16384];
  char wanted[96];
  nvllm_stats stats = {.struct_size = sizeof stats};
  size_t needed = 0;
  CHECK_STATUS(NVLLM_ERR_BUFFER_TOO_SMALL, nvllm_metrics_text(engine, NULL, 0, &needed, &error), &error, "its size");
  CHECK(needed > 1000 && needed < sizeof text, "%zu bytes", needed);
  CHECK_STATUS(NVLLM_OK, nvllm_metrics_text(engine, text, sizeof text, &needed, &error), &error, "metrics");
  CHECK(strlen(text) == needed - 1, "the NUL is counted");
  CHECK_STATUS(NVLLM_OK, nvllm_get_stats(engine, &stats, &error), &error, "stats");
  snprintf(wanted, sizeof wanted, "\nnanovllm_generated_tokens_total %llu\n", (unsigned long long)stats.generated_tokens);
  CHECK(strstr(text, wanted) != NULL, "no '%s' in %s", wanted, text);
}

int main(int argc, char **argv) {
  engine = open_engine(model_folder(argc, argv));
  an_idle_engine_returns_at_once();
  polling_gives_each_token_once();
  waiting_for_too_long_is_a_reason_to_end();
  stop_strings_end_the_text();
  outputs_wait_until_they_are_polled();
  push_mode_hands_outputs_to_the_callback();
  cancel_ends_a_request_that_waits_or_runs();
  a_budget_changes_no_token();
  the_text_of_all_outputs_is_the_text_of_all_tokens();
  statistics_count();
  metrics_are_text();
  nvllm_engine_free(engine);
  return checks_end();
}

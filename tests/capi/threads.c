/* Threads: eight add while one steps, others cancel, two engines side by side, and [one] functions that meet. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { ADDERS = 8, EACH = 4, TOKENS = 2 };

struct adder {
  nvllm_engine *engine;
  int cancels; /* every second request is cancelled at once */
  int refused;
};

/* Adds by every [any] way there is. Checks are counted by the main thread: the counters are not atomic. */
static void *add_many(void *argument) {
  struct adder *adder = argument;
  static const uint32_t prompt[] = {5, 6, 7};
  for (int i = 0; i < EACH; i++) {
    nvllm_error error;
    nvllm_stats stats = {.struct_size = sizeof stats};
    uint32_t tokens[32];
    size_t needed;
    uint64_t id;
    nvllm_request_options options = options_of(TOKENS);
    options.ignore_eos = 1;
    adder->refused += nvllm_add_request_tokens(adder->engine, prompt, 3, &options, &id, &error) != NVLLM_OK;
    adder->refused += nvllm_get_stats(adder->engine, &stats, &error) != NVLLM_OK;
    adder->refused += nvllm_tokenize(adder->engine, "one two", 7, 0, tokens, 32, &needed, &error) != NVLLM_OK;
    if (adder->cancels && i % 2 == 1) {
      nvllm_status status = nvllm_cancel(adder->engine, id);
      adder->refused += status != NVLLM_OK && status != NVLLM_ERR_NOT_FOUND;
    }
  }
  return NULL;
}

static void many_add_while_one_steps(nvllm_engine *engine, int cancels) {
  pthread_t threads[ADDERS];
  struct adder adders[ADDERS];
  nvllm_error error;
  nvllm_output output = {.struct_size = sizeof output};
  size_t finished = 0, tokens = 0, cancelled = 0;
  for (int i = 0; i < ADDERS; i++) {
    adders[i] = (struct adder){engine, cancels, 0};
    if (pthread_create(&threads[i], NULL, add_many, &adders[i]) != 0) exit(1);
  }
  for (int steps = 0; steps < 100000 && finished < ADDERS * EACH; steps++) {
    if (nvllm_step(engine, 0, NULL, &error) != NVLLM_OK) break;
    while (nvllm_poll_output(engine, &output, &error) == NVLLM_OK) {
      tokens += output.num_token_ids;
      finished += output.finish_reason != NVLLM_FINISH_NONE;
      cancelled += output.finish_reason == NVLLM_FINISH_CANCELLED;
    }
  }
  for (int i = 0; i < ADDERS; i++) {
    pthread_join(threads[i], NULL);
    CHECK(adders[i].refused == 0, "thread %d was refused %d times", i, adders[i].refused);
  }
  CHECK(finished == ADDERS * EACH, "%zu of %d ended", finished, ADDERS * EACH);
  CHECK(nvllm_is_finished(engine), "nothing is left");
  if (!cancels) CHECK(tokens == ADDERS * EACH * TOKENS && cancelled == 0, "%zu tokens", tokens);
  CHECK(cancelled <= ADDERS * EACH / 2, "%zu were cancelled", cancelled);
}

struct inside {
  nvllm_engine *engine;
  atomic_int entered, leave;
};

static int32_t stay_inside(const nvllm_output *output, void *user_data) {
  struct inside *inside = user_data;
  (void)output;
  atomic_store(&inside->entered, 1);
  while (!atomic_load(&inside->leave)) sched_yield();
  return 0;
}

static void *step_once(void *argument) {
  struct inside *inside = argument;
  nvllm_status status = nvllm_step(inside->engine, 0, NULL, NULL);
  return (void *)(intptr_t)status;
}

static void a_second_thread_is_told_that_the_engine_is_busy(nvllm_engine *engine) {
  struct inside inside = {.engine = engine};
  const char *prompt = "one";
  nvllm_output output = {.struct_size = sizeof output};
  nvllm_result *result = NULL;
  nvllm_error error;
  pthread_t thread;
  void *status;
  atomic_init(&inside.entered, 0);
  atomic_init(&inside.leave, 0);
  CHECK_STATUS(NVLLM_OK, nvllm_set_output_callback(engine, stay_inside, &inside, &error), &error, "push");
  add_tokens(engine, 1);
  if (pthread_create(&thread, NULL, step_once, &inside) != 0) exit(1);
  while (!atomic_load(&inside.entered)) sched_yield();
  CHECK_STATUS(NVLLM_ERR_BUSY, nvllm_step(engine, 0, NULL, &error), &error, "step");
  CHECK_STATUS(NVLLM_ERR_BUSY, nvllm_poll_output(engine, &output, &error), &error, "poll");
  CHECK_STATUS(NVLLM_ERR_BUSY, nvllm_set_output_callback(engine, NULL, NULL, &error), &error, "callback");
  CHECK_STATUS(NVLLM_ERR_BUSY, nvllm_generate(engine, &prompt, NULL, 1, NULL, 0, NULL, NULL, &result, &error), &error,
               "generate");
  CHECK_STATUS(NVLLM_ERR_BUSY, nvllm_reset_prefix_cache(engine, &error), &error, "reset");
  CHECK_STATUS(NVLLM_ERR_BUSY, nvllm_trim(engine, NULL, &error), &error, "trim");
  CHECK_STATUS(NVLLM_ERR_BUSY, nvllm_restore_prefix(engine, NULL, 0, NULL, &error), &error, "restore");
  CHECK_STATUS(NVLLM_ERR_BUSY, nvllm_fork(engine, 1, 0, NULL, NULL, &error), &error, "fork");
  CHECK(nvllm_cancel(engine, 999) == NVLLM_ERR_NOT_FOUND, "[any] functions go on");
  atomic_store(&inside.leave, 1);
  pthread_join(thread, &status);
  CHECK((intptr_t)status == NVLLM_OK, "the first thread's step");
  CHECK_STATUS(NVLLM_OK, nvllm_set_output_callback(engine, NULL, NULL, &error), &error, "back to polling");
  check_still_works(engine, "a busy answer");
}

static void *run_alone(void *argument) {
  nvllm_engine *engine = argument;
  nvllm_output output = {.struct_size = sizeof output};
  size_t tokens = 0;
  for (int i = 0; i < 4; i++) add_tokens(engine, 5);
  while (!nvllm_is_finished(engine) && nvllm_step(engine, 0, NULL, NULL) == NVLLM_OK) {
    while (nvllm_poll_output(engine, &output, NULL) == NVLLM_OK) tokens += output.num_token_ids;
  }
  return (void *)tokens;
}

static void two_engines_do_not_know_each_other(const char *folder) {
  nvllm_engine *engines[2] = {open_engine(folder), open_engine(folder)};
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) {
    if (pthread_create(&threads[i], NULL, run_alone, engines[i]) != 0) exit(1);
  }
  for (int i = 0; i < 2; i++) {
    void *tokens;
    pthread_join(threads[i], &tokens);
    CHECK((size_t)tokens == 20, "engine %d made %zu tokens", i, (size_t)tokens);
  }
  nvllm_engine_free(engines[0]);
  check_still_works(engines[1], "the other engine's end");
  nvllm_engine_free(engines[1]);
}

int main(int argc, char **argv) {
  const char *folder = model_folder(argc, argv);
  nvllm_engine *engine = open_engine(folder);
  many_add_while_one_steps(engine, 0);
  many_add_while_one_steps(engine, 1);
  a_second_thread_is_told_that_the_engine_is_busy(engine);
  nvllm_engine_free(engine);
  two_engines_do_not_know_each_other(folder);
  return checks_end();
}
